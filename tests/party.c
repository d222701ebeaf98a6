/* party.c -- see party.h. */
#include "party.h"

void party_attach(struct party *p, struct rank *me)
{
    struct hkt_process_address own, all[PARTY];

    hkt_process_address(&own);
    expect_ok(hkt_bootstrap_all_gather(p->b, &own, sizeof(own), all));
    expect_ok(hkt_process_attach(p->peer, all, me->n));
}

void party_join(struct party *p, struct rank *me)
{
    expect_ok(hkt_process_self(&p->self));
    expect_ok(hkt_bootstrap_open(&p->b, me->id, me->n, me->rank, 30));
    party_attach(p, me);
}

void party_barrier(struct party *p)
{
    char one = 0, all[PARTY];

    expect_ok(hkt_bootstrap_all_gather(p->b, &one, 1, all));
}

void party_detach(struct party *p, int n)
{
    for (int r = 0; r < n; r++)
        hkt_process_detach(p->peer[r]);
}

void party_leave(struct party *p, struct rank *me)
{
    party_barrier(p);
    party_detach(p, me->n);
    hkt_bootstrap_close(p->b);
}

void bare_world(int n, enum kind kind, rank_fn *fn, void *arg, uint64_t may_die)
{
    world_run(
        &(struct world){.n = n, .kind = kind, .fn = fn, .arg = arg, .bare = true, .may_die = may_die, .deadline = 20});
}
