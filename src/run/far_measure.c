/* far_measure.c -- what links between hosts and within one cost, for the choice of algorithms: rank 0 and the first rank of the next host send each
 * other small and large messages, then rank 0 and the next rank of its host small ones, and everybody takes over what they found.
 *
 *   alpha   half of a small message's way there and back: the least of ROUNDS
 *   gap     what each of BURST small messages adds, sent one after the other: as many as go without waiting for the receiver; at
 *           most half of alpha, as the other half of a message's way is the receiver's, which is what long gaps are, too
 *   beta    what each byte of LARGE adds, sent in pieces as collectives send them
 * The least counts: what is more is somebody else's. Hosts are taken to be alike, and joined alike. Within a host alpha is what ranks that share cores
 * make it: they take turns, so that an exchange costs both ways.
 */
#include "run/far.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

enum { ROUNDS = 24, BURST = HKT_WIRE_DEPTH, LARGES = 3, LARGE = 4 << 20 };

struct links {
    struct hkt_link far, near;
};

struct pair {
    struct hkt_communicator *c;
    int                      peer;
    bool                     first; /* rank 0: it measures */
    char                    *data;
};

static int move(const struct pair *p, bool send, size_t bytes)
{
    struct hkt_call call = {.coll = send ? HKT_COLL_SEND : HKT_COLL_RECV, .type = HKT_UINT8, .root = p->peer, .count = bytes, .element = 1};

    call.send = call.recv = p->data;
    return hkt_operation_run(p->c, &call, &p->c->waiter);
}

/* Seconds from the first of `count` messages to the answer, the least of `rounds`. */
static int measure(const struct pair *p, int rounds, int count, size_t bytes, double *least)
{
    for (int i = 0; i < rounds; i++) {
        const uint64_t since = hkt_now_ns();
        double         seconds;

        for (int k = 0; k < count; k++)
            HKT_TRY(move(p, p->first, bytes));
        HKT_TRY(move(p, !p->first, 1));
        seconds = (double)(hkt_now_ns() - since) * 1e-9;
        *least  = !i || seconds < *least ? seconds : *least;
    }
    return 0;
}

static int measure_near(const struct pair *p, struct hkt_link *link)
{
    double small;

    HKT_TRY(measure(p, ROUNDS, 1, 1, &small));
    link->alpha = p->c->waiter.shared ? small : small / 2;
    return 0;
}

static int measure_far(const struct pair *p, struct hkt_link *link)
{
    double small, burst, large;

    HKT_TRY(measure(p, ROUNDS, 1, 1, &small));
    HKT_TRY(measure(p, ROUNDS, BURST, 1, &burst));
    HKT_TRY(measure(p, LARGES, 1, LARGE, &large));
    link->alpha = small / 2;
    link->gap   = burst > small ? (burst - small) / (BURST - 1) : 0;
    link->gap   = link->gap < link->alpha / 2 ? link->gap : link->alpha / 2;
    link->beta  = large > small ? (large - small) / LARGE : 0;
    return 0;
}

/* Rank 0's numbers are everybody's. Until they are, all go by the same guess. */
static int agree(struct hkt_communicator *c, const struct links *found)
{
    struct links   *all  = hkt_alloc((size_t)c->size * sizeof(*all));
    struct hkt_call call = {.coll = HKT_COLL_SPLIT, .send = found, .recv = all, .count = sizeof(*all), .element = 1, .type = HKT_UINT8};
    int             rc;

    if (!all)
        return hkt_communicator_kill(c, HKT_ERR_MEMORY, "communicator %s: rank %d is out of memory", c->name, c->rank);
    rc = hkt_operation_run(c, &call, &c->waiter);
    if (!rc) {
        c->far->link = all[0].far;
        c->far->near = all[0].near;
        hkt_log(HKT_LOG_DEBUG, "communicator %s: between hosts %.2f us, %.2f us for each of many messages, %.2f GB/s; within a host %.2f us", c->name,
                c->far->link.alpha * 1e6, c->far->link.gap * 1e6, c->far->link.beta > 0 ? 1e-9 / c->far->link.beta : 0.0,
                c->far->near.alpha * 1e6);
    }
    hkt_free(all);
    return rc;
}

/* The first rank after 0 on its host, or on another; 0: there is none. */
static int partner(const struct hkt_communicator *c, bool near)
{
    for (int r = 1; r < c->size; r++)
        if ((c->far->host[r] == 0) == near)
            return r;
    return 0;
}

/* Rank 0 and its partner measure, the others go on. */
static int between(struct hkt_communicator *c, int peer, int (*what)(const struct pair *, struct hkt_link *), struct hkt_link *link)
{
    struct pair p = {.c = c, .first = c->rank == 0, .peer = c->rank ? 0 : peer};
    int         rc;

    if (!peer || (c->rank && c->rank != peer))
        return 0;
    p.data = hkt_alloc(LARGE);
    rc     = p.data ? what(&p, link) : hkt_communicator_kill(c, HKT_ERR_MEMORY, "communicator %s: rank %d is out of memory", c->name, c->rank);
    hkt_free(p.data);
    return rc;
}

int hkt_far_measure(struct hkt_communicator *c)
{
    struct links found = {{.alpha = 25e-6, .gap = 3e-6, .beta = 0.5e-9, .gamma = hkt_tune_local_link.gamma}, hkt_tune_local_link};

    if (!c->far)
        return 0;
    c->far->link = found.far;
    c->far->near = found.near;
    HKT_TRY(between(c, partner(c, false), measure_far, &found.far));
    HKT_TRY(between(c, partner(c, true), measure_near, &found.near));
    return agree(c, &found);
}
