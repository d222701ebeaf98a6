/* fake.h -- what the parts of the fake driver know of each other.
 *
 * Device memory is memfd memory that other processes map, streams are threads, kernels are host functions run by simt.c. An address that
 * the driver hands out has a bit set (FAKE_TAG) that no address of the host has: host code that touches device memory dies at
 * once, as it does with a GPU. fake_pointer() takes it away again.
 */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include "more.h"
#include "simt.h"

#include <pthread.h>
#include <stdbool.h>

enum { FAKE_DEVICES = 16, FAKE_GRANULE = 2 << 20, FAKE_PARAMETER_BYTES = 4096, FAKE_MULTIPROCESSORS = 8 };

#define FAKE_TAG ((CUdeviceptr)SIMT_TAG)

/* Callers pass errors on; nothing is held at these places. */
#define FAKE_TRY(call)                                                                                                                     \
    do {                                                                                                                                   \
        const CUresult error_ = (call);                                                                                                    \
        if (error_)                                                                                                                        \
            return error_;                                                                                                                 \
    } while (0)

/* ---- settings.c: the knobs, read once by cuInit() ------------------------------------------------------------------------------- */

enum fake_link { FAKE_LINK_NONE, FAKE_LINK_PCIE, FAKE_LINK_NVLINK };
enum fake_share { FAKE_CONCURRENT, FAKE_EXCLUSIVE, FAKE_SLICES };

struct fake_settings {
    int             ndevices;                  /* that this process sees */
    int             physical[FAKE_DEVICES];    /* which of the machine's they are */
    enum fake_link  link[FAKE_DEVICES][FAKE_DEVICES]; /* between the machine's */
    enum fake_share share;
    long            slice_us;
    unsigned        slots, seed, jitter_us, queues;
    bool            memory_operations, mps, dma_buf, tagged;
    char            session[64], kernels[4096];
};

extern struct fake_settings fake;

void fake_settings_read(void);

/* ---- device.c ------------------------------------------------------------------------------------------------------------------- */

struct CUctx_st {
    int      ordinal, device; /* as this process counts, as the machine does */
    int      references;
    CUresult sticky; /* of a kernel that failed: every later call gives it */
    unsigned peers;  /* bit per device whose allocations this context may touch */
};

/* What a call needs. UNSAFE: it must not be made while a stream is captured. */
enum fake_need { FAKE_NOTHING = 0, FAKE_INITIALISED = 1, FAKE_CONTEXT = 3, FAKE_UNSAFE = 4 };

CUresult   fake_enter(const char *name, int need);
CUcontext  fake_context(void);              /* of the calling thread; NULL */
CUcontext  fake_context_of(int device);     /* the primary one of a device of the machine; NULL: not visible here */
void       fake_context_fail(int device, CUresult error);
long       fake_contexts_alive(void);
extern __thread bool fake_in_callback;

/* ---- fault.c -------------------------------------------------------------------------------------------------------------------- */

void     fake_fault_read(const char *list);
CUresult fake_fault(const char *name); /* counts the call */
void     fake_count(enum fake_kind kind, int change);

/* ---- memory.c, ipc.c, vmm.c ------------------------------------------------------------------------------------------------------ */

enum fake_memory_kind { FAKE_ALLOCATED, FAKE_HOST, FAKE_REGISTERED, FAKE_OPENED, FAKE_MAPPED };

struct fake_memory {
    CUdeviceptr           address; /* as the driver gives it */
    size_t                bytes;
    enum fake_memory_kind kind;
    int                   device; /* of the machine */
    int                   fd;
    size_t                offset; /* in fd */
    void                 *map;    /* what is to be unmapped; NULL: part of a shared block */
    size_t                map_bytes;
    unsigned              access; /* bit per device of the machine */
    unsigned long long    id;
    struct fake_handle   *handle; /* FAKE_MAPPED */
    struct fake_memory   *next;
};

static inline void *fake_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)(address & ~FAKE_TAG);
}

static inline CUdeviceptr fake_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer | (fake.tagged ? FAKE_TAG : 0);
}

int  fake_memory_fd(const char *kind, int device, size_t bytes);  /* -1: none */
int  fake_memory_fd_device(int fd);                               /* of the machine; -1: not one of ours */
bool fake_memory_add(const struct fake_memory *memory);
bool fake_memory_get(struct fake_memory *copy, CUdeviceptr address);               /* of the range that holds the address */
bool fake_memory_take(struct fake_memory *copy, CUdeviceptr address, enum fake_memory_kind kind); /* removes the one that begins there */
void fake_memory_grant(CUdeviceptr begin, size_t bytes, unsigned devices);
bool fake_memory_covered(CUdeviceptr begin, size_t bytes, enum fake_memory_kind kind); /* by whole ranges of the kind, without a gap */

/* May the context's device touch all these bytes? Says on stderr why not. Host memory that is not known: only `pageable`. */
bool fake_memory_reach(CUcontext context, CUdeviceptr address, size_t bytes, bool pageable);
bool fake_memory_pageable(CUdeviceptr address);

/* ---- stream.c, operation.c -------------------------------------------------------------------------------------------------------- */

enum fake_operation_kind { FAKE_COPY, FAKE_SET, FAKE_LAUNCH, FAKE_CALL, FAKE_WAIT, FAKE_WRITE, FAKE_RECORD, FAKE_WAIT_EVENT, FAKE_FENCE, FAKE_FAULT };

struct fake_operation {
    enum fake_operation_kind kind;
    int                      device;
    CUdeviceptr              to, from;
    size_t                   bytes;    /* of a copy or set; 4 or 8 of a memory operation */
    uint64_t                 value;    /* set, write, wait; serial number of an event or of a stream's work; error of a fault */
    unsigned                 flags, width;
    void                    *staged;   /* copy of pageable memory; owned */
    struct fake_launch      *launch;   /* a reference */
    CUhostFn                 function;
    void                    *argument;
    CUevent                  event;    /* a reference */
    CUstream                 on;       /* FAKE_FENCE; a reference */
    bool                     external; /* an event of a graph that belongs to the outside */
    unsigned long            ticket;   /* of the hardware queue */
    struct fake_operation   *next;
};

struct fake_capture;

struct CUstream_st {
    pthread_mutex_t        lock;
    pthread_cond_t         changed;
    struct fake_operation *head, **tail;
    unsigned long          submitted, done;
    bool                   ending, ended, blocking, legacy;
    int                    device, references, queue;
    unsigned long long     id;
    struct fake_capture   *capture; /* graph.c's */
    int                    slot;
    struct simt_pool       pool;
    struct CUstream_st    *next;
};

CUresult fake_stream_find(CUstream *stream, CUstream given); /* the default streams become real ones; never counted */
CUresult fake_submit(CUstream stream, const struct fake_operation *operation); /* takes what it owns, also when it fails */
void     fake_stream_drain(CUstream stream);
void     fake_context_drain(int device);
CUresult fake_stream_each(void (*visit)(CUstream stream, void *argument), void *argument);
bool     fake_stream_wait_all(CUstream stream);

void fake_operation_run(CUstream stream, struct fake_operation *operation);
bool fake_operation_waits(const struct fake_operation *operation);
void fake_operation_keep(struct fake_operation *operation); /* one more owner of what it refers to */
void fake_operation_drop(struct fake_operation *operation);
void fake_stream_keep(CUstream stream);
void fake_stream_drop(CUstream stream);

/* ---- queue.c: hardware queues that streams share ------------------------------------------------------------------------------------ */

unsigned long fake_queue_ticket(CUstream stream);
void          fake_queue_enter(CUstream stream, unsigned long ticket);
void          fake_queue_leave(CUstream stream, unsigned long ticket);

/* ---- share.c: a GPU shared by processes ------------------------------------------------------------------------------------------- */

void fake_share_begin(int device);
void fake_share_end(int device);
void fake_share_idle(void *device); /* a kernel only waits: its slice may be over */

/* ---- event.c -------------------------------------------------------------------------------------------------------------------------- */

void fake_event_done(CUevent event, uint64_t serial);
void fake_event_wait(CUevent event, uint64_t serial);
void fake_event_keep(CUevent event);
void fake_event_drop(CUevent event);
uint64_t fake_event_next(CUevent event);
uint64_t fake_event_last(CUevent event);

/* ---- graph.c ------------------------------------------------------------------------------------------------------------------------ */

enum { FAKE_CAPTURE_STREAMS = 32 };

/* What of a capture precedes some point: operations of each of its streams. */
struct fake_clock {
    struct fake_capture *capture; /* NULL: not captured */
    unsigned long long   id;
    int                  count[FAKE_CAPTURE_STREAMS];
};

bool     fake_captured(CUstream stream);
CUresult fake_capture_operation(CUstream stream, const struct fake_operation *operation);
CUresult fake_capture_record(CUstream stream, struct fake_clock *clock);
CUresult fake_capture_join(CUstream stream, const struct fake_clock *clock);
bool     fake_capture_alive(const struct fake_clock *clock);
CUresult fake_capture_unsafe(void);   /* a call that no capture allows; ends those that forbid it */
CUresult fake_capture_implicit(int device); /* the legacy stream is used */

/* ---- launch.c ------------------------------------------------------------------------------------------------------------------------ */

void fake_launch_run(CUstream stream, struct fake_operation *operation);
void fake_launch_keep(struct fake_launch *launch);
void fake_launch_drop(struct fake_launch *launch);

/* ---- entry.c ------------------------------------------------------------------------------------------------------------------------ */

#define FAKE_PROTOTYPE(name, version, arguments) __attribute__((visibility("default"))) CUresult name arguments;
HKT_CUDA_FUNCTIONS(FAKE_PROTOTYPE)
FAKE_FUNCTIONS(FAKE_PROTOTYPE)

#endif
