/* test_segment.c -- shared memory: made, adopted, found, shared, freed, and every way in which that can fail. */
#include "party.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* ---- sharing --------------------------------------------------------------------------------------------------- */

static void share_rank(struct rank *me)
{
    const size_t        size = (size_t)3 * MIB + 5;
    struct hkt_segment *s;
    struct party        p;
    uint32_t            id[PARTY];

    party_join(&p, me);
    expect_ok(hkt_segment_create(&s, size, "share"));
    expect_true(s->size >= size && s->size % 4096 == 0 && s->base[0] == 0 && s->base[size - 1] == 0);
    s->base[size - 1] = (char)me->rank;
    expect_ok(hkt_segment_share(s, p.peer, me->n));
    expect_ok(hkt_segment_share(s, p.peer, me->n));
    expect_ok(hkt_bootstrap_all_gather(p.b, &s->id, sizeof(s->id), id));
    for (int r = 0; r < me->n; r++) {
        char *there = hkt_segment_peer(p.peer[r], id[r]);

        expect(there, "the segment of rank %d is not mapped", r);
        expect_true(there[size - 1] == r);
        there[me->rank] = (char)('a' + me->rank);
    }
    party_barrier(&p);
    for (int r = 0; r < me->n; r++)
        expect_true(s->base[r] == 'a' + r);
    hkt_segment_free(s);
    party_barrier(&p);
    for (int r = 0; r < me->n; r++)
        for (const double end = now() + 5; hkt_segment_peer(p.peer[r], id[r]);)
            expect(now() < end, "the freed segment of rank %d stays mapped", r);
    party_leave(&p, me);
}

/* A shared segment is one memory for all, and is gone everywhere when it is freed. */
START_TEST(test_share)
{
    bare_world(5, _i ? PROCESSES : THREADS, share_rank, NULL, 0);
}
END_TEST

static void early_rank(struct rank *me)
{
    struct board              *board = me->shared;
    struct hkt_process_address own, all[2];
    struct hkt_segment        *s;
    struct party               p;

    expect_ok(hkt_process_self(&p.self));
    expect_ok(hkt_bootstrap_open(&p.b, me->id, me->n, me->rank, 30));
    hkt_process_address(&own);
    expect_ok(hkt_bootstrap_all_gather(p.b, &own, sizeof(own), all));
    if (me->rank) { /* attaches when the other one is in the middle of sharing, or before: both must do */
        await(&board->go, 1, 10);
        usleep((useconds_t) * (int *)me->arg * 20000);
    }
    expect_ok(hkt_process_attach(p.peer, all, 2));
    if (me->rank == 0) {
        expect_ok(hkt_segment_create(&s, MIB, "early"));
        s->base[9] = 9;
        atomic_store(&board->go, 1);
        expect_ok(hkt_segment_share(s, p.peer, 2));
        atomic_store(&board->ready, s->id);
    }
    await(&board->ready, 1, 10);
    if (me->rank)
        expect_true(hkt_segment_peer(p.peer[0], atomic_load(&board->ready))[9] == 9);
    party_leave(&p, me);
}

/* A segment that comes before its owner has been attached is taken when it has. */
START_TEST(test_share_before_attach)
{
    bare_world(2, PROCESSES, early_rank, &_i, 0);
}
END_TEST

static void again_rank(struct rank *me)
{
    struct hkt_process_address other;
    struct hkt_segment        *s;
    struct party               p;
    uint32_t                   id[2];

    party_join(&p, me);
    other = p.peer[!me->rank]->life->address;
    expect_ok(hkt_segment_create(&s, MIB, "again"));
    expect_ok(hkt_bootstrap_all_gather(p.b, &s->id, sizeof(s->id), id));
    for (int i = 0; i < 20; i++) {
        expect_ok(hkt_segment_share(s, p.peer, 2));
        party_barrier(&p);
        expect(hkt_segment_peer(p.peer[!me->rank], id[!me->rank]), "not mapped the %d. time", i);
        if (i % 2 == me->rank) { /* the other one has not noticed */
            hkt_process_detach(p.peer[!me->rank]);
            expect_ok(hkt_process_attach(&p.peer[!me->rank], &other, 1));
        }
        party_barrier(&p);
    }
    hkt_segment_free(s);
    party_leave(&p, me);
}

/* A process that was detached and attached again by one of the two maps the segments again. */
START_TEST(test_attach_again)
{
    bare_world(2, PROCESSES, again_rank, NULL, 0);
}
END_TEST

struct sharing {
    struct hkt_segment *segment;
    struct hkt_process *peer;
    const char         *word; /* in the sentence */
};

static void *share_in_vain(void *arg)
{
    const struct sharing *s     = arg;
    const double          begin = now();

    expect_code(hkt_segment_share(s->segment, &s->peer, 1), HKT_ERR_SYSTEM);
    expect_said(s->word);
    expect(now() - begin < 6, "sharing with a process that does not answer took %.1f s", now() - begin);
    return NULL;
}

static void refused_rank(struct rank *me)
{
    struct board       *board = me->shared;
    struct hkt_segment *s;
    struct sharing      vain;
    struct party        p;
    pthread_t           thread;

    party_join(&p, me);
    party_barrier(&p);
    if (me->rank == 0) {
        kill(p.peer[2]->pid, SIGSTOP);
        while (!hkt_process_stopped(p.peer[2]))
            usleep(200);
        await(&board->go, 1, 10);
        expect_ok(hkt_segment_create(&s, MIB, "refused"));
        vain = (struct sharing){s, p.peer[1], "has not attached"};
        pthread_create(&thread, NULL, share_in_vain, &vain);
        share_in_vain(&(struct sharing){s, p.peer[2], "is stopped"});
        pthread_join(thread, NULL);
        kill(p.peer[2]->pid, SIGCONT);
        hkt_segment_free(s);
        atomic_store(&board->ready, 1);
    } else if (me->rank == 1) {
        hkt_process_detach(p.peer[0]);
        p.peer[0] = NULL;
        atomic_store(&board->go, 1);
    }
    await(&board->ready, 1, 15);
    party_leave(&p, me);
}

/* A peer that does not want a segment, and one that is stopped, are named after 5 s. */
START_TEST(test_share_refused)
{
    bare_world(3, PROCESSES, refused_rank, NULL, 0);
}
END_TEST

/* ---- making ---------------------------------------------------------------------------------------------------- */

/* Permissions and sharing ("rw-p") of the mapping at ptr, and whether it is a file's. */
static const char *mode_of(const void *ptr, bool *file)
{
    static char mode[5];
    char        line[512];
    FILE       *f = fopen("/proc/self/maps", "re");

    memset(mode, 0, sizeof(mode));
    while (f && fgets(line, sizeof(line), f)) {
        unsigned long from, to, inode;
        char          text[5];

        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &from, &to, text, &inode) == 4 && (uintptr_t)ptr >= from &&
            (uintptr_t)ptr < to) {
            memcpy(mode, text, sizeof(mode));
            *file = inode != 0;
        }
    }
    if (f)
        fclose(f);
    return mode;
}

/* Segments are found by every byte of theirs and no other, have ids that do not collide, and leave nothing behind. */
START_TEST(test_find)
{
    enum { MANY = 100 };
    struct hkt_segment *s[MANY], *other;
    struct hkt_process *self;
    bool                slots[HKT_SEGMENTS] = {false};
    uint64_t            generation;
    int                 fds;

    expect_true(!hkt_segment_find(slots));
    expect_ok(hkt_process_self(&self));
    fds = open_descriptors();
    for (int i = 0; i < MANY; i++) {
        generation = hkt_segment_generation();
        expect_ok(hkt_segment_create(&s[i], (size_t)(i % 5) * PAGE + 1, "find"));
        expect_true(hkt_segment_generation() != generation && s[i]->id != 0);
        expect_true(!slots[s[i]->id % HKT_SEGMENTS] && hkt_segment_peer(self, s[i]->id) == s[i]->base);
        slots[s[i]->id % HKT_SEGMENTS] = true;
    }
    for (int i = 0; i < 3 * HKT_SEGMENTS; i++) { /* once around: the ids of the living are passed over */
        expect_ok(hkt_segment_create(&other, 1, "around"));
        expect(!slots[other->id % HKT_SEGMENTS], "id %u collides with that of a living segment", other->id);
        hkt_segment_free(other);
    }
    for (int i = 0; i < MANY; i++) {
        expect_true(hkt_segment_find(s[i]->base) == s[i] && hkt_segment_find(s[i]->base + s[i]->size - 1) == s[i]);
        expect_true(hkt_segment_find(s[i]->base - 1) != s[i] && hkt_segment_find(s[i]->base + s[i]->size) != s[i]);
    }
    for (int i = 0; i < MANY; i++) {
        char *base = s[i]->base;

        generation = hkt_segment_generation();
        hkt_segment_free(s[i]);
        expect_true(!hkt_segment_find(base) && hkt_segment_generation() != generation);
    }
    hkt_segment_free(NULL);
    expect_true(open_descriptors() == fds);
}
END_TEST

static _Atomic uint32_t stop;

static void *make_and_free(void *arg)
{
    struct hkt_segment *s;

    (void)arg;
    while (!atomic_load(&stop)) {
        expect_ok(hkt_segment_create(&s, 3 * PAGE, "busy"));
        expect_true(hkt_segment_find(s->base + 2 * PAGE) == s);
        hkt_segment_free(s);
    }
    return NULL;
}

/* Finding is right while other threads make and free segments. */
START_TEST(test_find_while_others_make)
{
    struct hkt_segment *mine;
    pthread_t           thread[3];

    expect_ok(hkt_segment_create(&mine, 5 * PAGE, "mine"));
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, make_and_free, NULL);
    for (int i = 0; i < 20000; i++)
        expect_true(hkt_segment_find(mine->base + i) == mine && !hkt_segment_find(&thread));
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    hkt_segment_free(mine);
}
END_TEST

/* Too much memory, a limit on file sizes, no descriptors: an error that says so, and no signal. */
START_TEST(test_limits)
{
    struct hkt_segment *s;
    struct rlimit       limit, before;

    signal(SIGXFSZ, SIG_DFL);
    expect_code(hkt_segment_create(&s, SIZE_MAX - 5, "limits"), HKT_ERR_MEMORY);
    expect_code(hkt_segment_create(&s, (size_t)1 << 50, "limits"), HKT_ERR_MEMORY);
    expect_said("1125899906842624 bytes");
    expect_said("available");
    getrlimit(RLIMIT_FSIZE, &before);
    limit          = before;
    limit.rlim_cur = MIB;
    setrlimit(RLIMIT_FSIZE, &limit);
    expect_code(hkt_segment_create(&s, 2 * MIB, "limits"), HKT_ERR_SYSTEM);
    expect_said("RLIMIT_FSIZE");
    setrlimit(RLIMIT_FSIZE, &before);
    expect_ok(hkt_segment_create(&s, MIB, "limits"));
    hkt_segment_free(s);
}
END_TEST

/* C28: without descriptors the error names the limit; the 1025th segment names that of the library. */
START_TEST(test_descriptors)
{
    struct hkt_segment *s[HKT_SEGMENTS + 1];
    struct rlimit       limit;
    struct hkt_process *self;
    int                 n = 0, rc;

    expect_ok(hkt_process_self(&self));
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)open_descriptors() + 10;
    setrlimit(RLIMIT_NOFILE, &limit);
    while ((rc = hkt_segment_create(&s[n], 1, "descriptors")) == 0)
        n++;
    expect(n > 5 && n < 20, "there was room for %d segments", n);
    expect_true(rc == HKT_ERR_SYSTEM);
    expect_said("RLIMIT_NOFILE");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < HKT_SEGMENTS + 100)
        return; /* the other limit cannot be reached here */
    while ((rc = hkt_segment_create(&s[n], 1, "descriptors")) == 0)
        n++;
    expect_true(n == HKT_SEGMENTS && rc == HKT_ERR_MEMORY);
    expect_said("1024 shared segments");
    while (n)
        hkt_segment_free(s[--n]);
}
END_TEST

static void small_shm_rank(struct rank *me)
{
    const size_t        size = (size_t)64 * MIB;
    struct hkt_segment *s;
    struct statvfs      before, after;
    struct party        p;

    party_join(&p, me);
    expect_true(statvfs("/dev/shm", &before) == 0 && before.f_blocks * before.f_frsize == 8 * MIB);
    expect_ok(hkt_segment_create(&s, size, "small"));
    memset(s->base, 1, size);
    expect_ok(hkt_segment_share(s, p.peer, me->n));
    expect_true(statvfs("/dev/shm", &after) == 0 && after.f_bfree == before.f_bfree);
    expect_true(entries_with("/dev/shm", "") == 0 && entries_with("/tmp", "hocket") == 0);
    hkt_segment_free(s);
    party_leave(&p, me);
}

/* C01: a /dev/shm of 8 MiB does not matter. */
START_TEST(test_small_dev_shm)
{
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
        printf("C01 skipped: no mount namespace can be made here (%s)\n", strerror(errno));
        return;
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "/dev/shm", "tmpfs", 0, "size=8m") ||
        mount("none", "/tmp", "tmpfs", 0, "size=1m")) { /* an empty one: others may work in the machine's */
        printf("C01 skipped: no /dev/shm can be mounted here (%s)\n", strerror(errno));
        return;
    }
    bare_world(4, PROCESSES, small_shm_rank, NULL, 0);
}
END_TEST

/* ---- adopting -------------------------------------------------------------------------------------------------- */

static void fill(char *p, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        p[i] = (char)(i * 31 + i / PAGE + seed);
}

static bool filled(const char *p, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        if (p[i] != (char)(i * 31 + i / PAGE + seed))
            return false;
    return true;
}

static void adopt_rank(struct rank *me)
{
    const size_t        size   = MIB + 333;
    char               *memory = malloc(size), *there;
    struct hkt_segment *s;
    struct party        p;
    uint32_t            id[PARTY];
    uint64_t            offset[PARTY];
    bool                file;

    fill(memory, size, (unsigned)me->rank);
    party_join(&p, me);
    expect_ok(hkt_segment_adopt(&s, memory, size));
    expect_true(s->adopted && s->base >= memory && s->base + s->size <= memory + size && s->base < memory + PAGE &&
                s->size > size - 2 * PAGE);
    expect(filled(memory, size, (unsigned)me->rank), "adopting has changed the contents");
    expect_true(strcmp(mode_of(s->base, &file), "rw-s") == 0);
    expect_ok(hkt_segment_share(s, p.peer, me->n));
    expect_ok(hkt_bootstrap_all_gather(p.b, &s->id, sizeof(s->id), id));
    expect_ok(hkt_bootstrap_all_gather(p.b, &(uint64_t){(uint64_t)(s->base - memory)}, sizeof(offset[0]), offset));
    for (int r = 0; r < me->n; r++) {
        there = hkt_segment_peer(p.peer[r], id[r]);
        expect(there && there[77] == (char)((77 + offset[r]) * 31 + (77 + offset[r]) / PAGE + (unsigned)r),
               "rank %d's bytes are wrong", r);
    }
    party_barrier(&p);
    memory[5 * PAGE] = 'x';
    party_barrier(&p);
    there = hkt_segment_peer(p.peer[!me->rank], id[!me->rank]);
    expect_true(there[5 * PAGE - offset[!me->rank]] == 'x');
    party_barrier(&p);
    memory[5 * PAGE] = (char)(5 * PAGE * 31 + 5 + me->rank);
    hkt_segment_free(s);
    expect(filled(memory, size, (unsigned)me->rank), "giving it back has changed the contents");
    expect_true(strcmp(mode_of(memory + PAGE, &file), "rw-p") == 0 && !file);
    free(memory);
    party_leave(&p, me);
}

/* Adopted memory keeps its contents, is seen by the others as it changes, and becomes private again with its contents.
 */
START_TEST(test_adopt)
{
    bare_world(2, PROCESSES, adopt_rank, NULL, 0);
}
END_TEST

static void refuse(void *ptr, size_t size, const char *why)
{
    struct hkt_segment *s = (void *)1;

    expect_code(hkt_segment_adopt(&s, ptr, size), HKT_ERR_UNSUPPORTED);
    expect_said(why);
    expect_true(s == (void *)1);
}

/* What is not private anonymous writable memory is refused with the reason, and not changed. */
START_TEST(test_adopt_refuses)
{
    const int           anonymous = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    const int           file = open("/proc/self/exe", O_RDONLY), memfd = memfd_create("test", 0);
    char               *m  = mmap(NULL, 64 * PAGE, rw, anonymous, -1, 0);
    char               *f  = mmap(NULL, 4 * PAGE, rw, MAP_PRIVATE, file, 0);
    char               *sh = mmap(NULL, 4 * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct hkt_segment *s, *t;
    bool                is_file;

    refuse(m, PAGE - 1, "no whole page");
    refuse(m + 1, 2 * PAGE - 2, "no whole page");
    refuse(m, 0, "no whole page");
    refuse(m, SIZE_MAX - 3, "no memory");
    refuse(f, 4 * PAGE, "from a file");
    refuse(sh, 4 * PAGE, "shared memory already");
    refuse((char *)__builtin_frame_address(0) - 2 * PAGE, 4 * PAGE, "stack");
    munmap(m + 8 * PAGE, PAGE);
    refuse(m, 16 * PAGE, "not mapped");
    refuse(m + 8 * PAGE, 8 * PAGE, "not mapped");
    mprotect(m + 20 * PAGE, PAGE, PROT_READ);
    refuse(m + 16 * PAGE, 16 * PAGE, "not readable and writable");
    mprotect(m + 20 * PAGE, PAGE, rw | PROT_EXEC);
    refuse(m + 16 * PAGE, 16 * PAGE, "executable");
    mprotect(m + 20 * PAGE, PAGE, rw);
    if (!slow_build() && mlock(m + 20 * PAGE, PAGE) == 0) /* sanitizers make it do nothing */
        refuse(m + 16 * PAGE, 16 * PAGE, "mlock");
    munlock(m + 20 * PAGE, PAGE);
    m[17 * PAGE] = 5;
    expect_true(strcmp(mode_of(m + 17 * PAGE, &is_file), "rw-p") == 0);
    expect_true(ftruncate(memfd, PAGE) == 0);
    expect_ok(hkt_segment_adopt(&s, m + 16 * PAGE, 16 * PAGE));
    refuse(m + 31 * PAGE, 5 * PAGE, "shared memory already");
    expect_ok(hkt_segment_adopt(&t, m + 32 * PAGE, 5 * PAGE));
    expect_true(hkt_segment_find(m + 32 * PAGE - 1) == s && hkt_segment_find(m + 32 * PAGE) == t && m[17 * PAGE] == 5);
    hkt_segment_free(t);
    /* Too early: what is not there any more is not brought back, and what has come in its place is left alone. */
    munmap(m + 16 * PAGE, 8 * PAGE);
    expect_true(mmap(m + 18 * PAGE, PAGE, rw, MAP_SHARED | MAP_FIXED, memfd, 0) == m + 18 * PAGE);
    hkt_segment_free(s);
    expect_true(!*mode_of(m + 17 * PAGE, &is_file) && strcmp(mode_of(m + 18 * PAGE, &is_file), "rw-s") == 0);
    expect_true(strcmp(mode_of(m + 25 * PAGE, &is_file), "rw-p") == 0 && !is_file);
    close(memfd);
    close(file);
}
END_TEST

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* Starts, makes and adopts while the n-th allocation fails. 0: there were fewer; 1: an error, and nothing is left; else
 * the line that found something wrong. */
static int with_failure(long n)
{
    char                      *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct hkt_process        *self, *again = NULL;
    struct hkt_segment        *s = NULL, *t = NULL;
    struct hkt_process_address address;
    const int                  fds = open_descriptors(), others = threads();
    bool                       file, started;
    int                        rc, listening;

    memory[5] = 5;
    hkt_alloc_fail_at(n);
    rc      = hkt_process_self(&self);
    started = rc == 0;
    if (!started && (rc != HKT_ERR_MEMORY || open_descriptors() != fds || threads() != others))
        return __LINE__;
    if (!started && hkt_process_self(&self))
        return __LINE__;
    hkt_process_address(&address);
    listening = address.net.bytes ? 3 : 0; /* to other hosts: socket, epoll, eventfd */
    rc        = rc ? rc : hkt_process_attach(&again, &address, 1);
    rc        = rc ? rc : hkt_segment_create(&s, MIB, "failing");
    rc = rc ? rc : hkt_segment_adopt(&t, memory, MIB);
    hkt_alloc_fail_at(0);
    if ((rc && rc != HKT_ERR_MEMORY) || memory[5] != 5 || (rc == 0) != !strcmp(mode_of(memory, &file), "rw-s"))
        return __LINE__;
    hkt_segment_free(s);
    hkt_segment_free(t);
    if (open_descriptors() != fds + 4 + listening ||
        threads() > others + 1 + slow_build()) /* life page, socket, epoll, eventfd; ThreadSanitizer has a thread too */
        return __LINE__;
    return rc != 0;
}

/* Every allocation and mapping fails once: an error, nothing left behind, and the next try works. */
START_TEST(test_no_memory)
{
    int n = 0, status;

    do {
        const pid_t child = fork();

        if (child == 0)
            _exit(with_failure(n + 1));
        expect_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
        expect(WEXITSTATUS(status) < 2, "allocation %d fails: wrong in line %d (modulo 256)", n + 1,
               WEXITSTATUS(status));
        n++;
    } while (WEXITSTATUS(status));
    expect(n > 6, "only %d allocations", n - 1);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_share, 2, 20);
    ADD(s, test_share_before_attach, 3, 20);
    ADD(s, test_attach_again, 1, 20);
    ADD(s, test_share_refused, 1, 20);
    ADD(s, test_find, 1, 20);
    ADD(s, test_find_while_others_make, 1, 20);
    ADD(s, test_limits, 1, 20);
    ADD(s, test_descriptors, 1, 20);
    ADD(s, test_small_dev_shm, 1, 20);
    ADD(s, test_adopt, 1, 20);
    ADD(s, test_adopt_refuses, 1, 20);
    ADD(s, test_no_memory, 1, 20);
}

int main(void)
{
    return run_suite("segment", add);
}
