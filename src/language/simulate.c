/* simulate.c -- the event loop. Two kinds of events: a rank's processor becomes free, and a flight (a message, or the word that there is room
 * again) reaches the next thing on its way. With every rank and flight travels the path: what its time consists of, by the chain of causes that
 * it waited for; so the last rank's path says what bounds the whole.
 */
#include "simulate.h"

#include "base/error.h"
#include "base/memory.h"
#include "events.h"
#include "roles.h"

#include <math.h>
#include <string.h>

#define PICO 1e12

enum { MOST_SERVERS = 4, NOBODY = -1, MOST_SLICES = 1 << 20 };

const char *const hkt_time_part_name[HKT_TIME_PARTS] = {"latency", "overhead", "reduce", "port", "bus", "card", "uplink", "room"};

/* What serves one message after the other. */
enum kind { PORT_OUT, PORT_IN, SOCKET, BUS, CARD_OUT, CARD_IN, UPLINK, DOWNLINK, KINDS };

static const uint8_t part_of[KINDS] = {HKT_TIME_PORT, HKT_TIME_PORT, HKT_TIME_BUS,    HKT_TIME_BUS,
                                       HKT_TIME_CARD, HKT_TIME_CARD, HKT_TIME_UPLINK, HKT_TIME_UPLINK};

struct path {
    int64_t  part[HKT_TIME_PARTS];
    uint32_t hops;
};

struct pair { /* one rank and one of its peers */
    uint32_t arrived, consumed, sent, room; /* messages; room: how many of mine it has taken, as far as I know */
};

struct rank {
    const struct hkt_program *program;
    struct pair              *pair;
    struct path               path; /* of what it did last */
    uint64_t                  done; /* bit k: step base + k */
    uint32_t                  base, pass;
    uint32_t                  ready; /* in order only: operands of the step at base that are known to be there */
    int                       current; /* the step whose folding is under way, or NOBODY */
    bool                      busy;
};

struct server {
    uint8_t  kind;
    uint32_t index; /* into simulator.free_at */
};

struct flight {
    struct path   path;
    int64_t       tail; /* when its last byte would be there, as far as it has come */
    uint32_t      to, pair;
    uint32_t      next; /* free ones */
    uint32_t      from;
    int64_t       left; /* the port, for pictures */
    uint8_t       servers, at, span;
    bool          word; /* of room, not a message */
    struct server way[MOST_SERVERS];
};

struct hkt_simulator {
    struct hkt_fabric fabric;
    struct hkt_roles  roles;
    enum hkt_coll     coll;
    struct rank      *rank;
    struct pair      *pair;
    int64_t          *free_at;
    uint32_t          first[KINDS + 1]; /* of each kind in free_at */
    struct flight    *flight;
    uint32_t          flights, flight_cap, free_flight; /* free_flight: index + 1 */
    struct hkt_events events;
    /* of the run at hand */
    const struct hkt_sim_load *load;
    int64_t  alpha[HKT_SPANS], overhead[HKT_SPANS], gap[HKT_SPANS], beta[HKT_SPANS], touch[HKT_SPANS], spine; /* of one message */
    int64_t  serve[KINDS], fold, copy;
    uint32_t slices, running;
    int64_t  now, last;
    struct path           longest; /* of the rank that was last, at `last` */
    struct hkt_sim_result result;
    int                   error;
};

/* ---- the way of a message ---------------------------------------------------------------------------------------- */

static void pass(struct flight *f, enum kind kind, const struct hkt_simulator *s, uint32_t index)
{
    f->way[f->servers++] = (struct server){(uint8_t)kind, s->first[kind] + index};
}

/* Ranks as they really are for what it passes, those that are run for which one of it. */
static void find_way(const struct hkt_simulator *s, struct flight *f, uint32_t from, uint32_t to)
{
    const struct hkt_fabric *fab  = &s->fabric;
    const uint32_t           run  = s->roles.ranks, rails = (uint32_t)(fab->rails ? fab->rails : fab->per_host);
    const uint32_t           host = hkt_fabric_host(fab, from % run), other = hkt_fabric_host(fab, to % run);

    f->span    = (uint8_t)hkt_fabric_span(fab, from, to);
    f->servers = 0;
    if (f->span == HKT_SPAN_NETWORK) {
        pass(f, CARD_OUT, s, host * rails + hkt_fabric_local(fab, from) % rails);
        if (fab->oversubscription > 1 && hkt_fabric_leaf(fab, from) != hkt_fabric_leaf(fab, to)) {
            pass(f, UPLINK, s, hkt_fabric_leaf(fab, from % run));
            pass(f, DOWNLINK, s, hkt_fabric_leaf(fab, to % run));
        }
        pass(f, CARD_IN, s, other * rails + hkt_fabric_local(fab, to) % rails);
        return;
    }
    pass(f, PORT_OUT, s, from % run);
    if (fab->socket > 0 && f->span == HKT_SPAN_HOST)
        pass(f, SOCKET, s, host);
    if (fab->bus > 0)
        pass(f, BUS, s, host);
    pass(f, PORT_IN, s, to % run);
}

static int64_t latency(const struct hkt_simulator *s, uint32_t from, uint32_t to, enum hkt_span span)
{
    return s->alpha[span] + (span == HKT_SPAN_NETWORK && hkt_fabric_leaf(&s->fabric, from) != hkt_fabric_leaf(&s->fabric, to) ? s->spine : 0);
}

/* How long the message keeps a server busy, besides gaps. */
static int64_t service(const struct hkt_simulator *s, const struct flight *f, enum kind kind)
{
    return kind == PORT_OUT || kind == PORT_IN || kind == CARD_OUT || kind == CARD_IN ? s->beta[f->span] : s->serve[kind];
}

/* ---- flights ----------------------------------------------------------------------------------------------------- */

static struct flight *new_flight(struct hkt_simulator *s, const struct path *path)
{
    struct flight *f;

    if (s->free_flight) {
        f              = &s->flight[s->free_flight - 1];
        s->free_flight = f->next;
    } else {
        if (s->flights == s->flight_cap) {
            const uint32_t more = s->flight_cap ? 2 * s->flight_cap : 256;
            void          *p    = hkt_realloc(s->flight, more * sizeof(*s->flight));

            if (!p) {
                s->error = HKT_ERR_MEMORY;
                return NULL;
            }
            s->flight     = p;
            s->flight_cap = more;
        }
        f = &s->flight[s->flights++];
    }
    f->path = *path;
    f->at   = 0;
    f->word = false;
    return f;
}

static void add_event(struct hkt_simulator *s, int64_t time, uint32_t index, bool is_flight)
{
    if (!hkt_events_add(&s->events, time, index << 1 | is_flight))
        s->error = HKT_ERR_MEMORY;
}

/* Queues at the server it has come to at `now`. When it goes on is what counts for the next, when its end is there for itself. */
static int64_t serve(struct hkt_simulator *s, struct flight *f, int64_t now, int64_t latency)
{
    const struct server *v     = &f->way[f->at];
    int64_t *const       free  = &s->free_at[v->index];
    const int64_t        start = *free > now ? *free : now, end = start + service(s, f, v->kind) + latency;

    *free = end - latency + (f->at == 0 ? s->gap[f->span] : 0);
    if (end > f->tail) {
        f->path.part[part_of[v->kind]] += end - latency - (f->at == 0 ? now : f->tail);
        f->tail = end;
    }
    f->at++;
    return start + latency;
}

static uint32_t peer_of(const struct hkt_simulator *s, uint32_t rank, uint32_t index)
{
    return hkt_at_distance(s->roles.size, rank, s->rank[rank].program->peer[index].distance);
}

/* To a peer: rank `to` as it really is, which finds me as its peer `pair`. */
static struct flight *depart(struct hkt_simulator *s, uint32_t from, uint32_t index, const struct path *path)
{
    const struct hkt_roles *roles = &s->roles;
    const uint32_t          to    = peer_of(s, from, index);
    struct flight          *f     = new_flight(s, path);

    if (!f)
        return NULL;
    f->from = from;
    f->to   = to % roles->ranks;
    f->pair = hkt_program_find(s->rank[f->to].program, hkt_distance(roles->size, to, from));
    find_way(s, f, from, to);
    if (f->pair == s->rank[f->to].program->npeers) {
        s->error = hkt_fail(HKT_ERR_INTERNAL, "in the schedule simulated rank %u sends to rank %u, which does not hear from it", from, to);
        return NULL;
    }
    return f;
}

static void send(struct hkt_simulator *s, uint32_t from, uint32_t index, int64_t at)
{
    struct flight *f = depart(s, from, index, &s->rank[from].path);
    int64_t        alpha;

    if (!f)
        return;
    alpha = latency(s, from, peer_of(s, from, index), f->span);
    f->path.part[HKT_TIME_OVERHEAD] += at - s->now;
    f->path.part[HKT_TIME_LATENCY] += alpha;
    f->path.hops++;
    f->tail = f->left = at;
    at                = serve(s, f, at, alpha);
    f->left           = at - alpha;
    s->rank[from].pair[index].sent++;
    s->result.messages++;
    add_event(s, at, (uint32_t)(f - s->flight), true);
}

/* Tells a peer that I have taken a message of its. */
static void give_room(struct hkt_simulator *s, uint32_t from, uint32_t index)
{
    struct flight *f = depart(s, from, index, &s->rank[from].path);
    int64_t        alpha;

    if (!f)
        return;
    alpha = latency(s, from, peer_of(s, from, index), f->span);
    f->path.part[HKT_TIME_ROOM] += alpha;
    f->word    = true;
    f->servers = 0;
    add_event(s, s->now + alpha, (uint32_t)(f - s->flight), true);
}

/* ---- the steps of a rank ----------------------------------------------------------------------------------------- */

static bool limited(const struct hkt_simulator *s, uint64_t messages)
{
    return s->fabric.depth && messages * s->slices > (uint64_t)s->fabric.depth;
}

static bool is_there(const struct hkt_simulator *s, const struct rank *r, const struct hkt_program_step *st, uint32_t k)
{
    const uint32_t     index = r->program->at[st->first + k];
    const struct pair *pair  = &r->pair[index];

    if (k < st->hear)
        return pair->arrived > pair->consumed;
    return !limited(s, r->program->peer[index].sent) || pair->sent - pair->room < (uint32_t)s->fabric.depth;
}

/* May the step k behind the first one that is not done start? */
static bool may_start(const struct hkt_simulator *s, struct rank *r, uint32_t k)
{
    const struct hkt_program_step *st = &r->program->step[r->base + k];
    uint32_t                       i  = k == 0 ? r->ready : 0;

    for (uint64_t deps = st->deps; deps && k; deps &= deps - 1) {
        const uint32_t back = (uint32_t)__builtin_ctzll(deps) + 1;

        if (back <= k && !(r->done >> (k - back) & 1))
            return false;
    }
    while (i < (uint32_t)st->hear + st->send && is_there(s, r, st, i))
        i++;
    if (k == 0)
        r->ready = s->fabric.window > 1 ? 0 : i; /* in order nothing else can take what is there */
    return i == (uint32_t)st->hear + st->send;
}

static int next_step(const struct hkt_simulator *s, struct rank *r)
{
    const uint32_t window = (uint32_t)s->fabric.window, left = r->program->nsteps - r->base;

    for (uint32_t k = 0; k < window && k < left; k++)
        if (!(r->done >> k & 1) && may_start(s, r, k))
            return (int)(r->base + k);
    return NOBODY;
}

static void mark_done(struct hkt_simulator *s, struct rank *r, uint32_t step)
{
    r->done |= 1ull << (step - r->base);
    while (r->done & 1) {
        r->done >>= 1;
        r->base++;
        r->ready = 0;
    }
    if (r->base == r->program->nsteps) {
        r->base = 0;
        if (++r->pass == s->slices)
            s->running--;
    }
}

static enum hkt_span span_to(const struct hkt_simulator *s, uint32_t rank, uint32_t index)
{
    return hkt_fabric_span(&s->fabric, rank, peer_of(s, rank, index));
}

/* What the processor does before the step's value is there: one pass over the sources that stores to all destinations it reaches itself. */
static int64_t work(struct hkt_simulator *s, uint32_t rank, const struct hkt_program_step *st, struct path *path)
{
    const uint32_t *const at       = s->rank[rank].program->at + st->first;
    int64_t               overhead = 0, reduce = 0, one = 0;

    for (uint32_t k = 0; k < st->hear; k++)
        overhead += s->overhead[span_to(s, rank, at[k])];
    for (uint32_t k = st->hear; k < (uint32_t)st->hear + st->send; k++)
        if (s->touch[span_to(s, rank, at[k])])
            reduce += one = s->touch[span_to(s, rank, at[k])];
    if (!st->stores)
        reduce -= one; /* the first destination is part of the pass over the sources */
    reduce += st->folds ? st->folds * s->fold : st->stores || one ? s->copy : 0;
    path->part[HKT_TIME_OVERHEAD] += overhead;
    path->part[HKT_TIME_REDUCE] += reduce;
    return overhead + reduce;
}

static void show(const struct hkt_simulator *s, struct hkt_sim_span span)
{
    if (s->load->trace)
        s->load->trace(s->load->context, &span);
}

/* The value is there: the step's messages leave. */
static void finish_step(struct hkt_simulator *s, uint32_t rank, uint32_t step)
{
    struct rank *const             r  = &s->rank[rank];
    const struct hkt_program_step *st = &r->program->step[step];
    int64_t                        at = s->now;

    for (uint32_t k = 0; k < st->hear; k++) {
        const uint32_t index = r->program->at[st->first + k];

        r->pair[index].consumed++;
        if (limited(s, r->program->peer[index].heard))
            give_room(s, rank, index);
    }
    for (uint32_t k = st->hear; k < (uint32_t)st->hear + st->send && !s->error; k++) {
        const uint32_t index = r->program->at[st->first + k];
        const uint32_t span  = span_to(s, rank, index);

        at += s->overhead[span];
        send(s, rank, index, at);
    }
    if (at > s->now) {
        r->path.part[HKT_TIME_OVERHEAD] += at - s->now;
        r->busy = true;
        add_event(s, at, rank, false);
        show(s, (struct hkt_sim_span){(int)rank, NOBODY, (double)s->now / PICO, (double)at / PICO});
    }
    mark_done(s, r, step);
    if (at >= s->last) {
        s->last    = at;
        s->longest = r->path;
    }
}

/* Goes on as far as it can; `cause` is what has just happened to it. */
static void advance(struct hkt_simulator *s, uint32_t rank, const struct path *cause)
{
    struct rank *const r = &s->rank[rank];

    while (!r->busy && r->pass < s->slices && !s->error) {
        const int step = next_step(s, r);
        int64_t   time;

        if (step == NOBODY)
            return;
        if (cause)
            r->path = *cause;
        cause = NULL;
        time  = work(s, rank, &r->program->step[step], &r->path);
        if (time == 0) {
            finish_step(s, rank, (uint32_t)step);
            continue;
        }
        show(s, (struct hkt_sim_span){(int)rank, NOBODY, (double)s->now / PICO, (double)(s->now + time) / PICO});
        r->current = step;
        r->busy    = true;
        add_event(s, s->now + time, rank, false);
    }
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void processor_free(struct hkt_simulator *s, uint32_t rank)
{
    struct rank *const r    = &s->rank[rank];
    const int          step = r->current;

    r->busy    = false;
    r->current = NOBODY;
    if (step != NOBODY)
        finish_step(s, rank, (uint32_t)step);
    advance(s, rank, NULL);
}

static void arrive(struct hkt_simulator *s, uint32_t index)
{
    struct flight *const f    = &s->flight[index];
    const struct path    path = f->path;
    struct rank *const   r    = &s->rank[f->to];
    const uint32_t       to   = f->to;

    if (f->word)
        r->pair[f->pair].room++;
    else
        r->pair[f->pair].arrived++;
    if (!f->word)
        show(s, (struct hkt_sim_span){(int)f->from, (int)to, (double)f->left / PICO, (double)s->now / PICO});
    f->next        = s->free_flight;
    s->free_flight = index + 1;
    advance(s, to, &path);
}

static void fly(struct hkt_simulator *s, uint32_t index)
{
    struct flight *const f = &s->flight[index];

    if (f->at < f->servers) {
        const int64_t on = serve(s, f, s->now, 0);

        if (f->at == f->servers && f->tail > s->now)
            add_event(s, f->tail, index, true);
        else if (f->at < f->servers)
            add_event(s, on, index, true);
        else
            arrive(s, index);
        return;
    }
    arrive(s, index);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static int64_t pico(double seconds)
{
    return (int64_t)(seconds * PICO + 0.5);
}

/* All messages are one chunk, so what each thing costs a message is known. */
static void prepare(struct hkt_simulator *s)
{
    const struct hkt_fabric *f      = &s->fabric;
    const double             blocks = hkt_coll_in(s->coll, HKT_COLLS_VECTOR) ? 1 : s->roles.size;
    const double             whole  = s->load->bytes / blocks / s->roles.program[0].chunks, most = s->load->slice_bytes;
    const double             rails  = f->rails ? f->rails : f->per_host;
    double                   chunk;

    s->slices = s->load->slices ? (uint32_t)s->load->slices : 1;
    if (most > 0 && whole > most)
        s->slices = whole / most < MOST_SLICES ? (uint32_t)ceil(whole / most) : MOST_SLICES;
    chunk = whole / s->slices;
    for (int span = 0; span < HKT_SPANS; span++) {
        s->alpha[span]    = pico(f->wire[span].alpha);
        s->overhead[span] = pico(f->wire[span].overhead);
        s->gap[span]      = pico(f->wire[span].gap);
        s->beta[span]     = pico(f->wire[span].beta * chunk);
        s->touch[span]    = pico(f->wire[span].touch * chunk);
    }
    s->spine           = pico(f->spine);
    s->serve[SOCKET]   = pico(f->socket * chunk);
    s->serve[BUS]      = pico(f->bus * chunk);
    s->serve[UPLINK]   = f->per_leaf ? pico(f->wire[HKT_SPAN_NETWORK].beta * chunk * f->oversubscription / (f->per_leaf * rails)) : 0;
    s->serve[DOWNLINK] = s->serve[UPLINK];
    s->fold            = pico(f->gamma * chunk);
    s->copy            = pico(f->copy * chunk);
}

static void reset(struct hkt_simulator *s, const struct hkt_sim_load *load)
{
    struct pair *pair = s->pair;

    memset(s->pair, 0, (s->roles.peers + 1) * sizeof(*s->pair));
    memset(s->free_at, 0, (s->first[KINDS] + 1) * sizeof(*s->free_at));
    for (uint32_t r = 0; r < s->roles.ranks; r++) {
        s->rank[r] = (struct rank){.program = &s->roles.program[s->roles.of[r]], .pair = pair, .current = NOBODY};
        pair += s->rank[r].program->npeers;
    }
    s->load         = load;
    s->events.count = s->events.added = s->flights = s->free_flight = 0;
    s->running = s->roles.ranks;
    s->now = s->last = s->error = 0;
    s->result = (struct hkt_sim_result){.ranks = s->roles.ranks, .programs = s->roles.programs};
}

static int stuck(const struct hkt_simulator *s)
{
    uint32_t rank = 0;

    while (s->rank[rank].pass == s->slices)
        rank++;
    return hkt_fail(HKT_ERR_INTERNAL, "the schedule simulated ends in a deadlock: rank %u waits at step %u of %u, and %u ranks in all", rank,
                    s->rank[rank].base + 1, s->rank[rank].program->nsteps, s->running);
}

static int run_events(struct hkt_simulator *s)
{
    for (uint32_t r = 0; r < s->roles.ranks; r++)
        advance(s, r, NULL);
    while (s->events.count && !s->error) {
        const struct hkt_event e = hkt_events_next(&s->events);

        s->now = e.time;
        s->result.events++;
        if (e.what & 1)
            fly(s, e.what >> 1);
        else
            processor_free(s, e.what >> 1);
    }
    if (s->error)
        return s->error;
    return s->running ? stuck(s) : 0;
}

int hkt_simulator_run(struct hkt_simulator *s, const struct hkt_sim_load *load, struct hkt_sim_result *result)
{
    if (!(load->bytes >= 0 && load->bytes <= 1e15) || load->slices < 0 || load->slices > MOST_SLICES)
        return hkt_fail(HKT_ERR_ARGUMENT, "a simulation of %g bytes in %d slices; up to 1e15 bytes and %d slices are expected", load->bytes,
                        load->slices, MOST_SLICES);
    reset(s, load);
    prepare(s);
    HKT_TRY(run_events(s));
    s->result.seconds = (double)s->last / PICO;
    s->result.hops    = s->longest.hops;
    for (int i = 0; i < HKT_TIME_PARTS; i++)
        s->result.part[i] = (double)s->longest.part[i] / PICO;
    *result = s->result;
    return 0;
}

void hkt_simulator_close(struct hkt_simulator *s)
{
    if (!s)
        return;
    hkt_roles_free(&s->roles);
    hkt_free(s->rank);
    hkt_free(s->pair);
    hkt_free(s->free_at);
    hkt_free(s->flight);
    hkt_free(s->events.event);
    hkt_free(s);
}

/* Where each kind of server begins in free_at. */
static void number_servers(struct hkt_simulator *s)
{
    const struct hkt_fabric *f     = &s->fabric;
    const uint32_t           ranks = s->roles.ranks, ppn = (uint32_t)f->per_host;
    const uint32_t           hosts = f->seat ? (uint32_t)f->hosts : (ranks + ppn - 1) / ppn;
    const uint32_t           cards = hosts * (f->rails ? (uint32_t)f->rails : ppn);
    const uint32_t           leaves = f->per_leaf ? (hosts + (uint32_t)f->per_leaf - 1) / (uint32_t)f->per_leaf : 0;
    const uint32_t           count[KINDS] = {ranks, ranks, hosts, hosts, cards, cards, leaves, leaves};

    for (int k = 0; k < KINDS; k++)
        s->first[k + 1] = s->first[k] + count[k];
}

static int open_all(struct hkt_simulator *s, const struct hkt_algorithm *a, const struct hkt_shape *shape, bool all)
{
    HKT_TRY(hkt_roles_make(&s->roles, a, shape, &s->fabric, all));
    number_servers(s);
    s->rank    = hkt_alloc(s->roles.ranks * sizeof(*s->rank));
    s->pair    = hkt_alloc((s->roles.peers + 1) * sizeof(*s->pair));
    s->free_at = hkt_alloc((s->first[KINDS] + (size_t)1) * sizeof(*s->free_at));
    return s->rank && s->pair && s->free_at ? 0 : HKT_ERR_MEMORY;
}

int hkt_simulator_open(struct hkt_simulator **sim, const struct hkt_algorithm *a, const struct hkt_shape *shape, const struct hkt_fabric *f,
                       bool all)
{
    const char           *why;
    struct hkt_simulator *s;
    int                   rc;

    HKT_TRY(hkt_fabric_check(f));
    if (shape->size != hkt_fabric_ranks(f))
        return hkt_fail(HKT_ERR_ARGUMENT, "a simulation of %d ranks on a fabric of %d", shape->size, hkt_fabric_ranks(f));
    why = hkt_algorithm_refuses(a, shape);
    if (why)
        return hkt_fail(HKT_ERR_UNSUPPORTED, "%s cannot run %s over %d ranks: %s", a->name, hkt_coll_name[shape->coll], shape->size, why);
    s = hkt_alloc(sizeof(*s));
    if (!s)
        return HKT_ERR_MEMORY;
    s->fabric = *f;
    s->coll   = shape->coll;
    rc        = open_all(s, a, shape, all);
    if (rc < 0)
        hkt_simulator_close(s);
    else
        *sim = s;
    return rc;
}
