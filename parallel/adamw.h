/* adamw.h -- the loops over gradients and optimizer state that are worth vector code: the update, the exact sum of
 * squares, and the conversions around them.
 *
 * adamw_loops.c is compiled for every instruction set; hkt_loops() picks for this processor. All of them give the same
 * bits: only operations that IEEE rounds in one way, nothing contracted, and sums that are exact. */
#ifndef PARALLEL_ADAMW_H
#define PARALLEL_ADAMW_H

#include <parallel/common.h>

/* A sum of squares of fp32 numbers without any rounding: digits of 40 bits, digit b in units of 2^(40 b - 320). As it
 * is exact it does not depend on the order, so neither on shards, buckets, stages nor tensor-parallel slices; and two
 * are added digit by digit, an all-reduce of int64. */
enum { HKT_EXACT_DIGITS = 16, HKT_EXACT_BITS = 40, HKT_EXACT_LOWEST = -320 };
struct hkt_exact {
    int64_t digit[HKT_EXACT_DIGITS];
};

/* The numbers of one AdamW step, for one class of decay; made by hkt_adamw_numbers(). */
struct hkt_adamw_numbers {
    float scale;        /* of the gradient */
    float beta1, rest1; /* rest = 1 - beta */
    float beta2, rest2;
    float shrink;        /* 1 - rate * decay */
    float length;        /* rate / (1 - beta1^step) */
    float root, epsilon; /* 1 / sqrt(1 - beta2^step) */
};

struct hkt_loops {
    const char *name;
    void (*adamw)(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count);
    /* The same with a second moment that stays as it is. */
    void (*frozen)(const struct hkt_adamw_numbers *a, const hkt_adamw_state_t *state, size_t count);
    /* sum += squares of x; returns the index of the first number that is not finite (sum is then of no use), or count.
     */
    size_t (*squares)(struct hkt_exact *sum, const float *x, size_t count);
    void (*add)(float *to, const float *x, size_t count);
    void (*scale)(float *x, float factor, size_t count);
    void (*widen_bf16)(float *to, const uint16_t *x, size_t count);
    void (*widen_fp16)(float *to, const uint16_t *x, size_t count);
    void (*narrow_bf16)(uint16_t *to, const float *x,
                        size_t count); /* to nearest even; NaN becomes the canonical one */
    void (*narrow_fp16)(uint16_t *to, const float *x, size_t count);
};

const struct hkt_loops *hkt_loops(void);
const struct hkt_loops *hkt_loops_at(int index); /* narrowest first; NULL where this processor cannot run it */

double hkt_exact_value(const struct hkt_exact *sum); /* rounded in one fixed way */
void   hkt_exact_settle(struct hkt_exact *sum);      /* carries: all digits but the last in [0, 2^40) */

int                      hkt_adamw_check(const hkt_adamw_t *options); /* ranges */
struct hkt_adamw_numbers hkt_adamw_numbers(const hkt_adamw_t *options, uint64_t step, float scale, bool decays);

/* For HKT_FLOAT32, HKT_BFLOAT16 and HKT_FLOAT16, whole arrays, through a block of fp32 that stays in the first-level
 * cache. */
enum { HKT_LOOP_BLOCK = 1024 };
bool   hkt_is_float_type(hkt_type_t type);
void   hkt_float_widen(float *to, const void *x, hkt_type_t type, size_t count);
void   hkt_float_narrow(void *to, hkt_type_t type, const float *x, size_t count);
void   hkt_float_add(void *to, hkt_type_t to_type, const void *x, hkt_type_t type, size_t count);
void   hkt_float_scale(void *x, hkt_type_t type, float factor, size_t count);
size_t hkt_float_squares(struct hkt_exact *sum, const void *x, hkt_type_t type, size_t count);

#endif
