/* meet.c -- how ranks that hold the same id come together: rank 0 waits at a socket, the others knock. See bootstrap.h
 * for what is promised; what follows once all are there is left to bootstrap.c.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MS         = 1000000u;
static const uint64_t SILENCE_NS = 1000000000u; /* a connection that says nothing */
static const uint64_t AWAY_NS    = 1000000000u; /* how long late ranks are told of a failure */
static const uint64_t IN_USE_NS =
    800000000u; /* how long an id may be in use by somebody else before that is an error */

/* ---- rank 0 ---------------------------------------------------------------------------------------------------- */

static int equal(const void *a, const void *b, size_t size) /* in a time that tells nothing about where they differ */
{
    unsigned char differ = 0;

    for (size_t i = 0; i < size; i++)
        differ |= ((const unsigned char *)a)[i] ^ ((const unsigned char *)b)[i];
    return differ == 0;
}

/* Has the one who said hello the secret? */
static bool is_ours(const struct hkt_bootstrap *b, const struct hkt_link *l)
{
    return l->head.kind == HKT_HELLO && equal(l->peer.public_key, b->id.public_key, HKT_KEY) &&
           equal(l->peer.secret, b->id.secret, HKT_KEY);
}

static void refuse(struct hkt_bootstrap *b, struct hkt_link *l)
{
    b->refused++;
    hkt_link_close(l);
}

/* A stranger has said hello: makes it a member, or refuses it. An error means that these ranks can never meet. */
static int admit(struct hkt_bootstrap *b, struct hkt_link *l)
{
    struct hkt_link *seat;
    char             mine[HKT_NAME], theirs[HKT_NAME];

    l->peer.host[HKT_HOST - 1] = 0;
    if (!is_ours(b, l)) {
        refuse(b, l);
        return 0;
    }
    hkt_rank_name(&b->self, mine);
    hkt_rank_name(&l->peer, theirs);
    if (l->peer.version != b->self.version || l->peer.size != b->size || l->peer.rank <= 0 || l->peer.rank >= b->size) {
        char      sentence[HKT_TEXT];
        const int code = HKT_ERR_MISMATCH;

        if (l->peer.version != b->self.version)
            snprintf(sentence, sizeof(sentence), "%s has version %u of the library, %s version %u", theirs,
                     l->peer.version, mine, b->self.version);
        else
            snprintf(sentence, sizeof(sentence), "%s makes a communicator of %d ranks, %s one of %d", theirs,
                     l->peer.size, mine, b->size);
        hkt_link_say(l, HKT_FAIL, sentence, strlen(sentence), code);
        hkt_link_close(l);
        return hkt_bootstrap_die_all(b, hkt_fail(code, "%s", sentence));
    }
    seat = &b->link[l->peer.rank];
    if (seat->fd >= 0) {
        hkt_log(HKT_LOG_INFO, "%s came, but that rank is there already, in process %d", theirs, seat->peer.pid);
        hkt_link_say(l, HKT_BUSY, &seat->peer, sizeof(seat->peer), 0);
        refuse(b, l);
        return 0;
    }
    *seat      = *l;
    l->fd      = -1;
    seat->done = true;
    hkt_link_expect(seat, 0, NULL, 0);
    if (hkt_link_say(seat, HKT_JOINED, &b->self, sizeof(b->self), 0))
        return hkt_bootstrap_lose(b, seat, -ECONNRESET);
    return 0;
}

/* Takes in whoever is waiting at the listener; the oldest stranger makes room. */
static int take_in(struct hkt_bootstrap *b)
{
    struct hkt_link *const strangers = b->link + b->size;

    for (;;) {
        struct hkt_link *at = strangers;
        const int        fd = hkt_socket_accept(b->listener);

        if (fd == -EACCES) {
            b->refused++;
            continue;
        }
        if (fd == -EAGAIN)
            return 0;
        if (fd < 0) {
            char name[HKT_NAME];

            return hkt_bootstrap_die_all(b, hkt_fail(HKT_ERR_SYSTEM, "%s cannot take in the other ranks: %s",
                                                     hkt_rank_name(&b->self, name), hkt_errno_text(-fd)));
        }
        for (struct hkt_link *l = strangers; l < strangers + HKT_STRANGERS && at->fd >= 0; l++)
            if (l->fd < 0 || l->deadline < at->deadline)
                at = l;
        if (at->fd >= 0)
            refuse(b, at);
        *at = (struct hkt_link){.fd = fd, .deadline = hkt_now_ns() + SILENCE_NS};
        hkt_link_expect(at, HKT_HELLO, &at->peer, sizeof(at->peer));
    }
}

/* Waits for something to happen, at most to the deadline. */
static int meet_wait(struct hkt_bootstrap *b, uint64_t deadline)
{
    const uint64_t now  = hkt_now_ns();
    uint64_t       next = deadline;

    b->poll[0] = (struct pollfd){.fd = b->listener, .events = POLLIN};
    for (int i = 1; i < b->size + HKT_STRANGERS; i++) {
        struct hkt_link *l = &b->link[i];

        if (i >= b->size && l->fd >= 0 && now >= l->deadline)
            refuse(b, l);
        if (i >= b->size && l->fd >= 0 && l->deadline < next)
            next = l->deadline;
        b->poll[i] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    }
    hkt_bootstrap_poll(b, b->size + HKT_STRANGERS, next);
    return hkt_socket_late(deadline) ? -ETIMEDOUT : 0;
}

/* What has happened. */
static int meet_turn(struct hkt_bootstrap *b)
{
    for (int i = 1; i < b->size + HKT_STRANGERS; i++) {
        struct hkt_link *l  = &b->link[i];
        const int        rc = b->poll[i].revents && l->fd >= 0 ? hkt_link_pull(l) : 0;

        if (rc && i < b->size)
            return hkt_bootstrap_lose(b, l, rc);
        if (rc < 0)
            refuse(b, l);
        else if (rc)
            HKT_TRY(admit(b, l));
    }
    return b->poll[0].revents ? take_in(b) : 0;
}

static int missing(const struct hkt_bootstrap *b)
{
    int n = 0;

    for (int r = 1; r < b->size; r++)
        n += b->link[r].fd < 0;
    return n;
}

/* Tells one who has come why there will be no communicator, if it is one of ours. */
static bool tell(struct hkt_bootstrap *b, struct hkt_link *l)
{
    const bool told = hkt_link_pull_all(l, hkt_now_ns() + 100 * MS) == 0 && is_ours(b, l) &&
                      hkt_link_say(l, HKT_FAIL, b->sentence, strlen(b->sentence), b->code) == 0;

    hkt_link_close(l);
    return told;
}

/* Tells those who are at the door, and those who are yet to come for as long as they might soon. */
static void turn_away(struct hkt_bootstrap *b)
{
    const uint64_t deadline = hkt_now_ns() + (b->timeout < AWAY_NS ? b->timeout : AWAY_NS);
    int            left     = b->link ? missing(b) : b->size - 1;

    close(b->spare);
    b->spare = -1;
    for (int i = b->size; b->link && i < b->size + HKT_STRANGERS; i++)
        if (b->link[i].fd >= 0)
            left -= tell(b, &b->link[i]);
    while (left > 0 && hkt_socket_wait(b->listener, POLLIN, deadline) == 0) {
        struct hkt_link l = {.fd = hkt_socket_accept(b->listener)};

        if (l.fd == -EACCES || l.fd == -EAGAIN)
            continue;
        if (l.fd < 0)
            return;
        hkt_link_expect(&l, HKT_HELLO, &l.peer, sizeof(l.peer));
        left -= tell(b, &l);
    }
}

static int open_listener(struct hkt_bootstrap *b, const char *name)
{
    const uint64_t until = hkt_now_ns() + (b->timeout < IN_USE_NS ? b->timeout : IN_USE_NS);

    while ((b->listener = hkt_socket_listen(SOCK_STREAM, name)) == -EADDRINUSE && hkt_now_ns() < until)
        poll(NULL, 0, 2); /* a communicator made from the same id is about to be complete, maybe */
    if (b->listener == -EADDRINUSE)
        return hkt_fail(HKT_ERR_ARGUMENT, "this id is in use: another rank 0 is waiting for its others with it");
    if (b->listener >= 0)
        b->spare = fcntl(b->listener, F_DUPFD_CLOEXEC, 0);
    if (b->listener < 0 || b->spare < 0)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot open a socket for the other ranks: %s",
                        hkt_errno_text(b->listener < 0 ? -b->listener : errno));
    return 0;
}

static int wait_for_all(struct hkt_bootstrap *b)
{
    const size_t   n        = (size_t)b->size + HKT_STRANGERS;
    const uint64_t deadline = hkt_now_ns() + b->timeout;

    b->link = hkt_alloc(n * (sizeof(*b->link) + 2 * sizeof(*b->poll)));
    if (!b->link) {
        hkt_bootstrap_fail(b, HKT_ERR_MEMORY);
        return HKT_ERR_MEMORY;
    }
    b->poll   = (struct pollfd *)(void *)(b->link + n);
    b->packed = b->poll + n;
    for (size_t i = 0; i < n; i++)
        b->link[i].fd = -1;
    while (missing(b)) {
        if (meet_wait(b, deadline))
            return hkt_bootstrap_give_up(b, "did not come");
        HKT_TRY(meet_turn(b));
    }
    return 0;
}

void hkt_meet_close(struct hkt_bootstrap *b)
{
    if (b->spare >= 0)
        close(b->spare);
    if (b->listener >= 0)
        close(b->listener);
    b->spare    = -1;
    b->listener = -1;
}

int hkt_meet_as_hub(struct hkt_bootstrap *b, const char *name)
{
    int rc = open_listener(b, name);

    HKT_TRY(rc);
    rc = wait_for_all(b);
    if (rc && rc != HKT_ERR_TIMEOUT)
        turn_away(b);
    hkt_meet_close(b); /* before anybody goes on: the id is free again */
    HKT_TRY(rc);
    for (int i = b->size; i < b->size + HKT_STRANGERS; i++)
        hkt_link_close(&b->link[i]);
    for (int r = 1; r < b->size; r++)
        if (hkt_link_say(&b->link[r], HKT_START, NULL, 0, 0))
            return hkt_bootstrap_lose(b, &b->link[r], -EPIPE);
    if (b->refused)
        hkt_log(HKT_LOG_INFO, "%u connections of strangers were refused while the ranks met", b->refused);
    return 0;
}

/* ---- the others ------------------------------------------------------------------------------------------------ */

static int no_hub(struct hkt_bootstrap *b, int error)
{
    if (error == -EACCES)
        return hkt_fail(HKT_ERR_SYSTEM, "another user's process listens where rank 0 of this communicator should");
    if (error == -ETIMEDOUT)
        return hkt_fail(HKT_ERR_TIMEOUT, "rank 0 holds its socket but has not answered for %.3g s: is it stopped?",
                        (double)b->timeout / 1e9);
    if (error == -ECONNRESET)
        return hkt_fail(HKT_ERR_TIMEOUT, "rank 0 has hung up on this rank for %.3g s: do both hold the same id?",
                        (double)b->timeout / 1e9);
    if (error != -ECONNREFUSED && error != -EAGAIN)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot connect to rank 0: %s", hkt_errno_text(-error));
    return hkt_fail(
        HKT_ERR_TIMEOUT,
        "rank 0 did not come within %.3g s (limit: HKT_INIT_TIMEOUT): is it running on this machine, in the same "
        "network namespace, with the same id?",
        (double)b->timeout / 1e9);
}

/* One attempt. 0: joined; 1: not now, try again; 2: rank taken, try again; or HKT_ERR_*. */
static int knock(struct hkt_bootstrap *b, const char *name, uint64_t deadline, int *error)
{
    struct hkt_hello hello = b->self;
    int              rc;

    *error = b->hub.fd = hkt_socket_connect(SOCK_STREAM, name, NULL);
    if (b->hub.fd == -EACCES || b->hub.fd == -EMFILE || b->hub.fd == -ENFILE)
        return no_hub(b, b->hub.fd);
    if (b->hub.fd < 0)
        return 1;
    memcpy(hello.public_key, b->id.public_key, HKT_KEY);
    memcpy(hello.secret, b->id.secret, HKT_KEY); /* only now: the other end is this user's */
    rc = hkt_link_say(&b->hub, HKT_HELLO, &hello, sizeof(hello), 0);
    hkt_link_expect(&b->hub, HKT_JOINED, &b->hub.peer, sizeof(b->hub.peer));
    if (!rc)
        rc = hkt_link_pull_all(&b->hub, deadline);
    if (!rc && b->hub.head.kind == HKT_JOINED)
        return 0;
    if (!rc && b->hub.head.kind == HKT_FAIL)
        return hkt_bootstrap_hear(&b->hub, "");
    hkt_link_close(&b->hub);
    *error = rc ? rc : -EPIPE;
    return rc ? 1 : 2;
}

int hkt_meet_as_other(struct hkt_bootstrap *b, const char *name)
{
    const uint64_t begin = hkt_now_ns(), deadline = begin + b->timeout;
    uint64_t       busy_until = 0;
    bool           hung_up    = false;
    int            delay = 1, error = 0, rc;

    while ((rc = knock(b, name, deadline, &error)) > 0) {
        const uint64_t now = hkt_now_ns();

        hung_up = hung_up || error == -ECONNRESET || error == -EPIPE;
        if (rc == 2 && !busy_until)
            busy_until = now + IN_USE_NS;
        if (rc == 2 && now >= busy_until)
            return hkt_fail(HKT_ERR_ARGUMENT, "this id is in use: a rank %d is there already", b->rank);
        if (hkt_socket_late(deadline))
            return no_hub(b, error == -EPIPE || (hung_up && error == -ETIMEDOUT) ? -ECONNRESET : error);
        poll(NULL, 0, delay);
        delay = delay < 14 ? delay + delay / 2 + 1 : 20;
    }
    if (rc < 0)
        return rc;
    hkt_link_expect(&b->hub, HKT_START, NULL, 0);
    rc = hkt_link_pull_all(&b->hub, deadline + HKT_GRACE_NS);
    return rc == 0 && b->hub.head.kind == HKT_START ? 0 : hkt_bootstrap_lose(b, &b->hub, rc ? rc : 1);
}
