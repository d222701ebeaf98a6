/* cost.c -- see cost.h. */
#include "cost.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inside a host these do; what is tried across hosts is everything. */
static const char *const inner_choice[] = {"direct", "ring"};

enum { INNERS = sizeof(inner_choice) / sizeof(inner_choice[0]) };

/* A simulation that is open, and for what. */
struct known {
    const struct hkt_algorithm *algorithm;
    const char                 *inner, *outer;
    enum hkt_coll               coll;
    int                         root;
    struct hkt_simulator       *sim;
};

struct hkt_predictor {
    struct hkt_fabric fabric;
    struct hkt_link   near, far; /* for the formulas */
    int               groups, largest; /* hosts, or caches on one host; ranks of the largest */
    int              *group_start;     /* in places */
    int              *label;           /* ranks group by group; NULL: they are numbered so */
    struct known     *known;
    uint32_t          count, cap;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* A fabric as the formulas see it: one kind of link, or two, where cards are shared by ranks as they are. */
static void find_links(struct hkt_predictor *p)
{
    const struct hkt_fabric *f     = &p->fabric;
    const struct hkt_span_cost   *in    = &f->wire[f->per_cache && f->per_cache < f->per_host ? HKT_SPAN_HOST : HKT_SPAN_CACHE];
    const struct hkt_span_cost   *out   = &f->wire[HKT_SPAN_NETWORK];
    const double             share = f->rails && f->rails < f->per_host ? (double)f->per_host / f->rails : 1;

    p->near = (struct hkt_link){in->alpha + 2 * in->overhead, in->overhead + in->gap, in->beta + in->touch, f->gamma, NULL};
    p->far  = (struct hkt_link){out->alpha + 2 * out->overhead, out->overhead + out->gap, out->beta * share + out->touch, f->gamma, NULL};
    if (f->per_host == 1)
        p->near = p->far;
    p->near.outer = &p->far;
}

static int group_of(const struct hkt_fabric *f, int rank)
{
    if (f->hosts > 1 || !f->per_cache)
        return (int)hkt_fabric_host(f, (uint32_t)rank);
    return f->seat ? f->seat[rank].cache : rank / f->per_cache;
}

/* Ranks of one group by their numbers on the host, groups by theirs. */
static int before(const struct hkt_fabric *f, int a, int b)
{
    const int by_group = group_of(f, a) - group_of(f, b), by_local = (int)hkt_fabric_local(f, (uint32_t)a) - (int)hkt_fabric_local(f, (uint32_t)b);

    return by_group ? by_group : by_local ? by_local : a - b;
}

/* Sorts by insertion: ranks that have seats are few, or nearly in order. Empty groups are left out. */
static int find_groups(struct hkt_predictor *p)
{
    const struct hkt_fabric *f    = &p->fabric;
    const int                n    = hkt_fabric_ranks(f);
    bool                     runs = true;

    p->label       = hkt_alloc((size_t)n * sizeof(*p->label));
    p->group_start = hkt_alloc(((size_t)n + 1) * sizeof(*p->group_start));
    if (!p->label || !p->group_start)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < n; r++) {
        int at = r;

        for (; at && before(f, p->label[at - 1], r) > 0; at--)
            p->label[at] = p->label[at - 1];
        p->label[at] = r;
        runs &= at == r;
    }
    for (int k = 0; k < n; k++)
        if (!k || group_of(f, p->label[k]) != group_of(f, p->label[k - 1]))
            p->group_start[p->groups++] = k;
    p->group_start[p->groups] = n;
    for (int g = 0; g < p->groups; g++)
        if (p->group_start[g + 1] - p->group_start[g] > p->largest)
            p->largest = p->group_start[g + 1] - p->group_start[g];
    if (runs) {
        hkt_free(p->label);
        p->label = NULL;
    }
    return 0;
}

int hkt_predictor_open(struct hkt_predictor **out, const struct hkt_fabric *f)
{
    struct hkt_predictor *p;

    HKT_TRY(hkt_fabric_check(f));
    p = hkt_alloc(sizeof(*p));
    if (!p)
        return HKT_ERR_MEMORY;
    p->fabric = *f;
    if (find_groups(p)) {
        hkt_predictor_close(p);
        return HKT_ERR_MEMORY;
    }
    find_links(p);
    *out = p;
    return 0;
}

void hkt_predictor_close(struct hkt_predictor *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->count; i++)
        hkt_simulator_close(p->known[i].sim);
    hkt_free(p->known);
    hkt_free(p->group_start);
    hkt_free(p->label);
    hkt_free(p);
}

struct hkt_shape hkt_predictor_shape(const struct hkt_predictor *p, const struct hkt_question *q, const struct hkt_offer *o, int rank)
{
    const bool kept  = q->canonical && hkt_coll_in(q->coll, HKT_COLLS_REDUCING) && p->label; /* rank by rank, whoever is where */
    struct hkt_shape shape = {.coll  = q->coll,
                              .rank  = rank,
                              .size  = hkt_fabric_ranks(&p->fabric),
                              .root  = q->root,
                              .label = kept ? NULL : p->label,
                              .inner = o->inner,
                              .outer = o->outer};

    if (!kept && p->groups > 1 && p->largest > 1) {
        shape.ngroups     = p->groups;
        shape.group_start = p->group_start;
    }
    return shape;
}

/* ---- one ---------------------------------------------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static int simulator(struct hkt_predictor *p, const struct hkt_offer *o, const struct hkt_shape *shape, struct hkt_simulator **sim)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const struct known *k = &p->known[i];

        if (k->algorithm == o->algorithm && k->coll == shape->coll && k->root == shape->root && same_name(k->inner, o->inner) &&
            same_name(k->outer, o->outer)) {
            *sim = k->sim;
            return 0;
        }
    }
    if (p->count == p->cap) {
        void *more = hkt_realloc(p->known, (p->cap ? 2 * (size_t)p->cap : 16) * sizeof(*p->known));

        if (!more)
            return HKT_ERR_MEMORY;
        p->known = more;
        p->cap   = p->cap ? 2 * p->cap : 16;
    }
    HKT_TRY(hkt_simulator_open(sim, o->algorithm, shape, &p->fabric, false));
    p->known[p->count++] = (struct known){o->algorithm, o->inner, o->outer, shape->coll, shape->root, *sim};
    return 0;
}

/* Steps run in order, so a rank that waits for one block does not send the next: where rounds have many blocks the formulas count a latency a
 * round, but one a block is paid (docs/simulator.md). Without a replay these are not offered. */
static bool formula_misleads(const char *name)
{
    static const char *const names[] = {"circulant", "halving", "bruck", "tree", "pat"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (name && !strcmp(name, names[i]))
            return true;
    return false;
}

static int replay(struct hkt_predictor *p, const struct hkt_question *q, const struct hkt_shape *shape, struct hkt_offer *o)
{
    const struct hkt_sim_load load = {.bytes = q->bytes, .slices = q->slices, .slice_bytes = q->slice_bytes};
    struct hkt_simulator     *sim;
    const int                 rc = simulator(p, o, shape, &sim);

    if (rc == HKT_ERR_UNSUPPORTED) {
        snprintf(o->why, sizeof(o->why), "%.*s", (int)sizeof(o->why) - 1, hkt_last_error());
        return 0;
    }
    return rc < 0 ? rc : hkt_simulator_run(sim, &load, &o->result);
}

int hkt_predict(struct hkt_predictor *p, const struct hkt_question *q, struct hkt_offer *o)
{
    const struct hkt_shape shape  = hkt_predictor_shape(p, q, o, q->root);
    const bool             across = p->fabric.hosts > 1 && (!shape.ngroups || strcmp(o->algorithm->name, "hierarchical") != 0);
    const char            *why    = hkt_algorithm_refuses(o->algorithm, &shape);

    o->why[0] = 0;
    if (!why && !(o->canonical = hkt_algorithm_canonical(o->algorithm, &shape)) && q->canonical)
        why = "it sums in another order than the canonical one";
    if (!why && q->formula && (formula_misleads(o->algorithm->name) || formula_misleads(o->outer)))
        why = "its formula is that of an engine that runs ahead, and there are too many ranks for a replay";
    if (why) {
        snprintf(o->why, sizeof(o->why), "%s", why);
        return 0;
    }
    o->formula = hkt_algorithm_cost(o->algorithm, &shape, q->bytes, across ? &p->far : &p->near);
    if (!q->formula)
        return replay(p, q, &shape, o);
    o->result.seconds = o->formula;
    return 0;
}

/* ---- all ---------------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct hkt_offer *x = a, *y = b;

    if (!x->why[0] != !y->why[0])
        return x->why[0] ? 1 : -1;
    if (x->result.seconds != y->result.seconds)
        return x->result.seconds < y->result.seconds ? -1 : 1;
    return strcmp(x->algorithm->name, y->algorithm->name);
}

static bool composes(const struct hkt_predictor *p, const struct hkt_algorithm *a)
{
    return !strcmp(a->name, "hierarchical") && p->groups > 1 && p->largest > 1;
}

int hkt_predict_all(struct hkt_predictor *p, const struct hkt_question *q, struct hkt_offer offer[HKT_OFFERS_MOST], int *count)
{
    int n = 0;

    for (int i = 0; hkt_algorithms[i]; i++) {
        const struct hkt_algorithm *a = hkt_algorithms[i];

        if (!hkt_coll_in(q->coll, a->colls))
            continue;
        if (!composes(p, a) && n < HKT_OFFERS_MOST)
            offer[n++] = (struct hkt_offer){.algorithm = a};
        for (int in = 0; in < INNERS && composes(p, a); in++)
            for (int out = 0; hkt_algorithms[out]; out++)
                if (hkt_algorithms[out] != a && hkt_coll_in(q->coll, hkt_algorithms[out]->colls) && n < HKT_OFFERS_MOST)
                    offer[n++] = (struct hkt_offer){.algorithm = a, .inner = inner_choice[in], .outer = hkt_algorithms[out]->name};
    }
    for (int i = 0; i < n; i++)
        HKT_TRY(hkt_predict(p, q, &offer[i]));
    qsort(offer, (size_t)n, sizeof(*offer), by_time);
    *count = n;
    return 0;
}

/* ---- saying why --------------------------------------------------------------------------------------------------- */

const char *hkt_offer_name(const struct hkt_offer *o, char text[64])
{
    if (o->outer)
        snprintf(text, 64, "%s(%s,%s)", o->algorithm->name, o->inner, o->outer);
    else
        snprintf(text, 64, "%s", o->algorithm->name);
    return text;
}

const char *hkt_time_text(double seconds, char text[24])
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int                      i      = 0;

    for (seconds *= 1e9; i < 3 && seconds >= 999.5; i++)
        seconds /= 1000;
    snprintf(text, 24, seconds < 99.95 ? "%.1f %s" : "%.0f %s", seconds, unit[i]);
    return text;
}

const char *hkt_offer_reason(const struct hkt_offer *o, char text[200])
{
    const double *part = o->result.part;
    int           first = 0, second = -1;
    char          a[24], b[24];

    if (o->why[0]) {
        snprintf(text, 200, "cannot: %s", o->why);
        return text;
    }
    for (int i = 1; i < HKT_TIME_PARTS; i++)
        if (part[i] > part[first]) {
            second = first;
            first  = i;
        } else if (second < 0 || part[i] > part[second]) {
            second = i;
        }
    if (!o->result.ranks) {
        snprintf(text, 200, "%s by formula", hkt_time_text(o->result.seconds, a));
        return text;
    }
    snprintf(text, 200, "%u message%s one after the other; %s %s of %s", o->result.hops, o->result.hops == 1 ? "" : "s",
             hkt_time_part_name[first], hkt_time_text(part[first], a), hkt_time_text(o->result.seconds, b));
    if (part[second] > o->result.seconds / 100)
        snprintf(text + strlen(text), 200 - strlen(text), ", %s %s", hkt_time_part_name[second], hkt_time_text(part[second], a));
    return text;
}

/* ---- what cannot be beaten ---------------------------------------------------------------------------------------- */

double hkt_bus_factor(enum hkt_coll coll, int ranks)
{
    const double others = (double)(ranks - 1) / ranks;

    if (coll == HKT_COLL_ALL_REDUCE)
        return 2 * others;
    return coll == HKT_COLL_BROADCAST || coll == HKT_COLL_REDUCE ? ranks > 1 : others;
}

/* Bytes that must leave, or reach, one of `parts` equal parts of the ranks. */
static double crossing(const struct hkt_question *q, int ranks, int parts)
{
    const double all = q->coll == HKT_COLL_ALL_TO_ALL ? (double)ranks / parts : 1;

    return all * hkt_bus_factor(q->coll, parts) * q->bytes;
}

double hkt_lower_bound(const struct hkt_question *q, const struct hkt_fabric *f, const char **what)
{
    const int              n    = hkt_fabric_ranks(f);
    const enum hkt_span    near = f->per_cache && f->per_cache < f->per_host ? HKT_SPAN_HOST : HKT_SPAN_CACHE;
    const struct hkt_span_cost *wire = &f->wire[f->hosts > 1 ? HKT_SPAN_NETWORK : near];
    const double           card = f->wire[HKT_SPAN_NETWORK].beta / (f->rails ? f->rails : f->per_host);
    const struct {
        const char *what;
        double      seconds;
    } row[] = {
        {"latency", 0},
        {"port", f->hosts == 1 ? crossing(q, n, n) * (wire->beta > wire->touch ? wire->beta : wire->touch) : 0},
        {"card", f->hosts > 1 ? crossing(q, n, f->hosts) * card : 0},
        {"uplink", f->per_leaf ? crossing(q, n, f->hosts / f->per_leaf) * card * f->oversubscription / f->per_leaf : 0},
    };
    int most = 0;

    for (int i = 1; i < (int)(sizeof(row) / sizeof(row[0])); i++)
        if (row[i].seconds > row[most].seconds)
            most = i;
    *what = row[most].seconds > wire->alpha ? row[most].what : "latency";
    return n > 1 ? wire->alpha + row[most].seconds : 0;
}
