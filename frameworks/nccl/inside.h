/* inside.h -- what the sources of libnccl.so.2 share. They use the public interface of Hocket only, so the two libraries can be exchanged one by one.
 *
 *   error.c   codes and sentences             comm.c    handles, what can be asked, the end      make.c, config.c  init, split, shrink, grow
 *   call.c    the table of collectives        group.c   groups                                   job.c   calls that run together, in order
 *   queue.c   what a CUDA stream is here      memory.c  buffers, windows, operators              param.c, device.c  the rest, and refusals
 *
 * A communicator is used by one thread at a time, but for ncclCommGetAsyncError() and ncclCommAbort(), which any thread may call at any time.
 */
#ifndef HOCKET_NCCL_INSIDE_H
#define HOCKET_NCCL_INSIDE_H

#include "hocket.h"
#ifndef HOCKET_NCCL_WITHOUT_CUDA
#define HOCKET_NCCL_WITHOUT_CUDA /* its types are enough */
#endif
#include "nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Defines pncclX and the weak alias ncclX: NCCL_API(ncclResult_t, GetVersion, (int *version)) { ... } */
#define NCCL_EXPORT __attribute__((visibility("default")))
#define NCCL_API(result, name, parameters)                                                                                               \
    NCCL_EXPORT result nccl##name parameters __attribute__((weak, alias("pnccl" #name)));                                                \
    NCCL_EXPORT result pnccl##name parameters

/* ---- error.c */

enum { NCCL_SENTENCE = 1024 };

/* Keeps the sentence as the last error of the thread and of the process; gives the code. */
ncclResult_t nccl_fail(ncclResult_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The code for one of Hocket's, whose sentence is kept likewise. 0 and HKT_IN_PROGRESS keep nothing. */
ncclResult_t nccl_from(int code);

const char *nccl_sentence(void); /* of the thread's last error; "" */

#define NCCL_TRY(expr)                                                                                                                   \
    do {                                                                                                                                 \
        const ncclResult_t rc_ = (expr);                                                                                                 \
        if (rc_ != ncclSuccess)                                                                                                          \
            return rc_;                                                                                                                  \
    } while (0)

/* ---- call.c */

typedef enum {
    NCCL_ALL_REDUCE, NCCL_BROADCAST, NCCL_REDUCE, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, NCCL_ALL_TO_ALL, NCCL_GATHER, NCCL_SCATTER,
    NCCL_SEND, NCCL_RECV, NCCL_KINDS
} nccl_kind;

/* A call with all it needs until it has run: an operator may be destroyed before that. */
struct nccl_call {
    nccl_kind      kind;
    const void    *send;
    void          *recv;
    size_t         count;
    ncclDataType_t type;
    int            op;     /* ncclRedOp_t; ncclNumOps: a premultiplied sum */
    int            root;   /* or peer */
    double         scalar; /* of a premultiplied sum */
    const void    *scalar_at; /* where it is to be read when the call runs; NULL: it is above */
    ncclComm_t     comm;
    cudaStream_t   stream;
};

extern const struct nccl_type {
    const char *name;
    hkt_type_t  type;
    size_t      size;
} nccl_type[ncclNumTypes];

double       nccl_scalar(const void *at, ncclDataType_t type);
const char  *nccl_kind_name(nccl_kind kind);
int          nccl_call_run(const struct nccl_call *call, hkt_stream_t *stream); /* an HKT_ERR_* */
void         nccl_call_finish(const struct nccl_call *call); /* what is left to do when it has run without a stream */

/* ---- queue.c: where work that is put on a stream waits for its turn */

struct nccl_queue {
    enum { NCCL_NOW, NCCL_HOST_FUNCTION, NCCL_THREAD, NCCL_DEVICE } kind; /* DEVICE: Hocket's own stream, not posted to */
    void        *at;        /* the CUDA stream or the hkt_stream_t */
    hkt_event_t *event;     /* DEVICE: for joining it to others */
    bool         capturing; /* the stream records a graph: what is put on it runs when the graph does, as often as that */
};

/* What work of this communicator on this stream is put on. */
ncclResult_t nccl_queue_find(struct nccl_queue *queue, ncclComm_t comm, cudaStream_t stream);
ncclResult_t nccl_queue_post(const struct nccl_queue *queue, void (*function)(void *), void *arg);
int          nccl_current_device(void);
ncclResult_t nccl_read_scalar(void *to, const void *from, size_t size, cudaStream_t stream); /* of any memory, behind the stream's work */
ncclResult_t nccl_alloc(void **ptr, size_t size); /* of the current device, else of the host */
ncclResult_t nccl_free(void *ptr);

/* ---- job.c: calls that run together */

ncclResult_t nccl_job_submit(struct nccl_call *calls, size_t n);
void         nccl_job_free_captured(ncclComm_t comm);
void         nccl_comm_drain(ncclComm_t comm); /* waits until all work that was put on queues has run */

/* Work of one communicator runs in the order of its tickets. */
uint64_t nccl_turn_issue(ncclComm_t comm);
void     nccl_turn_wait(ncclComm_t comm, uint64_t ticket);
void     nccl_turn_pass(ncclComm_t comm, uint64_t ticket);

/* ---- group.c */

struct nccl_making;
bool         nccl_group_active(void);
ncclResult_t nccl_group_error(ncclResult_t code); /* inside a group: its end will return it */
ncclResult_t nccl_group_call(const struct nccl_call *call);
ncclResult_t nccl_group_make(struct nccl_making *making);

/* ---- comm.c */

enum { NCCL_NAME = 64 };

struct nccl_operator {
    bool           used, immediate;
    ncclDataType_t type;
    double         scalar;
    const void    *at;
};

struct ncclComm {
    _Atomic uint32_t alive; /* the handle is one */
    _Atomic uint32_t holders; /* the handle, functions inside, work on queues: the last one ends it */
    struct ncclComm *next_free;

    hkt_comm_t *_Atomic hkt; /* NULL until there is one */
    int           rank, size, device;
    bool          blocking;
    hkt_unique_id_t id;        /* its ranks can meet by it again */
    uint64_t      made;        /* from this one so far by calls of all its ranks */
    char          name[NCCL_NAME];

    _Atomic int      state;    /* ncclInProgress while it is made; ncclSuccess; why it could not be */
    _Atomic int      async;    /* the first error of work that ran on a queue */
    char             sentence[NCCL_SENTENCE]; /* of state or async; written before them */
    _Atomic uint32_t aborted, revoked;
    bool             finalized, suspended;

    /* Work on queues runs in the order of the calls, whatever queues it is on. */
    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    _Atomic uint64_t issued, done; /* tickets; written under lock */
    bool             busy;         /* a job runs; under lock */
    struct nccl_queue own;     /* of a communicator that does not block, where there are no CUDA streams */

    struct nccl_operator *op;
    int                   ops;
    struct nccl_job      *captured; /* of graphs, which may run them again as long as the communicator lives */
    struct ncclWindow_vidmem *windows;
    hkt_comm_t *_Atomic   splitting; /* while it is made from this one */
};

ncclComm_t nccl_comm_new(void);
void       nccl_comm_recycle(ncclComm_t comm);

/* For the using thread: the communicator is made and may be used for `what`. Leave it again. */
ncclResult_t nccl_comm_enter(ncclComm_t comm, const char *what);
ncclResult_t nccl_comm_visit(ncclComm_t comm, const char *what); /* by any thread, in any state */
void         nccl_comm_hold(ncclComm_t comm); /* by one who is inside, for longer */
void         nccl_comm_leave(ncclComm_t comm);
void         nccl_comm_leave_late(ncclComm_t comm); /* in a thread that the communicator may own */

/* The first error of work on a queue. */
void nccl_comm_async(ncclComm_t comm, int hkt_code);

/* ---- config.c */

/* Whether it blocks, and its name; both stay as they are where the config does not say. */
ncclResult_t nccl_config_read(ncclComm_t comm, const struct ncclComm *parent, const ncclConfig_t *from, const char *function);

/* ---- make.c */

void nccl_making_wait(ncclComm_t comm);   /* until it is made, or could not be */
void nccl_making_cancel(ncclComm_t comm); /* makes it fail soon; c->aborted is set */

/* Of a group: starts those that it has, and waits for those that block. Takes them over. */
ncclResult_t nccl_make_all(struct nccl_making **making, size_t n);
void         nccl_making_drop(struct nccl_making *making);

/* ---- memory.c */

void         nccl_memory_forget(ncclComm_t comm); /* windows and operators that are left */
ncclResult_t nccl_operator_read(ncclComm_t comm, struct nccl_call *call);

#endif
