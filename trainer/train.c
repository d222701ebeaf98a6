/* train.c -- hkt-train: the reference trainer. Reads as training does: set up, then per step forward, backward,
 * average, update.
 *
 * Data-parallel: every rank holds the whole model and takes its own sequences of the global batch. Which sequences a
 * step sees does not depend on the number of ranks, and gradients are averaged over the global batch, so 1, 2 and 4
 * ranks train the same model.
 */
#include "buckets.h"
#include "clock.h"
#include "data.h"
#include "dump.h"
#include "model.h"
#include "optimizer.h"
#include "random.h"
#include "report.h"
#include "sample.h"
#include "settings.h"
#include "stop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trainer {
    struct settings  settings;
    hkt_comm_t      *comm;
    int              rank, ranks, micro_batches;
    struct text      text;
    struct model     model;
    struct optimizer optimizer;
    struct buckets   buckets;
    struct report    report;
    uint8_t         *token, *target; /* (B,T) of one micro-batch */
    FILE            *dump;
};

static void not_ready(void *arg, size_t offset)
{
    (void)arg;
    (void)offset;
}

/* Sequence i of the batch goes to row i. */
static void set_row(const struct trainer *t, long i, const uint8_t *sequence)
{
    const size_t length = (size_t)t->settings.length;

    memcpy(t->token + (size_t)i * length, sequence, length);
    memcpy(t->target + (size_t)i * length, sequence + 1, length);
}

static struct batch batch_of(const struct trainer *t)
{
    return (struct batch){(int)t->settings.micro_batch, (int)t->settings.length, t->token, t->target};
}

/* Number of a sequence within the global batch: ranks take consecutive runs of it. */
static long place(const struct trainer *t, int micro_batch, long i)
{
    return ((long)t->rank * t->micro_batches + micro_batch) * t->settings.micro_batch + i;
}

/* Forward and backward of one micro-batch; returns its share of this rank's mean loss. */
static double pass(struct trainer *t, long step, int micro_batch)
{
    const struct settings *s = &t->settings;
    const double tokens = (double)s->length * (double)s->micro_batch * t->micro_batches, start = clock_seconds();
    const bool   last             = micro_batch == t->micro_batches - 1;
    const struct ready_hook hook  = {last ? buckets_ready : not_ready, &t->buckets};
    const struct batch      batch = batch_of(t);

    for (long i = 0; i < s->micro_batch; i++)
        set_row(t, i,
                text_sequence(&t->text, (uint64_t)s->seed,
                              (uint64_t)((step - 1) * s->global_batch + place(t, micro_batch, i)), (size_t)s->length));
    dump_tokens(t->dump, "token", t->token, batch.count, batch.length);
    dump_tokens(t->dump, "target", t->target, batch.count, batch.length);
    model_forward(&t->model, batch);

    const double loss = model_loss(&t->model, batch, (float)(1 / tokens)), middle = clock_seconds();

    model_backward(&t->model, batch, micro_batch > 0, hook);
    t->report.times.forward += middle - start;
    t->report.times.backward += clock_seconds() - middle;
    return loss / tokens;
}

static void train_step(struct trainer *t, long step)
{
    const struct matrix_work before = matrix_work();
    const double             start  = clock_seconds();
    const long               faults = page_faults();
    double                   loss   = 0, norm, ready;

    for (int micro_batch = 0; micro_batch < t->micro_batches; micro_batch++)
        loss += pass(t, step, micro_batch);
    t->report.times.products += matrix_work().seconds - before.seconds;
    t->report.times.operations += matrix_work().operations - before.operations;
    norm = buckets_wait(&t->buckets, &loss);
    if (!isfinite(norm)) /* the same on every rank */
        stop("the gradient of step %ld is no number any more: a lower --lr or a longer --lr-warmup-iters helps", step);
    ready = clock_seconds();
    dump_tensors(t->dump, &t->model, "gradient.", t->model.gradient);
    optimizer_step(&t->optimizer, &t->model, &t->settings, step, norm);
    t->report.times.optimizer += clock_seconds() - ready;
    t->report.times.steps += clock_seconds() - start;
    t->report.times.faults += step > 2 ? page_faults() - faults : 0;
    dump_number(t->dump, "loss", loss);
    dump_number(t->dump, "norm", norm);
    report_step(&t->report, loss, norm);
}

/* Mean loss of evenly spread held-out sequences, shared by the ranks as a training batch is. */
static void evaluate(struct trainer *t)
{
    const struct settings *s    = &t->settings;
    const long             all  = s->eval_batches * s->global_batch;
    double                 loss = 0;

    for (long batch = 0; batch < s->eval_batches; batch++)
        for (int micro_batch = 0; micro_batch < t->micro_batches; micro_batch++) {
            for (long i = 0; i < s->micro_batch; i++)
                set_row(t, i,
                        text_held_out(&t->text, (uint64_t)(batch * s->global_batch + place(t, micro_batch, i)),
                                      (uint64_t)all, (size_t)s->length));
            model_forward(&t->model, batch_of(t));
            loss += model_loss(&t->model, batch_of(t), 1);
        }
    loss /= (double)all * (double)s->length;
    need(hkt_all_reduce(&loss, &loss, 1, HKT_FLOAT64, HKT_SUM, t->comm, NULL), "adding the losses of the evaluation");
    report_evaluation(&t->report, loss);
}

/* Stops when the ranks do not hold the same bytes: another text, another build, or a broken sum. */
static void agree(const struct trainer *t, const char *what, const void *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u, low, high;

    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;

        memcpy(&word, (const char *)bytes + i, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    need(hkt_all_reduce(&hash, &low, 1, HKT_UINT64, HKT_MIN, t->comm, NULL), "comparing the ranks");
    need(hkt_all_reduce(&hash, &high, 1, HKT_UINT64, HKT_MAX, t->comm, NULL), "comparing the ranks");
    if (low != high)
        stop("the ranks do not have the same %s", what);
}

/* Floats that the other ranks of the machine can read and write in place. */
static float *take_shared(size_t count)
{
    void *memory;

    need(hkt_mem_alloc(&memory, count * sizeof(float)), "memory for weights and gradients");
    return memset(memory, 0, count * sizeof(float)); /* touched now, not in a step */
}

static void begin(struct trainer *t)
{
    struct settings   *s     = &t->settings;
    const struct shape shape = {(int)s->layers, (int)s->width, (int)s->heads, (int)s->mlp, (int)s->length};
    size_t             batch;

    need(hkt_comm_init_env(&t->comm, NULL), "joining the other ranks");
    need(hkt_comm_rank(t->comm, &t->rank), "reading the rank");
    need(hkt_comm_size(t->comm, &t->ranks), "reading the number of ranks");
    stop_rank        = t->rank;
    t->micro_batches = settings_share(s, t->ranks);
    text_load(&t->text, s->data_path, s->held_out, (size_t)s->length);
    kernels_choose();

    model_layout(&t->model, shape);
    t->model.weight   = take_shared(t->model.parameters);
    t->model.gradient = take_shared(t->model.parameters);
    model_begin(&t->model, (int)s->micro_batch, (uint64_t)s->seed, s->deviation);
    optimizer_begin(&t->optimizer, &t->model);
    buckets_begin(&t->buckets, &t->model, t->comm, s->bucket_bytes, s->overlap);
    batch     = (size_t)(s->micro_batch * s->length);
    t->token  = malloc(2 * batch);
    t->target = t->token + batch;
    if (!t->token)
        stop("out of memory for a batch of %zu bytes", batch);
    t->dump = t->rank == 0 ? dump_open(s->dump) : NULL;
    agree(t, "text", t->text.bytes, t->text.size);
    agree(t, "initial weights", t->model.weight, t->model.parameters * sizeof(float));
}

static void end(struct trainer *t)
{
    dump_close(t->dump, t->settings.dump);
    free(t->token);
    report_end(&t->report);
    buckets_end(&t->buckets);
    optimizer_end(&t->optimizer);
    need(hkt_comm_destroy(t->comm), "leaving the other ranks");
    need(hkt_mem_free(t->model.gradient), "freeing the gradients");
    need(hkt_mem_free(t->model.weight), "freeing the weights");
    model_end(&t->model);
    text_free(&t->text);
}

int main(int argc, char **argv)
{
    struct trainer t = {0};

    settings_parse(&t.settings, argc, argv);

    const struct settings *s      = &t.settings;
    const char            *matrix = matrix_begin(MATRIX_FP32);

    begin(&t);
    report_begin(&t.report, s, &t.buckets, t.rank == 0);
    report_setup(&t.report, &(struct report_setup){&t.model, &t.text, matrix, t.micro_batches});
    dump_tensors(t.dump, &t.model, "before.", t.model.weight);
    for (long step = 1; step <= s->iterations; step++) {
        train_step(&t, step);
        if (s->eval_interval && (step % s->eval_interval == 0 || step == s->iterations))
            evaluate(&t);
    }
    dump_tensors(t.dump, &t.model, "after.", t.model.weight);
    agree(&t, "weights after training", t.model.weight, t.model.parameters * sizeof(float));
    report_close(&t.report);
    if (t.rank == 0 && s->sample > 0) {
        printf("sample    ");
        sample_print(&t.model, s);
    }
    end(&t);
    return 0;
}
