/* planner_search.c -- every layout of a job, as far as it can matter.
 *
 * Families (tp, cp, pp, dp) are refused whole where a rule of the family is broken. Within one, a variant is not timed
 * when it cannot be better than one that is: memory only grows with the micro-batch, so the first that does not fit
 * with everything recomputed and offloaded ends the row; time only grows with what is recomputed and with offloading,
 * so the first that fits ends that column; and schedules are simulated in the order of their lower bounds until those
 * are above the best time. Nothing else is cut: the result is that of trying everything (a test compares them).
 */
#include <parallel/planner.h>
#include <parallel/rules.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A variant that fits, with the lower bound of its time. */
struct candidate {
    hkt_plan_layout_t layout;
    double            memory;
    hkt_plan_time_t   time;
};

/* Divisors in ascending order; a number below 2^24 has fewer. */
struct divisors {
    int count, value[512];
};

struct search {
    const hkt_plan_job_t    *job;
    const hkt_plan_layout_t *limits;
    hkt_plan_family_t       *family;
    size_t                   count, room;
    struct candidate        *candidate; /* of the family at hand */
    size_t                   candidates, candidate_room;
    struct divisors          of_world, of_batch;
};

static bool within(int limit, int value)
{
    return limit == HKT_PLAN_ANY || limit == value;
}

/* Makes room for one more element of an array. */
static int grow(void **array, size_t count, size_t *room, size_t size)
{
    const size_t more = *room ? 2 * *room : 64;
    void        *grown;

    if (count < *room)
        return 0;
    grown = realloc(*array, more * size);
    if (!grown)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %zu layouts", more);
    *array = grown;
    *room  = more;
    return 0;
}

/* ---- variants of a family ---------------------------------------------------------------------------------------- */

static void refuse(hkt_plan_family_t *f, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    struct hkt_rules rules = {0};

    f->refused++;
    if (f->reason[0])
        return;
    hkt_planner_breaks_variant(&rules, job, l);
    snprintf(f->reason, sizeof(f->reason), "%.*s", (int)sizeof(f->reason) - 1, rules.text);
}

/* The variant that needs least is the one that is told about. */
static void turn_down(hkt_plan_family_t *f, const hkt_plan_job_t *job, const hkt_plan_layout_t *l, double memory)
{
    struct hkt_rules rules = {0};

    f->over++;
    if (f->memory > 0 && memory > f->memory) /* of equals the last, which shares most */
        return;
    f->memory = memory;
    hkt_planner_tell_memory(&rules, job, l);
    snprintf(f->reason, sizeof(f->reason), "even with ZeRO %d, %s recomputation%s and micro-batches of %d %.*s",
             l->zero, l->recompute ? hkt_recompute_name(l->recompute) : "no", l->offload ? ", offloading" : "",
             l->micro_batch, 180, rules.text);
}

static int add_candidate(struct search *s, const hkt_plan_layout_t *l, double memory)
{
    struct candidate *c;

    TRY(grow((void **)&s->candidate, s->candidates, &s->candidate_room, sizeof(*c)));
    c         = &s->candidate[s->candidates++];
    c->layout = *l;
    c->memory = memory;
    hkt_planner_bound(&c->time, s->job, l);
    return 0;
}

/* One of all but what trades time for memory: recomputation and offloading, the fastest first. 1: something fitted. */
static int try_memory(struct search *s, hkt_plan_family_t *f, hkt_plan_layout_t l)
{
    bool fitted = false, outside = false; /* `outside`: only with offloading */

    for (l.recompute = 0; l.recompute < HKT_RECOMPUTES; l.recompute++)
        for (l.offload = 0; l.offload < 2; l.offload++) {
            int    fullest = 0;
            double memory;

            if (!within(s->limits->recompute, l.recompute) || !within(s->limits->offload, l.offload))
                continue;
            if (hkt_planner_breaks_variant(NULL, s->job, &l)) {
                refuse(f, s->job, &l);
                continue;
            }
            if ((fitted && !outside) || (outside && l.offload)) {
                f->skipped++;
                continue;
            }
            memory = hkt_planner_memory(&fullest, s->job, &l);
            if (memory > s->job->machine.memory) {
                turn_down(f, s->job, &l, memory);
                continue;
            }
            TRY(add_candidate(s, &l, memory));
            outside = l.offload == 1;
            fitted  = true;
        }
    return fitted;
}

/* Micro-batches upwards until nothing fits. */
static int try_micro_batches(struct search *s, hkt_plan_family_t *f, hkt_plan_layout_t l)
{
    const int share = s->job->global_batch / l.dp;

    for (int i = 0; i < s->of_batch.count && s->of_batch.value[i] <= share; i++) {
        const size_t over = f->over;
        int          fitted;

        l.micro_batch = s->of_batch.value[i];
        if (share % l.micro_batch || !within(s->limits->micro_batch, l.micro_batch))
            continue;
        fitted = try_memory(s, f, l);
        TRY(fitted);
        if (!fitted && f->over > over)
            break;
    }
    return 0;
}

static int try_shares(struct search *s, hkt_plan_family_t *f, hkt_plan_layout_t l)
{
    for (l.zero = 0; l.zero <= 3; l.zero++)
        for (l.sequence_parallel = 0; l.sequence_parallel <= 1; l.sequence_parallel++)
            if (within(s->limits->zero, l.zero) && within(s->limits->sequence_parallel, l.sequence_parallel))
                TRY(try_micro_batches(s, f, l));
    return 0;
}

static int by_bound(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    return (a->time.step > b->time.step) - (a->time.step < b->time.step);
}

static int choose(struct search *s, hkt_plan_family_t *f)
{
    if (s->candidates)
        qsort(s->candidate, s->candidates, sizeof(*s->candidate), by_bound);
    for (size_t i = 0; i < s->candidates; i++) {
        struct candidate *c = &s->candidate[i];

        if (f->found && c->time.step >= f->time.step) {
            f->skipped += s->candidates - i;
            break;
        }
        TRY(hkt_planner_simulate(&c->time, s->job, &c->layout));
        f->timed++;
        if (f->found && c->time.step >= f->time.step)
            continue;
        f->found  = true;
        f->layout = c->layout;
        f->time   = c->time;
        f->memory = c->memory;
    }
    if (f->found)
        f->reason[0] = 0;
    else if (!f->reason[0])
        snprintf(f->reason, sizeof(f->reason), "no variant is within the limits of the search");
    return 0;
}

/* Layers that the head costs as much as, rounded up. */
static int head_cost(const hkt_plan_model_t *m)
{
    return (int)ceil(2.0 * m->vocabulary * m->hidden / (hkt_planner_linear_flops(m) + hkt_planner_core_flops(m)));
}

static int try_schedule(struct search *s, hkt_plan_family_t *f, hkt_plan_layout_t l)
{
    const int  limit = s->limits->head_layers, most = limit != HKT_PLAN_ANY ? limit
                                                      : l.pp > 1            ? head_cost(&s->job->model)
                                                                            : 0;
    const bool several = l.schedule == HKT_PIPELINE_INTERLEAVED;

    for (l.chunks = several ? 2 : 1; l.chunks <= (several ? (s->job->model.layers + 2) / l.pp : 1); l.chunks++)
        for (l.head_layers = 0; l.head_layers <= most && within(s->limits->chunks, l.chunks); l.head_layers++)
            if (within(limit, l.head_layers) && hkt_plan_stage_layers(&s->job->model, &l, 0) > 0)
                TRY(try_shares(s, f, l));
    return 0;
}

static int try_family(struct search *s, hkt_plan_family_t *f)
{
    static const int  schedules[] = {HKT_PIPELINE_1F1B, HKT_PIPELINE_INTERLEAVED, HKT_PIPELINE_ZERO_BUBBLE,
                                     HKT_PIPELINE_GPIPE};
    hkt_plan_layout_t l           = f->layout;

    s->candidates = 0;
    for (int i = 0; i < (s->limits->schedule == HKT_PLAN_ANY ? 3 : 4) && (i == 0 || l.pp > 1); i++) {
        l.schedule = schedules[i];
        if (within(s->limits->schedule, l.schedule))
            TRY(try_schedule(s, f, l));
    }
    return choose(s, f);
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static int add_family(struct search *s, int tp, int cp, int pp)
{
    struct hkt_rules   rules = {0};
    hkt_plan_family_t *f;

    TRY(grow((void **)&s->family, s->count, &s->room, sizeof(*f)));
    f            = &s->family[s->count++];
    *f           = (hkt_plan_family_t){.layout = HKT_PLAN_LAYOUT_ANY};
    f->layout.tp = tp;
    f->layout.cp = cp;
    f->layout.pp = pp;
    f->layout.dp = s->job->world / tp / cp / pp;
    if (!hkt_planner_breaks_family(&rules, s->job, &f->layout))
        return try_family(s, f);
    f->refused = 1;
    snprintf(f->reason, sizeof(f->reason), "%.*s", (int)sizeof(f->reason) - 1, rules.text);
    return 0;
}

static void find_divisors(struct divisors *of, int n)
{
    of->count = 0;
    for (int d = 1; d <= n && of->count < (int)(sizeof(of->value) / sizeof(of->value[0])); d++)
        if (n % d == 0)
            of->value[of->count++] = d;
}

static int add_families(struct search *s)
{
    const hkt_plan_layout_t *limits = s->limits;
    const int               *d      = s->of_world.value;

    for (int t = 0; t < s->of_world.count; t++)
        for (int c = 0; c < s->of_world.count && within(limits->tp, d[t]); c++)
            for (int p = 0; p < s->of_world.count && within(limits->cp, d[c]); p++) {
                const long long devices = (long long)d[t] * d[c] * d[p];

                if (devices <= s->job->world && s->job->world % devices == 0 && within(limits->pp, d[p]) &&
                    within(limits->dp, (int)(s->job->world / devices)))
                    TRY(add_family(s, d[t], d[c], d[p]));
            }
    return 0;
}

/* Plans by time; then what nearly fitted, by memory; then what broke rules. Ties in the order they were found. */
static int compare(const void *left, const void *right)
{
    const hkt_plan_family_t *a = left, *b = right;
    const double             x = a->found ? a->time.step : DBL_MAX, y = b->found ? b->time.step : DBL_MAX;
    const double             u = a->memory > 0 ? a->memory : DBL_MAX, v = b->memory > 0 ? b->memory : DBL_MAX;
    const int i[] = {a->layout.tp, a->layout.cp, a->layout.pp}, j[] = {b->layout.tp, b->layout.cp, b->layout.pp};

    if (x < y || x > y)
        return x < y ? -1 : 1;
    if (!a->found && (u < v || u > v))
        return u < v ? -1 : 1;
    for (int k = 0; k < 3; k++)
        if (i[k] != j[k])
            return i[k] < j[k] ? -1 : 1;
    return 0;
}

int hkt_plan_search(hkt_plan_family_t **family, size_t *count, const hkt_plan_job_t *job,
                    const hkt_plan_layout_t *limits)
{
    static const hkt_plan_layout_t any = HKT_PLAN_LAYOUT_ANY;
    struct search                  s   = {.job = job, .limits = limits ? limits : &any};
    int                            rc;

    TRY(hkt_planner_check_job(job));
    find_divisors(&s.of_world, job->world);
    find_divisors(&s.of_batch, job->global_batch);
    rc = add_families(&s);
    free(s.candidate);
    if (rc == 0 && s.count == 0)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "no layout of %d devices has TP %d, CP %d, PP %d, DP %d (-1: any)",
                           job->world, s.limits->tp, s.limits->cp, s.limits->pp, s.limits->dp);
    if (rc) {
        free(s.family);
        return rc;
    }
    qsort(s.family, s.count, sizeof(*s.family), compare);
    *family = s.family;
    *count  = s.count;
    return 0;
}

void hkt_plan_search_free(hkt_plan_family_t *family)
{
    free(family);
}
