/* far_measure.c -- what links between hosts and within one cost, for the choice of algorithms: rank 0 and the first rank of the next host throw messages
 * to and fro, then rank 0 and the next rank of its own host, for each kind of way that there is; everybody takes over what rank 0 has found.
 *
 *   alpha     half of a small message's way there and back
 *   overhead  what each further small message adds, sent one after the other, for either side; at most half of the way, as the receiver's part
 *             of a message's way is what long gaps are, too
 *   beta      what each byte adds, sent in pieces as collectives send them: the size grows until a message takes LONG_ENOUGH
 *   gamma     what each byte folded, and copied, takes a core, by the kernels and buffers of rank 0
 * The least counts: what is more is somebody else's. Hosts are taken to be alike, and joined alike. Where ranks share cores they take turns: within a
 * host an exchange then costs both ways, and what a core does it does for several.
 *
 * Rank 0 says what comes next (struct turn), so it can stop when a kind has had its BUDGET, whatever the network is: about 50 ms in all, more on a busy machine, as a round that has begun is finished.
 */
#include "run/far.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "language/dtype.h"
#include "run/site.h"
#include "run/tune.h"
#include "setup/machine.h"

#include <string.h>

enum { ROUNDS = 200, ROUNDS_LEAST = 2, LARGES = 3, LARGE_FIRST = 64 << 10, LARGE_MOST = 4 << 20, FOLDED = 128 << 10, FOLDS = 5 };

static const uint64_t BUDGET = 6000000, LONG_ENOUGH = 1500000; /* ns, of a kind of round; of a message */

/* What rank 0 sends next: messages, which are answered together; none: the end. */
struct turn {
    uint32_t messages, end;
    uint64_t bytes; /* of each */
};

struct pair {
    struct hkt_communicator *c;
    int                      peer;
    char                    *data;
};

static int move(const struct pair *p, bool send, void *data, size_t bytes)
{
    struct hkt_call call = {.coll = send ? HKT_COLL_SEND : HKT_COLL_RECV, .type = HKT_UINT8, .root = p->peer, .count = bytes, .element = 1};

    call.send = call.recv = data;
    return hkt_operation_run(p->c, &call, &p->c->waiter);
}

/* One turn of either side; `ns`: how long it took. */
static int take(const struct pair *p, bool first, struct turn *t, uint64_t *ns)
{
    const uint64_t since = hkt_now_ns();
    char           answer = 0;

    HKT_TRY(move(p, first, t, sizeof(*t)));
    for (uint32_t i = 0; i < t->messages; i++)
        HKT_TRY(move(p, first, p->data, t->bytes < LARGE_MOST ? (size_t)t->bytes : LARGE_MOST));
    HKT_TRY(move(p, !first, &answer, 1));
    *ns = hkt_now_ns() - since;
    return 0;
}

/* The peer does what it is told until it has heard the end. */
static int obey(const struct pair *p)
{
    struct turn t;
    uint64_t    ns;

    do
        HKT_TRY(take(p, false, &t, &ns));
    while (!t.end);
    return 0;
}

/* Rank 0: the least of `rounds` turns, or of as many as the budget holds. */
static int least_of(const struct pair *p, int rounds, struct turn t, double *seconds)
{
    uint64_t ns, least = UINT64_MAX, spent = 0;

    for (int i = 0; i < rounds && (i < ROUNDS_LEAST || spent < BUDGET); i++) {
        HKT_TRY(take(p, true, &t, &ns));
        least = ns < least ? ns : least;
        spent += ns;
    }
    *seconds = (double)least * 1e-9;
    return 0;
}

static int ask_far(const struct pair *p, struct hkt_span_cost *w)
{
    struct turn large = {.messages = 1, .bytes = LARGE_FIRST};
    double      small, burst, first, seconds = 0;
    uint64_t    ns;

    HKT_TRY(take(p, true, &(struct turn){0}, &ns)); /* connections are made by what is sent first */
    HKT_TRY(take(p, true, &large, &ns));
    HKT_TRY(least_of(p, ROUNDS, (struct turn){0}, &small));
    HKT_TRY(least_of(p, ROUNDS, (struct turn){.messages = HKT_WIRE_DEPTH - 1, .bytes = 1}, &burst));
    HKT_TRY(least_of(p, LARGES, large, &first));
    for (seconds = first; seconds * 1e9 < (double)LONG_ENOUGH && large.bytes < LARGE_MOST;) {
        large.bytes *= 4;
        HKT_TRY(least_of(p, LARGES, large, &seconds));
    }
    w->overhead = burst > small ? (burst - small) / (HKT_WIRE_DEPTH - 1) : 0;
    w->overhead = w->overhead < small / 8 ? w->overhead : small / 8;
    w->alpha    = small / 2 - 2 * w->overhead;
    w->beta     = seconds > burst ? (seconds - burst) / (double)large.bytes : 0;
    return 0;
}

static int ask_near(const struct pair *p, struct hkt_span_cost *w)
{
    double small;

    HKT_TRY(least_of(p, ROUNDS, (struct turn){0}, &small));
    w->alpha = p->c->waiter.shared ? small : small / 2;
    return 0;
}

/* How fast a core folds and copies. */
static void fold(const struct pair *p, struct hkt_far_figures *found)
{
    const void *const       src[]  = {p->data, p->data + FOLDED};
    void *const             dst[]  = {p->data + 2 * FOLDED};
    const struct hkt_reduce add    = {.src = src, .dst = dst, .count = FOLDED / sizeof(float), .nsrc = 2, .ndst = 1, .in = HKT_RAW, .out = HKT_FINISHED};
    uint64_t                folded = UINT64_MAX, copied = UINT64_MAX;

    for (int i = 0; i < FOLDS; i++) {
        const uint64_t begin = hkt_now_ns();
        uint64_t       middle, end;

        hkt_reduce_kernel(HKT_FLOAT32, HKT_SUM)(&add);
        middle = hkt_now_ns();
        hkt_copy_bytes(dst, 1, src[0], FOLDED, false);
        end    = hkt_now_ns();
        folded = middle - begin < folded ? middle - begin : folded;
        copied = end - middle < copied ? end - middle : copied;
    }
    found->gamma = (double)folded * 1e-9 / FOLDED;
    found->copy  = (double)copied * 1e-9 / FOLDED;
}

/* Rank 0 and its partner measure, the others go on. */
static int between(struct pair *p, int partner, int (*ask)(const struct pair *, struct hkt_span_cost *), struct hkt_span_cost *w)
{
    struct turn end = {.end = 1};
    uint64_t    ns;

    if (!partner || (p->c->rank && p->c->rank != partner))
        return 0;
    p->peer = p->c->rank ? 0 : partner;
    if (p->c->rank)
        return obey(p);
    HKT_TRY(ask(p, w));
    return take(p, true, &end, &ns);
}

/* The first rank after 0 that is so far from it; 0: there is none. */
static int partner_at(const struct hkt_communicator *c, enum hkt_span span)
{
    for (int r = 1; r < c->size; r++)
        if (hkt_fabric_span(&c->site->fabric, 0, (uint32_t)r) == span)
            return r;
    return 0;
}

static int measure(struct hkt_communicator *c, struct hkt_far_figures *found)
{
    struct pair p = {.c = c};
    int         partner[HKT_SPANS], rc = 0;

    for (int span = 0; span < HKT_SPANS; span++)
        partner[span] = partner_at(c, (enum hkt_span)span);
    if (c->rank && c->rank != partner[0] && c->rank != partner[1] && c->rank != partner[2])
        return 0;
    p.data = hkt_alloc(LARGE_MOST);
    if (!p.data)
        return hkt_communicator_kill(c, HKT_ERR_MEMORY, "communicator %s: rank %d is out of memory", c->name, c->rank);
    memset(p.data, 0, LARGE_MOST); /* the pages are there before the clock runs */
    if (!c->rank)
        fold(&p, found);
    for (int span = 0; span < HKT_SPANS && !rc; span++)
        rc = between(&p, partner[span], span == HKT_SPAN_NETWORK ? ask_far : ask_near, &found->wire[span]);
    hkt_free(p.data);
    return rc;
}

/* Ranks of this host to a core that this rank may use. */
static double crowd(const struct hkt_communicator *c)
{
    struct hkt_cpus cpus;
    double          cores = 0;

    if (!c->waiter.shared)
        return 1;
    hkt_machine_cpus(&cpus);
    for (int i = 0; i < HKT_CPU_WORDS; i++)
        cores += __builtin_popcountl(cpus.bits[i]);
    cores = cpus.quota < cores ? cpus.quota : cores;
    return cores > 0 && c->seats > cores ? c->seats / cores : 1;
}

int hkt_far_measure(struct hkt_communicator *c, struct hkt_far_figures *figures)
{
    const struct hkt_span_cost near  = {.alpha = hkt_tune_local_link.alpha};
    const uint64_t             since = hkt_now_ns();

    memset(figures, 0, sizeof(*figures));
    *figures = (struct hkt_far_figures){{near, near, {.alpha = 19e-6, .overhead = 3e-6, .beta = 0.5e-9}}, 0.08e-9, 0.07e-9, 1, 0};
    if (!c->far)
        return 0;
    HKT_TRY(measure(c, figures));
    figures->crowd = crowd(c);
    figures->took  = (double)(hkt_now_ns() - since) * 1e-9;
    return 0;
}

int hkt_far_know(struct hkt_communicator *c, const struct hkt_far_figures *figures)
{
    struct hkt_fabric          *f    = c->far ? &c->site->fabric : NULL;
    const struct hkt_span_cost *wire = f ? &f->wire[HKT_SPAN_NETWORK] : NULL;

    if (!f)
        return 0;
    for (int span = 0; span < HKT_SPANS; span++)
        f->wire[span] = figures->wire[span];
    f->wire[HKT_SPAN_NETWORK].overhead *= figures->crowd;
    f->gamma = figures->gamma * figures->crowd;
    f->copy  = figures->copy * figures->crowd;
    if (!c->rank && figures->took > 0)
        hkt_log(HKT_LOG_DEBUG,
                "communicator %s: %d ranks on %d hosts; within a host %.2f us, folding %.1f GB/s; between hosts %.2f us, %.2f us of each message for "
                "either side, %.2f GB/s; measured in %.1f ms",
                c->name, c->size, f->hosts, f->wire[HKT_SPAN_CACHE].alpha * 1e6, 1e-9 / f->gamma, wire->alpha * 1e6, wire->overhead * 1e6,
                wire->beta > 0 ? 1e-9 / wire->beta : 0.0, figures->took * 1e3);
    return hkt_predictor_open(&c->site->predictor, f);
}

int hkt_far_inherit(struct hkt_communicator *c, const struct hkt_communicator *parent)
{
    const struct hkt_fabric *f       = &parent->site->fabric;
    struct hkt_far_figures   figures = {.gamma = f->gamma, .copy = f->copy, .crowd = 1};

    for (int span = 0; span < HKT_SPANS; span++)
        figures.wire[span] = f->wire[span];
    return hkt_far_know(c, &figures);
}
