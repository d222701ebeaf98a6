/* test_pipeline_mesh.c -- a pipeline on a mesh with data parallelism, whose two ends share their embedding. */
#include "harness.h"

#include <hocket_train.h>

#include <string.h>

enum { TOKENS = 8 };

/* A model of integers: token t enters as e_t, each stage adds its rank's constant, the head multiplies by the same e_t.
 */
struct tied {
    int   stage, stages, replica;
    float embedding[TOKENS], gradient[TOKENS];
};

static int token_of(const struct tied *t, int micro)
{
    return (int)(mix((uint64_t)(micro * 2 + t->replica)) % TOKENS);
}

static int tied_forward(hkt_pipeline_work_t *work, void *arg)
{
    struct tied *t = arg;

    if (work->output)
        *(float *)work->output =
            (work->input ? *(const float *)work->input : t->embedding[token_of(t, work->micro)]) + (float)t->stage;
    return 0;
}

static int tied_backward(hkt_pipeline_work_t *work, void *arg)
{
    struct tied *t     = arg;
    const int    token = token_of(t, work->micro);
    float        g;

    if (!work->output_gradient) { /* loss = (input + stage) * e: the head's part of the gradient */
        t->gradient[token] += (work->input ? *(const float *)work->input : t->embedding[token]) + (float)t->stage;
        g = t->embedding[token];
    } else {
        g = *(const float *)work->output_gradient;
    }
    if (work->input_gradient)
        *(float *)work->input_gradient = g;
    else
        t->gradient[token] += g;
    return 0;
}

static void tied_embedding(struct rank *me)
{
    const int             *size           = me->arg;
    const int              micros         = 6;
    hkt_pipeline_shape_t   shape          = {HKT_PIPELINE_1F1B, size[HKT_AXIS_PP], 1, micros, 0};
    hkt_pipeline_message_t message        = {HKT_FLOAT32, {1, 1, 1}, false};
    struct tied            t              = {.stages = size[HKT_AXIS_PP]};
    hkt_pipeline_calls_t   calls          = {tied_forward, tied_backward, NULL, NULL, &t};
    float                  wanted[TOKENS] = {0};
    hkt_mesh_t            *mesh;
    hkt_comm_t            *pp, *dp, *embedding;
    hkt_pipeline_t        *pipeline;
    int                    at[HKT_AXES];

    expect_ok(hkt_mesh_create(&mesh, me->comm, size, NULL, NULL));
    expect_ok(hkt_mesh_coordinates(at, mesh));
    expect_ok(hkt_mesh_comm(&pp, mesh, "pp"));
    expect_ok(hkt_mesh_comm(&dp, mesh, "dp"));
    expect_ok(hkt_mesh_comm(&embedding, mesh, "embedding"));
    t.stage   = at[HKT_AXIS_PP];
    t.replica = at[HKT_AXIS_DP];
    for (int i = 0; i < TOKENS; i++)
        t.embedding[i] = (float)(i * 3 - 7);
    expect_ok(hkt_pipeline_create(&pipeline, pp, &shape, &message, NULL));
    expect_ok(hkt_pipeline_run(pipeline, &calls));
    if (embedding)
        expect_ok(hkt_all_reduce(t.gradient, t.gradient, TOKENS, HKT_FLOAT32, HKT_SUM, embedding, NULL));
    expect_ok(hkt_all_reduce(t.gradient, t.gradient, TOKENS, HKT_FLOAT32, HKT_SUM, dp, NULL));
    for (int replica = 0; replica < size[HKT_AXIS_DP]; replica++)
        for (int micro = 0; micro < micros; micro++) {
            const struct tied other = {.replica = replica};
            const int         token = token_of(&other, micro);

            wanted[token] += 2 * t.embedding[token] + (float)(t.stages * (t.stages - 1) / 2);
        }
    if (embedding)
        expect(!memcmp(wanted, t.gradient, sizeof(wanted)), "stage %d has another gradient than one process: %g, %g",
               t.stage, (double)t.gradient[0], (double)wanted[0]);
    expect_ok(hkt_pipeline_destroy(pipeline));
    expect_ok(hkt_mesh_destroy(mesh));
}

/* Proves rows 12, 57 and case C03's first half: on a mesh of DP and PP (16 ranks among them) both copies of a tied
 * embedding get the gradient that one process has, exactly. */
START_TEST(T_R57_tied_embedding_on_a_mesh)
{
    static int size[][HKT_AXES] = {{1, 1, 2, 2}, {1, 1, 4, 4}, {1, 1, 3, 1}, {2, 1, 1, 3}};

    world(size[_i][0] * size[_i][1] * size[_i][2] * size[_i][3], THREADS, tied_embedding, size[_i]);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_R57_tied_embedding_on_a_mesh, 4, 60);
}

int main(void)
{
    return run_suite("pipeline on a mesh", add);
}
