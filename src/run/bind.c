/* bind.c -- from the schedules of all ranks to the plan of one: where each message lives, and who waits for whom.
 *
 * Four passes over the whole communicator (every rank computes the same, so nothing is agreed by talking):
 *   trace   runs the schedules symbolically: pairs each send with its receive, finds the form and the length of each value
 *   home    decides where each message lives (the table in choose_home)
 *   access  lists who reads and writes each place, in the order that its owner's schedule gives
 *   order   turns that list into waits: a reader waits for the last writer, a writer for all before it
 * Then the steps that move nothing are dropped and the rank's own part is written out. Last, the bound steps are run once on paper: if
 * the waits were to lock up, the plan is made again with every message in a staging slot, which cannot.
 */
#include "run/bind.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- home -------------------------------------------------------------------------------------------------------- */

static const struct hkt_operand *single_local_source(const struct hkt_binder *b, int rank, uint32_t s)
{
    const struct hkt_schedule *sched = &b->rank[rank].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);

    return st->nsrc == 1 && o->place != HKT_PEER && hkt_step_of(b, rank, s)->in == hkt_step_of(b, rank, s)->out ? o : NULL;
}

const struct hkt_operand *hkt_local_destination(const struct hkt_binder *b, int rank, uint32_t s)
{
    const struct hkt_schedule *sched = &b->rank[rank].schedule;
    const struct hkt_operand  *o     = hkt_destinations(sched, &sched->step[s]);

    for (int i = 0; i < sched->step[s].ndst; i++)
        if (o[i].place != HKT_PEER)
            return &o[i];
    return NULL;
}

/* The operand's place, if those can get at it who must: other ranks, or for what goes to another host the sender alone. */
static const struct hkt_operand *reachable(const struct hkt_binder *b, const struct hkt_message *m, const struct hkt_operand *o)
{
    return o && !b->slots_only && (m->wire || o->place == HKT_TMP || b->reach != HKT_REACH_STAGE) ? o : NULL;
}

/* In this order: in the sender's place that it was copied from; in the receiver's place that it only gets stored to (the sender stores
 * there); in the sender's place where the sender keeps the same value; in a slot of the sender. A place must be reachable:
 *                      sender's source   receiver's place   sender's copy   slot
 *   map                pointer           pointer            pointer         pointer
 *   read               read, or TMP      write, or TMP      read, or TMP    pointer
 *   stage              TMP               TMP                TMP             pointer
 * Where the first two can both be, the one of the two ranks copies that has copied less so far: a root helps those who wait for it. What goes to
 * another host leaves from a place of the sender, whatever the reach. */
static void choose_home(struct hkt_binder *b, struct hkt_message *m)
{
    const struct hkt_operand *source = single_local_source(b, m->from, m->send);
    const struct hkt_operand *target = b->rank[m->to].schedule.step[m->recv].nsrc == 1 ? hkt_local_destination(b, m->to, m->recv) : NULL;
    const struct hkt_operand *kept   = hkt_local_destination(b, m->from, m->send);
    struct hkt_trace         *from = &b->rank[m->from], *to = &b->rank[m->to];

    source = reachable(b, m, source);
    target = m->wire ? NULL : reachable(b, m, target);
    kept   = reachable(b, m, kept);
    if (source && (!target || to->load <= from->load)) {
        m->home = hkt_place_of(m->from, source);
        m->kind = HKT_PULL_SOURCE;
        to->load += target != NULL;
    } else if (target) {
        m->home = hkt_place_of(m->to, target);
        m->kind = HKT_PUSH;
        from->load += source != NULL;
    } else if (kept) {
        m->home = hkt_place_of(m->from, kept);
        m->kind = HKT_PULL_KEPT;
    } else {
        struct hkt_trace_step *s = hkt_step_of(b, m->from, m->send);

        if (s->slot == HKT_NO_SLOT)
            s->slot = (int)from->slots++;
        m->home = (struct hkt_bound){.home = HKT_HOME_SLOT, .rank = (uint32_t)m->from, .id = (uint32_t)s->slot, .from = (uint32_t)m->from};
        m->kind = HKT_SLOT;
    }
    m->home.copy = b->reach == HKT_REACH_READ && m->home.home != HKT_HOME_SLOT && !m->wire;
}

/* Does the step, as bound, store anything anywhere? */
static bool stores(const struct hkt_binder *b, int rank, uint32_t s, const struct hkt_operand *dst)
{
    const struct hkt_schedule *sched = &b->rank[rank].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *src   = hkt_sources(sched, st);

    if (dst->place == HKT_PEER) {
        const struct hkt_message *m = hkt_message_of(b, rank, dst);

        return m->kind == HKT_PUSH || m->kind == HKT_SLOT;
    }
    if (st->nsrc == 1 && src->place == HKT_PEER) { /* its sender has put it there already */
        const struct hkt_message *m     = hkt_message_of(b, rank, src);
        const struct hkt_bound    here  = hkt_place_of(rank, dst);
        const struct hkt_bound   *there = m->wire ? &m->landing : &m->home;

        return !((m->wire || m->kind == HKT_PUSH) && there->home == here.home && there->id == here.id);
    }
    return true;
}

/* Does the step wait for another host, or send there? */
static bool wired(const struct hkt_binder *b, int r, uint32_t s)
{
    const struct hkt_schedule *sched = &b->rank[r].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);

    for (int i = 0; b->host && i < st->nsrc + st->ndst; i++)
        if (o[i].place == HKT_PEER && hkt_message_of(b, r, &o[i])->wire)
            return true;
    return false;
}

/* Numbers the steps that do something. */
static void keep_steps(struct hkt_binder *b, int r)
{
    const struct hkt_schedule *sched = &b->rank[r].schedule;
    uint32_t                   kept  = 0;

    for (uint32_t s = 0; s < sched->nsteps; s++) {
        const struct hkt_operand *dst = hkt_destinations(sched, &sched->step[s]);
        bool                      any = wired(b, r, s);

        for (int i = 0; i < sched->step[s].ndst; i++)
            any |= stores(b, r, s, &dst[i]);
        hkt_step_of(b, r, s)->number = any ? (int)kept : HKT_NO_STEP;
        if (any)
            b->rank[r].kept_as[kept++] = s;
    }
    b->rank[r].kept = kept;
}

static int choose_homes(struct hkt_binder *b)
{
    for (int r = 0; r < b->size; r++) {
        b->rank[r].slots = b->rank[r].schedule.tmp_chunks;
        b->rank[r].load  = 0;
        for (uint32_t s = 0; s < b->rank[r].schedule.nsteps; s++) {
            hkt_step_of(b, r, s)->slot = HKT_NO_SLOT;
            hkt_step_of(b, r, s)->sync = false;
        }
    }
    for (uint32_t i = 0; i < b->nmessages; i++)
        choose_home(b, &b->message[i]);
    HKT_TRY(hkt_bind_land(b));
    for (int r = 0; r < b->size; r++)
        keep_steps(b, r);
    return 0;
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

/* Order of accesses within one step of the owner: sources are read, then places are written, then the stored value is read. */
enum phase { READ_SOURCE, WRITE, READ_KEPT, PHASES };

struct moment {
    uint32_t   step; /* of the owner */
    enum phase phase;
};

/* The kept step that does it. */
struct actor {
    int      rank;
    uint32_t step;
};

/* In place, some chunks of IN are chunks of OUT: one name for both. It is assumed always: whether a rank works in place is its own affair. */
static void canonical_place(const struct hkt_binder *b, struct hkt_bound *at)
{
    const uint32_t c = b->chunks;

    if (at->home == HKT_HOME_SLOT)
        return;
    switch (b->shape->coll) {
    case HKT_COLL_ALL_REDUCE:
    case HKT_COLL_REDUCE:
    case HKT_COLL_BROADCAST:
        at->home = HKT_HOME_OUT;
        break;
    case HKT_COLL_REDUCE_SCATTER:
    case HKT_COLL_SCATTER: /* OUT piece is piece of IN's block `rank` */
        if (at->home == HKT_HOME_OUT)
            at->id += at->rank * c;
        at->home = HKT_HOME_IN;
        break;
    case HKT_COLL_ALL_GATHER:
    case HKT_COLL_GATHER:
        if (at->home == HKT_HOME_IN)
            at->id += at->rank * c;
        at->home = HKT_HOME_OUT;
        break;
    default:
        break;
    }
}

static void note(struct hkt_binder *b, struct hkt_bound at, struct moment when, struct actor who)
{
    struct hkt_access *a;

    if (b->naccesses == b->access_cap) {
        const uint32_t cap  = b->access_cap ? 2 * b->access_cap : 256;
        void          *more = hkt_realloc(b->access, cap * sizeof(*b->access));

        if (!more) {
            b->error = HKT_ERR_MEMORY;
            return;
        }
        b->access     = more;
        b->access_cap = cap;
    }
    canonical_place(b, &at);
    a  = &b->access[b->naccesses++];
    *a = (struct hkt_access){.place = (uint64_t)at.rank << 40 | (uint64_t)at.home << 38 | at.id,
                             .order = (uint64_t)when.step * PHASES + when.phase,
                             .actor = who.rank,
                             .step  = (uint32_t)hkt_step_of(b, who.rank, who.step)->number,
                             .write = when.phase == WRITE};
}

/* In place the step copies a chunk onto itself, else to other memory: it takes nothing away from those who still read the source. */
static bool onto_itself(const struct hkt_binder *b, int r, const struct hkt_step *st, const struct hkt_operand *dst)
{
    const struct hkt_operand *src = hkt_sources(&b->rank[r].schedule, st);
    struct hkt_bound          from, to;

    if (st->nsrc != 1 || src->place == HKT_PEER || dst->place == HKT_PEER)
        return false;
    from = hkt_place_of(r, src);
    to   = hkt_place_of(r, dst);
    canonical_place(b, &from);
    canonical_place(b, &to);
    return from.home == to.home && from.id == to.id;
}

/* The same of a message between hosts: it leaves its home, it lands. */
static void note_wire(struct hkt_binder *b, const struct hkt_message *m, enum hkt_wire_access what)
{
    const bool          lands = what == HKT_WIRE_LANDS;
    const struct actor  who   = {lands ? m->to : m->from, lands ? m->recv : m->send};
    const struct moment when  = {who.step, lands                       ? m->landing.home == HKT_HOME_SLOT ? READ_SOURCE : WRITE
                                           : m->kind == HKT_PULL_SOURCE ? READ_SOURCE
                                                                        : READ_KEPT};
    struct hkt_access  *a;

    note(b, lands ? m->landing : m->home, when, who);
    if (b->error)
        return;
    a          = &b->access[b->naccesses - 1];
    a->write   = lands;
    a->wire    = (uint8_t)what;
    a->message = (uint32_t)(m - b->message);
}

/* What one kept step reads and writes. */
static void note_step(struct hkt_binder *b, int r, uint32_t s)
{
    const struct hkt_schedule *sched = &b->rank[r].schedule;
    const struct hkt_step     *st    = &sched->step[s];
    const struct hkt_operand  *o     = hkt_sources(sched, st);
    const struct actor         me    = {r, s};
    bool                       slot  = false;

    for (int i = 0; i < st->nsrc; i++) {
        const struct hkt_message *m = o[i].place == HKT_PEER ? hkt_message_of(b, r, &o[i]) : NULL;

        if (!m)
            note(b, hkt_place_of(r, &o[i]), (struct moment){s, READ_SOURCE}, me);
        else if (m->wire)
            note_wire(b, m, HKT_WIRE_LANDS);
        else if (m->kind == HKT_PUSH)
            note(b, m->home, (struct moment){s, READ_KEPT}, me);
        else
            note(b, m->home, (struct moment){m->send, m->kind == HKT_PULL_SOURCE ? READ_SOURCE : READ_KEPT}, me);
    }
    o = hkt_destinations(sched, st);
    for (int i = 0; i < st->ndst; i++) {
        const struct hkt_message *m = o[i].place == HKT_PEER ? hkt_message_of(b, r, &o[i]) : NULL;

        if (m && m->wire)
            note_wire(b, m, HKT_WIRE_LEAVES);
        if (!stores(b, r, s, &o[i]) || (m && m->kind == HKT_SLOT && slot))
            continue;
        slot |= m && m->kind == HKT_SLOT;
        if (!m) {
            note(b, hkt_place_of(r, &o[i]), (struct moment){s, WRITE}, me);
            if (!b->error)
                b->access[b->naccesses - 1].same = onto_itself(b, r, st, &o[i]);
        } else
            note(b, m->home, (struct moment){m->kind == HKT_PUSH ? m->recv : s, WRITE}, me);
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static int by_place_then_order(const void *x, const void *y)
{
    const struct hkt_access *a = x, *b = y;

    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->actor - b->actor;
}

/* `later` waits for `earlier`. The same rank's steps are in order already; against that order nothing can be done. */
static void wait_for(struct hkt_binder *b, const struct hkt_access *later, const struct hkt_access *earlier, uint8_t back)
{
    struct hkt_wait_pair *w;

    if (later->actor == earlier->actor) {
        b->conflict |= !back && later->step < earlier->step;
        return;
    }
    if (b->nwaits == b->wait_cap) {
        const uint32_t cap  = b->wait_cap ? 2 * b->wait_cap : 256;
        void          *more = hkt_realloc(b->wait, cap * sizeof(*b->wait));

        if (!more) {
            b->error = HKT_ERR_MEMORY;
            return;
        }
        b->wait     = more;
        b->wait_cap = cap;
    }
    w  = &b->wait[b->nwaits++];
    *w = (struct hkt_wait_pair){later->actor, later->step, {(uint32_t)earlier->actor, earlier->step + 1, back}};
}

/* One place: accesses a[0..n) in order. */
static void order_place(struct hkt_binder *b, const struct hkt_access *a, uint32_t n)
{
    const bool slot  = (a->place >> 38 & 3) == HKT_HOME_SLOT;
    const int  owner = (int)(a->place >> 40);
    uint32_t   write = n, since = 0; /* the last write; the first access after it */

    for (uint32_t i = 0; i < n; i++) {
        if (b->host)
            hkt_bind_order(b, a, i, n);
        if (write < n)
            wait_for(b, &a[i], &a[write], 0);
        for (uint32_t j = since; a[i].write && !a[i].same && j < i; j++)
            wait_for(b, &a[i], &a[j], 0);
        for (uint32_t j = 0; slot && a[i].write && j < n; j++) /* two slices later the slot is used again */
            wait_for(b, &a[i], &a[j], 2);
        if (a[i].write)
            write = i;
        if (a[i].write && !a[i].same)
            since = i + 1;
        if (!slot && a[i].actor != owner) { /* the owner may not return while others use its buffers */
            const struct hkt_access end = {.actor = owner, .step = b->rank[owner].kept};

            wait_for(b, &end, &a[i], 0);
        }
    }
}

static int by_waiter(const void *x, const void *y)
{
    const struct hkt_wait_pair *a = x, *b = y;

    if (a->actor != b->actor)
        return a->actor - b->actor;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->on.rank != b->on.rank)
        return a->on.rank < b->on.rank ? -1 : 1;
    if (a->on.back != b->on.back)
        return a->on.back - b->on.back;
    return a->on.steps < b->on.steps ? 1 : a->on.steps > b->on.steps ? -1 : 0; /* the greatest first: it implies the rest */
}

static void drop_implied(struct hkt_binder *b)
{
    uint32_t kept = 0;

    qsort(b->wait, b->nwaits, sizeof(*b->wait), by_waiter);
    for (uint32_t i = 0; i < b->nwaits; i++) {
        const struct hkt_wait_pair *w = &b->wait[i], *last = kept ? &b->wait[kept - 1] : NULL;

        if (last && last->actor == w->actor && last->step == w->step && last->on.rank == w->on.rank && last->on.back == w->on.back)
            continue;
        b->wait[kept++] = *w;
    }
    b->nwaits = kept;
}

static void order_all(struct hkt_binder *b)
{
    b->naccesses = b->nwaits = 0;
    b->conflict = false;
    for (int r = 0; r < b->size; r++)
        for (uint32_t s = 0; s < b->rank[r].schedule.nsteps; s++)
            if (hkt_step_of(b, r, s)->number != HKT_NO_STEP)
                note_step(b, r, s);
    if (b->error)
        return;
    qsort(b->access, b->naccesses, sizeof(*b->access), by_place_then_order);
    for (uint32_t i = 0, j; i < b->naccesses; i = j) {
        for (j = i + 1; j < b->naccesses && b->access[j].place == b->access[i].place; j++)
            ;
        order_place(b, b->access + i, j - i);
    }
    if (!b->error && b->nwaits)
        drop_implied(b);
}

/* Runs the bound steps of one slice on paper. */
static bool locks_up(struct hkt_binder *b)
{
    bool moved = true, left = true;

    for (int r = 0; r < b->size; r++) {
        b->rank[r].done       = 0;
        b->rank[r].first_wait = b->nwaits;
    }
    for (uint32_t i = b->nwaits; i-- > 0;) /* sorted by rank: where each rank's begin */
        b->rank[b->wait[i].actor].first_wait = i;
    while (moved && left) {
        moved = left = false;
        for (int r = 0; r < b->size; r++) {
            struct hkt_trace *t = &b->rank[r];

            while (t->done <= t->kept) {
                uint32_t i = t->first_wait;

                for (; i < b->nwaits && b->wait[i].actor == r && b->wait[i].step == t->done; i++)
                    if (!b->wait[i].on.back && b->rank[b->wait[i].on.rank].done < b->wait[i].on.steps)
                        break;
                if ((i < b->nwaits && b->wait[i].actor == r && b->wait[i].step == t->done) || (b->host && hkt_bind_held(b, r)))
                    break;
                t->first_wait = i;
                t->done++;
                moved = true;
            }
            left |= t->done <= t->kept;
        }
    }
    return left;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

int hkt_bind(struct hkt_binder *b)
{
    HKT_TRY(hkt_bind_number(b));
    for (int attempt = 0; attempt < 2; attempt++) {
        b->slots_only = attempt == 1;
        HKT_TRY(choose_homes(b));
        order_all(b);
        if (b->error)
            return b->error;
        HKT_TRY(hkt_bind_lanes(b));
        if (!b->conflict && !locks_up(b))
            return 0;
    }
    return 1;
}

bool hkt_bind_stores(const struct hkt_binder *b, int rank, uint32_t s, const struct hkt_operand *dst)
{
    return stores(b, rank, s, dst);
}

struct hkt_bound hkt_bind_operand(const struct hkt_binder *b, int rank, const struct hkt_operand *o)
{
    const struct hkt_message *m = o->place == HKT_PEER ? hkt_message_of(b, rank, o) : NULL;

    if (!m)
        return hkt_place_of(rank, o);
    return m->wire && m->to == rank ? m->landing : m->home;
}
