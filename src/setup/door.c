/* door.c -- listeners and strangers. See door.h. What becomes of those who have proved themselves is left to meet.c and join.c. */
#include "door.h"

#include "base/clock.h"
#include "base/error.h"
#include "inet.h"
#include "meet.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const uint64_t SILENCE_NS = 1000000000u; /* a connection that says nothing */
static const uint64_t SHORT_NS   = 100000000u;  /* the same when there is nothing to be had here */
static const uint64_t YOUNG_NS   = 100000000u;  /* one that does not have to make room yet */

void hkt_door_init(struct hkt_door *d)
{
    *d = (struct hkt_door){.near = -1, .far = -1, .spare = -1, .at = {-1, -1}};
}

int hkt_door_near(struct hkt_bootstrap *b, const char *name)
{
    struct hkt_door *d  = &b->door;
    const int        fd = hkt_socket_listen(SOCK_STREAM, name);

    if (fd < 0)
        return fd;
    d->near  = fd;
    d->spare = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return d->spare < 0 ? -errno : 0;
}

void hkt_door_close(struct hkt_bootstrap *b)
{
    struct hkt_door *d = &b->door;

    if (d->spare >= 0)
        close(d->spare);
    if (d->far >= 0)
        close(d->far);
    if (d->near >= 0)
        close(d->near);
    hkt_door_init(d);
}

void hkt_door_refuse(struct hkt_bootstrap *b, struct hkt_link *l)
{
    b->refused++;
    hkt_link_close(l);
}

static int equal(const void *a, const void *b, size_t size) /* in a time that tells nothing about where they differ */
{
    unsigned char differ = 0;

    for (size_t i = 0; i < size; i++)
        differ |= ((const unsigned char *)a)[i] ^ ((const unsigned char *)b)[i];
    return differ == 0;
}

/* Has the one who said hello the key? */
static bool is_ours(const struct hkt_bootstrap *b, const struct hkt_link *l)
{
    return l->head.kind == HKT_HELLO && (l->proven || (equal(l->peer.public_key, b->id.public_key, HKT_KEY) &&
                                                       equal(l->peer.secret, b->id.secret, HKT_KEY)));
}

/* A place for one more: a free one, else that of the oldest stranger, unless it is young. NULL: not now. */
static struct hkt_link *make_room(struct hkt_bootstrap *b, uint64_t now)
{
    struct hkt_link *oldest = NULL, *empty = NULL;
    int              strangers = 0;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        if (l->fd < 0) {
            empty = empty ? empty : l;
            continue;
        }
        if (l->state != HKT_LINK_STRANGER)
            continue;
        strangers++;
        if (!oldest || l->deadline < oldest->deadline)
            oldest = l;
    }
    if (empty && strangers < HKT_STRANGERS)
        return empty;
    if (!oldest)
        b->door.full = now + YOUNG_NS; /* guests will go */
    else if (now < oldest->deadline - SILENCE_NS + YOUNG_NS)
        b->door.full = oldest->deadline - SILENCE_NS + YOUNG_NS;
    else {
        hkt_door_refuse(b, oldest);
        return oldest;
    }
    return NULL;
}

/* A stranger who has come just now. */
static void begin(struct hkt_bootstrap *b, struct hkt_link *l, int fd, bool far)
{
    unsigned char key[HKT_PROOF_KEY];

    *l = (struct hkt_link){.fd = fd, .far = far, .at = -1, .deadline = hkt_now_ns() + SILENCE_NS, .state = HKT_LINK_STRANGER};
    memcpy(key, &b->id, sizeof(key));
    hkt_link_expect(l, HKT_HELLO, &l->peer, sizeof(l->peer));
    if (far && hkt_proof_begin(&l->proof, HKT_PROOF_ACCEPTS, key, (uint64_t)b->rank))
        hkt_door_refuse(b, l);
}

/* Takes in whoever is waiting at a listener. */
static int take_in(struct hkt_bootstrap *b, int listener, bool far)
{
    for (;;) {
        struct hkt_link *l  = make_room(b, hkt_now_ns());
        const int        fd = !l ? -EAGAIN : far ? hkt_inet_accept(listener, NULL) : hkt_socket_accept(listener);

        if (fd == -EACCES) {
            b->refused++;
            continue;
        }
        if (fd == -EAGAIN)
            return 0;
        if (fd < 0) {
            char name[HKT_NAME];

            hkt_fail(HKT_ERR_SYSTEM, "%s cannot take in the other ranks: %s", hkt_rank_name(&b->self, name), hkt_errno_text(-fd));
            return hkt_bootstrap_die_all(b, HKT_ERR_SYSTEM);
        }
        begin(b, l, fd, far);
    }
}

void hkt_door_watch(struct hkt_bootstrap *b, uint64_t *next)
{
    const uint64_t now  = hkt_now_ns();
    const bool     open = now >= b->door.full;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        if (l->state != HKT_LINK_STRANGER || l->fd < 0)
            continue;
        if (now >= l->deadline)
            hkt_door_refuse(b, l);
        else if (l->deadline < *next)
            *next = l->deadline;
        l->at = hkt_bootstrap_watch(b, l->fd, l->far && !l->proven ? l->proof.events : POLLIN);
    }
    if (!open && b->door.full < *next)
        *next = b->door.full;
    b->door.at[0] = open ? hkt_bootstrap_watch(b, b->door.near, POLLIN) : -1;
    b->door.at[1] = open ? hkt_bootstrap_watch(b, b->door.far, POLLIN) : -1;
}

/* A stranger goes on. 1: it is one of ours, and has said who it is; 0: not yet; -EACCES: it is not; other -errno. */
static int listen_to(struct hkt_bootstrap *b, struct hkt_link *l)
{
    int rc = 1;

    if (l->far && !l->proven) {
        rc        = hkt_proof_turn(&l->proof, l->fd);
        l->proven = rc == 1;
    }
    if (rc == 1)
        rc = hkt_link_pull(l);
    if (rc <= 0)
        return rc;
    if (!is_ours(b, l))
        return -EACCES;
    l->peer.host[HKT_HOST - 1]     = 0;
    l->peer.can.must[HKT_MUST - 1] = 0;
    l->peer.can.may[HKT_MAY - 1]   = 0;
    hkt_link_expect(l, 0, NULL, 0);
    return 1;
}

int hkt_door_turn(struct hkt_bootstrap *b, hkt_admit_fn *admit)
{
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        const int rc = l->fd >= 0 && l->state == HKT_LINK_STRANGER && hkt_bootstrap_ready(b, l->at) ? listen_to(b, l) : 0;

        if (rc < 0)
            hkt_door_refuse(b, l);
        else if (rc)
            HKT_TRY(admit(b, l));
    }
    if (hkt_bootstrap_ready(b, b->door.at[0]))
        HKT_TRY(take_in(b, b->door.near, false));
    if (hkt_bootstrap_ready(b, b->door.at[1]))
        HKT_TRY(take_in(b, b->door.far, true));
    return 0;
}

/* Hears one out and tells it. True when it was one of ours. */
static bool tell(struct hkt_bootstrap *b, struct hkt_link *l)
{
    const uint64_t deadline = hkt_now_ns() + SHORT_NS;
    int            rc;

    while ((rc = listen_to(b, l)) == 0 && !hkt_socket_wait(l->fd, l->far && !l->proven ? l->proof.events : POLLIN, deadline))
        ;
    rc = rc == 1 && hkt_link_say(l, HKT_FAIL, b->sentence, strlen(b->sentence), b->code) == 0;
    hkt_link_close(l);
    return rc;
}

void hkt_door_turn_away(struct hkt_bootstrap *b, int most, uint64_t deadline)
{
    struct pollfd at[2] = {{.fd = b->door.near, .events = POLLIN}, {.fd = b->door.far, .events = POLLIN}};

    if (b->door.spare >= 0)
        close(b->door.spare);
    b->door.spare = -1;
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        if (l->fd >= 0 && l->state == HKT_LINK_STRANGER)
            most -= tell(b, l);
    while (most > 0 && !hkt_socket_late(deadline)) {
        const int n = poll(at, 2, hkt_socket_patience(deadline));

        for (int i = 0; i < 2 && n > 0; i++) {
            struct hkt_link l;
            const int       fd = !at[i].revents ? -EAGAIN : i ? hkt_inet_accept(at[i].fd, NULL) : hkt_socket_accept(at[i].fd);

            if (fd < 0 && fd != -EACCES && fd != -EAGAIN)
                return;
            if (fd < 0)
                continue;
            begin(b, &l, fd, i);
            most -= l.fd >= 0 && tell(b, &l);
        }
    }
}
