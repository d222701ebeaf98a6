/* test_pipeline_conduct.c -- how pipelines behave while they run: beside the computation, in the time of the formula,
 * and when something goes wrong on one stage.
 */
#include "harness.h"

#include <hocket_train.h>

#include <string.h>
#include <unistd.h>

/* What the ranks of the next tests tell each other. */
struct board {
    _Atomic uint32_t computing;
};

static int forward_and_tell(hkt_pipeline_work_t *work, void *arg)
{
    struct rank  *me = arg;
    struct board *b  = me->shared;

    if (me->rank == 0 && work->micro == 1)
        atomic_store(&b->computing, 1);
    return 0;
}

static int nothing(hkt_pipeline_work_t *work, void *arg)
{
    (void)work;
    (void)arg;
    return 0;
}

static void send_beside(struct rank *me)
{
    const hkt_pipeline_shape_t   shape   = {HKT_PIPELINE_GPIPE, 2, 1, 2, 0};
    const hkt_pipeline_message_t message = {HKT_FLOAT32, {4, 1000, 1000}, false}; /* 16 MB: nobody buffers that */
    const hkt_pipeline_calls_t   calls   = {forward_and_tell, nothing, NULL, NULL, me};
    struct board                *b       = me->shared;
    hkt_pipeline_t              *pipeline;

    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &shape, &message, NULL));
    if (me->rank == 1)
        await(&b->computing, 1, 30); /* receives nothing before the other one computes the next micro-batch */
    expect_ok(hkt_pipeline_run(pipeline, &calls));
    expect_ok(hkt_pipeline_destroy(pipeline));
}

/* Proves: a stage computes the next micro-batch while the last one's output waits for its receiver. */
START_TEST(sends_go_beside_the_computation)
{
    world(2, _i, send_beside, NULL);
}
END_TEST

static int nap_forward(hkt_pipeline_work_t *work, void *arg)
{
    (void)work;
    (void)arg;
    pause_ms(6);
    return 0;
}

static int nap_backward(hkt_pipeline_work_t *work, void *arg)
{
    (void)work;
    (void)arg;
    pause_ms(12);
    return 0;
}

/* Shared: how often the run was within 5 % of the formula. */
static void timed(struct rank *me)
{
    const hkt_pipeline_shape_t  *shape   = me->arg;
    const hkt_pipeline_message_t message = {HKT_FLOAT32, {1, 1, 100}, false};
    const hkt_pipeline_calls_t   calls   = {nap_forward, nap_backward, nap_forward, nap_forward, NULL};
    _Atomic uint32_t            *good    = me->shared;
    hkt_pipeline_t              *pipeline;
    hkt_pipeline_trace_t         trace;
    hkt_pipeline_timing_t        t;

    expect_ok(hkt_pipeline_simulate(&t, NULL, shape, NULL));
    expect_ok(hkt_pipeline_create(&pipeline, me->comm, shape, &message, NULL));
    for (int attempt = 0; attempt < 10 && !atomic_load(good); attempt++) {
        double unit, all[2];

        expect_ok(hkt_barrier(me->comm, NULL));
        expect_ok(hkt_pipeline_run(pipeline, &calls));
        expect_ok(hkt_pipeline_trace(&trace, pipeline));
        all[0] = trace.busy / t.ideal; /* what the unit really was, naps being late: of the slowest stage */
        all[1] = trace.total;
        expect_ok(hkt_all_reduce(all, all, 2, HKT_FLOAT64, HKT_MAX, me->comm, NULL));
        unit = 0.006;
        expect(all[1] >= t.total * unit, "the run took %g, less than the formula's %g", all[1], t.total * unit);
        expect_ok(hkt_barrier(me->comm, NULL)); /* all have read `good` */
        if (me->rank == 0 && all[1] <= 1.05 * t.total * all[0])
            atomic_store(good, 1);
        expect_ok(hkt_barrier(me->comm, NULL));
    }
    expect(atomic_load(good), "no run was within 5 %% of the formula; the last took %g for %g units", trace.total,
           t.total);
    expect_ok(hkt_pipeline_destroy(pipeline));
}

/* Proves row 18 on the clock: with computations that take 6 and 12 ms a step takes the formula's time, bubble included,
 * within 5 %. */
START_TEST(T_R18_time_of_a_step)
{
    hkt_pipeline_shape_t shape = {_i ? HKT_PIPELINE_ZERO_BUBBLE : HKT_PIPELINE_1F1B, 4, 1, 8, 0};

    if (!slow_build())
        world(4, THREADS, timed, &shape);
}
END_TEST

/* ---- what goes wrong */

static int failing_forward(hkt_pipeline_work_t *work, void *arg)
{
    struct rank *me = arg;

    if (me->rank == 1 && work->micro == 2)
        return hkt_error_set(HKT_ERR_SYSTEM, "the disk is full of eels");
    return 0;
}

static void callback_fails(struct rank *me)
{
    const hkt_pipeline_shape_t   shape   = {HKT_PIPELINE_1F1B, 4, 1, 8, 0};
    const hkt_pipeline_message_t message = {HKT_FLOAT32, {1, 300, 1000}, false};
    hkt_pipeline_calls_t         calls   = {failing_forward, NULL, NULL, NULL, me};
    hkt_pipeline_t              *pipeline;
    float                        x = 1;

    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &shape, &message, NULL));
    expect_code(hkt_pipeline_run(pipeline, &calls), HKT_ERR_ARGUMENT);
    expect_said("backward is NULL, and schedule 1f1b needs it");
    expect_code(hkt_pipeline_run(pipeline, NULL), HKT_ERR_ARGUMENT);
    calls.backward = nothing;
    expect_code(hkt_pipeline_run(pipeline, &calls), me->rank == 1 ? HKT_ERR_SYSTEM : HKT_ERR_ABORTED);
    expect_said(me->rank == 1 ? "pipeline stage 1, F2.0: the disk is full of eels" : "pipeline stage");
    expect_code(hkt_pipeline_run(pipeline, &calls), HKT_ERR_USAGE);
    expect_said("destroy it");
    rendezvous(me); /* the others may be reading this stage's memory until their runs have ended */
    expect_ok(hkt_pipeline_destroy(pipeline));
    expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL)); /* the caller's communicator lives */
    expect_true(x == 4);
}

/* Proves: an error of one stage's callback ends the run of all stages at once, and its sentence is kept. */
START_TEST(a_failing_callback_ends_all_stages)
{
    world_run(&(struct world){.n = 4, .kind = _i, .fn = callback_fails, .deadline = 30});
}
END_TEST

static int dying_forward(hkt_pipeline_work_t *work, void *arg)
{
    struct rank *me = arg;

    if (me->rank == 1 && work->micro == 1)
        _exit(7);
    return 0;
}

static void rank_dies(struct rank *me)
{
    const hkt_pipeline_shape_t   shape   = {HKT_PIPELINE_1F1B, 3, 1, 6, 0};
    const hkt_pipeline_message_t message = {HKT_FLOAT32, {1, 300, 1000}, false};
    const hkt_pipeline_calls_t   calls   = {dying_forward, nothing, NULL, NULL, me};
    hkt_pipeline_t              *pipeline;
    int                          rc;

    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &shape, &message, NULL));
    rc = hkt_pipeline_run(pipeline, &calls);
    expect(rc == HKT_ERR_PEER, "the run gives %d: %s", rc, hkt_last_error());
    expect_ok(hkt_pipeline_destroy(pipeline));
}

/* Proves: the death of a stage's process is an error of its neighbours, not a hang. */
START_TEST(a_dead_stage_is_an_error)
{
    world_run(
        &(struct world){.n = 3, .kind = PROCESSES, .fn = rank_dies, .deadline = 30, .may_die = 1 << 1, .keep = true});
}
END_TEST

static int bad_shape(hkt_pipeline_work_t *work, void *arg)
{
    struct rank  *me       = arg;
    const int64_t large[3] = {1 << 20, 1 << 20, 1 << 30};

    if (me->rank == 0 && work->micro)
        memcpy(work->output_shape, large, sizeof(large));
    else if (me->rank == 0)
        memset(work->output_shape, 0, sizeof(large));
    return 0;
}

static void shapes_too_large(struct rank *me)
{
    const hkt_pipeline_shape_t   shape   = {HKT_PIPELINE_GPIPE, 2, 1, 2, 0};
    const hkt_pipeline_message_t message = {HKT_FLOAT32, {1, 1, 10}, true};
    const hkt_pipeline_calls_t   calls   = {bad_shape, nothing, NULL, NULL, me};
    hkt_pipeline_t              *pipeline;

    expect_ok(hkt_pipeline_create(&pipeline, me->comm, &shape, &message, NULL));
    expect_code(hkt_pipeline_run(pipeline, &calls), me->rank ? HKT_ERR_ABORTED : HKT_ERR_ARGUMENT);
    if (me->rank == 0)
        expect_said("1048576 x 1048576 x 1073741824");
    rendezvous(me);
    expect_ok(hkt_pipeline_destroy(pipeline));
}

/* Proves: an output that does not fit what was agreed is refused before it is sent. */
START_TEST(a_shape_too_large_is_refused)
{
    world(2, THREADS, shapes_too_large, NULL);
}
END_TEST

static void making_fails(struct rank *me)
{
    hkt_pipeline_shape_t   shape   = {HKT_PIPELINE_1F1B, 3, 1, 4, 0};
    hkt_pipeline_message_t message = {HKT_FLOAT32, {1, 1, 10}, false};
    hkt_pipeline_t        *p       = (void *)me;

    shape.micros = me->rank == 1 ? 5 : 4;
    expect_code(hkt_pipeline_create(&p, me->comm, &shape, &message, NULL), HKT_ERR_MISMATCH);
    expect_said("rank 1 for 1f1b, 3 stages, 1 chunks, 5 micro-batches");
    shape.micros = 4;
    shape.stages = me->rank == 1 ? 4 : 3;
    expect_code(hkt_pipeline_create(&p, me->comm, &shape, &message, NULL), HKT_ERR_ARGUMENT);
    expect_said(me->rank == 1 ? "4 stages on a communicator of 3 ranks" : "rank 1 has an error");
    shape.stages     = 3;
    message.shape[1] = me->rank == 2 ? -1 : 1;
    expect_code(hkt_pipeline_create(&p, me->comm, &shape, &message, NULL), HKT_ERR_ARGUMENT);
    message.shape[1] = INT64_MAX / 2;
    expect_code(hkt_pipeline_create(&p, me->comm, &shape, &message, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_pipeline_create(&p, me->comm, &shape, NULL, NULL), HKT_ERR_ARGUMENT);
    expect_true(p == (void *)me);
    expect_ok(hkt_pipeline_destroy(NULL));
    expect_code(hkt_pipeline_run(NULL, NULL), HKT_ERR_ARGUMENT);
}

/* Proves: ranks that want different pipelines, or one that wants nonsense, all get an error, and nothing hangs. */
START_TEST(making_is_agreed)
{
    world(3, THREADS, making_fails, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, sends_go_beside_the_computation, 2, 60);
    ADD(s, T_R18_time_of_a_step, 2, 60);
    ADD(s, a_failing_callback_ends_all_stages, 2, 60);
    ADD(s, a_dead_stage_is_an_error, 1, 60);
    ADD(s, a_shape_too_large_is_refused, 1, 60);
    ADD(s, making_is_agreed, 1, 60);
}

int main(void)
{
    return run_suite("pipeline conduct", add);
}
