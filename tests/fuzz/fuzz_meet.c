/* fuzz_meet.c -- those who meet: proofs, frames of the bootstrap, questions to the helper thread, answers of a launcher. One end is the library's, in
 * a thread; the other says what the fuzzer wants said and hangs up.
 *
 * Frames would never be right by chance. So in hub and join the bytes are records: kind, flags, two bytes of length, then so many bytes; each is sent as
 * a frame. Flag 1: as raw bytes instead; flag 2: the header says one byte more than comes.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "setup/bootstrap.h"
#include "setup/frame.h"
#include "setup/helper.h"
#include "setup/id.h"
#include "setup/launch.h"
#include "setup/meet.h"
#include "setup/proof.h"
#include "setup/socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, PART = 16 };

/* Says it all, as far as anybody listens, says that there is no more, and waits until the other end has hung up. */
static void say(int fd, const void *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = send(fd, (const char *)bytes + at, size - at, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        at += (size_t)n;
    }
}

static void drain(int fd)
{
    char          bytes[512];
    struct pollfd at = {.fd = fd, .events = POLLIN};

    shutdown(fd, SHUT_WR);
    while (poll(&at, 1, 2000) == 1 && recv(fd, bytes, sizeof(bytes), 0) > 0)
        ;
}

/* ---- proofs -------------------------------------------------------------------------------------------------------- */

void fuzz_proof(const uint8_t *data, size_t size)
{
    static const unsigned char key[HKT_PROOF_KEY] = "fuzz";
    struct hkt_proof           p;
    int                        tube[2];

    if (!size || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tube))
        return;
    if (hkt_proof_begin(&p, data[0] & 1 ? HKT_PROOF_CONNECTS : HKT_PROOF_ACCEPTS, key, 1) == 0) {
        for (size_t at = 1, n; at < size; at += n) { /* in pieces */
            n = size - at < 7 ? size - at : 7;
            say(tube[1], data + at, n);
            if (hkt_proof_turn(&p, tube[0]))
                break;
        }
        shutdown(tube[1], SHUT_WR);
        if (hkt_proof_turn(&p, tube[0]) == 1)
            abort(); /* without the key */
    }
    close(tube[0]);
    close(tube[1]);
}

/* ---- frames -------------------------------------------------------------------------------------------------------- */

static void say_frames(int fd, const uint8_t *data, size_t size)
{
    while (size >= 4) {
        const size_t     length = (size_t)(data[2] | data[3] << 8), n = length < size - 4 ? length : size - 4;
        struct hkt_frame head = hkt_frame_make((enum hkt_frame_kind)data[0], n + (data[1] >> 1 & 1));

        head.code = -(data[1] >> 2);
        if (!(data[1] & 1))
            say(fd, &head, sizeof(head));
        say(fd, data + 4, n);
        data += 4 + n;
        size -= 4 + n;
    }
}

static void make_id(hkt_unique_id_t *unique)
{
    struct hkt_id id;

    hkt_bootstrap_local_id(unique);
    memcpy(&id, unique, sizeof(id)); /* a new one each time: nothing of the one before is in the way */
    hkt_random(id.public_key, sizeof(id.public_key));
    memcpy(unique, &id, sizeof(id));
}

struct member {
    hkt_unique_id_t id;
    int             rank;
};

static void *meet(void *arg)
{
    const struct member  *m = arg;
    struct hkt_bootstrap *b;
    char                  all[RANKS * PART] = {0};

    if (hkt_bootstrap_open(&b, &m->id, RANKS, m->rank, 0.05))
        return NULL;
    hkt_bootstrap_all_gather(b, all, PART, all);
    hkt_bootstrap_close(b);
    return NULL;
}

/* A hello of `rank`, as it would be. */
static void hello(struct hkt_hello *h, const hkt_unique_id_t *unique, int rank)
{
    struct hkt_id id;

    memcpy(&id, unique, sizeof(id));
    *h = (struct hkt_hello){.version = hkt_bootstrap_version, .size = RANKS, .rank = rank, .pid = 1, .host = "fuzz", .host_id = hkt_inet_host()};
    memcpy(h->public_key, id.public_key, sizeof(h->public_key));
    memcpy(h->secret, id.secret, sizeof(h->secret));
    hkt_capabilities_own(&h->can);
}

/* Two ranks come to rank 0; the first byte says how many hellos are true. */
void fuzz_hub(const uint8_t *data, size_t size)
{
    const size_t  half = size / 2;
    struct member m    = {.rank = 0};
    char          name[64];
    pthread_t     hub;
    int           fd[2];

    if (size < 2)
        return;
    make_id(&m.id);
    hkt_id_socket((const struct hkt_id *)(const void *)&m.id, name);
    if (pthread_create(&hub, NULL, meet, &m))
        abort();
    for (int i = 0; i < 2; i++) {
        for (int tries = 0; (fd[i] = hkt_socket_connect(SOCK_STREAM, name, NULL)) < 0 && tries < 1000; tries++)
            usleep(20);
        if (fd[i] >= 0 && data[0] >> i & 1) {
            const struct hkt_frame head = hkt_frame_make(HKT_HELLO, sizeof(struct hkt_hello));
            struct hkt_hello       h;

            hello(&h, &m.id, 1 + (data[0] >> 2 & 1 ? 0 : i));
            say(fd[i], &head, sizeof(head));
            say(fd[i], &h, sizeof(h));
        }
    }
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            say_frames(fd[i], data + 1 + (i ? half : 0), i ? size - 1 - half : half);
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) {
            drain(fd[i]);
            close(fd[i]);
        }
    pthread_join(hub, NULL);
}

/* Rank 0 is ours. */
void fuzz_join(const uint8_t *data, size_t size)
{
    struct member m = {.rank = 1};
    struct pollfd at = {.events = POLLIN};
    char          name[64], bytes[sizeof(struct hkt_frame) + sizeof(struct hkt_hello)];
    pthread_t     other;
    int           fd;

    make_id(&m.id);
    hkt_id_socket((const struct hkt_id *)(const void *)&m.id, name);
    at.fd = hkt_socket_listen(SOCK_STREAM, name);
    if (at.fd < 0)
        return;
    if (pthread_create(&other, NULL, meet, &m))
        abort();
    if (poll(&at, 1, 2000) == 1 && (fd = hkt_socket_accept(at.fd)) >= 0) {
        size_t got = 0;

        for (struct pollfd in = {.fd = fd, .events = POLLIN}; got < sizeof(bytes) && poll(&in, 1, 2000) == 1;) {
            const ssize_t n = recv(fd, bytes + got, sizeof(bytes) - got, 0);

            if (n <= 0)
                break;
            got += (size_t)n;
        }
        say_frames(fd, data, size);
        drain(fd);
        close(fd);
    }
    close(at.fd);
    pthread_join(other, NULL);
}

/* ---- the helper thread ------------------------------------------------------------------------------------------------ */

/* The first byte: does the question know the secret? A descriptor of nothing useful may come with it. */
void fuzz_helper(const uint8_t *data, size_t size)
{
    struct hkt_process_address own;
    struct hkt_process        *self;
    struct hkt_ask             ask = {0};
    char                       name[64];
    int                        fd;

    if (!size || hkt_process_self(&self))
        return;
    hkt_process_address(&own);
    snprintf(name, sizeof(name), "hocket-%016llx", (unsigned long long)own.socket);
    fd = hkt_socket_connect(SOCK_SEQPACKET, name, NULL);
    if (fd < 0)
        return;
    memcpy(&ask, data + 1, size - 1 < sizeof(ask) ? size - 1 : sizeof(ask));
    if (data[0] & 1) {
        ask.magic = HKT_ASK_MAGIC;
        memcpy(ask.to, own.uuid, sizeof(ask.to));
    }
    hkt_socket_send(fd, &ask, data[0] & 2 && size < sizeof(ask) ? size : sizeof(ask), data[0] & 4 ? fd : -1);
    if (data[0] & 1 && ask.kind == HKT_ASK_MAP) { /* it waits for the asker to be attached; there is nobody */
        close(fd);
        return;
    }
    drain(fd);
    close(fd);
}

/* ---- a launcher ---------------------------------------------------------------------------------------------------- */

void fuzz_pmi(const uint8_t *data, size_t size)
{
    struct hkt_launched place;
    char                number[16];
    int                 tube[2];

    if (!size || socketpair(AF_UNIX, SOCK_STREAM, 0, tube))
        return;
    snprintf(number, sizeof(number), "%d", tube[0]);
    setenv("PMI_FD", number, 1);
    setenv("PMI_RANK", data[0] & 1 ? "0" : "1", 1);
    setenv("PMI_SIZE", "2", 1);
    say(tube[1], data + 1, size - 1);
    shutdown(tube[1], SHUT_WR);
    if (hkt_pmi_exchange(&place, hkt_now_ns() + 50000000) == 0 && place.rank == 0)
        hkt_bootstrap_id_drop(&place.id);
    close(tube[1]); /* the exchange has closed the other */
}
