/* pipeline_check.c -- runs programs in the strictest way there is: a stage does one thing at a time, and a send waits
 * for its receive.
 *
 * What passes here cannot block under any transport that buffers more or does more at once. Beside deadlock it finds
 * everything that would make a step wrong: a computation whose input is not there, something done twice, done after
 * nothing, or left out. */
#include <parallel/pipeline.h>

#include <string.h>

/* What has happened to a (chunk, micro-batch) of a stage; a bit per action. */
struct machine {
    const hkt_pipeline_shape_t     *shape;
    const hkt_instruction_t *const *lists;
    const size_t                   *counts;
    size_t                         *at;    /* [stages] */
    double                         *clock; /* [stages] */
    uint16_t                       *done;  /* [stages][chunks][micros] */
    void                           *memory;
};

static uint16_t bit(hkt_action_t action)
{
    return (uint16_t)(1u << action);
}

static uint16_t *state_of(const struct machine *m, int stage, const hkt_instruction_t *in)
{
    return &m->done[(size_t)stage * (size_t)m->shape->chunks * (size_t)m->shape->micros + hkt_pair(m->shape, in)];
}

/* Actions that each virtual stage of a shape has. */
static uint16_t actions_of(const hkt_pipeline_shape_t *s, int virtual_stage)
{
    const bool first = virtual_stage == 0, last = virtual_stage == hkt_last_virtual_stage(s);
    uint16_t   all = bit(HKT_DO_FORWARD);

    if (s->kind == HKT_PIPELINE_ZERO_BUBBLE)
        all |= bit(HKT_DO_BACKWARD_INPUT) | bit(HKT_DO_BACKWARD_WEIGHT);
    else if (s->kind != HKT_PIPELINE_FORWARD)
        all |= bit(HKT_DO_BACKWARD);
    all |= first ? 0 : bit(HKT_DO_RECV_FORWARD);
    all |= last ? 0 : bit(HKT_DO_SEND_FORWARD);
    if (s->kind != HKT_PIPELINE_FORWARD)
        all |= (first ? 0 : bit(HKT_DO_SEND_BACKWARD)) | (last ? 0 : bit(HKT_DO_RECV_BACKWARD));
    return all;
}

/* What has to be done before an action, of what the virtual stage has at all. */
static uint16_t needs(hkt_action_t action)
{
    static const uint16_t before[HKT_ACTIONS] = {
        [HKT_DO_FORWARD]         = 1 << HKT_DO_RECV_FORWARD,
        [HKT_DO_BACKWARD]        = 1 << HKT_DO_FORWARD | 1 << HKT_DO_RECV_BACKWARD,
        [HKT_DO_BACKWARD_INPUT]  = 1 << HKT_DO_FORWARD | 1 << HKT_DO_RECV_BACKWARD,
        [HKT_DO_BACKWARD_WEIGHT] = 1 << HKT_DO_BACKWARD_INPUT,
        [HKT_DO_SEND_FORWARD]    = 1 << HKT_DO_FORWARD,
        [HKT_DO_SEND_BACKWARD]   = 1 << HKT_DO_BACKWARD | 1 << HKT_DO_BACKWARD_INPUT,
    };

    return before[action];
}

static int complain(const struct machine *m, int stage, const char *why)
{
    char text[64];

    (void)hkt_instruction_text(text, sizeof(text), &m->lists[stage][m->at[stage]]);
    return hkt_error_set(HKT_ERR_USAGE, "stage %d, instruction %zu (%s): %s", stage, m->at[stage], text, why);
}

/* The instruction of a stage may be done now, and only now. */
static int inspect(const struct machine *m, int stage)
{
    const hkt_pipeline_shape_t *s  = m->shape;
    const hkt_instruction_t    *in = &m->lists[stage][m->at[stage]];
    uint16_t                    has, *done;

    if ((unsigned)in->action >= HKT_ACTIONS || in->chunk < 0 || in->chunk >= s->chunks || in->micro < 0 ||
        in->micro >= s->micros)
        return complain(m, stage, "there is no such action, chunk or micro-batch");
    has  = actions_of(s, hkt_virtual_stage(s, stage, in->chunk));
    done = state_of(m, stage, in);
    if (!(has & bit(in->action)))
        return complain(m, stage, "this schedule, or this virtual stage, has no such action");
    if (*done & bit(in->action))
        return complain(m, stage, "it has been done before");
    if (needs(in->action) & has & ~*done)
        return complain(m, stage, "what it needs has not been received or computed");
    return HKT_OK;
}

static bool is_message(hkt_action_t action)
{
    return action >= HKT_DO_SEND_FORWARD;
}

/* The stage at the other end waits with exactly the other end of this message. */
static bool meets(const struct machine *m, int stage)
{
    const hkt_pipeline_shape_t *s       = m->shape;
    const hkt_instruction_t    *in      = &m->lists[stage][m->at[stage]], *other;
    const bool                  sends   = in->action == HKT_DO_SEND_FORWARD || in->action == HKT_DO_SEND_BACKWARD;
    const bool                  forward = in->action == HKT_DO_SEND_FORWARD || in->action == HKT_DO_RECV_FORWARD;
    const int          to = hkt_virtual_stage(s, stage, in->chunk) + (forward == sends ? 1 : -1), peer = to % s->stages;
    const hkt_action_t wanted = forward ? (sends ? HKT_DO_RECV_FORWARD : HKT_DO_SEND_FORWARD)
                                        : (sends ? HKT_DO_RECV_BACKWARD : HKT_DO_SEND_BACKWARD);

    if (in->peer != peer || m->at[peer] == m->counts[peer])
        return false;
    other = &m->lists[peer][m->at[peer]];
    return other->action == wanted && other->peer == stage && other->chunk == to / s->stages &&
           other->micro == in->micro;
}

static void finish(struct machine *m, int stage, double clock)
{
    const hkt_instruction_t *in = &m->lists[stage][m->at[stage]];

    *state_of(m, stage, in) |= bit(in->action);
    m->clock[stage] = clock;
    m->at[stage]++;
}

/* One instruction of a stage; 1: done, 0: it waits for another stage. */
static int step(struct machine *m, int stage)
{
    const hkt_instruction_t *in;
    double                   clock;
    int                      peer;

    if (m->at[stage] == m->counts[stage])
        return 0;
    TRY(inspect(m, stage));
    in = &m->lists[stage][m->at[stage]];
    if (!is_message(in->action)) {
        finish(m, stage,
               m->clock[stage] +
                   hkt_pipeline_seconds(NULL, m->shape, in->action, hkt_virtual_stage(m->shape, stage, in->chunk)));
        return 1;
    }
    if (!meets(m, stage))
        return 0;
    peer  = in->peer;
    clock = m->clock[stage] > m->clock[peer] ? m->clock[stage] : m->clock[peer];
    TRY(inspect(m, peer));
    finish(m, stage, clock);
    finish(m, peer, clock);
    return 1;
}

/* Nobody can go on, and somebody is not through: which stages wait with what. */
static int deadlock(const struct machine *m)
{
    char   who[768] = "", text[64];
    size_t used     = 0;

    for (int r = 0; r < m->shape->stages && used < sizeof(who) - 1; r++) {
        int n;

        if (m->at[r] == m->counts[r])
            n = snprintf(who + used, sizeof(who) - used, "%sstage %d has ended", r ? ", " : "", r);
        else if (hkt_instruction_text(text, sizeof(text), &m->lists[r][m->at[r]]), true)
            n = snprintf(who + used, sizeof(who) - used, "%sstage %d waits in instruction %zu, %s", r ? ", " : "", r,
                         m->at[r], text);
        used += (size_t)n;
    }
    return hkt_error_set(HKT_ERR_USAGE, "deadlock: %s", who);
}

static int complete(const struct machine *m)
{
    const hkt_pipeline_shape_t *s = m->shape;

    for (int r = 0; r < s->stages; r++)
        for (int c = 0; c < s->chunks; c++)
            for (int i = 0; i < s->micros; i++) {
                const hkt_instruction_t pair = {.chunk = c, .micro = i};
                const unsigned missing = actions_of(s, hkt_virtual_stage(s, r, c)) & ~(unsigned)*state_of(m, r, &pair);
                char           text[64];

                if (!missing)
                    continue;
                (void)hkt_instruction_text(text, sizeof(text),
                                           &(hkt_instruction_t){(hkt_action_t)__builtin_ctz(missing), c, i, -1});
                return hkt_error_set(HKT_ERR_USAGE, "stage %d never does %s", r, text);
            }
    return HKT_OK;
}

static int execute(struct machine *m)
{
    const int stages = m->shape->stages;
    bool      moved  = true;

    while (moved) {
        moved = false;
        for (int r = 0; r < stages; r++) {
            int rc = step(m, r);

            TRY(rc);
            while (rc > 0) {
                moved = true;
                rc    = step(m, r);
                TRY(rc);
            }
        }
    }
    for (int r = 0; r < stages; r++)
        if (m->at[r] < m->counts[r])
            return deadlock(m);
    return complete(m);
}

int hkt_program_check(double *total, const hkt_instruction_t *const *lists, const size_t *counts,
                      const hkt_pipeline_shape_t *shape)
{
    struct machine m       = {.shape = shape, .lists = lists, .counts = counts};
    double         longest = 0;
    size_t         stages, pairs;
    int            rc;

    TRY(hkt_pipeline_validate(shape));
    if (!lists || !counts)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_check: %s is NULL", lists ? "counts" : "lists");
    for (int r = 0; r < shape->stages; r++)
        if (!lists[r] && counts[r])
            return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_check: the list of stage %d is NULL", r);
    stages = (size_t)shape->stages;
    pairs  = stages * (size_t)shape->chunks * (size_t)shape->micros;
    TRY(hkt_ledger_take(&m.memory, stages * (sizeof(size_t) + sizeof(double)) + pairs * sizeof(*m.done),
                        HKT_BYTES_OTHER, false, NULL));
    m.at    = m.memory;
    m.clock = (double *)(void *)(m.at + stages);
    m.done  = (uint16_t *)(void *)(m.clock + stages);
    rc      = execute(&m);
    for (size_t r = 0; r < stages; r++)
        longest = m.clock[r] > longest ? m.clock[r] : longest;
    (void)hkt_ledger_give(m.memory, NULL);
    if (!rc && total)
        *total = longest;
    return rc;
}
