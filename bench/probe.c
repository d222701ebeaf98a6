/* probe.c -- how far apart are two processors just now? Virtual machines move them about, and everything up to a few
 * MiB then changes by 2 to 4 times. For every line read it answers with the one-way time of a cache line in ns (least
 * of short rounds). Between two questions both threads sleep. Arguments: the two processors,
 * and whether to ask for priority. */
#include "priority.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUND_TRIPS = 100, AGREE = 4, PLAUSIBLE_NS = 1500, LONG_US = 20000, GIVE_UP_US = 300000 };

static _Alignas(128) _Atomic long ping;
static _Alignas(128) _Atomic long pong;
static sem_t wanted;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Answers every ping with a pong until the ping is negative. */
static void *reflect(void *cpu)
{
    pin(*(const int *)cpu);
    for (;;) {
        while (sem_wait(&wanted))
            ;
        for (long seen = 0; (seen = atomic_load_explicit(&ping, memory_order_acquire)) >= 0;)
            atomic_store_explicit(&pong, seen, memory_order_release); /* pairs with the load in measure() */
        atomic_store_explicit(&pong, -1, memory_order_release);
    }
    return NULL;
}

static void turn(long value)
{
    atomic_store_explicit(&ping, value, memory_order_release); /* pairs with the load in reflect() */
    while (atomic_load_explicit(&pong, memory_order_acquire) != value)
        ;
}

static double measure(void)
{
    const double start = now_us();
    double       best  = 1e9;
    int          agree = 0;

    atomic_store(&ping, 0);
    sem_post(&wanted);
    turn(0);
    for (int round = 0; agree < AGREE; round++) {
        double t = now_us();

        if (t - start > (best < PLAUSIBLE_NS ? LONG_US : GIVE_UP_US)) /* others have the processors */
            break;

        for (long i = 1; i <= ROUND_TRIPS; i++)
            turn((long)round * ROUND_TRIPS + i);
        t     = (now_us() - t) * 500 / ROUND_TRIPS;
        agree = t < best * 0.9 ? 0 : t < best * 1.1 ? agree + 1 : agree;
        best  = t < best ? t : best;
    }
    turn(-1);
    return best;
}

int main(int argc, char **argv)
{
    const int first  = argc > 2 ? atoi(argv[1]) : 0;
    int       second = argc > 2 ? atoi(argv[2]) : 1;
    char      line[64];
    pthread_t thread;

    if (argc > 3 && atoi(argv[3]))
        raise_priority();
    pin(first);
    if (sem_init(&wanted, 0, 0) || pthread_create(&thread, NULL, reflect, &second))
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        printf("%.1f\n", measure());
        fflush(stdout);
    }
    return 0;
}
