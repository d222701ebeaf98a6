/* test_launcher.c -- finding the launcher and what is read of the environment; and PMI-1 against a server of this test: one that does as it
 * should, and all the ways in which one can fail. The launchers themselves are in test_launch.sh. */
#include "harness.h"

#include "base/clock.h"
#include "base/error.h"
#include "setup/bootstrap.h"
#include "setup/launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE = 4096 };

static const uint64_t SECOND = 1000000000u;

/* One line of the server's part: what must come, and what is said then. NULL: nothing more is said; "" hangs up. $ID: the id that was put. */
struct turn {
    const char *wanted, *said;
};

struct server {
    const struct turn *turns;
    int                fd;
    char               id[300]; /* that was put */
    bool               as_wanted;
    pthread_t          thread;
};

static const struct turn first[] = {
    {"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1\n"},
    {"cmd=put kvsname=kvs_1 key=hocket-id value=", "cmd=put_result rc=0 msg=success\n"},
    {"cmd=barrier_in", "cmd=barrier_out\n"},
    {"cmd=get kvsname=kvs_1 key=hocket-id", "cmd=get_result rc=0 msg=success value=$ID\n"},
    {"cmd=finalize", "cmd=finalize_ack\n"},
    {NULL, NULL},
};

/* Reads a line; false at the end. */
static bool hear(int fd, char line[LINE])
{
    size_t n = 0;

    while (n + 1 < LINE && read(fd, line + n, 1) == 1)
        if (line[n++] == '\n') {
            line[n - 1] = 0;
            return true;
        }
    return false;
}

static void say(const struct server *s, const char *text)
{
    const char *mark = strstr(text, "$ID");
    char        all[2 * LINE];

    snprintf(all, sizeof(all), "%.*s%s%s", mark ? (int)(mark - text) : (int)strlen(text), text, mark ? s->id : "", mark ? mark + 3 : "");
    for (size_t i = 0, n = strlen(all); i < n; i += 7) /* in pieces: lines need not come whole */
        if (send(s->fd, all + i, n - i < 7 ? n - i : 7, MSG_NOSIGNAL) < 0)
            return;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    char           line[LINE];

    for (const struct turn *t = s->turns; t->wanted; t++) {
        if (!hear(s->fd, line) || strncmp(line, t->wanted, strlen(t->wanted)))
            return NULL;
        if (strncmp(line, "cmd=put ", 8) == 0)
            snprintf(s->id, sizeof(s->id), "%s", strstr(line, "value=") + 6);
        if (t->said && !t->said[0])
            shutdown(s->fd, SHUT_RDWR);
        else if (t->said)
            say(s, t->said);
    }
    s->as_wanted = true;
    while (hear(s->fd, line)) /* until the other end closes; what comes is not wanted */
        s->as_wanted = false;
    return NULL;
}

static void start(struct server *s, const struct turn *turns, const char *rank, const char *size)
{
    int  pair[2];
    char text[16];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    snprintf(text, sizeof(text), "%d", pair[1]);
    setenv("PMI_FD", text, 1);
    setenv("PMI_RANK", rank, 1);
    setenv("PMI_SIZE", size, 1);
    s->turns = turns;
    s->fd    = pair[0];
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
}

/* Proves: the words of PMI-1, in their order, nothing before an answer is there and nothing after finalize; the descriptor is closed. */
START_TEST(pmi_good)
{
    struct server       s = {.turns = NULL};
    struct hkt_launched got;
    char                text[2 * HKT_UNIQUE_ID_BYTES + 1];

    start(&s, first, "0", "3");
    setenv("MPI_LOCALRANKID", "2", 1);
    ck_assert_str_eq(hkt_launcher_find()->name, "pmi");
    expect_ok(hkt_launch(&got, 10));
    stop(&s);
    expect_true(s.as_wanted);
    hkt_bootstrap_id_print(&got.id, text);
    ck_assert_str_eq(text, s.id);
    ck_assert_int_eq(got.rank, 0);
    ck_assert_int_eq(got.size, 3);
    ck_assert_int_eq(got.local_rank, 2);
    expect_ok(hkt_launch(&got, 10)); /* nobody is asked again: nobody is there */
    ck_assert_int_eq(got.size, 3);
}
END_TEST

/* The turn that is replaced, by what, with which error and sentence. */
static const struct {
    int         turn;
    const char *said;
    int         code;
    const char *sentence;
} bad[] = {
    {0, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=init\""},
    {1, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=get_maxes\""},
    {2, "", HKT_ERR_PEER, "hung up"},
    {3, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=put\""},
    {4, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=barrier_in\""},
    {5, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=get\""},
    {6, "", HKT_ERR_PEER, "hung up at PMI's \"cmd=finalize\""},
    {0, NULL, HKT_ERR_TIMEOUT, "did not answer PMI's \"cmd=init\" in time"},
    {4, NULL, HKT_ERR_TIMEOUT, "not every rank of the job has called hkt_comm_init_env()"},
    {0, "cmd=response_to_init pmi_version=1", HKT_ERR_TIMEOUT, "in time"}, /* a line without its end */
    {0, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", HKT_ERR_SYSTEM, "version 1 was asked for"},
    {0, "cmd=response_to_init pmi_version=1 rc=-1\n", HKT_ERR_SYSTEM, "it has failed"},
    {0, "cmd=response_to_init rc=0\n", HKT_ERR_SYSTEM, "version 1"},
    {0, "\n", HKT_ERR_SYSTEM, "no answer"},
    {0, "    \n", HKT_ERR_SYSTEM, "no answer"},
    {0, "=\n", HKT_ERR_SYSTEM, "no answer"},
    {0, "cmd\n", HKT_ERR_SYSTEM, "no answer"},
    {0, "cmd=response_to_init_and_more pmi_version=1 rc=0\n", HKT_ERR_SYSTEM, "no answer"},
    {0, "\033[2J\177\n", HKT_ERR_SYSTEM, "\"?[2J?\""}, /* a terminal is not to be played with */
    {1, "cmd=maxes\n", HKT_ERR_SYSTEM, "does not fit"},
    {1, "cmd=maxes keylen_max=64 vallen_max=256\n", HKT_ERR_SYSTEM, "does not fit"},
    {1, "cmd=maxes keylen_max=-64 vallen_max=1024\n", HKT_ERR_SYSTEM, "does not fit"},
    {1, "cmd=maxes keylen_max=64 vallen_max=99999999999999999999999\n", HKT_ERR_SYSTEM, "does not fit"},
    {2, "cmd=my_kvsname\n", HKT_ERR_SYSTEM, "no name"},
    {2, "cmd=my_kvsname kvsname= rc=0\n", HKT_ERR_SYSTEM, "no name"},
    {3, "cmd=put_result rc=-1 msg=duplicate_key\n", HKT_ERR_SYSTEM, "it has failed"},
    {4, "cmd=barrier_out rc=1\n", HKT_ERR_SYSTEM, "it has failed"},
    {5, "cmd=get_result rc=-1 msg=key_hocket-id_not_found value=unknown\n", HKT_ERR_SYSTEM, "it has failed"},
    {5, "cmd=get_result rc=0\n", HKT_ERR_SYSTEM, "there is no id"},
    {5, "cmd=get_result rc=0 value=abc\n", HKT_ERR_ARGUMENT, "256 hex digits"},
    {5, "cmd=get_result rc=0 value=$ID0\n", HKT_ERR_SYSTEM, "there is no id"}, /* a digit too many */
    {6, "cmd=put_result rc=0\n", HKT_ERR_SYSTEM, "no answer"},
};
enum { BAD = sizeof(bad) / sizeof(bad[0]) };

/* Proves: whatever the server says or does not say is an error with its sentence, at its time, and the descriptor is closed. */
START_TEST(pmi_bad)
{
    struct server       s = {.turns = NULL};
    struct turn         turns[sizeof(first) / sizeof(first[0])];
    struct hkt_launched got    = {.rank = -7};
    const int           before = open_descriptors();

    memcpy(turns, first, sizeof(turns));
    turns[bad[_i].turn].said      = bad[_i].said;
    turns[bad[_i].turn + 1].wanted = NULL;
    if (bad[_i].turn == 5 && bad[_i].code == HKT_ERR_ARGUMENT) /* found out once all is said */
        turns[6].wanted = first[6].wanted;
    start(&s, turns, "0", "2");
    expect_code(hkt_pmi_exchange(&got, hkt_now_ns() + (bad[_i].code == HKT_ERR_TIMEOUT ? SECOND / 5 : 20 * SECOND)), bad[_i].code);
    expect_said(bad[_i].sentence);
    ck_assert_int_eq(got.rank, -7);
    stop(&s);
    expect_true(s.as_wanted);
    ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

/* Proves: a line without end is given up at its limit, and not kept. */
START_TEST(pmi_endless)
{
    struct server       s = {.turns = NULL};
    struct turn         turns[2] = {first[0], {NULL, NULL}};
    struct hkt_launched got;
    static char         text[LINE];

    memset(text, 'x', sizeof(text) - 1);
    turns[0].said = text;
    start(&s, turns, "0", "2");
    expect_code(hkt_pmi_exchange(&got, hkt_now_ns() + 20 * SECOND), HKT_ERR_SYSTEM);
    expect_said("a line of more than");
    stop(&s);
}
END_TEST

/* Proves: a failed exchange is not tried again with a server that would not understand; every call says the same. */
START_TEST(pmi_once)
{
    struct server       s = {.turns = NULL};
    struct turn         turns[2] = {first[0], {NULL, NULL}};
    struct hkt_launched got;

    turns[0].said = "cmd=response_to_init rc=1\n";
    start(&s, turns, "0", "2");
    expect_code(hkt_launch(&got, 10), HKT_ERR_SYSTEM);
    hkt_error_clear();
    expect_code(hkt_launch(&got, 10), HKT_ERR_SYSTEM);
    expect_said("it has failed");
    stop(&s);
}
END_TEST

/* Proves: Slurm's lists, as sinfo and the like write them, and what is none. */
START_TEST(slurm_lists)
{
    static const char *const good[][2] = {
        {"a", "a"},          {"a,b", "a"},           {"n[01-03,7],x", "n01"}, {"n[5]", "n5"},         {"n[1,3]-ib", "n1-ib"},
        {"r[1-2]n[3-4]", "r1n3"}, {"a.b-c_d", "a.b-c_d"}, {"n[007-010].x.org,m", "n007.x.org"},
    };
    static const char *const wrong[] = {"", ",a", "n[1", "n[1-", "n]", "a b", "n[[1]]", "$(x)", "a;b", "a/b"};
    char                     host[32], text[64];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(hkt_slurm_first_host(good[i][0], host, sizeof(host)), 0);
        ck_assert_str_eq(host, good[i][1]);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect(hkt_slurm_first_host(wrong[i], host, sizeof(host)), "\"%s\" passed as %s", wrong[i], host);
    memset(text, 'a', 32);
    text[32] = 0;
    ck_assert_int_ne(hkt_slurm_first_host(text, host, sizeof(host)), 0);
    text[31] = 0;
    ck_assert_int_eq(hkt_slurm_first_host(text, host, sizeof(host)), 0);
}
END_TEST

/* The first launcher that is present but for Hocket's own, which looks at options: these are read once. */
static const char *first_but_own(void)
{
    for (int i = 1; i < hkt_launcher_count; i++)
        if (hkt_launchers[i].present())
            return hkt_launchers[i].name;
    return "none";
}

/* Proves: the launchers are found by what is set, in the order of the table: the inner one where two are there. */
START_TEST(order)
{
    static const struct {
        const char *name, *variable[3];
    } set[] = {{"slurm", {"SLURM_STEP_NODELIST"}},
               {"torch", {"RANK", "WORLD_SIZE", "MASTER_ADDR"}},
               {"pmi", {"PMI_PORT"}},
               {"pmix", {"PMIX_NAMESPACE", "PMIX_RANK"}},
               {"torchrun", {"TORCHELASTIC_RUN_ID"}}};

    setenv("SLURM_PROCID", "0", 1); /* as in a batch script: no step, no rank */
    ck_assert_str_eq(first_but_own(), "none");
    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
        for (int v = 0; v < 3 && set[i].variable[v]; v++)
            setenv(set[i].variable[v], "1", 1);
        ck_assert_str_eq(first_but_own(), set[i].name);
    }
    setenv("HKT_ROOT", "a:1", 1);
    ck_assert_str_eq(hkt_launcher_find()->name, "hocket");
}
END_TEST

static void add(Suite *s)
{
    ADD(s, pmi_good, 1, 30);
    ADD(s, pmi_bad, BAD, 30);
    ADD(s, pmi_endless, 1, 30);
    ADD(s, pmi_once, 1, 30);
    ADD(s, slurm_lists, 1, 10);
    ADD(s, order, 1, 10);
}

int main(void)
{
    return run_suite("launcher", add);
}
