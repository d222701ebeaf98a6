/* test_zero_layouts.c -- the optimizer in a mesh: pipeline stages with tied embeddings, tensor-parallel slices, one
 * norm for all. */
#include "harness.h"

#include <hocket_train.h>

#include <stdio.h>
#include <string.h>

enum { VOCABULARY = 401, MOST = 700, STEPS = 5, MICRO = 2 };

/* A model of up to four parameters, of which a stage has some. */
struct part {
    hkt_parameter_t parameter[4];
    int             number[4]; /* in the whole model, for the gradients */
    int             count;
};

static const struct part whole     = {{{"wte", VOCABULARY, HKT_PARAMETER_SHARED},
                                       {"l1", 333, 0},
                                       {"l2", 500, HKT_PARAMETER_NO_DECAY},
                                       {"wte", VOCABULARY, HKT_PARAMETER_SHARED | HKT_PARAMETER_COPY}},
                                      {0, 1, 2, 3},
                                      4};
static const struct part stages[2] = {
    {{{"wte", VOCABULARY, HKT_PARAMETER_SHARED}, {"l1", 333, 0}}, {0, 1}, 2},
    {{{"l2", 500, HKT_PARAMETER_NO_DECAY}, {"wte", VOCABULARY, HKT_PARAMETER_SHARED | HKT_PARAMETER_COPY}}, {2, 3}, 2}};

struct outcome {
    float  weight[4][MOST]; /* by number in the whole model */
    double norm[STEPS];
};

static float number(uint64_t a, uint64_t b, uint64_t c)
{
    return (float)(mix(mix(mix(a) + b) + c) % 20001) * 1e-4f - 1;
}

static void start(hkt_zero_t *z, const struct part *p)
{
    float x[MOST];

    for (int i = 0; i < p->count; i++) {
        for (size_t e = 0; e < p->parameter[i].count; e++)
            x[e] = number(9, (uint64_t)p->number[i] % 3, e); /* the copy begins as what it is a copy of */
        expect_ok(hkt_zero_put(z, i, HKT_ZERO_MASTER, 0, p->parameter[i].count, x));
    }
    expect_ok(hkt_zero_loaded(z));
}

static void train(struct outcome *o, const struct part *p, hkt_comm_t *data, const hkt_zero_config_t *c)
{
    hkt_adamw_t       a = HKT_ADAMW_INIT;
    hkt_zero_report_t r;
    hkt_zero_t       *z;
    void             *g, *w;
    int               rank;
    const int         groups[4] = {0, 0, 0, 0};
    hkt_zero_config_t config    = *c;

    config.groups = groups;
    a.clip        = 3;
    a.rate        = 0.02;
    memset(o, 0, sizeof *o);
    expect_ok(hkt_comm_rank(data, &rank));
    expect_ok(hkt_zero_create(&z, p->parameter, p->count, data, &config, NULL));
    start(z, p);
    for (int step = 0; step < STEPS; step++) {
        expect_ok(hkt_zero_begin(z, MICRO));
        for (int m = 0; m < MICRO; m++) {
            expect_ok(hkt_zero_fetch(z, 0));
            for (int i = p->count - 1; i >= 0; i--) {
                expect_ok(hkt_zero_gradient(&g, i, z));
                expect_ok(hkt_zero_weight(&w, i, z));
                for (size_t e = 0; e < p->parameter[i].count; e++)
                    ((float *)g)[e] +=
                        number((uint64_t)(rank * 100 + step * 10 + m), (uint64_t)p->number[i], e) + ((float *)w)[e] / 8;
                expect_ok(hkt_zero_ready(z, i));
            }
            expect_ok(hkt_zero_release(z, 0));
            expect_ok(hkt_zero_next(z));
        }
        expect_ok(hkt_zero_step(&r, z, &a));
        expect_true(r.clipped < 1);
        o->norm[step] = r.norm;
    }
    expect_ok(hkt_zero_fetch(z, 0));
    for (int i = 0; i < p->count; i++) {
        expect_ok(hkt_zero_weight(&w, i, z));
        memcpy(o->weight[p->number[i]], w, p->parameter[i].count * sizeof(float));
    }
    expect_ok(hkt_zero_release(z, 0));
    expect_ok(hkt_zero_destroy(z));
}

static void tied(struct rank *me)
{
    const int      stage = me->rank / 2;
    hkt_comm_t    *data, *model, *embedding;
    struct outcome one, two;

    expect_ok(hkt_comm_split(&data, me->comm, stage, 0, NULL));
    expect_ok(hkt_comm_split(&model, me->comm, me->rank % 2, 0, NULL));
    expect_ok(hkt_comm_duplicate(&embedding, model, NULL));
    for (int zero = 0; zero <= 3; zero++)
        for (size_t bytes = 100; bytes < 10000; bytes *= 60) {
            hkt_zero_config_t c = HKT_ZERO_CONFIG_INIT;
            doing("ZeRO %d, buckets of %zu bytes", zero, bytes);
            c.stage         = zero;
            c.buckets.bytes = c.buckets.first_bytes = bytes;
            train(&one, &whole, data, &c); /* both halves of the world: DP 2 */
            c.model     = model;
            c.embedding = embedding;
            train(&two, &stages[stage], data, &c);
            for (int i = 0; i < stages[stage].count; i++) {
                const int k = stages[stage].number[i];
                expect(memcmp(one.weight[k], two.weight[k], sizeof one.weight[k]) == 0,
                       "%s on stage %d is not that of one stage", whole.parameter[k].name, stage);
            }
            expect(memcmp(one.weight[0], one.weight[3], sizeof one.weight[0]) == 0, "the copy is no copy");
            expect(memcmp(one.norm, two.norm, sizeof one.norm) == 0, "the norm is %.17g, that of one stage %.17g",
                   two.norm[0], one.norm[0]);
            /* Both copies, over the stages. */
            const float *mine    = two.weight[stage ? 3 : 0];
            uint64_t     hash[2] = {0, 0};
            for (int e = 0; e < VOCABULARY; e++) {
                uint32_t u;
                memcpy(&u, &mine[e], sizeof u);
                hash[0] = mix(hash[0] + u) >> 1;
            }
            hash[1] = INT64_MAX - hash[0];
            expect_ok(hkt_all_reduce(hash, hash, 2, HKT_UINT64, HKT_MAX, me->comm, NULL));
            expect(hash[0] == INT64_MAX - hash[1], "the two copies differ");
        }
    expect_ok(hkt_comm_destroy(embedding));
    expect_ok(hkt_comm_destroy(model));
    expect_ok(hkt_comm_destroy(data));
}

/* Proves: PP 2 x DP 2 with a tied embedding gives, in every stage of ZeRO, the weights and norms of PP 1 x DP 2 bit for
 * bit; both copies are equal on all ranks after each of five steps' updates. */
START_TEST(T_C03_tied_embedding)
{
    world(4, THREADS, tied, NULL);
}
END_TEST

static void sliced(struct rank *me)
{
    const size_t          rows     = 60 / (size_t)me->n;
    const hkt_parameter_t full[2]  = {{"norm", 37, HKT_PARAMETER_REPLICATED}, {"matrix", 60 * 11, 0}};
    const hkt_parameter_t slice[2] = {full[0], {"matrix", rows * 11, 0}};
    double                norm[3];

    for (int k = 0; k < 3;
         k++) { /* the whole model; slices with complete gradients; slices whose replicated gradients are shares */
        hkt_zero_config_t c = HKT_ZERO_CONFIG_INIT;
        hkt_adamw_t       a = HKT_ADAMW_INIT;
        hkt_zero_report_t r;
        hkt_reduced_t     reduced;
        hkt_zero_t       *z;
        void             *g;

        c.model        = k ? me->comm : NULL;
        c.tensor       = k == 2 ? me->comm : NULL;
        c.first_tensor = k == 0 || me->rank == 0;
        expect_ok(hkt_zero_create(&z, k ? slice : full, 2, NULL, &c, NULL));
        expect_ok(hkt_zero_begin(z, 1));
        expect_ok(hkt_zero_gradient(&g, 0, z));
        for (int e = 0; e < 37; e++)
            ((float *)g)[e] = k == 2 ? (float)(e + me->rank) : (float)(e * me->n + me->n * (me->n - 1) / 2);
        expect_ok(hkt_zero_gradient(&g, 1, z));
        for (size_t e = 0; e < (k ? slice : full)[1].count; e++)
            ((float *)g)[e] = number(1, 2, e + (k ? (size_t)me->rank * rows * 11 : 0));
        expect_ok(hkt_zero_finish(z));
        expect_ok(hkt_buckets_reduced(&reduced, 0, hkt_zero_buckets(z)));
        for (int e = 0; e < 37; e++)
            expect_true(((float *)reduced.values)[e] == (float)(e * me->n + me->n * (me->n - 1) / 2));
        expect_ok(hkt_zero_step(&r, z, &a));
        norm[k] = r.norm;
        expect_ok(hkt_zero_destroy(z));
    }
    expect(norm[0] == norm[1] && norm[0] == norm[2], "norms %.17g, %.17g, %.17g", norm[0], norm[1], norm[2]);
}

/* Proves (C27, cluster 8): the norm over tensor-parallel slices has the bits of that of the whole model: replicated
 * parameters count once; shares of their gradients are summed. */
START_TEST(T_C27_replicated_count_once)
{
    world(1 + _i, THREADS, sliced, NULL);
}
END_TEST

static void bad_on_one_stage(struct rank *me)
{
    const hkt_parameter_t p[2] = {{me->rank ? "late.a" : "early.a", 50, 0}, {me->rank ? "late.b" : "early.b", 50, 0}};
    hkt_zero_config_t     c    = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t           a    = HKT_ADAMW_INIT;
    hkt_zero_report_t     r;
    hkt_zero_t           *z;
    void                 *g;

    c.model = me->comm;
    expect_ok(hkt_zero_create(&z, p, 2, NULL, &c, NULL));
    for (int both = 0; both < 2; both++) {
        expect_ok(hkt_zero_begin(z, 1));
        for (int i = 0; i < 2; i++) {
            expect_ok(hkt_zero_gradient(&g, i, z));
            if (me->rank == 0 || both)
                ((float *)g)[11 + i] = -1 / ((float *)g)[0]; /* 1 / 0 */
        }
        expect_ok(hkt_zero_step(&r, z, &a));
        expect(r.skipped && r.overflow.rank == both && strcmp(r.overflow.tensor, both ? "late.b" : "early.b") == 0 &&
                   r.overflow.element == 12,
               "overflow in %s[%zu] of rank %d", r.overflow.tensor, r.overflow.element, r.overflow.rank);
    }
    expect_ok(hkt_zero_destroy(z));
}

/* Proves: an overflow on one stage makes all stages skip, and all name the tensor; of two stages the later counts,
 * where the backward pass begins. */
START_TEST(T_C19_stages_agree)
{
    world(2, THREADS, bad_on_one_stage, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C03_tied_embedding, 1, 60);
    ADD(s, T_C27_replicated_count_once, 4, 20);
    ADD(s, T_C19_stages_agree, 1, 20);
}

int main(void)
{
    return run_suite("zero_layouts", add);
}
