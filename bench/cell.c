/* cell.c -- one cell: buffers, a checked operation, batches against the clock, another checked operation.
 *
 * A batch is `repeat` operations back to back; its time is that of the slowest rank; the ranks line up before it. Sizes
 * are those of nccl-tests: for reduce-scatter, all-gather and all-to-all the whole n-rank buffer (at least one element
 * a rank). The pattern has the prime period 1021 and is the same arithmetic for every library, so that a block in the
 * wrong place is seen. */
#include "harness.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PERIOD = 1021, PAGE = 4096, KINDS = 8, CALIBRATE = 4 };

struct buffer {
    char  *at;
    size_t bytes;
};
static struct buffer buffers[KINDS][2]; /* send and recv of each kind */

struct cell {
    const struct world *world;
    const struct order *order;
    enum element        type;
    size_t              width;                  /* of an element */
    size_t              count;                  /* as the operation takes it */
    size_t              send_count, recv_count; /* whole buffers, in elements */
    char               *send, *recv;
};

/* ---- elements and patterns ---- */
static void store(void *to, size_t i, enum element type, float value)
{
    const uint32_t exponent_change = (127 - 15) << 10; /* binary32 to binary16 */
    uint32_t       bits;

    memcpy(&bits, &value, sizeof bits);
    switch (type) { /* the values are small whole numbers, at least 0: no rounding, no subnormals */
    case FLOAT16:
        ((uint16_t *)to)[i] = (uint16_t)(value > 0 ? (bits >> 13) - exponent_change : 0);
        break;
    case BFLOAT16:
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        break;
    default:
        ((float *)to)[i] = value;
    }
}

/* Two periods of the pattern that sources first .. first + sources - 1 give when added up, so that one period can be
 * read from any phase. Values stay exact in bfloat16. */
struct tile {
    _Alignas(64) char bytes[2 * PERIOD * sizeof(float)];
};

static void tile_make(struct tile *t, const struct cell *c, int first, int sources, int round)
{
    const int span = c->world->size <= 16 ? 16 : 4;

    for (int i = 0; i < 2 * PERIOD; i++) {
        float sum = 0;

        for (int s = first; s < first + sources; s++)
            sum += (float)((s * 7 + (i + round) % PERIOD) % span);
        store(t->bytes, (size_t)i, c->type, sum);
    }
}

static void tile_fill(const struct tile *t, const struct cell *c, char *to, size_t count)
{
    for (size_t i = 0; i < count; i += PERIOD)
        memcpy(to + i * c->width, t->bytes, (count - i < PERIOD ? count - i : PERIOD) * c->width);
}

/* How many of the elements differ from the pattern, which begins at element `phase`. */
static long tile_wrong(const struct tile *t, const struct cell *c, const char *at, size_t phase, size_t count)
{
    const char *const expected = t->bytes + phase % PERIOD * c->width;
    long              wrong    = 0;

    for (size_t i = 0; i < count; i += PERIOD) {
        const size_t n = count - i < PERIOD ? count - i : PERIOD;

        if (memcmp(at + i * c->width, expected, n * c->width) == 0)
            continue;
        for (size_t j = 0; j < n; j++)
            wrong += memcmp(at + (i + j) * c->width, expected + j * c->width, c->width) != 0;
    }
    return wrong;
}

static void prepare(const struct cell *c, int round)
{
    const int   n = c->world->size, r = c->world->rank;
    struct tile t;

    memset(c->recv, 0xee, c->recv_count * c->width);
    tile_make(&t, c, r, 1, round);
    switch (c->order->collective) {
    case ALL_REDUCE_IN_PLACE:
        tile_fill(&t, c, c->recv, c->count);
        break;
    case BROADCAST:
        if (r == 0)
            tile_fill(&t, c, c->recv, c->count);
        break;
    case ALL_TO_ALL:
        for (int to = 0; to < n; to++) {
            tile_make(&t, c, r * 3 + to, 1, round);
            tile_fill(&t, c, c->send + (size_t)to * c->count * c->width, c->count);
        }
        break;
    default:
        tile_fill(&t, c, c->send, c->send_count);
    }
}

static long check(const struct cell *c, int round)
{
    const int   n = c->world->size, r = c->world->rank;
    struct tile t;
    long        wrong = 0;

    if (the_backend.moves_only && c->order->collective != SENDRECV && c->order->collective != PINGPONG)
        return 0;
    switch (c->order->collective) {
    case ALL_REDUCE:
    case ALL_REDUCE_IN_PLACE:
        tile_make(&t, c, 0, n, round);
        return tile_wrong(&t, c, c->recv, 0, c->count);
    case REDUCE_SCATTER:
        tile_make(&t, c, 0, n, round);
        return tile_wrong(&t, c, c->recv, (size_t)r * c->count, c->count);
    case BROADCAST:
        tile_make(&t, c, 0, 1, round);
        return tile_wrong(&t, c, c->recv, 0, c->count);
    case SENDRECV:
        tile_make(&t, c, (r + n - 1) % n, 1, round);
        return tile_wrong(&t, c, c->recv, 0, c->count);
    case PINGPONG:
        tile_make(&t, c, 1 - r, 1, round);
        return r < 2 ? tile_wrong(&t, c, c->recv, 0, c->count) : 0;
    }
    for (int from = 0; from < n; from++) {
        tile_make(&t, c, c->order->collective == ALL_GATHER ? from : from * 3 + r, 1, round);
        wrong += tile_wrong(&t, c, c->recv + (size_t)from * c->count * c->width, 0, c->count);
    }
    return wrong;
}

/* ---- the operation ---- */
static int pingpong(const struct cell *c)
{
    const struct backend *const b = &the_backend;
    const int                   r = c->world->rank;
    int                         rc;

    if (!b->send || !b->receive)
        return -1;
    if (r > 1)
        return 0;
    rc = r ? b->receive(c->recv, c->count, c->type, 0) : b->send(c->send, c->count, c->type, 1);
    if (rc)
        return rc;
    return r ? b->send(c->send, c->count, c->type, 0) : b->receive(c->recv, c->count, c->type, 1);
}

static int operation(const struct cell *c)
{
    const struct backend *const b = &the_backend;
    const int                   n = c->world->size, r = c->world->rank;

    switch (c->order->collective) {
    case ALL_REDUCE:
        return b->all_reduce ? b->all_reduce(c->send, c->recv, c->count, c->type) : -1;
    case ALL_REDUCE_IN_PLACE:
        return b->all_reduce ? b->all_reduce(c->recv, c->recv, c->count, c->type) : -1;
    case REDUCE_SCATTER:
        return b->reduce_scatter ? b->reduce_scatter(c->send, c->recv, c->count, c->type) : -1;
    case ALL_GATHER:
        return b->all_gather ? b->all_gather(c->send, c->recv, c->count, c->type) : -1;
    case BROADCAST:
        return b->broadcast ? b->broadcast(c->recv, c->count, c->type) : -1;
    case ALL_TO_ALL:
        return b->all_to_all ? b->all_to_all(c->send, c->recv, c->count, c->type) : -1;
    case SENDRECV:
        return b->sendrecv ? b->sendrecv(c->send, (r + 1) % n, c->recv, (r + n - 1) % n, c->count, c->type) : -1;
    case PINGPONG:
        return pingpong(c);
    }
    return -1;
}

/* Plain stores of a producer: pieces small enough that no copy routine takes to non-temporal ones. */
static void rewrite(const struct cell *c)
{
    static const char piece[PAGE];
    const size_t      bytes = c->send_count * c->width;

    for (size_t i = 0; i < bytes; i += PAGE)
        memcpy(c->send + i, piece, bytes - i < PAGE ? bytes - i : PAGE);
    atomic_signal_fence(memory_order_seq_cst); /* the compiler may not drop or move the stores */
}

/* This rank's time for `repeat` operations. With rewritten data only the operations are counted, one by one (two looks
 * at the clock each, some 50 ns): subtracting the time of the rewriting alone would be wrong, as it depends on where
 * the lines are. */
static double batch(const struct cell *c, long repeat)
{
    double start, sum = 0;

    line_up();
    if (c->order->rewrite) {
        for (long i = 0; i < repeat; i++) {
            rewrite(c);
            start = now_us();
            operation(c);
            sum += now_us() - start;
        }
        return sum;
    }
    start = now_us();
    for (long i = 0; i < repeat; i++)
        operation(c);
    return now_us() - start;
}

/* ---- buffers ---- */
static char *room(const struct backend *b, int kind, int which, size_t bytes)
{
    const int      owner  = b->one_memory ? 0 : kind;
    struct buffer *buffer = &buffers[owner][which];
    const size_t   want   = (bytes + PAGE) / PAGE * PAGE;

    if (slowest(want > buffer->bytes) > 0) { /* together: making memory may be a collective matter */
        if (buffer->at)
            b->release(owner, buffer->at, buffer->bytes);
        *buffer = (struct buffer){b->allocate(owner, want), want};
        if (!buffer->at)
            *buffer = (struct buffer){NULL, 0};
        else
            memset(buffer->at, 0, want);
    }
    return buffer->at;
}

void cell_release(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int which = 0; which < 2; which++) {
            struct buffer *b = &buffers[kind][which];

            if (b->at)
                the_backend.release(kind, b->at, b->bytes);
            *b = (struct buffer){NULL, 0};
        }
}

static int cell_make(struct cell *c, const struct world *world, const struct order *order)
{
    const size_t n = (size_t)world->size, width = order->element == FLOAT32 ? 4 : 2;
    const size_t whole = order->bytes / width ? order->bytes / width : 1, block = whole / n ? whole / n : 1;

    *c = (struct cell){.world      = world,
                       .order      = order,
                       .type       = (enum element)order->element,
                       .width      = width,
                       .count      = whole,
                       .send_count = whole,
                       .recv_count = whole};
    switch (order->collective) {
    case REDUCE_SCATTER:
        c->count = c->recv_count = block;
        c->send_count            = block * n;
        break;
    case ALL_GATHER:
        c->count = c->send_count = block;
        c->recv_count            = block * n;
        break;
    case ALL_TO_ALL:
        c->count      = block;
        c->send_count = c->recv_count = block * n;
        break;
    case ALL_REDUCE_IN_PLACE:
    case BROADCAST:
        c->send_count = 0;
    }
    c->send = room(&the_backend, order->kind, 0, c->send_count * width);
    c->recv = room(&the_backend, order->kind, 1, c->recv_count * width);
    return slowest(!c->send || !c->recv) > 0 ? -1 : 0;
}

/* ---- the measurement ---- */
static int checked_operation(const struct cell *c, int round, long *wrong)
{
    int rc;

    prepare(c, round);
    line_up();
    rc = operation(c);
    if (slowest(rc != 0) > 0)
        return -1;
    *wrong += check(c, round);
    return 0;
}

/* Twice as many operations each time until they take a quarter of a batch, which warms up as well. */
static long find_repeat(const struct cell *c)
{
    const double enough = c->order->batch_us / CALIBRATE;
    double       us;
    long         repeat = 1;

    for (;; repeat *= 2) {
        us = slowest(batch(c, repeat));
        if (us >= enough)
            break;
    }
    repeat = (long)((double)repeat * c->order->batch_us / us);
    return repeat < 1 ? 1 : repeat;
}

static void timed_batches(const struct cell *c, struct outcome *o)
{
    const double  start = now_us();
    struct rusage before, after;
    double        worst[2];

    getrusage(RUSAGE_SELF, &before);
    while (o->batches < c->order->batches && o->batches < MAX_BATCHES) {
        if (slowest(now_us() - start) > c->order->limit_us && o->batches)
            break;
        o->us[o->batches++] = batch(c, o->repeat) / (double)o->repeat;
    }
    getrusage(RUSAGE_SELF, &after);
    worst[0] = (double)(after.ru_minflt - before.ru_minflt) / (double)(o->repeat * o->batches);
    worst[1] = (double)(after.ru_nivcsw - before.ru_nivcsw) / (double)(o->repeat * o->batches);
    slowest_each(worst, 2);
    o->faults   = worst[0];
    o->switches = worst[1];
    slowest_each(o->us, o->batches);
}

void cell_measure(const struct world *world, const struct order *order, struct outcome *o)
{
    struct cell c;
    long        wrong = 0;
    double      all[MAX_RANKS];

    if (the_backend.select)
        the_backend.select(order->kind);
    if (cell_make(&c, world, order) || checked_operation(&c, 1, &wrong)) {
        o->unsupported = 1;
        return;
    }
    memset(c.send, 0, c.send_count * c.width); /* sums in place would grow without end */
    memset(c.recv, 0, c.recv_count * c.width);
    o->repeat = order->repeat ? order->repeat : find_repeat(&c);
    if (order->repeat > 1) /* the cold batch of a later visit; a long operation was warmed by the checked one */
        batch(&c, order->repeat / CALIBRATE + 1);
    timed_batches(&c, o);
    for (int i = 0; i < o->batches && order->collective == PINGPONG; i++)
        o->us[i] /= 2; /* there and back */
    checked_operation(&c, 2, &wrong);
    exchange(&(double){(double)wrong}, all, sizeof *all);
    for (int i = 0; i < world->size; i++)
        o->wrong += (long)all[i];
}
