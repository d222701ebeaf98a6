/* fuzz_wire.c -- the network's port, and frames behind the proof. A process that does not exist is made known to the library; then its socket comes,
 * proves itself, and says what the fuzzer wants said.
 *
 * A record of the input is a head of 64 bytes and as many bytes as its `length` says, or as are left.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "net/carrier.h"
#include "net/wire.h"
#include "setup/proof.h"
#include "transports/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURNS = 400, LANDING = 4096, MOST_BYTES = 1 << 16 };

struct other {
    struct hkt_process        *self, *process;
    struct hkt_process_address own, address;
    struct hkt_wire           *wire;
    char                       landing[HKT_LANES][LANDING];
};

static void conflict(void *arg, enum hkt_lane lane, int from, const struct hkt_wire_note notes[2], const size_t bytes[2])
{
    (void)arg, (void)lane, (void)from, (void)notes, (void)bytes;
}

static void poison(void *arg, int from, int code, const char *sentence)
{
    (void)arg, (void)from, (void)code;
    if (strlen(sentence) > 4096)
        abort();
}

static void left(void *arg, int rank)
{
    (void)arg, (void)rank;
}

/* This process and where it listens. False: there is no network. */
static bool listens(struct other *o)
{
    setenv("HKT_NETWORK", "tcp", 1);
    if (!hkt_proof_supported() || hkt_process_self(&o->self))
        return false;
    hkt_process_address(&o->own);
    return o->own.net.bytes > 7 && memcmp(o->own.net.data + 1, "tcp", 3) == 0;
}

static int dial(const struct other *o)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int          fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger      at_once = {1, 0}; /* no TIME_WAIT: there are many of us */
    uint16_t           port;

    memcpy(&port, o->own.net.data + 5, sizeof(port));
    to.sin_port = htons(port);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* Says it, in turns with the library. */
static void say(int fd, const void *bytes, size_t size)
{
    for (size_t at = 0, turn = 0; at < size && turn < TURNS; turn++) {
        const ssize_t n = send(fd, (const char *)bytes + at, size - at, MSG_NOSIGNAL);

        at += n > 0 ? (size_t)n : 0;
        turn = n > 0 ? 0 : turn;
        hkt_wire_poll();
    }
}

/* Until the library has heard all of it and hung up, or nothing more happens. */
static void drain(int fd)
{
    char          bytes[4096];
    struct pollfd at = {.fd = fd, .events = POLLIN};

    shutdown(fd, SHUT_WR);
    for (int turn = 0; turn < TURNS; turn++) {
        hkt_wire_poll();
        if (poll(&at, 1, turn > 20) == 1 && recv(fd, bytes, sizeof(bytes), 0) <= 0)
            return;
    }
}

static uint64_t name_of(const uint64_t uuid[2])
{
    unsigned char hash[HKT_PROOF_KEY];
    uint64_t      name;

    hkt_proof_key(hash, "hocket tcp name", uuid, 16);
    memcpy(&name, hash, sizeof(name));
    return name;
}

/* The library listens to who is behind `fd`. */
static bool prove(const struct other *o, int fd)
{
    const uint64_t   both[2][2] = {{o->own.uuid[0], o->own.uuid[1]}, {o->address.uuid[0], o->address.uuid[1]}};
    const uint64_t   greeting[5] = {0x0131504354544b48u, name_of(both[0]), name_of(both[1]), 4711, 0};
    unsigned char    key[HKT_PROOF_KEY], taken;
    struct hkt_proof p;
    int              rc = 0;

    hkt_proof_key(key, "hocket tcp key", both, sizeof(both));
    if (hkt_proof_begin(&p, HKT_PROOF_CONNECTS, key, greeting[3] ^ 0x544350))
        return false;
    say(fd, greeting, sizeof(greeting));
    for (int turn = 0; turn < 10 * TURNS && !rc; turn++) {
        hkt_wire_poll();
        rc = hkt_proof_turn(&p, fd);
    }
    for (int turn = 0; turn < 10 * TURNS && rc == 1; turn++) { /* the one with the smaller uuid, the library, says that this is the one */
        hkt_wire_poll();
        if (recv(fd, &taken, 1, 0) == 1)
            return true;
    }
    return false;
}

/* A process of another host whose uuid comes behind this one's. */
static bool invent(struct other *o)
{
    static const struct hkt_wire_events events = {conflict, poison, left};
    static uint64_t                     count;
    struct hkt_process                 *process[2];

    o->address         = o->own;
    o->address.uuid[0] = ~0ull;
    o->address.uuid[1] = ++count;
    o->address.host[0] ^= 1;
    o->address.pid         = 0;
    o->address.net.data[5] = 1; /* nobody listens at that port */
    o->address.net.data[6] = 0;
    if (memcmp(o->own.uuid, o->address.uuid, sizeof(o->own.uuid)) >= 0 || hkt_process_attach(&o->process, &o->address, 1))
        return false;
    process[0] = o->self;
    process[1] = o->process;
    if (hkt_wire_open(&o->wire, &(struct hkt_wire_config){.id = {7, count}, .size = 2, .process = process, .events = &events, .arg = o}) == 0)
        return true;
    hkt_process_detach(o->process);
    return false;
}

/* What the port hears before anybody has proved anything. The wire to a process that does not exist keeps the library listening. */
void fuzz_greeting(const uint8_t *data, size_t size)
{
    static struct other o;
    int                 fd;

    if (!o.wire && (!listens(&o) || !invent(&o)))
        return;
    fd = dial(&o);
    if (fd < 0)
        return;
    say(fd, data, size);
    drain(fd);
    close(fd);
}

static void say_frames(const struct other *o, int fd, const uint8_t *data, size_t size)
{
    for (size_t said = 0; size >= sizeof(struct hkt_head) && said < MOST_BYTES;) {
        struct hkt_head head;
        size_t          body = size - sizeof(head);

        memcpy(&head, data, sizeof(head));
        body = head.length < body ? head.length : body;
        if (head.kind >= HKT_HEAD_BIND && head.kind <= HKT_HEAD_POISON && head.same[0] == 7) /* our communicator: its number changes */
            head.same[1] = o->address.uuid[1];
        say(fd, &head, sizeof(head));
        say(fd, data + sizeof(head), body);
        data += sizeof(head) + body;
        size -= sizeof(head) + body;
        said += sizeof(head) + body;
    }
}

void fuzz_frames(const uint8_t *data, size_t size)
{
    static struct other o;
    static const char   out[64];
    int                 fd;

    if ((!o.self && !listens(&o)) || !invent(&o))
        return;
    for (int lane = 0; lane < HKT_LANES; lane++)
        for (int i = 0; i < 2; i++)
            hkt_wire_receive(o.wire, (enum hkt_lane)lane, 1, o.landing[lane] + i * 64, &(struct hkt_wire_note){.same = {1, 2, 3}, .bytes = 64});
    fd = dial(&o);
    if (fd >= 0 && prove(&o, fd)) {
        hkt_wire_send(o.wire, HKT_LANE_MESSAGE, 1, out, &(struct hkt_wire_note){.same = {1, 2, 3}, .bytes = sizeof(out)});
        say_frames(&o, fd, data, size);
    }
    if (fd >= 0) {
        drain(fd);
        close(fd);
    }
    hkt_wire_poll();
    hkt_wire_close(o.wire);
    hkt_process_detach(o.process);
}
