/* test_checkpoint_kill.c -- saves that are cut short: by SIGKILL at any byte and any system call, on one rank or all, by a full
 * disk, by a limit on files, by a disk that does not synchronise. What was complete stays usable, and the next save works.
 *
 * The calls that change files are this program's: they stand before the C library's when the library is linked, count down, and
 * do what the test wants when the count is used up. A byte written counts 1, every other call CALL.
 */
#include "checkpoint_model.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALL = 400, TRIALS = 50 };

#define OURS __attribute__((visibility("default")))

static _Atomic long budget = -1; /* -1: not armed */
static _Atomic long spent;
static enum { KILL_ONE, KILL_ALL, NO_SPACE, NO_SYNC } fate;
static struct {
    _Atomic pid_t pid[8];
    _Atomic long  spent; /* by rank 0's last whole save */
} * board;
static int ranks_now;

/* How much of `cost` may still be done; below `cost`: the end is here. */
static long allowed(long cost)
{
    const long limit = atomic_load(&budget), before = atomic_fetch_add(&spent, cost);

    if (limit < 0 || before + cost <= limit)
        return cost;
    return before > limit ? 0 : limit - before;
}

static void die(void)
{
    for (int r = 0; r < ranks_now && fate == KILL_ALL; r++)
        if (board->pid[r] != getpid())
            kill(board->pid[r], SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Before a call that changes files other than by writing; true: let it fail. */
static bool stop_call(void)
{
    if (allowed(CALL) == CALL || fate == NO_SPACE)
        return false;
    if (fate != NO_SYNC)
        die();
    return true;
}

OURS ssize_t write(int fd, const void *data, size_t size)
{
    struct stat status;
    long        n;

    if (atomic_load(&budget) < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_nlink == 0)
        return syscall(SYS_write, fd, data, size);
    n = allowed((long)size);
    if (n == (long)size || fate == NO_SYNC)
        return syscall(SYS_write, fd, data, size);
    if (n)
        (void)!syscall(SYS_write, fd, data, n);
    if (fate != NO_SPACE)
        die();
    if (n)
        return n;
    errno = ENOSPC;
    return -1;
}

OURS int fsync(int fd)
{
    if (stop_call()) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

OURS int rename(const char *from, const char *to)
{
    (void)stop_call();
    return (int)syscall(SYS_rename, from, to);
}

OURS int mkdir(const char *path, mode_t mode)
{
    (void)stop_call();
    return (int)syscall(SYS_mkdir, path, mode);
}

OURS int remove(const char *path)
{
    (void)stop_call();
    return syscall(SYS_unlink, path) && errno == EISDIR ? (int)syscall(SYS_rmdir, path) : -(errno == ENOENT);
}

/* ---- a save that is cut short */

struct trial {
    char    folder[256];
    int64_t step, left; /* that is saved; that must be there if it is not */
    int     keep;
    int     victim;
    long    budget; /* of the victim; -1: nothing happens */
    int     wanted; /* code of the save when somebody lives */
};

static const struct layout layout = {"tp2 dp2 zero", 2, 1, 2, true};

static void save(struct rank *me)
{
    const struct trial *t = me->arg;
    struct pieces       p;
    int                 rc;

    board                = me->shared;
    ranks_now            = me->n;
    board->pid[me->rank] = getpid();
    pieces_make(&p, &layout, me->rank, t->step);
    expect_ok(hkt_barrier(me->comm, NULL));
    spent  = 0;
    budget = t->budget < 0 ? 1L << 40 : me->rank == t->victim ? t->budget : 1L << 40;
    rc     = hkt_checkpoint_save(me->comm, t->folder, t->step, t->keep, p.piece, p.count, NULL, 0);
    budget = -1;
    if (t->budget < 0)
        expect(rc == HKT_OK, "an undisturbed save gives %d: %s", rc, hkt_last_error());
    else if (fate == NO_SPACE || fate == NO_SYNC)
        expect(rc == t->wanted, "a failing save gives %d: %s", rc, hkt_last_error());
    else
        expect(rc == HKT_OK || rc == HKT_ERR_PEER || rc == HKT_ERR_ABORTED, "a rank whose peer dies gets %d: %s", rc,
               hkt_last_error());
    if (rc < 0 && fate == NO_SPACE)
        expect_said("No space left on device; make room");
    if (rc < 0 && t->wanted) {
        char who[16];

        snprintf(who, sizeof(who), "rank %d: ", t->victim);
        expect_said(who);
        expect_ok(hkt_barrier(me->comm, NULL));
        expect(entries_with(t->folder, "step-") >= 1, "the folder is empty");
    }
    board->spent = me->rank == 0 ? spent : board->spent;
    pieces_free(&p);
}

/* What is there is whole: the new one or the one before. */
static void judge(struct rank *me)
{
    const struct trial        *t   = me->arg;
    static const struct layout one = {"one", 1, 1, 1, false};
    hkt_checkpoint_t          *c;
    hkt_checkpoint_info_t      info;
    struct pieces              p;

    pieces_make(&p, &one, 0, -1);
    expect_ok(hkt_checkpoint_open(&c, t->folder, -1, NULL));
    expect_ok(hkt_checkpoint_info(&info, c));
    expect(info.step == t->step || info.step == t->left, "step %ld is there, not %ld or %ld", (long)info.step, (long)t->step,
           (long)t->left);
    expect(!*info.note, "the newest is not complete: %s", info.note);
    expect_ok(hkt_checkpoint_verify(c));
    expect_ok(hkt_checkpoint_read(p.piece, p.count, c));
    pieces_check(&p, info.step);
    *(int64_t *)me->shared = info.step;
    expect_ok(hkt_checkpoint_close(c));
    pieces_free(&p);
}

static long run_save(const struct trial *t, uint64_t may_die)
{
    struct {
        pid_t pid[8];
        long  spent;
    } result;
    const struct world w = {.n           = 4,
                            .kind        = PROCESSES,
                            .fn          = save,
                            .arg         = (void *)(uintptr_t)t,
                            .may_die     = may_die,
                            .keep        = t->budget >= 0,
                            .result      = &result,
                            .result_size = sizeof(result)};

    world_run(&w);
    return result.spent;
}

static int64_t run_judge(const struct trial *t)
{
    int64_t            step;
    const struct world w = {
        .n = 1, .kind = PROCESSES, .fn = judge, .arg = (void *)(uintptr_t)t, .result = &step, .result_size = sizeof(step)};

    world_run(&w);
    return step;
}

/* Proves: killed at a byte or call spread evenly over the save -- rank 0 alone, another rank alone, all at once --, what `latest`
 * names is complete and right, the step before at the least; and the next save works in what the dead one left. */
START_TEST(T_C29_killed_at_any_byte)
{
    struct trial t     = {.step = 1, .left = 1, .keep = 2, .budget = -1};
    int          newer = 0;
    long         whole;

    scratch_make(t.folder, "kill");
    fate = KILL_ONE;
    run_save(&t, 0);
    t.step = 2;
    whole  = run_save(&t, 0); /* with everything: removing the old, too */
    for (int i = 0; i < TRIALS; i++) {
        t.left   = run_judge(&t);
        t.step   = t.left + 1;
        t.victim = i % 3 == 1 ? 1 + i / 3 % 3 : 0;
        fate     = i % 3 == 2 ? KILL_ALL : KILL_ONE;
        t.budget = (long)(whole * (i + (double)(mix((uint64_t)i) % 1000) / 1000) / TRIALS);
        run_save(&t, t.victim && fate == KILL_ONE ? 1u << t.victim : 15);
        newer += run_judge(&t) == t.step;
    }
    ck_assert_msg(newer > 0 && newer < TRIALS, "%d of %d saves were complete: the kills are not spread over the save", newer,
                  TRIALS);
    t.left   = run_judge(&t);
    t.step   = t.left + 1;
    t.budget = -1;
    run_save(&t, 0);
    t.left = t.step;
    run_judge(&t);
    ck_assert_int_eq(entries_with(t.folder, "step-"), 2);
    scratch_remove(t.folder);
}
END_TEST

/* Proves: on a full disk, and when the disk fails to synchronise, every rank gets the error and which rank had it, what was
 * complete stays, nothing half is left, and the save works when there is room again. */
START_TEST(disk_full_or_broken)
{
    struct trial t = {.step = 1, .left = 1, .keep = 0, .budget = -1, .wanted = HKT_ERR_SYSTEM};

    scratch_make(t.folder, "full");
    fate = _i ? NO_SYNC : NO_SPACE;
    run_save(&t, 0);
    for (int i = 0; i < 6; i++) {
        t.left   = 1;
        t.step   = 2;
        t.victim = i % 2 ? 3 : 0;
        t.budget = _i ? i / 2 * CALL : i * 700;
        run_save(&t, 0);
        ck_assert_int_eq(run_judge(&t), 1);
    }
    ck_assert_int_eq(entries_with(t.folder, "step-"), 1);
    t.budget = -1;
    run_save(&t, 0);
    ck_assert_int_eq(run_judge(&t), 2);
    scratch_remove(t.folder);
}
END_TEST

static void limited(struct rank *me)
{
    enum { BIG = 3 << 20 }; /* floats */
    const struct trial *t     = me->arg;
    const struct rlimit limit = {8 << 20, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    float              *big = calloc(BIG, sizeof(*big));
    struct pieces       p;

    signal(SIGXFSZ, SIG_IGN);
    pieces_make(&p, &layout, me->rank, t->step);
    p.piece[p.count] = (hkt_piece_t){"big", HKT_PIECE_EXTRA, HKT_FLOAT32, 1, {BIG}, 0, BIG, 0, 0, 0, big};
    p.count += me->rank == 2;
    expect_true(me->rank != 2 || setrlimit(RLIMIT_FSIZE, &limit) == 0);
    expect_code(hkt_checkpoint_save(me->comm, t->folder, t->step, 0, p.piece, p.count, NULL, 0), HKT_ERR_SYSTEM);
    expect_said("rank 2: writing");
    expect_said("rank-00002.data: File too large");
    expect_true(setrlimit(RLIMIT_FSIZE, &none) == 0);
    expect_ok(hkt_checkpoint_save(me->comm, t->folder, t->step, 0, p.piece, p.count, NULL, 0));
    pieces_free(&p);
    free(big);
}

/* Proves: the same against a real limit of the system. */
START_TEST(limit_on_files)
{
    struct trial t = {.step = 4, .left = 4};

    scratch_make(t.folder, "limit");
    world(4, PROCESSES, limited, &t);
    run_judge(&t);
    scratch_remove(t.folder);
}
END_TEST

static void save_twice(struct rank *me)
{
    const struct trial *t = me->arg;
    hkt_saver_t        *first, *second;
    struct pieces       p;
    int                 one, two;

    pieces_make(&p, &layout, me->rank, t->step);
    expect_ok(hkt_saver_create(&first, me->comm, t->folder, 0, NULL));
    expect_ok(hkt_saver_create(&second, me->comm, t->folder, 0, NULL));
    for (int i = 0; i < 8; i++) {
        expect_ok(hkt_saver_begin(first, t->step, p.piece, p.count, NULL, 0));
        expect_ok(hkt_saver_begin(second, t->step, p.piece, p.count, NULL, 0));
        one = hkt_saver_wait(first);
        two = hkt_saver_wait(second);
        expect(one == HKT_OK || two == HKT_OK, "two saves at once give %d and %d", one, two);
        expect((one == HKT_OK || one == HKT_ERR_USAGE) && (two == HKT_OK || two == HKT_ERR_USAGE),
               "two saves at once give %d and %d", one, two);
    }
    expect_ok(hkt_saver_destroy(first));
    expect_ok(hkt_saver_destroy(second));
    pieces_free(&p);
}

/* Proves: two saves into one folder at the same time do not harm each other: one is refused, or they come one after the other. */
START_TEST(two_saves_at_once)
{
    struct trial t = {.step = 4, .left = 4};

    scratch_make(t.folder, "twice");
    world(4, PROCESSES, save_twice, &t);
    run_judge(&t);
    scratch_remove(t.folder);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_C29_killed_at_any_byte, 1, 120);
    ADD(s, disk_full_or_broken, 2, 60);
    ADD(s, limit_on_files, 1, 30);
    ADD(s, two_saves_at_once, 1, 30);
}

int main(void)
{
    return run_suite("checkpoint_kill", add);
}
