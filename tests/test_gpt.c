/* test_gpt.c -- the model on one rank and in parts: every tensor's gradient against finite differences with every
 * option on, the parts of a pipeline, packed documents, its bytes against the formulas and its communication against
 * the counts.
 */
#include "gpt_case.h"
#include "gpt_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- gradients */

struct claim {
    struct machine a;
    struct micro   m;
};

static double loss_of(struct claim *c)
{
    double loss;

    expect_ok(gpt_forward(c->a.model, 0, &c->m.batch, &(struct gpt_ends){NULL, NULL, GPT_TRAIN, &loss}));
    return loss;
}

/* The derivative along random directions, by central differences, must equal the gradient's component. */
static void prove(struct claim *c, const struct gpt_tensor *t)
{
    const size_t count = (size_t)t->own_rows * (size_t)t->own_cols, at = (size_t)(t->weight - c->a.weight);
    float       *saved = take_floats(count), *along = take_floats(count), *gradient = take_floats(count);
    const double h = 1e-2;

    memcpy(saved, t->weight, count * sizeof(float));
    memcpy(gradient, c->a.gradient + at, count * sizeof(float));
    for (uint32_t direction = 0; direction < 3; direction++) {
        double value[2], claimed = 0, size = 0;

        hkt_random_fill_normal(along, hkt_random_at(3, direction, 0, 0, 0), 0, count, 1 / sqrt((double)count));
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < count; i++)
                t->weight[i] = saved[i] + (float)(side ? h : -h) * along[i];
            value[side] = loss_of(c);
        }
        memcpy(t->weight, saved, count * sizeof(float));
        for (size_t i = 0; i < count; i++) {
            claimed += (double)gradient[i] * (double)along[i];
            size += (double)gradient[i] * (double)gradient[i];
        }
        const double measured = (value[1] - value[0]) / (2 * h);

        expect(fabs(measured - claimed) < 0.01 * sqrt(size / (double)count) + 4e-3,
               "%s: derivative %g, gradient says %g (size %g)", t->name, measured, claimed, sqrt(size / (double)count));
    }
    free(saved), free(along), free(gradient);
}

START_TEST(every_gradient_is_right)
{
    const struct variant *v = &variants[_i];
    struct gpt_options    o = tiny();
    struct claim          c;
    int32_t               start[BATCH * LENGTH], position[BATCH * LENGTH];
    struct gpt_tensor    *t;
    int                   tensors;

    apply(&o, v);
    o.shape.layers = o.last = 2;
    machine_begin(&c.a, &o);
    micro_batch(&c.m, 1, 0, 1, BATCH);
    c.m.batch.scale = 1;
    if (v->documents) {
        set_documents(start, position, 13);
        c.m.batch.start    = start;
        c.m.batch.position = position;
    }
    loss_of(&c);
    expect_ok(gpt_backward(c.a.model, 0, &c.m.batch, NULL, NULL));

    float *saved = take_floats(c.a.floats);

    memcpy(saved, c.a.gradient, c.a.floats * sizeof(float));
    t = gpt_tensors(c.a.model, &tensors);
    for (int i = 0; i < tensors; i++) {
        memcpy(c.a.gradient, saved, c.a.floats * sizeof(float)); /* the head's forward writes its own */
        prove(&c, &t[i]);
    }
    free(saved);
    machine_end(&c.a);
}
END_TEST

/* ---- parts of a pipeline, all in one process: forward of all micro-batches, then backward */

enum { PARTS = 3 };

/* The loss of one step; gradients stay in the machines. */
static double run_parts(struct machine part[PARTS], struct micro m[MICRO])
{
    float *between[2] = {take_floats(BATCH * LENGTH * WIDTH), take_floats(BATCH * LENGTH * WIDTH)};
    double loss = 0, sum = 0;

    for (int i = 0; i < MICRO; i++) {
        micro_batch(&m[i], 1, i, MICRO, BATCH);
        expect_ok(gpt_forward(part[0].model, i, &m[i].batch, &(struct gpt_ends){NULL, between[0], GPT_TRAIN, NULL}));
        expect_ok(
            gpt_forward(part[1].model, i, &m[i].batch, &(struct gpt_ends){between[0], between[1], GPT_TRAIN, NULL}));
        expect_ok(gpt_forward(part[2].model, i, &m[i].batch, &(struct gpt_ends){between[1], NULL, GPT_TRAIN, &loss}));
        sum += loss;
    }
    for (int i = 0; i < MICRO; i++) {
        expect_ok(gpt_backward(part[2].model, i, &m[i].batch, NULL, between[1]));
        expect_ok(gpt_backward(part[1].model, i, &m[i].batch, between[1], between[0]));
        expect_ok(gpt_backward(part[0].model, i, &m[i].batch, between[0], NULL));
    }
    for (int i = 0; i < MICRO; i++)
        for (int j = 0; j < PARTS; j++)
            expect_ok(gpt_backward_weight(part[j].model, i, &m[i].batch));
    free(between[0]), free(between[1]);
    return sum / (MICRO * BATCH * LENGTH);
}

/* A tensor of the whole against those of the parts that have its name; the two copies of a tied table add up to its
 * gradient. */
static int compare_parts(const struct gpt_tensor *t, const struct machine part[PARTS], bool tied)
{
    const size_t count = (size_t)t->rows * (size_t)t->cols;
    float       *sum   = take_floats(count);
    int          found = 0, tensors;

    for (int j = 0; j < PARTS; j++) {
        const struct gpt_tensor *u = gpt_tensors(part[j].model, &tensors);

        for (int k = 0; k < tensors; k++) {
            const bool shared = u[k].flags & HKT_PARAMETER_SHARED;

            if (strcmp(t->name, u[k].name) != 0)
                continue;
            ck_assert_int_eq(shared, tied && strcmp(t->name, "wte.weight") == 0);
            ck_assert_int_eq((u[k].flags & HKT_PARAMETER_COPY) != 0, shared && j == 2);
            ck_assert_msg(shared || memcmp(t->gradient, u[k].gradient, count * sizeof(float)) == 0,
                          "the gradient of %s differs", t->name);
            for (size_t i = 0; i < count; i++)
                sum[i] += u[k].gradient[i];
            found++;
        }
    }
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabsf(sum[i] - t->gradient[i]) <= 1e-6f, "the gradient of %s is %g, the parts' %g", t->name,
                      (double)t->gradient[i], (double)sum[i]);
    free(sum);
    return found;
}

/* _i 0: tied; 1: untied; 2: tied, weights apart. */
START_TEST(parts_make_the_whole)
{
    static const int   border[PARTS + 1] = {0, 1, 1, LAYERS}; /* one of them has no layer at all */
    struct gpt_options o                 = tiny();
    struct machine     part[PARTS], whole;
    struct micro       m[MICRO];
    int                count, found = 0;

    apply(&o, &variants[3]);
    o.shape.untied = _i == 1;
    o.apart        = _i == 2;
    machine_begin(&whole, &o);
    const double loss = train_step(&whole, 1, MICRO, BATCH);

    o.slots = MICRO;
    for (int i = 0; i < PARTS; i++) {
        o.first = border[i], o.last = border[i + 1];
        machine_begin(&part[i], &o);
    }
    ck_assert(run_parts(part, m) == loss);
    const struct gpt_tensor *t = gpt_tensors(whole.model, &count);

    for (int i = 0; i < count; i++)
        found += compare_parts(&t[i], part, !o.shape.untied);
    ck_assert_int_eq(found, count + !o.shape.untied);
    for (int i = 0; i < PARTS; i++)
        machine_end(&part[i]);
    machine_end(&whole);
}
END_TEST

/* ---- masks follow sequences, not micro-batches */

START_TEST(micro_batches_change_no_mask)
{
    struct gpt_options o = tiny();
    struct machine     a;
    double             loss[2];

    apply(&o, &variants[1]);
    for (int i = 0; i < 2; i++) {
        machine_begin(&a, &o);
        loss[i] = train_step(&a, 1, i ? 2 * MICRO : MICRO, i ? BATCH / 2 : BATCH);
        machine_end(&a);
    }
    ck_assert_msg(fabs(loss[0] - loss[1]) < 1e-6 * loss[0], "loss %.9g in large, %.9g in small micro-batches", loss[0],
                  loss[1]);
}
END_TEST

/* ---- row 96: packed documents cost what they cost apart */

static double loss_of_part(struct machine *a, const int32_t *token, const int32_t *target, int first, int length)
{
    const struct gpt_batch b = {
        .count = 1, .length = length, .token = token + first, .target = target + first, .scale = 1};
    double loss;

    expect_ok(gpt_forward(a->model, 0, &b, &(struct gpt_ends){NULL, NULL, GPT_LOSS, &loss}));
    return loss;
}

START_TEST(packed_documents_do_not_see_each_other)
{
    struct gpt_options o = tiny();
    struct machine     a;
    struct micro       m;
    int32_t            start[BATCH * LENGTH], position[BATCH * LENGTH];
    double             packed, apart = 0, joined;
    const int          cut = 11;

    apply(&o, &variants[_i]);
    machine_begin(&a, &o);
    micro_batch(&m, 1, 0, 1, BATCH);
    set_documents(start, position, cut);
    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_LOSS, &joined}));
    m.batch.start = start, m.batch.position = position;
    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_LOSS, &packed}));
    for (int s = 0; s < BATCH; s++) {
        apart += loss_of_part(&a, m.token, m.target, s * LENGTH, cut);
        apart += loss_of_part(&a, m.token, m.target, s * LENGTH + cut, LENGTH - cut);
    }
    ck_assert_msg(fabs(packed - apart) < 1e-6 * apart, "packed %.9g, apart %.9g", packed, apart);
    ck_assert_msg(fabs(joined - apart) > 1e-5 * apart, "the cut makes no difference: the test proves nothing");
    start[5] = 6;
    expect_code(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_LOSS, &packed}), HKT_ERR_ARGUMENT);
    expect_said("row 5: its document starts at place 6");
    machine_end(&a);
}
END_TEST

/* ---- logits: the loss of a sequence's last token follows from them */

static void logits_rank(struct rank *me)
{
    struct gpt_options o = tiny();
    struct machine     a;
    struct micro       m;
    const float       *logits;
    float              weight[BATCH * LENGTH] = {[LENGTH - 1] = 1};
    double             loss, sum = 0;

    o.comm     = me->comm;
    o.sequence = true;
    machine_begin(&a, &o);
    micro_batch(&m, 1, 0, 1, BATCH);
    m.batch.weight = weight;
    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_LOSS, &loss}));
    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_LOGITS, NULL}));
    expect_ok(gpt_logits(a.model, &m.batch, &logits));
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp((double)logits[i]);
    sum = log(sum) - (double)logits[m.target[LENGTH - 1]];
    expect(fabs(sum - loss) < 1e-5, "loss %.9g, from the logits %.9g", loss, sum);
    machine_end(&a);
}

START_TEST(logits_are_those_of_the_loss)
{
    world(1 + _i, THREADS, logits_rank, NULL);
}
END_TEST

/* ---- rows 23 to 26, 39, 44, 94, 95, 100: bytes and allocations; rows 28, 29, 40: calls */

static void bytes_rank(struct rank *me)
{
    const int          variant = *(int *)me->arg, recompute = variant % 3;
    const bool         sequence = variant / 3 % 2, llama = variant / 6;
    struct gpt_options o = tiny();
    hkt_ledger_t      *ledger;
    hkt_ledger_entry_t act, other, comm, later;
    struct machine     a;
    const size_t       R = BATCH * LENGTH, n = (size_t)me->n, C = WIDTH, own = sequence ? R / n : R;

    expect_ok(hkt_ledger_create(&ledger));
    apply(&o, &variants[llama ? 7 : 1]);
    o.shape.embedding_norm = false;
    o.comm = me->comm, o.ledger = ledger, o.sequence = sequence, o.recompute = (enum gpt_recompute)recompute,
    o.slots = 3;
    machine_begin(&a, &o);

    /* Elements per row and layer: inputs of the layer and of both norms' readers, q k v (2 C with half as many heads of
     * keys), mixed, up (twice with gates), gelu; then statistics. */
    const size_t qkv = llama ? 2 : 3, up = llama ? 8 : 4;
    const size_t none      = own * 4 * C + R * (qkv + 1 + up + 4) * C / n,
                 selective = own * 2 * C + R * (qkv + 1 + up) * C / n;
    const size_t full = own * C, statistics = (llama ? 2 : 4) * own + R * HEADS / n, head = own * C;
    const size_t layer = recompute == GPT_NONE        ? none + statistics
                         : recompute == GPT_SELECTIVE ? selective + statistics
                                                      : full;

    const size_t angles = llama ? LENGTH * C / HEADS * sizeof(float) : 0; /* cosines and sines */

    expect_ok(hkt_ledger_read(&act, HKT_BYTES_ACTIVATION, ledger));
    expect(act.now == 3 * (LAYERS * layer + head) * sizeof(float), "%zu bytes of activations, %zu by the formula",
           act.now, 3 * (LAYERS * layer + head) * sizeof(float));
    expect_true(act.now == 3 * gpt_slot_bytes(a.model));
    train_step(&a, 1, MICRO, BATCH);
    train_step(&a, 2, MICRO, BATCH);
    expect_ok(hkt_ledger_read(&comm, HKT_BYTES_COMMUNICATION, ledger));
    expect_ok(hkt_ledger_read(&other, HKT_BYTES_OTHER, ledger));
    train_step(&a, 3, MICRO, BATCH);
    expect_ok(hkt_ledger_read(&later, HKT_BYTES_COMMUNICATION, ledger));
    expect_true(later.takes == comm.takes);
    expect_ok(hkt_ledger_read(&later, HKT_BYTES_OTHER, ledger));
    expect_true(later.takes == other.takes && later.now == gpt_work_bytes(a.model) + angles);
    expect_ok(hkt_ledger_read(&later, HKT_BYTES_ACTIVATION, ledger));
    expect_true(later.takes == act.takes);
    machine_end(&a);
    expect_ok(hkt_ledger_destroy(ledger));
}

START_TEST(bytes_follow_the_formula)
{
    int variant = _i % 12;

    world(_i / 12 + 1, THREADS, bytes_rank, &variant);
}
END_TEST

static void traffic_rank(struct rank *me)
{
    const bool         sequence = *(bool *)me->arg;
    struct gpt_options o        = tiny();
    struct machine     a;
    struct micro       m;
    double             loss;
    hkt_traffic_t      reduce, gather, scatter;
    const uint64_t     rows = BATCH * LENGTH, stream = rows * WIDTH * sizeof(float), L = LAYERS;

    o.comm     = me->comm;
    o.sequence = sequence;
    machine_begin(&a, &o);
    micro_batch(&m, 1, 0, 2, BATCH); /* not the last one: nothing is announced or summed yet */
    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_TRAIN, &loss}));
    expect_ok(gpt_backward(a.model, 0, &m.batch, NULL, NULL));
    expect_ok(hkt_comm_traffic(me->comm, "all_reduce", &reduce));
    expect_ok(hkt_comm_traffic(me->comm, "all_gather", &gather));
    expect_ok(hkt_comm_traffic(me->comm, "reduce_scatter", &scatter));
    /* Four a layer, the embedding, the head's gradient; the cross entropy's two small ones carry three numbers per row.
     */
    const uint64_t large = 4 * L + 2;

    expect(reduce.calls == (sequence ? 2 : large + 2) &&
               reduce.bytes == (sequence ? 0 : large * stream) + 3 * rows * sizeof(float),
           "all-reduce: %llu calls, %llu bytes", (unsigned long long)reduce.calls, (unsigned long long)reduce.bytes);
    /* Two gathers forward and two reduce-scatters, two and two backward, and two gathers of what was kept as own rows;
     * the embedding: one reduce-scatter and one gather back; the head: one gather and one reduce-scatter. */
    expect(gather.calls == (sequence ? 6 * L + 2 : 0) && gather.bytes == gather.calls * stream,
           "all-gather: %llu calls, %llu bytes", (unsigned long long)gather.calls, (unsigned long long)gather.bytes);
    expect(scatter.calls == (sequence ? 4 * L + 2 : 0) && scatter.bytes == scatter.calls * stream,
           "reduce-scatter: %llu calls, %llu bytes", (unsigned long long)scatter.calls,
           (unsigned long long)scatter.bytes);
    machine_end(&a);
}

START_TEST(calls_and_bytes_per_pass)
{
    bool sequence = _i;

    world(2, THREADS, traffic_rank, &sequence);
}
END_TEST

/* ---- the planner counts the same parameters and floating-point operations */

START_TEST(parameters_are_the_planners)
{
    const struct variant *v = &variants[_i];
    struct gpt_options    o = tiny();
    struct machine        a;
    struct micro          m;

    apply(&o, v);
    o.shape.mlp = 3 * WIDTH;
    machine_begin(&a, &o);
    const hkt_plan_model_t model = {.name           = "tiny",
                                    .layers         = LAYERS,
                                    .hidden         = WIDTH,
                                    .heads          = HEADS,
                                    .kv_heads       = v->groups ? v->groups : HEADS,
                                    .ffn            = 3 * WIDTH,
                                    .vocabulary     = VOCABULARY,
                                    .pad            = 1,
                                    .sequence       = LENGTH,
                                    .positions      = v->positions == GPT_LEARNED ? LENGTH : 0,
                                    .tied           = !v->untied,
                                    .gated          = v->gated,
                                    .biased         = !v->unbiased,
                                    .embedding_norm = v->norm};
    /* The planner knows biases of norms and of linear layers together or not at all. */
    const double norms = v->rms == v->unbiased ? 0 : (2.0 * LAYERS + 1 + v->norm) * WIDTH * (v->rms ? -1 : 1);
    double       loss;

    ck_assert_double_eq(gpt_parameters(a.model), hkt_plan_parameters(&model) + norms);
    micro_batch(&m, 1, 0, 1, BATCH);
    const double before = matrix_work().operations;

    expect_ok(gpt_forward(a.model, 0, &m.batch, &(struct gpt_ends){NULL, NULL, GPT_TRAIN, &loss}));
    expect_ok(gpt_backward(a.model, 0, &m.batch, NULL, NULL));
    /* One tile holds all keys, so scores are made without regard to the mask; backward makes them once more. */
    const double head   = 6.0 * BATCH * LENGTH * WIDTH * (PADDED - VOCABULARY),
                 scores = 2.0 * LAYERS * BATCH * LENGTH * LENGTH * WIDTH;

    ck_assert_double_eq(matrix_work().operations - before,
                        hkt_plan_flops(&model, BATCH, HKT_RECOMPUTE_NONE) + head + scores);
    machine_end(&a);
}
END_TEST

/* ---- row 73: slopes of ALiBi, also for a number of heads that is no power of two, and rotary angles */

START_TEST(positions_are_the_papers)
{
    static const float six[] = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
    struct gpt_options o     = tiny();
    struct gpt        *m;

    o.shape.positions = GPT_ALIBI;
    expect_ok(gpt_create(&m, &o));
    for (int h = 0; h < HEADS; h++)
        ck_assert(m->slope[h] == six[h]); /* 2^-2, 2^-4, ... */
    gpt_destroy(m);
    o.shape.heads = 6, o.shape.width = 48;
    expect_ok(gpt_create(&m, &o));
    ck_assert_mem_eq(m->slope, six, sizeof(six));
    gpt_destroy(m);
    o = tiny(), o.shape.positions = GPT_ROTARY;
    expect_ok(gpt_create(&m, &o));
    for (int t = 0; t < LENGTH; t++)
        for (int i = 0; i < WIDTH / HEADS / 2; i++) {
            const double angle = t * pow(10000, -2.0 * i / (WIDTH / HEADS));

            ck_assert_float_eq_tol(m->cosine[t * WIDTH / HEADS / 2 + i], (float)cos(angle), 1e-6f);
            ck_assert_float_eq_tol(m->sine[t * WIDTH / HEADS / 2 + i], (float)sin(angle), 1e-6f);
        }
    gpt_destroy(m);
}
END_TEST

/* ---- row 36: what cannot be is refused with every rule */

START_TEST(refusals_name_every_rule)
{
    struct gpt_options o = tiny();
    struct gpt        *m = NULL;

    o.shape.heads = 6, o.shape.padded = 202, o.shape.vocabulary = 300, o.shape.mlp = 254, o.sequence = true,
    o.shape.length = 33;
    expect_code(gpt_check(&o, 4, 1), HKT_ERR_ARGUMENT);
    expect_said("hidden size 64 is no multiple of 6 (attention heads): 60 and 66 are");
    expect_said("attention heads 6 is no multiple of 4 (tensor-parallel size): 4 and 8 are");
    expect_said("MLP size 254 is no multiple of 4");
    expect_said("padded vocabulary 202 is no multiple of 4");
    expect_said("vocabulary 300 is larger than its padded size 202");
    expect_said(
        "sequence length 33 is no multiple of 4 (tensor-parallel size, with sequence parallelism): 32 and 36 are");
    expect_code(gpt_create(&m, &o), HKT_ERR_ARGUMENT);
    ck_assert_ptr_null(m);
    o = tiny(), o.shape.positions = GPT_ROTARY, o.shape.width = 36;
    expect_code(gpt_check(&o, 1, 1), HKT_ERR_ARGUMENT);
    expect_said("rotary positions need heads of even size, not 9");
    o = tiny(), o.shape.groups = 2;
    expect_code(gpt_check(&o, 4, 1), HKT_ERR_ARGUMENT);
    expect_said("query groups 2 is no multiple of 4 (tensor-parallel size): 0 and 4 are");
    o.shape.groups = 3;
    expect_code(gpt_check(&o, 1, 1), HKT_ERR_ARGUMENT);
    expect_said("attention heads 4 is no multiple of 3 (query groups): 3 and 6 are");
    o = tiny(), o.last = 7;
    expect_code(gpt_check(&o, 1, 1), HKT_ERR_ARGUMENT);
    expect_said("layers 0 to 7 of 4");
}
END_TEST

static void add(Suite *s)
{
    ADD(s, every_gradient_is_right, VARIANTS, 30);
    ADD(s, parts_make_the_whole, 3, 30);
    ADD(s, micro_batches_change_no_mask, 1, 30);
    ADD(s, packed_documents_do_not_see_each_other, VARIANTS, 20);
    ADD(s, logits_are_those_of_the_loss, 2, 20);
    ADD(s, bytes_follow_the_formula, 24, 30);
    ADD(s, parameters_are_the_planners, VARIANTS, 10);
    ADD(s, calls_and_bytes_per_pass, 2, 20);
    ADD(s, positions_are_the_papers, 1, 10);
    ADD(s, refusals_name_every_rule, 1, 10);
}

int main(void)
{
    return run_suite("gpt", add);
}
