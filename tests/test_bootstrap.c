/* test_bootstrap.c -- ranks that meet by an id: with ranks that fail, die, are missing or do not
 * fit; and what they then know of the machine. */
#include "party.h"

#include "base/memory.h"
#include "setup/proof.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* What rank r gives in round k of a test, at byte i. */
static unsigned char part_of(int r, int k, size_t i)
{
    return (unsigned char)(r * 7 + k * 3 + (int)(i % 251));
}

static void gather(struct hkt_bootstrap *b, int rank, int n, int round, size_t len)
{
    unsigned char *mine = malloc(len), *all = malloc(len * (size_t)n);

    for (size_t i = 0; i < len; i++)
        mine[i] = part_of(rank, round, i);
    expect_ok(hkt_bootstrap_all_gather(b, mine, len, all));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < len; i++)
            expect(all[(size_t)r * len + i] == part_of(r, round, i), "byte %zu of rank %d is wrong", i, r);
    free(mine);
    free(all);
}

/* Makes a party of its own and gathers a little. */
static void meet_and_gather(struct rank *me, int rounds, size_t len)
{
    struct hkt_bootstrap *b;

    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 30));
    for (int k = 0; k < rounds; k++)
        gather(b, me->rank, me->n, k, len);
    hkt_bootstrap_close(b);
}

static void sizes_rank(struct rank *me)
{
    meet_and_gather(me, 3, 40);
}

/* 1 to 9 ranks, as threads and as processes. */
START_TEST(test_sizes)
{
    bare_world(1 + _i / 2, _i % 2 ? PROCESSES : THREADS, sizes_rank, NULL, 0);
}
END_TEST

/* 256 ranks in one process. */
START_TEST(test_many)
{
    const double begin = now();

    bare_world(256, THREADS, sizes_rank, NULL, 0);
    expect(now() - begin < 5 || slow_build(), "256 ranks took %.1f s", now() - begin);
}
END_TEST

static void large_rank(struct rank *me)
{
    meet_and_gather(me, 2, 200000);
}

/* More than what sockets buffer, from all at once. */
START_TEST(test_large)
{
    bare_world(6, PROCESSES, large_rank, NULL, 0);
}
END_TEST

static void quick_rank(struct rank *me)
{
    struct board *board = me->shared;
    double        best  = 1;

    for (int i = 0; i < 20; i++) {
        double begin;

        rendezvous(me);
        begin = now();
        meet_and_gather(me, 3, 64);
        if (now() - begin < best)
            best = now() - begin;
    }
    if (me->rank == 0)
        board->when = best;
    expect(best < 0.02 || slow_build(), "meeting and three gathers take %.1f ms at best", best * 1e3);
}

/* 8 processes meet and gather three times within 20 ms. */
START_TEST(test_quick)
{
    bare_world(8, PROCESSES, quick_rank, NULL, 0);
}
END_TEST

static void reuse_rank(struct rank *me)
{
    const int cycles = slow_build() ? 200 : 2000;
    int       fds = 0, maps = 0;

    for (int i = 0; i < cycles; i++) {
        meet_and_gather(me, 1, 8);
        if (i == 20) {
            fds  = open_descriptors();
            maps = mappings();
        }
    }
    expect(open_descriptors() <= fds + 2 && mappings() <= maps + 8,
           "%d descriptors and %d mappings, %d and %d at the end", fds, maps, open_descriptors(), mappings());
}

/* C22, C28: the same id, 2000 times one after the other; nothing stays open. */
START_TEST(test_reuse)
{
    bare_world(_i + 1, PROCESSES, reuse_rank, NULL, 0);
}
END_TEST

/* ---- ids
 * -------------------------------------------------------------------------------------------------------------- */

/* Ids differ, survive being written and read, and what is no id is refused. */
START_TEST(test_id)
{
    char                  text[2 * HKT_UNIQUE_ID_BYTES + 1];
    hkt_unique_id_t       id, other;
    struct hkt_bootstrap *b = (void *)1;

    expect_ok(hkt_bootstrap_unique_id(&id));
    expect_ok(hkt_bootstrap_unique_id(&other));
    expect_true(memcmp(&id, &other, 16) != 0 && memcmp(id.internal + 16, other.internal + 16, 16) != 0);
    hkt_bootstrap_id_print(&id, text);
    expect_true(strlen(text) == 256);
    expect_ok(hkt_bootstrap_id_parse(&other, text));
    expect_true(memcmp(&id, &other, sizeof(id)) == 0);
    text[0] = 'x';
    expect_code(hkt_bootstrap_id_parse(&other, text), HKT_ERR_ARGUMENT);
    text[0] = '0';
    memset(text + 64, '0', 8);
    expect_code(hkt_bootstrap_id_parse(&other, text), HKT_ERR_ARGUMENT);
    text[200] = 0;
    expect_code(hkt_bootstrap_id_parse(&other, text), HKT_ERR_ARGUMENT);
    expect_code(hkt_bootstrap_id_parse(&other, ""), HKT_ERR_ARGUMENT);
    expect_true(memcmp(&id, &other, sizeof(id)) == 0);
    memset(&other, 0, sizeof(other));
    expect_code(hkt_bootstrap_open(&b, &other, 2, 0, 1), HKT_ERR_ARGUMENT);
    expect_said("no unique id");
    expect_true(b == (void *)1);
}
END_TEST

/* Shared by a test and its ranks, processes too. */
struct twice {
    int              as[3]; /* which rank of 3 each rank of the world says it is */
    _Atomic uint32_t refused;
};

static void twice_rank(struct rank *me)
{
    struct twice         *t = me->arg;
    struct hkt_bootstrap *b;
    const double          begin = now();
    const int             rc    = hkt_bootstrap_open(&b, me->id, 3, t->as[me->rank], t->as[me->rank] ? 1.6 : 1.2);

    if (rc == HKT_ERR_ARGUMENT) {
        expect_said("this id is in use");
        expect(now() - begin < 1 || slow_build(), "being told took %.1f s", now() - begin);
        atomic_fetch_add(&t->refused, 1);
    } else {
        expect_true(rc == HKT_ERR_TIMEOUT);
    }
}

static void *shared_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert(p != MAP_FAILED);
    return p;
}

/* C22: the same rank twice at the same time: one is told within a second that the id is in use, the other waits for the
 * third rank. */
START_TEST(test_same_rank_twice)
{
    static const int as[2][3] = {{0, 0, 1}, {1, 1, 0}};
    struct twice    *t        = shared_memory(sizeof(*t));

    memcpy(t->as, as[_i % 2], sizeof(t->as));
    bare_world(3, _i / 2 ? PROCESSES : THREADS, twice_rank, t, 0);
    expect(t->refused == 1, "%u ranks were refused, not 1", t->refused);
}
END_TEST

/* ---- ranks that do not fit, do not come, or fail
 * ------------------------------------------------------------------------ */

static void mismatch_rank(struct rank *me)
{
    struct hkt_bootstrap *b    = (void *)1;
    const bool            size = *(int *)me->arg == 0;

    if (me->rank == 2 && !size)
        hkt_bootstrap_version = 10203;
    expect_code(hkt_bootstrap_open(&b, me->id, me->rank == 2 && size ? 5 : 4, me->rank, 10), HKT_ERR_MISMATCH);
    expect_said("rank 2 (host ");
    expect_said("rank 0 (host ");
    expect_said(size ? "makes a communicator of 5 ranks" : "has version 10203");
    expect_true(b == (void *)1);
}

/* C26: one rank with another size, or another version of the library: all are told both. */
START_TEST(test_mismatch)
{
    bare_world(4, PROCESSES, mismatch_rank, &_i, 0);
}
END_TEST

static void missing_rank(struct rank *me)
{
    struct hkt_bootstrap *b;
    const int             absent = *(int *)me->arg;
    const double          begin  = now();

    if (me->rank == absent)
        return;
    expect_code(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 0.5), HKT_ERR_TIMEOUT);
    expect_said(absent ? "1 of 4 ranks did not come within 0.5 s (limit: HKT_INIT_TIMEOUT): 2"
                       : "rank 0 did not come within 0.5 s");
    expect(now() - begin < 1.4 || slow_build(), "the timeout of 0.5 s took %.1f s", now() - begin);
}

/* A rank that does not come is named to all others, whichever it is. */
START_TEST(test_missing)
{
    bare_world(4, PROCESSES, missing_rank, &(int){_i ? 2 : 0}, 0);
}
END_TEST

static void late_rank(struct rank *me)
{
    if (me->rank == *(int *)me->arg)
        usleep(150000); /* it is what the test is about */
    meet_and_gather(me, 1, 8);
}

/* A late rank is waited for, rank 0 as well. */
START_TEST(test_late)
{
    bare_world(3, PROCESSES, late_rank, &_i, 0);
}
END_TEST

/* How rank `who` of 4 ends, and when: before the others can have everything (0), or after a gather. */
struct ending {
    int  who;
    bool dies, after_gather;
};

static void ending_rank(struct rank *me)
{
    const struct ending  *e = me->arg;
    struct hkt_bootstrap *b;
    char                  all[4], name[64];
    double                begin;

    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10));
    if (e->after_gather)
        expect_ok(hkt_bootstrap_all_gather(b, "x", 1, all));
    if (me->rank == e->who && e->dies)
        kill(getpid(), SIGKILL);
    if (me->rank == e->who) {
        expect_code(hkt_bootstrap_id_parse(&(hkt_unique_id_t){{0}}, "bad"), HKT_ERR_ARGUMENT); /* some sentence */
        hkt_bootstrap_fail(b, HKT_ERR_ARGUMENT);
        expect_code(hkt_bootstrap_all_gather(b, "x", 1, all), HKT_ERR_ARGUMENT);
        hkt_bootstrap_close(b);
        return;
    }
    begin = now();
    snprintf(name, sizeof(name), "rank %d (host ", e->who);
    for (int i = 0; i < 2; i++) { /* the second time it is known */
        expect_code(hkt_bootstrap_all_gather(b, "x", 1, all), e->dies ? HKT_ERR_PEER : HKT_ERR_ARGUMENT);
        expect_said(name);
        expect_said(e->dies ? "died or left" : ": a unique id has 256 hex digits");
    }
    expect(now() - begin < 1 || slow_build(), "it took %.1f s to hear of it", now() - begin);
    hkt_bootstrap_close(b);
}

/* C24: a rank that fails or dies in the middle is named to all, with its sentence. */
START_TEST(test_ending)
{
    const struct ending e = {.who = _i & 1 ? 2 : 0, .dies = _i & 2, .after_gather = _i & 4};

    bare_world(4, PROCESSES, ending_rank, (void *)(uintptr_t)&e, e.dies ? 1u << e.who : 0);
}
END_TEST

static void crowded_rank(struct rank *me)
{
    struct board         *board = me->shared;
    struct hkt_bootstrap *b;
    struct rlimit         limit;

    if (me->rank == 0) { /* room for the socket and its spare */
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = (rlim_t)dup(0) + 2;
        close((int)limit.rlim_cur - 2);
        setrlimit(RLIMIT_NOFILE, &limit);
        atomic_store(&board->go, 1);
    }
    await(&board->go, 1, 10);
    expect_code(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10), HKT_ERR_SYSTEM);
    expect_said("rank 0 (host ");
    expect_said("RLIMIT_NOFILE");
}

/* C28: rank 0 may open no more files: all are told the limit. */
START_TEST(test_descriptors)
{
    bare_world(5, PROCESSES, crowded_rank, NULL, 0);
}
END_TEST

static void silent_rank(struct rank *me)
{
    _Atomic uint32_t     *done = me->shared;
    struct hkt_bootstrap *b;
    char                  all[4];

    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 0.5));
    if (me->rank == *(int *)me->arg) {
        await(done, 3, 10);
    } else {
        expect_code(hkt_bootstrap_all_gather(b, "x", 1, all), HKT_ERR_TIMEOUT);
        expect_said(me->rank && *(int *)me->arg == 0 ? "rank 0 (host " : "1 of 4 ranks did not answer within 0.5 s");
        atomic_fetch_add(done, 1);
    }
    hkt_bootstrap_close(b);
}

/* A rank that has met the others and then says nothing is named to all of them, whichever it is. */
START_TEST(test_silent)
{
    bare_world(4, PROCESSES, silent_rank, &(int){_i ? 2 : 0}, 0);
}
END_TEST

struct starving {
    int              who;
    long             n; /* its n-th allocation fails */
    _Atomic uint32_t done;
};

static void starving_rank(struct rank *me)
{
    struct starving      *s = me->arg;
    struct hkt_bootstrap *b = NULL;
    char                  all[3], name[64];
    const int             fds = open_descriptors(), had_port = me->rank == 0 && hkt_proof_supported(); /* that came with the id */
    int                   rc;

    hkt_alloc_fail_at(me->rank == s->who ? s->n : 0);
    rc = hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10);
    hkt_alloc_fail_at(0);
    if (rc == 0)
        rc = hkt_bootstrap_all_gather(b, "x", 1, all);
    hkt_bootstrap_close(b);
    expect(open_descriptors() == fds - had_port, "%d descriptors, %d at the end", fds, open_descriptors());
    if (rc == 0) {
        atomic_store(&s->done, 1);
        return;
    }
    expect_true(rc == HKT_ERR_MEMORY);
    snprintf(name, sizeof(name), "rank %d (host ", s->who);
    if (me->rank != s->who)
        expect_said(name);
    expect_said("out of memory");
}

/* C24: each allocation of one rank fails once; all ranks are told by whom, and nothing stays open. */
START_TEST(test_no_memory)
{
    struct starving *s = shared_memory(sizeof(*s));

    s->who = _i;
    for (s->n = 1; !s->done; s->n++) {
        expect(s->n < 10, "there is no end");
        bare_world(3, PROCESSES, starving_rank, s, 0);
    }
    expect(s->n > 2, "nothing was allocated");
}
END_TEST

/* ---- C20: signals
 * ------------------------------------------------------------------------------------------------------- */

static _Atomic uint32_t ticks;

static void tick(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
}

/* A signal that the program's own threads block must stay pending: the helper thread is not to run its handler. */
static void check_helper_blocks(void)
{
    sigset_t set, pending;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, tick);
    kill(getpid(), SIGUSR1);
    pause_ms(20); /* time for the helper thread to be wrong in */
    sigpending(&pending);
    expect(sigismember(&pending, SIGUSR1) == 1, "the helper thread has run a signal handler of the program");
}

static void signal_rank(struct rank *me)
{
    const struct itimerval timer  = {{0, 1000}, {0, 1000}};
    struct sigaction       action = {.sa_handler = tick}; /* without SA_RESTART */
    char                  *memory = malloc(8 * MIB);
    struct hkt_segment    *s, *t;
    struct party           p;

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < 20; i++) {
        party_join(&p, me);
        gather(p.b, me->rank, me->n, i, 50000);
        memset(memory, i, 8 * MIB);
        expect_ok(hkt_segment_create(&s, MIB, "signals"));
        expect_ok(hkt_segment_adopt(&t, memory, 8 * MIB));
        expect_ok(hkt_segment_share(s, p.peer, me->n));
        expect_ok(hkt_segment_share(t, p.peer, me->n));
        expect_true(memory[0] == (char)i && memory[8 * MIB - 1] == (char)i);
        hkt_segment_free(t);
        hkt_segment_free(s);
        expect_true(memory[0] == (char)i && memory[8 * MIB - 1] == (char)i);
        party_leave(&p, me);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    check_helper_blocks();
    expect(atomic_load(&ticks) > 10, "only %u signals have come", atomic_load(&ticks));
    free(memory);
}

/* C20: a signal every millisecond whose handler does not restart system calls, in everything that is here. */
START_TEST(test_signals)
{
    bare_world(3, PROCESSES, signal_rank, NULL, 0);
}
END_TEST

/* Proves: an id that is derived twice is the same, by another number or from another id another, and nothing but an id is taken. */
START_TEST(test_derived)
{
    hkt_unique_id_t id[2], a, b, none;

    memset(&none, 0, sizeof(none));
    for (int i = 0; i < 2; i++)
        expect_ok(hkt_unique_id(&id[i]));
    expect_ok(hkt_unique_id_derive(&a, &id[0], 7));
    expect_ok(hkt_unique_id_derive(&b, &id[0], 7));
    expect(!memcmp(&a, &b, sizeof(a)) && memcmp(&a, &id[0], sizeof(a)), "an id is not derived as before");
    expect_ok(hkt_unique_id_derive(&b, &id[0], 8));
    expect(memcmp(&a, &b, sizeof(a)), "two numbers give one id");
    expect_ok(hkt_unique_id_derive(&b, &id[1], 7));
    expect(memcmp(&a, &b, sizeof(a)), "two ids give one");
    expect_code(hkt_unique_id_derive(&b, &none, 7), HKT_ERR_ARGUMENT);
    expect_code(hkt_unique_id_derive(NULL, &a, 7), HKT_ERR_ARGUMENT);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_sizes, 18, 20);
    ADD(s, test_many, 1, 20);
    ADD(s, test_large, 1, 20);
    ADD(s, test_quick, 1, 20);
    ADD(s, test_reuse, 2, 30);
    ADD(s, test_id, 1, 20);
    ADD(s, test_derived, 1, 20);
    ADD(s, test_same_rank_twice, 4, 20);
    ADD(s, test_mismatch, 2, 20);
    ADD(s, test_missing, 2, 20);
    ADD(s, test_late, 2, 20);
    ADD(s, test_ending, 8, 20);
    ADD(s, test_descriptors, 1, 20);
    ADD(s, test_silent, 2, 20);
    ADD(s, test_no_memory, 3, 30);
    ADD(s, test_signals, 1, 30);
}

int main(void)
{
    return run_suite("bootstrap", add);
}
