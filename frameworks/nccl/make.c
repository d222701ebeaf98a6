/* make.c -- new communicators: from an id, by splitting, shrinking or growing one. A communicator that does not block is made by a thread of its own,
 * and so are those of a group, which wait for each other; others are made in the call.
 *
 * Every communicator keeps an id by which its ranks can meet once more without talking (hkt_unique_id_derive()): that is how survivors of a communicator
 * that is dead come together. It brings together ranks of one host. A living parent passes a fresh id on instead, which reaches other hosts too.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum making_kind { INIT, SPLIT, SHRINK, GROW };

struct nccl_making {
    enum making_kind kind;
    const char      *function; /* that the program called */
    ncclComm_t       comm, *out;
    ncclComm_t       parent;
    uint64_t         ticket; /* of the parent */
    hkt_unique_id_t  id;
    bool             has_id, threaded, hidden; /* hidden: nobody gets the communicator */
    int              size, rank, colour, key;
    int             *exclude, excluded, flags;
};

/* ---- making ----------------------------------------------------------------------------------------------------------- */

/* Joins the others. A thread does it so that the communicator can be aborted meanwhile. */
static int join(struct nccl_making *m, const hkt_unique_id_t *id, hkt_comm_t **made)
{
    hkt_config_t config = HKT_CONFIG_INIT;
    hkt_comm_t  *comm;
    long         ns    = 20000;
    int          state = HKT_IN_PROGRESS, rc;

    config.blocking = !m->threaded;
    config.name     = m->comm->name;
    rc              = hkt_comm_init(&comm, m->size, id, m->rank, &config);
    if (rc != HKT_IN_PROGRESS) {
        *made = rc ? NULL : comm;
        return rc;
    }
    atomic_store(&m->comm->hkt, comm);
    if (atomic_load(&m->comm->aborted))
        hkt_comm_abort(comm);
    while (!rc || rc == HKT_IN_PROGRESS) {
        rc = hkt_comm_error(comm, &state);
        if (rc || state != HKT_IN_PROGRESS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        ns = ns < 1000000 ? 2 * ns : ns;
    }
    *made = comm;
    return rc ? rc : state;
}

/* Tells ids that are derived from the parent's apart: by the number of the call, or by who is left where only they call. */
static uint64_t salt(const struct nccl_making *m, int colour)
{
    uint64_t sum = m->parent->made * 0x9e3779b97f4a7c15u + (uint64_t)(uint32_t)colour * 0xc2b2ae3d27d4eb4fu;

    if (m->kind == SHRINK) {
        sum = (uint64_t)m->excluded;
        for (int i = 0; i < m->excluded; i++)
            sum += ((uint64_t)m->exclude[i] + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)m->exclude[i] << 40;
    }
    return sum + m->kind;
}

/* All ranks of a parent that can carry no messages. */
static int meet_again(const struct nccl_making *m, hkt_comm_t **comm)
{
    hkt_unique_id_t id;
    int             rc = hkt_unique_id_derive(&id, &m->parent->id, salt(m, -2));

    return rc ? rc : hkt_comm_init(comm, m->parent->size, &id, m->parent->rank, NULL);
}

static int split(struct nccl_making *m, hkt_comm_t **made)
{
    hkt_config_t config = HKT_CONFIG_INIT;
    hkt_comm_t  *of     = atomic_load(&m->parent->hkt), *again = NULL;
    int          rc     = 0;

    config.name = m->comm->name;
    if (atomic_load(&m->parent->revoked)) {
        rc = meet_again(m, &again);
        of = again;
    }
    atomic_store(&m->comm->splitting, of);
    if (!rc && atomic_load(&m->comm->aborted))
        rc = hkt_error_set(HKT_ERR_ABORTED, "the communicator was aborted while it was being split off %s", m->parent->name);
    if (!rc)
        rc = hkt_comm_split(made, of, m->colour, m->key, &config);
    atomic_store(&m->comm->splitting, NULL);
    hkt_comm_destroy(again);
    if (!rc)
        rc = hkt_unique_id_derive(&m->id, &m->parent->id, salt(m, m->colour));
    return rc;
}

static bool excluded(const struct nccl_making *m, int rank)
{
    for (int i = 0; i < m->excluded; i++)
        if (m->exclude[i] == rank)
            return true;
    return false;
}

/* From the first survivor to the others, by messages, since the excluded ranks do not call. */
static int pass_id(struct nccl_making *m)
{
    hkt_comm_t *comm  = atomic_load(&m->parent->hkt);
    int         first = 0, rc = 0, end;

    while (excluded(m, first))
        first++;
    if (m->parent->rank != first)
        return hkt_recv(&m->id, sizeof(m->id), HKT_UINT8, first, comm, NULL);
    rc = hkt_unique_id(&m->id);
    if (rc)
        return rc;
    hkt_group_begin();
    for (int r = first + 1; r < m->parent->size && !rc; r++)
        if (!excluded(m, r))
            rc = hkt_send(&m->id, sizeof(m->id), HKT_UINT8, r, comm, NULL);
    end = hkt_group_end();
    return rc ? rc : end;
}

static int shrink(struct nccl_making *m, hkt_comm_t **made)
{
    int rc;

    if (m->flags & NCCL_SHRINK_ABORT)
        hkt_comm_abort(atomic_load(&m->parent->hkt));
    if (m->flags & NCCL_SHRINK_ABORT || atomic_load(&m->parent->revoked))
        rc = hkt_unique_id_derive(&m->id, &m->parent->id, salt(m, 0));
    else
        rc = pass_id(m);
    return rc ? rc : join(m, &m->id, made);
}

/* Who has the id tells the others; new ranks have it. */
static int grow(struct nccl_making *m, hkt_comm_t **made)
{
    struct ticket { int32_t has; hkt_unique_id_t id; } mine = {m->has_id, m->id}, *all;
    int rc, from = 0;

    if (!m->parent)
        return join(m, &m->id, made);
    all = calloc((size_t)m->parent->size, sizeof(*all));
    if (!all)
        return hkt_error_set(HKT_ERR_MEMORY, "out of memory for the ids of %d ranks", m->parent->size);
    rc = hkt_all_gather(&mine, all, sizeof(mine), HKT_UINT8, atomic_load(&m->parent->hkt), NULL);
    while (!rc && from < m->parent->size && !all[from].has)
        from++;
    if (!rc && from == m->parent->size)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "ncclCommGrow: no rank of %s has given the id of ncclCommGetUniqueId()", m->parent->name);
    if (!rc)
        m->id = all[from].id;
    free(all);
    return rc ? rc : join(m, &m->id, made);
}

static int make(struct nccl_making *m, hkt_comm_t **made)
{
    switch (m->kind) {
    case INIT:
        return join(m, &m->id, made);
    case SPLIT:
        return split(m, made);
    case SHRINK:
        return shrink(m, made);
    case GROW:
        return grow(m, made);
    }
    return HKT_ERR_INTERNAL;
}

void nccl_making_drop(struct nccl_making *m)
{
    if (m->parent)
        nccl_comm_leave(m->parent);
    if (m->out)
        *m->out = NULL;
    nccl_comm_recycle(m->comm);
    free(m->exclude);
    free(m);
}

/* Makes it and says so in its state. */
static ncclResult_t run(struct nccl_making *m)
{
    ncclComm_t   c    = m->comm;
    hkt_comm_t  *made = NULL;
    ncclResult_t rc;
    int          code;

    if (m->parent)
        nccl_turn_wait(m->parent, m->ticket);
    code = make(m, &made);
    rc   = nccl_from(code);
    if (m->parent) {
        if (code && m->hidden) /* nobody else could be asked */
            nccl_comm_async(m->parent, code);
        m->parent->made += m->kind != SHRINK;
        nccl_turn_pass(m->parent, m->ticket);
    }
    atomic_store(&c->hkt, made);
    c->id = m->id;
    if (made && !code) {
        hkt_comm_rank(made, &c->rank);
        hkt_comm_size(made, &c->size);
    }
    pthread_mutex_lock(&c->lock);
    snprintf(c->sentence, sizeof(c->sentence), "%s", rc ? nccl_sentence() : "");
    atomic_store_explicit(&c->state, rc, memory_order_release); /* pairs with the acquire loads in comm.c */
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* The end of a making that has run; the communicator stays. */
static void finish(struct nccl_making *m)
{
    if (m->parent)
        nccl_comm_leave(m->parent);
    if (m->hidden)
        nccl_comm_leave(m->comm); /* its handle */
    free(m->exclude);
    free(m);
}

static void *thread(void *arg)
{
    struct nccl_making *m = arg;
    ncclComm_t          c = m->comm;

    run(m);
    finish(m);
    nccl_comm_leave_late(c);
    return NULL;
}

static ncclResult_t start_thread(struct nccl_making *m)
{
    pthread_t t;

    m->threaded = true;
    nccl_comm_hold(m->comm);
    if (m->parent)
        m->ticket = nccl_turn_issue(m->parent);
    if (!pthread_create(&t, NULL, thread, m)) {
        pthread_detach(t);
        return ncclSuccess;
    }
    if (m->parent) {
        nccl_turn_wait(m->parent, m->ticket);
        nccl_turn_pass(m->parent, m->ticket);
    }
    nccl_comm_leave(m->comm);
    return nccl_fail(ncclSystemError, "%s: cannot start the thread that makes the communicator; is the limit on processes (ulimit -u) reached?",
                     m->function);
}

void nccl_making_wait(ncclComm_t c)
{
    pthread_mutex_lock(&c->lock);
    while (atomic_load(&c->state) == ncclInProgress)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* A split cannot be left alone: its parent goes with it. */
void nccl_making_cancel(ncclComm_t c)
{
    hkt_comm_t *of = atomic_load(&c->splitting);

    if (of && atomic_load(&c->state) == ncclInProgress)
        hkt_comm_abort(of);
}

/* ---- starting --------------------------------------------------------------------------------------------------------- */

/* In the calling thread: the communicator is there, or its handle is NULL. */
static ncclResult_t make_here(struct nccl_making *m)
{
    ncclResult_t rc;

    if (m->parent)
        m->ticket = nccl_turn_issue(m->parent);
    rc = run(m);
    if (rc != ncclSuccess) {
        if (m->parent)
            nccl_comm_leave(m->parent);
        m->parent = NULL;
        nccl_making_drop(m);
    } else
        finish(m);
    return rc;
}

/* Those that block: the group waits for all; one that fails takes the others with it. */
static ncclResult_t wait_all(ncclComm_t *comm, ncclComm_t **out, size_t n)
{
    ncclResult_t rc = ncclSuccess;

    for (size_t i = 0; i < n; i++) {
        nccl_making_wait(comm[i]);
        if (rc == ncclSuccess && atomic_load(&comm[i]->state) != ncclSuccess)
            rc = nccl_fail((ncclResult_t)atomic_load(&comm[i]->state), "%s", comm[i]->sentence);
    }
    for (size_t i = 0; i < n; i++) {
        if (rc != ncclSuccess && out[i]) {
            *out[i] = NULL;
            pncclCommAbort(comm[i]);
        }
        nccl_comm_leave(comm[i]);
    }
    return rc;
}

ncclResult_t nccl_make_all(struct nccl_making **making, size_t n)
{
    ncclComm_t  *comm = malloc(n * sizeof(*comm)), **out = malloc(n * sizeof(*out));
    size_t       waits = 0;
    ncclResult_t rc    = comm && out ? ncclSuccess : nccl_fail(ncclSystemError, "out of memory for %zu communicators", n);
    bool         later = false;

    for (size_t i = 0; i < n; i++) {
        struct nccl_making *m        = making[i];
        const bool          blocking = m->comm->blocking;

        if (rc == ncclSuccess && blocking) { /* for wait_all() */
            nccl_comm_hold(m->comm);
            comm[waits]  = m->comm;
            out[waits++] = m->hidden ? NULL : m->out;
        }
        later |= !blocking;
        if (rc == ncclSuccess) {
            rc = start_thread(m);
            if (rc == ncclSuccess)
                continue;
            if (blocking)
                nccl_comm_leave(comm[--waits]);
        }
        nccl_making_drop(m);
    }
    if (rc != ncclSuccess) /* those that have begun wait for the others in vain */
        for (size_t i = 0; i < waits; i++) {
            atomic_store(&comm[i]->aborted, 1);
            if (atomic_load(&comm[i]->hkt))
                hkt_comm_abort(atomic_load(&comm[i]->hkt));
        }
    if (waits) {
        const ncclResult_t made = wait_all(comm, out, waits);

        rc = rc == ncclSuccess ? made : rc;
    }
    free(out);
    free(comm);
    return rc == ncclSuccess && later ? ncclInProgress : rc;
}

/* A making with its communicator; parent may be NULL. The parent must be entered, and is held. */
static ncclResult_t new_making(struct nccl_making **out, enum making_kind kind, const char *function, ncclComm_t parent, ncclComm_t *newcomm)
{
    struct nccl_making *m = calloc(1, sizeof(*m));

    if (!m)
        return nccl_fail(ncclSystemError, "%s: out of memory", function);
    m->comm = nccl_comm_new();
    if (!m->comm) {
        free(m);
        return ncclSystemError;
    }
    m->kind     = kind;
    m->function = function;
    m->parent   = parent;
    m->out      = newcomm;
    if (parent)
        nccl_comm_hold(parent);
    *out = m;
    return ncclSuccess;
}

/* Makes it: now, later, or at the end of the group. `rc` is how far its preparation has come; it is taken over in any case. */
static ncclResult_t begin(struct nccl_making *m, ncclResult_t rc)
{
    const bool blocking = m->comm->blocking;

    if (rc == ncclSuccess && !m->hidden)
        *m->out = m->comm;
    if (rc == ncclSuccess && nccl_group_active())
        rc = nccl_group_make(m);
    else if (rc == ncclSuccess && blocking)
        return make_here(m);
    else if (rc == ncclSuccess)
        rc = start_thread(m);
    if (rc != ncclSuccess)
        nccl_making_drop(m);
    return rc != ncclSuccess ? nccl_group_error(rc) : nccl_group_active() || blocking ? ncclSuccess : ncclInProgress;
}

/* ---- the entry points -------------------------------------------------------------------------------------------------- */

NCCL_API(ncclResult_t, GetUniqueId, (ncclUniqueId *id))
{
    hkt_unique_id_t made;

    if (!id)
        return nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: id is NULL");
    NCCL_TRY(nccl_from(hkt_unique_id(&made)));
    memcpy(id, &made, sizeof(*id));
    return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, const ncclUniqueId *id, int nranks, int rank, const ncclConfig_t *config)
{
    struct nccl_making *m;
    ncclResult_t        rc;

    if (!comm)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommInitRank: comm is NULL"));
    *comm = NULL;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d; ranks go from 0 to nranks - 1", rank, nranks));
    rc = new_making(&m, INIT, "ncclCommInitRank", NULL, comm);
    if (rc != ncclSuccess)
        return nccl_group_error(rc);
    m->size = m->comm->size = nranks;
    m->rank = m->comm->rank = rank;
    memcpy(&m->id, id, sizeof(m->id));
    return begin(m, nccl_config_read(m->comm, m->parent, config, m->function));
}

NCCL_API(ncclResult_t, CommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId id, int rank))
{
    return init(comm, &id, nranks, rank, NULL);
}

NCCL_API(ncclResult_t, CommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))
{
    return init(comm, &id, nranks, rank, config);
}

/* Ranks meet in a tree whose root is met at one id, so one is enough: the first. */
NCCL_API(ncclResult_t, CommInitRankScalable, (ncclComm_t *comm, int nranks, int rank, int nids, ncclUniqueId *ids, ncclConfig_t *config))
{
    if (!ids || nids < 1 || nids > nranks)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d ids at %p for %d ranks; there must be 1 to nranks", nids,
                                          (void *)ids, nranks));
    return init(comm, ids, nranks, rank, config);
}

NCCL_API(ncclResult_t, CommInitAll, (ncclComm_t *comms, int ndev, const int *devices))
{
    ncclUniqueId id;
    ncclResult_t rc, end;

    if (!comms || ndev < 1)
        return nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d communicators at %p", ndev, (void *)comms);
    NCCL_TRY(pncclGetUniqueId(&id));
    pncclGroupStart();
    rc = ncclSuccess;
    for (int i = 0; i < ndev && rc == ncclSuccess; i++) {
        rc = init(&comms[i], &id, ndev, i, NULL);
        if (rc == ncclSuccess)
            comms[i]->device = devices ? devices[i] : i;
    }
    end = pncclGroupEnd();
    return rc == ncclSuccess ? end : rc;
}

/* For what is made from a parent, which may be revoked, but has to be made. */
static ncclResult_t enter_parent(ncclComm_t comm, const char *function)
{
    int state;

    NCCL_TRY(nccl_comm_visit(comm, function));
    state = atomic_load(&comm->state);
    if (state == ncclSuccess && !comm->finalized)
        return ncclSuccess;
    nccl_comm_leave(comm);
    return nccl_fail(ncclInvalidArgument, "%s: the parent is %s", function, state == ncclSuccess ? "finalized" : "not made");
}

NCCL_API(ncclResult_t, CommSplit, (ncclComm_t comm, int colour, int key, ncclComm_t *newcomm, ncclConfig_t *config))
{
    struct nccl_making *m = NULL;
    ncclResult_t        rc;

    if (!newcomm || colour < NCCL_SPLIT_NOCOLOR)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommSplit: %s; a colour is 0 or more, or NCCL_SPLIT_NOCOLOR",
                                          newcomm ? "the colour is negative" : "newcomm is NULL"));
    *newcomm = NULL;
    rc       = enter_parent(comm, "ncclCommSplit");
    if (rc != ncclSuccess)
        return nccl_group_error(rc);
    rc = new_making(&m, SPLIT, "ncclCommSplit", comm, newcomm);
    if (rc == ncclSuccess) {
        m->colour = colour;
        m->key    = key;
        m->hidden = colour == NCCL_SPLIT_NOCOLOR;
        rc        = begin(m, nccl_config_read(m->comm, m->parent, config, m->function));
    } else
        nccl_group_error(rc);
    nccl_comm_leave(comm);
    return rc;
}

/* The survivors and the place among them. */
static ncclResult_t read_exclusions(struct nccl_making *m, const int *list, int n)
{
    const ncclComm_t parent = m->parent;

    m->exclude = malloc((size_t)(n ? n : 1) * sizeof(*list));
    if (!m->exclude)
        return nccl_fail(ncclSystemError, "ncclCommShrink: out of memory");
    m->rank = parent->rank;
    for (int i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= parent->size)
            return nccl_fail(ncclInvalidArgument, "ncclCommShrink: rank %d is to be excluded, but the ranks of %s go from 0 to %d", list[i], parent->name,
                             parent->size - 1);
        if (list[i] == parent->rank)
            return nccl_fail(ncclInvalidArgument, "ncclCommShrink: rank %d is to be excluded and calls it; only survivors do", parent->rank);
        if (excluded(m, list[i]))
            return nccl_fail(ncclInvalidArgument, "ncclCommShrink: rank %d is in the list twice", list[i]);
        m->exclude[m->excluded++] = list[i];
        m->rank -= list[i] < parent->rank;
    }
    m->size = parent->size - n;
    return ncclSuccess;
}

NCCL_API(ncclResult_t, CommShrink, (ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config, int flags))
{
    struct nccl_making *m = NULL;
    ncclResult_t        rc;

    if (!newcomm || count < 1 || !exclude || flags & ~NCCL_SHRINK_ABORT)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommShrink: %s", !newcomm ? "newcomm is NULL" : flags & ~NCCL_SHRINK_ABORT
                                          ? "flags are neither NCCL_SHRINK_DEFAULT nor NCCL_SHRINK_ABORT" : "no ranks are to be excluded"));
    *newcomm = NULL;
    rc       = enter_parent(comm, "ncclCommShrink");
    if (rc != ncclSuccess)
        return nccl_group_error(rc);
    rc = new_making(&m, SHRINK, "ncclCommShrink", comm, newcomm);
    if (rc == ncclSuccess) {
        m->flags = flags;
        if (flags & NCCL_SHRINK_ABORT) /* also what is on queues, behind which the making waits */
            hkt_comm_abort(atomic_load(&comm->hkt));
        rc = read_exclusions(m, exclude, count);
        rc = begin(m, rc == ncclSuccess ? nccl_config_read(m->comm, m->parent, config, m->function) : rc);
    } else
        nccl_group_error(rc);
    nccl_comm_leave(comm);
    return rc;
}

NCCL_API(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id))
{
    NCCL_TRY(enter_parent(comm, "ncclCommGetUniqueId"));
    nccl_comm_leave(comm);
    return pncclGetUniqueId(id);
}

NCCL_API(ncclResult_t, CommGrow, (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config))
{
    struct nccl_making *m = NULL;
    ncclResult_t        rc;

    if (!newcomm)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommGrow: newcomm is NULL"));
    *newcomm = NULL;
    if (comm ? rank != -1 : !id || rank < 0 || rank >= nranks)
        return nccl_group_error(nccl_fail(ncclInvalidArgument, "ncclCommGrow: rank %d; ranks of the old communicator give -1, new ones their place in the "
                                          "new one (of %d) and the id, and no communicator", rank, nranks));
    if (comm)
        NCCL_TRY(nccl_group_error(enter_parent(comm, "ncclCommGrow")));
    rc = new_making(&m, GROW, "ncclCommGrow", comm, newcomm);
    if (rc == ncclSuccess) {
        m->has_id = id != NULL;
        m->size   = nranks;
        m->rank   = comm ? comm->rank : rank;
        if (id)
            memcpy(&m->id, id, sizeof(m->id));
        if (comm && nranks <= comm->size)
            rc = nccl_fail(ncclInvalidArgument, "ncclCommGrow: %d ranks are no more than %s has (%d)", nranks, comm->name, comm->size);
        rc = begin(m, rc == ncclSuccess ? nccl_config_read(m->comm, m->parent, config, m->function) : rc);
    } else
        nccl_group_error(rc);
    if (comm)
        nccl_comm_leave(comm);
    return rc;
}
