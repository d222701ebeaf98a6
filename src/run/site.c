/* site.c -- seats from hosts and from where ranks are in them. See site.h. A rank's number on its host goes by groups, so that places that are next to
 * one another (language/cost.h) are near: a ring by labels leaves a group, and a host, once.
 */
#include "run/site.h"

#include "base/error.h"
#include "base/memory.h"
#include "language/order.h"
#include "run/far.h"

static int host_of(const struct hkt_communicator *c, int r)
{
    return c->far ? c->far->host[r] : 0;
}

/* Groups by their first ranks, numbers by groups. */
static void seat_rank(const struct hkt_communicator *c, const struct hkt_here *here, struct hkt_seat *seat, int rank)
{
    struct hkt_seat *mine = &seat[rank];
    int              next = 0;
    bool             new  = true;

    mine->host = host_of(c, rank);
    for (int r = 0; r < c->size; r++) {
        const int by_place = host_of(c, r) == mine->host ? hkt_here_compare(&here[r], &here[rank]) : 1;

        mine->local += by_place < 0 || (by_place == 0 && r < rank);
        if (r >= rank || host_of(c, r) != mine->host)
            continue;
        if (by_place == 0)
            mine->cache = seat[r].cache;
        new  = new && by_place != 0;
        next = seat[r].cache >= next ? seat[r].cache + 1 : next;
    }
    if (new)
        mine->cache = next;
}

static bool fill(const struct hkt_communicator *c, const struct hkt_here *here, struct hkt_site *site)
{
    struct hkt_fabric *f = &site->fabric;

    *f = (struct hkt_fabric){.name = "measured", .ranks = c->size, .seat = site->seat, .rails = 1, .oversubscription = 1, .depth = HKT_FABRIC_DEPTH, .window = 1};
    if (c->far) { /* plans over several hosts have their steps in the order in which they can be done */
        f->depth  = HKT_ORDER_DEPTH;
        f->window = HKT_WINDOW_MOST;
    }
    for (int r = 0; r < c->size; r++) {
        const struct hkt_seat *s = &site->seat[r];

        seat_rank(c, here, site->seat, r);
        f->hosts     = s->host >= f->hosts ? s->host + 1 : f->hosts;
        f->per_host  = s->local >= f->per_host ? s->local + 1 : f->per_host;
        f->per_cache = f->per_cache || s->cache > 0;
    }
    return f->hosts > 1 || f->per_cache;
}

int hkt_site_make(struct hkt_communicator *c, const struct hkt_here *here)
{
    bool apart = c->far != NULL;

    for (int r = 1; r < c->size && !apart; r++)
        apart = hkt_here_compare(&here[0], &here[r]) != 0;
    if (!apart) /* mostly all are side by side on one host */
        return 0;
    c->site = hkt_alloc(sizeof(*c->site));
    if (!c->site)
        return HKT_ERR_MEMORY;
    c->site->seat = hkt_alloc((size_t)c->size * sizeof(*c->site->seat));
    if (!c->site->seat)
        return HKT_ERR_MEMORY;
    if (fill(c, here, c->site) && !c->far)
        return hkt_predictor_open(&c->site->predictor, &c->site->fabric);
    return 0;
}

void hkt_site_free(struct hkt_communicator *c)
{
    if (!c->site)
        return;
    hkt_predictor_close(c->site->predictor);
    hkt_free(c->site->seat);
    hkt_free(c->site);
}
