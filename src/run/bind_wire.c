/* bind_wire.c -- binding what goes between hosts. A message leaves from where its value stands at the sender (choose_home() in bind.c), and lands
 * where the receiver wants it, so that a network can move it there without a copy:
 *   - in OUT or TMP, when the step that takes it only stores it;
 *   - else in the slot from which that step sends it on, when that is all it does;
 *   - else in a slot of its own; messages from one rank take turns in two.
 *
 * The earlier a landing is named, the fewer messages come before they are expected. It is named as soon as the steps before it are done with the
 * place: this rank's own, and what they have sent from there; where ranks of this host use the place, when their step comes.
 * A step whose message leaves from a place that is stored to later holds until it has left (`sync`).
 */
#include "run/bind.h"

#include "base/error.h"
#include "base/memory.h"
#include "language/order.h"
#include "net/wire.h"

_Static_assert((int)HKT_ORDER_DEPTH == (int)HKT_WIRE_RING, "what order.c lets be under way, the wire holds");

/* The messages of every pair of ranks, while walking through them. */
struct pair {
    uint32_t messages;
    uint32_t last[HKT_WIRE_RING]; /* the latest, by index modulo */
    uint32_t slot[2];              /* that they land in, + 1 */
    uint32_t step;                 /* before which the latest landing was named */
    bool     late;
};

static struct pair *pairs_of(const struct hkt_binder *b)
{
    return hkt_alloc((size_t)b->size * (size_t)b->size * sizeof(struct pair));
}

static struct pair *pair_of(struct pair *pairs, const struct hkt_binder *b, const struct hkt_message *m)
{
    return &pairs[(size_t)m->from * (size_t)b->size + (size_t)m->to];
}

int hkt_bind_number(struct hkt_binder *b)
{
    struct pair *pairs;

    if (!b->host)
        return 0;
    pairs = pairs_of(b);
    if (!pairs)
        return HKT_ERR_MEMORY;
    for (uint32_t i = 0; i < b->nmessages; i++) { /* those of a pair are in order */
        struct hkt_message *m = &b->message[i];
        struct pair        *p = pair_of(pairs, b, m);

        m->wire = b->host[m->from] != b->host[m->to];
        if (!m->wire)
            continue;
        m->earlier = p->messages < HKT_FIFO_DEPTH ? HKT_NO_MESSAGE : p->last[(p->messages - HKT_FIFO_DEPTH) % HKT_WIRE_RING];
        m->ring    = p->messages < HKT_WIRE_RING ? HKT_NO_MESSAGE : p->last[p->messages % HKT_WIRE_RING];
        p->last[p->messages % HKT_WIRE_RING] = i;
        m->index                             = ++p->messages;
    }
    hkt_free(pairs);
    return 0;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

/* The slot that the step sends from, when it stores nothing else. */
static const struct hkt_bound *sent_on_from(const struct hkt_binder *b, int r, const struct hkt_step *st)
{
    const struct hkt_operand *o = hkt_destinations(&b->rank[r].schedule, st);

    for (int i = 0; i < st->ndst; i++)
        if (hkt_message_of(b, r, &o[i])->kind == HKT_SLOT)
            return &hkt_message_of(b, r, &o[i])->home;
    return NULL;
}

static void land(struct hkt_binder *b, struct hkt_message *m, struct pair *p)
{
    const struct hkt_step       *st     = &b->rank[m->to].schedule.step[m->recv];
    const struct hkt_trace_step *t      = hkt_step_of(b, m->to, m->recv);
    const bool                   stored = st->nsrc == 1 && t->in == t->out;
    const struct hkt_operand    *target = hkt_local_destination(b, m->to, m->recv);
    const struct hkt_bound      *slot   = stored && !target ? sent_on_from(b, m->to, st) : NULL;
    uint32_t                    *turn   = &p->slot[m->index % 2];

    if (stored && target)
        m->landing = hkt_place_of(m->to, target);
    else if (slot)
        m->landing = *slot;
    else {
        if (!*turn)
            *turn = ++b->rank[m->to].slots;
        m->landing = (struct hkt_bound){.home = HKT_HOME_SLOT, .rank = (uint32_t)m->to, .id = *turn - 1};
    }
    m->landing.from = (uint32_t)m->from;
    m->step         = 0;
    m->late         = false;
    m->nafter       = 0;
}

int hkt_bind_land(struct hkt_binder *b)
{
    struct pair *pairs;

    if (!b->host)
        return 0;
    pairs = pairs_of(b);
    if (!pairs)
        return HKT_ERR_MEMORY;
    for (uint32_t i = 0; i < b->nmessages; i++)
        if (b->message[i].wire)
            land(b, &b->message[i], pair_of(pairs, b, &b->message[i]));
    hkt_free(pairs);
    return 0;
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

static void hold(struct hkt_binder *b, const struct hkt_access *leaves)
{
    const struct hkt_message *m = &b->message[leaves->message];

    hkt_step_of(b, m->from, m->send)->sync = true;
}

/* The landing waits until what is sent from there has left. */
static void after(struct hkt_binder *b, struct hkt_message *landing, const struct hkt_access *leaves)
{
    const struct hkt_message *m = &b->message[leaves->message];

    if (landing->nafter == HKT_AFTER)
        hold(b, leaves);
    else
        landing->after[landing->nafter++] = (struct hkt_wire_index){(uint32_t)m->to, m->index};
}

void hkt_bind_order(struct hkt_binder *b, const struct hkt_access *a, uint32_t i, uint32_t n)
{
    const bool          slot    = (a->place >> 38 & 3) == HKT_HOME_SLOT;
    const int           owner   = (int)(a->place >> 40);
    struct hkt_message *landing = a[i].wire == HKT_WIRE_LANDS ? &b->message[a[i].message] : NULL;

    if (!a[i].write)
        return;
    for (uint32_t j = 0; j < (slot ? n : i); j++) { /* a slot is used again two slices later */
        if (a[j].wire == HKT_WIRE_LEAVES && (a[i].actor != owner || (j < i && !landing)))
            hold(b, &a[j]);
        if (!landing || j == i)
            continue;
        landing->late |= a[j].actor != owner;
        if (j < i && a[j].actor == owner && a[j].step + 1 > landing->step)
            landing->step = a[j].step + 1;
        if (j < i && a[j].wire == HKT_WIRE_LEAVES)
            after(b, landing, &a[j]);
    }
    if (landing && (landing->late || landing->step > a[i].step))
        landing->step = a[i].step;
}

int hkt_bind_lanes(struct hkt_binder *b)
{
    struct pair *pairs;

    if (!b->host)
        return 0;
    pairs = pairs_of(b);
    if (!pairs)
        return HKT_ERR_MEMORY;
    for (uint32_t i = 0; i < b->nmessages; i++) {
        struct hkt_message *m = &b->message[i];
        struct pair        *p = pair_of(pairs, b, m);

        if (!m->wire)
            continue;
        if (m->step < p->step) {
            m->step = p->step;
            m->late = p->late;
        } else if (m->step == p->step)
            m->late |= p->late;
        p->step = m->step;
        p->late = m->late;
    }
    hkt_free(pairs);
    return 0;
}

/* ---- on paper ---------------------------------------------------------------------------------------------------- */

/* Has the rank done that step of its schedule? */
static bool done(const struct hkt_binder *b, int rank, uint32_t s)
{
    return (int)b->rank[rank].done > hkt_step_of(b, rank, s)->number;
}

/* May message `id` not have left? It leaves when the receiver has named a place for it: at the latest, when it takes it. */
static bool unnamed(const struct hkt_binder *b, uint32_t id)
{
    const struct hkt_message *m = &b->message[id];

    return (int)b->rank[m->to].done < hkt_step_of(b, m->to, m->recv)->number;
}

bool hkt_bind_held(const struct hkt_binder *b, int rank)
{
    const struct hkt_trace    *t = &b->rank[rank];
    const struct hkt_step     *st;
    const struct hkt_operand  *o;
    const struct hkt_message  *m;
    uint32_t                   s;

    if (t->done == t->kept)
        return false;
    s  = t->kept_as[t->done];
    st = &t->schedule.step[s];
    o  = hkt_sources(&t->schedule, st);
    for (int i = 0; i < st->nsrc + st->ndst; i++) {
        if (o[i].place != HKT_PEER)
            continue;
        m = hkt_message_of(b, rank, &o[i]);
        if (!m->wire)
            continue;
        if (i < st->nsrc && !done(b, m->from, m->send))
            return true;
        if (i >= st->nsrc && m->ring != HKT_NO_MESSAGE && unnamed(b, m->ring)) /* there is no room for it */
            return true;
        if (i >= st->nsrc && hkt_step_of(b, rank, s)->sync && m->earlier != HKT_NO_MESSAGE && unnamed(b, m->earlier))
            return true;
    }
    return false;
}
