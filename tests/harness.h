/* harness.h -- ranks for tests: as threads of this process, or as processes forked before any call of the library.
 *
 * A test describes a world and runs it: world(n, kind, fn, arg) calls fn on every rank with a communicator that is ready, and
 * destroys it afterwards. The test fails, naming the rank and what it was doing, when an expectation does not hold on some rank,
 * when a rank dies unasked, or when the world does not end before its deadline. Waits poll a condition and have a deadline.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include "hocket.h"

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum kind { THREADS, PROCESSES, KINDS };
enum { SHARED_BYTES = 1 << 16 };

/* One rank, as its function sees it. */
struct rank {
    int              rank, n;
    enum kind        kind;
    hkt_comm_t      *comm; /* NULL in a bare world */
    void            *arg;
    hkt_unique_id_t *id;     /* the id that comm was made from; valid in a bare world too */
    void            *shared; /* SHARED_BYTES, zero at first, the same memory on every rank and in the test */
};
typedef void rank_fn(struct rank *me);

struct world {
    int                 n;
    enum kind           kind;
    int                 hosts; /* that processes pretend to be on; 0: as TEST_HOSTS says, else one; < 0: ranks take them in turn */
    rank_fn            *fn;
    void               *arg;
    const char         *environment[4]; /* "HKT_SPIN=0": set for the ranks; the test's process must not have called the library */
    const hkt_config_t *config;         /* of the communicator */
    double              deadline;       /* seconds for all of it; 0: 60 */
    uint64_t            may_die;        /* bit per rank that may end in any way (processes) */
    bool                bare;           /* no communicator is made */
    bool                keep;           /* the communicator is not destroyed at the end */
    void               *result;         /* gets the first result_size bytes of the shared memory when all ranks have ended */
    size_t              result_size;
    void (*meanwhile)(const struct world *w, const pid_t *pids, void *shared); /* called every ms by the test's process */
};

/* Runs the world; returns when every rank has ended. Aborts the test when something was not as expected. */
void world_run(const struct world *w);
void world(int n, enum kind kind, rank_fn *fn, void *arg);

/* How much longer than asked a nap of the test's process took at the worst during the last world, seconds: what a bound on a time has to
 * be widened by on a machine that is busy with other things. */
double world_delay(void);

/* What the calling rank is doing, for the message when it fails or hangs. Kept until the next call. */
void doing(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits until every rank of the world is here. Does not use the library. */
void rendezvous(struct rank *me);

/* Waits until *word >= value; fails the rank after `seconds`. */
void await(_Atomic uint32_t *word, uint32_t value, double seconds);

/* Fails the calling rank, or the test when no rank calls. */
void fail_at(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
int  expect_code_at(const char *file, int line, const char *call, int wanted, int got);

#define expect(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_at(__FILE__, __LINE__, __VA_ARGS__);                                                                  \
    } while (0)
#define expect_true(condition)    expect(condition, "%s is not true", #condition)
#define expect_code(call, wanted) expect_code_at(__FILE__, __LINE__, #call, wanted, call)
#define expect_ok(call)           expect_code(call, HKT_OK)

/* hkt_last_error() must contain the text. */
void expect_said_at(const char *file, int line, const char *text);
#define expect_said(text) expect_said_at(__FILE__, __LINE__, text)

/* ---- looking at processes */

double   now(void);                     /* seconds, the same clock in every process */
double   cpu_seconds(void);             /* of the calling process, all threads */
int      open_descriptors(void);        /* of this process */
int      mappings(void);
int      threads(void);
long     resident_kib(void);
void     pause_ms(int ms);              /* for polling loops and for the late ranks that a test is about */
int      entries_with(const char *folder, const char *text); /* files in `folder` whose name contains `text` */
uint64_t mix(uint64_t x);               /* a good hash: the source of all randomness in the tests */
bool     long_tests(void);              /* make check-long */
bool     slow_build(void);              /* under a sanitizer: times are not judged, loops are shorter */

/* Runs the suites' cases: a program is one Suite. Returns the exit code. */
int run_suite(const char *name, void (*add)(Suite *s));
/* Adds a test to the suite as a case of its own, named as the test. `loops` > 1 runs it with _i = 0 .. loops - 1. */
void add_test(Suite *s, const char *name, const TTest *test, int loops, double seconds);
#define ADD(s, test, loops, seconds) add_test(s, #test, test, loops, seconds)

#endif
