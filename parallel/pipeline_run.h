/* pipeline_run.h -- what the files of the running pipeline share: links, slots, the programs with their places. */
#ifndef PARALLEL_PIPELINE_RUN_H
#define PARALLEL_PIPELINE_RUN_H

#include <parallel/pipeline.h>

enum { HKT_MESSAGES = HKT_ACTIONS - HKT_DO_SEND_FORWARD }; /* kinds of message, and so links of a stage at most */

/* One direction to one neighbour: a communicator of two and a stream for it alone, so that nothing waits for anything
 * else. */
struct hkt_pipeline_link {
    hkt_comm_t   *comm; /* NULL: no such neighbour */
    hkt_stream_t *stream;
    int           peer; /* rank in comm */
};

/* Memory for one message, and when and how the message that last used it has ended. */
struct hkt_slot {
    void        *memory;
    hkt_event_t *event;
    int          rc; /* written by the stream before the event */
};

enum { HKT_SLOT_INPUT, HKT_SLOT_OUTPUT_GRADIENT, HKT_SLOT_OUTPUT, HKT_SLOT_INPUT_GRADIENT, HKT_SLOT_KINDS };

struct hkt_slots {
    struct hkt_slot *slot;
    int              n;
    void            *memory; /* of all */
};

/* A message as its stream does it. */
struct hkt_transfer {
    struct hkt_pipeline      *pipeline;
    const hkt_instruction_t  *instruction;
    struct hkt_pipeline_link *link;
    struct hkt_slot          *slot;
    int64_t                  *shape; /* read, or written by the handshake */
    hkt_pipeline_mark_t      *mark;
};

/* A program of this stage with its places in memory. */
struct hkt_placed {
    hkt_program_t           *program;
    const hkt_instruction_t *list;
    size_t                   n;
    int                     *place[HKT_SLOT_KINDS]; /* [pairs]: which slot; -1: none */
    int                      needed[HKT_SLOT_KINDS];
    struct hkt_transfer     *transfers; /* [n] */
    hkt_pipeline_mark_t     *marks;     /* [n] */
    void                    *memory;
};

struct hkt_pipeline {
    hkt_pipeline_shape_t     shape;
    hkt_pipeline_message_t   message;
    size_t                   most; /* elements of a message */
    hkt_comm_t              *comm;
    hkt_ledger_t            *ledger;
    int                      stage;
    struct hkt_pipeline_link link[HKT_MESSAGES];
    struct hkt_placed        training, evaluation;
    struct hkt_slots         slots[HKT_SLOT_KINDS];
    int64_t (*shapes)[3];          /* [pairs] of inputs, then [pairs] of outputs */
    const struct hkt_placed *last; /* what ran last */
    double                   origin, busy, total;
    int                      dead; /* the error that ended it */
};

static inline size_t hkt_pairs(const hkt_pipeline_shape_t *shape)
{
    return (size_t)shape->chunks * (size_t)shape->micros;
}

static inline int64_t *hkt_shape_of(const struct hkt_pipeline *p, bool output, const hkt_instruction_t *in)
{
    return p->shapes[(output ? hkt_pairs(&p->shape) : 0) + hkt_pair(&p->shape, in)];
}

double hkt_pipeline_now(void);

/* Elements of a shape, -1 where it is none or has more than `most`. */
int64_t hkt_shape_count(const int64_t shape[3], size_t most);

int  hkt_links_open(struct hkt_pipeline *p); /* collective over p->comm */
void hkt_links_abort(struct hkt_pipeline *p);
void hkt_links_close(struct hkt_pipeline *p);

/* Writes a program's list and which slots its messages use. Free also after an error. */
int  hkt_placed_make(struct hkt_placed *placed, struct hkt_pipeline *p, hkt_pipeline_kind_t kind);
void hkt_placed_free(struct hkt_placed *placed, hkt_ledger_t *ledger);

/* Takes the slots that the programs need, and tells their transfers. Free also after an error. */
int  hkt_slots_take(struct hkt_pipeline *p);
void hkt_slots_give(struct hkt_pipeline *p);

#endif
