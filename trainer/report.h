/* report.h -- what a run says: a progress bar on a terminal, plain lines elsewhere, a table at the end, the loss curve.
 * Only rank 0's speaks; the others' stay silent.
 */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include "engine.h"

#include <stdio.h>

enum { REPORT_GROUPS = 5 };

struct report {
    struct engine         *engine;
    const struct settings *settings;
    bool                   speaks, terminal;
    long                   first, step; /* steps before this run; and in all */
    double                 began;       /* clock at the first step */
    double                 loss, norm, rate;
    double                 held_out; /* last evaluation */
    double                 shown;    /* clock at the last line */
    double                 tokens;   /* of this run */
    long                   skipped;
    hkt_traffic_t          before[REPORT_GROUPS]; /* traffic of the groups until the first step */
    size_t                 takes; /* times that the ledger gave memory, until the end of step 2 */
    struct {
        long   step;
        double steps, in_flight, waited, loss, tokens;
    } mark;         /* sums when the last line of the log was written */
    double  losses; /* sum over all steps */
    double *curve_x, *curve_y, *held_x, *held_y;
    int     evaluations;
    FILE   *file, *timing; /* --loss-file, --timing-file */
    struct engine_times before_step; /* until the step under way */
};

void report_begin(struct report *report, struct engine *engine, long first);
void report_end(struct report *report);

/* The lines before the first step. */
void report_setup(struct report *report, const struct data *data, const char *matrix);

/* Of this process so far. */
long page_faults(void);

/* After a step of so many sequences, whose seconds are already in the engine's times. */
struct report_entry {
    double loss, rate;
    long   sequences;
};
void report_step(struct report *report, const struct report_entry *entry, const hkt_zero_report_t *update);
void report_evaluation(struct report *report, double loss);

/* The table at the end, and the plot. Collective: stages tell each other how busy they were. */
void report_close(struct report *report);

#endif
