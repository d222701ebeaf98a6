/* launched.c -- the program that tests/test_launch.sh starts through launchers: meets the others twice, adds up, says who it is; told to
 * stay, it goes on until somebody dies. */
#include "hocket.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int failed(const char *what)
{
    fprintf(stderr, "launched: %s: %s\n", what, hkt_last_error());
    return 3;
}

/* Making a communicator from the environment is allowed more than once; the launcher is asked only the first time. */
static int meet(hkt_comm_t **comm)
{
    hkt_config_t config = HKT_CONFIG_INIT;
    int          rc, error;

    config.blocking = 0; /* the launcher is asked behind the caller's back then */
    rc              = hkt_comm_init_env(comm, &config);
    while (rc == HKT_IN_PROGRESS) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        rc = hkt_comm_error(*comm, &error);
        rc = rc ? rc : error;
    }
    if (!rc)
        hkt_comm_destroy(*comm);
    return rc ? rc : hkt_comm_init_env(comm, NULL);
}

int main(int argc, char **argv)
{
    const int   stay = argc > 1 && strcmp(argv[1], "stay") == 0;
    hkt_comm_t *comm;
    int64_t     sum;
    int         rank, size;

    if (meet(&comm))
        return failed("joining");
    hkt_comm_rank(comm, &rank);
    hkt_comm_size(comm, &size);
    sum = rank + 1;
    if (hkt_all_reduce(&sum, &sum, 1, HKT_INT64, HKT_SUM, comm, NULL))
        return failed("adding");
    printf("rank %d of %d, sum %d, pid %d\n", rank, size, (int)sum, (int)getpid());
    fflush(stdout);
    while (stay) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        if (hkt_barrier(comm, NULL))
            return failed("staying");
    }
    return hkt_comm_destroy(comm) ? failed("leaving") : 0;
}
