/* codec.h -- what a codec is, inside the training layer, and the loops that belong to one instruction set.
 *
 * A codec works on one tile at a time, CODEC_TILE elements that stay in the first-level cache; the code of a vector is
 * the codes of its tiles one after the other. So a codec is two plain loops, and error feedback, sums over ranks and
 * random numbers are done around it, tile by tile, at the cost of one pass over memory.
 *
 * Adding one: a header codec_foo.h with the loops and a `static const struct codec codec_foo` at its end, and a line in
 * codec_table.c. It gets options, feedback, the two-shot reductions, saving, the probe of its speed and the tests of
 * all codecs.
 */
#ifndef PARALLEL_CODEC_H
#define PARALLEL_CODEC_H

#include "adamw.h"
#include "common.h"

enum {
    CODEC_TILE    = 2048, /* elements; the last tile of a vector may be shorter */
    CODEC_GROUP   = 64,   /* codes are made for whole groups; zeros fill the last one */
    CODEC_OPTIONS = 4
};

enum codec_number { CODEC_NONE = 0, CODEC_WHOLE, CODEC_POWER /* of two */, CODEC_REAL };

struct codec_option {
    const char       *name;
    enum codec_number kind;
    double            least, most, normal;
    const char       *desc; /* with the limits, for hkt_codec_list() */
};

struct codec_call {
    const double   *value;  /* of the options */
    const uint16_t *random; /* one per element; only for codecs that are random */
    float           scale;  /* only for codecs that measure */
};

struct codec {
    const char         *name, *desc;
    struct codec_option option[CODEC_OPTIONS];
    double              ratio;
    bool                feedback, random, linear;

    /* Bytes of the code of a tile of `count` elements; value[i] is that of option[i]. */
    size_t (*bound)(size_t count, const double *value);

    /* Only where ranks share the scaler of a tile: this rank's own; the largest of all ranks is handed to encode. */
    float (*measure)(const float *x, size_t count, const double *value);

    /* x holds zeros from `count` up to the next whole group. */
    void (*encode)(uint8_t *code, const float *x, size_t count, const struct codec_call *call);

    /* Writes whole groups. */
    void (*decode)(float *x, const uint8_t *code, size_t count, const double *value);
};

struct codec_moment {
    const float *m, *v;
};

/* x, and what each of its elements is multiplied by before it is encoded; NULL: 1. */
struct codec_units {
    const float *x, *unit;
};

/* Everything that runs over vectors, once per instruction set, with the same bits from each. */
struct codec_loops {
    const char                *name;
    const struct codec *const *table; /* ends with NULL */

    /* x = g + e (e may be NULL), zeros up to the next whole group. */
    void (*load)(float *x, const float *g, const float *e, size_t count);
    /* The same with x = g u + e, and x /= u where u is not 0, else 0: vectors in units of their own, see compress.h. */
    void (*load_units)(float *x, const struct codec_units *g, const float *e, size_t count);
    void (*divide_units)(float *x, const float *u, size_t count);
    void (*add)(float *sum, const float *x, size_t count);
    void (*divide)(float *x, float divisor, size_t count);
    /* e = x - d where that is finite, else 0. */
    void (*keep)(float *e, const float *x, const float *d, size_t count);
    /* Index of the first NaN or infinity; count when there is none. */
    size_t (*bad)(const float *x, size_t count);

    /* Sum of a b in a fixed order of 32 lanes. */
    float (*dot)(const float *a, const float *b, size_t count);
    void (*add_scaled)(float *y, float a, const float *x, size_t count);

    /* 1-bit Adam, see onebit_adam.c. m and v become the moment in units of the step and what a gradient is multiplied
     * by. */
    void (*freeze)(float *m, float *v, const struct hkt_adamw_numbers *a, size_t count);
    void (*blend)(float *next, const struct codec_moment *old, const float *g, const struct hkt_adamw_numbers *a,
                  size_t count);
    void (*move)(float *w, const float *m, const float *v, const struct hkt_adamw_numbers *a, size_t count);
};

/* The loops of the best instruction set that this processor has. Any thread. */
const struct codec_loops *codec_loops(void);

/* A tile on its way to a code: scratch, on the stack of whoever works. */
struct codec_desk {
    size_t   tile, count;                                /* its number in the source, its elements */
    float    x[CODEC_TILE] __attribute__((aligned(64))); /* what is encoded */
    float    d[CODEC_TILE] __attribute__((aligned(64))); /* what was decoded */
    uint32_t random[CODEC_TILE / 2 + 4] __attribute__((aligned(64)));
};

/* A stretch of a vector that is encoded: the random numbers of its first element, and the scaler of each tile (NULL:
 * its own). */
struct codec_source {
    const hkt_codec_t *codec;
    hkt_random_t       random;
    uint64_t           first;
    const float       *scale;
    const float       *unit; /* of the elements, see struct codec_units; NULL: 1 */
};

static inline const struct codec *codec_of(const hkt_codec_t *codec)
{
    return codec->entry;
}

static inline size_t codec_groups(size_t count)
{
    return (count + CODEC_GROUP - 1) / CODEC_GROUP * CODEC_GROUP;
}

static inline size_t codec_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The random numbers of a step: what = 0 for a rank's own vector, 1 for the sum it owns, 2 for what a handle draws. */
static inline hkt_random_t codec_random(uint64_t seed, uint64_t step, int rank, uint32_t what)
{
    return hkt_random_at(seed, step, (uint32_t)rank, what, 0xC0DE);
}

/* Encodes the tile on the desk; the feedback e (or NULL) becomes what is lost. */
void codec_encode_tile(uint8_t *code, float *e, struct codec_desk *desk, const struct codec_source *source);

/* Encodes x[count] + e. */
void codec_encode(uint8_t *code, float *e, const float *x, size_t count, const struct codec_source *source);
void codec_decode(float *x, const uint8_t *code, size_t count, const hkt_codec_t *codec);

#endif
