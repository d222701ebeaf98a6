/* train.c -- hkt-train: the reference trainer. Reads as training does: set up, then per step forward and backward with
 * the gradients reduced, update; now and then an evaluation and a checkpoint.
 *
 * Which sequences a step sees, which weights it begins with and what dropout drops depend on the seed and the step
 * only, and the loss is the mean over the global batch. So every layout trains the same model.
 */
#include "batches.h"
#include "data.h"
#include "dump.h"
#include "engine.h"
#include "report.h"
#include "sample.h"
#include "settings.h"
#include "state.h"
#include "stop.h"

#include <string.h>

struct trainer {
    struct settings settings;
    hkt_comm_t     *world;
    struct data     data;
    struct engine   engine;
    struct batches  batches;
    struct state    state;
    struct report   report;
    struct progress progress;
    FILE           *dump;
};

static long batch_size(const struct trainer *t)
{
    const struct settings *s    = &t->settings;
    const struct ramp      ramp = {(uint64_t)s->ramp_start, (uint64_t)s->ramp_step, (uint64_t)s->global_batch,
                                   (uint64_t)s->ramp_samples};

    return s->rampup ? (long)ramp_batch(&ramp, t->progress.consumed) : s->global_batch;
}

static void train_step(struct trainer *t)
{
    struct engine            *e      = &t->engine;
    const long                faults = page_faults(), sequences = batch_size(t);
    const int                 micros = engine_micros(e, sequences);
    const struct batches_span span   = {micros, engine_place(e, micros), t->progress.consumed, 0};
    hkt_zero_info_t           info;
    hkt_zero_report_t         update;
    struct report_entry       entry = {.sequences = sequences};

    batches_fill(&t->batches, &t->data, &span);
    for (int i = 0; i < micros; i++) {
        dump_tokens(t->dump, "token", t->batches.batch[i].token, (int)t->settings.micro_batch, (int)t->settings.length);
        dump_tokens(t->dump, "target", t->batches.batch[i].target, (int)t->settings.micro_batch,
                    (int)t->settings.length);
    }
    need(hkt_zero_info(&info, e->zero), "reading the optimizer"); /* skipped steps do not count for the rate */
    e->step    = (uint64_t)t->progress.step + 1;
    entry.rate = settings_rate(&t->settings, (long)info.steps + 1);
    entry.loss = engine_passes(e, &t->batches);
    dump_gradients(t->dump, e, "gradient.");
    engine_update(&update, e, entry.rate);
    t->progress.step++;
    t->progress.consumed += (uint64_t)sequences;
    e->times.faults += t->progress.step > t->report.first + 2 ? page_faults() - faults : 0;
    dump_number(t->dump, "loss", entry.loss);
    dump_number(t->dump, "norm", update.norm);
    report_step(&t->report, &entry, &update);
}

/* Mean loss of evenly spread held-out sequences, shared by the ranks as a training batch is. */
static void evaluate(struct trainer *t)
{
    const struct settings *s      = &t->settings;
    const int              micros = engine_micros(&t->engine, s->global_batch);
    double                 all[2] = {0, 0};

    for (long i = 0; i < s->eval_batches; i++) {
        const struct batches_span span = {micros, engine_place(&t->engine, micros), (uint64_t)(i * s->global_batch),
                                          (uint64_t)(s->eval_batches * s->global_batch)};
        double                    sum[2];

        batches_fill(&t->batches, &t->data, &span);
        engine_evaluate(sum, &t->engine, &t->batches);
        all[0] += sum[0];
        all[1] += sum[1];
    }
    report_evaluation(&t->report, all[0] / all[1]);
}

/* Stops when the ranks do not hold the same tokens. */
static void compare_data(const struct trainer *t)
{
    const struct text *text = &t->data.text;
    uint64_t hash = hkt_checksum(text->token, text->size * sizeof(*text->token), (uint64_t)t->data.vocabulary), low,
             high;

    need(hkt_all_reduce(&hash, &low, 1, HKT_UINT64, HKT_MIN, t->world, NULL), "comparing the ranks");
    need(hkt_all_reduce(&hash, &high, 1, HKT_UINT64, HKT_MAX, t->world, NULL), "comparing the ranks");
    if (low != high)
        stop("the ranks do not have the same text");
}

static void begin(struct trainer *t)
{
    need(hkt_comm_init_env(&t->world, NULL), "joining the other ranks");
    need(hkt_comm_rank(t->world, &stop_rank), "reading the rank");
    data_open(&t->data, &t->settings, t->world);
    compare_data(t);
    kernels_choose();
    engine_begin(&t->engine, &t->settings, t->data.vocabulary, t->world);
    batches_begin(&t->batches, &t->settings, t->engine.micros, t->engine.at[HKT_AXIS_CP]);
    t->engine.batches = &t->batches;
    state_begin(&t->state, &t->engine);
    t->dump = dump_open(t->settings.dump, &t->engine);
    if (!state_load(&t->progress, &t->state) && t->settings.generate)
        stop("--load %s: there is nothing to generate from", t->settings.load);
    report_begin(&t->report, &t->engine, t->progress.step);
}

static void end(struct trainer *t)
{
    dump_close(t->dump, t->settings.dump);
    report_end(&t->report);
    state_end(&t->state);
    batches_end(&t->batches);
    engine_end(&t->engine);
    data_close(&t->data);
    need(hkt_comm_destroy(t->world), "leaving the other ranks");
}

static void train(struct trainer *t)
{
    const struct settings *s    = &t->settings;
    const long             stop = s->exit_after && s->exit_after < s->iterations ? s->exit_after : s->iterations;

    dump_weights(t->dump, &t->engine, "before.");
    while (t->progress.step < stop) {
        train_step(t);

        const long step = t->progress.step;

        if (s->eval_interval && (step % s->eval_interval == 0 || step == stop))
            evaluate(t);
        if (s->save && (step == stop || (s->save_interval && step % s->save_interval == 0)))
            state_save(&t->state, &t->progress);
    }
    dump_weights(t->dump, &t->engine, "after.");
    report_close(&t->report);
}

int main(int argc, char **argv)
{
    static struct trainer t;
    const char           *matrix;

    settings_parse(&t.settings, argc, argv);
    matrix = matrix_begin(t.settings.bf16 ? MATRIX_BF16 : MATRIX_FP32);
    begin(&t);
    report_setup(&t.report, &t.data, matrix);
    if (!t.settings.generate)
        train(&t);
    if (t.settings.sample > 0)
        sample_print(&t.engine, &t.data);
    end(&t);
    return 0;
}
