/* wire.c -- a rank's end of the network side of one communicator: what the engine calls. See wire.h. How messages are matched is left to lane.c,
 * how processes talk to peer.c, who makes progress to progress.c.
 */
#include "net/pair.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const uint64_t GOODBYE_NS = 1000000000u;

static struct hkt_pair *pair_of(const struct hkt_wire *w, int rank)
{
    assert(rank >= 0 && rank < w->config.size && w->pair[rank]);
    return w->pair[rank];
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* The caller has posted something. */
static void run_pair(struct hkt_task *t)
{
    struct hkt_pair *p    = (struct hkt_pair *)t;
    bool             wait = false, send = false;

    hkt_lane_match(p);
    for (int lane = 0; lane < HKT_LANES; lane++) {
        send |= hkt_load_relaxed(&p->out[lane].sent) < hkt_load_acquire(&p->out[lane].posted); /* pairs with hkt_wire_send() */
        wait |= hkt_load_relaxed(&p->in[lane].arrived) < hkt_load_acquire(&p->in[lane].asked); /* pairs with hkt_wire_receive() */
    }
    if (send || wait)
        hkt_pair_connect(p);
    if (send)
        hkt_pair_talk(p, 0);
    hkt_lane_expect(p);
    hkt_pair_owes(p);
    hkt_pair_check_gone(p);
}

static void run_poison(struct hkt_task *t)
{
    struct hkt_wire *w = (struct hkt_wire *)(void *)((char *)t - offsetof(struct hkt_wire, task));

    for (int r = 0; r < w->config.size; r++)
        if (w->pair[r]) {
            hkt_pair_connect(w->pair[r]); /* an end that is not open yet asks when it is, and hears it then */
            hkt_pair_talk(w->pair[r], HKT_SAY_POISON);
        }
}

static void destroy(struct hkt_wire *w)
{
    if (!w)
        return;
    for (int r = 0; w->pair && r < w->config.size; r++) {
        struct hkt_pair *p = w->pair[r];

        if (!p)
            continue;
        hkt_pair_remove(p);
        hkt_lane_free(p);
        hkt_free(p);
    }
    hkt_free(w->pair);
    hkt_free(w);
}

/* The lock is held. */
static int add_pairs(struct hkt_wire *w)
{
    for (int r = 0; r < w->config.size; r++) {
        struct hkt_net_peer *peer = w->config.process[r]->net;

        if (!peer)
            continue;
        w->pair[r] = hkt_alloc(sizeof(*w->pair[r]));
        if (!w->pair[r])
            return HKT_ERR_MEMORY;
        *w->pair[r] = (struct hkt_pair){.task = {.run = run_pair}, .wire = w, .peer = peer, .rank = r};
        HKT_TRY(hkt_pair_add(w->pair[r]));
    }
    return 0;
}

int hkt_wire_open(struct hkt_wire **made, const struct hkt_wire_config *config)
{
    struct hkt_wire *w = hkt_alloc(sizeof(*w));
    int              rc;

    if (!w)
        return HKT_ERR_MEMORY;
    w->config   = *config;
    w->task.run = run_poison;
    w->pair     = hkt_alloc((size_t)config->size * sizeof(struct hkt_pair *));
    hkt_net_lock();
    rc = w->pair ? add_pairs(w) : HKT_ERR_MEMORY;
    if (rc)
        destroy(w);
    else
        hkt_wire_enlist(w);
    hkt_net_unlock();
    if (!rc)
        *made = w;
    return rc;
}

/* Is what this rank has sent in the hands of the other hosts? What nobody waits for, or nobody can get, does not count. */
static bool done(const struct hkt_wire *w, bool left)
{
    for (int r = 0; r < w->config.size; r++) {
        const struct hkt_pair *p = w->pair[r];

        if (!p || p->peer->lost || (!p->bind_said && !p->say))
            continue;
        if (p->say & (HKT_SAY_POISON | HKT_SAY_LEFT))
            return false;
        if (!left && !atomic_load_explicit(&w->poison, memory_order_relaxed) && !p->gone && !hkt_lane_all_sent(p))
            return false;
        if (left && !p->peer->carrier->quiet(p->peer->channel))
            return false;
    }
    return true;
}

/* Makes progress until it is done or late. */
static void finish(struct hkt_wire *w, bool left, uint64_t deadline)
{
    bool ready;

    for (int turn = 0;; turn++) {
        hkt_net_lock();
        hkt_net_step();
        ready = done(w, left);
        hkt_net_unlock();
        if (ready || hkt_now_ns() > deadline)
            return;
        if (turn > 100)
            nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

void hkt_wire_close(struct hkt_wire *w)
{
    const uint64_t deadline = hkt_now_ns() + GOODBYE_NS;

    if (!w || hkt_process_forked())
        return;
    finish(w, false, deadline);
    hkt_net_lock();
    for (int r = 0; r < w->config.size; r++)
        if (w->pair[r] && (w->pair[r]->bind_said || w->pair[r]->bound))
            hkt_pair_talk(w->pair[r], HKT_SAY_LEFT | (w->code ? HKT_SAY_POISON : 0));
    hkt_net_unlock();
    finish(w, true, deadline);
    hkt_net_lock();
    hkt_wire_delist(w);
    destroy(w);
    hkt_net_unlock();
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

int hkt_wire_send(struct hkt_wire *w, enum hkt_lane lane, int to, const void *from, const struct hkt_wire_note *note)
{
    struct hkt_pair *p      = pair_of(w, to);
    struct hkt_out  *out    = &p->out[lane];
    const uint64_t   number = hkt_load_relaxed(&out->posted) + 1;

    assert(note->bytes <= HKT_WIRE_MOST);
    if (number > hkt_load_acquire(&out->sent) + HKT_WIRE_RING) /* pairs with hkt_publish() in lane.c */
        return HKT_IN_PROGRESS;
    out->ring[number % HKT_WIRE_RING] = (struct hkt_send){from, (uint32_t)note->bytes, (uint32_t)note->bytes, *note};
    hkt_store_release(&out->posted, number); /* pairs with the loads in run_pair() and lane.c */
    hkt_net_submit(&p->task, true);
    return 0;
}

int hkt_wire_receive(struct hkt_wire *w, enum hkt_lane lane, int from, void *to, const struct hkt_wire_note *note)
{
    struct hkt_pair *p      = pair_of(w, from);
    struct hkt_in   *in     = &p->in[lane];
    const uint64_t   number = hkt_load_relaxed(&in->asked) + 1;

    assert(note->bytes <= HKT_WIRE_MOST);
    if (number > hkt_load_acquire(&in->arrived) + HKT_WIRE_RING) /* pairs with hkt_publish() in lane.c */
        return HKT_IN_PROGRESS;
    in->ring[number % HKT_WIRE_RING] = (struct hkt_receive){to, (uint32_t)note->bytes, *note};
    hkt_store_release(&in->asked, number); /* pairs with the loads in run_pair() and lane.c */
    hkt_net_submit(&p->task, false);
    return 0;
}

_Atomic uint64_t *hkt_wire_sent(struct hkt_wire *w, enum hkt_lane lane, int to)
{
    return &pair_of(w, to)->out[lane].sent;
}

_Atomic uint64_t *hkt_wire_arrived(struct hkt_wire *w, enum hkt_lane lane, int from)
{
    return &pair_of(w, from)->in[lane].arrived;
}

double hkt_wire_value(const struct hkt_wire *w, enum hkt_lane lane, int from, uint64_t number)
{
    return pair_of(w, from)->in[lane].ring[number % HKT_WIRE_RING].note.value;
}

_Atomic uint32_t *hkt_wire_sleepers(struct hkt_wire *w, int rank)
{
    return &pair_of(w, rank)->sleepers;
}

/* False: there is a sentence already. */
static bool note_death(struct hkt_wire *w, int code, const char *sentence)
{
    int none = 0;

    if (!atomic_compare_exchange_strong_explicit(&w->poison, &none, 1, memory_order_relaxed, memory_order_relaxed))
        return false;
    w->code = code;
    snprintf(w->sentence, sizeof(w->sentence), "%s", sentence);
    return true;
}

void hkt_wire_poison(struct hkt_wire *w, int code, const char *sentence)
{
    if (note_death(w, code, sentence))
        hkt_net_submit(&w->task, true); /* whoever runs it sees the sentence */
}

void hkt_wire_dead(struct hkt_wire *w, int code, const char *sentence)
{
    note_death(w, code, sentence);
}
