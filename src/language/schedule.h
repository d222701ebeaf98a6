/* schedule.h -- what algorithms are written in.
 *
 * A schedule is what one rank does for one pass over the data: a straight line of steps. A step reduces a list of sources
 * into one value and stores the value in every place of a list of destinations. It names chunks and ranks, never bytes,
 * pointers, transports or topology: those are the plan's. Ranks are places; hkt_schedule_build() puts the ranks into them.
 *
 *   source       IN c    chunk c of my input               destination  OUT c   chunk c of my output
 *                OUT c   what I stored there before                     TMP c   chunk c of my scratch
 *                TMP c   likewise                                       PEER p  a message to rank p
 *                PEER p  the next message from rank p
 *
 * value = the sources folded, in the order of the list, by the canonical tree (split the list at the largest power of two
 * below its length, recurse). One source is a copy. A value is raw (somebody's input, untouched), partial (a reduction of
 * some ranks, in the wide type) or finished (all ranks, rounded to the type). A step of more than one source yields a
 * partial; with HKT_STEP_FINISH it yields a finished value, which is right only when every rank has been reduced into it.
 * OUT holds raw or finished values, never partials; TMP and messages hold any. One step may fold raw and partial sources.
 *
 * What the verifier holds every schedule to, and an engine may rely on:
 *   - every OUT chunk that the collective defines is stored exactly once; a TMP value is read before it is overwritten or left;
 *   - all sources of a step are the same chunk of the vector (or block);
 *   - a reduction finishes every value that reaches OUT (also for one rank: FINISH of one source), other collectives none, and
 *     finished values are only copied;
 *   - in a reduction a raw message is its sender's own input and is folded by the step that reads it, so whoever folds a raw
 *     value knows whose it is; scratch holds partials and finished values only;
 *   - a step names a peer at most once as a source and once as a destination, and never itself;
 *   - a step that reads and stores the same TMP chunk does not change its form.
 *
 * Messages from one rank to another arrive in the order sent. Between two ranks at least HKT_FIFO_DEPTH messages fit before
 * the sender waits for the receiver; a step waits until all its sources are there and all its messages fit, then happens at
 * once. In place, IN and OUT are the same memory: a chunk of IN may be read until the rank first stores that OUT chunk.
 */
#ifndef HKT_SCHEDULE_H
#define HKT_SCHEDULE_H

#include <stdint.h>

enum hkt_place { HKT_IN, HKT_OUT, HKT_TMP, HKT_PEER };
enum { HKT_STEP_FINISH = 1 };
enum { HKT_FIFO_DEPTH = 2 }; /* depth 1 deadlocks every fused ring; proven by the verifier */

struct hkt_operand {
    uint8_t  place; /* enum hkt_place */
    uint32_t id;    /* chunk, or rank for HKT_PEER */
};

struct hkt_step {
    uint32_t first; /* index of its first source in hkt_schedule.operand; its destinations follow */
    uint16_t nsrc, ndst;
    uint16_t flags;
};

struct hkt_schedule {
    struct hkt_step    *step;
    struct hkt_operand *operand;
    uint32_t            nsteps, noperands, step_cap, operand_cap;
    uint32_t            chunks;     /* the vector (or block, see hkt_shape) is cut into so many chunks; set by build */
    uint32_t            tmp_chunks; /* scratch chunks used; kept by the emit functions */
    int                 error;      /* first failed emit; build returns it at its end */
};

void hkt_schedule_free(struct hkt_schedule *s); /* leaves an empty schedule */

/* Writing steps: open one, add sources, then destinations. An allocation failure is kept in s->error and later calls do
 * nothing, so that build functions stay straight; hkt_schedule_end() returns it. */
void hkt_step(struct hkt_schedule *s, unsigned flags);
void hkt_from(struct hkt_schedule *s, enum hkt_place place, int id);
void hkt_to(struct hkt_schedule *s, enum hkt_place place, int id);
int  hkt_schedule_end(struct hkt_schedule *s);

/* The commonest step: one source, one destination. */
void hkt_copy(struct hkt_schedule *s, enum hkt_place from, int from_id, enum hkt_place to, int to_id);

static inline const struct hkt_operand *hkt_sources(const struct hkt_schedule *s, const struct hkt_step *st)
{
    return s->operand + st->first;
}

static inline const struct hkt_operand *hkt_destinations(const struct hkt_schedule *s, const struct hkt_step *st)
{
    return s->operand + st->first + st->nsrc;
}

#endif
