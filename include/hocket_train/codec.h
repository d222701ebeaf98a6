/* codec.h -- smaller codes for numbers, reductions of what is coded, 1-bit Adam. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_CODEC_H
#define HOCKET_TRAIN_CODEC_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_CODEC_H */
