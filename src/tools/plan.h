/* plan.h -- hkt-plan: what its files share. */
#ifndef HKT_PLAN_TOOL_H
#define HKT_PLAN_TOOL_H

#include "flags.h"

#include <hocket_train.h>

#include <stdbool.h>
#include <stdio.h>

/* What was asked for and what came out. Families are the library's, plans first. */
struct plan_view {
    hkt_plan_job_t     job;
    hkt_plan_layout_t  limits;
    hkt_plan_family_t *family;
    size_t             families, plans;
    size_t             shown; /* plans and refused families at most */
    const char        *command;
};

/* plan_machine.c: a machine from a preset, a file, flags, or this one measured. Ends the tool on errors. */
struct plan_machine_flags {
    const char      *name, *file;
    double           memory, peak, achieved; /* GiB, TFLOP/s; 0: as the machine has it */
    long             node;                   /* devices of the first class of links; 0: as the machine has it */
    struct flag_list link;                   /* "NAME:SPAN:GB/s:us" */
};
void plan_machine(hkt_plan_machine_t *machine, const struct plan_machine_flags *asked, const struct flags *flags);
void plan_machine_write(FILE *out, const hkt_plan_machine_t *machine); /* as --machine-file reads it */

/* plan_measure.c: one core of this computer as a device, in about a second. */
int plan_measure(hkt_plan_machine_t *machine);

/* plan_try.c: steps of the job's model by hkt-train itself, if it is beside this tool and a step is short enough: fills the
 * machine's points in, in some seconds. What it could not do is said on stderr, and the machine left as it is. */
void plan_try(hkt_plan_job_t *job);

/* plan_print.c, plan_why.c, plan_json.c, plan_svg.c */
void plan_print(FILE *out, const struct plan_view *view);
void plan_why(FILE *out, const struct plan_view *view);
void plan_json(FILE *out, const struct plan_view *view);
void plan_svg(FILE *out, const struct plan_view *view);
void plan_sweep(FILE *out, const struct plan_view *view, const char *worlds, const struct flags *flags);

/* "58.2 GiB", "1.25 s", "1.05 M": three digits, for eyes. `text` is returned. */
enum { PLAN_TEXT = 64 };
char *plan_bytes(char text[PLAN_TEXT], double bytes);
char *plan_seconds(char text[PLAN_TEXT], double seconds);
char *plan_count(char text[PLAN_TEXT], double count);

/* "TP 4 PP 12 DP 8", CP where it is not 1. */
char *plan_family_name(char text[PLAN_TEXT], const hkt_plan_layout_t *layout);

#endif
