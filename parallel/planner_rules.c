/* planner_rules.c -- what makes a layout impossible or unwise, as a table. A rule says whether it is broken and, for
 * the one who asks, with which values and which would be valid. Rules of a family see only tp, cp, pp and dp, so that
 * the search refuses a whole family at once. Memory is the last rule and stands alone, as it costs more to find.
 */
#include <parallel/planner.h>
#include <parallel/rules.h>

/* Rules are told to `r`, or to nobody when it is NULL. */
#define TELL(r, ...) ((r) ? hkt_rules_add(r, __VA_ARGS__) : (void)0)
#define GO_ON(r, ...) ((r) ? hkt_rules_more(r, __VA_ARGS__) : (void)0)

/* "1, 2, 4": the divisors of `value` up to `most`. */
static void tell_divisors(struct hkt_rules *r, int value, int most)
{
    const char *between = "";

    for (int d = 1; r && d <= value && d <= most; d++)
        if (value % d == 0) {
            GO_ON(r, "%s%d", between, d);
            between = ", ";
        }
}

typedef bool rule_fn(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l);

/* ---- rules of a family ------------------------------------------------------------------------------------------- */

static bool sizes(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    (void)job;
    if (l->tp >= 1 && l->cp >= 1 && l->pp >= 1 && l->dp >= 1)
        return false;
    TELL(r, "TP %d, CP %d, PP %d and DP %d must be 1 or more", l->tp, l->cp, l->pp, l->dp);
    return true;
}

static bool world(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    const long long devices = (long long)l->tp * l->cp * l->pp;

    if (devices <= job->world && devices * l->dp == job->world)
        return false;
    TELL(r, "TP %d x CP %d x PP %d x DP %d are not the %d devices of the world", l->tp, l->cp, l->pp, l->dp,
         job->world);
    if (devices <= job->world && job->world % devices == 0)
        GO_ON(r, "; DP %lld would be", job->world / devices);
    else
        GO_ON(r, "; TP x CP x PP must divide it");
    return true;
}

/* One message for everything that is cut by TP. */
static bool divides(struct hkt_rules *r, const char *what, int value, const hkt_plan_layout_t *l)
{
    if (value % l->tp == 0)
        return false;
    TELL(r, "TP %d does not divide the %d %s; valid: ", l->tp, value, what);
    tell_divisors(r, value, 64);
    return true;
}

static bool heads(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    return divides(r, "heads", job->model.heads, l);
}

static bool kv_heads(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    return job->model.kv_heads != job->model.heads && divides(r, "heads of keys and values", job->model.kv_heads, l);
}

static bool hidden(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    return divides(r, "columns of the hidden state", job->model.hidden, l);
}

static bool ffn(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    return divides(r, "columns of the MLP", job->model.ffn, l);
}

static bool node(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    const hkt_plan_link_t *fast = &job->machine.link[0];

    if (job->options & HKT_PLAN_TP_ANYWHERE || fast->span == 0 || fast->span % l->tp == 0)
        return false;
    TELL(r, "TP %d would leave the %d devices joined by %s; valid: ", l->tp, fast->span, fast->name);
    tell_divisors(r, fast->span, fast->span);
    return true;
}

static bool context(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->cp == 1)
        return false;
    if (!job->model.blocked) {
        TELL(r, "CP %d needs blocked attention, as no device sees all keys at once; valid: 1", l->cp);
        return true;
    }
    /* two pieces a device, one early and one late, so that the causal mask leaves equal work */
    if (job->model.sequence % (2 * (long long)l->cp) == 0)
        return false;
    TELL(r, "CP %d: a sequence of %d is cut into 2 CP pieces; valid: ", l->cp, job->model.sequence);
    tell_divisors(r, job->model.sequence / 2, 64);
    return true;
}

static bool stages(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->pp <= job->model.layers)
        return false;
    TELL(r, "PP %d: there are only %d layers for so many stages", l->pp, job->model.layers);
    return true;
}

static bool batch(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (job->global_batch % l->dp == 0)
        return false;
    TELL(r, "DP %d does not divide the %d sequences of the global batch; valid: ", l->dp, job->global_batch);
    tell_divisors(r, job->global_batch, job->world);
    return true;
}

/* ---- rules of the rest ------------------------------------------------------------------------------------------- */

static bool schedule(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    const bool known = l->schedule == HKT_PIPELINE_GPIPE || l->schedule == HKT_PIPELINE_1F1B ||
                       l->schedule == HKT_PIPELINE_INTERLEAVED || l->schedule == HKT_PIPELINE_ZERO_BUBBLE;

    (void)job;
    if (!known)
        TELL(r, "schedule %d: gpipe, 1f1b, interleaved and zero bubble train", l->schedule);
    else if (l->pp == 1 && l->schedule != HKT_PIPELINE_1F1B)
        TELL(r, "schedule %s without stages; valid: %s", hkt_pipeline_name((hkt_pipeline_kind_t)l->schedule),
             hkt_pipeline_name(HKT_PIPELINE_1F1B));
    else if ((l->schedule == HKT_PIPELINE_INTERLEAVED) != (l->chunks > 1))
        TELL(r, "schedule %s with %d chunks on a stage; interleaved has more than one, the others one",
             hkt_pipeline_name((hkt_pipeline_kind_t)l->schedule), l->chunks);
    else
        return false;
    return true;
}

static bool micro_batch(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    const int share = job->global_batch / l->dp;

    if (l->micro_batch >= 1 && share % l->micro_batch == 0)
        return false;
    TELL(r, "micro-batches of %d do not divide the %d sequences of a replica; valid: ", l->micro_batch, share);
    tell_divisors(r, share, 64);
    return true;
}

/* So many sequences that CP could be DP: the same tokens on a device without keys and values on their way. */
static bool ring(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    (void)job;
    for (int d = 2; d <= l->cp && d <= l->micro_batch; d++)
        if (l->cp % d == 0 && l->micro_batch % d == 0) {
            TELL(r,
                 "CP %d with micro-batches of %d: CP %d, DP %d and micro-batches of %d are the same with less on the "
                 "links",
                 l->cp, l->micro_batch, l->cp / d, l->dp * d, l->micro_batch / d);
            return true;
        }
    return false;
}

static bool head(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    const long long parts = (long long)l->pp * l->chunks, layers = job->model.layers;
    int             most = 0;

    if (l->head_layers == 0 || l->chunks < 1 || parts > layers)
        return false;
    while (l->pp > 1 && (layers + most + 1) / parts > most + 1)
        most++;
    if (l->head_layers > 0 && l->head_layers <= most)
        return false;
    TELL(r, "the head in the place of %d layers of the last of %lld chunks; valid: 0 to %d", l->head_layers, parts,
         most);
    return true;
}

static bool chunks(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    hkt_plan_layout_t other   = *l;
    const char       *between = "";

    if (l->pp > job->model.layers || head(NULL, job, l) || hkt_plan_stage_layers(&job->model, l, 0) > 0)
        return false;
    TELL(r, "%d layers%s do not make %d chunks on each of %d stages; valid: ", job->model.layers,
         l->head_layers ? " and the head" : "", l->chunks, l->pp);
    for (other.chunks = 1; r && other.chunks <= (l->pp > 1 ? (job->model.layers + 2) / l->pp : 1); other.chunks++)
        if (hkt_plan_stage_layers(&job->model, &other, 0) > 0) {
            GO_ON(r, "%s%d", between, other.chunks);
            between = ", ";
        }
    return true;
}

static bool rounds(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->schedule != HKT_PIPELINE_INTERLEAVED || l->micro_batch < 1 || hkt_planner_micro_batches(job, l) % l->pp == 0)
        return false;
    TELL(r, "an interleaved schedule takes micro-batches in rounds of PP %d, and there are %d", l->pp,
         hkt_planner_micro_batches(job, l));
    return true;
}

static bool zero(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->zero < 0 || l->zero > 3) {
        TELL(r, "ZeRO %d: there are stages 0, 1, 2 and 3", l->zero);
        return true;
    }
    if (l->zero > 0 && hkt_planner_shards(l) == 1) {
        TELL(r, "ZeRO %d: with DP 1 and CP 1 nobody is there to share with", l->zero);
        return true;
    }
    if (l->zero < 2 || l->pp == 1 || job->options & HKT_PLAN_ZERO_ANYWHERE)
        return false;
    TELL(r, "ZeRO %d under PP %d would reduce all gradients for every micro-batch; valid: 0, 1", l->zero, l->pp);
    return true;
}

static bool sequence(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->sequence_parallel == 0)
        return false;
    if (l->sequence_parallel != 1 || l->tp == 1) {
        TELL(r, "sequence parallelism is 0 or 1 and needs TP above 1 (it is %d with TP %d)", l->sequence_parallel,
             l->tp);
        return true;
    }
    if (job->model.sequence / l->cp % l->tp == 0)
        return false;
    TELL(r, "sequence parallelism: TP %d does not divide the %d tokens of a device; valid: ", l->tp,
         job->model.sequence / l->cp);
    tell_divisors(r, job->model.sequence / l->cp, 64);
    return true;
}

static bool recompute(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->recompute < 0 || l->recompute >= HKT_RECOMPUTES) {
        TELL(r, "recomputation %d: there are 0 (none), 1 (selective) and 2 (full)", l->recompute);
        return true;
    }
    if (l->recompute != HKT_RECOMPUTE_SELECTIVE || !job->model.blocked)
        return false;
    TELL(r, "selective recomputation: blocked attention keeps nothing that it could drop; valid: none, full");
    return true;
}

static bool offload(struct hkt_rules *r, const hkt_plan_job_t *job, const hkt_plan_layout_t *l)
{
    if (l->offload == 0 || (l->offload == 1 && job->machine.host > 0))
        return false;
    TELL(r, "offload %d: 0 or 1 is expected, and machine %s %s a place for optimizer state", l->offload,
         job->machine.name ? job->machine.name : "", job->machine.host > 0 ? "has" : "lacks");
    return true;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static rule_fn *const of_family[]  = {world, heads, kv_heads, hidden, ffn, node, context, stages, batch};
static rule_fn *const of_variant[] = {schedule, micro_batch, ring,     head,      chunks,
                                      rounds,   zero,        sequence, recompute, offload};

enum {
    FAMILY_RULES  = sizeof(of_family) / sizeof(of_family[0]),
    VARIANT_RULES = sizeof(of_variant) / sizeof(of_variant[0])
};

bool hkt_planner_breaks_family(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    bool broken = sizes(rules, job, layout); /* then the others cannot be asked */

    for (int i = 0; i < FAMILY_RULES && !broken; i++)
        broken = of_family[i](rules, job, layout);
    return broken;
}

bool hkt_planner_breaks_variant(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    bool broken = false;

    for (int i = 0; i < VARIANT_RULES && !broken; i++)
        broken = of_variant[i](rules, job, layout);
    return broken;
}

void hkt_planner_tell_memory(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    const double     gib = 1 << 30;
    hkt_plan_stage_t stage;
    int              fullest = 0;

    hkt_planner_memory(&fullest, job, layout);
    hkt_planner_stage_memory(&stage, fullest, job, layout);
    TELL(rules, "stage %d needs %.1f GiB of %.1f (", fullest, stage.total / gib, job->machine.memory / gib);
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        GO_ON(rules, "%s%s %.1f", kind ? ", " : "", hkt_bytes_name((hkt_bytes_t)kind), stage.bytes[kind] / gib);
    GO_ON(rules, ")");
}

/* All of them but memory. */
static int find_broken(struct hkt_rules *rules, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    TRY(hkt_planner_check_job(job));
    if (sizes(rules, job, layout))
        return rules->broken;
    for (int i = 0; i < FAMILY_RULES; i++)
        of_family[i](rules, job, layout);
    for (int i = 0; i < VARIANT_RULES; i++)
        of_variant[i](rules, job, layout);
    return rules->broken;
}

int hkt_plan_check(char *text, size_t size, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    struct hkt_rules rules   = {0};
    int              fullest = 0, broken;

    broken = find_broken(&rules, job, layout);
    TRY(broken);
    if (broken == 0 && hkt_planner_memory(&fullest, job, layout) > job->machine.memory)
        hkt_planner_tell_memory(&rules, job, layout);
    if (size)
        snprintf(text, size, "%s", rules.text);
    return rules.broken;
}

int hkt_plan_memory(hkt_plan_stage_t *stage, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    struct hkt_rules rules = {0};

    TRY(find_broken(&rules, job, layout));
    TRY(hkt_rules_end(&rules, "the layout"));
    for (int i = 0; i < layout->pp; i++)
        hkt_planner_stage_memory(&stage[i], i, job, layout);
    return 0;
}

int hkt_plan_time(hkt_plan_time_t *time, const hkt_plan_job_t *job, const hkt_plan_layout_t *layout)
{
    struct hkt_rules rules = {0};
    hkt_plan_time_t  found;

    TRY(find_broken(&rules, job, layout));
    TRY(hkt_rules_end(&rules, "the layout"));
    hkt_planner_bound(&found, job, layout);
    TRY(hkt_planner_simulate(&found, job, layout));
    *time = found;
    return 0;
}
