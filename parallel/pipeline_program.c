/* pipeline_program.c -- from an order of computation to a list of instructions per stage.
 *
 * Where do sends and receives stand, so that no two stages ever wait for each other, even if a send waits for its
 * receive? All computations and messages are put into one line in time: a computation at its begin, a message when its
 * computation ends, messages before computations of the same moment. Each stage's list is its part of that line.
 * Whatever stands first in the line of all that is not done yet can be done by everyone it concerns; so something can
 * always be done. That holds for any order that the model of time can finish, with two stages, uneven groups or fewer
 * micro-batches than stages, and needs no pairing of sends with receives. */
#include <parallel/pipeline.h>

#include <stdlib.h>

struct hkt_program {
    hkt_pipeline_shape_t shape;
    hkt_instruction_t   *all;   /* stage after stage */
    size_t              *first; /* [stages + 1] */
    void                *memory;
};

/* A computation, or the message that it gives off. */
struct moment {
    double   time;
    uint32_t computes;
    uint32_t op; /* index in the order */
};

static int by_time(const void *x, const void *y)
{
    const struct moment *a = x, *b = y;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->computes != b->computes)
        return a->computes < b->computes ? -1 : 1;
    return a->op < b->op ? -1 : a->op > b->op;
}

/* The message that an op gives off, as its two ends see it; false: none. */
static bool message_of(hkt_instruction_t *send, hkt_instruction_t *recv, const hkt_pipeline_shape_t *s,
                       const hkt_instruction_t *op, int stage)
{
    const bool forward = op->action == HKT_DO_FORWARD;
    const int  to      = hkt_virtual_stage(s, stage, op->chunk) + (forward ? 1 : -1);

    if (op->action == HKT_DO_BACKWARD_WEIGHT || to < 0 || to > hkt_last_virtual_stage(s))
        return false;
    *send =
        (hkt_instruction_t){forward ? HKT_DO_SEND_FORWARD : HKT_DO_SEND_BACKWARD, op->chunk, op->micro, to % s->stages};
    *recv = (hkt_instruction_t){forward ? HKT_DO_RECV_FORWARD : HKT_DO_RECV_BACKWARD, to / s->stages, op->micro, stage};
    return true;
}

/* The line of all moments; how many. */
static size_t line_up(struct moment *line, const struct hkt_order *order, const double *begin, const double *end)
{
    hkt_instruction_t send, recv;
    size_t            n = 0;

    for (size_t i = 0; i < (size_t)order->shape.stages * order->each; i++) {
        line[n++] = (struct moment){begin[i], 1, (uint32_t)i};
        if (message_of(&send, &recv, &order->shape, &order->op[i], (int)(i / order->each)))
            line[n++] = (struct moment){end[i], 0, (uint32_t)i};
    }
    qsort(line, n, sizeof(*line), by_time);
    return n;
}

/* Where each stage's list begins: its ops, the messages they give off, and those of others for it. */
static void measure(size_t *first, const struct hkt_order *order)
{
    const int         stages = order->shape.stages;
    hkt_instruction_t send, recv;

    for (size_t i = 0; i < (size_t)stages * order->each; i++) {
        const int stage = (int)(i / order->each);

        first[stage + 1]++;
        if (message_of(&send, &recv, &order->shape, &order->op[i], stage)) {
            first[stage + 1]++;
            first[send.peer + 1]++;
        }
    }
    for (int stage = 0; stage < stages; stage++)
        first[stage + 1] += first[stage];
}

/* Deals the line out; `fill` counts, stage by stage, from its list's first place. */
static void deal(hkt_instruction_t *all, size_t *fill, const struct hkt_order *order, const struct moment *line,
                 size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const hkt_instruction_t *op    = &order->op[line[k].op];
        const int                stage = (int)(line[k].op / order->each);
        hkt_instruction_t        send, recv;

        if (line[k].computes) {
            all[fill[stage]++] = *op;
        } else if (message_of(&send, &recv, &order->shape, op, stage)) {
            all[fill[stage]++]     = send;
            all[fill[send.peer]++] = recv;
        }
    }
}

static int write_lists(struct hkt_program *program, const struct hkt_order *order)
{
    const size_t stages = (size_t)order->shape.stages, ops = stages * order->each;
    void        *memory = NULL, *lists = NULL;
    double      *begin;
    size_t      *fill;
    int          rc;

    TRY(hkt_ledger_take(&memory, 2 * ops * (sizeof(double) + sizeof(struct moment)) + stages * sizeof(size_t),
                        HKT_BYTES_OTHER, false, NULL));
    begin = memory;
    fill  = (size_t *)(void *)((struct moment *)(void *)(begin + 2 * ops) + 2 * ops);
    measure(program->first, order);
    rc = hkt_order_time(begin, begin + ops, order, NULL);
    if (!rc)
        rc = hkt_ledger_take(&lists, program->first[stages] * sizeof(*program->all), HKT_BYTES_OTHER, false, NULL);
    if (!rc) {
        struct moment *line = (void *)(begin + 2 * ops);

        program->all = lists;
        for (size_t stage = 0; stage < stages; stage++)
            fill[stage] = program->first[stage];
        deal(program->all, fill, order, line, line_up(line, order, begin, begin + ops));
    }
    (void)hkt_ledger_give(memory, NULL);
    return rc;
}

int hkt_program_destroy(hkt_program_t *program)
{
    if (!program)
        return HKT_OK;
    (void)hkt_ledger_give(program->all, NULL);
    return hkt_ledger_give(program, NULL);
}

int hkt_program_create(hkt_program_t **program, const hkt_pipeline_shape_t *shape)
{
    struct hkt_program *made;
    struct hkt_order    order;
    void               *memory = NULL;
    int                 rc;

    if (!program)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_create: program is NULL");
    rc = hkt_order_make(&order, shape);
    if (!rc)
        rc = hkt_ledger_take(&memory, sizeof(*made) + ((size_t)shape->stages + 1) * sizeof(size_t), HKT_BYTES_OTHER,
                             false, NULL);
    made = memory;
    if (!rc) {
        made->shape = *shape;
        made->first = (size_t *)(void *)(made + 1);
        rc          = write_lists(made, &order);
    }
    hkt_order_free(&order);
    if (rc)
        (void)hkt_program_destroy(made);
    else
        *program = made;
    return rc;
}

int hkt_program_stage(const hkt_instruction_t **list, size_t *n, const hkt_program_t *program, int stage)
{
    if (!list || !n || !program)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_stage: %s is NULL", !list ? "list" : n ? "program" : "n");
    if (stage < 0 || stage >= program->shape.stages)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_stage: stage is %d; 0 to %d", stage,
                             program->shape.stages - 1);
    *list = program->all + program->first[stage];
    *n    = program->first[stage + 1] - program->first[stage];
    return HKT_OK;
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *verb;
    char        letter;
    const char *towards;
} word[HKT_ACTIONS] = {
    [HKT_DO_FORWARD]         = {"", 'F', ""},
    [HKT_DO_BACKWARD]        = {"", 'B', ""},
    [HKT_DO_BACKWARD_INPUT]  = {"", 'I', ""},
    [HKT_DO_BACKWARD_WEIGHT] = {"", 'W', ""},
    [HKT_DO_SEND_FORWARD]    = {"send ", 'F', " to "},
    [HKT_DO_RECV_FORWARD]    = {"recv ", 'F', " from "},
    [HKT_DO_SEND_BACKWARD]   = {"send ", 'B', " to "},
    [HKT_DO_RECV_BACKWARD]   = {"recv ", 'B', " from "},
};

int hkt_instruction_text(char *text, size_t size, const hkt_instruction_t *in)
{
    if ((unsigned)in->action >= HKT_ACTIONS)
        return snprintf(text, size, "action %d", (int)in->action);
    if (!*word[in->action].towards)
        return snprintf(text, size, "%c%d.%d", word[in->action].letter, in->micro, in->chunk);
    return snprintf(text, size, "%s%c%d.%d%s%d", word[in->action].verb, word[in->action].letter, in->micro, in->chunk,
                    word[in->action].towards, in->peer);
}

static void print_stage(FILE *out, const hkt_program_t *program, int stage)
{
    char text[64];

    fprintf(out, "stage %d", stage);
    for (size_t i = program->first[stage]; i < program->first[stage + 1]; i++) {
        (void)hkt_instruction_text(text, sizeof(text), &program->all[i]);
        fprintf(out, "%s%s", i == program->first[stage] ? ": " : "; ", text);
    }
    fprintf(out, "\n");
}

int hkt_program_print(FILE *out, const hkt_program_t *program, int stage)
{
    if (!out || !program)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_print: %s is NULL", out ? "program" : "out");
    if (stage < -1 || stage >= program->shape.stages)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_program_print: stage is %d; -1 (all) to %d", stage,
                             program->shape.stages - 1);
    for (int r = stage < 0 ? 0 : stage; r < (stage < 0 ? program->shape.stages : stage + 1); r++)
        print_stage(out, program, r);
    return HKT_OK;
}
