/* test_process.c -- processes that know of each other: death, forks, transports. How they meet is tested in
 * test_bootstrap.c, what they share in test_segment.c. */
#include "party.h"

#include "net/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct hkt_transport hkt_transport_self, hkt_transport_shm;

/* ---- processes ------------------------------------------------------------------------------------------------- */

static void one_pointer_rank(struct rank *me)
{
    struct party               p;
    struct hkt_process_address twice[2];
    struct hkt_process        *again[2];

    party_join(&p, me);
    for (int r = 0; r < me->n; r++)
        expect(p.peer[r]->self == (r == me->rank || me->kind == THREADS), "rank %d: self is %d", r, p.peer[r]->self);
    twice[0] = twice[1] = p.peer[0]->life->address;
    expect_ok(hkt_process_attach(again, twice, 2));
    expect_true(again[0] == p.peer[0] && again[1] == p.peer[0]);
    hkt_process_detach(again[0]);
    hkt_process_detach(again[1]);
    hkt_process_detach(NULL);
    for (int r = 0; r < me->n; r++)
        expect_true(hkt_process_alive(p.peer[r]) && !hkt_process_stopped(p.peer[r]) && p.peer[r]->life->host[0]);
    party_leave(&p, me);
}

/* The same process is the same pointer however often it is attached, itself included. */
START_TEST(test_attach)
{
    bare_world(4, _i ? PROCESSES : THREADS, one_pointer_rank, NULL, 0);
}
END_TEST

enum death { BY_KILL, BY_EXIT, BY_EXEC, BY_ABORT, DEATHS };

static void die(enum death how)
{
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    switch (how) {
    case BY_EXIT:
        _exit(0);
    case BY_EXEC:
        execl("/bin/sleep", "sleep", "5", (char *)NULL);
        break;
    default:
        signal(SIGABRT, SIG_DFL);
        kill(getpid(), how == BY_KILL ? SIGKILL : SIGABRT);
    }
}

struct dying {
    enum death how;
    double     limit; /* seconds until it must have been seen */
};

static void dying_rank(struct rank *me)
{
    struct board       *board = me->shared;
    const struct dying *d     = me->arg;
    const size_t        size  = (size_t)256 * MIB;
    char        *much = me->rank ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
    struct party p;
    double       late;

    if (much)
        memset(much, 1, size);
    party_join(&p, me);
    party_barrier(&p);
    if (me->rank) {
        await(&board->go, 1, 10);
        board->when = now();
        die(d->how);
    }
    atomic_store(&board->go, 1);
    while (hkt_process_alive(p.peer[1]))
        usleep(200);
    late = now() - board->when;
    expect(late < d->limit || slow_build(), "the death was seen after %.1f ms", late * 1e3);
    if (d->how == BY_EXEC)
        kill(p.peer[1]->pid, SIGKILL);
    party_detach(&p, 2);
    hkt_bootstrap_close(p.b);
}

/* A process with much memory has died, in each way: seen within 100 ms, though its sockets take longer to close. */
START_TEST(test_death)
{
    bare_world(2, PROCESSES, dying_rank, &(struct dying){(enum death)(_i % DEATHS), 0.1}, 2);
}
END_TEST

/* The kernel refuses a system call from now on in this process, as a sandbox would. */
static void forbid(int call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0 /* the call's number */),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    expect_true(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    expect_true(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void sandboxed_rank(struct rank *me)
{
    if (me->rank)
        forbid(SYS_set_robust_list);
    dying_rank(me);
}

/* The same where robust lists are refused: a pidfd tells, when the memory has been freed. */
START_TEST(test_death_without_robust_list)
{
    bare_world(2, PROCESSES, sandboxed_rank, &(struct dying){BY_EXIT, 2}, 2);
}
END_TEST

static void dead_peer_rank(struct rank *me)
{
    struct hkt_process_address all[2];
    struct hkt_process        *peer;
    struct hkt_segment        *s;
    struct party               p;

    party_join(&p, me);
    party_barrier(&p);
    if (me->rank)
        kill(getpid(), SIGKILL);
    while (hkt_process_alive(p.peer[1]))
        usleep(200);
    expect_ok(hkt_segment_create(&s, MIB, "dead"));
    expect_code(hkt_segment_share(s, p.peer, 2), HKT_ERR_PEER);
    expect_said("has died");
    all[0] = p.self->life->address;
    all[1] = p.peer[1]->life->address;
    expect_code(hkt_process_attach(&peer, &all[1], 1), HKT_ERR_PEER);
    hkt_process_detach(p.peer[1]);
    expect_code(hkt_process_attach((struct hkt_process *[2]){NULL, NULL}, all, 2),
                HKT_ERR_PEER); /* now it must be asked for */
    expect_said("has died");
    hkt_segment_free(s);
    hkt_process_detach(p.peer[0]);
    hkt_bootstrap_close(p.b);
}

/* Sharing with a dead process and attaching it are refused at once. */
START_TEST(test_dead_peer)
{
    bare_world(2, PROCESSES, dead_peer_rank, NULL, 2);
}
END_TEST

static void closing_rank(struct rank *me)
{
    struct board *board = me->shared;
    struct party  p;
    double        cpu;

    party_join(&p, me);
    party_barrier(&p);
    if (me->rank) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        atomic_store(&board->go, 1);
        await(&board->ready, 1, 10);
        cpu = cpu_seconds();
        pause_ms(300); /* what a helper thread would burn in it is what is measured */
        cpu = cpu_seconds() - cpu;
        expect(cpu < 0.01, "without its descriptors the helper thread burns %.0f ms in 300", cpu * 1e3);
        kill(getpid(), SIGKILL);
    }
    await(&board->go, 1, 10);
    kill(p.peer[1]->pid, SIGSTOP); /* wakes its helper thread */
    while (!hkt_process_stopped(p.peer[1]))
        usleep(200);
    kill(p.peer[1]->pid, SIGCONT);
    atomic_store(&board->ready, 1);
    while (hkt_process_alive(p.peer[1]))
        usleep(200);
    party_detach(&p, 2);
    hkt_bootstrap_close(p.b);
}

/* A program that closes every descriptor, as daemons do, costs itself no processor time, and its death is still seen.
 */
START_TEST(test_closed_descriptors)
{
    if (!slow_build()) /* sanitizers rightly call it a race */
        bare_world(2, PROCESSES, closing_rank, NULL, 2);
}
END_TEST

static void stopped_rank(struct rank *me)
{
    struct board *board = me->shared;
    struct party  p;

    party_join(&p, me);
    party_barrier(&p);
    if (me->rank == 0) {
        kill(p.peer[1]->pid, SIGSTOP);
        while (!hkt_process_stopped(p.peer[1]))
            usleep(200);
        expect_true(hkt_process_alive(p.peer[1]));
        kill(p.peer[1]->pid, SIGCONT);
        while (hkt_process_stopped(p.peer[1]))
            usleep(200);
        atomic_store(&board->go, 1);
    }
    await(&board->go, 1, 10);
    party_leave(&p, me);
}

/* A stopped process is told from a running one, and is not dead. */
START_TEST(test_stopped)
{
    bare_world(2, PROCESSES, stopped_rank, NULL, 0);
}
END_TEST

static void count_rank(struct rank *me)
{
    const int           cycles = slow_build() ? 200 : 1000;
    struct party        p;
    struct hkt_segment *s;
    int                 before[3] = {0};

    party_join(&p, me);
    for (int i = 0; i < cycles; i++) {
        party_barrier(&p); /* who has been detached takes no segment */
        party_detach(&p, me->n);
        party_attach(&p, me);
        expect_ok(hkt_segment_create(&s, 4096, "count"));
        expect_ok(hkt_segment_share(s, p.peer, me->n));
        hkt_segment_free(s);
        if (i % (cycles / 2) != cycles / 2 - 1)
            continue;
        party_barrier(&p);
        while (i > cycles / 2 &&
               open_descriptors() > before[0]) /* the helper threads have not heard of the last ones yet */
            usleep(1000);
        if (i < cycles / 2) {
            before[0] = open_descriptors() + 2;
            before[1] = threads();
            before[2] = mappings() + 2 * me->n;
        }
    }
    expect(open_descriptors() <= before[0], "%d descriptors at half time, %d at the end", before[0],
           open_descriptors());
    expect(threads() == before[1], "%d threads at half time, %d at the end", before[1], threads());
    expect(mappings() <= before[2], "%d mappings at half time, %d at the end", before[2], mappings());
    party_leave(&p, me);
}

/* C28: attaching, sharing and detaching leave no descriptor, thread or mapping behind. */
START_TEST(test_counts)
{
    bare_world(2, PROCESSES, count_rank, NULL, 0);
}
END_TEST

static void exec_rank(struct rank *me)
{
    struct party        p;
    struct hkt_segment *s;

    party_join(&p, me);
    expect_ok(hkt_segment_create(&s, 4096, "exec"));
    for (int fd = 3; fd < 256; fd++) {
        char      link[64], target[256] = "";
        const int flags = fcntl(fd, F_GETFD);

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (flags >= 0 && readlink(link, target, sizeof(target) - 1) > 0 &&
            (strstr(target, "hocket") || strncmp(target, "socket", 6) == 0))
            expect(flags & FD_CLOEXEC, "descriptor %d (%s) would survive exec", fd, target);
    }
    hkt_segment_free(s);
    party_leave(&p, me);
}

/* Nothing of ours is handed to programs that the user's program starts. */
START_TEST(test_nothing_survives_exec)
{
    bare_world(2, PROCESSES, exec_rank, NULL, 0);
}
END_TEST

/* ---- C42: forks ------------------------------------------------------------------------------------------------ */

/* In the child: everything is refused or does nothing. The exit code says what was wrong. */
static int forked_child(struct party *p, struct hkt_segment *s, char *adopted)
{
    struct hkt_process *self;
    struct hkt_segment *other;

    if (hkt_process_self(&self) != HKT_ERR_USAGE || !strstr(hkt_last_error(), "used after fork"))
        return 1;
    if (hkt_segment_create(&other, 4096, "child") != HKT_ERR_USAGE ||
        hkt_segment_adopt(&other, adopted, 4096) != HKT_ERR_USAGE)
        return 2;
    if (hkt_segment_share(s, p->peer, 2) != HKT_ERR_USAGE || hkt_segment_find(s->base))
        return 3;
    hkt_segment_free(s);
    party_detach(p, 2);
    s->base[0] = 'c'; /* shared memory stays shared */
    adopted[0] = 'c';
    return hkt_process_forked() ? 0 : 4;
}

static void fork_rank(struct rank *me)
{
    char               *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct hkt_segment *s, *adopted, *late;
    struct party        p;
    uint32_t            id[2];

    party_join(&p, me);
    expect_ok(hkt_segment_create(&s, MIB, "fork"));
    expect_ok(hkt_segment_adopt(&adopted, memory, MIB));
    for (int i = 0; i < 4; i++) {
        const pid_t child = fork();
        int         status;

        if (child == 0)
            exit(forked_child(&p, s, memory)); /* with the exit handlers: none of ours may be there */
        expect_true(waitpid(child, &status, 0) == child);
        expect(status == 0, "the child's status is 0x%x", (unsigned)status);
    }
    expect_true(s->base[0] == 'c' && memory[0] == 'c' && !hkt_process_forked());
    expect_ok(hkt_segment_create(&late, MIB, "late"));
    late->base[5] = (char)('0' + me->rank);
    expect_ok(hkt_segment_share(late, p.peer, 2));
    expect_ok(hkt_bootstrap_all_gather(p.b, &late->id, sizeof(late->id), id));
    expect_true(hkt_segment_peer(p.peer[!me->rank], id[!me->rank])[5] == '0' + !me->rank);
    party_barrier(&p);
    hkt_segment_free(late);
    hkt_segment_free(adopted);
    hkt_segment_free(s);
    party_leave(&p, me);
    munmap(memory, MIB);
}

/* C42: a child that is forked later is told so; its parent goes on as if nothing had been. */
START_TEST(test_fork)
{
    bare_world(2, PROCESSES, fork_rank, NULL, 0);
}
END_TEST

static void orphan_rank(struct rank *me)
{
    struct board              *board = me->shared;
    struct hkt_process_address address;
    struct hkt_process        *peer;
    struct party               p;
    pid_t                      child;

    party_join(&p, me);
    party_barrier(&p);
    if (me->rank) {
        child = fork();
        if (child == 0) {
            await(&board->ready, 1, 10); /* outlives its parent with all that it has inherited */
            _exit(0);
        }
        atomic_store(&board->go, 1);
        kill(getpid(), SIGKILL);
    }
    while (hkt_process_alive(p.peer[1]))
        usleep(200);
    address = p.peer[1]->life->address;
    party_detach(&p, 2);
    expect_code(hkt_process_attach(&peer, &address, 1), HKT_ERR_PEER); /* nobody's socket is open any more */
    atomic_store(&board->ready, 1);
    hkt_bootstrap_close(p.b);
}

/* The death of a process is seen although a child of it lives on. */
START_TEST(test_fork_outlives)
{
    bare_world(2, PROCESSES, orphan_rank, NULL, 2);
}
END_TEST

/* ---- transports ------------------------------------------------------------------------------------------------ */

static void transport_rank(struct rank *me)
{
    struct board   *board  = me->shared;
    char           *memory = malloc(MIB), *copy = malloc(MIB);
    struct hkt_link link;
    struct party    p;
    uint64_t        address[2] = {(uintptr_t)memory, 0};
    const bool      off        = *(int *)me->arg;

    memset(memory, 'm' + me->rank, MIB);
    party_join(&p, me);
    expect_ok(hkt_bootstrap_all_gather(p.b, address, sizeof(address[0]), address));
    expect_ok(hkt_transport_self.reach(p.peer[me->rank], &link));
    expect_code(hkt_transport_self.reach(p.peer[!me->rank], &link), HKT_ERR_UNSUPPORTED);
    expect_code(hkt_transport_shm.reach(p.peer[me->rank], &link), HKT_ERR_UNSUPPORTED);
    expect_ok(hkt_transport_shm.reach(p.peer[!me->rank], &link));
    expect(p.peer[!me->rank]->readable == (off ? -1 : 1), "readable is %d", p.peer[!me->rank]->readable);
    expect_true(!hkt_transport_shm.map(p.peer[!me->rank], &(struct hkt_location){.address = address[0]}));
    if (!off) {
        expect_ok(hkt_transport_shm.read(p.peer[!me->rank], copy, address[!me->rank], MIB));
        expect_true(copy[0] == 'm' + !me->rank && memcmp(copy, copy + 1, MIB - 1) == 0);
        expect_code(hkt_transport_shm.read(p.peer[!me->rank], copy, 16, 8), HKT_ERR_SYSTEM);
    }
    party_barrier(&p);
    if (me->rank && !off)
        kill(getpid(), SIGKILL);
    while (!off && hkt_process_alive(p.peer[1]))
        usleep(200);
    if (!off)
        expect_code(hkt_transport_shm.read(p.peer[1], copy, address[1], MIB), HKT_ERR_PEER);
    free(memory);
    free(copy);
    party_detach(&p, 2);
    hkt_bootstrap_close(p.b);
    (void)board;
}

/* Plain memory of another process is read, or known not to be readable; a dead one is named. */
START_TEST(test_transports)
{
    world_run(&(struct world){.n           = 2,
                              .kind        = PROCESSES,
                              .fn          = transport_rank,
                              .arg         = &_i,
                              .bare        = true,
                              .may_die     = _i ? 0 : 2,
                              .deadline    = 20,
                              .environment = {_i ? "HKT_CMA=off" : "HKT_CMA=on"}});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_attach, 2, 20);
    ADD(s, test_death, 2 * DEATHS, 20);
    ADD(s, test_death_without_robust_list, 1, 20);
    ADD(s, test_dead_peer, 1, 20);
    ADD(s, test_closed_descriptors, 1, 20);
    ADD(s, test_stopped, 1, 20);
    ADD(s, test_counts, 1, 30);
    ADD(s, test_nothing_survives_exec, 1, 20);
    ADD(s, test_fork, 1, 20);
    ADD(s, test_fork_outlives, 1, 20);
    ADD(s, test_transports, 2, 20);
}

int main(void)
{
    return run_suite("process", add);
}
