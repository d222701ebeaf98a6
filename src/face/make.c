/* make.c -- the engine's communicator from the processes of its ranks: memory, transports, the shared segment. See comm.h; the talking
 * between the ranks is comm.c's (from an id) and split.c's (from another communicator).
 */
#include "face/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "run/buffer.h"
#include "run/far.h"
#include "run/gpu.h"
#include "run/site.h"
#include "run/staged.h"
#include "run/tune.h"
#include "setup/inet.h"
#include "setup/socket.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LARGE = 1 << 20 }; /* bytes of a core's own cache */

int hkt_config_read(hkt_config_t *to, const hkt_config_t *from, const struct hkt_communicator *parent)
{
    const hkt_config_t initial = HKT_CONFIG_INIT;

    *to = initial;
    if (parent && !from) {
        to->timeout_s = parent->timeout_s;
        to->order     = parent->order;
    } else if (from) {
        if (from->size < sizeof(size_t) || from->size > 4096)
            return hkt_fail(HKT_ERR_ARGUMENT, "hkt_config_t.size is %zu; begin with HKT_CONFIG_INIT", from->size);
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
        to->size = sizeof(*to);
    }
    if (to->timeout_s < 0)
        to->timeout_s = hkt_options()->timeout;
    if (to->order != HKT_ORDER_CANONICAL && to->order != HKT_ORDER_ANY)
        return hkt_fail(HKT_ERR_ARGUMENT, "hkt_config_t.order is %d; HKT_ORDER_CANONICAL or HKT_ORDER_ANY", (int)to->order);
    return 0;
}

static int choose_transports(struct hkt_communicator *c)
{
    struct hkt_link link;

    c->one_process = true;
    c->read_ok     = true;
    for (int r = 0; r < c->size; r++) {
        struct hkt_peer *p = &c->peer[r];
        int              i = 0;

        if (p->process->net) { /* the wire reaches it */
            c->one_process = false;
            continue;
        }
        while (hkt_transports[i] && hkt_transports[i]->reach(p->process, &link))
            i++;
        p->transport = hkt_transports[i];
        if (!p->transport)
            return hkt_fail(HKT_ERR_UNSUPPORTED, "no transport reaches rank %d (host %s, pid %d)", r, p->process->life->host,
                            (int)p->process->life->pid);
        c->one_process &= p->process->self;
        c->read_ok &= atomic_load_explicit(&p->process->readable, memory_order_relaxed) > 0; /* reach() has found out */
    }
    return 0;
}

int hkt_communicator_create(struct hkt_communicator **out, int rank, int size, struct hkt_process **process, const hkt_config_t *config)
{
    static _Atomic uint32_t  count;
    struct hkt_communicator *c = hkt_alloc(sizeof(*c));
    const size_t             n = (size_t)size;

    for (int r = 0; !c && r < size; r++)
        hkt_process_detach(process[r]);
    if (!c)
        return HKT_ERR_MEMORY;
    hkt_cuda_notice();
    c->rank      = rank;
    c->size      = size;
    c->order     = config->order;
    c->timeout_s = config->timeout_s;
    if (config->name)
        snprintf(c->name, sizeof(c->name), "%s", config->name);
    else
        snprintf(c->name, sizeof(c->name), "comm%u", atomic_fetch_add(&count, 1));
    c->peer = hkt_alloc(n * sizeof(*c->peer));
    for (int r = 0; r < size; r++)
        if (c->peer)
            c->peer[r].process = process[r];
        else
            hkt_process_detach(process[r]);
    c->sleepers   = hkt_alloc(n * sizeof(*c->sleepers));
    c->in         = hkt_alloc(n * sizeof(*c->in));
    c->out        = hkt_alloc(n * sizeof(*c->out));
    c->in_mapped  = hkt_alloc(n);
    c->out_mapped = hkt_alloc(n);
    c->in_edge    = hkt_alloc(2 * n * sizeof(*c->in_edge));
    c->src        = hkt_alloc((2 * n + 2) * sizeof(*c->src));
    c->dst        = hkt_alloc((2 * n + 2) * sizeof(*c->dst));
    c->scales     = hkt_alloc(n * sizeof(*c->scales));
    c->scale      = hkt_alloc((n + 1) * sizeof(*c->scale));
    c->sent       = hkt_alloc(6 * n * sizeof(*c->sent));
    if (!c->peer || !c->sleepers || !c->in || !c->out || !c->in_mapped || !c->out_mapped || !c->in_edge || !c->src || !c->dst || !c->scales || !c->scale ||
        !c->sent || choose_transports(c) || hkt_far_create(c)) {
        hkt_communicator_free(c);
        return HKT_ERR_MEMORY;
    }
    c->layout       = hkt_shared_layout((size_t)c->seats, n, hkt_far_shelves(c));
    c->out_edge     = c->in_edge + n;
    c->received     = c->sent + n;
    c->pushed       = c->sent + 2 * n;
    c->pulled       = c->sent + 3 * n;
    c->known_taken  = c->sent + 4 * n;
    c->known_pulled = c->sent + 5 * n;
    c->core_cache   = hkt_machine_core_cache();
    c->nontemporal  = hkt_options()->nontemporal;
    *out            = c;
    return 0;
}

int hkt_communicator_segment(struct hkt_communicator *c, struct hkt_segment **segment)
{
    int rc = hkt_segment_create(segment, c->layout.size, "communicator");

    for (int r = 0; !rc && r < c->size; r++)
        if (!c->peer[r].process->self && !c->peer[r].process->net)
            rc = hkt_segment_share(*segment, &c->peer[r].process, 1);
    if (rc && *segment) {
        hkt_segment_free(*segment);
        *segment = NULL;
    }
    return rc;
}

int hkt_communicator_attach(struct hkt_communicator *c, uint32_t id)
{
    void *there = hkt_segment_peer(c->peer[c->leader].process, id);

    if (!there)
        return hkt_fail(HKT_ERR_INTERNAL, "the communicator's segment %u of rank %d is not mapped", id, c->leader);
    c->shared = hkt_buffer_remap(c->peer[c->leader].process, there, c->layout.size);
    if (!c->shared)
        return HKT_ERR_SYSTEM;
    for (int r = 0; r < c->size; r++) {
        struct hkt_peer *p = &c->peer[r];

        if (p->process->net)
            continue;
        p->cell        = (struct hkt_cell *)(void *)((char *)c->shared + c->layout.cells) + p->seat;
        p->banks       = (struct hkt_banks *)((char *)c->shared + c->layout.eager) + p->seat;
        c->sleepers[r] = &p->cell->sleepers;
    }
    return 0;
}

void hkt_introduce(struct hkt_introduction *me, const struct hkt_communicator *c, int code)
{
    memset(me, 0, sizeof(*me));
    me->code    = code;
    me->read_ok = c ? c->read_ok : 0;
    hkt_machine_cpus(&me->cpus);
    hkt_here(&me->here, &me->cpus);
    me->machine = hkt_inet_machine();
    if (c && c->rank == 0 && !code) /* what it cannot draw the clock makes up: it need only be new */
        me->id[0] = hkt_random(me->id, sizeof(me->id)) ? hkt_now_ns() : me->id[0];
    if (code)
        snprintf(me->sentence, sizeof(me->sentence), "%s", hkt_last_error());
}

/* Bytes that the caches of the ranks hold between them. A last level behind large core caches is a slow overflow of those, and shared with
 * who knows whom: it does not count. */
static size_t caches(const struct hkt_communicator *c)
{
    const long   online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t own    = 2 * (size_t)(online < c->size ? online : c->size) * c->core_cache, last = hkt_machine_last_cache();

    return c->core_cache >= LARGE && own < last ? own : last;
}

void hkt_communicator_settle(struct hkt_communicator *c, const struct hkt_introduction *all)
{
    struct hkt_cpus *cpus = hkt_alloc((size_t)c->size * sizeof(*cpus));
    bool             dedicated = true;
    int              count     = 0; /* of ranks on this machine: several hosts may be on it */

    for (int r = 0; r < c->size; r++) {
        c->read_ok &= !hkt_near(c, r) || all[r].read_ok != 0;
        if (cpus && all[r].machine == all[c->rank].machine)
            cpus[count++] = all[r].cpus;
    }
    if (cpus)
        dedicated = hkt_machine_dedicated(cpus, count);
    hkt_free(cpus);
    c->waiter = (struct hkt_waiter){.poison     = &c->shared->poison,
                                    .sleepers   = c->sleepers,
                                    .alive      = hkt_peer_alive,
                                    .arg        = c,
                                    .poll       = c->far ? hkt_wire_poll : NULL,
                                    .rest       = c->far ? hkt_wire_rest : NULL,
                                    .spin_ns    = (uint64_t)hkt_options()->spin_us * 1000,
                                    .shared     = !dedicated,
                                    .timeout_ns = (uint64_t)(c->timeout_s * 1e9)};
    if (!c->nontemporal)
        c->nontemporal = caches(c);
    c->background         = c->waiter;
    c->background.shared  = false;
    c->background.spin_ns = 2000;
}

int hkt_communicator_sites(struct hkt_communicator *c, const struct hkt_introduction *all)
{
    struct hkt_here *here = hkt_alloc((size_t)c->size * sizeof(*here));
    int              rc   = here ? 0 : HKT_ERR_MEMORY;

    for (int r = 0; r < c->size && here; r++)
        here[r] = all[r].here;
    if (!rc)
        rc = hkt_site_make(c, here);
    hkt_free(here);
    return rc;
}

void hkt_communicator_free(struct hkt_communicator *c)
{
    if (!c)
        return;
    hkt_gpu_free(c);
    hkt_staged_free(c);
    hkt_far_free(c); /* what is still on its way leaves from the memory below */
    if (c->shared) {
        atomic_store(&c->peer[c->rank].cell->left, 1);
        hkt_buffer_release(c);
        hkt_buffer_unmap(c->peer[c->leader].process, c->shared, c->layout.size);
    }
    for (int r = 0; c->peer && r < c->size; r++)
        hkt_process_detach(c->peer[r].process);
    hkt_tune_free(c);
    hkt_site_free(c);
    hkt_free(c->scratch);
    hkt_free(c->sent);
    hkt_free(c->scale);
    hkt_free(c->scales);
    hkt_free(c->dst);
    hkt_free(c->src);
    hkt_free(c->in_edge);
    hkt_free(c->out_mapped);
    hkt_free(c->in_mapped);
    hkt_free(c->out);
    hkt_free(c->in);
    hkt_free(c->sleepers);
    hkt_free(c->peer);
    hkt_free(c);
}
