/* report.c -- see report.h. */
#include "report.h"

#include "clock.h"
#include "optimizer.h"
#include "plot.h"
#include "stop.h"

#include <math.h>
#include <stdio.h>
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

void report_begin(struct report *r, const struct settings *s, const struct buckets *buckets, bool speaks)
{
    const size_t steps = (size_t)s->iterations + 1;

    *r = (struct report){.settings = s, .buckets = buckets, .speaks = speaks, .ranks = buckets->ranks, .held_out = NAN};
    r->terminal = speaks && isatty(STDOUT_FILENO);
    r->curve_x  = calloc(4 * steps, sizeof(double));
    r->began    = clock_seconds();
    if (!r->curve_x)
        stop("out of memory for the loss curve of %ld steps", s->iterations);
    memset(r->curve_x, 0, 4 * steps * sizeof(double)); /* every page is there before the first step */
    r->curve_y = r->curve_x + steps;
    r->held_x  = r->curve_y + steps;
    r->held_y  = r->held_x + steps;
}

void report_end(struct report *r)
{
    free(r->curve_x);
}

void report_setup(struct report *r, const struct report_setup *setup)
{
    const struct settings *s = r->settings;

    if (!r->speaks)
        return;
    printf("text      %.2f MB, %g %% held out: %s\n", (double)setup->text->size / 1e6, s->held_out,
           setup->text->origin);
    printf("model     %.3f million parameters: %ld layers, width %ld, %ld heads, MLP %ld, sequences of %ld bytes\n",
           (double)setup->model->unpadded / 1e6, s->layers, s->width, s->heads, s->mlp, s->length);
    printf("step      %ld sequences = %d rank%s x %d micro-batch%s x %ld; matrix products by %s, kernels %s\n",
           s->global_batch, r->ranks, r->ranks == 1 ? "" : "s", setup->micro_batches,
           setup->micro_batches == 1 ? "" : "es", s->micro_batch, setup->matrix, kernels->name);
    if (r->ranks > 1)
        printf("buckets   %d, of at least %.3g MB, all-reduced %s\n", r->buckets->count, (double)s->bucket_bytes / 1e6,
               s->overlap ? "during the backward pass" : "after the backward pass");
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
    if (r->ranks > 1 && in_flight > 0)
        printf("  communication %.1f %%, %.0f %% of it hidden", 100 * in_flight / seconds, hidden(in_flight, waited));
}

static double tokens(const struct report *r, long steps)
{
    return (double)steps * (double)r->settings->global_batch * (double)r->settings->length;
}

static void print_line(struct report *r)
{
    const double seconds = r->times.steps - r->mark.steps,
                 loss    = (r->losses - r->mark.loss) / (double)(r->step - r->mark.step);

    printf("step %6ld/%ld  loss %.6f  %.3f bits/byte  norm %.3f  lr %.2e  %.0f tokens/s", r->step,
           r->settings->iterations, loss, loss / bit, r->norm, optimizer_rate(r->settings, r->step),
           tokens(r, r->step - r->mark.step) / seconds);
    print_communication(r, seconds, r->buckets->in_flight - r->mark.in_flight, r->buckets->waited - r->mark.waited);
    printf("\n");
    r->mark.step      = r->step;
    r->mark.steps     = r->times.steps;
    r->mark.in_flight = r->buckets->in_flight;
    r->mark.waited    = r->buckets->waited;
    r->mark.loss      = r->losses;
}

/* One line that is drawn over and over, cut to the width of the terminal. */
static void print_bar(struct report *r)
{
    const double   now = clock_seconds(), done = (double)r->step / (double)r->settings->iterations;
    const double   left = (now - r->began) / done * (1 - done), flight = r->buckets->in_flight;
    struct winsize window = {.ws_col = 80};
    char           bar[BAR + 1], line[256];
    int            n;

    if (now - r->shown < 0.1 && r->step < r->settings->iterations)
        return;
    r->shown = now;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(done * BAR) ? '#' : '.';
    bar[BAR] = 0;
    n        = snprintf(line, sizeof(line), "[%s] %ld/%ld  %d:%02d left  loss %.3f  %.3f bits/byte  %.0f tokens/s", bar,
                        r->step, r->settings->iterations, (int)left / 60, (int)left % 60, r->loss, r->loss / bit,
                        tokens(r, r->step) / r->times.steps);
    if (r->ranks > 1 && flight > 0)
        snprintf(line + n, sizeof(line) - (size_t)n, "  communication %.1f %%, %.0f %% hidden",
                 100 * flight / r->times.steps, hidden(flight, r->buckets->waited));
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) || window.ws_col == 0)
        window.ws_col = 80;
    printf("\r%.*s\033[K", window.ws_col - 1, line);
}

void report_step(struct report *r, double loss, double norm)
{
    r->loss = loss;
    r->norm = norm;
    r->losses += loss;
    r->curve_x[r->step] = (double)(r->step + 1);
    r->curve_y[r->step] = loss;
    r->step++;
    if (r->speaks && r->terminal)
        print_bar(r);
    else if (r->speaks && (r->step % r->settings->log_interval == 0 || r->step == 1))
        print_line(r);
    if (r->speaks)
        fflush(stdout);
}

void report_evaluation(struct report *r, double loss)
{
    r->held_out                 = loss;
    r->held_x[r->evaluations]   = (double)r->step;
    r->held_y[r->evaluations++] = loss;
    if (r->speaks)
        printf("%seval %6ld/%ld  held-out loss %.6f  %.3f bits/byte%s\n", r->terminal ? "\r" : "", r->step,
               r->settings->iterations, loss, loss / bit, r->terminal ? "\033[K" : "");
}

/* Mean of the last steps: one step's loss says little. */
static double last_loss(const struct report *r)
{
    const long count = r->step < r->settings->log_interval ? r->step : r->settings->log_interval;
    double     sum   = 0;

    for (long i = r->step - count; i < r->step; i++)
        sum += r->curve_y[i];
    return sum / (double)count;
}

static void print_share(const char *what, double seconds, double all)
{
    printf("  %-26s %8.2f s  %5.1f %%\n", what, seconds, 100 * seconds / all);
}

static void print_table(const struct report *r)
{
    const struct times *t      = &r->times;
    const double        flight = r->buckets->in_flight, waited = r->buckets->waited, loss = last_loss(r);

    printf("report    %ld steps, %.0f tokens in %.1f s: %.0f tokens/s; loss %.4f, %.3f bits/byte", r->step,
           tokens(r, r->step), t->steps, tokens(r, r->step) / t->steps, loss, loss / bit);
    if (isfinite(r->held_out))
        printf("; held out %.4f, %.3f bits/byte", r->held_out, r->held_out / bit);
    printf("\n");
    print_share("forward", t->forward, t->steps);
    print_share("backward", t->backward, t->steps);
    print_share("waiting for communication", waited, t->steps);
    print_share("optimizer", t->optimizer, t->steps);
    if (r->ranks > 1 && flight > 0)
        printf("  communication in flight    %8.2f s  %5.1f %%, of which %.0f %% hidden behind the backward pass\n",
               flight, 100 * flight / t->steps, hidden(flight, waited));
    printf("  matrix products            %8.2f s  %5.1f %%, at %.1f GFLOP/s\n", t->products,
           100 * t->products / t->steps, t->operations / t->products / 1e9);
    if (r->step > 2)
        printf("  page faults after step 2   %8ld\n", t->faults);
}

void report_close(struct report *r)
{
    const struct settings *s = r->settings;
    char                   subtitle[120];

    if (!r->speaks)
        return;
    if (r->terminal)
        printf("\n");
    print_table(r);
    fflush(stdout);
    if (!s->plot)
        return;
    snprintf(subtitle, sizeof(subtitle), "%ld layers, width %ld, %d rank%s", s->layers, s->width, r->ranks,
             r->ranks == 1 ? "" : "s");
    plot_write(s->plot, subtitle, (struct curve){r->curve_x, r->curve_y, (size_t)r->step},
               (struct curve){r->held_x, r->held_y, (size_t)r->evaluations});
    printf("  loss curve in %s\n", s->plot);
}
