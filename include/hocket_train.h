/* hocket_train.h -- the training layer: what parallel training needs above collectives. Link with -lhocket-train.
 *
 * A device mesh with named communicators, gradient buckets, codecs, a sharded optimizer, pipeline schedules, tensor-parallel
 * regions, loss scaling, ledgers, checkpoints and a planner. Every part stands alone and takes plain communicators and plain
 * memory, so a program may use one and leave the others.
 *
 * The conventions are those of hocket.h: functions return HKT_OK or a negative HKT_ERR_* and leave a sentence in
 * hkt_last_error(); outputs come first and are written only on success; counts are elements, sizes are bytes. A handle is
 * used by one thread at a time unless its functions say otherwise. What is collective says so: all ranks of the communicator
 * call it in the same order.
 */
#ifndef HOCKET_TRAIN_H
#define HOCKET_TRAIN_H

#include <hocket.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* What the layer has to know about one tensor of a model. Owned by the caller; names must outlive the handles made from them. */
typedef struct {
    const char *name;
    size_t      count; /* elements on this rank */
    unsigned    flags; /* HKT_PARAMETER_* */
} hkt_parameter_t;

enum {
    HKT_PARAMETER_NO_DECAY   = 1, /* biases and norms: no weight decay */
    HKT_PARAMETER_REPLICATED = 2, /* the same on all tensor-parallel ranks: counted once in norms */
    HKT_PARAMETER_SHARED     = 4, /* also on another pipeline stage (tied embedding): a bucket of its own */
    HKT_PARAMETER_COPY       = 8  /* the second copy of a shared one: counted on the other stage */
};

/* ---- ledger ------------------------------------------------------------------------------------------------------ */

/* Bytes by what they are for, exactly as asked for (no rounding), so that formulas can be checked to the byte. Any thread. */
typedef enum {
    HKT_BYTES_PARAMETER = 0, /* weights in the type of computation */
    HKT_BYTES_GRADIENT,
    HKT_BYTES_OPTIMIZER,     /* moments and master weights */
    HKT_BYTES_ACTIVATION,
    HKT_BYTES_COMMUNICATION, /* staging, codecs' error feedback and the like */
    HKT_BYTES_OTHER,
    HKT_BYTES_CLASSES
} hkt_bytes_t;

typedef struct hkt_ledger hkt_ledger_t;

HKT_API int hkt_ledger_create(hkt_ledger_t **ledger);
HKT_API int hkt_ledger_destroy(hkt_ledger_t *ledger); /* HKT_ERR_USAGE, naming class and bytes, while memory is out; NULL is allowed */

/* Zeroed memory of `bytes` (aligned to 64; `shared`: from hkt_mem_alloc(), for what is communicated), counted in `kind`. A
 * NULL ledger counts nothing. Zero bytes give a pointer, too. Give it back to the same ledger; NULL is allowed there. */
HKT_API int hkt_ledger_take(void **memory, size_t bytes, hkt_bytes_t kind, bool shared, hkt_ledger_t *ledger);
HKT_API int hkt_ledger_give(void *memory, hkt_ledger_t *ledger);

/* Bytes of a class that are out now, the most that ever were at once, and how often memory was taken. */
typedef struct { size_t now, peak, takes; } hkt_ledger_entry_t;
HKT_API int hkt_ledger_read(hkt_ledger_entry_t *entry, hkt_bytes_t kind, hkt_ledger_t *ledger);
HKT_API int hkt_ledger_reset_peaks(hkt_ledger_t *ledger);     /* peak = now, takes = 0 */
HKT_API const char *hkt_bytes_name(hkt_bytes_t kind);         /* "parameters"; "?" when it is no class */

/* Uses all the memory of `comm` through which small data pass, so that later calls fault no page in. Collective; NULL is allowed. */
HKT_API int hkt_comm_touch(hkt_comm_t *comm);

/* ---- mesh -------------------------------------------------------------------------------------------------------- */

/* A mesh lays the axes of parallelism over the ranks 0 .. world - 1: rank = sum over axes of coordinate * stride. The order
 * says which axis is the fastest, that is, has stride 1; by default "tp-cp-dp-pp" (Megatron's, expert axes left out). */
typedef enum { HKT_AXIS_TP = 0, HKT_AXIS_CP, HKT_AXIS_DP, HKT_AXIS_PP, HKT_AXES } hkt_axis_t;

/* A mask holds the axes that vary inside a group; the others are the same for all its members. */
enum {
    HKT_MASK_TP    = 1 << HKT_AXIS_TP,
    HKT_MASK_CP    = 1 << HKT_AXIS_CP,
    HKT_MASK_DP    = 1 << HKT_AXIS_DP,
    HKT_MASK_PP    = 1 << HKT_AXIS_PP,
    HKT_MASK_DP_CP = HKT_MASK_DP | HKT_MASK_CP, /* who adds gradients up */
    HKT_MASK_MODEL = HKT_MASK_TP | HKT_MASK_PP, /* who holds one copy of the model */
    HKT_MASK_ALL   = (1 << HKT_AXES) - 1
};

/* The pure part: a plain value for any world size, which needs no communicator. Read it, but let hkt_grid_init() fill it. */
typedef struct {
    int        world;
    int        size[HKT_AXES];
    int        stride[HKT_AXES]; /* ranks between neighbours along the axis */
    hkt_axis_t order[HKT_AXES];  /* the fastest first; axes that the order string left out last */
} hkt_grid_t;

/* `size[HKT_AXIS_DP]` may be 0: world / (tp * cp * pp). `order` names axes with '-' between them, NULL is the default; an
 * axis that it leaves out must have size 1. HKT_ERR_ARGUMENT names every rule that is broken, with the values that would be
 * valid. */
HKT_API int hkt_grid_init(hkt_grid_t *grid, int world, const int size[HKT_AXES], const char *order);

HKT_API int hkt_grid_coordinates(int at[HKT_AXES], const hkt_grid_t *grid, int rank);
HKT_API int hkt_grid_rank(int *rank, const hkt_grid_t *grid, const int at[HKT_AXES]);

/* The groups of a mask: `count` groups of `size` ranks each, which together are the world. Inside a group, ranks stand in
 * the order of the axes (the fastest of the mask first); groups are numbered in the order of the other axes. */
HKT_API int hkt_grid_groups(int *count, int *size, const hkt_grid_t *grid, unsigned mask);
HKT_API int hkt_grid_group(int *ranks, const hkt_grid_t *grid, unsigned mask, int group);                 /* ranks[size] */
HKT_API int hkt_grid_locate(int *group, int *member, const hkt_grid_t *grid, unsigned mask,
                            int rank); /* rank = group[member] */

/* Who holds the tied embedding: first and last rank of pipeline group `group`, `n` = 2; the only one, `n` = 1, without a
 * pipeline. ranks[0] alone holds the position embedding. */
HKT_API int hkt_grid_embedding(int ranks[2], int *n, const hkt_grid_t *grid, int group);

/* Where a rank runs, and the slowest thing between two of them. */
typedef struct { int node, socket; } hkt_place_t;
typedef enum {
    HKT_LINK_NONE = 0, /* a group of one */
    HKT_LINK_SOCKET,   /* the same processor */
    HKT_LINK_NODE,     /* two processors of one machine */
    HKT_LINK_NETWORK,
    HKT_LINKS
} hkt_link_t;
HKT_API const char *hkt_link_name(hkt_link_t link); /* "socket"; "?" when it is no link */

/* Fills places[world] with nodes of `per_node` ranks and processors of `per_socket` ranks, in rank order; 0: all in one. */
HKT_API int hkt_places_fill(hkt_place_t *places, int world, int per_node, int per_socket);

/* Links of the groups of a mask. `worst[l]`: groups whose slowest link is l; `hops[l]`: neighbours within a group (the ring
 * that a collective walks, closed when there are more than two) that l connects, over all groups. `places`: [world], NULL:
 * one processor. */
HKT_API int hkt_grid_links(int worst[HKT_LINKS], int hops[HKT_LINKS], const hkt_grid_t *grid, unsigned mask,
                           const hkt_place_t *places);

/* A table of the above for every kind of group, and a warning where tensor parallelism crosses machines. */
HKT_API int hkt_grid_report(FILE *out, const hkt_grid_t *grid, const hkt_place_t *places);

/* The real part: the grid over the ranks of a communicator, with a communicator for each group that this rank belongs to. */
typedef struct hkt_mesh hkt_mesh_t;

/* Collective over `comm`; sizes and order as hkt_grid_init() and the same on all ranks, else every rank gets the error.
 * `config` is for the communicators made (NULL: HKT_CONFIG_INIT); they are called "tp 3", with the number of the group.
 * `comm` stays the caller's and has to outlive the mesh. */
HKT_API int hkt_mesh_create(hkt_mesh_t **mesh, hkt_comm_t *comm, const int size[HKT_AXES], const char *order,
                            const hkt_config_t *config);
HKT_API int hkt_mesh_destroy(hkt_mesh_t *mesh); /* with its communicators; not collective; NULL is allowed */

HKT_API int hkt_mesh_grid(hkt_grid_t *grid, const hkt_mesh_t *mesh);
HKT_API int hkt_mesh_coordinates(int at[HKT_AXES], const hkt_mesh_t *mesh); /* of this rank */

/* The communicator of this rank's group: "tp", "cp", "dp", "pp", "dp-cp", "tp-pp" or "embedding"; NULL is written where this
 * rank holds no embedding. Each has traffic counters of its own. It belongs to the mesh. */
HKT_API int hkt_mesh_comm(hkt_comm_t **comm, const hkt_mesh_t *mesh, const char *name);

/* Where the ranks really run: places[world], nodes numbered by their first rank. Collective over the mesh. Ranks that are
 * not bound to a processor are placed where they happen to run. */
HKT_API int hkt_mesh_places(hkt_place_t *places, const hkt_mesh_t *mesh);

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

/* Gradients as a few runs of memory, each reduced over the ranks of a communicator as soon as the backward pass has finished
 * it, beside the pass, on a stream of its own. Buckets are filled in one order (from the last parameter to the first, or the
 * order given) and launched in that order on every rank, however the ranks' gradients arrive. The bits of the result depend on
 * neither the sizes of the buckets nor the overlap. */
typedef struct hkt_buckets hkt_buckets_t;

typedef struct {
    size_t      size;        /* sizeof(hkt_buckets_config_t), set by HKT_BUCKETS_CONFIG_INIT */
    size_t      bytes;       /* a bucket is closed when it has so many; 0: 25 MiB */
    size_t      first_bytes; /* the same for the first one, so that communication begins early; 0: 1 MiB */
    size_t      alignment;   /* elements: parameters start at multiples of it, and buckets are padded to a multiple of
                              * lcm(ranks, alignment); 0: 32 */
    hkt_type_t  type;        /* of the gradients: HKT_FLOAT32, or, with the rounding of every sum, HKT_BFLOAT16 or HKT_FLOAT16 */
    hkt_op_t    op;          /* HKT_AVG or HKT_SUM over the ranks */
    bool        sharded;     /* reduce-scatter: rank r gets the r-th of n equal pieces of every bucket, else all-reduce */
    bool        each;        /* communicate each micro-batch and add up what comes out: gradients take little memory with
                              * `sharded`. Else once, after the last micro-batch. The two sum in different orders */
    bool        overlap;     /* launch when ready; else all in hkt_buckets_finish() */
    bool        rebuild;     /* after the first step fill the buckets anew in the order in which rank 0's gradients arrived;
                              * not with `sharded`: it would change which elements a rank owns (use `order`) */
    const int  *order;       /* all indices of parameters, in the order in which they are expected; NULL: last to first */
    const int  *groups;      /* per parameter, or NULL: buckets hold parameters of one group (a layer) only */
    const char *codec;       /* reduce through a codec, see hkt_codec_parse(); fp32 gradients; NULL: as they are. With a codec
                              * the bits do depend on the buckets, and a NaN makes a whole bucket NaN */
    uint64_t    seed;        /* of the codec */
} hkt_buckets_config_t;
#define HKT_BUCKETS_CONFIG_INIT                                                                                         \
    { sizeof(hkt_buckets_config_t), 0, 0, 0, HKT_FLOAT32, HKT_AVG, false, false, true, false, NULL, NULL, NULL, 0 }

/* Collective over `comm`, which is the handle's alone between begin and finish; NULL: one rank. The names of the parameters must
 * outlive the handle, nothing else need. Parameters flagged HKT_PARAMETER_SHARED get a bucket each. The ranks compare their
 * lists: HKT_ERR_MISMATCH. Gradient memory is taken from the ledger (may be NULL). `config` NULL: all defaults. */
HKT_API int hkt_buckets_create(hkt_buckets_t **buckets, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                               const hkt_buckets_config_t *config, hkt_ledger_t *ledger);
HKT_API int hkt_buckets_destroy(hkt_buckets_t *buckets); /* waits for what is in flight; NULL is allowed */

/* A step: begin, then for each micro-batch the backward pass (gradient, ready) and next, then finish. All ranks do the same
 * number of micro-batches. begin clears all gradients. After begin of the second step, with `rebuild`, pointers are new. */
HKT_API int hkt_buckets_begin(hkt_buckets_t *buckets, int micro_batches);

/* Where the backward pass adds the gradient of a parameter (of config.type). Any thread. Valid until ready() for this
 * micro-batch with `each` (zero at first), else until the second begin. With `each` it may wait for a bucket in flight. */
HKT_API int hkt_buckets_gradient(void **gradient, int parameter, hkt_buckets_t *buckets);

/* Adds `values` (HKT_FLOAT32, HKT_BFLOAT16 or HKT_FLOAT16) to elements first .. first + count of the gradient, rounding the sum
 * to its type. Any thread, different parameters at the same time. */
HKT_API int hkt_buckets_add(hkt_buckets_t *buckets, int parameter, size_t first, const void *values, size_t count,
                            hkt_type_t type);

/* The gradient of the parameter is complete for one micro-batch. Any thread, several at once; takes no lock. */
HKT_API int hkt_buckets_ready(hkt_buckets_t *buckets, int parameter);

/* The backward pass of a micro-batch is over (no thread is in another call): what was not announced counts as unused, zeros. */
HKT_API int hkt_buckets_next(hkt_buckets_t *buckets);

/* The last micro-batch is over: launches what is left and waits. Collective. Then reduced() gives results until the next begin. */
HKT_API int hkt_buckets_finish(hkt_buckets_t *buckets);

/* Makes the mean over tokens out of sums (op HKT_SUM): divides the results by the sum of `tokens` over the ranks, which it
 * returns in `total` (may be NULL); none at all leaves them. After finish. Collective. */
HKT_API int hkt_buckets_by_tokens(uint64_t *total, hkt_buckets_t *buckets, uint64_t tokens);

/* This rank's part of the reduced gradient of a parameter: elements first .. first + count, at `values`. The whole of it, or
 * with `sharded` what falls into the rank's piece of the bucket, which may be nothing. */
typedef struct { void *values; size_t first, count; } hkt_reduced_t;
HKT_API int hkt_buckets_reduced(hkt_reduced_t *reduced, int parameter, hkt_buckets_t *buckets);

/* One bucket, and when it was last on its way (seconds of one clock; 0: never). Index 0 is launched first. */
typedef struct {
    size_t first, count; /* elements in the space of all buckets, padding included */
    int    parameters;
    double launched, started, finished;
} hkt_bucket_info_t;
HKT_API int hkt_buckets_count(const hkt_buckets_t *buckets);
HKT_API int hkt_buckets_info(hkt_bucket_info_t *info, int bucket, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_parameter(int *parameter, int position, hkt_buckets_t *buckets); /* the order in use, 0 comes first */

/* Of the last step, seconds: some bucket was in work; finish() had nothing to do but wait for it. What overlap has hidden is
 * in_flight - waited. */
typedef struct { double in_flight, waited; } hkt_overlap_t;
HKT_API int hkt_buckets_overlap(hkt_overlap_t *overlap, const hkt_buckets_t *buckets);

/* What codecs keep of this rank's gradients for the next step (hkt_compressor_save() of every bucket), for a checkpoint: so a run
 * goes on with the same bits. `state` has state_size bytes, 0 without a codec and with one rank. It belongs to a rank of a layout:
 * load refuses (HKT_ERR_ARGUMENT) that of other parameters, buckets, ranks or another codec, and changes nothing then; with another
 * layout begin without errors, as after reset, and on all ranks, if one has to. Not between begin and finish. */
HKT_API int hkt_buckets_state_size(size_t *bytes, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_save(void *state, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_load(hkt_buckets_t *buckets, const void *state, size_t bytes);
HKT_API int hkt_buckets_reset(hkt_buckets_t *buckets);

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

/* Codes that are smaller than the fp32 numbers they stand for. A codec is named by a text with its options: "int8",
 * "qsgd:bits=4,block=512". The code of a vector is the same bytes on every processor.
 *
 * NaN and infinities: fp16 and bf16 keep them, topk sends them before all else, and in the others the whole block (of the
 * option `block`; terngrad: 2048 elements) decodes as NaN. Magnitudes beyond fp16's 65504 are infinite in fp16. In the integer
 * codecs and fp8 a block whose largest magnitude is below 1e-35 is zero. */
typedef struct {
    const void *entry; /* of the library's table */
    double      value[4];
} hkt_codec_t;

typedef struct {
    const char *name, *desc;
    const char *option[4]; /* "block: elements that share a scale, 64 to 2048 (256)"; NULL where there are no more */
    double      ratio;     /* bytes of fp32 a byte of code, long vectors and normal options; 0: it depends on shapes */
    bool        feedback;  /* biased, meant to be used with error feedback */
    bool        random;    /* rounds by chance, unbiased: depends on the seed */
    bool        linear;    /* powersgd: sums without decoding, needs a compressor, has no code of its own */
} hkt_codec_info_t;

/* The codec number `index` from 0 on; HKT_ERR_ARGUMENT beyond the last. Static storage. Any thread. */
HKT_API int hkt_codec_list(hkt_codec_info_t *info, int index);

/* Reads "name" or "name:option=value,..."; an error lists what there is. By value, nothing to free. Any thread. */
HKT_API int hkt_codec_parse(hkt_codec_t *codec, const char *text);
/* The reverse, with all options; at most `size` bytes with the final 0. */
HKT_API int hkt_codec_text(char *text, size_t size, const hkt_codec_t *codec);

/* Exact bytes of the code of `count` elements; 0 for a linear codec. */
HKT_API size_t hkt_codec_bound(const hkt_codec_t *codec, size_t count);

/* Where the random numbers of a code come from: hkt_random_t's seed and stream, and the index of the first element. */
typedef struct { uint64_t seed, stream, first; } hkt_codec_place_t;

/* code[hkt_codec_bound()] stands for x[count]. With `feedback` (count elements, or NULL) it stands for x + feedback, and feedback
 * becomes what was lost; never NaN or infinity: what cannot be kept is dropped. code has any alignment. `place` may be NULL for
 * codecs that are not random. Any thread. */
HKT_API int hkt_codec_encode(void *code, float *feedback, const float *x, size_t count, const hkt_codec_place_t *place,
                             const hkt_codec_t *codec);
/* Reads bytes that are no code of that count as other numbers, never beyond the buffers. */
HKT_API int hkt_codec_decode(float *x, const void *code, size_t count, const hkt_codec_t *codec);

/* What a compressed all-reduce of `count` elements over n ranks would take on links of `bytes_per_s` and `latency_s` each way,
 * in seconds, against the plain fp32 one (ring: 2 (n - 1) (latency + 1/n of the bytes)). The rates of the codec, fp32 bytes a
 * second, are measured once a process, about 10 ms, on the calling thread; the rest is arithmetic. Any thread. */
typedef struct {
    double plain_s, coded_s;
    double encode_rate, decode_rate;
    double code_bytes; /* of the whole vector */
} hkt_codec_gain_t;
HKT_API int hkt_codec_gain(hkt_codec_gain_t *gain, const hkt_codec_t *codec, size_t count, int n, double bytes_per_s,
                           double latency_s);

/* A compressed reduction with the error feedback that belongs to it.
 *
 * Two shots: each rank encodes its vector in n chunks; chunk r goes to rank r, which decodes, sums in rank order in fp32, encodes
 * the sum once more; everybody decodes that. So a number is rounded twice at any n, and all ranks get the same bits, which depend
 * on the inputs, the seed, n and the number of calls before, not on timing. A feedback for both roundings is added in the
 * next call. Per rank 2 n B(ceil(count / n) up to 64) bytes of payload, B = hkt_codec_bound(), where fp32 has 4 count, and
 * an all_reduce of 4 bytes in front (terngrad: and 4 a tile of 2048, the shared scalers), for this rule:
 *
 * A NaN or infinity in any rank's input makes the whole output NaN on every rank and leaves the feedback and the state as they
 * were, so that a step can be skipped; hkt_compressor_fault() names rank and element. The call itself succeeds.
 *
 * powersgd (Vogels et al. 2019) sends factors of the matrices given by `matrices`, in the order in which they lie in the vector:
 * cols == 0 is a vector of `rows` elements and travels as it is, as do matrices that would not become `rate` times smaller.
 * Without matrices the vector is taken as one that is nearly square. */
typedef struct hkt_compressor hkt_compressor_t;
typedef struct { size_t rows, cols; } hkt_codec_shape_t;

typedef struct {
    size_t              size;     /* sizeof(hkt_compressor_config_t), set by HKT_COMPRESSOR_CONFIG_INIT */
    const char         *codec;    /* as for hkt_codec_parse() */
    uint64_t            seed;     /* the same on every rank */
    int                 feedback; /* 1, 0; -1: where the codec is biased */
    const hkt_codec_shape_t *matrices; /* powersgd: their sizes add up to the count; NULL: none are known */
    int                 matrix_count;
} hkt_compressor_config_t;
#define HKT_COMPRESSOR_CONFIG_INIT { sizeof(hkt_compressor_config_t), "int8", 0, -1, NULL, 0 }

/* For vectors of `count` fp32 elements. Collective over comm, which outlives it; ranks with different arguments are told so
 * (HKT_ERR_MISMATCH). All memory is taken here, from the ledger (HKT_BYTES_COMMUNICATION; NULL: uncounted), the codes' from
 * hkt_mem_alloc(). */
HKT_API int hkt_compressor_create(hkt_compressor_t **compressor, size_t count, const hkt_compressor_config_t *config,
                                  hkt_comm_t *comm, hkt_ledger_t *ledger);
HKT_API int hkt_compressor_destroy(hkt_compressor_t *compressor); /* HKT_ERR_USAGE while calls are on a stream; NULL is allowed */

/* out[count] = sum over ranks (average: divided by n) of in[count]; count is that of the maker. In place: in == out. On a stream
 * the buffers are used until the stream got there; at most 8 calls wait at a time. Collective. */
HKT_API int hkt_compressor_all_reduce(hkt_compressor_t *compressor, const float *in, float *out, size_t count, bool average,
                                      hkt_stream_t *stream);
/* Rank r: out[count] = sum over ranks of in[r * count ..]; n * count is that of the maker. One rounding and no feedback of the
 * owner, as only it sees the sum. In place: out == in + rank * count. Collective. */
HKT_API int hkt_compressor_reduce_scatter(hkt_compressor_t *compressor, const float *in, float *out, size_t count, bool average,
                                          hkt_stream_t *stream);

/* What a checkpoint has to hold of this rank: feedback, number of calls, seed (powersgd: factors). `state` has state_size bytes.
 * load refuses the state of another codec, count, n or rank, and changes nothing then. Not while calls are on a stream. */
HKT_API int hkt_compressor_state_size(size_t *bytes, hkt_compressor_t *compressor);
HKT_API int hkt_compressor_save(void *state, hkt_compressor_t *compressor);
HKT_API int hkt_compressor_load(hkt_compressor_t *compressor, const void *state, size_t bytes);
HKT_API int hkt_compressor_reset(hkt_compressor_t *compressor); /* as new: for another layout */

/* So far; read it when no call is on a stream. The seconds are those of this rank, wire_s with the wait for late ranks. After 8
 * calls plain_s and coded_s say what a call takes with the codec and what it would without, judged by the fastest call; where
 * the codec loses, rank 0 says so on stderr, once a process. */
typedef struct {
    uint64_t calls, faults;
    size_t   code_bytes;   /* of a call's vector: of each of the two shots */
    double   ratio;        /* 4 count / code_bytes */
    double   code_s, wire_s;
    double   plain_s, coded_s;
} hkt_compressor_stats_t;
HKT_API int hkt_compressor_stats(hkt_compressor_stats_t *stats, hkt_compressor_t *compressor);
/* "element 17 of rank 2 is NaN ..." of the last fault; "" when there was none. Valid until the next call. */
HKT_API const char *hkt_compressor_fault(hkt_compressor_t *compressor);

/* 1-bit Adam (Tang et al. 2021) over a flat fp32 range that every rank holds whole. Until `freeze` steps are done it is
 * hkt_adamw() on the averaged gradient, bit for bit; then the second moment stays as it is, and what is averaged, through the
 * codec with feedback, is the first moment divided by its root. An element whose second moment is 0 by then never had a
 * gradient: it keeps its weight (the code of one bit has no zero). The weights have the same bits on all ranks. */
typedef struct hkt_onebit_adam hkt_onebit_adam_t;

typedef struct {
    size_t      size;  /* sizeof(hkt_onebit_adam_config_t), set by HKT_ONEBIT_ADAM_CONFIG_INIT */
    double      beta1, beta2, epsilon, decay;
    uint64_t    freeze; /* steps of warm-up; 15 to 20 % of all are usual */
    const char *codec;
    uint64_t    seed;
} hkt_onebit_adam_config_t;
#define HKT_ONEBIT_ADAM_CONFIG_INIT { sizeof(hkt_onebit_adam_config_t), 0.9, 0.999, 1e-8, 0, 100, "onebit", 0 }

/* Collective over comm. Moments and scratch come from the ledger (HKT_BYTES_OPTIMIZER, 12 bytes an element) beside what the
 * compressor takes. */
HKT_API int hkt_onebit_adam_create(hkt_onebit_adam_t **adam, size_t count, const hkt_onebit_adam_config_t *config,
                                   hkt_comm_t *comm, hkt_ledger_t *ledger);
HKT_API int hkt_onebit_adam_destroy(hkt_onebit_adam_t *adam); /* NULL is allowed */

/* One step on weight[count] with this rank's own gradient[count], not reduced before. A NaN or infinity in any rank's gradient
 * leaves weights and state as they are and sets *skipped (may be NULL) on every rank. Collective. */
HKT_API int hkt_onebit_adam_step(bool *skipped, hkt_onebit_adam_t *adam, float *weight, const float *gradient, size_t count,
                                 double rate);

/* As for the compressor, whose state is part of this one. */
HKT_API int hkt_onebit_adam_state_size(size_t *bytes, hkt_onebit_adam_t *adam);
HKT_API int hkt_onebit_adam_save(void *state, hkt_onebit_adam_t *adam);
HKT_API int hkt_onebit_adam_load(hkt_onebit_adam_t *adam, const void *state, size_t bytes);

/* ---- optimizers and ZeRO ----------------------------------------------------------------------------------------- */

/* AdamW on plain arrays (Loshchilov and Hutter 2019). The bits do not depend on the processor, nor on how a tensor is cut. */
typedef struct {
    size_t size; /* sizeof(hkt_adamw_t), set by HKT_ADAMW_INIT */
    double rate, beta1, beta2, epsilon;
    double decay; /* decoupled; not for parameters flagged HKT_PARAMETER_NO_DECAY */
    double clip;  /* largest global norm, 0: no limit; used by hkt_zero_step() only */
    double scale; /* the gradients are multiplied by it first: 1 / loss scale, 1 / tokens; used by hkt_zero_step() only */
} hkt_adamw_t;
#define HKT_ADAMW_INIT { sizeof(hkt_adamw_t), 1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 1.0 }

typedef struct { float *weight, *moment1, *moment2; const float *gradient; } hkt_adamw_state_t;

/* Step number `step` (from 1) on `count` elements; the gradient is multiplied by `scale`. Any thread. */
HKT_API int hkt_adamw(const hkt_adamw_t *options, uint64_t step, double scale, const hkt_adamw_state_t *state, size_t count);

/* The model of one data-parallel group: weights, gradients and AdamW, sharded as much as `stage` says over the n ranks of `comm`
 * (Rajbhandari et al. 2020). Bytes per element of gradient type g and weight type w (fp32 weights are their own master: their 4
 * bytes are counted once, as weights; P = hkt_zero_info().padded):
 *   stage   weights     gradients   moments and master      payload of a step of m micro-batches, elements
 *   0       w P         g P         8 P (+ 4 P)             all_reduce P
 *   1       w P         g P         8 P / n (+ 4 P / n)     reduce_scatter P, all_gather P
 *   2       w P         g P / n     likewise                reduce_scatter m P, all_gather P
 *   3       w P / n     g P / n     likewise                reduce_scatter m P, all_gather 2 m P, or less where a group was still there
 * plus, in 2 and 3, a few buckets for gradients, and in 3 a few groups for weights. Shards ignore the borders of parameters.
 *
 * The result is the same, bit for bit, in all stages, with any bucket sizes, offload, and prefetch, as long as `reduce` is the
 * same: a sum over micro-batches first is rounded differently from a sum over ranks first. */
typedef struct hkt_zero hkt_zero_t;

typedef enum {
    HKT_REDUCE_DEFAULT = 0, /* once in stages 0 and 1, each in 2 and 3 */
    HKT_REDUCE_ONCE,        /* after the last micro-batch; 2 and 3 then keep all gradients until there (pipelines) */
    HKT_REDUCE_EACH         /* every micro-batch; 0 and 1 then have the bits of 2 and 3, and move m times as much */
} hkt_reduce_when_t;

typedef enum {
    HKT_TIER_DEVICE = 0, /* optimizer state lies with the rest, in `ledger` */
    HKT_TIER_HOST,       /* in memory counted in another ledger, which may have a cap */
    HKT_TIER_FILE        /* in a file of two copies, of which one is always whole, also when the process is killed */
} hkt_tier_t;

typedef struct {
    size_t               size;    /* sizeof(hkt_zero_config_t), set by HKT_ZERO_CONFIG_INIT */
    int                  stage;   /* 0 to 3 */
    hkt_type_t           weight;  /* HKT_FLOAT32; HKT_BFLOAT16 and HKT_FLOAT16 have an fp32 master */
    hkt_reduce_when_t    reduce;
    hkt_buckets_config_t buckets; /* type, op, bytes, first_bytes, alignment, overlap, order, codec; the rest is set from here */
    const int           *groups;  /* stage 3: per parameter, from 0: what is fetched together, a layer; NULL elsewhere: one group */
    int                  live;    /* stage 3: groups whose weights are held at a time, at least 2; 0: 3 (one ahead) */
    bool                 late;    /* stages 1 and 2: step() returns before the weights are gathered; fetch() waits for a group */
    hkt_comm_t          *model;     /* ranks with the other parts of the model (tensor and pipeline parallel), for the norm */
    hkt_comm_t          *embedding; /* first and last stage: gradients flagged HKT_PARAMETER_SHARED are summed over it */
    hkt_comm_t          *tensor;    /* gradients flagged HKT_PARAMETER_REPLICATED are summed over it: with sequence parallel;
                                     * NULL where they are complete */
    bool                 first_tensor; /* this rank counts what is flagged HKT_PARAMETER_REPLICATED in the norm */
    hkt_tier_t           tier;    /* HKT_TIER_FILE: from stage 1 on, or one rank */
    const char          *path;    /* HKT_TIER_FILE: of this rank's file */
    bool                 resume;  /* HKT_TIER_FILE: continue with the state that the file has; refused where the machine was
                                   * started anew since and the state was not persisted */
    size_t               tile;    /* elements that are moved and updated at a time; 0: 1 Mi */
    int                  threads; /* that measure and update, the caller included; 0: 1, at most 64 */
    hkt_ledger_t        *host;    /* HKT_TIER_HOST */
    size_t               host_cap; /* HKT_TIER_HOST: bytes; 0: no limit */
    uint64_t             freeze;  /* 1-bit Adam: after so many steps the second moment stays, and only from there on buckets.codec is
                                   * used, which then rounds in units of its root; 0: AdamW. Stage 0 with fp32 state in memory */
} hkt_zero_config_t;
#define HKT_ZERO_CONFIG_INIT                                                                                            \
    { sizeof(hkt_zero_config_t), 0, HKT_FLOAT32, HKT_REDUCE_DEFAULT, HKT_BUCKETS_CONFIG_INIT, NULL, 0, false, NULL, NULL,     \
      NULL, true, HKT_TIER_DEVICE, NULL, false, 0, 0, NULL, 0, 0 }

/* Collective over comm, model, embedding and tensor, all of which may be NULL (one rank) and are used by nobody else between begin
 * and step. All weights are 0 until hkt_zero_put(). A parameter flagged SHARED and COPY with the name of another one here is
 * that one: it has a gradient of its own, which is added after the reduction as it would be between two stages. */
HKT_API int hkt_zero_create(hkt_zero_t **zero, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                            const hkt_zero_config_t *config, hkt_ledger_t *ledger);
HKT_API int hkt_zero_destroy(hkt_zero_t *zero); /* waits for what is in flight; NULL is allowed */

/* Weights of a group, for use until release. Stage 3: gathered when they are not there, and the group that followed last time is
 * gathered beside the computation (collective: all ranks fetch in the same order). Elsewhere: waits until they are current.
 * Fetches are counted. One thread at a time. */
HKT_API int hkt_zero_fetch(hkt_zero_t *zero, int group);
HKT_API int hkt_zero_release(hkt_zero_t *zero, int group);

/* The weights of a parameter (config.weight), of a group that is fetched. Stage 3: valid until release; else always. */
HKT_API int hkt_zero_weight(void **weight, int parameter, hkt_zero_t *zero);

/* Gradients of a step, as in hkt_buckets_*: begin, per micro-batch (gradient, ready, next), then step. The buckets, e.g. for
 * hkt_buckets_info(), belong to the handle. */
HKT_API int            hkt_zero_begin(hkt_zero_t *zero, int micro_batches);
HKT_API int            hkt_zero_gradient(void **gradient, int parameter, hkt_zero_t *zero); /* any thread */
HKT_API int            hkt_zero_ready(hkt_zero_t *zero, int parameter);                     /* any thread */
HKT_API int            hkt_zero_next(hkt_zero_t *zero);
HKT_API hkt_buckets_t *hkt_zero_buckets(hkt_zero_t *zero);

/* Where a gradient was infinite or NaN first. */
enum { HKT_TENSOR_NAME = 128 };
typedef struct {
    bool   overflow; /* on some rank */
    int    rank;     /* of the communicator over which ranks agreed */
    size_t element;  /* of the tensor on that rank */
    char   tensor[HKT_TENSOR_NAME]; /* its name, cut; "" without overflow */
} hkt_overflow_t;

typedef struct {
    double         norm;     /* L2 of all unique gradients of the model after scale, before clipping; the same bits in any layout */
    double         clipped;  /* what the gradients were multiplied by, at most 1: clip / (norm + 1e-6) */
    bool           skipped;  /* a gradient was infinite or NaN: nothing was changed */
    hkt_overflow_t overflow; /* where first */
} hkt_zero_report_t;

/* Finishes the reduction, and updates the weights; the same report on every rank of comm and model. Collective. */
HKT_API int hkt_zero_step(hkt_zero_report_t *report, hkt_zero_t *zero, const hkt_adamw_t *options);
/* The first half alone, for those who look at gradients or need the sum of tokens before the step. Collective. */
HKT_API int hkt_zero_finish(hkt_zero_t *zero);
/* HKT_TIER_FILE: forces the state to the disk, so that `resume` finds it after a power failure, too; for killed processes
 * nothing is needed. It costs writing all of it. Elsewhere it does nothing. Not between begin and step. */
HKT_API int hkt_zero_persist(hkt_zero_t *zero);
/* Waits for all weights that are still being gathered; before evaluation, saving, and the like. */
HKT_API int hkt_zero_synchronize(hkt_zero_t *zero);

/* The last update with state in another tier, seconds: from begin to end; in reading, updating and writing tiles. Where moving
 * is hidden, the three are more than the whole. */
typedef struct {
    double whole, reading, updating, writing;
    bool   ring; /* HKT_TIER_FILE: through io_uring; false where the system does not permit it */
} hkt_offload_times_t;

typedef struct {
    size_t   parameters, padded; /* elements in all; with padding (a multiple of n); copies are not counted */
    uint64_t steps;              /* updates that were made */
    uint64_t gathered, reused;   /* stage 3: elements gathered for fetches, and those that a fetch found still there */
    hkt_offload_times_t offload;
} hkt_zero_info_t;
HKT_API int hkt_zero_info(hkt_zero_info_t *info, const hkt_zero_t *zero);
HKT_API int hkt_zero_set_steps(hkt_zero_t *zero, uint64_t steps); /* when a checkpoint is loaded */
/* As hkt_comm_traffic() of comm, with that of the communicators that the handle made from it. */
HKT_API int hkt_zero_traffic(hkt_traffic_t *traffic, const char *collective, hkt_zero_t *zero);

/* Optimizer state in the coordinates of parameters, for checkpoints. Piece `index`, from 0, until HKT_ERR_ARGUMENT: elements
 * first .. first + count of `parameter` that this rank is to save; all ranks' pieces together have each element once. data[kind]
 * is the state itself; NULL where it lies in another tier: use get. Not while a step is under way. */
typedef enum { HKT_ZERO_MASTER = 0 /* fp32 weights */, HKT_ZERO_MOMENT1, HKT_ZERO_MOMENT2, HKT_ZERO_KINDS } hkt_zero_kind_t;
typedef struct { int parameter; size_t first, count; float *data[HKT_ZERO_KINDS]; } hkt_zero_piece_t;
HKT_API int hkt_zero_piece(hkt_zero_piece_t *piece, int index, hkt_zero_t *zero);

/* Copies state out of and into what this rank holds of [first, first + count); put ignores the rest, so that every rank may be
 * handed everything; get refuses it. After the last put call hkt_zero_loaded(): weights are made from masters and gathered. */
HKT_API int hkt_zero_get(float *values, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, hkt_zero_t *zero);
HKT_API int hkt_zero_put(hkt_zero_t *zero, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, const float *values);
HKT_API int hkt_zero_loaded(hkt_zero_t *zero); /* collective */

/* ---- loss scaling ------------------------------------------------------------------------------------------------ */

/* Keeps small gradients of 16-bit floats above zero: the loss is multiplied by a scale, the gradients are divided by it again.
 * Dynamic: the rule of Megatron-LM. After `hysteresis` overflows the scale is multiplied by `backoff` (again by each further
 * overflow, until it grows); after `interval` steps without one it is multiplied by `growth`, and only then the hysteresis is
 * refilled. A step that overflowed is skipped: neither the step count nor the learning rate advances. */
typedef struct hkt_scaler hkt_scaler_t;

typedef struct {
    size_t size;       /* sizeof(hkt_scaler_config_t), set by HKT_SCALER_CONFIG_INIT */
    bool   dynamic;    /* false: always `initial` */
    double initial, least, growth, backoff;
    int    interval, hysteresis;
    int    patience;   /* so many skipped steps in a row at the least scale (static: at all) end it; 0: never */
} hkt_scaler_config_t;
#define HKT_SCALER_CONFIG_INIT { sizeof(hkt_scaler_config_t), true, 4294967296.0, 1.0, 2.0, 0.5, 1000, 2, 50 }

HKT_API int hkt_scaler_create(hkt_scaler_t **scaler, const hkt_scaler_config_t *config); /* NULL: the defaults */
HKT_API int hkt_scaler_destroy(hkt_scaler_t *scaler); /* NULL is allowed */
HKT_API double hkt_scaler_scale(const hkt_scaler_t *scaler); /* what to multiply the next loss by */

/* Ends a step. `overflow` must be the same on every rank (hkt_zero_step() and hkt_scaler_agree() see to that); `tensor` is where
 * it was seen first, or NULL. HKT_ERR_USAGE, naming the tensor, when patience has run out. */
HKT_API int hkt_scaler_update(hkt_scaler_t *scaler, bool overflow, const char *tensor);

/* What a checkpoint has to keep. Setting refuses numbers that no scaler of this configuration can have. */
typedef struct {
    double   scale;
    int      growth, hysteresis; /* steps without overflow; overflows that are still free */
    int      stuck;              /* skipped in a row at the least scale */
    uint64_t skipped;            /* in all */
} hkt_scaler_state_t;
HKT_API int hkt_scaler_get(hkt_scaler_state_t *state, const hkt_scaler_t *scaler);
HKT_API int hkt_scaler_set(hkt_scaler_t *scaler, const hkt_scaler_state_t *state);

/* The first of `count` elements that is infinite or not a number: its index, or `count`. Float types only. Pure. */
HKT_API int hkt_find_nonfinite(size_t *index, const void *values, size_t count, hkt_type_t type);

/* Makes all ranks of `comm` (NULL: this one alone) agree on whether some rank `saw` an overflow, and where: what the highest such
 * rank says, because backward passes begin on the last stage. `tensor` and `element` are of interest where it saw one. Collective. */
HKT_API int hkt_scaler_agree(hkt_overflow_t *overflow, bool saw, const char *tensor, size_t element, hkt_comm_t *comm);

/* ---- pipeline ---------------------------------------------------------------------------------------------------- */

/* A pipeline of p stages runs m micro-batches through p * v parts of the model, its virtual stages. Virtual stage k is chunk
 * k / p of stage k % p: with v = 2 and p = 4 stage 0 holds the parts 0 and 4. */
typedef enum {
    HKT_PIPELINE_GPIPE = 0,   /* all forwards, then all backwards */
    HKT_PIPELINE_1F1B,        /* p - 1 - stage forwards, then one forward, one backward */
    HKT_PIPELINE_INTERLEAVED, /* the same over v chunks in groups of micro-batches, as Megatron-LM does */
    HKT_PIPELINE_ZERO_BUBBLE, /* ZB-H1: 1F1B with the weight gradients apart and late, in the memory of 1F1B's stage 0 */
    HKT_PIPELINE_FORWARD,     /* forwards only: evaluation */
    HKT_PIPELINES
} hkt_pipeline_kind_t;

typedef struct {
    hkt_pipeline_kind_t kind;
    int                 stages, chunks, micros; /* p, v, m */
    int                 group; /* interleaved: micro-batches of a group; 0: p */
} hkt_pipeline_shape_t;

HKT_API const char *hkt_pipeline_name(hkt_pipeline_kind_t kind); /* "1f1b"; "?" when it is none */
HKT_API int         hkt_pipeline_kind(hkt_pipeline_kind_t *kind, const char *name);

/* HKT_ERR_ARGUMENT names every rule that the shape breaks, with the values that would be valid. */
HKT_API int hkt_pipeline_validate(const hkt_pipeline_shape_t *shape);

/* How many layers each virtual stage has: layers_of[p * v] in the order of the model, with sum == layers always. `text`
 * lists them ("2,2,1,1", "5,6*10,5"); NULL or "": even, the first get the rest. What `counted` names takes the place of one
 * layer (BLOOM: 70 layers on 12 stages are 5,6*10,5). An uneven model is never cut: HKT_ERR_ARGUMENT names every rule broken
 * and what is valid. */
enum { HKT_LAYOUT_EMBEDDING = 1, HKT_LAYOUT_HEAD = 2 };
HKT_API int hkt_layout_make(int *layers_of, int layers, int stages, int chunks, const char *text, unsigned counted);
HKT_API int hkt_layout_first(const int *layers_of, int virtual_stage); /* its first layer */
HKT_API int hkt_layout_print(FILE *out, const int *layers_of, int stages, int chunks); /* a line per stage */

/* v = layers / stages / layers_per_chunk (Megatron's --num-layers-per-virtual-pipeline-stage); refused where it does not
 * divide. */
HKT_API int hkt_layout_chunks(int *chunks, int layers, int stages, int layers_per_chunk);

/* ---- pipeline: time, without running anything */

/* Seconds for one micro-batch: of the virtual stages [p * v], and of a message between stage r and r + 1 [p] (the last: back
 * to stage 0), the same for gradients. Messages run beside the computation, one after the other on a link and direction. */
typedef struct {
    const double *forward;
    const double *backward; /* input and weight gradient */
    const double *weight;   /* the weight gradient's part of it, zero bubble; NULL: half */
    const double *send;     /* NULL: nothing */
} hkt_pipeline_times_t;

/* ideal: the busiest stage's work; bubble = (total - ideal) / ideal, so that 1F1B has (p - 1) / m; / total it is (p - 1) /
 * (m + p - 1). */
typedef struct { double total, ideal, bubble; } hkt_pipeline_timing_t;

/* Per stage: its work in seconds; forwards before the alternation of forward and backward begins; the most activations
 * (micro-batch and chunk) that wait for their backward at a time. */
typedef struct { double busy; int warm_up, peak; } hkt_pipeline_stage_t;

/* Pure, any thread, O(p v m). `times` NULL: forward 1 and backward 2 per stage, sends 0. `stages`: [p] or NULL. */
HKT_API int hkt_pipeline_simulate(hkt_pipeline_timing_t *timing, hkt_pipeline_stage_t *stages, const hkt_pipeline_shape_t *shape,
                                  const hkt_pipeline_times_t *times);

/* ---- pipeline: programs, a list of instructions per stage */

/* Sends and receives of a program stand in one order of all messages (that in which they are made when every stage takes the
 * same time), so that even sends that wait for their receive never block for ever, for any shape. */
typedef enum {
    HKT_DO_FORWARD = 0,
    HKT_DO_BACKWARD,        /* both gradients */
    HKT_DO_BACKWARD_INPUT,  /* zero bubble: the gradient of the input, which the stage before waits for, */
    HKT_DO_BACKWARD_WEIGHT, /* and that of the weights, which nobody waits for */
    HKT_DO_SEND_FORWARD,    /* output of (chunk, micro) */
    HKT_DO_RECV_FORWARD,    /* input of (chunk, micro) */
    HKT_DO_SEND_BACKWARD,   /* gradient of the input of (chunk, micro) */
    HKT_DO_RECV_BACKWARD,   /* gradient of the output of (chunk, micro) */
    HKT_ACTIONS
} hkt_action_t;
typedef struct {
    hkt_action_t action;
    int          chunk, micro; /* of this stage */
    int          peer;         /* stage at the other end of a message; -1 */
} hkt_instruction_t;

typedef struct hkt_program hkt_program_t;
HKT_API int hkt_program_create(hkt_program_t **program, const hkt_pipeline_shape_t *shape);
HKT_API int hkt_program_destroy(hkt_program_t *program); /* NULL is allowed */

/* One stage's list, which belongs to the program; and as text, "recv F0.1 from 3" with micro-batch.chunk; stage -1: all. */
HKT_API int hkt_program_stage(const hkt_instruction_t **list, size_t *n, const hkt_program_t *program, int stage);
HKT_API int hkt_program_print(FILE *out, const hkt_program_t *program, int stage);

/* Runs the lists of all stages (from a program or written by hand) with sends that wait for their receive and stages that do
 * one thing at a time. HKT_ERR_USAGE says what is wrong: who waits for what in a deadlock, what is used before it is there,
 * done twice or not at all. `total` (may be NULL): the time it takes, forward 1 and backward 2 per stage. */
HKT_API int hkt_program_check(double *total, const hkt_instruction_t *const *lists, const size_t *counts,
                              const hkt_pipeline_shape_t *shape);

/* ---- pipeline: running one stage */

typedef struct hkt_pipeline hkt_pipeline_t;

/* What one call computes. Input and output gradient stay as they are until the (last) backward of the same chunk and
 * micro-batch has returned, so a callback may keep the pointers (in evaluation for the call only); output and input gradient
 * are only lent for the call. Shapes: of the input and its gradient, of the output and its gradient. With variable shapes
 * the forward of the first virtual stage has to set its output's (-1 before); others may change theirs (the input's before).
 * Else both are the message's. */
typedef struct {
    int         chunk, micro;
    int64_t     input_shape[3], output_shape[3];
    const void *input;           /* NULL: first virtual stage */
    void       *output;          /* forward; NULL: last virtual stage, and in the other calls */
    const void *output_gradient; /* backwards; NULL: last virtual stage, and in forward */
    void       *input_gradient;  /* backward, input backward; NULL: first virtual stage, and in the other calls */
} hkt_pipeline_work_t;

/* Callbacks return 0 or a negative code, which ends the run on all stages. `backward` for all kinds but the zero bubble,
 * which has the other two; micro-batches of a chunk always come in order, so gradients are added up in the same order as by
 * one process. */
typedef struct {
    int (*forward)(hkt_pipeline_work_t *work, void *arg);
    int (*backward)(hkt_pipeline_work_t *work, void *arg);
    int (*backward_input)(hkt_pipeline_work_t *work, void *arg);
    int (*backward_weight)(hkt_pipeline_work_t *work, void *arg);
    void *arg;
} hkt_pipeline_calls_t;

/* What travels: `shape` elements of `type` (their product). `variable`: at most so many; each message of the forward
 * direction is preceded by one of 3 int64 with its shape. Ranks that are tensor-parallel with sequence parallelism each send
 * their slice. */
typedef struct {
    hkt_type_t type;
    int64_t    shape[3];
    bool       variable;
} hkt_pipeline_message_t;

/* Collective over `comm`: stage = rank, size = shape->stages; all arguments the same on all ranks, else every rank gets the
 * error. Takes all memory (activations: inputs; communication: gradients and outputs) and makes a communicator of two for
 * every link and direction; running takes none. `comm` stays the caller's and has to outlive the pipeline. */
HKT_API int hkt_pipeline_create(hkt_pipeline_t **pipeline, hkt_comm_t *comm, const hkt_pipeline_shape_t *shape,
                                const hkt_pipeline_message_t *message, hkt_ledger_t *ledger);

/* Not collective; after an error once the neighbours' runs have ended, too: they may be reading. NULL is allowed. */
HKT_API int hkt_pipeline_destroy(hkt_pipeline_t *pipeline);

/* One step: this stage's program, with messages beside the computation (a stream for each direction). Collective. After an
 * error (also of a callback, on any stage) the messages of all stages are aborted and the pipeline can only be destroyed. */
HKT_API int hkt_pipeline_run(hkt_pipeline_t *pipeline, const hkt_pipeline_calls_t *calls);
HKT_API int hkt_pipeline_evaluate(hkt_pipeline_t *pipeline, const hkt_pipeline_calls_t *calls); /* forwards only */

/* values[count] of the last stage, which has the loss, on every stage. Collective. */
HKT_API int hkt_pipeline_share(double *values, size_t count, hkt_pipeline_t *pipeline);

/* Messages that this stage has sent so far, activations and gradients. */
HKT_API int hkt_pipeline_traffic(hkt_traffic_t *forward, hkt_traffic_t *backward, const hkt_pipeline_t *pipeline);

/* When the instructions of the last run began and ended, seconds from its begin; messages by the stream that carried them.
 * `busy` is the time in callbacks, `total` that of the run. The marks are the pipeline's and valid until the next run. */
typedef struct {
    hkt_instruction_t instruction;
    double            begin, end;
} hkt_pipeline_mark_t;
typedef struct {
    const hkt_pipeline_mark_t *marks;
    size_t                     n;
    double                     busy, total;
} hkt_pipeline_trace_t;
HKT_API int hkt_pipeline_trace(hkt_pipeline_trace_t *trace, const hkt_pipeline_t *pipeline);

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Numbers that are a function of a stream and an index and of nothing else (Philox 4x32-10, Salmon et al. 2011): a layout, a
 * number of ranks, a recomputation or a resumed run never changes what is drawn, and there is no state to save. The index is
 * that of the element in the *whole* tensor; a rank that holds a part draws the indices of its part. Any thread. */
typedef struct { uint64_t seed, stream; } hkt_random_t;

/* The stream of one use: distinct for distinct coordinates. step < 2^48, operation < 2^16. */
HKT_API hkt_random_t hkt_random_at(uint64_t seed, uint64_t step, uint32_t micro_batch, uint32_t layer, uint32_t operation);
/* The stream of a name, for initial weights: the name of the tensor. */
HKT_API hkt_random_t hkt_random_named(uint64_t seed, const char *name);

HKT_API uint32_t hkt_random_bits(hkt_random_t random, uint64_t index);    /* 32 even bits */
HKT_API float    hkt_random_uniform(hkt_random_t random, uint64_t index); /* in [0, 1): the upper 24 bits / 2^24 */

/* out[i] = number at index first + i, the same bits as one by one and on every processor. Fast where first and count are
 * multiples of 4. Normals have mean 0 and the standard deviation given (Box and Muller). */
HKT_API void hkt_random_fill_bits(uint32_t *out, hkt_random_t random, uint64_t first, size_t count);
HKT_API void hkt_random_fill_uniform(float *out, hkt_random_t random, uint64_t first, size_t count);
HKT_API void hkt_random_fill_normal(float *out, hkt_random_t random, uint64_t first, size_t count, double deviation);

/* The place of `index` in a shuffle of 0 .. size - 1 that the stream chooses, without a table. index < size. */
HKT_API uint64_t hkt_random_shuffle(hkt_random_t random, uint64_t index, uint64_t size);

/* The function under all of this: ten rounds on a counter and a key. */
HKT_API void hkt_random_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* ---- tensor and sequence parallel -------------------------------------------------------------------------------- */

/* A layer is split over the n ranks of a tensor-parallel group as Megatron-LM does (Shoeybi et al. 2019; Korthikanti et al. 2022):
 * a column layer holds outputs / n rows of its weight and a row layer inputs / n columns, so that an MLP or an attention block
 * needs one reduction forward and one backward. With `sequence`, what lies between the blocks is split by rows (tokens): rank r
 * holds rows r * rows / n to (r + 1) * rows / n, and each reduction becomes a reduce-scatter and an all-gather.
 *
 * All functions that take the handle are collective over its ranks and finish before they return. Activations are dense
 * (rows, columns), of the type in the configuration; gradients of weights are fp32. Memory that the handle communicates is
 * read in place when it came from hkt_mem_alloc(). */
typedef struct hkt_tensor hkt_tensor_t;

/* A view of a matrix for the product that the caller brings. */
typedef struct {
    void      *data;
    size_t     rows, cols; /* as the product sees them */
    size_t     stride;     /* elements from one row in memory to the next */
    bool       transposed; /* memory holds cols x rows */
    hkt_type_t type;
} hkt_view_t;

/* c = a b, or c += a b where `keep`. c is not transposed. Returns HKT_OK or an error that the layer passes on. */
typedef int (*hkt_product_t)(hkt_view_t c, hkt_view_t a, hkt_view_t b, bool keep, void *arg);

typedef struct {
    size_t        size;     /* sizeof(hkt_tensor_config_t), set by HKT_TENSOR_CONFIG_INIT */
    hkt_comm_t   *comm;     /* of the group; the caller's; NULL: one rank */
    hkt_type_t    type;     /* of activations and weights: HKT_FLOAT32 or HKT_BFLOAT16 */
    bool          sequence; /* sequence parallel */
    bool          overlap;  /* communicate beside the product of the weight gradient */
    int           slices;   /* 0, or a power of two: every sum over a dimension that is split is then a fixed tree over this many
                             * slices, so that the group's size (a power of two that divides it) never changes a bit; fp32 only */
    hkt_product_t product;
    void         *arg;      /* of product */
    hkt_ledger_t *ledger;   /* scratch is taken from it, as HKT_BYTES_COMMUNICATION; NULL: not counted */
} hkt_tensor_config_t;
#define HKT_TENSOR_CONFIG_INIT { sizeof(hkt_tensor_config_t), NULL, HKT_FLOAT32, false, true, 0, NULL, NULL, NULL }

/* Not collective. Scratch grows in the first calls to the largest layer, and never again. */
HKT_API int hkt_tensor_create(hkt_tensor_t **tensor, const hkt_tensor_config_t *config);
HKT_API int hkt_tensor_destroy(hkt_tensor_t *tensor); /* NULL is allowed */

/* The mappings between what is split and what is whole; the backward of each is the forward of its partner. rows and cols are
 * those of the whole, and are divisible by n where they are split. in and out may be the same where nothing changes shape.
 *
 *   region             forward                        backward                        */
typedef enum {
    HKT_REGION_COPY = 0,        /* the same                       sum over the ranks              */
    HKT_REGION_REDUCE,          /* sum over the ranks             the same                        */
    HKT_REGION_SCATTER,         /* own columns                    columns of all                  */
    HKT_REGION_GATHER,          /* columns of all                 own columns                     */
    HKT_REGION_SEQUENCE_SPLIT,  /* own rows                       rows of all                     */
    HKT_REGION_SEQUENCE_JOIN,   /* rows of all                    own rows                        */
    HKT_REGION_SEQUENCE_GATHER, /* rows of all                    own rows of the sum             */
    HKT_REGION_SEQUENCE_REDUCE, /* own rows of the sum            rows of all                     */
    HKT_REGIONS
} hkt_region_t;
HKT_API int hkt_region_forward(void *out, const void *in, size_t rows, size_t cols, hkt_region_t region, hkt_tensor_t *tensor);
HKT_API int hkt_region_backward(void *din, const void *dout, size_t rows, size_t cols, hkt_region_t region,
                                hkt_tensor_t *tensor);

/* One linear layer, y = x weight^T. A bias is the caller's: added to the own outputs of a column layer, and once, after the sum,
 * to those of a row layer. */
typedef struct {
    size_t      rows, inputs, outputs; /* of the whole layer, all ranks together */
    const void *weight;                /* own slice: column (outputs / n, inputs); row (outputs, inputs / n) */
    float      *gradient;              /* of the own slice; may be NULL in backward */
    bool        keep;                  /* add to gradient instead of overwriting it */
} hkt_linear_t;

/* Column: x (rows, inputs), or the own rows with `sequence` -> y (rows, outputs / n). Backward: dx as x; x as in forward. With dx NULL
 * only the gradient of the weight is computed, with gradient NULL only dx (zero-bubble pipelines do both by turns). */
HKT_API int hkt_column_forward(void *y, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);
HKT_API int hkt_column_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);

/* Row: x (rows, inputs / n) -> y (rows, outputs), or the own rows with `sequence`. */
HKT_API int hkt_row_forward(void *y, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);
HKT_API int hkt_row_backward(void *dx, const void *dy, const void *x, const hkt_linear_t *linear, hkt_tensor_t *tensor);

/* The vocabulary is split by rows of its table. `padded` is a multiple of n (and of slices); what lies beyond `size` is never
 * chosen and has no chance. */
typedef struct {
    size_t size, padded;
    size_t width; /* of the table */
    size_t rows;  /* tokens at hand */
} hkt_vocabulary_t;

/* y (rows, width), or the own rows with `sequence`, = table[token]; table is (padded / n, width). HKT_ERR_ARGUMENT names the row
 * of a token that is none. Backward adds dy to dtable. */
HKT_API int hkt_embedding_forward(void *y, const void *table, const int32_t *token, const hkt_vocabulary_t *vocabulary,
                                  hkt_tensor_t *tensor);
HKT_API int hkt_embedding_backward(float *dtable, const void *dy, const int32_t *token, const hkt_vocabulary_t *vocabulary,
                                   hkt_tensor_t *tensor);

/* Cross entropy of the logits (rows, padded / n), fp32, against target (rows), in place: logits become scale times their gradient.
 * loss = sum over rows of weight * ((1 - smoothing) * -log p(target) + smoothing * mean over the vocabulary of -log p). Three small
 * reductions travel in two calls: the largest logit, then sums. weight NULL: 1; a row of weight 0 needs no target. NaN stays NaN. */
HKT_API int hkt_cross_entropy(double *loss, float *logits, const int32_t *target, const float *weight, float smoothing,
                              float scale, const hkt_vocabulary_t *vocabulary, hkt_tensor_t *tensor);

/* ---- context parallel -------------------------------------------------------------------------------------------- */

/* Sequences of length T, split by position over the n ranks of a group. A sequence is cut in 2 n chunks, of which rank r has r
 * and 2 n - 1 - r, in this order: under a causal mask all ranks then have the same work (one rank: the whole, uncut). Everything
 * but attention sees one position at a time and runs on own rows as it is. In attention queries stay, and keys and values go
 * round the ring of ranks, beside the attention to those at hand (Liu et al. 2023, Ring Attention; the cut is Megatron-LM's).
 *
 * The attention of a block of queries to a block of keys is the caller's; what it gives for several blocks of keys is merged
 * here, in fp32 and in one order: own keys first, then those of rank r - 1, r - 2 and so on. So results depend on n, but not on
 * timing. Nothing of T x T is ever kept. */

/* The place in the sequence of row `row` of the T / n that rank `rank` has. Pure. */
HKT_API size_t hkt_context_place(size_t row, size_t length, int rank, int n);

/* Rows of B sequences, with heads of D floats each. Queries and all that is theirs come in groups that share a head of keys:
 * float d of head h in row i of sequence b is data[b * sequence + i * row + h / m * group + h % m * head + d], m = heads /
 * key_heads; dense heads have group = m * head. Keys and values: data[b * sequence + i * row + h * group + d]. */
typedef struct { float *data; size_t sequence, row, group, head; } hkt_heads_t;

/* Queries and the keys that they look at. Views are the caller's memory. */
typedef struct {
    size_t batch, size;            /* B, D */
    size_t heads, key_heads;       /* of queries; of keys and values: query head h looks at key head h / (heads / key_heads) */
    size_t queries, keys;          /* rows of a sequence */
    size_t first_query, first_key; /* place of the first one in the whole sequence; the others follow it */
    size_t own_query;              /* number of the first query among the rows that this rank has of a sequence */
    hkt_heads_t query, key, value;
    hkt_heads_t out;               /* of the queries: softmax(scores) values, 0 where a query sees none of the keys */
    hkt_heads_t log_sum;           /* of the queries, a number each (D = 1, row = 1): log of the sum of e^score; or -INFINITY */
} hkt_attention_t;

/* What comes back: the gradient of out, and where those of queries, keys and values are to be added. */
typedef struct { hkt_heads_t dout, dquery, dkey, dvalue; } hkt_attention_gradient_t;

/* The same queries' out and log_sum from keys that `into` has not seen, joined to it: what both together would have given.
 * Shapes are those of `into`. Pure, any thread. */
HKT_API void hkt_attention_merge(const hkt_attention_t *into, const hkt_heads_t *out, const hkt_heads_t *log_sum);

typedef struct hkt_context hkt_context_t;

typedef struct {
    size_t      size;    /* sizeof(hkt_context_config_t), set by HKT_CONTEXT_CONFIG_INIT */
    hkt_comm_t *comm;    /* NULL: one rank. The handle's alone while one of its calls is under way */
    bool        causal;  /* blocks of keys that lie behind all the queries are left out */
    bool        overlap; /* keys and values travel on a stream, beside the callbacks */

    /* One block: writes out and log_sum. A query sees keys up to its own place (if causal), and fewer if the caller's own mask
     * says so. Returns HKT_OK or an error, which is passed on. `arg` is that of the call. */
    int (*forward)(const hkt_attention_t *block, void *arg);
    /* out and log_sum are now those of all keys, not of the block's: a chance is e^(score - log_sum). Adds to the gradients. */
    int (*backward)(const hkt_attention_gradient_t *gradient, const hkt_attention_t *block, void *arg);
    hkt_ledger_t *ledger; /* HKT_BYTES_COMMUNICATION; NULL: uncounted */
} hkt_context_config_t;
#define HKT_CONTEXT_CONFIG_INIT { sizeof(hkt_context_config_t), NULL, true, true, NULL, NULL, NULL }

/* Not collective. Memory is taken by the first call that needs it, and more by a larger one; with n > 1 and
 * K = 2 B (T / n) key_heads D floats, forward takes 2 K + B (T / 2n) heads (D + 1), backward 3 K beside that. */
HKT_API int hkt_context_create(hkt_context_t **context, const hkt_context_config_t *config);
HKT_API int hkt_context_destroy(hkt_context_t *context); /* NULL is allowed */

/* Attention of own rows to the whole sequence. `own` describes own rows (queries = keys = T / n, even if n > 1; first_* and
 * own_query are not read): query, key, value are read, out and log_sum written. Collective, with the same shapes on all ranks. A
 * rank sends (n - 1) K floats. After an error the communicator is of no more use. */
HKT_API int hkt_context_forward(const hkt_attention_t *own, void *arg, hkt_context_t *context);

/* The gradients of own queries, keys and values, added to what stands there, from dout and what forward left in `own`.
 * Collective. A rank sends 2 (n - 1) K floats. */
HKT_API int hkt_context_backward(const hkt_attention_gradient_t *gradient, const hkt_attention_t *own, void *arg,
                                 hkt_context_t *context);

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* A checkpoint holds pieces of tensors in the coordinates of the model, not of a layout, so any layout loads what any other
 * saved. On disk (docs/checkpoints.md): a folder a step with one data file a rank and a manifest of text; it is written under
 * a temporary name, synchronised, and renamed when it is complete, so whatever dies at whatever byte, the newest complete one
 * stays usable. Every 256 KiB have a checksum. */

/* XXH64 of the bytes: the checksum that the layer's files use. Pure. */
HKT_API uint64_t hkt_checksum(const void *data, size_t size, uint64_t seed);

/* to[i] = from[i] between float32, bfloat16 and float16 (rounded to nearest even, once; NaN stays NaN), or of one type of any
 * kind. Not in place. HKT_ERR_ARGUMENT for other pairs. Pure. */
HKT_API int hkt_convert(void *to, hkt_type_t to_type, const void *from, hkt_type_t from_type, size_t count);

typedef enum {
    HKT_PIECE_WEIGHT = 0, /* in the type of computation */
    HKT_PIECE_MASTER,     /* the fp32 copy that the optimizer updates */
    HKT_PIECE_MOMENT1,    /* AdamW's m */
    HKT_PIECE_MOMENT2,    /* AdamW's v */
    HKT_PIECE_EXTRA,      /* anything else, as bytes or numbers: error feedback, a generator, ... */
    HKT_PIECE_KINDS
} hkt_piece_kind_t;
HKT_API const char *hkt_piece_kind_name(hkt_piece_kind_t kind); /* "weight"; "?" when it is no kind */

enum { HKT_PIECE_DIMS = 4 };

/* Elements [first, first + count) of this rank's part of a tensor. The part is the whole tensor (begin, run and stride 0), or
 * a slice along one dimension: its element i is element begin + i / run * stride + i % run of the tensor, both row-major.
 * So columns [a, b) of a matrix of w columns are begin a, run b - a, stride w; rows [a, b) are begin a * w, run 0; and the
 * shard that a sharded optimizer has of either is first and count. */
typedef struct {
    const char      *name; /* of the tensor in the model: printable, no spaces, at most 255 bytes */
    hkt_piece_kind_t kind;
    hkt_type_t       type;
    int              dims; /* 1 to HKT_PIECE_DIMS */
    size_t           shape[HKT_PIECE_DIMS]; /* of the whole tensor */
    size_t           first, count;
    size_t           begin, run, stride;
    void            *data; /* `count` elements; written to by hkt_checkpoint_read() only */
} hkt_piece_t;

/* What is no tensor: step and position in the data, loss scaler, learning rate, the arguments. Doubles survive as "%a". */
typedef struct { const char *key, *value; } hkt_metadata_t;

/* Writes a checkpoint of `step` (>= 0) into `folder` (made when missing) and points `latest` to it. Collective; returns when
 * it is on disk, the same code on every rank, and on every rank the sentence of the one that failed; then nothing that was
 * complete before is lost. A piece that several ranks hold is written by one of them. The metadata is rank 0's. Of older ones
 * the newest `keep` - 1 stay; keep 0: all. A piece with count 0 is left out. Another save into the same folder at the same
 * time is refused (HKT_ERR_USAGE). */
HKT_API int hkt_checkpoint_save(hkt_comm_t *comm, const char *folder, int64_t step, int keep, const hkt_piece_t *pieces,
                                size_t n_pieces, const hkt_metadata_t *metadata, size_t n_metadata);

/* Saves beside the training. create and destroy are collective, as is save; a saver has a communicator of its own. */
typedef struct hkt_saver hkt_saver_t;
HKT_API int hkt_saver_create(hkt_saver_t **saver, hkt_comm_t *comm, const char *folder, int keep, hkt_ledger_t *ledger);
/* Copies what this rank is to write, and returns: a thread does the rest. Waits for the save before; when that failed it
 * returns its error and begins nothing. The copy's memory is kept for the next save (ledger: HKT_BYTES_OTHER). */
HKT_API int hkt_saver_begin(hkt_saver_t *saver, int64_t step, const hkt_piece_t *pieces, size_t n_pieces,
                            const hkt_metadata_t *metadata, size_t n_metadata);
HKT_API int hkt_saver_wait(hkt_saver_t *saver);    /* until it is on disk; its result, once; HKT_OK when none was begun */
HKT_API int hkt_saver_destroy(hkt_saver_t *saver); /* waits first and returns the result; NULL is allowed */

typedef struct hkt_checkpoint hkt_checkpoint_t;

/* Opens the checkpoint of `step`; step -1: the one `latest` names, or, where that is not complete, the newest that is. With a
 * communicator it is collective and every rank gets the same one, or an error when their files differ. NULL: by this rank
 * alone. Reads the manifest only. */
HKT_API int hkt_checkpoint_open(hkt_checkpoint_t **checkpoint, const char *folder, int64_t step, hkt_comm_t *comm);
HKT_API int hkt_checkpoint_close(hkt_checkpoint_t *checkpoint); /* NULL is allowed */

typedef struct {
    int64_t     step;
    int         ranks; /* that saved it */
    size_t      pieces, metadata;
    const char *path; /* its folder */
    const char *note; /* "", or which ones were passed over and why */
} hkt_checkpoint_info_t;
HKT_API int hkt_checkpoint_info(hkt_checkpoint_info_t *info, const hkt_checkpoint_t *checkpoint);

/* The index-th piece (ordered by name, kind, place; data NULL) or metadatum. They live as long as the checkpoint. */
HKT_API int hkt_checkpoint_piece(hkt_piece_t *piece, size_t index, const hkt_checkpoint_t *checkpoint);
HKT_API int hkt_checkpoint_metadatum(hkt_metadata_t *metadatum, size_t index, const hkt_checkpoint_t *checkpoint);
/* The value of a key; NULL when there is none. */
HKT_API const char *hkt_checkpoint_value(const hkt_checkpoint_t *checkpoint, const char *key);

/* Fills the pieces' data from whatever pieces hold their elements; reads no more of the files than the blocks of those. Types
 * may differ between float32, bfloat16 and float16 (rounded to nearest even). Where something is missing or has another shape
 * or type nothing is written and the sentence lists it (HKT_ERR_ARGUMENT); where a file is damaged it names file and offset
 * (HKT_ERR_SYSTEM) and the data that it was to fill is undefined. */
HKT_API int hkt_checkpoint_read(const hkt_piece_t *pieces, size_t n_pieces, hkt_checkpoint_t *checkpoint);

/* Reads all of it: every checksum, and that the pieces cover every tensor. */
HKT_API int hkt_checkpoint_verify(hkt_checkpoint_t *checkpoint);

/* ---- planner ----------------------------------------------------------------------------------------------------- */

/* What a training step of a decoder-only transformer needs in memory and time on a machine, and the search for the best
 * layout. Arithmetic only: no communicator, no state; any thread. Times are those of a model, not of a measurement; docs/planning.md has its formulas, their sources and how far they are from published figures.
 * A field that makes no sense (a size below 1, heads that do not divide hidden) gives HKT_ERR_ARGUMENT from every function. */

typedef struct {
    const char *name;
    int  layers, hidden, heads;
    int  kv_heads;       /* = heads without grouped queries */
    int  ffn;            /* inner size of the MLP */
    int  vocabulary;     /* tokens */
    int  pad;            /* the table is padded to a multiple of this times TP; 1: only to TP */
    int  sequence;       /* tokens of a sample */
    int  positions;      /* rows of a table of learned positions; 0: rotary or ALiBi */
    bool tied;           /* the head is the embedding; with stages each of both ends has a copy */
    bool gated;          /* three matrices in the MLP (SwiGLU), not two */
    bool biased;         /* linear layers and norms have biases */
    bool embedding_norm; /* a norm behind the embedding (BLOOM) */
    bool dropout;        /* masks are kept */
    bool blocked;        /* blocked (flash) attention: nothing of sequence x sequence is kept */
} hkt_plan_model_t;

/* Bytes an element takes, by what it is for. */
typedef struct {
    double parameter, gradient;
    double optimizer;  /* both moments, and the master weight if there is one */
    double activation, mask;
} hkt_plan_bytes_t;
#define HKT_PLAN_BF16 { 2, 4, 12, 2, 1 } /* gradients accumulate in fp32: 6 + 12 / n with a sharded optimizer */
#define HKT_PLAN_FP16 { 2, 2, 12, 2, 1 } /* the 16 bytes of the ZeRO paper */
#define HKT_PLAN_FP32 { 4, 4, 8, 4, 4 }

enum { HKT_PLAN_LINKS = 4, HKT_PLAN_ANY = -1 };

/* A class of links: what joins the devices of an aligned block of `span` ranks. */
typedef struct {
    const char *name;
    int         span;      /* a multiple of the one before; of the last class 0: all devices */
    double      bandwidth; /* bytes/s that every device can send, and receive at the same time, all at once */
    double      latency;   /* seconds of a message */
} hkt_plan_link_t;

enum { HKT_PLAN_POINTS = 12 };

/* Micro-batches of so many tokens on a device were measured to take so many times what the formulas say. */
typedef struct { double tokens, slower; } hkt_plan_point_t;

typedef struct {
    const char     *name;
    double          memory;   /* bytes of a device that a plan may use */
    double          peak;     /* FLOP/s of a device as advertised; for MFU only */
    double          achieved; /* FLOP/s of a large matrix product */
    double          half;     /* least dimension of a product that reaches half of `achieved` */
    double          traffic;  /* bytes/s of device memory, as reached */
    double          launch;   /* seconds lost for every kernel that is started */
    double          host;     /* bytes/s at which optimizer state outside the device is updated, at most `traffic`; 0: no such place */
    int             links;    /* 1 to HKT_PLAN_LINKS, fastest first; devices of link[0] are a node */
    hkt_plan_link_t link[HKT_PLAN_LINKS];
    int              points;  /* measured steps by which computation is corrected, fewest tokens first; 0: as the formulas say */
    hkt_plan_point_t point[HKT_PLAN_POINTS];
    double           update;  /* the same for the optimizer; 0: 1 */
} hkt_plan_machine_t;

/* Presets. Index from 0 gives the names, then NULL. An unknown name is refused with the list of them. */
HKT_API const char *hkt_plan_model_name(int index);
HKT_API const char *hkt_plan_machine_name(int index);
HKT_API int         hkt_plan_model(hkt_plan_model_t *model, const char *name);
HKT_API int         hkt_plan_machine(hkt_plan_machine_t *machine, const char *name);

enum {
    HKT_PLAN_TP_ANYWHERE   = 1, /* lets tensor parallelism leave the node */
    HKT_PLAN_ZERO_ANYWHERE = 2, /* lets ZeRO 2 and 3 run under a pipeline, reducing for every micro-batch */
    HKT_PLAN_NO_OVERLAP    = 4  /* gradients and parameters travel while nothing is computed */
};

typedef struct {
    hkt_plan_model_t   model;
    hkt_plan_machine_t machine;
    hkt_plan_bytes_t   bytes;
    int                world;        /* devices */
    int                global_batch; /* sequences of a step */
    unsigned           options;      /* HKT_PLAN_TP_ANYWHERE ... */
} hkt_plan_job_t;

typedef enum { HKT_RECOMPUTE_NONE = 0, HKT_RECOMPUTE_SELECTIVE, HKT_RECOMPUTE_FULL, HKT_RECOMPUTES } hkt_recompute_t;
HKT_API const char *hkt_recompute_name(int recompute); /* "none", "selective", "full"; "?" */

/* Ranks are laid out tp-cp-dp-pp, tp the fastest. As the limits of a search, a field may be HKT_PLAN_ANY. */
typedef struct {
    int tp, cp, pp, dp;
    int schedule;          /* hkt_pipeline_kind_t; a search for any leaves GPipe out, which 1F1B does in less memory */
    int chunks;            /* of layers on a stage; interleaved: 2 or more, else 1 */
    int head_layers;       /* so many layers' place is taken by the head; a search for any tries up to what it costs */
    int zero;              /* what the dp x cp devices share: 0 nothing, 1 optimizer state, 2 gradients, 3 parameters, too */
    int micro_batch;       /* sequences */
    int recompute;         /* hkt_recompute_t */
    int sequence_parallel; /* 0, 1 */
    int offload;           /* 1: the optimizer's state lives outside the device */
} hkt_plan_layout_t;
#define HKT_PLAN_LAYOUT_ANY { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 }

/* Elements of the whole model, nothing padded, nothing twice. NaN for a model that makes no sense. */
HKT_API double hkt_plan_parameters(const hkt_plan_model_t *model);

/* FLOPs of a step of so many sequences: a product of m x k by k x n counts 2mnk, attention is counted without its mask, and
 * recomputation comes on top (HKT_RECOMPUTE_NONE: those of the model). */
HKT_API double hkt_plan_flops(const hkt_plan_model_t *model, double sequences, int recompute);

/* Model state of one of n devices that share `parameters` at a ZeRO stage, bytes, and the elements that each of them sends for
 * a step of m micro-batches (Rajbhandari et al. 2020; gradients of stages 2 and 3 are reduced for every micro-batch). */
HKT_API double hkt_plan_states(const hkt_plan_bytes_t *bytes, double parameters, int n, int zero);
HKT_API double hkt_plan_volume(double parameters, int n, int zero, int m);

/* Layers of a stage; 0 where the layout is not possible. The rest of (layers + head_layers) / (pp chunks) goes to the middle
 * first, as the ends also have embedding and head: 70 layers on 12 stages are 5, 10 x 6, 5; then the last stage gives
 * head_layers back. */
HKT_API int hkt_plan_stage_layers(const hkt_plan_model_t *model, const hkt_plan_layout_t *layout, int stage);

/* What stands against a layout: the number of rules it breaks, its memory among them, 0 for none. All of them, with
 * the values that would be valid, go to `text` (`size` bytes, cut where they end; NULL with 0 is allowed). */
HKT_API int hkt_plan_check(char *text, size_t size, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* One device of a stage, at its peak. */
typedef struct {
    int    layers;
    double parameters;               /* elements on it, before ZeRO shards them */
    double in_flight;                /* micro-batches x chunks whose activations are kept */
    double bytes[HKT_BYTES_CLASSES]; /* HKT_BYTES_OTHER: what lives within one layer's backward pass */
    double total;                    /* of them */
    double outside;                  /* bytes offloaded */
} hkt_plan_stage_t;

/* Fills layout->pp stages. The layout must break no rule but that of memory, else HKT_ERR_ARGUMENT with what it breaks. */
HKT_API int hkt_plan_memory(hkt_plan_stage_t *stage, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* Where the seconds of a step go, on the device of the slowest stage. */
typedef enum {
    HKT_PLAN_PRODUCTS = 0, /* matrix products, recomputed ones included */
    HKT_PLAN_TRAFFIC,      /* everything else that reads and writes activations and gradients */
    HKT_PLAN_LAUNCH,       /* starting kernels */
    HKT_PLAN_TP, HKT_PLAN_CP, HKT_PLAN_PP, HKT_PLAN_DP, /* communication that nothing hides; DP: embeddings, too */
    HKT_PLAN_OPTIMIZER,
    HKT_PLAN_BUBBLE,       /* waiting for other stages */
    HKT_PLAN_PARTS
} hkt_plan_part_t;
HKT_API const char *hkt_plan_part_name(int part); /* "products"; "?" */

typedef struct {
    double step;                  /* seconds, the sum of the parts */
    double part[HKT_PLAN_PARTS];
    double hidden;                /* seconds of communication behind computation */
    double sent[HKT_PLAN_PARTS];  /* bytes that the device sends for TP, CP, PP, DP */
    int    link[HKT_PLAN_PARTS];  /* slowest class of links that such a group crosses; -1: a group of one */
    double flops, hardware_flops; /* FLOP/s of a device, without and with what is recomputed */
    double tokens;                /* tokens/s of all devices */
    int    micro_batches;         /* of a step, on one device */
    int    slowest;               /* stage */
} hkt_plan_time_t;

HKT_API int hkt_plan_time(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout);

/* The best plan of one choice of tp, cp, pp, dp, or why there is none. */
typedef struct {
    hkt_plan_layout_t layout;         /* found: of the best plan; else only tp, cp, pp, dp */
    bool              found;
    hkt_plan_time_t   time;           /* found */
    double            memory;         /* bytes of its fullest stage; not found: the least that was seen, 0: none was */
    size_t            refused, over;  /* variants that break a rule, or only the memory's */
    size_t            timed, skipped; /* variants whose time was found, or that cannot be better than one of them */
    char              reason[320];    /* not found: the rules broken by the family, or by the plan that came nearest */
} hkt_plan_family_t;

/* Goes through all layouts within `limits` (NULL: all) and gives the best plan of every family: the plans by their time, then
 * the families without any. What is found is within the memory and breaks no rule. Free with hkt_plan_search_free(). */
HKT_API int hkt_plan_search(hkt_plan_family_t **family, size_t *count, const hkt_plan_job_t *job,
                            const hkt_plan_layout_t *limits);
HKT_API void hkt_plan_search_free(hkt_plan_family_t *family); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_H */
