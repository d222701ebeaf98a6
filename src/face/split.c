/* split.c -- communicators from a communicator: everybody's colour and key by an all-gather on the parent, then the same three steps as
 * from an id (comm.c), with all-gathers on the parent in place of the bootstrap.
 */
#include "face/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "face/group.h"
#include "run/far.h"

#include <stdlib.h>

struct choice {
    int32_t colour, key, rank;
};

/* all[r] = rank r's `mine`, on the parent; called with its turn taken. */
static int all_gather(struct hkt_communicator *parent, const void *mine, size_t size, void *all)
{
    struct hkt_call call = {.coll = HKT_COLL_SPLIT, .send = mine, .recv = all, .count = size, .element = 1, .type = HKT_UINT8};

    return hkt_operation_run(parent, &call, &parent->waiter);
}

static int by_key(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;

    return a->key != b->key ? (a->key < b->key ? -1 : 1) : a->rank - b->rank;
}

/* Keeps those of my colour, in their new order; how many, and which of them I am. */
static int keep_mine(struct choice *all, const struct hkt_communicator *parent, int *me)
{
    const int32_t colour = all[parent->rank].colour;
    int           n = 0;

    for (int r = 0; r < parent->size; r++)
        if (all[r].colour == colour)
            all[n++] = all[r];
    qsort(all, (size_t)n, sizeof(*all), by_key);
    for (int i = 0; i < n; i++)
        if (all[i].rank == parent->rank)
            *me = i;
    return n;
}

/* References to the processes of the members. On failure none is kept. */
static int hold(struct hkt_process **process, const struct choice *member, int n, const struct hkt_communicator *parent)
{
    struct hkt_process_address *all = hkt_alloc((size_t)n * sizeof(*all));
    int                         rc;

    if (!all)
        return HKT_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        all[i] = parent->peer[member[i].rank].process->life->address;
    rc = hkt_process_attach(process, all, n);
    hkt_free(all);
    return rc;
}

/* Introductions of the parent's ranks; the first failure among the members of my colour is an error. */
static int introduce(struct hkt_communicator *parent, const struct hkt_introduction *me, struct hkt_introduction *all,
                     const struct choice *member, int n)
{
    HKT_TRY(all_gather(parent, me, sizeof(*me), all));
    for (int i = 0; i < n; i++)
        if (all[member[i].rank].code)
            return hkt_fail(all[member[i].rank].code, "rank %d of communicator %s could not split: %s", member[i].rank, parent->name,
                            all[member[i].rank].sentence);
    return 0;
}

struct splitting {
    struct hkt_communicator *parent, *made;
    struct choice           *member;
    struct hkt_introduction *all, *mine; /* of the parent's ranks; of the members, in their order */
    struct hkt_process     **process;
    struct hkt_segment      *segment;
    int                      n, me;
};

static int make(struct splitting *s, const hkt_config_t *config)
{
    struct hkt_introduction me;
    int                     rc;

    rc = hold(s->process, s->member, s->n, s->parent);
    if (!rc && s->n)
        rc = hkt_communicator_create(&s->made, s->me, s->n, s->process, config);
    if (!rc && s->n && s->me == s->made->leader)
        rc = hkt_communicator_segment(s->made, &s->segment);
    hkt_introduce(&me, s->made, rc);
    me.segment = s->segment ? s->segment->id : 0;
    HKT_TRY(introduce(s->parent, &me, s->all, s->member, s->n));
    if (s->n)
        rc = hkt_communicator_attach(s->made, s->all[s->member[s->made->leader].rank].segment);
    if (!rc && s->n)
        rc = hkt_far_open(s->made, s->all[s->member[0].rank].id);
    for (int i = 0; i < s->n; i++)
        s->mine[i] = s->all[s->member[i].rank];
    if (!rc && s->n)
        rc = hkt_communicator_sites(s->made, s->mine);
    if (!rc && s->n)
        hkt_communicator_settle(s->made, s->mine);
    if (!rc && s->n && s->made->far)
        rc = hkt_far_inherit(s->made, s->parent);
    hkt_introduce(&me, s->made, rc);
    return introduce(s->parent, &me, s->all, s->member, s->n);
}

static int split(struct hkt_communicator *parent, int colour, int key, const hkt_config_t *config, struct hkt_communicator **made)
{
    const size_t        n = (size_t)parent->size;
    const struct choice mine = {colour < 0 ? -1 : colour, key, parent->rank};
    struct splitting    s = {.parent = parent};
    int                 rc = 0;

    s.member  = hkt_alloc(n * sizeof(*s.member));
    s.all     = hkt_alloc(n * sizeof(*s.all));
    s.mine    = hkt_alloc(n * sizeof(*s.mine));
    s.process = hkt_alloc(n * sizeof(struct hkt_process *));
    if (!s.member || !s.all || !s.mine || !s.process)
        rc = hkt_communicator_kill(parent, HKT_ERR_MEMORY, "communicator %s: rank %d could not split: out of memory", parent->name,
                                   parent->rank); /* the others are waiting on the parent already */
    if (!rc)
        rc = all_gather(parent, &mine, sizeof(mine), s.member);
    if (!rc) {
        s.n = keep_mine(s.member, parent, &s.me);
        s.n = colour < 0 ? 0 : s.n;
        rc  = make(&s, config);
    }
    hkt_segment_free(s.segment);
    if (rc)
        hkt_communicator_free(s.made);
    else
        *made = s.made;
    hkt_free(s.process);
    hkt_free(s.mine);
    hkt_free(s.all);
    hkt_free(s.member);
    return rc;
}

static int split_entered(struct hkt_end *parent, int colour, int key, const hkt_config_t *given, hkt_comm_t **comm)
{
    struct hkt_communicator *made = NULL;
    struct hkt_end          *end  = NULL;
    hkt_comm_t              *handle = NULL;
    hkt_config_t             config;
    uint64_t                 ticket;
    int                      rc;

    HKT_TRY(hkt_config_read(&config, given, parent->comm));
    if (colour >= 0)
        HKT_TRY(hkt_end_create(&end, &handle));
    ticket = hkt_ticket(parent);
    hkt_turn_wait(parent, ticket);
    rc = hkt_communicator_state(parent->comm) ? hkt_communicator_dead(parent->comm)
                                              : split(parent->comm, colour, key, &config, &made);
    hkt_turn_pass(parent, 1);
    if (rc && end) {
        hkt_end_close(end, handle, 0);
        hkt_end_free(end);
    } else if (!rc && end) {
        end->comm = made;
        atomic_store_explicit(&end->state, HKT_OK, memory_order_release); /* pairs with hkt_enter() */
    }
    if (!rc)
        *comm = handle;
    return rc;
}

int hkt_comm_split(hkt_comm_t **comm, hkt_comm_t *parent, int colour, int key, const hkt_config_t *config)
{
    struct hkt_end *end = NULL;
    int             rc;

    if (!comm)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_split: comm is NULL");
    if (hkt_group_active())
        return hkt_fail(HKT_ERR_USAGE, "hkt_comm_split inside hkt_group_begin/end; make communicators outside groups");
    HKT_TRY(hkt_enter(parent, &end));
    rc = split_entered(end, colour, key, config, comm);
    hkt_leave(end);
    return rc;
}

int hkt_comm_duplicate(hkt_comm_t **comm, hkt_comm_t *parent, const hkt_config_t *config)
{
    int rank;

    HKT_TRY(hkt_comm_rank(parent, &rank));
    return hkt_comm_split(comm, parent, 0, rank, config);
}
