/* test_strangers.c -- those who have no business here: at rank 0's socket while ranks meet, and at the helper threads'
 * sockets. */
#include "party.h"

#include "setup/helper.h"
#include "setup/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Meets as rank `rank` of 2 and gathers once. */
static void meet_as(struct rank *me, int rank)
{
    struct hkt_bootstrap *b;
    char                  all[2];

    expect_ok(hkt_bootstrap_open(&b, me->id, 2, rank, 30));
    expect_ok(hkt_bootstrap_all_gather(b, rank ? "1" : "0", 1, all));
    expect_true(all[0] == '0' && all[1] == '1');
    hkt_bootstrap_close(b);
}

/* ---- strangers
 * ---------------------------------------------------------------------------------------------------------- */

static void hub_name(char name[64], const hkt_unique_id_t *id)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, as documented in the source */

    for (int i = 0; i < 16; i++)
        hash = (hash ^ (unsigned char)id->internal[i]) * 0x100000001b3u;
    snprintf(name, 64, "hocket-id-%016" PRIx64, hash);
}

static int connect_to_hub(const struct rank *me)
{
    const double end = now() + 10;
    char         name[64];
    int          fd;

    hub_name(name, me->id);
    while ((fd = hkt_socket_connect(SOCK_STREAM, name, NULL)) < 0) {
        expect((fd == -ECONNREFUSED || fd == -EAGAIN) && now() < end, "cannot connect to rank 0: %s", strerror(-fd));
        usleep(500);
    }
    return fd;
}

enum stranger { CONNECT_CLOSE, SILENT, GARBAGE, CROWD };

static void stranger_rank(struct rank *me)
{
    struct board       *board     = me->shared;
    const enum stranger kind      = *(enum stranger *)me->arg;
    const int           n         = kind == CONNECT_CLOSE ? 1000 : kind == CROWD ? 200 : 10;
    const char          garbage[] = "\1\2\3\4\5\6\7\10 and more than a header of it";
    int                 fd[200];
    const double        begin = now();

    if (me->rank == 0 || me->rank == 2) {
        if (me->rank == 2) /* the last one comes when the strangers are there */
            await(&board->go, 1, 15);
        meet_as(me, me->rank / 2);
        expect(now() - begin < 5 || slow_build(), "meeting took %.1f s", now() - begin);
        atomic_store(&board->ready, 1);
        return;
    }
    for (int i = 0; i < n; i++) {
        fd[i % 200] = connect_to_hub(me);
        if (kind == GARBAGE)
            hkt_socket_send(fd[i], garbage, sizeof(garbage), -1);
        if (kind == CONNECT_CLOSE)
            close(fd[i % 200]);
    }
    for (int i = 0; i < n && (kind == SILENT || kind == GARBAGE); i++) {
        expect(hkt_socket_wait(fd[i], POLLIN, hkt_now_ns() + 5000000000u) == 0, "a stranger is not dropped");
        expect_true(hkt_socket_receive(fd[i], (char[8]){0}, 8, NULL) <= 0);
    }
    atomic_store(&board->go, 1);
    await(&board->ready, 1, 15);
    for (int i = 0; i < n && kind != CONNECT_CLOSE; i++)
        close(fd[i]);
}

/* C17, C18: a thousand that connect and hang up, ten that are silent, ten that send garbage and stay, two hundred at
 * once. */
START_TEST(test_strangers)
{
    bare_world(3, PROCESSES, stranger_rank, &_i, 0);
}
END_TEST

static void impostor_rank(struct rank *me)
{
    struct board         *board = me->shared;
    hkt_unique_id_t       id    = *me->id;
    struct hkt_bootstrap *b;

    if (me->rank == 1) {
        id.internal[31] ^= 1; /* the last byte of the secret */
        expect_code(hkt_bootstrap_open(&b, &id, 2, 1, 0.4), HKT_ERR_TIMEOUT);
        expect_said("the same id");
        atomic_store(&board->go, 1);
        return;
    }
    if (me->rank == 2)
        await(&board->go, 1, 10);
    meet_as(me, me->rank / 2);
}

/* Who knows the id's public half, but not the secret, is refused; the right one comes later and is taken. */
START_TEST(test_wrong_secret)
{
    bare_world(3, PROCESSES, impostor_rank, NULL, 0);
}
END_TEST

static void foreign_rank(struct rank *me)
{
    struct board         *board = me->shared;
    struct hkt_bootstrap *b;
    char                  name[64];
    int                   fd;

    hub_name(name, me->id);
    if (me->rank == 0) {
        expect_true(setresuid(12345, 12345, 12345) == 0);
        fd = hkt_socket_listen(SOCK_STREAM, name);
        expect_true(fd >= 0);
        atomic_store(&board->go, 1);
        await(&board->ready, 1, 10);
        close(fd);
        return;
    }
    await(&board->go, 1, 10);
    expect_true(setresuid(12346, 12346, 12346) == 0);
    expect_code(hkt_bootstrap_open(&b, me->id, 2, 1, 10), HKT_ERR_SYSTEM);
    expect_said("another user");
    expect_true(hkt_socket_connect(SOCK_STREAM, name, NULL) == -EACCES);
    atomic_store(&board->ready, 1);
}

/* The secret is not told to another user's process that has taken the name. */
START_TEST(test_foreign_user)
{
    if (geteuid()) {
        printf("test_foreign_user skipped: only root can become two other users\n");
        return;
    }
    bare_world(2, PROCESSES, foreign_rank, NULL, 0);
}
END_TEST

/* ---- the helper threads ------------------------------------------------------------------------------------------ */

static int connect_to_helper(const struct hkt_process *peer)
{
    char name[64];
    int  fd;

    snprintf(name, sizeof(name), "hocket-%016llx", (unsigned long long)peer->life->address.socket);
    fd = hkt_socket_connect(SOCK_SEQPACKET, name, NULL);
    expect(fd >= 0, "cannot connect to the helper thread: %s", strerror(-fd));
    return fd;
}

static void helper_rank(struct rank *me)
{
    struct hkt_ask      ask = {.magic = HKT_ASK_MAGIC, .kind = HKT_ASK_LIFE};
    struct hkt_segment *s;
    struct party        p;
    int                 silent[10];
    char                answer[sizeof(ask)];

    party_join(&p, me);
    party_barrier(&p);
    for (int i = 0; me->rank && i < 10; i++)
        silent[i] = connect_to_helper(p.peer[0]); /* say nothing and stay */
    for (int i = 0; me->rank && i < 300; i++) {
        const int fd = connect_to_helper(p.peer[0]);

        if (i % 3 == 0)
            hkt_socket_send(fd, "garbage", 7, i % 2 ? -1 : 0);
        if (i % 3 == 1)
            hkt_socket_send(fd, &ask, sizeof(ask), -1); /* the right form, but it does not know the secret */
        if (i < 2) {
            expect_ok(hkt_socket_wait(fd, POLLIN, hkt_now_ns() + 5000000000u));
            expect_true(hkt_socket_receive(fd, answer, sizeof(answer), NULL) <= 0);
        }
        close(fd);
        expect_ok(hkt_segment_create(&s, 4096, "strangers"));
        expect_ok(hkt_segment_share(s, p.peer, 2));
        hkt_segment_free(s);
    }
    for (int i = 0; me->rank && i < 10; i++) {
        expect_ok(hkt_socket_wait(silent[i], POLLIN, hkt_now_ns() + 5000000000u));
        expect(hkt_socket_receive(silent[i], answer, 1, NULL) == 0, "a silent stranger gets an answer");
        close(silent[i]);
    }
    party_barrier(&p);
    if (me->rank == 0)
        expect(hkt_helper_strangers() == 310, "%llu strangers were counted, not 310",
               (unsigned long long)hkt_helper_strangers());
    party_leave(&p, me);
}

/* Garbage, silence and hang-ups at a helper thread's socket are dropped and counted, while others are served. */
START_TEST(test_helper)
{
    bare_world(2, PROCESSES, helper_rank, NULL, 0);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_strangers, 4, 20);
    ADD(s, test_wrong_secret, 1, 20);
    ADD(s, test_foreign_user, 1, 20);
    ADD(s, test_helper, 1, 20);
}

int main(void)
{
    return run_suite("strangers", add);
}
