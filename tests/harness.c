/* harness.c -- ranks as threads or processes, supervised. See harness.h. The data that a world shares is one anonymous shared mapping, the
 * board; expectations write their failure there, and the test's process reads it. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LEAKS() __lsan_do_recoverable_leak_check()
#else
#define LEAKS() 0
#endif

enum state { RUNNING, DONE, FAILED };

struct slot {
    _Atomic int state; /* enum state; release after `failure` is written, acquire by the supervisor */
    pid_t       pid;   /* processes: 0 once it has been waited for */
    char        doing[256], failure[1536];
};

struct board {
    _Atomic uint32_t id_ready, arrived;
    hkt_unique_id_t  id;
    _Alignas(64) char shared[SHARED_BYTES];
    struct slot slot[];
};

/* What a rank is started with. */
struct start {
    const struct world *world;
    struct board       *board;
    struct rank         me;
    pthread_t           thread;
};

static _Thread_local struct slot *my_slot; /* NULL when the calling thread is no rank */
static _Thread_local struct rank *my_rank;
static struct board              *board_now;
static double                     delay;

/* ---- looking at processes */

double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

int entries_with(const char *folder, const char *text)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    int            n = 0;

    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.' && strstr(e->d_name, text);
    if (d)
        closedir(d);
    return n;
}

int open_descriptors(void)
{
    return entries_with("/proc/self/fd", "") - 1; /* that of the folder itself */
}

int threads(void)
{
    return entries_with("/proc/self/task", "");
}

int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    int   n = 0;

    for (int c; f && (c = getc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

long resident_kib(void)
{
    FILE *f     = fopen("/proc/self/statm", "re");
    long  pages = 0;

    if (f) {
        if (fscanf(f, "%*d %ld", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

bool long_tests(void)
{
    return getenv("TEST_LONG") != NULL;
}

bool slow_build(void)
{
#ifdef SANITIZED
    return true;
#else
    return false;
#endif
}

/* ---- expectations */

void doing(const char *format, ...)
{
    va_list args;

    if (!my_slot)
        return;
    va_start(args, format);
    vsnprintf(my_slot->doing, sizeof(my_slot->doing), format, args);
    va_end(args);
}

void fail_at(const char *file, int line, const char *format, ...)
{
    char    text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!my_slot)
        ck_abort_msg("%s:%d: %s", file, line, text);
    snprintf(my_slot->failure, sizeof(my_slot->failure), "%s:%d: %s%s%s", file, line, text, *my_slot->doing ? "; doing " : "",
             my_slot->doing);
    atomic_store_explicit(&my_slot->state, FAILED, memory_order_release);
    if (my_rank->kind == PROCESSES)
        _exit(99);
    for (;;) /* the supervisor sees the state and ends the test */
        pause();
}

int expect_code_at(const char *file, int line, const char *call, int wanted, int got)
{
    if (got != wanted)
        fail_at(file, line, "%s gave %d (%s), not %d: %s", call, got, hkt_error_string(got), wanted, hkt_last_error());
    return got;
}

void expect_said_at(const char *file, int line, const char *text)
{
    if (!strstr(hkt_last_error(), text))
        fail_at(file, line, "the error does not say '%s': %s", text, hkt_last_error());
}

void await(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    const double end = now() + seconds;

    while (atomic_load_explicit(word, memory_order_acquire) < value) {
        expect(now() < end, "waited %g s for %u, but it is %u", seconds, value, atomic_load(word));
        usleep(100);
    }
}

void rendezvous(struct rank *me)
{
    const uint32_t arrived = atomic_fetch_add(&board_now->arrived, 1);

    await(&board_now->arrived, (arrived / (uint32_t)me->n + 1) * (uint32_t)me->n, 60);
}

/* ---- one rank */

static void set_environment(const struct world *w)
{
    for (size_t i = 0; i < sizeof(w->environment) / sizeof(w->environment[0]) && w->environment[i]; i++)
        putenv((char *)(uintptr_t)w->environment[i]);
}

static void run_rank(struct start *s)
{
    struct rank *me = &s->me;

    my_slot = &s->board->slot[me->rank];
    my_rank = me;
    doing("making the communicator");
    if (me->rank == 0) {
        expect_ok(hkt_unique_id(&s->board->id));
        atomic_store_explicit(&s->board->id_ready, 1, memory_order_release); /* pairs with await() */
    }
    await(&s->board->id_ready, 1, 60);
    if (!s->world->bare)
        expect_ok(hkt_comm_init(&me->comm, me->n, me->id, me->rank, s->world->config));
    doing("%s", "");
    s->world->fn(me);
    if (!s->world->bare && !s->world->keep) {
        doing("destroying the communicator");
        expect_ok(hkt_comm_destroy(me->comm));
    }
    atomic_store_explicit(&my_slot->state, DONE, memory_order_release);
}

static void *thread_main(void *arg)
{
    run_rank(arg);
    return NULL;
}

/* Ranks that are processes can pretend to be on several hosts: runs of ranks, or one by one in turn when the number is negative. */
static void choose_host(const struct start *s)
{
    const char *all   = getenv("TEST_HOSTS");
    const int   hosts = s->world->hosts ? s->world->hosts : all ? atoi(all) : 1, rank = s->me.rank;
    char        name[32];

    if (hosts == 0 || hosts == 1)
        return;
    snprintf(name, sizeof(name), "host%d", hosts < 0 ? rank % -hosts : rank / ((s->me.n + hosts - 1) / hosts));
    setenv("HKT_HOST", name, 1);
}

static void process_main(struct start *s)
{
    set_environment(s->world);
    choose_host(s);
    run_rank(s);
    if (LEAKS()) {
        snprintf(my_slot->failure, sizeof(my_slot->failure), "memory leaked, see above");
        _exit(99);
    }
    _exit(0);
}

/* ---- the supervisor */

static const char *how_it_ended(int status, char text[64])
{
    if (WIFSIGNALED(status))
        snprintf(text, 64, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, 64, "exited with %d", WEXITSTATUS(status));
    return text;
}

/* Looks at one rank. True while it is alive; writes a failure when it ended as it should not. */
static bool still_alive(struct start *s)
{
    struct slot *slot = &s->board->slot[s->me.rank];
    const bool   may  = s->world->may_die >> (s->me.rank & 63) & 1;
    char         text[64], last[256];
    int          status;

    if (s->world->kind == THREADS)
        return atomic_load_explicit(&slot->state, memory_order_acquire) == RUNNING;
    if (!slot->pid)
        return false;
    if (waitpid(slot->pid, &status, WNOHANG) != slot->pid)
        return true;
    slot->pid = 0;
    if (status && !*slot->failure && !may) {
        memcpy(last, slot->doing, sizeof(last));
        snprintf(slot->failure, sizeof(slot->failure), "%s; doing %s", how_it_ended(status, text), last);
        atomic_store(&slot->state, FAILED);
    }
    return false;
}

static void kill_rest(struct start *s, int n)
{
    for (int r = 0; s->world->kind == PROCESSES && r < n; r++) {
        struct slot *slot = &s->board->slot[r];

        if (!slot->pid)
            continue;
        kill(slot->pid, SIGKILL);
        waitpid(slot->pid, NULL, 0);
        slot->pid = 0;
    }
}

/* Every rank's failure, or what those were doing that have not ended. */
static void abort_test(struct start *s, int n, bool late)
{
    static char text[3800]; /* Check takes 4096 bytes at the most */
    size_t      at = 0;

    for (int r = 0; r < n && at < sizeof(text) - 1800; r++) {
        const struct slot *slot = &s->board->slot[r];

        if (atomic_load_explicit(&s->board->slot[r].state, memory_order_acquire) == FAILED)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "\n  rank %d of %d %s: %s", r, n,
                                   s->world->kind == THREADS ? "threads" : "processes", slot->failure);
        else if (late && atomic_load(&s->board->slot[r].state) == RUNNING)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "\n  rank %d of %d is not done: %s", r, n, slot->doing);
    }
    kill_rest(s, n);
    ck_abort_msg("%s%s", late ? "the world did not end in time" : "a rank failed", text);
}

static void supervise(struct start *s, int n)
{
    const double end = now() + (s->world->deadline > 0 ? s->world->deadline : 60) * (slow_build() ? 5 : 1);
    pid_t       *pids = calloc((size_t)n, sizeof(*pids));
    int          alive;

    do {
        bool failed = false;

        alive = 0;
        for (int r = 0; r < n; r++) {
            alive += still_alive(&s[r]);
            pids[r] = s->board->slot[r].pid;
            failed |= atomic_load_explicit(&s->board->slot[r].state, memory_order_acquire) == FAILED;
        }
        if (failed || (alive && now() > end))
            abort_test(s, n, !failed);
        if (alive && s->world->meanwhile)
            s->world->meanwhile(s->world, pids, s->board->shared);
        if (alive) {
            const double begin = now();

            pause_ms(1);
            delay = now() - begin - 1e-3 > delay ? now() - begin - 1e-3 : delay;
        }
    } while (alive);
    free(pids);
}

double world_delay(void)
{
    return delay;
}

static void start_rank(struct start *s)
{
    struct slot *slot = &s->board->slot[s->me.rank];

    if (s->world->kind == PROCESSES) {
        const pid_t pid = fork(); /* not into the slot at once: that is shared with the child */

        ck_assert_msg(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0)
            process_main(s);
        slot->pid = pid;
    } else {
        pthread_attr_t attributes;
        int            rc;

        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, slow_build() ? 8 << 20 : 1 << 20);
        rc = pthread_create(&s->thread, &attributes, thread_main, s);
        ck_assert_msg(rc == 0, "pthread_create: %s", strerror(rc));
        pthread_attr_destroy(&attributes);
    }
}

void world_run(const struct world *w)
{
    const size_t  size  = sizeof(struct board) + (size_t)w->n * sizeof(struct slot);
    struct board *board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct start *start = calloc((size_t)w->n, sizeof(*start));

    ck_assert(board != MAP_FAILED && start);
    board_now = board;
    delay     = 0;
    if (w->kind == THREADS)
        set_environment(w);
    fflush(NULL);
    for (int r = 0; r < w->n; r++) {
        start[r] = (struct start){w, board, {r, w->n, w->kind, NULL, w->arg, &board->id, board->shared}, 0};
        start_rank(&start[r]);
    }
    supervise(start, w->n);
    for (int r = 0; w->kind == THREADS && r < w->n; r++)
        pthread_join(start[r].thread, NULL);
    if (w->result)
        memcpy(w->result, board->shared, w->result_size);
    free(start);
    munmap(board, size);
}

void world(int n, enum kind kind, rank_fn *fn, void *arg)
{
    world_run(&(struct world){.n = n, .kind = kind, .fn = fn, .arg = arg});
}

/* ---- suites */

void add_test(Suite *s, const char *name, const TTest *test, int loops, double seconds)
{
    TCase *c = tcase_create(name);

    tcase_set_timeout(c, seconds * (slow_build() ? 6 : 1));
    tcase_add_loop_test(c, test, 0, loops);
    suite_add_tcase(s, c);
}

int run_suite(const char *name, void (*add)(Suite *s))
{
    Suite   *s = suite_create(name);
    SRunner *runner;
    int      failed;

    setvbuf(stdout, NULL, _IOLBF, 0);
    add(s);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
