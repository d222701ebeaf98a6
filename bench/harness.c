/* harness.c -- a rank of a measuring program: it joins the others through a shared page, opens its library, and then
 * stands by.
 *
 * bench/versus starts all libraries at once and lets them measure in turn, so whoever is not measuring must use no
 * processor at all: rank 0 blocks reading a pipe, the others sleep on a futex in the shared page, and no library is
 * left waiting in its own barrier. When bench/versus goes away the pipe ends and so do the ranks. */
#include "harness.h"
#include "network.h"
#include "priority.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANG_US = 120 * 1000 * 1000, LOOK_AROUND_S = 2 };

struct page {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
    _Alignas(64) _Atomic uint32_t orders; /* futex: the number of orders so far */
    _Atomic int  leader;                  /* pid of rank 0 */
    struct order order;
    char         exchange[MAX_RANKS][EXCHANGE_BYTES];
};

static struct page *page;
static struct world world;
static int          library_open;

double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

void line_up(void)
{
    const uint32_t generation = atomic_load(&page->generation);
    double         since      = 0;

    if (atomic_fetch_add(&page->arrived, 1) == (uint32_t)world.size - 1) {
        atomic_store(&page->arrived, 0);
        atomic_store(&page->generation, generation + 1); /* frees the ranks that poll it below */
        return;
    }
    for (long polls = 0; atomic_load(&page->generation) == generation; polls++) {
        if (library_open && the_backend.progress)
            the_backend.progress();
        if (polls > 200)
            sched_yield();
        if (polls % 4096 == 4095) {
            since = since > 0 ? since : now_us();
            if (now_us() - since > HANG_US) {
                fprintf(stderr, "rank %d: the other ranks did not come\n", world.rank);
                exit(3);
            }
        }
    }
}

void exchange(const void *mine, void *all, size_t bytes)
{
    memcpy(page->exchange[world.rank], mine, bytes);
    line_up();
    for (int i = 0; i < world.size; i++)
        memcpy((char *)all + (size_t)i * bytes, page->exchange[i], bytes);
    line_up();
}

void slowest_each(double *values, int count)
{
    double *const mine = (double *)(void *)page->exchange[world.rank];

    memcpy(mine, values, (size_t)count * sizeof *values);
    line_up();
    for (int i = 0; i < world.size; i++)
        for (int j = 0; j < count; j++) {
            const double v = ((const double *)(const void *)page->exchange[i])[j];
            values[j]      = v > values[j] ? v : values[j];
        }
    line_up();
}

double slowest(double value)
{
    slowest_each(&value, 1);
    return value;
}

static void map_page(void)
{
    char path[512];
    int  fd;

    snprintf(path, sizeof path, "%s/page", world.directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *page))
        die(path);
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        die("mmap");
    close(fd);
}

/* "run COLLECTIVE ELEMENT KIND REWRITE BYTES REPEAT BATCHES BATCH_US LIMIT_US", "release" or "quit" */
static void parse(const char *line, struct order *o)
{
    memset(o, 0, sizeof *o);
    if (sscanf(line, "run %d %d %d %d %zu %ld %d %lf %lf", &o->collective, &o->element, &o->kind, &o->rewrite,
               &o->bytes, &o->repeat, &o->batches, &o->batch_us, &o->limit_us) == 9)
        return;
    o->stop = strncmp(line, "release", 7) ? 1 : 2;
}

/* Rank 0 reads the order and wakes the others; they sleep until it does, and look now and then whether it still lives.
 */
static void next_order(FILE *orders, uint32_t number, struct order *order)
{
    char line[256];

    if (world.rank == 0) {
        parse(fgets(line, sizeof line, orders) ? line : "quit", &page->order);
        atomic_store(&page->orders, number); /* read by the sleepers below */
        syscall(SYS_futex, &page->orders, FUTEX_WAKE, MAX_RANKS, NULL, NULL, 0);
    }
    for (uint32_t seen; (seen = atomic_load(&page->orders)) != number;) {
        const struct timespec timeout = {LOOK_AROUND_S, 0};

        syscall(SYS_futex, &page->orders, FUTEX_WAIT, seen, &timeout, NULL, 0);
        if (kill(atomic_load(&page->leader), 0))
            exit(4);
    }
    *order = page->order;
}

static void answer(FILE *answers, const struct outcome *o)
{
    if (world.rank)
        return;
    fprintf(answers,
            "{\"unsupported\": %d, \"repeat\": %ld, \"wrong\": %ld, \"faults\": %.3f, \"switches\": %.3f, \"us\": [",
            o->unsupported, o->repeat, o->wrong, o->faults, o->switches);
    for (int i = 0; i < o->batches; i++)
        fprintf(answers, "%s%.4f", i ? ", " : "", o->us[i]);
    fprintf(answers, "]}\n");
    fflush(answers);
}

static void stand_by(FILE *orders, FILE *answers)
{
    struct order   order;
    struct outcome outcome;

    for (uint32_t number = 1;; number++) {
        next_order(orders, number, &order);
        memset(&outcome, 0, sizeof outcome);
        if (order.stop == 1)
            return;
        if (order.stop == 2)
            cell_release();
        else
            cell_measure(&world, &order, &outcome);
        line_up();
        answer(answers, &outcome);
    }
}

/* The launchers of MPI say the rank in the environment; -1: nobody has launched us. */
static int rank_of_environment(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return -1;
}

/* Starts the ranks where no launcher has, all in this one session as mpirun does: sched_yield() does not reach across
 * the groups that the scheduler makes of sessions. Returns the rank in each; the parent stays here until the first rank
 * ends, and ends the others unless it ended well. */
static int fork_ranks(int size)
{
    int   status = 0;
    pid_t pids[MAX_RANKS];

    for (int rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0)
            die("fork");
        if (pids[rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return rank;
        }
    }
    for (int left = size; left && !status; left--)
        wait(&status);
    for (int rank = 0; rank < size && status; rank++)
        kill(pids[rank], SIGKILL);
    exit(status ? 1 : 0);
}

/* `cpus` is "0,1,..." or "-"; rank r gets the r-th. */
static void pin(const char *cpus)
{
    cpu_set_t set;

    for (int i = 0; i < world.rank && cpus; i++)
        cpus = strchr(cpus, ',') ? strchr(cpus, ',') + 1 : NULL;
    if (!cpus || *cpus == '-')
        return;
    CPU_ZERO(&set);
    CPU_SET(atoi(cpus), &set);
    if (sched_setaffinity(0, sizeof set, &set))
        die("sched_setaffinity");
}

static FILE *pipe_of(const char *name, const char *mode)
{
    char  path[512];
    FILE *f;

    if (world.rank)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", world.directory, name);
    f = fopen(path, mode);
    if (!f)
        die(path);
    return f;
}

/* directory size cpus shared priority [network] */
int main(int argc, char **argv)
{
    char  version[256] = "";
    FILE *orders, *answers;

    if (argc < 6) {
        fprintf(stderr, "started by bench/versus, not by hand\n");
        return 1;
    }
    world = (struct world){rank_of_environment(), atoi(argv[2]), atoi(argv[4]), argv[1], 1, "127.0.0.1"};
    if (world.size > MAX_RANKS)
        return 1;
    if (atoi(argv[5]))
        raise_priority();
    if (world.rank < 0)
        world.rank = fork_ranks(world.size);
    pin(argv[3]);
    if (argc > 6 && network_enter(&world, argv[6]))
        return 1;
    map_page();
    if (world.rank == 0)
        atomic_store(&page->leader, (int)getpid());
    orders  = pipe_of("orders", "r"); /* before anything slow: when bench/versus is gone this would wait for ever */
    answers = pipe_of("answers", "w");
    line_up();
    if (the_backend.open(&world, version, sizeof version))
        return 2;
    library_open = 1;
    line_up();
    orders  = pipe_of("orders", "r");
    answers = pipe_of("answers", "w");
    if (answers) {
        for (char *c = version; *c; c++)
            *c = *c < ' ' || *c == '"' || *c == '\\' ? ' ' : *c;
        fprintf(answers, "{\"version\": \"%s\"}\n", version);
        fflush(answers);
    }
    stand_by(orders, answers);
    cell_release();
    the_backend.close();
    return 0;
}
