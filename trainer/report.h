/* report.h -- what a run says: a progress bar on a terminal, plain lines elsewhere, a table at the end, the loss curve.
 * Only rank 0's speaks; the others' stay silent.
 */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include "buckets.h"
#include "data.h"
#include "settings.h"

/* Seconds of this rank, summed over steps. */
struct times {
    double steps, forward, backward, optimizer;
    double products, operations; /* matrix products: seconds and floating-point operations */
    long   faults;               /* page faults after the second step */
};

struct report {
    const struct settings *settings;
    const struct buckets  *buckets; /* communication times */
    bool                   speaks, terminal;
    int                    ranks;
    long                   step; /* finished steps */
    struct times           times;
    double                 began;      /* clock at the first step */
    double                 loss, norm; /* of the last step */
    double                 held_out;   /* last evaluation */
    double                 shown;      /* clock at the last line */
    struct {
        long   step;
        double steps, in_flight, waited, loss;
    } mark;         /* sums when the last line of the log was written */
    double  losses; /* sum over all steps */
    double *curve_x, *curve_y, *held_x, *held_y;
    int     evaluations;
};

void report_begin(struct report *report, const struct settings *settings, const struct buckets *buckets, bool speaks);
void report_end(struct report *report);

/* The lines before the first step. */
struct report_setup {
    const struct model *model;
    const struct text  *text;
    const char         *matrix; /* library */
    int                 micro_batches;
};
void report_setup(struct report *report, const struct report_setup *setup);

/* Of this process so far. */
long page_faults(void);

/* After a step, whose seconds are already in report->times. */
void report_step(struct report *report, double loss, double norm);
void report_evaluation(struct report *report, double loss);

/* The table at the end, and the plot. */
void report_close(struct report *report);

#endif
