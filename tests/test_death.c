/* test_death.c -- ranks that die, stop, come late or never: the others learn which, soon, and nothing stays behind. The victim of a
 * world is VICTIM; the moment of its death is in the shared memory of the world. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 2 };

struct moment {
    _Atomic uint32_t busy;      /* operations of rank 0 */
    _Atomic uint32_t over;      /* survivors that have got their error */
    _Atomic uint32_t struck, go;
    pid_t            pid[RANKS];
    double           at;        /* of the death */
    double           took[RANKS]; /* from the death until a rank had its error */
};


/* The sentence must name the victim with its process. */
static void expect_named(const struct moment *m)
{
    char text[64];

    snprintf(text, sizeof(text), "rank %d", VICTIM);
    expect_said(text);
    snprintf(text, sizeof(text), "%d", (int)m->pid[VICTIM]);
    expect_said(text);
}

/* Every survivor had its error within 100 ms. */
static void judge_times(const struct moment *m)
{
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(slow_build() || m->took[r] < 0.1 + 4 * world_delay(), "rank %d noticed %.1f ms after the death (naps took up to %.1f ms too long)", r,
                      m->took[r] * 1e3, world_delay() * 1e3);
}

/* ---- death: by whom, how, in the middle of what */

enum manner { BY_SIGKILL, BY_EXIT, BY_ABORT, BY_CRASH, BY_QUIET_EXIT, MANNERS };
static const size_t death_bytes[] = {8, 65536, 16 << 20};

static void die(struct moment *m, enum manner manner)
{
    const struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core);
    m->at = now();
    atomic_store(&m->struck, 1);
    switch (manner) {
    case BY_EXIT:
        exit(0);
    case BY_ABORT:
        signal(SIGABRT, SIG_DFL);
        abort();
    case BY_CRASH:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    default:
        _exit(3);
    }
}

struct death {
    enum manner manner;
    size_t      bytes;
    uint32_t    after; /* operations of rank 0, and then microseconds, before the blow */
    useconds_t  then;
};

static void until_it_dies(struct rank *me)
{
    const struct death *d    = me->arg;
    struct moment      *m    = me->shared;
    char               *data = calloc(1, d->bytes);
    double              noticed;
    int                 rc;

    m->pid[me->rank] = getpid();
    expect_ok(hkt_barrier(me->comm, NULL));
    while ((rc = hkt_all_reduce(data, data, d->bytes / 4, HKT_FLOAT32, HKT_SUM, me->comm, NULL)) == HKT_OK) {
        if (me->rank == 0)
            atomic_fetch_add(&m->busy, 1);
        if (me->rank == VICTIM && d->manner != BY_SIGKILL && atomic_load(&m->busy) >= d->after)
            die(m, d->manner);
    }
    noticed = now();
    expect(rc == HKT_ERR_PEER, "%d: %s", rc, hkt_last_error());
    expect_named(m);
    m->took[me->rank] = noticed - m->at;
    rc = hkt_barrier(me->comm, NULL);
    expect(rc == HKT_ERR_PEER, "the next call gives %d", rc);
    expect_ok(hkt_comm_error(me->comm, &rc));
    expect(rc == HKT_ERR_PEER, "hkt_comm_error() says %d", rc);
    free(data);
}

static void strike(const struct world *w, const pid_t *pids, void *shared)
{
    const struct death *d = w->arg;
    struct moment      *m = shared;

    if (d->manner != BY_SIGKILL || atomic_load(&m->struck) || atomic_load(&m->busy) < d->after)
        return;
    usleep(d->then);
    m->at = now();
    atomic_store(&m->struck, 1);
    kill(pids[VICTIM], SIGKILL);
}

/* Proves: a rank that is killed, crashes, aborts or exits, at any moment, is named to every other within 100 ms, and the
 * communicator stays dead. */
START_TEST(C34_death_is_named)
{
    struct death d = {_i % MANNERS, death_bytes[_i / MANNERS % 3], 1 + (uint32_t)(mix((uint64_t)_i) % (_i / MANNERS % 3 == 2 ? 5 : 50)),
                      (useconds_t)(mix((uint64_t)_i + 99) % 3000)};
    struct moment m;

    world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = until_it_dies, .arg = &d, .may_die = 1 << VICTIM, .meanwhile = strike, .result = &m,
                              .result_size = sizeof(m)});
    judge_times(&m);
}
END_TEST

static void waiting_when_it_dies(struct rank *me)
{
    struct moment *m = me->shared;
    float          x = 1;
    int            rc;

    m->pid[me->rank] = getpid();
    expect_ok(hkt_barrier(me->comm, NULL));
    if (me->rank == VICTIM) {
        while (atomic_load(&m->over) < RANKS - 1) /* the others are or will be asleep; rank 0 strikes when a while has passed */
            pause_ms(1);
        return;
    }
    if (me->rank == 0) {
        pause_ms(300); /* so that the others sleep rather than poll: that is the case to test */
        m->at = now();
        kill(m->pid[VICTIM], SIGKILL);
    }
    rc = hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL);
    expect(rc == HKT_ERR_PEER, "%d: %s", rc, hkt_last_error());
    m->took[me->rank] = now() - m->at;
    expect_named(m);
}

/* Proves: ranks that sleep in a wait notice a death as soon as those that poll. */
START_TEST(death_wakes_sleepers)
{
    struct moment m;

    world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = waiting_when_it_dies, .may_die = 1 << VICTIM, .result = &m, .result_size = sizeof(m)});
    judge_times(&m);
}
END_TEST

/* ---- stopped and late */

static void stop_victim(const struct world *w, const pid_t *pids, void *shared)
{
    struct moment *m = shared;

    if (!pids[VICTIM])
        return;
    if (!atomic_load(&m->struck) && atomic_load(&m->busy) >= 20) {
        m->at = now();
        atomic_store(&m->struck, 1);
        kill(pids[VICTIM], SIGSTOP);
    }
    if (atomic_load(&m->struck) && (w->arg ? now() - m->at > 0.5 : atomic_load(&m->over) == RANKS - 1))
        kill(pids[VICTIM], SIGCONT);
}

static void until_it_stops(struct rank *me)
{
    struct moment *m = me->shared;
    float          x = 1;
    int            rc;

    m->pid[me->rank] = getpid();
    expect_ok(hkt_barrier(me->comm, NULL));
    while ((rc = hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_MAX, me->comm, NULL)) == HKT_OK)
        if (me->rank == 0)
            atomic_fetch_add(&m->busy, 1);
    expect(rc == HKT_ERR_TIMEOUT, "%d: %s", rc, hkt_last_error());
    if (me->rank == VICTIM)
        return;
    expect(now() - m->at > 0.9, "gave up after %g s, the deadline is 1 s", now() - m->at);
    expect_named(m);
    expect_said("stopped");
    atomic_fetch_add(&m->over, 1);
}

/* Proves: a stopped rank is waited for until the deadline, then named, and that it is stopped is said; it learns of it when it goes on. */
START_TEST(C34_stopped_rank_is_named_at_the_deadline)
{
    const hkt_config_t config = {.size = sizeof(config), .blocking = 1, .timeout_s = 1};

    world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = until_it_stops, .config = &config, .meanwhile = stop_victim});
}
END_TEST

static void through_a_stop(struct rank *me)
{
    struct moment *m = me->shared;

    for (int more = 1; more;) {
        float x = 1;

        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
        expect(x == RANKS, "1 over 4 ranks sums to %g", (double)x);
        atomic_fetch_add(&m->busy, me->rank == 0);
        more = !atomic_load(&m->struck) || now() - m->at < 0.7;
        expect_ok(hkt_broadcast(&more, &more, 1, HKT_INT32, 0, me->comm, NULL));
    }
}

/* Proves: a rank that is stopped and goes on before the deadline does no harm. */
START_TEST(C34_stopped_and_continued)
{
    int back = 1;

    world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = through_a_stop, .arg = &back, .meanwhile = stop_victim});
}
END_TEST

static void never_comes(struct rank *me)
{
    struct moment *m = me->shared;
    double         x = 1;
    int            rc;

    m->pid[me->rank] = getpid();
    expect_ok(hkt_barrier(me->comm, NULL));
    if (me->rank != VICTIM) {
        const double begin = now();

        rc = hkt_all_reduce(&x, &x, 1, HKT_FLOAT64, HKT_SUM, me->comm, NULL);
        expect(rc == HKT_ERR_TIMEOUT, "%d: %s", rc, hkt_last_error());
        expect(now() - begin > 0.25 && (slow_build() || now() - begin < 2), "took %g s, the deadline is 0.3 s", now() - begin);
        expect_named(m);
        expect_said("all_reduce");
        expect_code(hkt_barrier(me->comm, NULL), HKT_ERR_TIMEOUT);
        atomic_fetch_add(&m->over, 1);
        return;
    }
    await(&m->over, RANKS - 1, 30);
    expect_code(hkt_all_reduce(&x, &x, 1, HKT_FLOAT64, HKT_SUM, me->comm, NULL), HKT_ERR_TIMEOUT);
}

/* Proves: the communicator's deadline ends a wait for a rank that never calls, and names it; threads and processes. */
START_TEST(deadline_names_the_missing)
{
    const hkt_config_t config = {.size = sizeof(config), .blocking = 1, .timeout_s = 0.3};

    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = never_comes, .config = &config});
}
END_TEST

static void missing_at_init(struct rank *me)
{
    struct moment *m     = me->shared;
    hkt_comm_t    *comm  = (void *)m;
    const double   begin = now();

    if (me->rank == VICTIM) {
        await(&m->over, RANKS - 1, 30);
        return;
    }
    expect_code(hkt_comm_init(&comm, me->n, me->id, me->rank, NULL), HKT_ERR_TIMEOUT);
    expect(comm == (void *)m, "the output was written although the call failed");
    if (me->rank == 0)
        expect_said("2");
    expect(now() - begin > 0.9 && (slow_build() || now() - begin < 5), "took %g s, HKT_INIT_TIMEOUT is 1", now() - begin);
    atomic_fetch_add(&m->over, 1);
}

/* Proves: a rank that does not come to hkt_comm_init() ends it after HKT_INIT_TIMEOUT, for everybody. */
START_TEST(init_names_the_missing)
{
    world_run(&(struct world){.n = RANKS, .kind = _i, .fn = missing_at_init, .bare = true, .environment = {"HKT_INIT_TIMEOUT=1"}});
}
END_TEST

/* ---- nothing stays behind */

static void until_killed(struct rank *me)
{
    struct moment *m    = me->shared;
    const size_t   size = 4 << 20;
    float         *x;

    expect_ok(hkt_mem_alloc((void **)&x, size));
    for (;;) {
        const int rc = hkt_all_reduce(x, x, size / 4, HKT_FLOAT32, HKT_SUM, me->comm, NULL);

        if (rc == HKT_ERR_PEER) /* the others were killed a moment earlier; it is this rank's turn */
            pause();
        expect_ok(rc);
        atomic_fetch_add(&m->busy, 1);
    }
}

static void kill_all(const struct world *w, const pid_t *pids, void *shared)
{
    struct moment *m = shared;

    if (atomic_load(&m->struck) || atomic_load(&m->busy) < 8)
        return;
    atomic_store(&m->struck, 1);
    for (int r = 0; r < w->n; r++)
        kill(pids[r], SIGKILL);
}

/* Proves: after SIGKILL of every rank in the middle of an operation nothing is left in /dev/shm or /tmp, and no process. */
START_TEST(C03_nothing_left_after_sigkill)
{
    const int shm = entries_with("/dev/shm", ""), tmp = entries_with("/tmp", "hkt") + entries_with("/tmp", "hocket");

    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of the ranks would become children of this process */
    for (int k = 0; k < (long_tests() ? 50 : 15); k++)
        world_run(&(struct world){.n = RANKS, .kind = PROCESSES, .fn = until_killed, .may_die = 0xf, .meanwhile = kill_all});
    ck_assert_int_eq(entries_with("/dev/shm", ""), shm);
    ck_assert_int_eq(entries_with("/tmp", "hkt") + entries_with("/tmp", "hocket"), tmp);
    ck_assert_msg(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a process of the ranks is still there");
}
END_TEST

/* ---- poor surroundings */

static void some_work(struct rank *me)
{
    struct lab lab;

    lab_open(&lab, me->comm, (size_t)me->n * 8000000);
    for (uint64_t k = 0; k < 40; k++) {
        struct job j = job_random(mix(k), (enum coll)(k % PLAIN_COLLS), HKT_FLOAT32, k % 4 ? 1000 : 1500000, me->n);

        job_run(&lab, &j);
    }
    lab_close(&lab);
}

/* True when this process may change its surroundings (namespaces); else the case cannot be staged. */
static bool unshared(int what)
{
    if (unshare(what) == 0)
        return true;
    printf("not staged: unshare: %s\n", strerror(errno));
    return false;
}

/* Proves: a /dev/shm of 8 MiB, or none at all, is no obstacle. */
START_TEST(C01_small_dev_shm)
{
    if (!unshared(CLONE_NEWNS))
        return;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("tmpfs", "/dev/shm", "tmpfs", 0, _i ? "size=4k,nr_inodes=1" : "size=8m")) {
        printf("not staged: mount: %s\n", strerror(errno));
        return;
    }
    world(RANKS, PROCESSES, some_work, NULL);
}
END_TEST

/* Proves: ranks of one machine need no network interface, not even the loopback. */
START_TEST(C12_no_network_interface)
{
    if (unshared(CLONE_NEWNET))
        world(RANKS, PROCESSES, some_work, NULL);
}
END_TEST

/* Proves: one processor for four ranks is enough. */
START_TEST(one_processor)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    world(RANKS, _i, some_work, NULL);
}
END_TEST

/* Proves: 64 KiB of locked memory is enough: nothing is locked. */
START_TEST(little_locked_memory)
{
    const struct rlimit little = {65536, 65536};

    setrlimit(RLIMIT_MEMLOCK, &little);
    world(RANKS, PROCESSES, some_work, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, C34_death_is_named, long_tests() ? 150 : 30, 60);
    ADD(s, death_wakes_sleepers, 3, 60);
    ADD(s, C34_stopped_rank_is_named_at_the_deadline, 1, 60);
    ADD(s, C34_stopped_and_continued, 1, 60);
    ADD(s, deadline_names_the_missing, 2, 60);
    ADD(s, init_names_the_missing, 2, 60);
    ADD(s, C03_nothing_left_after_sigkill, 1, 120);
    ADD(s, C01_small_dev_shm, 2, 60);
    ADD(s, C12_no_network_interface, 1, 60);
    ADD(s, one_processor, 2, 60);
    ADD(s, little_locked_memory, 1, 60);
}

int main(void)
{
    return run_suite("death", add);
}
