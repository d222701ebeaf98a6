/* peer.c -- processes of other hosts: which carrier leads there, what their frames mean, which pairs of ranks have something to send.
 *
 * Ranks of two processes find each other by a frame BIND in each direction: "rank `from` of communicator `id`, to your rank `to`: call us so". It is
 * said when one of the two first sends or waits, and answered as soon as the other one's end is open. Every name, index and length in a frame is
 * checked here and in lane.c: a member may be damaged, and must not damage others.
 */
#include "net/pair.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "net/address.h"
#include "net/transport.h"

#include <stdio.h>
#include <string.h>

enum {
    PARKED     = 4096, /* of a process: ranks of it that wait for ends which are not open yet */
    CLOSED     = 1024, /* ends that are remembered after they have closed */
    INDEX_BITS = 20,   /* of a pair's name; the others change each time the index is used */
    PATIENCE   = 256   /* turns that a single credit waits for a message to go along with */
};

struct closed {
    uint64_t id[2];
    int      rank;
};

static struct hkt_net_peer *pump_first;
static struct hkt_wire     *wires;
static struct hkt_pair     *lazy_first, *lazy_last;
static uint64_t             lazy_turn;
static struct closed        closed[CLOSED];
static unsigned             closed_next;

static struct { /* pairs by index; free ones hold their name for the next pair */
    struct hkt_pair **pair;
    uint32_t         *name;
    uint32_t          size;
} table;

/* ---- what is to be sent ------------------------------------------------------------------------------------------ */

static void pump_later(struct hkt_net_peer *peer)
{
    if (peer->pumping)
        return;
    peer->pumping   = true;
    peer->next_pump = pump_first;
    pump_first      = peer;
}

void hkt_net_pump(void)
{
    while (pump_first) {
        struct hkt_net_peer *peer = pump_first;

        pump_first    = peer->next_pump;
        peer->pumping = false;
        if (!peer->lost)
            peer->carrier->pump(peer->channel);
    }
}

void hkt_pair_talk(struct hkt_pair *p, unsigned say)
{
    struct hkt_net_peer *peer = p->peer;

    p->say |= say;
    if (say & (HKT_SAY_BIND | HKT_SAY_POISON) && !peer->lost)
        peer->carrier->connect(peer->channel);
    if (!p->talking) {
        p->talking      = true;
        p->next_talking = NULL;
        if (peer->talk_last)
            peer->talk_last->next_talking = p;
        else
            peer->talk_first = p;
        peer->talk_last = p;
    }
    pump_later(peer);
}

void hkt_pair_connect(struct hkt_pair *p)
{
    if (p->bind_said)
        return;
    p->bind_said = true;
    hkt_pair_talk(p, HKT_SAY_BIND);
}

void hkt_pair_owes(struct hkt_pair *p)
{
    bool soon;

    if (!p->bound || !hkt_lane_owes(p, &soon))
        return;
    if (soon) {
        hkt_pair_talk(p, HKT_SAY_CREDIT);
    } else if (!p->lazy) {
        p->lazy       = true;
        p->lazy_since = lazy_turn;
        p->next_lazy  = NULL;
        if (lazy_last)
            lazy_last->next_lazy = p;
        else
            lazy_first = p;
        lazy_last = p;
    }
}

bool hkt_net_credits(bool all)
{
    bool soon;

    lazy_turn++;
    while (lazy_first && (all || lazy_turn - lazy_first->lazy_since > PATIENCE)) {
        struct hkt_pair *p = lazy_first;

        lazy_first = p->next_lazy;
        lazy_last  = lazy_first ? lazy_last : NULL;
        p->lazy    = false;
        if (hkt_lane_owes(p, &soon))
            hkt_pair_talk(p, HKT_SAY_CREDIT);
    }
    return lazy_first != NULL;
}

/* Takes p, which follows `before` (NULL: the first), out of the list. */
static void hush(struct hkt_net_peer *peer, struct hkt_pair *before, struct hkt_pair *p)
{
    if (before)
        before->next_talking = p->next_talking;
    else
        peer->talk_first = p->next_talking;
    if (peer->talk_last == p)
        peer->talk_last = before;
    p->talking = false;
}

/* The last part of a large message: what follows in its lane may be for a way that has been asked already. */
static bool ends_large(const struct hkt_pair *p, const struct hkt_piece *piece)
{
    return piece->head.kind == HKT_HEAD_DATA && piece->head.bytes > HKT_WIRE_SMALL && p->out[piece->head.lane].rest == 0;
}

static bool next(void *arg, int sizes, uint32_t most, struct hkt_piece *piece)
{
    struct hkt_net_peer *peer   = arg;
    struct hkt_pair     *before = NULL, *p = peer->talk_first;

    if (peer->nreply && sizes & HKT_PIECE_SMALL) {
        *piece = (struct hkt_piece){.head = peer->reply[--peer->nreply]};
        return true;
    }
    while (p) {
        struct hkt_pair *after = p->next_talking;
        const int        rc    = hkt_lane_next(p, sizes, most, piece);

        if (rc > 0 && after) { /* the others' turn */
            hush(peer, before, p);
            hkt_pair_talk(p, 0);
        }
        if (rc > 0) {
            if (ends_large(p, piece))
                pump_later(peer);
            return true;
        }
        if (rc < 0)
            hush(peer, before, p);
        else
            before = p;
        p = after;
    }
    return false;
}

static void gone(void *arg, const struct hkt_piece *piece)
{
    (void)arg;
    hkt_lane_gone(piece->owner, piece);
}

/* ---- pairs and wires --------------------------------------------------------------------------------------------- */

static int grow_table(void)
{
    const uint32_t    size = table.size ? 2 * table.size : 64;
    struct hkt_pair **pair;
    uint32_t         *name;

    if (size > 1u << INDEX_BITS)
        return hkt_fail(HKT_ERR_MEMORY, "more than %u pairs of ranks of different hosts in one process", 1u << INDEX_BITS);
    pair       = hkt_realloc(table.pair, size * sizeof(struct hkt_pair *));
    table.pair = pair ? pair : table.pair;
    name       = hkt_realloc(table.name, size * sizeof(*name));
    table.name = name ? name : table.name;
    if (!pair || !name)
        return HKT_ERR_MEMORY;
    for (uint32_t i = table.size; i < size; i++) {
        table.pair[i] = NULL;
        table.name[i] = i + (1u << INDEX_BITS);
    }
    table.size = size;
    return 0;
}

int hkt_pair_add(struct hkt_pair *p)
{
    static uint32_t hint;

    for (uint32_t tries = 0; tries < table.size; tries++, hint++) {
        const uint32_t i = hint % table.size;

        if (table.pair[i])
            continue;
        table.pair[i] = p;
        p->mine       = table.name[i];
        return 0;
    }
    HKT_TRY(grow_table());
    hint = table.size / 2;
    return hkt_pair_add(p);
}

static struct hkt_pair *pair_named(const struct hkt_net_peer *peer, uint32_t name)
{
    const uint32_t   i = name & ((1u << INDEX_BITS) - 1);
    struct hkt_pair *p = i < table.size && table.name[i] == name ? table.pair[i] : NULL;

    return p && p->peer == peer ? p : NULL;
}

static void remove_lazy(struct hkt_pair *p)
{
    struct hkt_pair **at = &lazy_first, *before = NULL;

    while (*at && *at != p) {
        before = *at;
        at     = &(*at)->next_lazy;
    }
    if (*at)
        *at = p->next_lazy;
    if (lazy_last == p)
        lazy_last = before;
}

void hkt_pair_remove(struct hkt_pair *p)
{
    const uint32_t   i      = p->mine & ((1u << INDEX_BITS) - 1);
    struct hkt_pair *before = NULL;

    if (!p->mine)
        return;
    if (p->lazy)
        remove_lazy(p);
    for (struct hkt_pair *t = p->peer->talk_first; p->talking; before = t, t = t->next_talking)
        if (t == p)
            hush(p->peer, before, p);
    if (!p->peer->lost)
        p->peer->carrier->forget(p->peer->channel, p, p->mine);
    table.pair[i] = NULL;
    table.name[i] += 1u << INDEX_BITS;
    table.name[i] += table.name[i] < 1u << INDEX_BITS ? 1u << INDEX_BITS : 0; /* never 0 */
}

void hkt_pair_check_gone(struct hkt_pair *p)
{
    if (!p->gone || p->told_gone || !hkt_lane_all_here(p))
        return;
    p->told_gone = true;
    p->wire->config.events->left(p->wire->config.arg, p->rank);
}

static struct hkt_wire *wire_of(const uint64_t id[2], uint32_t rank)
{
    struct hkt_wire *w = wires;

    while (w && (memcmp(w->config.id, id, sizeof(w->config.id)) != 0 || (uint32_t)w->config.rank != rank))
        w = w->next;
    return w;
}

/* The pair that a frame which names its ranks is about; NULL: no such end is open. */
static struct hkt_pair *pair_meant(const struct hkt_net_peer *peer, const struct hkt_head *head)
{
    struct hkt_wire *w = wire_of(head->same, head->offset);
    struct hkt_pair *p = w && head->number < (uint32_t)w->config.size ? w->pair[head->number] : NULL;

    return p && p->peer == peer ? p : NULL;
}

static void bind(struct hkt_pair *p, uint32_t theirs)
{
    p->theirs = theirs;
    p->bound  = true;
    hkt_pair_connect(p);
    hkt_lane_expect(p);
    hkt_pair_talk(p, atomic_load_explicit(&p->wire->poison, memory_order_relaxed) ? HKT_SAY_POISON : 0);
    hkt_pair_owes(p);
}

static void leave(struct hkt_pair *p, const uint32_t sent[HKT_LANES])
{
    p->gone = true;
    memcpy(p->final, sent, sizeof(p->final));
    hkt_pair_check_gone(p);
}

void hkt_wire_enlist(struct hkt_wire *w)
{
    w->next = wires;
    wires   = w;
    for (int r = 0; r < w->config.size; r++) {
        struct hkt_net_peer *peer = w->pair[r] ? w->pair[r]->peer : NULL;

        for (struct hkt_parked **at = peer ? &peer->parked : NULL; at && *at;) {
            struct hkt_parked *parked = *at;

            if (pair_meant(peer, &parked->head) != w->pair[r]) {
                at = &parked->next;
                continue;
            }
            *at = parked->next;
            peer->nparked--;
            bind(w->pair[r], parked->head.bytes);
            if (parked->left)
                leave(w->pair[r], parked->head.asked);
            hkt_free(parked);
        }
    }
}

void hkt_wire_delist(struct hkt_wire *w)
{
    struct hkt_wire **at = &wires;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;

    closed[closed_next++ % CLOSED] = (struct closed){{w->config.id[0], w->config.id[1]}, w->config.rank};
}

/* ---- frames that have come --------------------------------------------------------------------------------------- */

/* One that asks for an end which is not open: it was, or it will be. */
static int park(struct hkt_net_peer *peer, const struct hkt_head *head)
{
    struct hkt_parked *p;

    for (int i = 0; i < CLOSED; i++) {
        if (closed[i].id[0] != head->same[0] || closed[i].id[1] != head->same[1] || (uint32_t)closed[i].rank != head->offset)
            continue;
        if (peer->nreply < HKT_REPLIES)
            peer->reply[peer->nreply++] = (struct hkt_head){
                .kind = HKT_HEAD_LEFT, .number = head->offset, .offset = head->number, .same = {head->same[0], head->same[1]}};
        pump_later(peer);
        return 0;
    }
    if (peer->nparked == PARKED)
        return -1;
    p = hkt_alloc(sizeof(*p));
    if (!p)
        return -1;
    *p           = (struct hkt_parked){peer->parked, *head, false};
    peer->parked = p;
    peer->nparked++;
    return 0;
}

static int hear_bind(struct hkt_net_peer *peer, const struct hkt_head *head)
{
    struct hkt_pair *p = pair_meant(peer, head);

    if (!p)
        return park(peer, head);
    if (p->bound && p->theirs != head->bytes)
        return -1;
    bind(p, head->bytes);
    return 0;
}

static int hear_left(struct hkt_net_peer *peer, const struct hkt_head *head)
{
    struct hkt_pair *p = pair_meant(peer, head);

    for (struct hkt_parked *k = peer->parked; !p && k; k = k->next) {
        if (memcmp(k->head.same, head->same, sizeof(k->head.same)) != 0 || k->head.number != head->number || k->head.offset != head->offset)
            continue;
        k->left = true;
        memcpy(k->head.asked, head->asked, sizeof(k->head.asked));
    }
    if (p)
        leave(p, head->asked);
    return 0;
}

static int hear_poison(struct hkt_net_peer *peer, const struct hkt_head *head)
{
    struct hkt_pair *p = pair_meant(peer, head);

    peer->sentence[head->length] = 0;
    if (p && (int32_t)head->bytes < 0)
        p->wire->config.events->poison(p->wire->config.arg, p->rank, (int32_t)head->bytes, peer->sentence);
    return 0;
}

static int place(void *arg, const struct hkt_head *head, char **to)
{
    struct hkt_net_peer *peer = arg;
    struct hkt_pair     *p;

    *to = NULL;
    if (head->kind == 0 || head->kind >= HKT_HEAD_KINDS || head->zero)
        return -1;
    if (head->kind == HKT_HEAD_POISON) {
        *to = peer->sentence;
        return head->length < sizeof(peer->sentence) ? 0 : -1;
    }
    if (head->kind != HKT_HEAD_DATA && head->length)
        return -1;
    if (head->kind != HKT_HEAD_DATA && head->kind != HKT_HEAD_CREDIT)
        return 0;
    if (head->length > HKT_WIRE_MOST)
        return -1;
    p = pair_named(peer, head->pair);
    if (!p) /* its end has closed meanwhile */
        return 0;
    hkt_lane_credit(p, head);
    return head->kind == HKT_HEAD_DATA ? hkt_lane_place(p, head, to) : 0;
}

static int landed(void *arg, const struct hkt_head *head)
{
    struct hkt_net_peer *peer = arg;
    struct hkt_pair     *p;

    switch (head->kind) {
    case HKT_HEAD_DATA:
        p = pair_named(peer, head->pair);
        if (p) {
            hkt_lane_landed(p, head);
            hkt_pair_check_gone(p);
        }
        return 0;
    case HKT_HEAD_BIND:
        return hear_bind(peer, head);
    case HKT_HEAD_LEFT:
        return hear_left(peer, head);
    case HKT_HEAD_POISON:
        return hear_poison(peer, head);
    default:
        return 0;
    }
}

static void lost(void *arg, const char *why)
{
    struct hkt_net_peer   *peer = arg;
    const struct hkt_life *life = peer->process->life;

    if (peer->lost)
        return;
    peer->lost = true;
    hkt_log(HKT_LOG_WARN, "host %s, pid %d: %s", life->host, (int)life->pid, why);
    /* Read by hkt_process_alive(). */
    atomic_fetch_or_explicit(&peer->process->life->word, 0x40000000u, memory_order_relaxed);
}

static void known(void *arg, uint32_t pair, uint32_t asked[2])
{
    const struct hkt_pair *p = pair_named(arg, pair);

    for (int lane = 0; lane < HKT_LANES && p; lane++)
        asked[lane] = (uint32_t)p->out[lane].asked;
}

/* The other process has no communicator left with this one, as it sees it. Ranks of it that had talked have said before that they leave. */
static void parted(void *arg)
{
    for (uint32_t i = 0; i < table.size; i++) {
        struct hkt_pair *p = table.pair[i];

        if (!p || p->peer != arg || p->gone)
            continue;
        if (p->bound) {
            lost(arg, "the process has closed the connection while its ranks still talked");
            return;
        }
        p->bind_said = false;
        hkt_net_submit(&p->task, false); /* is somebody waiting for that rank? */
    }
}

/* ---- for process.c ----------------------------------------------------------------------------------------------- */

static const struct hkt_channel_user user = {next, gone, place, landed, lost, parted, known};

static int open_channel(struct hkt_net_peer *peer, const uint64_t self[2])
{
    const struct hkt_process_address *a = &peer->process->life->address;

    for (int i = 0; hkt_transports[i]; i++) {
        struct hkt_channel_config config = {.self = self, .peer = a->uuid, .user = &user, .arg = peer};

        if (!hkt_net_wanted(hkt_transports[i]))
            continue;
        config.record = hkt_net_record(&a->net, hkt_transports[i]->name, &config.size);
        if (!config.record)
            continue;
        peer->carrier = hkt_transports[i]->carrier;
        HKT_TRY(hkt_net_use(peer->carrier));
        HKT_TRY(hkt_net_start());
        return peer->carrier->open(&peer->channel, &config);
    }
    return hkt_fail(HKT_ERR_UNSUPPORTED, "host %s, pid %d, cannot be reached: %s%s", peer->process->life->host,
                    (int)peer->process->life->pid, a->net.bytes ? "no network is usable on both sides; HKT_NETWORK=" : "it has no network",
                    a->net.bytes ? (*hkt_options()->network ? hkt_options()->network : "any") : "");
}

static int attach(struct hkt_net_peer **net, struct hkt_process *process, const uint64_t self[2])
{
    struct hkt_net_peer *peer = hkt_alloc(sizeof(*peer));
    int                  rc;

    if (!peer)
        return HKT_ERR_MEMORY;
    peer->process = process;
    hkt_net_lock();
    rc = open_channel(peer, self);
    hkt_net_unlock();
    if (rc)
        hkt_free(peer);
    else
        *net = peer;
    return rc;
}

static void detach(struct hkt_net_peer *peer)
{
    hkt_net_lock();
    for (struct hkt_net_peer **at = &pump_first; *at; at = &(*at)->next_pump)
        if (*at == peer) {
            *at = peer->next_pump;
            break;
        }
    peer->carrier->close(peer->channel);
    while (peer->parked) {
        struct hkt_parked *p = peer->parked;

        peer->parked = p->next;
        hkt_free(p);
    }
    hkt_net_unlock();
    hkt_free(peer);
}

const struct hkt_network hkt_network = {hkt_net_address, attach, detach};
