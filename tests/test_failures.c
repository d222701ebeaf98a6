/* test_failures.c -- what users do wrong or ask for in the middle of things: different calls, abort, stale handles, fork, signals, hang
 * reports; and that waiting costs no processor time. Ranks that die are in test_death.c. */
#include "job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- C45: the ranks make different calls */

struct difference {
    const char *name, *mine, *theirs; /* what the odd rank's call and the others' are recognised by */
    struct job  common, odd;
    enum { DIES, SURVIVES, LATER } after; /* SURVIVES: everybody sees everybody's call, so the communicator has to go on; LATER: a small
                                             rooted call may be over before a rank can know, who is told by the next call */
};

#define JOB(c, t, o, n, r) {.coll = c, .type = t, .op = o, .count = n, .root = r, .seed = 2}
static const struct difference differences[] = {
    {"count", "409598", "409600", JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 409600, 0), JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 409598, 0), SURVIVES},
    {"small count", "3", "4", JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 4, 0), JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 3, 0), SURVIVES},
    {"one empty", "0", "1000", JOB(ALL_GATHER, HKT_INT8, HKT_SUM, 1000, 0), JOB(ALL_GATHER, HKT_INT8, HKT_SUM, 0, 0), DIES},
    {"small and large", "2000000", "2", JOB(ALL_GATHER, HKT_INT8, HKT_SUM, 2, 0), JOB(ALL_GATHER, HKT_INT8, HKT_SUM, 2000000, 0), DIES},
    {"collective", "broadcast", "all_reduce", JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 1000, 0), JOB(BROADCAST, HKT_FLOAT32, 0, 1000, 0), LATER},
    {"barrier", "barrier", "all_reduce", JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 100000, 0), JOB(BARRIER, HKT_FLOAT32, 0, 0, 0), DIES},
    {"type", "bfloat16", "float32", JOB(ALL_REDUCE, HKT_FLOAT32, HKT_SUM, 5000, 0), JOB(ALL_REDUCE, HKT_BFLOAT16, HKT_SUM, 5000, 0), SURVIVES},
    {"same bytes", "uint16", "bfloat16", JOB(ALL_TO_ALL, HKT_BFLOAT16, 0, 33, 0), JOB(ALL_TO_ALL, HKT_UINT16, 0, 33, 0), SURVIVES},
    {"operator", "max", "sum", JOB(REDUCE_SCATTER, HKT_INT32, HKT_SUM, 20, 0), JOB(REDUCE_SCATTER, HKT_INT32, HKT_MAX, 20, 0), SURVIVES},
    {"root", "root 1", "root 0", JOB(BROADCAST, HKT_FLOAT64, 0, 100, 0), JOB(BROADCAST, HKT_FLOAT64, 0, 100, 1), LATER},
    {"root, large", "root 1", "root 0", JOB(REDUCE, HKT_FLOAT64, HKT_SUM, 300000, 0), JOB(REDUCE, HKT_FLOAT64, HKT_SUM, 300000, 1), DIES},
    {"root of a scatter", "root 1", "root 0", JOB(SCATTER, HKT_FLOAT32, 0, 3000, 0), JOB(SCATTER, HKT_FLOAT32, 0, 3000, 1), LATER},
};
enum { DIFFERENCES = sizeof(differences) / sizeof(differences[0]), SPACE = 3 << 20 };

/* Calls what must be refused: the whole output stays as it was. */
static void refused(struct lab *lab, const struct job *job, const struct difference *d, int odd_rank)
{
    struct running r = {.job = *job, .lab = lab};
    char          *in = calloc(1, SPACE * 4), *out = malloc(SPACE * 4);
    char           who[32];
    int            rc;

    memset(out, UNTOUCHED, SPACE * 4);
    doing("mismatch: %s, %s", d->name, lab->rank == odd_rank ? "the odd rank" : "one of the others");
    rc = job_call(&r, in, out, NULL);
    if (rc == HKT_OK && d->after == LATER)
        rc = hkt_barrier(lab->comm, NULL);
    else
        expect(untouched(out, SPACE * 4), "the refused call has written its output");
    expect(rc == HKT_ERR_MISMATCH, "gives %d: %s", rc, hkt_last_error());
    expect_said(d->mine);
    expect_said(d->theirs);
    snprintf(who, sizeof(who), "rank %d", odd_rank);
    if (lab->n > 2 && lab->rank != odd_rank)
        expect_said(who);
    free(in);
    free(out);
}

/* After a refused call: alive everywhere, or dead everywhere and made anew. */
static void agree(struct rank *me, struct lab *lab, const struct difference *d)
{
    _Atomic uint32_t *dead = me->shared;
    int               error;

    rendezvous(me);
    expect_ok(hkt_comm_error(lab->comm, &error));
    expect(error == HKT_OK || error == HKT_ERR_MISMATCH, "hkt_comm_error() says %d", error);
    expect(error == HKT_OK || d->after != SURVIVES, "the communicator died of it");
    atomic_fetch_add(dead, error != HKT_OK);
    rendezvous(me);
    expect(atomic_load(dead) % (uint32_t)me->n == 0, "the communicator lives on some ranks and not on others");
    rendezvous(me);
    if (error == HKT_OK)
        return;
    expect_code(hkt_barrier(lab->comm, NULL), HKT_ERR_MISMATCH);
    lab_close(lab);
    expect_ok(hkt_comm_destroy(me->comm));
    expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, NULL));
    lab_open(lab, me->comm, SPACE * 2);
}

static void different_calls(struct rank *me)
{
    struct lab lab;

    lab_open(&lab, me->comm, SPACE * 2);
    for (int k = 0; k < 2 * DIFFERENCES; k++) {
        const struct difference *d   = &differences[k % DIFFERENCES];
        const int                odd = k < DIFFERENCES ? me->n - 1 : 0;
        const struct job         after = job_random(mix((uint64_t)k), (enum coll)(k % COLLS), HKT_INT16, 5000, me->n);

        refused(&lab, me->rank == odd ? &d->odd : &d->common, d, odd);
        agree(me, &lab, d);
        job_run(&lab, &after);
        expect_ok(hkt_barrier(me->comm, NULL));
        rendezvous(me); /* a rank that is slow to leave the barrier may be told of the next mismatch there */
    }
    lab_close(&lab);
}

/* Proves: when ranks make different calls, every one of them is told both calls and nothing is written. Where all ranks see all calls
 * the communicator goes on; else it is dead for all of them, and the next one is right. */
START_TEST(C45_different_calls)
{
    world(2 + _i / 2, _i % 2, different_calls, NULL);
}
END_TEST

/* A message may be on its way before its receive is seen: then the sender is told by its next call. */
static int message_result(struct rank *me, char *data, size_t sent, size_t received)
{
    int rc;

    if (me->rank == 1)
        return hkt_recv(data, received, HKT_FLOAT32, 0, me->comm, NULL);
    rc = hkt_send(data, sent, HKT_FLOAT32, 1, me->comm, NULL);
    return rc == HKT_OK ? hkt_barrier(me->comm, NULL) : rc;
}

static void after_message(struct rank *me)
{
    _Atomic uint32_t *dead = me->shared;
    int8_t            data[77] = {me->rank == 0};
    int               error;

    rendezvous(me);
    expect_ok(hkt_comm_error(me->comm, &error));
    atomic_fetch_add(dead, error != HKT_OK);
    rendezvous(me);
    expect(atomic_load(dead) % 2 == 0, "the communicator lives on one rank and not on the other");
    rendezvous(me);
    if (error) {
        expect_code(hkt_barrier(me->comm, NULL), HKT_ERR_MISMATCH);
        expect_ok(hkt_comm_destroy(me->comm));
        expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, NULL));
    }
    expect_ok(me->rank == 0 ? hkt_send(data, 77, HKT_INT8, 1, me->comm, NULL) : hkt_recv(data, 77, HKT_INT8, 0, me->comm, NULL));
    expect_true(data[0] == 1);
    expect_ok(hkt_barrier(me->comm, NULL));
}

static void given_up(struct rank *me)
{
    const size_t  n = (size_t)8 << 20;
    hkt_stream_t *stream;
    hkt_comm_t   *c;
    void         *data;

    expect_ok(hkt_stream_create(&stream));
    for (int round = 0; round < 40; round++) {
        int rc;

        doing("round %d", round);
        expect_ok(hkt_comm_duplicate(&c, me->comm, NULL));
        expect_ok(hkt_mem_alloc(&data, n));
        memset(data, 1, n);
        expect_ok(hkt_barrier(c, NULL));
        if (me->rank == 0) {
            expect_ok(hkt_send(data, n, HKT_INT8, 1, c, stream));
            for (volatile int i = 0; i < round * 20000; i++)
                ;
            expect_ok(hkt_comm_abort(c));
            rc = hkt_stream_synchronize(stream);
        } else
            rc = hkt_recv(data, n, HKT_INT8, 0, c, NULL);
        expect(rc == HKT_OK || rc == HKT_ERR_ABORTED, "gives %d: %s", rc, hkt_last_error());
        expect_ok(hkt_mem_free(data)); /* at once: the other side may still copy from or to it */
        expect_ok(hkt_comm_destroy(c));
    }
    expect_ok(hkt_stream_destroy(stream));
}

/* Proves: after an abort memory may be freed at once; a peer that is still copying gets an error, not a signal. */
START_TEST(abort_then_free)
{
    world(2, PROCESSES, given_up, NULL);
}
END_TEST

static void different_messages(struct rank *me)
{
    static const size_t counts[][2] = {{4, 5}, {1000, 10}, {10, 1000}, {500000, 500001}, {500000, 10}, {0, 1}, {1, 400000}};

    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        char *data = malloc(4 << 20);
        char  text[32];
        int   rc;

        memset(data, UNTOUCHED, 4 << 20);
        doing("message of %zu to a receive of %zu", counts[k][0], counts[k][1]);
        rc = message_result(me, data, counts[k][0], counts[k][1]);
        expect(rc == HKT_ERR_MISMATCH, "gives %d: %s", rc, hkt_last_error());
        for (int side = 0; side < 2; side++) {
            snprintf(text, sizeof(text), " %zu ", counts[k][side]);
            expect_said(text);
        }
        expect(untouched(data, 4 << 20), "the refused receive has written");
        free(data);
        after_message(me);
    }
}

/* Proves: of a message and a receive that differ in count both sides are told and nothing is written. */
START_TEST(C45_different_messages)
{
    world(2, _i, different_messages, NULL);
}
END_TEST

static void different_blocks(struct rank *me)
{
    size_t in[3] = {3, 2000, 40000}, out[3];
    char  *data = calloc(2, 1 << 20), *result = malloc(1 << 20);
    int    rc;

    for (int r = 0; r < 3; r++)
        out[r] = me->rank == 0 ? 3 : me->rank == 1 ? 2000 : 40000;
    if (me->rank == 2)
        out[1] = 39999; /* rank 1 sends 40000 */
    memset(result, UNTOUCHED, 1 << 20);
    rc = hkt_all_to_all_v(data, in, NULL, result, out, NULL, HKT_FLOAT32, me->comm, NULL);
    expect(rc == HKT_ERR_MISMATCH, "gives %d: %s", rc, hkt_last_error());
    expect(untouched(result, 1 << 20), "the refused call has written");
    expect_said("39999");
    expect_ok(hkt_barrier(me->comm, NULL)); /* every rank sees all counts, so the communicator goes on */
    free(data);
    free(result);
}

/* Proves: counts of an all_to_all_v that do not fit together are refused by all, and the communicator goes on. */
START_TEST(C45_different_blocks)
{
    world(3, _i, different_blocks, NULL);
}
END_TEST

/* ---- C33: abort */

struct crossing {
    _Atomic uint32_t blocked, aborted, out, late;
    double           when, took[8]; /* of the abort; from it until a rank had its error */
    hkt_comm_t      *comm; /* of rank 0, for its second thread */
    int              pid[8];
};

static void *abort_from_here(void *arg)
{
    struct crossing *x = arg;

    pause_ms(200); /* the ranks are to be asleep in their wait */
    x->when = now();
    if (hkt_comm_abort(x->comm) == HKT_OK)
        atomic_store(&x->aborted, 1);
    return NULL;
}

static void blocked_then_aborted(struct rank *me)
{
    struct crossing *x = me->shared;
    float            data[1024] = {0};
    pthread_t        thread;
    int              rc;

    if (me->rank == 3) { /* never calls */
        await(&x->out, 3, 30);
        expect_code(hkt_barrier(me->comm, NULL), HKT_ERR_ABORTED);
        return;
    }
    if (me->rank == 0) {
        x->comm = me->comm;
        expect_true(pthread_create(&thread, NULL, abort_from_here, x) == 0);
    }
    rc = hkt_all_reduce(data, data, 1024, HKT_FLOAT32, HKT_SUM, me->comm, NULL);
    expect(rc == HKT_ERR_ABORTED, "gives %d: %s", rc, hkt_last_error());
    if (me->rank == 0) {
        pthread_join(thread, NULL);
        expect_true(atomic_load(&x->aborted) == 1);
    } else {
        expect_said("rank 0");
    }
    x->took[me->rank] = now() - x->when;
    expect_code(hkt_all_reduce(data, data, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL), HKT_ERR_ABORTED);
    expect_ok(hkt_comm_error(me->comm, &rc));
    expect_true(rc == HKT_ERR_ABORTED);
    atomic_fetch_add(&x->out, 1);
}

/* Proves: abort on one rank, from a thread beside the blocked call, ends the blocked calls of all ranks within 100 ms. */
START_TEST(C33_abort_from_another_thread)
{
    struct crossing x;

    world_run(&(struct world){.n = 4, .kind = _i, .fn = blocked_then_aborted, .result = &x, .result_size = sizeof(x)});
    for (int r = 0; r < 3; r++)
        ck_assert_msg(slow_build() || x.took[r] < 0.1 + 4 * world_delay(), "rank %d returned %.1f ms after the abort (naps took up to %.1f ms too long)", r,
                      x.took[r] * 1e3, world_delay() * 1e3);
}
END_TEST

static void stream_then_aborted(struct rank *me)
{
    struct crossing *x = me->shared;
    hkt_stream_t    *stream;
    float            data[16] = {0};

    expect_ok(hkt_stream_create(&stream));
    if (me->rank) { /* never calls */
        await(&x->out, 1, 30);
        expect_ok(hkt_stream_destroy(stream));
        return;
    }
    for (int k = 0; k < 5; k++)
        expect_ok(hkt_all_reduce(data, data, 16, HKT_FLOAT32, HKT_SUM, me->comm, stream));
    expect_code(hkt_stream_query(stream), HKT_IN_PROGRESS);
    expect_ok(hkt_comm_abort(me->comm));
    expect_code(hkt_stream_synchronize(stream), HKT_ERR_ABORTED);
    expect_ok(hkt_stream_synchronize(stream));
    atomic_fetch_add(&x->out, 1);
    expect_ok(hkt_stream_destroy(stream));
}

/* Proves: abort ends work that is queued on a stream; the stream says so once and can be used and destroyed. */
START_TEST(C33_abort_of_stream_work)
{
    world(2, _i, stream_then_aborted, NULL);
}
END_TEST

/* ---- C31: stale handles */

static void *destroy_here(void *arg)
{
    return (void *)(intptr_t)hkt_comm_destroy(arg);
}

static void stale(struct rank *me)
{
    hkt_comm_t *comm, *other;
    float       x = 1;
    int         rank;
    char        text[64];

    expect_ok(hkt_comm_duplicate(&comm, me->comm, NULL));
    expect_ok(hkt_comm_destroy(comm));
    for (int round = 0; round < 3; round++) {
        expect_code(hkt_comm_destroy(comm), HKT_ERR_ARGUMENT);
        expect_code(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, comm, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_barrier(comm, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_comm_rank(comm, &rank), HKT_ERR_ARGUMENT);
        expect_code(hkt_comm_error(comm, &rank), HKT_ERR_ARGUMENT);
        expect_code(hkt_comm_report(comm, text, sizeof(text)), HKT_ERR_ARGUMENT);
        expect_code(hkt_comm_abort(comm), HKT_ERR_ARGUMENT);
        expect_code(hkt_comm_duplicate(&other, comm, NULL), HKT_ERR_ARGUMENT);
        expect_ok(hkt_comm_duplicate(&other, me->comm, NULL)); /* a new one must not wake the old handle */
        expect_code(hkt_comm_rank(comm, &rank), HKT_ERR_ARGUMENT);
        expect_ok(hkt_comm_destroy(other));
    }
    expect_code(hkt_barrier((hkt_comm_t *)(uintptr_t)0x1234567, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_barrier((hkt_comm_t *)&x, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_barrier(NULL, NULL), HKT_ERR_ARGUMENT);
    expect_ok(hkt_comm_destroy(NULL));
    for (int k = 0; k < 100; k++) {
        pthread_t thread[2];
        void     *result[2];

        expect_ok(hkt_comm_duplicate(&comm, me->comm, NULL));
        for (int t = 0; t < 2; t++)
            expect_true(pthread_create(&thread[t], NULL, destroy_here, comm) == 0);
        for (int t = 0; t < 2; t++)
            pthread_join(thread[t], &result[t]);
        expect((intptr_t)result[0] + (intptr_t)result[1] == HKT_ERR_ARGUMENT, "two threads destroyed one communicator: %d and %d",
               (int)(intptr_t)result[0], (int)(intptr_t)result[1]);
    }
    expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
}

/* Proves: a destroyed handle is refused by every function, is not revived by a new communicator, and of two threads that destroy one
 * at the same time exactly one succeeds. */
START_TEST(C31_stale_handles)
{
    world(2, _i, stale, NULL);
}
END_TEST

/* ---- C58: who is late */

static void late_at_17(struct rank *me)
{
    const hkt_config_t config = {.size = sizeof(config), .blocking = 1, .timeout_s = 60, .name = "gradients"};
    struct crossing   *x      = me->shared;
    hkt_comm_t        *comm[3] = {me->comm};
    char               text[8192], pid[32];
    float              data[8] = {0};

    x->pid[me->rank] = getpid();
    expect_ok(hkt_comm_duplicate(&comm[1], me->comm, &config));
    expect_ok(hkt_comm_split(&comm[2], me->comm, me->rank % 2, 0, NULL));
    for (int k = 1; k <= 17; k++) {
        expect_ok(hkt_barrier(comm[2], NULL));
        if (k == 17 && me->rank == 5)
            await(&x->late, 1, 50);
        if (k == 17 && me->rank == 6) { /* asks, in place of the user, until the others have arrived */
            const double end = now() + 30;

            snprintf(pid, sizeof(pid), "%d", x->pid[5]);
            do {
                expect(now() < end, "the report never said what was expected:\n%s", text);
                expect_ok(hkt_comm_report(comm[1], text, sizeof(text)));
            } while (!strstr(text, "gradients") || !strstr(text, "rank 5") || !strstr(text, pid) || !strstr(text, "17"));
            atomic_store(&x->late, 1);
        }
        expect_ok(k % 2 ? hkt_all_reduce(data, data, 8, HKT_FLOAT32, HKT_SUM, comm[1], NULL) : hkt_barrier(comm[1], NULL));
    }
    expect_ok(hkt_comm_report(comm[1], text, 40));
    expect(strlen(text) < 40, "the report does not keep to its size");
    expect_ok(hkt_comm_destroy(comm[2]));
    expect_ok(hkt_comm_destroy(comm[1]));
}

/* Proves: while ranks wait, hkt_comm_report() names the communicator, the number of the operation and the rank that is late with its pid. */
START_TEST(C58_report_names_the_late_rank)
{
    world(8, _i, late_at_17, NULL);
}
END_TEST

/* ---- C42: fork */

static void child(hkt_comm_t *comm, char *big, size_t size, int which)
{
    float x = 1;
    int   rc;

    memset(big, which, size); /* pages that the parent has in use */
    if (which == 0) {
        rc = hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, comm, NULL);
        if (rc != HKT_ERR_USAGE || !strstr(hkt_last_error(), "fork"))
            _exit(1);
        if (hkt_comm_destroy(comm) >= 0)
            _exit(2);
    }
    if (which == 1)
        _exit(0);
    exit(0); /* with whatever destructors there are */
}

static void forking(struct rank *me)
{
    const size_t size = 8 << 20;
    char        *big  = malloc(size);
    pid_t        pid[4];
    struct lab   lab;

    lab_open(&lab, me->comm, 4 * 400000 * 4);
    for (int round = 0; round < 3; round++) {
        for (int c = 0; c < 4; c++) {
            pid[c] = fork();
            expect_true(pid[c] >= 0);
            if (pid[c] == 0)
                child(me->comm, big, size, c);
        }
        for (uint64_t k = 0; k < 60; k++) {
            const struct job j = job_random(mix(k + (uint64_t)round * 60), (enum coll)(k % COLLS), HKT_FLOAT16, k % 5 ? 100 : 300000, me->n);

            job_run(&lab, &j);
        }
        for (int c = 0; c < 4; c++) {
            int status;

            expect_true(waitpid(pid[c], &status, 0) == pid[c]);
            expect(status == 0, "child %d ended with status %#x", c, (unsigned)status);
        }
    }
    lab_close(&lab);
    free(big);
}

/* Proves: children that are forked after init neither disturb the parent's collectives nor can use the library, and say why. */
START_TEST(C42_fork_after_init)
{
    world(3, PROCESSES, forking, NULL);
}
END_TEST

/* ---- C20: signals */

static _Atomic uint32_t ticks;

static void tick(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
}

static void under_fire(struct rank *me)
{
    const struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct sigaction       action = {.sa_handler = tick}, after;
    hkt_comm_t            *comm, *half;
    struct lab             lab;

    sigaction(SIGALRM, &action, NULL); /* no SA_RESTART */
    signal(SIGPIPE, SIG_DFL);
    setitimer(ITIMER_REAL, &every_ms, NULL);
    for (uint64_t round = 0; round < 5; round++) {
        hkt_unique_id_t id = *me->id;

        expect_ok(hkt_comm_init(&comm, me->n, &id, me->rank, NULL));
        expect_ok(hkt_comm_split(&half, comm, me->rank / 2, 0, NULL));
        lab_open(&lab, comm, 4 * 400000 * 4);
        for (uint64_t k = 0; k < 200; k++) {
            const struct job j = job_random(mix(k + round * 1000), (enum coll)(k % COLLS), HKT_BFLOAT16, k % 20 ? 100 : 300000, me->n);

            job_run(&lab, &j);
            if (me->rank == (int)k % 4)
                usleep(300); /* so that waits become sleeps, and signals hit them */
        }
        lab_close(&lab);
        expect_ok(hkt_comm_destroy(half));
        expect_ok(hkt_comm_destroy(comm));
        rendezvous(me);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    expect_true(atomic_load(&ticks) > 10);
    sigaction(SIGALRM, NULL, &after);
    expect(after.sa_handler == tick && !(after.sa_flags & SA_RESTART), "the handler of the application was changed");
    sigaction(SIGPIPE, NULL, &after);
    expect(after.sa_handler == SIG_DFL, "the action of SIGPIPE was changed");
}

/* Proves: a signal every millisecond disturbs neither init nor collectives nor destroy, and no signal action is changed. */
START_TEST(C20_signal_every_millisecond)
{
    world_run(&(struct world){.n = 4, .kind = PROCESSES, .fn = under_fire, .bare = true});
}
END_TEST

/* ---- C07: processor time */

static void idle_and_waiting(struct rank *me)
{
    struct crossing *x = me->shared;
    float            data[8] = {0};
    double           begin, cpu, wall;

    for (int k = 0; k < 100; k++)
        expect_ok(hkt_all_reduce(data, data, 8, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
    rendezvous(me);
    cpu = cpu_seconds();
    pause_ms(2000);
    cpu = cpu_seconds() - cpu;
    expect(slow_build() || cpu < 0.02, "an idle communicator used %.1f ms of processor time in 2 s", cpu * 1e3);

    if (me->rank == me->n - 1) {
        await(&x->blocked, (uint32_t)me->n - 1, 30);
        pause_ms(2000);
    }
    atomic_fetch_add(&x->blocked, 1);
    begin = now();
    cpu   = cpu_seconds();
    expect_ok(hkt_all_reduce(data, data, 8, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
    wall = now() - begin;
    cpu  = cpu_seconds() - cpu;
    if (me->rank < me->n - 1)
        expect(slow_build() || (wall > 1.9 && cpu < 0.05 * wall), "a rank that is %.2f s late cost a waiter %.1f ms of processor time", wall, cpu * 1e3);
}

/* Proves: an idle communicator uses less than 1 % of a processor, and a late rank costs its peers less than 5 %. */
START_TEST(C07_idle_and_late)
{
    world(2 + 2 * _i, PROCESSES, idle_and_waiting, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, C45_different_calls, 6, 60);
    ADD(s, abort_then_free, 1, 60);
    ADD(s, C45_different_messages, 2, 60);
    ADD(s, C45_different_blocks, 2, 60);
    ADD(s, C33_abort_from_another_thread, 2, 60);
    ADD(s, C33_abort_of_stream_work, 2, 60);
    ADD(s, C31_stale_handles, 2, 60);
    ADD(s, C58_report_names_the_late_rank, 2, 60);
    ADD(s, C42_fork_after_init, 1, 60);
    ADD(s, C20_signal_every_millisecond, 1, 60);
    ADD(s, C07_idle_and_late, 2, 60);
}

int main(void)
{
    return run_suite("failures", add);
}
