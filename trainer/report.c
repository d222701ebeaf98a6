/* report.c -- see report.h. */
#include "report.h"

#include "clock.h"
#include "crew.h"
#include "plot.h"
#include "stop.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BAR = 20 };

static const double bit = 0.6931471805599453;

long page_faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* Calls and bytes of the groups that this rank is in, of the steps alone. */
enum { TENSOR, CONTEXT, EMBEDDING, DATA, PIPELINE };
static const char *const group_name[REPORT_GROUPS] = {
    [TENSOR] = "tensor-parallel", [CONTEXT] = "context-parallel", [EMBEDDING] = "embedding", [DATA] = "data-parallel",
    [PIPELINE] = "pipeline"};

static bool read_traffic(hkt_traffic_t *traffic, const struct engine *e, int group)
{
    hkt_comm_t *const comm[] = {[TENSOR] = e->tp, [CONTEXT] = e->cp, [EMBEDDING] = e->embedding};
    hkt_traffic_t     back;

    if (group == PIPELINE) {
        if (!e->pipeline || hkt_pipeline_traffic(traffic, &back, e->pipeline) < 0)
            return false;
        traffic->calls += back.calls;
        traffic->bytes += back.bytes;
        return true;
    }
    if (group == DATA)
        return e->dp_cp && hkt_zero_traffic(traffic, NULL, e->zero) == HKT_OK;
    return comm[group] && hkt_comm_traffic(comm[group], NULL, traffic) == HKT_OK;
}

static FILE *open_file(const struct report *r, const char *flag, const char *path)
{
    FILE *file = r->speaks && path ? fopen(path, "w") : NULL;

    if (r->speaks && path && !file)
        stop("%s %s: %s", flag, path, strerror(errno));
    return file;
}

static void close_file(FILE *file, const char *flag, const char *path)
{
    if (file && (ferror(file) | fclose(file)))
        stop("%s %s could not be written: %s", flag, path, strerror(errno));
}

void report_begin(struct report *r, struct engine *e, long first)
{
    const struct settings *s     = e->settings;
    const size_t           steps = (size_t)(s->iterations > first ? s->iterations - first : 0) + 1;

    *r           = (struct report){.engine = e, .settings = s, .first = first, .step = first, .held_out = NAN};
    r->speaks    = engine_speaks(e);
    r->terminal  = r->speaks && isatty(STDOUT_FILENO);
    r->mark.step = first;
    r->curve_x   = calloc(4 * steps, sizeof(double));
    r->began     = clock_seconds();
    for (int i = 0; i < REPORT_GROUPS; i++)
        (void)read_traffic(&r->before[i], e, i);
    if (!r->curve_x)
        stop("out of memory for the loss curve of %ld steps", s->iterations);
    memset(r->curve_x, 0, 4 * steps * sizeof(double)); /* every page is there before the first step */
    r->curve_y = r->curve_x + steps;
    r->held_x  = r->curve_y + steps;
    r->held_y  = r->held_x + steps;
    r->file    = open_file(r, "--loss-file", s->losses);
    r->timing  = open_file(r, "--timing-file", s->timing);
}

void report_end(struct report *r)
{
    close_file(r->file, "--loss-file", r->settings->losses);
    close_file(r->timing, "--timing-file", r->settings->timing);
    free(r->curve_x);
}

/* Elements of the whole model, padding left out. */
static double all_parameters(const struct gpt_shape *s)
{
    const double C = s->width, F = s->mlp, U = s->gated ? 2 * F : F, Q = C + 2 * C / s->heads * s->groups;
    const double biases = s->unbiased ? 0 : Q + U + 2 * C, norm = s->rms ? C : 2 * C;

    return s->layers * (Q * C + C * C + (U + F) * C + biases + 2 * norm) + (s->untied ? 2 : 1) * s->vocabulary * C +
           (s->positions == GPT_LEARNED ? s->length * C : 0) + norm + (s->embedding_norm ? norm : 0);
}

/* Where ZeRO 2 and 3 keep no share of the gradients but all of them, and why. */
static void print_gradients(const struct engine *e)
{
    const struct settings *s = e->settings;

    if (s->zero < 2 || !e->dp_cp || e->each)
        return;
    printf("gradients kept whole until the end of a step, as by ZeRO 1: ");
    if (e->pp)
        printf("the stages of a pipeline have several micro-batches under way\n");
    else if (s->bitwise)
        printf("--bitwise-layouts adds them in one tree\n");
    else
        printf("its micro-batches are added first, which gives the bits of ZeRO 0; --grad-reduce each keeps 1/%d\n",
               e->grid.size[HKT_AXIS_DP]);
}

static void print_layout(const struct engine *e)
{
    static const char *const recompute[] = {"", ", selective recomputation", ", full recomputation"};
    const struct settings   *s           = e->settings;

    printf("layout    %d rank%s = tensor %ld x context %ld x pipeline %ld x data %d%s, ZeRO %ld%s; %d thread%s each\n",
           e->ranks, e->ranks == 1 ? "" : "s", s->tp, s->cp, s->pp, e->grid.size[HKT_AXIS_DP],
           s->sequence && s->tp > 1 ? ", sequence parallel" : "", s->zero, recompute[s->recompute], crew_size(),
           crew_size() == 1 ? "" : "s");
    print_gradients(e);
    if (e->pp) {
        printf("pipeline  %s, %d stages, %d chunk%s each\n", hkt_pipeline_name(e->schedule.kind), e->schedule.stages,
               e->chunks, e->chunks == 1 ? "" : "s");
        (void)hkt_layout_print(stdout, e->layers_of, e->schedule.stages, e->chunks);
    }
}

void report_setup(struct report *r, const struct data *d, const char *matrix)
{
    const struct settings *s = r->settings;
    const struct engine   *e = r->engine;

    if (!r->speaks)
        return;
    if (d->bytes)
        printf("text      %.2f MB, %g %% held out: %s\n", (double)d->bytes / 1e6, s->held_out, d->origin);
    else
        printf("text      %s\n", d->origin);
    printf(
        "model     %.3f million parameters: %ld layers, width %ld, %ld heads, MLP %ld, vocabulary %d, sequences of %ld "
        "tokens\n",
        all_parameters(&e->shape) / 1e6, s->layers, s->width, s->heads, s->mlp, e->shape.vocabulary, s->length);
    print_layout(e);
    printf("step      %ld sequences = %d x %d micro-batch%s x %ld; matrix products by %s, kernels %s\n",
           s->global_batch, e->grid.size[HKT_AXIS_DP], e->micros, e->micros == 1 ? "" : "es", s->micro_batch, matrix,
           kernels->name);
    if (e->dp_cp)
        printf("buckets   %d, of at least %.3g MB, reduced %s%s%s\n", hkt_buckets_count(hkt_zero_buckets(e->zero)),
               (double)s->bucket_bytes / 1e6, s->overlap ? "during the backward pass" : "after the backward pass",
               s->codec ? " in the code " : "", s->codec ? s->codec : "");
    fflush(stdout);
}

/* Percent of the time in flight that was not waited for. Waking up late can make the waiting the longer of the two. */
static double hidden(double in_flight, double waited)
{
    return 100 * fmax(0, 1 - waited / in_flight);
}

/* "communication 3.1 %, 87 % of it hidden": shares of `seconds`. */
static void print_communication(const struct report *r, double seconds, double in_flight, double waited)
{
    if (r->engine->dp_cp && in_flight > 0)
        printf("  communication %.1f %%, %.0f %% of it hidden", 100 * in_flight / seconds, hidden(in_flight, waited));
}

static void print_line(struct report *r)
{
    const struct engine_times *t       = &r->engine->times;
    const double               seconds = t->steps - r->mark.steps,
                 loss                  = (r->losses - r->mark.loss) / (double)(r->step - r->mark.step);

    printf("step %6ld/%ld  loss %.6f  %.3f bits/token  norm %.3f  lr %.2e  %.0f tokens/s", r->step,
           r->settings->iterations, loss, loss / bit, r->norm, r->rate, (r->tokens - r->mark.tokens) / seconds);
    print_communication(r, seconds, t->in_flight - r->mark.in_flight, t->waited - r->mark.waited);
    if (r->engine->scaler)
        printf("  loss scale %g", hkt_scaler_scale(r->engine->scaler));
    printf("\n");
    r->mark.step      = r->step;
    r->mark.steps     = t->steps;
    r->mark.in_flight = t->in_flight;
    r->mark.waited    = t->waited;
    r->mark.loss      = r->losses;
    r->mark.tokens    = r->tokens;
}

/* One line that is drawn over and over, cut to the width of the terminal. */
static void print_bar(struct report *r)
{
    const struct engine_times *t   = &r->engine->times;
    const double               now = clock_seconds(),
                 part              = (double)(r->step - r->first) / (double)(r->settings->iterations - r->first);
    const double   left            = (now - r->began) / part * (1 - part);
    struct winsize window          = {.ws_col = 80};
    char           bar[BAR + 1], line[256];
    int            n;

    if (now - r->shown < 0.1 && r->step < r->settings->iterations)
        return;
    r->shown = now;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    n = snprintf(line, sizeof(line), "[%s] %ld/%ld  %d:%02d left  loss %.3f  %.3f bits/token  %.0f tokens/s", bar,
                 r->step, r->settings->iterations, (int)left / 60, (int)left % 60, r->loss, r->loss / bit,
                 r->tokens / t->steps);
    if (r->engine->dp_cp && t->in_flight > 0)
        snprintf(line + n, sizeof(line) - (size_t)n, "  communication %.1f %%, %.0f %% hidden",
                 100 * t->in_flight / t->steps, hidden(t->in_flight, t->waited));
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) || window.ws_col == 0)
        window.ws_col = 80;
    printf("\r%.*s\033[K", window.ws_col - 1, line);
}

/* What the step has added to the engine's times. */
static void write_timing(struct report *r)
{
    const struct engine_times *t = &r->engine->times, *b = &r->before_step;

    if (r->timing)
        fprintf(r->timing, "%ld %.9f %.9f %.9f %.9f %.9f %.9f %.6f\n", r->step, t->steps - b->steps,
                t->forward - b->forward, t->backward - b->backward, t->optimizer - b->optimizer, t->waited - b->waited,
                t->products - b->products, (t->operations - b->operations) / 1e9);
    r->before_step = *t;
}

static size_t takes(const struct engine *e)
{
    hkt_ledger_entry_t entry;
    size_t             sum = 0;

    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        if (hkt_ledger_read(&entry, (hkt_bytes_t)kind, e->ledger) == HKT_OK)
            sum += entry.takes;
    return sum;
}

void report_step(struct report *r, const struct report_entry *entry, const hkt_zero_report_t *update)
{
    const long at = r->step - r->first;

    r->loss = entry->loss;
    r->rate = entry->rate;
    r->norm = update->norm;
    r->losses += entry->loss;
    r->tokens += (double)entry->sequences * (double)r->settings->length;
    r->skipped += update->skipped;
    r->curve_x[at] = (double)(r->step + 1);
    r->curve_y[at] = entry->loss;
    r->step++;
    if (at < 2)
        r->takes = takes(r->engine);
    if (r->file)
        fprintf(r->file, "step %ld %.17g %.17g%s\n", r->step, entry->loss, update->norm,
                update->skipped ? " skipped" : "");
    write_timing(r);
    if (r->speaks && r->terminal)
        print_bar(r);
    else if (r->speaks && (r->step % r->settings->log_interval == 0 || at == 0))
        print_line(r);
    if (r->speaks)
        fflush(stdout);
}

void report_evaluation(struct report *r, double loss)
{
    r->held_out                 = loss;
    r->held_x[r->evaluations]   = (double)r->step;
    r->held_y[r->evaluations++] = loss;
    if (r->file)
        fprintf(r->file, "eval %ld %.17g 0\n", r->step, loss);
    if (r->speaks)
        printf("%seval %6ld/%ld  held-out loss %.6f  %.3f bits/token%s\n", r->terminal ? "\r" : "", r->step,
               r->settings->iterations, loss, loss / bit, r->terminal ? "\033[K" : "");
}

/* Mean of the last steps: one step's loss says little. */
static double last_loss(const struct report *r)
{
    const long all = r->step - r->first, count = all < r->settings->log_interval ? all : r->settings->log_interval;
    double     sum = 0;

    for (long i = all - count; i < all; i++)
        sum += r->curve_y[i];
    return sum / (double)count;
}

static void print_share(const char *what, double seconds, double all)
{
    printf("  %-26s %8.2f s  %5.1f %%\n", what, seconds, 100 * seconds / all);
}

static void print_traffic(const struct report *r)
{
    const double  steps = (double)(r->step - r->first);
    hkt_traffic_t now;

    for (int i = 0; i < REPORT_GROUPS; i++)
        if (read_traffic(&now, r->engine, i))
            printf("  %-26s %8.1f %s, %.3f MB a step\n", group_name[i],
                   (double)(now.calls - r->before[i].calls) / steps, i == PIPELINE ? "messages" : "calls",
                   (double)(now.bytes - r->before[i].bytes) / steps / 1e6);
}

static void print_memory(const struct report *r)
{
    hkt_ledger_entry_t entry, outside;
    double             sum = 0;

    printf("  memory of rank 0, MB      ");
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++) {
        if (hkt_ledger_read(&entry, (hkt_bytes_t)kind, r->engine->ledger) < 0)
            continue;
        printf("%s %s %.2f", kind ? "," : "", hkt_bytes_name((hkt_bytes_t)kind), (double)entry.peak / 1e6);
        sum += (double)entry.peak;
    }
    printf(": %.2f\n", sum / 1e6);
    if (hkt_ledger_read(&outside, HKT_BYTES_OPTIMIZER, r->engine->host) == HKT_OK && outside.peak)
        printf("  of the host's memory, MB   optimizer %.2f\n", (double)outside.peak / 1e6);
}

static void print_table(const struct report *r, double bubble)
{
    const struct engine_times *t    = &r->engine->times;
    const double               loss = last_loss(r);

    printf("report    %ld steps, %.0f tokens in %.1f s: %.0f tokens/s; loss %.4f, %.3f bits/token", r->step - r->first,
           r->tokens, t->steps, r->tokens / t->steps, loss, loss / bit);
    if (isfinite(r->held_out))
        printf("; held out %.4f, %.3f bits/token", r->held_out, r->held_out / bit);
    printf("\n");
    print_share("forward", t->forward, t->steps);
    print_share("backward", t->backward, t->steps);
    print_share("waiting for gradients", t->waited, t->steps);
    print_share("optimizer", t->optimizer, t->steps);
    if (r->engine->dp_cp && t->in_flight > 0)
        printf("  gradients in flight        %8.2f s  %5.1f %%, of which %.0f %% hidden behind the backward pass\n",
               t->in_flight, 100 * t->in_flight / t->steps, hidden(t->in_flight, t->waited));
    if (r->engine->pp)
        printf("  pipeline: bubble, with messages %.1f %% of the stages' time; %.1f %% by the schedule\n", 100 * bubble,
               100.0 * (r->engine->schedule.stages - 1) /
                   (r->engine->schedule.micros * r->engine->chunks + r->engine->schedule.stages - 1));
    printf("  matrix products            %8.2f s  %5.1f %%, at %.1f GFLOP/s\n", t->products,
           100 * t->products / t->steps, t->operations / t->products / 1e9);
    print_traffic(r);
    print_memory(r);
    if (r->skipped)
        printf("  skipped for overflow       %8ld steps\n", r->skipped);
    if (r->step > r->first + 2)
        printf("  memory taken after step 2  %8zu times; page faults %ld\n", takes(r->engine) - r->takes, t->faults);
}

/* Share of all stages' time in which they did not compute. */
static double bubble_of(const struct engine *e)
{
    double times[2] = {e->times.busy, e->times.pipelined};

    if (!e->pp)
        return 0;
    need(hkt_all_reduce(times, times, 2, HKT_FLOAT64, HKT_SUM, e->pp, NULL), "adding the stages' times");
    return times[1] > 0 ? 1 - times[0] / times[1] : 0;
}

void report_close(struct report *r)
{
    const struct settings *s      = r->settings;
    const double           bubble = bubble_of(r->engine);
    char                   subtitle[120];

    if (!r->speaks || r->step == r->first)
        return;
    if (r->terminal)
        printf("\n");
    print_table(r, bubble);
    fflush(stdout);
    if (!s->plot)
        return;
    snprintf(subtitle, sizeof(subtitle), "%ld layers, width %ld, %d rank%s", s->layers, s->width, r->engine->ranks,
             r->engine->ranks == 1 ? "" : "s");
    plot_write(s->plot, subtitle, (struct curve){r->curve_x, r->curve_y, (size_t)(r->step - r->first)},
               (struct curve){r->held_x, r->held_y, (size_t)r->evaluations});
    printf("  loss curve in %s\n", s->plot);
}
