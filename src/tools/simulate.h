/* simulate.h -- shared by the files of hkt-simulate. */
#ifndef HKT_TOOL_SIMULATE_H
#define HKT_TOOL_SIMULATE_H

#include "language/cost.h"
#include "language/startup.h"
#include "language/tuning.h"

#include <stdio.h>

enum { SIMULATE_SIZES = 64, SIMULATE_TEXT = 32 };

/* All that was simulated: for each size the same offers, in the order of that size's times. */
struct simulate_view {
    struct hkt_fabric   fabric;
    struct hkt_question question; /* bytes are those of the rows */
    const char         *source;   /* of the fabric's numbers */
    struct hkt_tuning   tuning;   /* rules that overrule the model */
    int                 sizes;
    struct simulate_row {
        double           bytes, bound;
        const char      *bound_by;
        int              count;
        double           real[HKT_OFFERS_MOST]; /* seconds as run; 0: not */
        struct hkt_offer offer[HKT_OFFERS_MOST];
    } *row;
};

/* "1.5 KiB", "12.3 us", "4.5 GB/s" */
const char *simulate_bytes(double bytes, char text[SIMULATE_TEXT]);
const char *simulate_seconds(double seconds, char text[SIMULATE_TEXT]);

/* What the table of rules says for a row; NULL: nothing. */
const struct hkt_tuning_rule *simulate_rule(const struct simulate_view *view, const struct simulate_row *row);

void simulate_print_fabric(const struct hkt_fabric *f, const char *source);
void simulate_print_list(void);
void simulate_print_table(const struct simulate_view *view);
void simulate_print_choice(const struct simulate_view *view);
void simulate_print_startup(const struct hkt_startup *how, const struct hkt_startup_result *result);

void simulate_json(FILE *out, const struct simulate_view *view);
void simulate_svg(FILE *out, const struct simulate_view *view);

/* One run as lanes of ranks. 0 or HKT_ERR_*. */
int simulate_timeline(FILE *out, const struct simulate_view *view, const struct hkt_offer *offer, double bytes);

/* Shared memory of this computer as a fabric of `ranks` on one host: a cache line to and fro between two threads, copies and folds of 64 KiB to
 * 1 MiB. Takes about 50 ms. 0 or HKT_ERR_*. */
int simulate_measure(struct hkt_fabric *f, int ranks);

/* Runs the schedule with threads and messages in memory; nine tenths of some rounds take longer. 0 or HKT_ERR_*. */
int simulate_run(const struct hkt_offer *offer, const struct hkt_question *q, int ranks, double *least);

#endif
