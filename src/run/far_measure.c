/* far_measure.c -- what a link between hosts costs, for the choice of algorithms: rank 0 and the first rank of the next host send each other small and
 * large messages, and everybody takes over what they found.
 *
 *   alpha   half of a small message's way there and back: the least of ROUNDS
 *   gap     what each of BURST small messages adds, sent one after the other
 *   beta    what each byte of LARGE adds, sent in pieces as collectives send them
 * The least counts: what is more is somebody else's. Hosts are taken to be joined alike.
 */
#include "run/far.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { ROUNDS = 24, BURSTS = 3, BURST = 16, LARGES = 3, LARGE = 4 << 20 };

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

static int measure_all(const struct pair *p, struct hkt_link *link)
{
    double small, burst, large;

    HKT_TRY(measure(p, ROUNDS, 1, 1, &small));
    HKT_TRY(measure(p, BURSTS, BURST, 1, &burst));
    HKT_TRY(measure(p, LARGES, 1, LARGE, &large));
    link->alpha = small / 2;
    link->gap   = burst > small ? (burst - small) / (BURST - 1) : 0;
    link->beta  = large > small ? (large - small) / LARGE : 0;
    return 0;
}

/* Rank 0's numbers are everybody's. Until they are, all go by the same guess. */
static int agree(struct hkt_communicator *c, const struct hkt_link *found)
{
    struct hkt_link *all  = hkt_alloc((size_t)c->size * sizeof(*all));
    struct hkt_call  call = {.coll = HKT_COLL_SPLIT, .send = found, .recv = all, .count = sizeof(*all), .element = 1, .type = HKT_UINT8};
    int              rc;

    if (!all)
        return hkt_communicator_kill(c, HKT_ERR_MEMORY, "communicator %s: rank %d is out of memory", c->name, c->rank);
    rc = hkt_operation_run(c, &call, &c->waiter);
    if (!rc)
        c->far->link = all[0];
    hkt_free(all);
    return rc;
}

int hkt_far_measure(struct hkt_communicator *c)
{
    struct pair     p = {.c = c, .first = c->rank == 0};
    struct hkt_link found;
    int             rc = 0;

    if (!c->far)
        return 0;
    found = c->far->link = (struct hkt_link){.alpha = 25e-6, .gap = 3e-6, .beta = 0.5e-9, .gamma = hkt_tune_local_link.gamma};
    while (c->far->host[p.peer] != 1)
        p.peer++;
    if (c->rank == p.peer || p.first) {
        p.peer = p.first ? p.peer : 0;
        p.data = hkt_alloc(LARGE);
        if (!p.data)
            rc = hkt_communicator_kill(c, HKT_ERR_MEMORY, "communicator %s: rank %d is out of memory", c->name, c->rank);
        if (!rc)
            rc = measure_all(&p, &found);
        hkt_free(p.data);
    }
    return rc ? rc : agree(c, &found);
}
