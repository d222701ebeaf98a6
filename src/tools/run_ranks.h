/* run_ranks.h -- starting the ranks, and the process group they live in (hkt-run).
 *
 * All ranks and whatever they start are one process group of their own: a signal reaches them once, whoever sent it and
 * whether from a terminal or not, and the launcher can end all of it. The group is led by a guard process that does
 * nothing but wait for the launcher's end, however it comes, and then kills the group. (Each rank also asks the kernel
 * for SIGKILL at the launcher's death; that alone would not reach processes that a rank has started.)
 */
#ifndef HKT_RUN_RANKS_H
#define HKT_RUN_RANKS_H

#include "flags.h"
#include "run_output.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

enum { RUN_CPU_SETS = 16 /* of 1024 processors each */ };

struct run_group {
    pid_t guard;   /* its id is the group's */
    int   alive;   /* the guard waits for this pipe to close */
    int   trouble; /* ranks that could not be started write a struct run_trouble here */
    int   trouble_child;
    pid_t launcher;
};

struct run_trouble {
    int  rank, error; /* errno */
    char what[240];   /* "/tmp/x: " ... */
};

struct run_rank {
    char *const       *argv;
    int                rank;
    int                cpu;       /* to run on; -1: any */
    struct run_output *output;    /* NULL: inherits stdout and stderr */
    const char        *directory; /* output goes to a file there; or NULL */
    bool               append;    /* behind what that holds */
    const sigset_t    *signals;   /* mask it starts with */
};

/* 0 or -1 with errno. */
int run_group_open(struct run_group *group);

/* Kills and reaps what is left of the group, the guard with it. */
void run_group_close(struct run_group *group);

/* Starts a rank; its pid or -1 with errno. Trouble behind the fork ends the child with 126 or 127 and
 * run_trouble_read() says why. */
pid_t run_rank_start(const struct run_group *group, const struct run_rank *rank);
bool  run_trouble_read(const struct run_group *group, struct run_trouble *trouble);

/* The processors this process may use, one of each physical core first; how many of them are in cpus[max]. */
int run_cpus(int *cpus, int max);

#endif
