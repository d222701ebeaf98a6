/* hocket.h -- collective communication for parallel training: the whole public interface.
 *
 * A communicator is a group of ranks; a rank is a process or a thread. Every rank of a communicator calls the same
 * collectives in the same order. A call without a stream (NULL) finishes before it returns; a call on a stream returns
 * at once and runs in the order of that stream.
 *
 * Conventions, valid for every function below unless it says otherwise:
 *   Returns  HKT_OK (0); HKT_IN_PROGRESS (> 0) from calls on a communicator that is still being made; an HKT_ERR_* (< 0).
 *            hkt_last_error() then holds a sentence that says what, which rank, which operation, and what to do.
 *   Outputs  come first in the argument list of makers and are written only on success.
 *   Counts   are elements, never bytes; sizes are bytes. Zero is a valid count: the call takes part and touches nothing,
 *            and its pointers may be NULL. Buffers may have any alignment.
 *   Threads  different communicators may be used by different threads at the same time; one communicator by one thread at
 *            a time, except hkt_comm_abort(), hkt_comm_error(), hkt_comm_report() and hkt_comm_destroy(), which any thread
 *            may call at any time.
 *   Memory   any memory the process can touch. Memory from hkt_mem_alloc() or given to hkt_comm_register() is read and
 *            written in place by the other ranks of the machine and is the fastest.
 *
 * Numbers (docs/numbers.md has the reasons): a reduction over n ranks is one fixed binary tree over rank indices (split
 * at the largest power of two below n, recurse), computed in fp32 for the 8- and 16-bit floats and in the type itself
 * for the others, and rounded to the type once. So the bits depend on neither size, bucketing, algorithm nor transport.
 * The rest of the rule stands at hkt_op_t.
 */
#ifndef HOCKET_H
#define HOCKET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HKT_VERSION_MAJOR 0
#define HKT_VERSION_MINOR 1
#define HKT_VERSION_PATCH 0
#define HKT_VERSION       (HKT_VERSION_MAJOR * 10000 + HKT_VERSION_MINOR * 100 + HKT_VERSION_PATCH)

#if defined(__GNUC__)
#define HKT_API               __attribute__((visibility("default")))
#define HKT_PRINTF(text, args) __attribute__((format(printf, text, args)))
#else
#define HKT_API
#define HKT_PRINTF(text, args)
#endif

typedef struct hkt_comm   hkt_comm_t;   /* one rank's end of a communicator */
typedef struct hkt_stream hkt_stream_t; /* a queue of work that runs in order, beside the caller */
typedef struct hkt_event  hkt_event_t;  /* a point in a stream's work */

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Grouped by what is dead after the error: the call, or the communicator (then every later call on it says the same). */
#define HKT_ERROR_LIST(X)                                                                                               \
    X(HKT_ERR_ARGUMENT,    -1, "an argument is not valid")                          /* the call */                      \
    X(HKT_ERR_USAGE,       -2, "the call is not allowed here or now")               /* the call */                      \
    X(HKT_ERR_UNSUPPORTED, -3, "not supported in this build or on this machine")    /* the call */                      \
    X(HKT_ERR_MEMORY,      -4, "out of memory")                                     /* the call; the communicator once others wait for it */ \
    X(HKT_ERR_SYSTEM,      -5, "a system call failed")                              /* likewise */                      \
    X(HKT_ERR_MISMATCH,    -6, "the ranks made different calls")                    /* the call, see docs/failures.md */ \
    X(HKT_ERR_TIMEOUT,     -7, "a rank did not answer before the deadline")         /* the communicator */              \
    X(HKT_ERR_PEER,        -8, "a rank died or left")                               /* the communicator */              \
    X(HKT_ERR_ABORTED,     -9, "the communicator was aborted")                      /* the communicator */              \
    X(HKT_ERR_INTERNAL,   -10, "a defect of the library")                           /* the communicator */

enum {
#define HKT_ERROR_ENUM(name, value, text) name = value,
    HKT_ERROR_LIST(HKT_ERROR_ENUM)
#undef HKT_ERROR_ENUM
    HKT_OK = 0,
    HKT_IN_PROGRESS = 1
};

/* A short text for a code; never NULL; static storage. Any thread. */
HKT_API const char *hkt_error_string(int code);

/* The sentence of the last error of the calling thread; "" when there was none. Valid until the thread's next hkt_ call. */
HKT_API const char *hkt_last_error(void);

/* For layers above the library: keeps the sentence (printf form, at most 1023 bytes) as the calling thread's last error, and
 * returns `code`. */
HKT_API int hkt_error_set(int code, const char *format, ...) HKT_PRINTF(2, 3);

/* HKT_VERSION of the library that is loaded (the macro is that of the header). */
HKT_API int hkt_version(void);

/* ---- types and operators ----------------------------------------------------------------------------------------- */

typedef enum {
    HKT_INT8 = 0, HKT_UINT8, HKT_INT16, HKT_UINT16, HKT_INT32, HKT_UINT32, HKT_INT64, HKT_UINT64,
    HKT_FLOAT16,     /* IEEE binary16 */
    HKT_BFLOAT16,    /* upper half of binary32 */
    HKT_FLOAT32, HKT_FLOAT64,
    HKT_FLOAT8_E4M3, /* OCP E4M3FN: no infinities, largest 448, NaN 0x7f */
    HKT_FLOAT8_E5M2, /* OCP E5M2: infinities, largest 57344 */
    HKT_TYPES
} hkt_type_t;

/* Integers: sum, prod and premultiplied sum wrap modulo 2^bits; avg is exact and truncates towards zero.
 * Floats: IEEE, round to nearest even, once; overflow gives infinity (E4M3: NaN, having none). NaN in, NaN out, for every
 * operator and from every rank, min and max included; the NaN that comes out is the type's canonical quiet one. In min
 * and max -0 is less than +0. avg divides the sum by n in the wide type before the one rounding. */
typedef enum {
    HKT_SUM = 0, HKT_PROD, HKT_MIN, HKT_MAX, HKT_AVG,
    HKT_OPS,                /* number of built-in operators */
    HKT_PREMUL_SUM = 1 << 8 /* and above: handles from hkt_op_create_premul_sum() */
} hkt_op_t;

HKT_API size_t      hkt_type_size(hkt_type_t type);  /* bytes; 0 when it is no type */
HKT_API const char *hkt_type_name(hkt_type_t type);  /* "float32"; "?" when it is no type */
HKT_API const char *hkt_op_name(hkt_op_t op);        /* "sum"; "premul_sum"; "?" when it is no operator */

/* An operator that multiplies this rank's input by `scalar` (in the wide type) and sums. Ranks may have different scalars.
 * Belongs to the communicator; at most 64 at a time. Integer types use the scalar truncated towards zero. */
HKT_API int hkt_op_create_premul_sum(hkt_op_t *op, double scalar, hkt_comm_t *comm);
HKT_API int hkt_op_destroy(hkt_op_t op, hkt_comm_t *comm);

/* ---- communicators ----------------------------------------------------------------------------------------------- */

#define HKT_UNIQUE_ID_BYTES 128
typedef struct { char internal[HKT_UNIQUE_ID_BYTES]; } hkt_unique_id_t;

typedef enum {
    HKT_ORDER_CANONICAL = 0, /* the fixed tree: same bits for every size, algorithm and transport */
    HKT_ORDER_ANY            /* each algorithm's own order; every rank still gets the same bits */
} hkt_order_t;

typedef struct {
    size_t      size;      /* sizeof(hkt_config_t), set by HKT_CONFIG_INIT */
    int         blocking;  /* 0: making a communicator returns HKT_IN_PROGRESS at once; poll hkt_comm_error() */
    double      timeout_s; /* seconds a call waits for a silent rank; 0: no limit; < 0: HKT_TIMEOUT (default 600) */
    hkt_order_t order;
    const char *name;      /* shown in messages; copied; NULL: "comm" and a number */
} hkt_config_t;
#define HKT_CONFIG_INIT { sizeof(hkt_config_t), 1, -1.0, HKT_ORDER_CANONICAL, NULL }

/* Makes an id that brings n ranks together. Call it on one rank and hand it to the others by any means. It carries a
 * secret: whoever has it can join. An id may be used again once the communicator made from it exists.
 * With ranks on other hosts, rank 0 has to be in the process that makes the id, which listens at a TCP port from then on until the
 * communicator exists (docs/bootstrap.md). */
HKT_API int hkt_unique_id(hkt_unique_id_t *id);

/* The same id in every process that calls it with the same two, without a word between them; `salt` may be any number, and another one gives another
 * id. So ranks that still have the id of a communicator can make a new one when that one is dead. It brings together ranks of one host only. */
HKT_API int hkt_unique_id_derive(hkt_unique_id_t *id, const hkt_unique_id_t *from, uint64_t salt);

/* Joins a communicator of `size` ranks as rank `rank` (0 to size - 1). Collective over the ranks that hold `id`; a rank
 * that does not come is named after HKT_INIT_TIMEOUT seconds. `config` may be NULL. Free with hkt_comm_destroy(). */
HKT_API int hkt_comm_init(hkt_comm_t **comm, int size, const hkt_unique_id_t *id, int rank, const hkt_config_t *config);

/* The same, with rank, size and id taken from the launcher: hkt-run, mpirun, srun, torchrun, or HKT_RANK, HKT_SIZE and HKT_ROOT set by
 * hand (docs/launching.md); without a launcher a communicator of one rank. Collective over all ranks of the job. A launcher that the
 * environment speaks of but that cannot be spoken to is an error: HKT_ERR_ARGUMENT or HKT_ERR_SYSTEM name the variable, HKT_ERR_TIMEOUT
 * after HKT_INIT_TIMEOUT seconds, HKT_ERR_UNSUPPORTED without libpmix. The launcher is asked once per process: what it said holds for
 * every later call. */
HKT_API int hkt_comm_init_env(hkt_comm_t **comm, const hkt_config_t *config);

/* Splits `parent` by colour: ranks with the same colour (>= 0) form a communicator, ordered by key, then by parent rank.
 * A negative colour takes part and gets NULL. Collective over `parent`. NULL config inherits the parent's. */
HKT_API int hkt_comm_split(hkt_comm_t **comm, hkt_comm_t *parent, int colour, int key, const hkt_config_t *config);

/* A communicator with the same ranks in the same order. Collective over `parent`. */
HKT_API int hkt_comm_duplicate(hkt_comm_t **comm, hkt_comm_t *parent, const hkt_config_t *config);

/* Frees this rank's end; needs no other rank, in any order, parents before children too. Work on streams is finished
 * first. NULL is allowed. A handle that was destroyed gives HKT_ERR_ARGUMENT from every function, also from two threads. */
HKT_API int hkt_comm_destroy(hkt_comm_t *comm);

/* Ends every pending and future call on the communicator with an error, on this rank at once (HKT_ERR_ABORTED), on the
 * others as soon as they wait (HKT_ERR_ABORTED, naming this rank). Destroy it afterwards. Any thread. */
HKT_API int hkt_comm_abort(hkt_comm_t *comm);

/* The state of the communicator: HKT_OK, HKT_IN_PROGRESS while it is being made, or the error that killed it. Any thread. */
HKT_API int hkt_comm_error(hkt_comm_t *comm, int *error);

/* Writes who is where into `text` (at most `size` bytes with the final 0; cut at a line): the communicator, and per rank host,
 * pid, number and name of its last operation, and which ranks the others wait for. Any thread; takes no lock of the hot path. */
HKT_API int hkt_comm_report(hkt_comm_t *comm, char *text, size_t size);

HKT_API int hkt_comm_rank(hkt_comm_t *comm, int *rank);
HKT_API int hkt_comm_size(hkt_comm_t *comm, int *size);

/* What this rank has asked of the communicator so far: successful calls of one collective ("all_reduce", "send", ...; NULL:
 * all together), and their payload: the bytes that the counts of a call describe, once for every rank where there is a block
 * per rank (all_gather: n * count * size; all_reduce: count * size). Any thread. */
typedef struct { uint64_t calls, bytes; } hkt_traffic_t;
HKT_API int hkt_comm_traffic(hkt_comm_t *comm, const char *collective, hkt_traffic_t *traffic);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Allocates `size` bytes, page-aligned, zero, that every rank on this machine can touch. Not collective. A pointer into the
 * middle may be given to any call. Free with hkt_mem_free() when no call uses it; NULL is allowed there. */
HKT_API int hkt_mem_alloc(void **ptr, size_t size);
HKT_API int hkt_mem_free(void *ptr);

/* The same on the GPU that is current in the calling thread (CUDA; the first GPU when none is). HKT_ERR_UNSUPPORTED where there is no CUDA driver. */
HKT_API int hkt_mem_alloc_cuda(void **ptr, size_t size);

/* Makes memory that the caller already has as good as hkt_mem_alloc()'s: its whole pages move under a shared object at the
 * same address, contents kept. Not collective. Nobody may write to it during the call; it must be private anonymous memory
 * (malloc, mmap), else HKT_ERR_UNSUPPORTED and nothing has changed. After a fork() parent and child share it. Deregister
 * before the memory is freed: that gives private pages back. The handle belongs to the communicator. Memory of a GPU is accepted as it is. */
HKT_API int hkt_comm_register(void **handle, hkt_comm_t *comm, void *ptr, size_t size);
HKT_API int hkt_comm_deregister(void *handle, hkt_comm_t *comm);

/* ---- streams and events ------------------------------------------------------------------------------------------ */

HKT_API int hkt_stream_create(hkt_stream_t **stream);

/* A stream that is the CUDA stream `cuda_stream` (a CUstream or cudaStream_t; NULL: the default stream of the calling thread's current device),
 * with no thread of work of its own: calls on it return at once, begin when what was put on the CUDA stream before them is done, and what is put there
 * afterwards waits for them. While it is being captured, calls become part of the graph and run whenever that does; every rank then launches its
 * graph alike. It stays the program's, and has to outlive this handle, as this handle has to outlive the graphs that have its calls; both may be
 * used in any order. HKT_ERR_UNSUPPORTED where there is no CUDA driver. docs/cuda.md has more. */
HKT_API int hkt_stream_from_cuda(hkt_stream_t **stream, void *cuda_stream);
HKT_API int hkt_stream_destroy(hkt_stream_t *stream);     /* finishes its work first, and stays where it cannot; NULL is allowed */
HKT_API int hkt_stream_synchronize(hkt_stream_t *stream); /* waits; returns the first error of the work since the last call */
HKT_API int hkt_stream_query(hkt_stream_t *stream);       /* HKT_OK: idle; HKT_IN_PROGRESS: not yet */

/* Runs call(arg) in the order of the stream, on its thread. It may make blocking calls (stream NULL) on communicators. A
 * negative return is an error of the stream's work, see hkt_stream_synchronize(). */
HKT_API int hkt_stream_call(hkt_stream_t *stream, int (*call)(void *arg), void *arg);

HKT_API int hkt_event_create(hkt_event_t **event);
HKT_API int hkt_event_destroy(hkt_event_t *event);
HKT_API int hkt_event_record(hkt_event_t *event, hkt_stream_t *stream);       /* the work in the stream so far */
HKT_API int hkt_event_synchronize(hkt_event_t *event);                        /* an event never recorded is complete */
HKT_API int hkt_event_query(hkt_event_t *event);                              /* HKT_OK or HKT_IN_PROGRESS */
HKT_API int hkt_stream_wait_event(hkt_stream_t *stream, hkt_event_t *event);  /* later work waits; the caller does not */

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Calls between begin and end are collected and started together at the outermost end; they progress together, so sends and
 * receives may be in any order and one thread may drive several ranks. Groups nest. An argument error inside a group is
 * returned by the call and again by the end, which then starts nothing. Communicators are not made inside a group. */
HKT_API int hkt_group_begin(void);
HKT_API int hkt_group_end(void);

/* ---- collectives -------------------------------------------------------------------------------------------------
 * n: ranks; `count`: elements of `type`; bytes = count * hkt_type_size(type). send and recv must not overlap except in
 * place, which is named for each. Reductions take any type and operator. */

/* recv[count] = op over ranks of send[count]. In place: send == recv. */
HKT_API int hkt_all_reduce(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, hkt_comm_t *comm,
                           hkt_stream_t *stream);

/* Rank r: recv[count] = op over ranks of send[r * count .. (r + 1) * count). send holds n * count elements.
 * In place: recv == send + rank * count elements. */
HKT_API int hkt_reduce_scatter(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, hkt_comm_t *comm,
                               hkt_stream_t *stream);

/* recv[r * count ..] = rank r's send[count]. recv holds n * count. In place: send == recv + rank * count elements. */
HKT_API int hkt_all_gather(const void *send, void *recv, size_t count, hkt_type_t type, hkt_comm_t *comm,
                           hkt_stream_t *stream);

/* recv[count] on root = op over ranks of send[count]; recv is not used elsewhere. In place (root): send == recv. */
HKT_API int hkt_reduce(const void *send, void *recv, size_t count, hkt_type_t type, hkt_op_t op, int root, hkt_comm_t *comm,
                       hkt_stream_t *stream);

/* recv[count] = root's send[count]; send is not used elsewhere. In place: send == recv. */
HKT_API int hkt_broadcast(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm,
                          hkt_stream_t *stream);

/* recv[r * count ..] on root = rank r's send[count]. In place (root): send == recv + root * count elements. */
HKT_API int hkt_gather(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm,
                       hkt_stream_t *stream);

/* Rank r: recv[count] = root's send[r * count ..]. In place (root): recv == send + root * count elements. */
HKT_API int hkt_scatter(const void *send, void *recv, size_t count, hkt_type_t type, int root, hkt_comm_t *comm,
                        hkt_stream_t *stream);

/* recv[r * count ..] = rank r's send[me * count ..]. Both hold n * count elements. There is no in-place form. */
HKT_API int hkt_all_to_all(const void *send, void *recv, size_t count, hkt_type_t type, hkt_comm_t *comm,
                           hkt_stream_t *stream);

/* The v-forms: counts[r] elements for rank r at displacement displs[r] (elements); arrays of n, the same on every rank for
 * reduce_scatter_v, all_gather_v, and for those of the root and the others in gather_v and scatter_v. displs NULL means packed.
 * The arrays are copied before the call returns. In place as in the plain form, with displs[rank] for rank * count. */
HKT_API int hkt_reduce_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type,
                                 hkt_op_t op, hkt_comm_t *comm, hkt_stream_t *stream);
HKT_API int hkt_all_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type,
                             hkt_comm_t *comm, hkt_stream_t *stream);
HKT_API int hkt_gather_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, int root,
                         hkt_comm_t *comm, hkt_stream_t *stream);
HKT_API int hkt_scatter_v(const void *send, void *recv, const size_t *counts, const size_t *displs, hkt_type_t type, int root,
                          hkt_comm_t *comm, hkt_stream_t *stream);
/* send_counts[r] of this rank must equal recv_counts[this rank] of rank r. */
HKT_API int hkt_all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_displs, void *recv,
                             const size_t *recv_counts, const size_t *recv_displs, hkt_type_t type, hkt_comm_t *comm,
                             hkt_stream_t *stream);

/* Returns when every rank has called it. */
HKT_API int hkt_barrier(hkt_comm_t *comm, hkt_stream_t *stream);

/* ---- point to point ---------------------------------------------------------------------------------------------- */

/* Messages between two ranks arrive in the order sent; count and type must be equal on both sides. A blocking send may
 * wait for its receive: two ranks that send to each other do so inside a group. A rank may send to itself in a group. */
HKT_API int hkt_send(const void *send, size_t count, hkt_type_t type, int peer, hkt_comm_t *comm, hkt_stream_t *stream);
HKT_API int hkt_recv(void *recv, size_t count, hkt_type_t type, int peer, hkt_comm_t *comm, hkt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_H */
