/* reduce_kernels.c -- the reduction kernels of one instruction set; compiled once for each, with -DHKT_ISA=name.
 *
 * The loops (reduce_loops.h) fold up to FAN sources over whole units. All else is made from them: more sources are folded by
 * groups of FAN, which are subtrees of the canonical tree, block by block in cache; what is left of a count goes through a unit
 * of scratch; the front of a streamed destination, up to a cache line, likewise. */
#include "language/reduce.h"

#include "language/reduce_vector.h"

#include <assert.h>
#include <fenv.h>
#include <math.h>

#include "language/reduce_average.h"
#include "language/reduce_loops.h"

enum { BLOCK = 8192 /* bytes of the wide type; FAN blocks stay in the second-level cache, runs are long enough to be prefetched */ };

/* ---- from a call to runs of a loop -------------------------------------------------------------------------------- */

struct job {
    const struct hkt_reduce *r;
    const struct family     *f;
    enum load                load;
    enum save                save;
    const vec               *divisor;
};

/* Fewer than 4 * W bytes; calls to memcpy would cost more than the rest. */
INLINE void copy_piece(char *to, const char *from, size_t bytes)
{
    size_t at = 0;

    for (; at + W <= bytes; at += W)
        store(to + at, load(from + at));
    if (W > 32 && bytes & 32) {
        memcpy(to + at, from + at, 32);
        at += 32;
    }
    if (W > 16 && bytes & 16) {
        memcpy(to + at, from + at, 16);
        at += 16;
    }
    if (bytes & 8) {
        memcpy(to + at, from + at, 8);
        at += 8;
    }
    if (bytes & 4) {
        memcpy(to + at, from + at, 4);
        at += 4;
    }
    if (bytes & 2) {
        memcpy(to + at, from + at, 2);
        at += 2;
    }
    if (bytes & 1)
        to[at] = from[at];
}

/* A part of a unit: through scratch, so that nothing beyond the buffers is touched. */
static void part_unit(loop_fn *loop, struct span *s, size_t count)
{
    char          from[FAN][UNIT] __attribute__((aligned(64))), to[UNIT] __attribute__((aligned(64)));
    void *const   scratch = to, *const *dst = s->dst;
    const size_t  at   = s->at;
    const uint32_t ndst = s->ndst;

    for (uint32_t i = 0; i < s->nsrc; i++) {
        for (int k = 0; k < 4; k++)
            store(from[i] + k * W, (vec){0});
        copy_piece(from[i], s->src[i], count * s->in);
        s->src[i] = from[i];
    }
    s->dst    = &scratch;
    s->ndst   = 1;
    s->at     = 0;
    s->units  = 1;
    s->stream = false;
    loop(s);
    for (uint32_t d = 0; d < ndst; d++)
        copy_piece((char *)dst[d] + at, to, count * s->out);
}

/* Any number of elements from at most FAN sources. */
static void elements(loop_fn *loop, struct span *s, size_t count)
{
    const unsigned shift = (unsigned)__builtin_ctz(s->unit);

    s->units = count >> shift;
    if (s->units)
        loop(s);
    count &= s->unit - 1;
    if (!count)
        return;
    for (uint32_t i = 0; i < s->nsrc; i++)
        s->src[i] += (s->units << shift) * s->in;
    s->at += (s->units << shift) * s->out;
    part_unit(loop, s, count);
}

struct range {
    size_t   at, count; /* elements */
    uint32_t first, nsrc;
};

struct target {
    void *const *dst;
    size_t       at; /* bytes */
    uint32_t     ndst;
    bool         stream;
};

/* All but the sources. Member by member: clearing the whole costs more than a small fold. */
INLINE void aim(struct span *s, const struct job *j, enum load load, enum save save, const struct target *to)
{
    s->dst     = to->dst;
    s->at      = to->at;
    s->ndst    = to->ndst;
    s->stream  = to->stream;
    s->divisor = j->divisor;
    s->scale   = NULL;
    s->in      = load == WIDE ? j->f->wide : j->f->size;
    s->out     = save == PARTIAL ? j->f->wide : j->f->size;
    s->unit    = j->f->unit;
}

/* At most FAN sources of the call into a target. */
INLINE void fold_few(const struct job *j, const struct range *g, enum save save, const struct target *to)
{
    struct span s;
    vec         scale[FAN];

    aim(&s, j, j->load, save, to);
    s.nsrc = g->nsrc;
    for (uint32_t i = 0; i < g->nsrc; i++)
        s.src[i] = (const char *)j->r->src[g->first + i] + g->at * s.in;
    if (j->load == SCALED) {
        for (uint32_t i = 0; i < g->nsrc; i++)
            scale[i] = j->f->splat(j->r->scale[g->first + i]);
        s.scale = scale;
    }
    elements(j->f->loop[j->load][save], &s, g->count);
}

static void fold_any(const struct job *j, const struct range *g, enum save save, const struct target *to);

/* More than FAN sources, at most a block of elements: FAN groups of a power of FAN sources, each a subtree, then their fold.
 * 64 KiB of stack for up to FAN * FAN sources, as much again for each further factor of FAN. */
static void fold_block(const struct job *j, const struct range *g, enum save save, const struct target *to)
{
    char        partial[FAN][BLOCK] __attribute__((aligned(64)));
    struct span s;
    uint32_t    group = FAN;

    aim(&s, j, WIDE, save, to);
    s.nsrc = 0;
    while ((g->nsrc - 1) / group >= FAN)
        group *= FAN;
    for (uint32_t left = g->nsrc; left; s.nsrc++) {
        const uint32_t     n   = left < group ? left : group;
        const struct range sub = {g->at, g->count, g->first + g->nsrc - left, n};
        void *const        dst = partial[s.nsrc];

        fold_any(j, &sub, PARTIAL, &(struct target){&dst, 0, 1, false});
        s.src[s.nsrc] = dst;
        left -= n;
    }
    elements(j->f->loop[WIDE][save], &s, g->count);
}

static void fold_any(const struct job *j, const struct range *g, enum save save, const struct target *to)
{
    if (g->nsrc <= FAN)
        fold_few(j, g, save, to);
    else
        fold_block(j, g, save, to);
}

static void fold_range(const struct job *j, size_t at, size_t count, bool stream)
{
    const struct hkt_reduce *r     = j->r;
    const size_t             block = r->nsrc <= FAN ? count : BLOCK / j->f->wide;
    const size_t             out   = j->save == PARTIAL ? j->f->wide : j->f->size;

    for (size_t done = 0; done < count; done += block) {
        const struct range g = {at + done, count - done < block ? count - done : block, 0, r->nsrc};

        fold_any(j, &g, j->save, &(struct target){r->dst, g.at * out, r->ndst, stream});
    }
}

/* Elements before every destination is on a cache line, or count where they do not agree. */
static size_t elements_to_line(const struct hkt_reduce *r, size_t size)
{
    const uintptr_t first = r->ndst ? (uintptr_t)r->dst[0] : 0;
    const size_t    head  = -first % 64 / size;

    for (uint32_t d = 0; d < r->ndst; d++)
        if (((uintptr_t)r->dst[d] - first) % 64 || first % size)
            return r->count;
    return head < r->count ? head : r->count;
}

/* The whole call; `size` is that of a destination's element. */
static void fold(const struct job *j, size_t size)
{
    const struct hkt_reduce *r    = j->r;
    size_t                   head;

    if (r->nsrc <= FAN && !r->stream) { /* the short way for small calls */
        fold_few(j, &(struct range){0, r->count, 0, r->nsrc}, j->save, &(struct target){r->dst, 0, r->ndst, false});
        return;
    }
    head = r->stream ? elements_to_line(r, size) : r->count;
    fold_range(j, 0, head, false);
    if (head == r->count)
        return;
    fold_range(j, head, r->count - head, true);
    fence_past();
}

/* The library computes in the default floating-point mode, whatever the caller's threads use (flush to zero, for one). */
#if defined(__SSE2__)
typedef unsigned float_mode;

enum { MODE_DEFAULT = 0x1f80, MODE_FLAGS = 0x3f };

static float_mode mode_enter(void)
{
    const float_mode mode = _mm_getcsr();

    if ((mode & ~(unsigned)MODE_FLAGS) != MODE_DEFAULT)
        _mm_setcsr(MODE_DEFAULT);
    return mode;
}

static void mode_leave(float_mode mode)
{
    if ((mode & ~(unsigned)MODE_FLAGS) != MODE_DEFAULT)
        _mm_setcsr(mode);
}
#else
typedef fenv_t float_mode;

static float_mode mode_enter(void)
{
    float_mode mode;

    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    return mode;
}

static void mode_leave(float_mode mode)
{
    fesetenv(&mode);
}
#endif

static void copy(const struct hkt_copy *c);

/* What the smallest messages cost: vector by vector, straight from the call. */
static bool is_tiny(const struct hkt_reduce *r, const struct family *f, int op)
{
    const bool narrow = f->size == f->wide || (r->in != HKT_PARTIAL && r->out != HKT_PARTIAL);

    return f->tiny && narrow && op < HKT_AVG && r->nsrc >= 2 && r->nsrc <= FAN && r->count < f->unit;
}

static void fold_tiny(const struct hkt_reduce *r, const struct family *f, size_t bytes)
{
    const char *src[FAN];
    vec         part[FAN], v;

    for (size_t at = 0; at < bytes; at += W) {
        const int size = bytes - at < W ? (int)(bytes - at) : W;

        for (uint32_t i = 0; i < r->nsrc; i++) {
            part[i] = load_part((const char *)r->src[i] + at, size);
            src[i]  = (const char *)&part[i];
        }
        v = f->tiny(src, r->nsrc);
        for (uint32_t d = 0; d < r->ndst; d++)
            store_part((char *)r->dst[d] + at, v, size);
    }
}

static bool is_copy(const struct hkt_reduce *r)
{
    return r->nsrc == 1 && r->in == r->out;
}

static void reduce(const struct hkt_reduce *r, const struct family *f, const int op)
{
    const bool       raw = r->in == HKT_RAW, divided = op == HKT_AVG && r->in != HKT_FINISHED;
    const size_t     size = r->out == HKT_PARTIAL ? f->wide : f->size;
    const float_mode mode = mode_enter();
    vec              divisor;
    struct job       j = {.r = r, .f = f, .divisor = &divisor};

    if (is_tiny(r, f, op)) {
        fold_tiny(r, f, r->count * size);
        mode_leave(mode);
        return;
    }
    assert(r->nsrc && (r->out != HKT_RAW || (raw && r->nsrc == 1)));
    j.load = r->in == HKT_PARTIAL ? WIDE : op == HKT_PREMUL && raw ? SCALED : NARROW;
    j.save = r->out == HKT_PARTIAL ? PARTIAL : divided ? DIVIDED : ROUNDED;
    if (op == HKT_AVG)
        divisor = f->splat(divided ? r->divisor : 1);
    if (is_copy(r))
        copy(&(struct hkt_copy){r->src[0], r->dst, r->count * size, r->ndst, r->stream});
    else
        fold(&j, size);
    mode_leave(mode);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

enum { SMALL_COPY = 1024 };

/* To destinations that are not the source: a sum of one. Not memcpy: where that is rep movsb, Zen 3 copies twenty times slower
 * when the destination lies a few bytes above the source modulo 4096. */
static void copy_apart(const struct hkt_copy *c)
{
    const void *const       src[] = {c->src};
    const struct hkt_reduce r     = {.src = src, .dst = c->dst, .count = c->bytes, .nsrc = 1, .ndst = c->ndst, .stream = c->stream};

    if (c->bytes <= SMALL_COPY) {
        for (uint32_t d = 0; d < c->ndst; d++)
            memcpy(c->dst[d], c->src, c->bytes);
    } else {
        fold(&(struct job){.r = &r, .f = &sum_uint8_family, .load = NARROW, .save = ROUNDED}, 1);
    }
}

static void copy(const struct hkt_copy *c)
{
    uint32_t first = 0;

    for (uint32_t d = 0; d <= c->ndst; d++) {
        if (d < c->ndst && c->dst[d] != c->src)
            continue;
        if (d > first)
            copy_apart(&(struct hkt_copy){c->src, c->dst + first, c->bytes, d - first, c->stream});
        first = d + 1;
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define ENTRY(name, family, op)                                                                                         \
    static void reduce_##name(const struct hkt_reduce *r)                                                               \
    {                                                                                                                   \
        reduce(r, &family##_family, op);                                                                                \
    }
#define ENTRIES(type)                                                                                                   \
    ENTRY(type##_sum, sum_##type, HKT_SUM)                                                                              \
    ENTRY(type##_prod, prod_##type, HKT_PROD)                                                                           \
    ENTRY(type##_min, min_##type, HKT_MIN)                                                                              \
    ENTRY(type##_max, max_##type, HKT_MAX)                                                                              \
    ENTRY(type##_premul, sum_##type, HKT_PREMUL)

ENTRIES(int8)
ENTRIES(uint8)
ENTRIES(int16)
ENTRIES(uint16)
ENTRIES(int32)
ENTRIES(uint32)
ENTRIES(int64)
ENTRIES(uint64)
ENTRIES(float16)
ENTRIES(bfloat16)
ENTRIES(float32)
ENTRIES(float64)
ENTRIES(e4m3)
ENTRIES(e5m2)
ENTRY(int8_avg, average_int8, HKT_AVG)
ENTRY(uint8_avg, average_uint8, HKT_AVG)
ENTRY(int16_avg, average_int16, HKT_AVG)
ENTRY(uint16_avg, average_uint16, HKT_AVG)
ENTRY(int32_avg, average_int32, HKT_AVG)
ENTRY(uint32_avg, average_uint32, HKT_AVG)
ENTRY(float16_avg, sum_float16, HKT_AVG)
ENTRY(bfloat16_avg, sum_bfloat16, HKT_AVG)
ENTRY(float32_avg, sum_float32, HKT_AVG)
ENTRY(float64_avg, sum_float64, HKT_AVG)
ENTRY(e4m3_avg, sum_e4m3, HKT_AVG)
ENTRY(e5m2_avg, sum_e5m2, HKT_AVG)

#define ROW(type)                                                                                                       \
    {                                                                                                                   \
        reduce_##type##_sum, reduce_##type##_prod, reduce_##type##_min, reduce_##type##_max, reduce_##type##_avg,       \
            reduce_##type##_premul                                                                                      \
    }

#define PASTE(a, b) PASTE_(a, b)
#define PASTE_(a, b) a##b

const struct hkt_kernels PASTE(hkt_kernels_, HKT_ISA) = {
    .reduce =
        {
            [HKT_INT8]        = ROW(int8),
            [HKT_UINT8]       = ROW(uint8),
            [HKT_INT16]       = ROW(int16),
            [HKT_UINT16]      = ROW(uint16),
            [HKT_INT32]       = ROW(int32),
            [HKT_UINT32]      = ROW(uint32),
            [HKT_INT64]       = ROW(int64),
            [HKT_UINT64]      = ROW(uint64),
            [HKT_FLOAT16]     = ROW(float16),
            [HKT_BFLOAT16]    = ROW(bfloat16),
            [HKT_FLOAT32]     = ROW(float32),
            [HKT_FLOAT64]     = ROW(float64),
            [HKT_FLOAT8_E4M3] = ROW(e4m3),
            [HKT_FLOAT8_E5M2] = ROW(e5m2),
        },
    .copy = copy,
};
