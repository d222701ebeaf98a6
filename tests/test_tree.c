/* test_tree.c -- meetings and gathers of more ranks than rank 0 can have children, on one host: high trees of few ranks, and many ranks; with ranks
 * that fail, die, are silent or are set up differently at every place of the tree.
 */
#include "party.h"

#include "base/memory.h"
#include "setup/capability.h"
#include "setup/tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the shape ----------------------------------------------------------------------------------------------------- */

/* Random trees of any shape: a subtree is one piece, parents come before their children, sorting gives the order of the ranks. */
START_TEST(test_shape)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        const int       n = 1 + (int)(mix(seed) % 40);
        int32_t         parent[40], came[40];
        char            blocks[40 * 3];
        struct hkt_tree t;

        for (int i = 0; i < n; i++)
            came[i] = i;
        for (int i = n - 1; i > 1; i--) { /* the order in which they come, rank 0 first */
            const int k = 1 + (int)(mix(seed * 100 + (uint64_t)i) % (uint64_t)i), kept = came[i];

            came[i] = came[k];
            came[k] = kept;
        }
        for (int i = 1; i < n; i++)
            parent[came[i]] = came[mix(seed * 1000 + (uint64_t)i) % (uint64_t)i];
        expect_ok(hkt_tree_build(&t, parent, n));
        expect_true(t.order[0] == 0 && t.size[0] == n);
        for (int i = 0; i < n; i++) {
            int below = 1;

            while (i + below < n && below < t.size[t.order[i]])
                below++;
            expect_true(below == t.size[t.order[i]]);
            for (int k = 1; k < below; k++) { /* every one of them hangs below order[i] */
                int r = t.order[i + k];

                while (r != t.order[i] && r)
                    r = parent[r];
                expect_true(r == t.order[i]);
            }
            snprintf(blocks + 3 * (size_t)i, 3, "%02d", t.order[i]);
        }
        hkt_tree_sort(&t, n, blocks, 3);
        for (int i = 0; i < n; i++)
            expect_true(atoi(blocks + 3 * (size_t)i) == i);
        hkt_tree_free(&t);
    }
}
END_TEST

/* What is no tree is refused: cycles, parents that are none. */
START_TEST(test_no_tree)
{
    static const int32_t bad[][4] = {{0, 2, 1, 0}, {0, 1, 0, 0}, {0, 4, 0, 0}, {0, -1, 0, 0}, {0, 2, 3, 1}};
    struct hkt_tree      t;

    for (int i = 0; i < 5; i++)
        expect_code(hkt_tree_build(&t, bad[i], 4), HKT_ERR_INTERNAL);
}
END_TEST

/* ---- gathers ------------------------------------------------------------------------------------------------------- */

static void gather(struct hkt_bootstrap *b, const struct rank *me, int round, size_t len)
{
    unsigned char *all = malloc(len * (size_t)me->n), *mine = all + (size_t)me->rank * len; /* in place */

    for (size_t i = 0; i < len; i++)
        mine[i] = (unsigned char)(me->rank * 7 + round * 3 + (int)(i % 251));
    expect_ok(hkt_bootstrap_all_gather(b, mine, len, all));
    for (int r = 0; r < me->n; r++)
        for (size_t i = 0; i < len; i++)
            expect(all[(size_t)r * len + i] == (unsigned char)(r * 7 + round * 3 + (int)(i % 251)), "byte %zu of rank %d is wrong", i, r);
    free(all);
}

static void high_rank(struct rank *me)
{
    const int             arity = *(int *)me->arg;
    struct hkt_bootstrap *b;

    if (me->kind == PROCESSES)
        hkt_bootstrap_arity = arity;
    for (int k = 0; k < 3; k++) { /* the same id again: C22 */
        expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 30));
        expect(hkt_bootstrap_sockets(b) <= 1 + arity, "%d sockets are open", hkt_bootstrap_sockets(b));
        for (int i = 0; i < 3; i++)
            gather(b, me, i, i == 1 ? 70000 : 40);
        hkt_bootstrap_close(b);
    }
}

/* Trees of arity 1 to 3 and 2 to 20 ranks, as threads and as processes; never more than arity + 1 sockets to a rank. */
START_TEST(test_high)
{
    hkt_bootstrap_arity = 1 + _i % 3;
    bare_world((int[]){2, 4, 7, 20}[_i / 3 % 4], _i / 12 ? PROCESSES : THREADS, high_rank, &hkt_bootstrap_arity, 0);
}
END_TEST

static void many_rank(struct rank *me)
{
    struct hkt_bootstrap *b;

    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 30));
    expect_true(hkt_bootstrap_sockets(b) <= 1 + hkt_bootstrap_arity);
    for (int i = 0; i < 3; i++)
        gather(b, me, i, 400);
    hkt_bootstrap_close(b);
}

/* 300 ranks as threads. */
START_TEST(test_many)
{
    bare_world(300, THREADS, many_rank, NULL, 0);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------------------ */

enum { RANKS = 11 };

/* How rank `who` ends: it dies, fails, or is silent; after a gather, so that everybody is where it will be. */
struct ending {
    int  who;
    enum { DIES, FAILS, SILENT } how;
};

static void ending_rank(struct rank *me)
{
    const struct ending  *e     = me->arg;
    struct board         *board = me->shared;
    struct hkt_bootstrap *b;
    char                  all[RANKS], name[64];
    const int             code = (int[]){HKT_ERR_PEER, HKT_ERR_USAGE, HKT_ERR_TIMEOUT}[e->how];

    hkt_bootstrap_arity = 2;
    rendezvous(me); /* so that one second is enough */
    expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, e->how == SILENT ? 1 : 10));
    expect_ok(hkt_bootstrap_all_gather(b, "x", 1, all));
    if (me->rank == e->who && e->how == DIES)
        kill(getpid(), SIGKILL);
    if (me->rank == e->who && e->how == FAILS) {
        hkt_error_set(HKT_ERR_USAGE, "it has the hiccups");
        hkt_bootstrap_fail(b, HKT_ERR_USAGE);
    } else if (me->rank == e->who) {
        await(&board->go, RANKS - 1, 10);
    } else {
        snprintf(name, sizeof(name), e->how != SILENT ? "rank %d (host " : "1 of 11 ranks did not answer within 1 s (limit: HKT_INIT_TIMEOUT): %d", e->who);
        for (int i = 0; i < 2; i++) {
            expect_code(hkt_bootstrap_all_gather(b, "x", 1, all), code);
            if (e->how != SILENT || (e->who && !strstr(hkt_last_error(), "rank "))) /* who waits behind it may only know its parent */
                expect_said(name);
            if (e->how == FAILS)
                expect_said(": it has the hiccups");
        }
        if (e->how == SILENT && me->rank == 0)
            expect_said(name);
        atomic_fetch_add(&board->go, 1);
    }
    hkt_bootstrap_close(b);
}

/* C24: any rank of a tree three high dies, fails or is silent: all others end with its name, rank 0 with the right one of eleven. */
START_TEST(test_endings)
{
    const struct ending e = {.who = _i % RANKS, .how = _i / RANKS};

    if (e.how == SILENT && e.who % 5 != 4 && !long_tests()) /* each takes its seconds */
        return;
    bare_world(RANKS, PROCESSES, ending_rank, (void *)(uintptr_t)&e, e.how == DIES ? 1u << e.who : 0);
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
    char                  all[RANKS], name[64];
    int                   rc;

    hkt_bootstrap_arity = 2;
    hkt_alloc_fail_at(me->rank == s->who ? s->n : 0);
    rc = hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10);
    hkt_alloc_fail_at(0);
    if (rc == 0)
        rc = hkt_bootstrap_all_gather(b, "x", 1, all);
    hkt_bootstrap_close(b);
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

/* C24: each allocation of one rank fails once, wherever it is in the tree; all are told by whom. */
START_TEST(test_no_memory)
{
    struct starving *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    s->who = (int[]){0, 1, 7}[_i];
    for (s->n = 1; !s->done; s->n++) {
        expect(s->n < 10, "there is no end");
        bare_world(RANKS, PROCESSES, starving_rank, s, 0);
    }
    expect(s->n > 3, "only %ld allocations", s->n - 1);
}
END_TEST

/* ---- capabilities -------------------------------------------------------------------------------------------------- */

static void capable_rank(struct rank *me)
{
    const bool            same = *(int *)me->arg;
    struct hkt_bootstrap *b    = (void *)1;
    char                  all[5];

    expect_ok(hkt_capability_must("tuning table", "none"));
    expect_ok(hkt_capability_must("tuning table", me->rank == 3 && !same ? "b.tune 9f00" : "a.tune 77aa"));
    expect_ok(hkt_capability_may("tcp"));
    if (me->rank != 2)
        expect_ok(hkt_capability_may("verbs"));
    expect_ok(hkt_capability_may(me->rank ? "ucx" : "tcp2"));
    expect_ok(hkt_capability_may("shm"));
    hkt_bootstrap_arity = 2;
    if (same) {
        expect_ok(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10));
        expect_true(hkt_bootstrap_common(b, "tcp") && hkt_bootstrap_common(b, "shm"));
        expect_true(!hkt_bootstrap_common(b, "verbs") && !hkt_bootstrap_common(b, "ucx") && !hkt_bootstrap_common(b, "tcp2"));
        expect_true(!hkt_bootstrap_common(b, "tc") && !hkt_bootstrap_common(b, ""));
        expect_ok(hkt_bootstrap_all_gather(b, "x", 1, all)); /* nobody leaves before all have looked */
        hkt_bootstrap_close(b);
        return;
    }
    expect_code(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10), HKT_ERR_MISMATCH);
    expect_said("rank 3 (host ");
    expect_said("rank 0 (host ");
    expect_said("tuning table is \"b.tune 9f00\" here and \"a.tune 77aa\" there");
    expect_true(b == (void *)1);
}

/* C26: what may differ is what all have; what must not is named, with both values, to all. */
START_TEST(test_capabilities)
{
    bare_world(5, PROCESSES, capable_rank, &_i, 0);
}
END_TEST

static void option_rank(struct rank *me)
{
    struct hkt_bootstrap *b;

    if (me->rank == 1)
        setenv("HKT_STAGING", "2M", 1); /* rank 1 has not called the library yet: it waits for rank 0's id */
    expect_code(hkt_bootstrap_open(&b, me->id, me->n, me->rank, 10), HKT_ERR_MISMATCH);
    expect_said("HKT_STAGING is \"2097152\" here and \"1048576\" there");
}

/* C26: an option that all must set alike. */
START_TEST(test_options)
{
    bare_world(3, PROCESSES, option_rank, NULL, 0);
}
END_TEST

static void tuning_rank(struct rank *me)
{
    hkt_comm_t *comm;

    if (me->rank == 1)
        setenv("HKT_TUNING", me->arg, 1);
    expect_code(hkt_comm_init(&comm, me->n, me->id, me->rank, NULL), HKT_ERR_MISMATCH);
    expect_said("rank 1 (host ");
    expect_said("HKT_TUNING, by the hash of its rules, is \"");
    expect_said("and \"\" there");
}

/* C26: one rank with another table of algorithms. */
START_TEST(test_tables)
{
    char      path[] = "/tmp/hocket-test-XXXXXX";
    const int fd     = mkstemp(path);

    expect_true(fd >= 0 && write(fd, "* * * * direct\n", 15) == 15);
    close(fd);
    bare_world(3, PROCESSES, tuning_rank, path, 0);
    unlink(path);
}
END_TEST

/* Texts of capabilities: what differs is found in any line, room runs out with an error. */
START_TEST(test_texts)
{
    struct hkt_capabilities a = {.must = "x=1\ny=2\n", .may = "one two "}, b = a;
    char                    text[256];
    int                     rc = 0;

    expect_true(!hkt_capabilities_differ(&a, &b, text, sizeof(text)));
    strcpy(b.must, "x=1\ny=\n");
    expect_true(hkt_capabilities_differ(&a, &b, text, sizeof(text)) && strcmp(text, "y is \"2\" here and \"\" there") == 0);
    strcpy(b.must, "x=1\n");
    expect_true(hkt_capabilities_differ(&a, &b, text, sizeof(text)) && strcmp(text, "y is \"2\" here and \"\" there") == 0);
    expect_true(hkt_capabilities_differ(&b, &a, text, sizeof(text)) && strcmp(text, "y is \"\" here and \"2\" there") == 0);
    strcpy(a.must, "y=2\nx=1\n");
    strcpy(b.must, "x=1\ny=2\n");
    expect_true(!hkt_capabilities_differ(&a, &b, text, sizeof(text)));
    strcpy(b.may, "tw two three ");
    hkt_capabilities_intersect(a.may, b.may);
    expect_true(strcmp(a.may, "two ") == 0);
    for (int i = 0; i < 100 && !rc; i++) {
        snprintf(text, sizeof(text), "word%d", i);
        rc = hkt_capability_may(text);
    }
    expect_true(rc == HKT_ERR_ARGUMENT);
    memset(text, 'v', 255);
    text[255] = 0;
    expect_ok(hkt_capability_must("long", text));
    expect_code(hkt_capability_must("longer", text), HKT_ERR_ARGUMENT);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_shape, 1, 20);
    ADD(s, test_no_tree, 1, 20);
    ADD(s, test_high, 24, 20);
    ADD(s, test_many, 1, 20);
    ADD(s, test_endings, 33, 20);
    ADD(s, test_no_memory, 3, 40);
    ADD(s, test_capabilities, 2, 20);
    ADD(s, test_options, 1, 20);
    ADD(s, test_tables, 1, 20);
    ADD(s, test_texts, 1, 20);
}

int main(void)
{
    return run_suite("tree", add);
}
