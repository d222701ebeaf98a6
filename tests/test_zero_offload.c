/* test_zero_offload.c -- optimizer state in a file: what is left when a process is killed, and going on from it. */
#include "harness.h"
#include "zero_model.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { TRIALS = 30, LONGEST = 400, LARGE = 1500007 };

static void path_of(char *path, size_t size, int who)
{
    (void)snprintf(path, size, "offload-%d-%d.state", (int)getpid(), who);
}

/* A process that trains until it is killed, and says after each step that it was done. */
static void train_forever(const char *path, _Atomic uint32_t *done)
{
    struct rank      me = {.rank = 0, .n = 1};
    const struct way w  = {
         .stage = 1, .bytes = 1000, .equal = true, .tier = HKT_TIER_FILE, .path = path, .tile = 64, .micro_batches = 1};
    struct toy t;

    toy_make(&t, &me, &w, NULL);
    for (uint32_t step = 1; step < LONGEST; step++) {
        toy_step(&t, NULL);
        atomic_store(done, step);
    }
    for (;;)
        pause_ms(1000);
}

/* The state after so many steps, never in a file. */
static void reference(struct result *r, int steps)
{
    struct rank      me = {.rank = 0, .n = 1};
    const struct way w  = {.stage = 1, .bytes = 1000, .equal = true, .micro_batches = 1};
    struct toy       t;

    toy_make(&t, &me, &w, NULL);
    while (t.step < steps)
        toy_step(&t, NULL);
    toy_state(r, &t);
    toy_free(&t);
}

/* Proves (row 99): killed at 30 random moments, the file has the state after the last step that was done, or the one
 * that was just being finished, bit for bit; training goes on from it. */
START_TEST(T_row99_killed_at_any_moment)
{
    _Atomic uint32_t *done =
        mmap(NULL, TRIALS * sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rank     me = {.rank = 0, .n = 1};
    char            path[TRIALS][64];
    struct result   wanted, got;
    hkt_zero_info_t info;
    struct toy      t;

    for (int k = 0; k < TRIALS; k++) {
        const uint32_t until = 1 + (uint32_t)k / 3;
        path_of(path[k], sizeof path[k], k);
        const pid_t child = fork(); /* before this process calls the library */
        if (child == 0) {
            train_forever(path[k], &done[k]);
            _exit(1);
        }
        await(&done[k], until, 30);
        for (uint64_t spin = mix((uint64_t)k) % 200000; spin; spin--) /* somewhere in the next steps */
            atomic_signal_fence(memory_order_seq_cst);
        (void)kill(child, SIGKILL);
        expect_true(waitpid(child, NULL, 0) == child);
    }
    for (int k = 0; k < TRIALS; k++) {
        const struct way w    = {.stage         = 1,
                                 .bytes         = 1000,
                                 .equal         = true,
                                 .tier          = HKT_TIER_FILE,
                                 .path          = path[k],
                                 .tile          = 64,
                                 .micro_batches = 1,
                                 .resume        = true};
        const uint32_t   last = atomic_load(&done[k]);

        toy_make(&t, &me, &w, NULL);
        expect_ok(hkt_zero_info(&info, t.zero));
        expect(info.steps == last || info.steps == last + 1, "step %u was done, the file has %llu", last,
               (unsigned long long)info.steps);
        reference(&wanted, (int)info.steps);
        toy_state(&got, &t);
        expect(memcmp(wanted.state, got.state, sizeof got.state) == 0, "the state after %llu steps is wrong",
               (unsigned long long)info.steps);
        t.step = (int)info.steps;
        toy_step(&t, NULL);
        reference(&wanted, (int)info.steps + 1);
        toy_state(&got, &t);
        expect(memcmp(wanted.state, got.state, sizeof got.state) == 0, "it goes on differently");
        toy_free(&t);
        expect_true(remove(path[k]) == 0);
    }
    (void)munmap((void *)done, TRIALS * sizeof *done);
}
END_TEST

static void copy_file(const char *to, const char *from)
{
    FILE  *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char   block[4096];
    size_t n;

    expect_true(in && out);
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        expect_true(fwrite(block, 1, n, out) == n);
    expect_true(fclose(in) == 0 && fclose(out) == 0);
}

static void one_behind(struct rank *me)
{
    char          path[64], old[80];
    struct result two, got;
    struct toy    t;

    path_of(path, sizeof path, 100 + me->rank);
    (void)snprintf(old, sizeof old, "%s.old", path);
    struct way      w = {.stage = 2, .bytes = 1000, .equal = true, .tier = HKT_TIER_FILE, .path = path, .tile = 100};
    hkt_zero_info_t info;
    toy_make(&t, me, &w, NULL);
    toy_step(&t, NULL);
    toy_step(&t, NULL);
    toy_state(&two, &t);
    copy_file(old, path);
    toy_step(&t, NULL);
    toy_free(&t);
    if (me->rank == 1) /* it was killed before the end of step 3, rank 0 after */
        copy_file(path, old);
    expect_true(remove(old) == 0);
    w.resume = true;
    toy_make(&t, me, &w, NULL);
    expect_ok(hkt_zero_info(&info, t.zero));
    expect(info.steps == 2, "resumed at step %llu", (unsigned long long)info.steps);
    toy_state(&got, &t);
    expect_true(memcmp(two.state, got.state, sizeof got.state) == 0);
    toy_free(&t);

    /* A file of another layout, one that was never whole, and none. */
    hkt_zero_config_t c = HKT_ZERO_CONFIG_INIT;
    hkt_zero_t       *z = NULL;
    c.stage             = 1;
    c.tier              = HKT_TIER_FILE;
    c.path              = path;
    c.resume            = true;
    expect_code(hkt_zero_create(&z, t.parameter, TOYS - 1, me->comm, &c, NULL), HKT_ERR_ARGUMENT);
    expect_said("not the state of this layout");
    expect_true(truncate(path, 100) == 0);
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_SYSTEM);
    expect_said("the file ends there");
    expect_true(remove(path) == 0);
    expect_code(hkt_zero_create(&z, t.parameter, TOYS, me->comm, &c, NULL), HKT_ERR_SYSTEM);
    expect_said(path);
    expect_true(z == NULL);
}

/* Proves: when one rank's file is a step behind all ranks go on from the step that all of them have; files that do not
 * fit are refused. */
START_TEST(T_row99_ranks_resume_together)
{
    world(2, THREADS, one_behind, NULL);
}
END_TEST

/* Makes the page of a copy one of another boot, as after a power failure; the rest of the file survives here. */
static void other_boot(const char *path)
{
    FILE *f = fopen(path, "r+b");

    for (long page = 0; page < 2; page++) {
        expect_true(f && fseek(f, page * 4096 + 64, SEEK_SET) == 0);
        expect_true(fwrite("another boot", 8, 1, f) == 1);
    }
    expect_true(fclose(f) == 0);
}

/* Makes a toy from the file; the steps that it has, or -1 when it is refused. */
static int resumes(struct toy *t, struct rank *me, const char *path)
{
    hkt_zero_config_t c = HKT_ZERO_CONFIG_INIT;
    hkt_zero_info_t   info;
    hkt_zero_t       *z;

    c.stage  = 1;
    c.tier   = HKT_TIER_FILE;
    c.path   = path;
    c.resume = true;
    if (hkt_zero_create(&z, t->parameter, TOYS, me->comm, &c, NULL) < 0)
        return -1;
    expect_ok(hkt_zero_info(&info, z));
    expect_ok(hkt_zero_destroy(z));
    return (int)info.steps;
}

static void fails(struct rank *me)
{
    struct toy t;
    char       path[64];

    path_of(path, sizeof path, 300);
    struct way w = {.stage = 1, .tier = HKT_TIER_FILE, .path = path};
    toy_make(&t, me, &w, NULL);
    for (int step = 0; step < 3; step++)
        toy_step(&t, NULL);
    expect_true(resumes(&t, me, path) == 3); /* as if this process had died here */
    other_boot(path);
    expect_true(resumes(&t, me, path) == -1);
    expect_said("before the machine was started anew");
    expect_ok(hkt_zero_persist(t.zero));
    other_boot(path);
    expect_true(resumes(&t, me, path) == 3);
    toy_step(&t, NULL); /* of step 4 nothing is forced, step 3 still is */
    other_boot(path);
    expect_true(resumes(&t, me, path) == 3);
    toy_step(&t, NULL); /* step 5 lies where step 3 was */
    other_boot(path);
    expect_true(resumes(&t, me, path) == -1);
    expect_ok(hkt_zero_persist(t.zero));
    expect_true(resumes(&t, me, path) == 5);
    toy_free(&t);
    expect_true(remove(path) == 0);
}

/* Proves: after another boot only a state goes on that was forced to the disk, the last such one until it is written
 * over. */
START_TEST(T_row99_after_a_power_failure)
{
    world(1, THREADS, fails, NULL);
}
END_TEST

/* Proves (row 102): reading, updating and writing tiles take more time together than the whole does: they overlap. The
 * machine may be busy with other things, so one update of many has to show it. */
START_TEST(T_row102_tiles_overlap)
{
    const hkt_parameter_t p = {"w", 4 << 20, 0};
    hkt_zero_config_t     c = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t           a = HKT_ADAMW_INIT;
    hkt_zero_report_t     r;
    hkt_zero_info_t       info;
    hkt_zero_t           *z;
    bool                  overlapped = false;

    c.tier = HKT_TIER_HOST;
    c.tile = 1 << 18;
    expect_ok(hkt_zero_create(&z, &p, 1, NULL, &c, NULL));
    for (const double deadline = now() + 30; !overlapped && now() < deadline;) {
        expect_ok(hkt_zero_begin(z, 1));
        expect_ok(hkt_zero_step(&r, z, &a));
        expect_ok(hkt_zero_info(&info, z));
        overlapped = info.offload.reading + info.offload.updating + info.offload.writing > 1.05 * info.offload.whole;
    }
    expect(overlapped, "reading %g s, updating %g s, writing %g s, all %g s", info.offload.reading,
           info.offload.updating, info.offload.writing, info.offload.whole);
    expect_ok(hkt_zero_destroy(z));
}
END_TEST

/* From here on this process may not use io_uring. */
static void forbid_ring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};

    expect_true(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    expect_true(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Trains one large parameter for three steps. */
static bool train_large(float *state[HKT_ZERO_KINDS], const char *path)
{
    const hkt_parameter_t p = {"w", LARGE, 0};
    hkt_zero_config_t     c = HKT_ZERO_CONFIG_INIT;
    hkt_adamw_t           a = HKT_ADAMW_INIT;
    hkt_zero_report_t     r;
    hkt_zero_info_t       info;
    hkt_zero_t           *z;
    void                 *g;

    c.weight = HKT_BFLOAT16;
    c.tier   = path ? HKT_TIER_FILE : HKT_TIER_DEVICE;
    c.path   = path;
    c.tile   = 600000; /* more than two pieces of the ring */
    expect_ok(hkt_zero_create(&z, &p, 1, NULL, &c, NULL));
    for (int step = 0; step < 3; step++) {
        expect_ok(hkt_zero_begin(z, 1));
        expect_ok(hkt_zero_gradient(&g, 0, z));
        for (size_t e = 0; e < LARGE; e++)
            ((float *)g)[e] = (float)(int)((e * 7 + (size_t)step) % 1009) - 504;
        expect_ok(hkt_zero_step(&r, z, &a));
    }
    for (int kind = 0; kind < HKT_ZERO_KINDS; kind++)
        expect_ok(hkt_zero_get(state[kind], 0, (hkt_zero_kind_t)kind, 0, LARGE, z));
    expect_ok(hkt_zero_info(&info, z));
    expect_ok(hkt_zero_destroy(z));
    return info.offload.ring;
}

/* Proves: tiles larger than what goes at a time come back whole, through io_uring where there is one, and without it
 * where it is forbidden, which is noticed. */
START_TEST(T_row99_with_and_without_ring)
{
    float *wanted[HKT_ZERO_KINDS], *got[HKT_ZERO_KINDS];
    char   path[64];

    if (_i == 1)
        forbid_ring();
    path_of(path, sizeof path, 200 + _i);
    for (int kind = 0; kind < HKT_ZERO_KINDS; kind++) {
        wanted[kind] = malloc(LARGE * sizeof(float));
        got[kind]    = malloc(LARGE * sizeof(float));
    }
    expect_true(!train_large(wanted, NULL));
    const bool ring = train_large(got, path);
    expect(!ring || _i == 0, "a ring is used that is forbidden");
    for (int kind = 0; kind < HKT_ZERO_KINDS; kind++) {
        expect(memcmp(wanted[kind], got[kind], LARGE * sizeof(float)) == 0, "state %d of the file is another", kind);
        free(wanted[kind]);
        free(got[kind]);
    }
    expect_true(remove(path) == 0);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, T_row99_killed_at_any_moment, 1, 120);
    ADD(s, T_row99_ranks_resume_together, 1, 30);
    ADD(s, T_row99_after_a_power_failure, 1, 30);
    ADD(s, T_row99_with_and_without_ring, 2, 60);
    ADD(s, T_row102_tiles_overlap, 1, 60);
}

int main(void)
{
    return run_suite("zero_offload", add);
}
