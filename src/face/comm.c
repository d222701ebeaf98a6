/* comm.c -- making a communicator from a unique id, which the launcher may have passed on, and its end.
 *
 * Everybody learns the address of everybody's process and attaches it; then three rounds of introductions: all are attached, the segment is
 * handed out, all have mapped it. A rank that fails says so in its introduction, so all fail with its sentence.
 */
#include "face/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "face/group.h"
#include "face/library.h"
#include "net/address.h"
#include "run/far.h"
#include "setup/bootstrap.h"
#include "setup/launch.h"
#include "setup/socket.h"

#include <stdio.h>
#include <string.h>

struct plan_to_join {
    struct hkt_end *end;
    hkt_unique_id_t id;
    hkt_config_t    config;
    char            name[HKT_COMM_NAME];
    int             rank, size;
    bool            launched; /* rank, size and id are still to be asked for */
};

/* A rank whose host lacks the device or library that the others prefer would be reached another way, and slow everybody down without a word. All find
 * the same: it is named on every rank. */
static int compare_networks(const struct hkt_process_address *all, int size)
{
    const char  *first, *other;
    const size_t n = hkt_net_preferred(&all[0].net, &first);

    for (int r = 1; r < size; r++) {
        const bool   elsewhere = memcmp(all[r].host, all[0].host, sizeof(all[r].host)) != 0;
        const size_t k         = hkt_net_preferred(&all[r].net, &other);

        if (elsewhere && n && k && (n != k || memcmp(first, other, n) != 0))
            return hkt_fail(HKT_ERR_MISMATCH,
                            "rank %d (host %.*s, pid %d) would send by %.*s, rank 0 (host %.*s, pid %d) by %.*s: is a device or a library missing on one "
                            "of the hosts, or HKT_NETWORK different? HKT_NETWORK=tcp on all ranks does without",
                            r, HKT_HOST_NAME, all[r].name, all[r].pid, (int)k, other, HKT_HOST_NAME, all[0].name, all[0].pid, (int)n, first);
    }
    return 0;
}

/* The processes behind all ranks. On failure none is kept. */
static int meet(struct hkt_bootstrap *b, int size, struct hkt_process **process)
{
    struct hkt_process_address own, *all = hkt_alloc((size_t)size * sizeof(*all));
    int                        rc;

    if (!all)
        return HKT_ERR_MEMORY;
    hkt_process_address(&own);
    rc = hkt_bootstrap_all_gather(b, &own, sizeof(own), all);
    if (!rc)
        rc = compare_networks(all, size);
    if (!rc)
        rc = hkt_process_attach(process, all, size);
    hkt_free(all);
    return rc;
}

/* Those who join. */
struct circle {
    struct hkt_bootstrap    *b;
    struct hkt_introduction *all; /* size; of the last round */
    int                      size;
};

/* One introduction of every rank to every other: how far this rank has come. The first failure of any rank is everybody's. */
static int agree(const struct circle *in, const struct hkt_communicator *c, int code, uint32_t segment)
{
    struct hkt_introduction me, *all = in->all;

    hkt_introduce(&me, c, code);
    me.segment = segment;
    HKT_TRY(hkt_bootstrap_all_gather(in->b, &me, sizeof(me), all));
    for (int r = 0; r < in->size; r++)
        if (all[r].code)
            return hkt_fail(all[r].code, "rank %d could not join: %s", r, all[r].sentence);
    return 0;
}

/* Rank 0's figures are everybody's. By the tree and not by a collective, which would want a plan, and that wants the figures. */
static int know_links(const struct circle *in, struct hkt_communicator *c)
{
    struct hkt_far_figures mine, *all = hkt_alloc((size_t)in->size * sizeof(*all));
    int                    rc = all ? hkt_far_measure(c, &mine) : HKT_ERR_MEMORY;

    if (!rc)
        rc = hkt_bootstrap_all_gather(in->b, &mine, sizeof(mine), all);
    if (!rc)
        rc = hkt_far_know(c, &all[0]);
    hkt_free(all);
    return rc;
}

static int join_steps(struct plan_to_join *j, const struct circle *in, struct hkt_process **process, struct hkt_communicator **out)
{
    struct hkt_communicator *c       = NULL;
    struct hkt_segment      *segment = NULL;
    int                      rc, mine;

    HKT_TRY(meet(in->b, j->size, process));
    mine = hkt_communicator_create(&c, j->rank, j->size, process, &j->config);
    rc   = agree(in, c, mine, 0); /* before everybody knows everybody's process, no memory can be handed over */
    if (!rc) {
        mine = j->rank == c->leader ? hkt_communicator_segment(c, &segment) : 0;
        rc   = agree(in, c, mine, segment ? segment->id : 0);
    }
    if (!rc) {
        mine = hkt_communicator_attach(c, in->all[c->leader].segment);
        if (!mine)
            mine = hkt_far_open(c, in->all[0].id);
        if (!mine)
            mine = hkt_communicator_sites(c, in->all);
        if (!mine)
            hkt_communicator_settle(c, in->all);
        rc = agree(in, c, mine, 0);
    }
    hkt_segment_free(segment); /* everybody has a mapping of its own */
    if (!rc && c->far)
        rc = know_links(in, c);
    if (rc)
        hkt_communicator_free(c);
    else
        *out = c;
    return rc;
}

static int join(struct plan_to_join *j, struct hkt_communicator **c)
{
    struct hkt_process      *self;
    struct hkt_bootstrap    *b       = NULL;
    struct hkt_process     **process = hkt_alloc((size_t)j->size * sizeof(struct hkt_process *));
    struct hkt_introduction *all     = hkt_alloc((size_t)j->size * sizeof(*all));
    int                      rc      = process && all ? 0 : HKT_ERR_MEMORY, opened;

    if (!rc)
        rc = hkt_process_self(&self);
    if (rc == HKT_ERR_USAGE) { /* after fork: nobody waits for this process */
        hkt_free(all);
        hkt_free(process);
        return rc;
    }
    /* A rank that cannot go on still comes, to tell the others. */
    opened = hkt_bootstrap_open(&b, &j->id, j->size, j->rank, hkt_options()->init_timeout);
    rc     = rc ? rc : opened;
    if (!rc)
        rc = join_steps(j, &(struct circle){b, all, j->size}, process, c);
    if (rc && !opened)
        hkt_bootstrap_fail(b, rc);
    hkt_bootstrap_close(b);
    hkt_free(all);
    hkt_free(process);
    return rc;
}

static int ask_launcher(struct plan_to_join *j)
{
    struct hkt_launched place;

    HKT_TRY(hkt_launch(&place, hkt_options()->init_timeout));
    j->rank = place.rank;
    j->size = place.size;
    j->id   = place.id;
    return 0;
}

static void finish_join(struct plan_to_join *j)
{
    struct hkt_communicator *c = NULL;
    int                      rc;

    hkt_socket_stop = j->config.blocking ? NULL : &j->end->aborted;
    rc              = j->launched ? ask_launcher(j) : 0;
    if (!rc)
        rc = join(j, &c);
    hkt_socket_stop = NULL;
    if (atomic_load(&j->end->aborted)) { /* not by a communicator yet, so nobody else has been told */
        hkt_communicator_free(c);
        c  = NULL;
        rc = hkt_fail(HKT_ERR_ABORTED, "the communicator was aborted while it was being made");
    }
    if (rc)
        snprintf(j->end->sentence, sizeof(j->end->sentence), "%s", hkt_last_error());
    j->end->comm = c;
    atomic_store_explicit(&j->end->state, rc, memory_order_release); /* pairs with hkt_enter() */
}

static void *join_thread(void *arg)
{
    finish_join(arg);
    hkt_free(arg);
    return NULL;
}

static int check_join(const struct plan_to_join *from)
{
    if (!from->launched && (from->size < 1 || from->rank < 0 || from->rank >= from->size))
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_init: rank %d of %d; ranks go from 0 to size - 1", from->rank, from->size);
    if (hkt_group_active())
        return hkt_fail(HKT_ERR_USAGE, "hkt_comm_init inside hkt_group_begin/end; make communicators outside groups");
    return 0;
}

/* Joins now, or leaves it to a thread. The join belongs to whoever runs it. */
static int run_join(struct plan_to_join *j)
{
    int rc;

    if (j->config.blocking) {
        finish_join(j);
        rc = atomic_load(&j->end->state);
        hkt_free(j);
        return rc;
    }
    j->end->has_maker = true;
    if (!hkt_alloc_check() && !pthread_create(&j->end->maker, NULL, join_thread, j))
        return HKT_IN_PROGRESS;
    j->end->has_maker = false;
    hkt_free(j);
    return hkt_fail(HKT_ERR_SYSTEM, "cannot start the thread that makes the communicator; is the limit on processes (ulimit -u) reached?");
}

static int start_join(hkt_comm_t **comm, struct plan_to_join *j, hkt_comm_t *handle)
{
    struct hkt_end *end = j->end;
    const int       rc  = run_join(j);

    if (rc < 0) {
        hkt_end_close(end, handle, 0);
        hkt_end_free(end);
    } else
        *comm = handle;
    return rc;
}

/* `from` has what is known: rank, size and id, or that they come from the launcher. */
static int begin_join(hkt_comm_t **comm, const struct plan_to_join *from, const hkt_config_t *config)
{
    struct plan_to_join *j;
    hkt_comm_t          *handle;
    int                  rc;

    HKT_TRY(check_join(from));
    j = hkt_alloc(sizeof(*j));
    if (!j)
        return HKT_ERR_MEMORY;
    *j = *from;
    rc = hkt_config_read(&j->config, config, NULL);
    if (!rc)
        rc = hkt_end_create(&j->end, &handle);
    if (rc) {
        hkt_free(j);
        return rc;
    }
    if (j->config.name) {
        snprintf(j->name, sizeof(j->name), "%s", j->config.name);
        j->config.name = j->name;
    }
    return start_join(comm, j, handle);
}

int hkt_comm_init(hkt_comm_t **comm, int size, const hkt_unique_id_t *id, int rank, const hkt_config_t *config)
{
    hkt_library_start();
    if (!comm || !id)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_init: %s is NULL", comm ? "id" : "comm");
    return begin_join(comm, &(struct plan_to_join){.id = *id, .rank = rank, .size = size}, config);
}

int hkt_comm_init_env(hkt_comm_t **comm, const hkt_config_t *config)
{
    struct plan_to_join from = {.launched = hkt_launcher_find() != NULL, .size = 1};

    hkt_library_start();
    if (!comm)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_comm_init_env: comm is NULL");
    if (!from.launched)
        HKT_TRY(hkt_bootstrap_local_id(&from.id));
    return begin_join(comm, &from, config);
}

int hkt_unique_id(hkt_unique_id_t *id)
{
    hkt_library_start();
    if (!id)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_unique_id: id is NULL");
    return hkt_bootstrap_unique_id(id);
}

int hkt_unique_id_derive(hkt_unique_id_t *id, const hkt_unique_id_t *from, uint64_t salt)
{
    hkt_library_start();
    if (!id || !from)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_unique_id_derive: %s is NULL", id ? "from" : "id");
    return hkt_bootstrap_id_derive(id, from, salt);
}
