/* launch.h -- who started this process, which rank it is, and how rank 0's unique id reaches the others.
 *
 * A launcher is a row of a table: whether the environment speaks of it (a pure look), and an exchange that gives rank, size and id.
 * The first row that is present is used, and no other: falling back when it fails could let some ranks come one way and some another.
 * Three kinds of exchange: the id is in the environment (hkt-run), a server of the launcher passes it on (PMIx, PMI), or every rank
 * derives the same one from an address at which rank 0 is to be found (HKT_ROOT, torchrun, Slurm).
 */
#ifndef HKT_LAUNCH_H
#define HKT_LAUNCH_H

#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HKT_RANKS = 1 << 30 }; /* more are not believed */

/* A process in its job. */
struct hkt_launched {
    int             rank, size;
    int             local_rank; /* among the ranks of its host; -1: the launcher does not say */
    hkt_unique_id_t id;
};

struct hkt_launcher {
    const char *name;
    const char *mark;      /* what gives it away: "PMI_FD or PMI_PORT is set" */
    const char *variables; /* of the environment, that it looks at, separated by spaces */
    bool (*present)(void);
    int (*exchange)(struct hkt_launched *place, uint64_t deadline); /* hkt_now_ns() time; place is written on success only */
};

extern const struct hkt_launcher hkt_launchers[]; /* in the order in which they are looked for */
extern const int                 hkt_launcher_count;

/* The launcher of this process; NULL: it was started by itself. Any thread. */
const struct hkt_launcher *hkt_launcher_find(void);

/* Finds the launcher, which must be there, and exchanges. Servers may be asked once only, so the first answer, good or bad, is that of
 * every later call. Takes as long as the last rank takes to come, `timeout` seconds at most. Any thread. */
int hkt_launch(struct hkt_launched *place, double timeout);

/* ---- for the exchanges */

/* Names of the variables that say where a process stands. */
struct hkt_launched_names {
    const char *rank, *size, *local_rank;
};

/* -1 when it is not there or makes no sense. */
int hkt_launch_local_rank(const char *variable, int size);

/* Reads and checks them. All but the local rank must be there; else an error that names the variable. */
int hkt_launched_read(struct hkt_launched *place, const struct hkt_launched_names *names);

/* A whole number of the environment, from min to max. */
int hkt_launch_number(const char *variable, long min, long max, long *value);

int hkt_pmix_exchange(struct hkt_launched *place, uint64_t deadline);
int hkt_pmi_exchange(struct hkt_launched *place, uint64_t deadline);

/* The first host of a Slurm list, "node[03-05,9],x" gives "node03". 0, or HKT_ERR_ARGUMENT without a sentence. */
int hkt_slurm_first_host(const char *list, char *host, size_t size);

#endif
