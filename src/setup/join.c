/* join.c -- a rank other than 0 comes to the meeting: it knocks at rank 0's door, is told who its parent is, joins that, and lets in those that are told to
 * join it. See meet.c for the other side.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "reach.h"
#include "socket.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t IN_USE_NS   = 800000000u;   /* how long a rank may be there already before that is an error */
static const uint64_t REACH_NS    = 5000000000u; /* how long a parent is tried */
enum { STRANGERS = 16 /* that a door other than rank 0's has room for */ };

/* How a rank comes to rank 0. */
struct knock {
    struct hkt_bootstrap *b;
    char                  name[64];
    bool                  near, far; /* the ways there are */
    int                   error;     /* -errno of the last attempt */
    uint64_t              deadline;
    struct hkt_reach      reach;
};

/* ---- the own door ------------------------------------------------------------------------------------------------- */

static void door_name(char name[64], uint64_t door)
{
    snprintf(name, 64, "hocket-door-%016" PRIx64, door);
}

/* For ranks of the same host. */
static int open_door(struct hkt_bootstrap *b)
{
    char name[64];
    int  rc;

    HKT_TRY(hkt_random(&b->self.door, sizeof(b->self.door)));
    door_name(name, b->self.door);
    rc = hkt_door_near(b, name);
    return rc ? hkt_fail(HKT_ERR_SYSTEM, "cannot open a socket for other ranks: %s", hkt_errno_text(-rc)) : 0;
}

/* For other hosts, and says where it is. */
static int open_far(struct hkt_bootstrap *b)
{
    struct hkt_doorplate plate = {.count = 0};
    uint16_t             port  = 0;
    int                  count = hkt_inet_own(plate.at, HKT_ID_ADDRESSES);

    HKT_TRY(count);
    b->door.far = hkt_inet_listen(&port, SOMAXCONN);
    if (b->door.far < 0) {
        const int rc = b->door.far;

        b->door.far = -1;
        return rc;
    }
    for (plate.count = 0; plate.count < count; plate.count++)
        plate.at[plate.count].port = port;
    return hkt_link_say(&b->up, HKT_DOOR, &plate, sizeof(plate), 0) ? hkt_bootstrap_lose(b, &b->up, -EPIPE) : 0;
}

/* Who has proved itself becomes a child. Whether it should is rank 0's business, which has sent it. */
static int admit(struct hkt_bootstrap *b, struct hkt_link *l)
{
    if (l->peer.version != b->self.version || l->peer.size != b->size || l->peer.rank <= 0 || l->peer.rank >= b->size ||
        l->peer.rank == b->rank || hkt_link_say(l, HKT_JOINED, &b->self, sizeof(b->self), 0)) {
        hkt_door_refuse(b, l);
        return 0;
    }
    l->state = HKT_LINK_MEMBER;
    return 0;
}

/* ---- rank 0's door ------------------------------------------------------------------------------------------------ */

static int no_hub(const struct knock *k)
{
    const double seconds = (double)k->b->timeout / 1e9;
    char         tried[512];

    if (k->error == -EACCES)
        return hkt_fail(HKT_ERR_SYSTEM, "another user's process listens where rank 0 of this communicator should");
    if (k->error == -ETIMEDOUT)
        return hkt_fail(HKT_ERR_TIMEOUT, "rank 0 holds its socket but has not answered for %.3g s: is it stopped?", seconds);
    if (k->error == -ECONNRESET)
        return hkt_fail(HKT_ERR_TIMEOUT, "rank 0 has hung up on this rank for %.3g s: do both hold the same id?", seconds);
    if (k->far)
        return hkt_fail(HKT_ERR_TIMEOUT,
                        "rank 0 did not come within %.3g s (limit: HKT_INIT_TIMEOUT), or this host cannot reach it: %s. Does a firewall let TCP "
                        "through (HKT_PORTS), do HKT_IFNAME and HKT_SUBNET fit both hosts, and is rank 0 in the process that made the id?",
                        seconds, hkt_reach_text(&k->reach, tried, sizeof(tried)));
    if (k->error != -ECONNREFUSED && k->error != -EAGAIN)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot connect to rank 0: %s", hkt_errno_text(-k->error));
    return hkt_fail(
        HKT_ERR_TIMEOUT,
        "rank 0 did not come within %.3g s (limit: HKT_INIT_TIMEOUT): is it running on this machine, in the same "
        "network namespace, with the same id?",
        seconds);
}

/* Says hello over a new connection and waits for an answer of that kind. 0: it, or another header, is there; -errno. */
static int say_hello(const struct hkt_bootstrap *b, struct hkt_link *l, enum hkt_frame_kind answer, void *body, uint64_t deadline)
{
    const size_t     size  = answer == HKT_PLACE ? sizeof(struct hkt_place) : sizeof(struct hkt_hello);
    struct hkt_hello hello = b->self;
    int              rc;

    if (!l->far) {
        memcpy(hello.public_key, b->id.public_key, HKT_KEY);
        memcpy(hello.secret, b->id.secret, HKT_KEY); /* only now: the other end is this user's */
    }
    rc = hkt_link_say(l, HKT_HELLO, &hello, sizeof(hello), 0);
    hkt_link_expect(l, answer, body, size);
    return rc ? rc : hkt_link_pull_all(l, deadline);
}

/* A connection to rank 0, by the ways there are; -errno. */
static int come(struct knock *k, bool *far)
{
    int fd = -ECONNREFUSED;

    *far = false;
    if (k->near)
        fd = hkt_socket_connect(SOCK_STREAM, k->name, NULL);
    if (fd < 0 && k->far && fd != -EMFILE && fd != -ENFILE) {
        const int other = hkt_reach_turn(&k->reach);

        *far = true;
        fd   = other >= 0 || !k->near ? other : fd;
    }
    return fd;
}

/* One attempt. 0: there is a place; 1: not now, try again; 2: rank taken, try again; or HKT_ERR_*. */
static int knock(struct knock *k, struct hkt_place *place)
{
    struct hkt_bootstrap *b = k->b;
    bool                  far;
    int                   rc;

    k->error = b->up.fd = come(k, &far);
    if (b->up.fd == -EACCES || b->up.fd == -EMFILE || b->up.fd == -ENFILE)
        return no_hub(k);
    if (b->up.fd < 0)
        return 1;
    b->up.far = far;
    rc        = say_hello(b, &b->up, HKT_PLACE, place, k->deadline);
    if (!rc && b->up.head.kind == HKT_PLACE)
        return 0;
    if (!rc && b->up.head.kind == HKT_FAIL)
        return hkt_bootstrap_hear(&b->up);
    hkt_link_close(&b->up);
    k->error = rc ? rc : -EPIPE;
    return rc ? 1 : 2;
}

/* Between two attempts. */
static void rest(const struct knock *k, int ms)
{
    struct pollfd polls[HKT_REACH_TRIES];
    uint64_t      until;

    poll(polls, k->far ? (nfds_t)hkt_reach_poll(&k->reach, polls, &until) : 0, ms);
}

static int knock_until(struct knock *k, struct hkt_place *place)
{
    uint64_t busy_until = 0;
    bool     hung_up    = false;
    int      delay = 1, rc;

    while ((rc = knock(k, place)) > 0) {
        const uint64_t now = hkt_now_ns();

        hung_up = hung_up || k->error == -ECONNRESET || k->error == -EPIPE;
        if (rc == 2 && !busy_until)
            busy_until = now + IN_USE_NS;
        if (rc == 2 && now >= busy_until)
            return hkt_fail(HKT_ERR_ARGUMENT, "this id is in use: a rank %d is there already", k->b->rank);
        if (hkt_socket_late(k->deadline)) {
            k->error = k->error == -EPIPE || (hung_up && k->error == -ETIMEDOUT) ? -ECONNRESET : k->error;
            return no_hub(k);
        }
        rest(k, delay);
        delay = delay < 14 ? delay + delay / 2 + 1 : 20;
    }
    return rc;
}

/* Which ways lead to rank 0. On its own host that is the unix socket; an id that does not say where that is may be of this one. */
static int ways(struct knock *k)
{
    struct hkt_bootstrap   *b = k->b;
    struct hkt_inet_address list[HKT_ID_ADDRESSES];
    const int               count = hkt_id_addresses(&b->id, list);
    unsigned char           key[HKT_PROOF_KEY];

    hkt_id_socket(&b->id, k->name);
    k->near = count == 0 || b->id.host == 0 || b->id.host == b->self.host_id;
    k->far  = count > 0 && b->id.host != b->self.host_id;
    memcpy(key, &b->id, sizeof(key));
    return k->far ? hkt_reach_begin(&k->reach, list, count, key, 0) : 0;
}

/* ---- the parent --------------------------------------------------------------------------------------------------- */

/* A connection to the parent, or -errno; what was tried in `tried`. */
static int come_to_parent(const struct hkt_bootstrap *b, const struct hkt_place *place, uint64_t deadline, char tried[512])
{
    char             name[64];
    unsigned char    key[HKT_PROOF_KEY];
    struct hkt_reach reach;
    int              fd;

    if (!place->count) {
        door_name(name, place->parent.door);
        while ((fd = hkt_socket_connect(SOCK_STREAM, name, NULL)) == -EAGAIN && !hkt_socket_late(deadline))
            poll(NULL, 0, 2);
        snprintf(tried, 512, "%s", fd < 0 ? hkt_errno_text(-fd) : "");
        return fd;
    }
    memcpy(key, &b->id, sizeof(key));
    if (hkt_reach_begin(&reach, place->at, place->count < HKT_ID_ADDRESSES ? place->count : HKT_ID_ADDRESSES, key, (uint64_t)place->parent.rank))
        return -ENOTSUP;
    fd = hkt_reach_wait(&reach, deadline);
    hkt_reach_text(&reach, tried, 512);
    hkt_reach_end(&reach);
    return fd;
}

/* The parent could not be joined: rank 0, which could be reached, takes its place. */
static int stay(struct hkt_bootstrap *b, const struct hkt_link *hub, const struct hkt_place *place, const char *tried)
{
    const uint64_t deadline = hkt_now_ns() + b->timeout;
    char           name[HKT_NAME];
    int            rc;

    b->up = *hub;
    hkt_log(HKT_LOG_WARN, "rank %d cannot join %s, its parent in the tree, but rank 0 instead: %s", b->rank, hkt_rank_name(&place->parent, name),
            tried);
    hkt_link_expect(&b->up, HKT_JOINED, &b->up.peer, sizeof(b->up.peer));
    rc = hkt_link_say(&b->up, HKT_STAY, NULL, 0, 0);
    if (!rc)
        rc = hkt_link_pull_all(&b->up, deadline + HKT_GRACE_NS);
    return rc == 0 && b->up.head.kind == HKT_JOINED ? 0 : hkt_bootstrap_lose(b, &b->up, rc ? rc : 1);
}

/* Joins the parent: b->up, which leads to rank 0, becomes the connection to it. */
static int join_parent(struct hkt_bootstrap *b, const struct hkt_place *place, uint64_t deadline)
{
    const uint64_t  now  = hkt_now_ns(), half = deadline > now ? (deadline - now) / 2 : 0;
    const uint64_t  most = now + (half < REACH_NS ? half : REACH_NS);
    struct hkt_link hub  = b->up;
    char            tried[512];
    int             rc;

    b->up = (struct hkt_link){.fd = come_to_parent(b, place, most, tried), .far = place->count > 0, .peer = place->parent};
    if (b->up.fd < 0)
        return stay(b, &hub, place, tried);
    rc = say_hello(b, &b->up, HKT_JOINED, &b->up.peer, most);
    if (rc || b->up.head.kind != HKT_JOINED) {
        hkt_link_close(&b->up);
        return stay(b, &hub, place, rc ? strerror(-rc) : "it said something else");
    }
    hkt_link_say(&hub, HKT_LINKED, NULL, 0, 0); /* if rank 0 is dead, the parent will say so */
    hkt_link_close(&hub);
    return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

/* Lets children in until all ranks are there. */
static int serve(struct hkt_bootstrap *b, uint64_t deadline)
{
    int rc = 0;

    while (!rc) {
        uint64_t next = deadline;

        b->polls = 0;
        hkt_door_watch(b, &next);
        b->up.at = hkt_bootstrap_watch(b, b->up.fd, POLLIN);
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            if (l->state != HKT_LINK_STRANGER)
                l->at = hkt_bootstrap_watch(b, l->fd, POLLIN);
        hkt_bootstrap_poll(b, next);
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            if (l->fd >= 0 && l->state != HKT_LINK_STRANGER && hkt_bootstrap_ready(b, l->at) && (rc = hkt_link_pull(l)))
                return hkt_bootstrap_lose(b, l, rc);
        HKT_TRY(hkt_door_turn(b, admit));
        if (hkt_bootstrap_ready(b, b->up.at))
            rc = hkt_link_pull(&b->up);
        else if (hkt_socket_late(deadline))
            rc = -ETIMEDOUT;
    }
    return rc < 0 ? rc : 0;
}

/* The first rank of its host opens its door to others, everybody joins its parent and waits for the start. */
static int take_place(struct hkt_bootstrap *b, const struct hkt_place *place, uint64_t deadline)
{
    int rc = 0;

    b->up.peer  = place->parent;
    b->up.state = HKT_LINK_MEMBER;
    if (place->leads) {
        rc = open_far(b);
        if (rc) {
            hkt_bootstrap_fail(b, rc);
            return rc;
        }
    }
    if (place->parent.rank)
        HKT_TRY(join_parent(b, place, deadline));
    hkt_link_expect(&b->up, HKT_START, b->start, sizeof(*b->start) + (size_t)b->size * sizeof(b->start->parent[0]));
    rc = b->links ? serve(b, deadline + HKT_GRACE_NS) : hkt_link_pull_all(&b->up, deadline + HKT_GRACE_NS);
    if (b->code)
        return rc;
    return rc == 0 && b->up.head.kind == HKT_START ? hkt_meet_done(b) : hkt_bootstrap_lose(b, &b->up, rc ? rc : 1);
}

int hkt_meet_as_other(struct hkt_bootstrap *b)
{
    struct hkt_place place;
    struct knock     k = {.b = b, .deadline = hkt_now_ns() + b->timeout};
    const bool       door = hkt_meet_many(b) || (b->id.port && b->id.host != b->self.host_id); /* there may be ranks of this host below */
    int              rc   = ways(&k), room;

    HKT_TRY(rc);
    room = hkt_meet_room(b, door ? 2 * hkt_bootstrap_arity + STRANGERS : 0);
    if (!room && door)
        room = open_door(b);
    rc = knock_until(&k, &place);
    hkt_reach_end(&k.reach);
    HKT_TRY(rc);
    if (room) { /* said only now that somebody hears it */
        hkt_bootstrap_fail(b, room);
        return room;
    }
    return take_place(b, &place, k.deadline);
}
