/* meet.c -- rank 0 while the ranks meet: it compares them, and gives each a parent in the order in which they come. See bootstrap.h for what is promised;
 * how the others take their places is left to join.c, what follows to bootstrap.c.
 *
 * A newcomer's parent is known at once, since it is one that has come before: on a host that is known, the first of its ranks that has room for a
 * child; the first of a host, the first such rank that has (rank 0, then the others, once they have said at which port). So rank 0 waits for nobody in
 * particular, needs a connection to each rank for the time of a few messages only, and the tree is as low as can be.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t AWAY_NS   = 1000000000u; /* how long late ranks are told of a failure */
static const uint64_t IN_USE_NS = 800000000u;  /* how long an id may be in use by somebody else before that is an error */
enum { GUESTS = 256 /* at a time; the others wait outside */ };

int hkt_bootstrap_arity = 16;

struct seat { /* of a rank */
    struct hkt_hello who;
    bool             here, linked;
    int32_t          parent; /* -1: it waits for one */
    int32_t          house, next;           /* who came after it, of the same house; -1: nobody */
    int32_t          near_children, far_children;
};

struct house { /* a host */
    uint64_t            id;
    int32_t             leader, last; /* the first and the last who came */
    int32_t             open;         /* the first that has room for a child of this host */
    bool                has_plate;    /* the leader can be found by other hosts */
    struct hkt_doorplate plate;
};

struct hkt_hall {
    struct seat  *seat; /* by rank */
    struct house *house;
    int           houses, linked;
    char         *mark; /* by rank */
    char          may[HKT_MAY];
};

bool hkt_meet_many(const struct hkt_bootstrap *b)
{
    return b->size > hkt_bootstrap_arity + 1;
}

int hkt_meet_room(struct hkt_bootstrap *b, int links)
{
    b->start = hkt_alloc(sizeof(*b->start) + (size_t)b->size * sizeof(b->start->parent[0]));
    b->link  = b->start ? hkt_alloc((size_t)links * (sizeof(*b->link) + sizeof(*b->poll)) + 3 * sizeof(*b->poll)) : NULL;
    if (!b->link)
        return HKT_ERR_MEMORY;
    b->poll = (struct pollfd *)(void *)(b->link + links);
    for (b->links = 0; b->links < links; b->links++)
        b->link[b->links].fd = -1;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct hkt_link *)a)->peer.rank - ((const struct hkt_link *)b)->peer.rank;
}

int hkt_meet_done(struct hkt_bootstrap *b)
{
    const size_t size = sizeof(*b->start) + (size_t)b->size * sizeof(b->start->parent[0]);
    int          kept = 0, rc;

    hkt_door_close(b); /* before anybody goes on: the id is free again */
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        if (l->fd >= 0 && l->state == HKT_LINK_MEMBER)
            b->link[kept++] = *l;
        else
            hkt_link_close(l);
    }
    b->links = kept;
    qsort(b->link, (size_t)kept, sizeof(*b->link), by_rank); /* as in the tree */
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        if (hkt_link_say(l, HKT_START, b->start, size, 0))
            return hkt_bootstrap_lose(b, l, -EPIPE);
    rc = hkt_tree_build(&b->tree, b->start->parent, b->size);
    if (rc)
        hkt_bootstrap_fail(b, rc);
    return rc;
}

/* ---- places ------------------------------------------------------------------------------------------------------- */

/* Makes it one of those of its host. */
static void enter_house(struct hkt_hall *hall, int rank)
{
    struct seat *seat = &hall->seat[rank];
    int          h    = 0;

    seat->next   = -1;
    seat->parent = -1;
    while (h < hall->houses && hall->house[h].id != seat->who.host_id)
        h++;
    seat->house = h;
    if (h == hall->houses) {
        hall->house[h] = (struct house){.id = seat->who.host_id, .leader = rank, .last = rank, .open = rank};
        hall->houses++;
        return;
    }
    hall->seat[hall->house[h].last].next = rank;
    hall->house[h].last                  = rank;
}

/* The parent for one that is no leader. */
static int near_parent(struct hkt_hall *hall, int rank)
{
    struct house *house = &hall->house[hall->seat[rank].house];

    while (hall->seat[house->open].near_children >= hkt_bootstrap_arity)
        house->open = hall->seat[house->open].next; /* there is one: whoever came last has none yet */
    hall->seat[house->open].near_children++;
    return house->open;
}

/* For one that is; -1: not now. */
static int far_parent(struct hkt_hall *hall)
{
    for (int h = 0; h < hall->houses; h++) {
        struct seat *leader = &hall->seat[hall->house[h].leader];

        if (leader->far_children < hkt_bootstrap_arity && (h == 0 || hall->house[h].has_plate)) {
            leader->far_children++;
            return hall->house[h].leader;
        }
    }
    return -1;
}

static void now_linked(struct hkt_hall *hall, struct seat *seat)
{
    hall->linked += !seat->linked;
    seat->linked = true;
}

/* Gives the guest its place, when there is one. */
static int place(struct hkt_bootstrap *b, struct hkt_link *l)
{
    struct hkt_hall *hall  = b->hall;
    struct seat     *seat  = &hall->seat[l->peer.rank];
    struct house    *house = &hall->house[seat->house];
    const bool       leads = house->leader == l->peer.rank;
    struct hkt_place place = {.leads = leads && hkt_meet_many(b)};

    if (!leads || seat->parent < 0)
        seat->parent = leads ? far_parent(hall) : near_parent(hall, l->peer.rank);
    if (seat->parent < 0)
        return 0;
    place.parent = hall->seat[seat->parent].who;
    if (leads && seat->parent) {
        const struct hkt_doorplate *plate = &hall->house[hall->seat[seat->parent].house].plate;

        place.count = plate->count;
        memcpy(place.at, plate->at, sizeof(place.at));
    }
    hkt_link_expect(l, place.leads ? HKT_DOOR : 0, place.leads ? &house->plate : NULL, sizeof(house->plate));
    if (seat->parent == 0) {
        l->state = HKT_LINK_MEMBER;
        if (!place.leads)
            now_linked(hall, seat);
    }
    return hkt_link_say(l, HKT_PLACE, &place, sizeof(place), 0) ? hkt_bootstrap_lose(b, l, -ECONNRESET) : 0;
}

/* The leader of a house can be found now: those that wait have a place. */
static int open_house(struct hkt_bootstrap *b, struct hkt_link *l)
{
    struct seat  *seat  = &b->hall->seat[l->peer.rank];
    struct house *house = &b->hall->house[seat->house];

    house->has_plate   = true;
    house->plate.count = house->plate.count < 0 || house->plate.count > HKT_ID_ADDRESSES ? 0 : house->plate.count;
    hkt_link_expect(l, 0, NULL, 0);
    if (seat->parent == 0)
        now_linked(b->hall, seat);
    for (struct hkt_link *guest = b->link; guest < b->link + b->links; guest++)
        if (guest->fd >= 0 && guest->state == HKT_LINK_GUEST && b->hall->seat[guest->peer.rank].parent < 0)
            HKT_TRY(place(b, guest));
    return 0;
}

/* ---- newcomers ---------------------------------------------------------------------------------------------------- */

/* Do these two ranks fit? If not, the thread's last error says why. */
static int compare(struct hkt_bootstrap *b, const struct hkt_hello *peer)
{
    char mine[HKT_NAME], theirs[HKT_NAME], differ[2 * HKT_MUST];

    hkt_rank_name(&b->self, mine);
    hkt_rank_name(peer, theirs);
    if (peer->version != b->self.version)
        return hkt_fail(HKT_ERR_MISMATCH, "%s has version %u of the library, %s version %u", theirs, peer->version, mine, b->self.version);
    if (peer->size != b->size || peer->rank <= 0 || peer->rank >= b->size)
        return hkt_fail(HKT_ERR_MISMATCH, "%s makes a communicator of %d ranks, %s one of %d", theirs, peer->size, mine, b->size);
    if (hkt_capabilities_differ(&peer->can, &b->self.can, differ, sizeof(differ)))
        return hkt_fail(HKT_ERR_MISMATCH, "%s and %s are set up differently: %s; make it the same on all ranks", theirs, mine, differ);
    return 0;
}

/* Makes who has proved itself a guest, or refuses it. An error means that these ranks can never meet. */
static int admit(struct hkt_bootstrap *b, struct hkt_link *l)
{
    struct seat *seat;
    int          rc;

    rc = compare(b, &l->peer);
    if (rc) {
        hkt_link_say(l, HKT_FAIL, hkt_last_error(), strlen(hkt_last_error()), rc);
        hkt_link_close(l);
        return hkt_bootstrap_die_all(b, rc);
    }
    seat = &b->hall->seat[l->peer.rank];
    if (seat->here) {
        char theirs[HKT_NAME];

        hkt_log(HKT_LOG_INFO, "%s came, but that rank is there already, in process %d", hkt_rank_name(&l->peer, theirs), seat->who.pid);
        hkt_link_say(l, HKT_BUSY, NULL, 0, 0);
        hkt_door_refuse(b, l);
        return 0;
    }
    seat->who  = l->peer;
    seat->here = true;
    l->state   = HKT_LINK_GUEST;
    hkt_capabilities_intersect(b->hall->may, l->peer.can.may);
    enter_house(b->hall, l->peer.rank);
    return place(b, l);
}

/* A guest, or a child that leads a house, has said something. */
static int guest_turn(struct hkt_bootstrap *b, struct hkt_link *l)
{
    struct seat *seat = &b->hall->seat[l->peer.rank];
    const int    rc   = hkt_link_pull(l);

    if (!rc)
        return 0;
    if (rc == 1 && l->head.kind == HKT_DOOR && l->body == &b->hall->house[seat->house].plate)
        return open_house(b, l);
    if (rc == 1 && l->head.kind == HKT_LINKED && l->state == HKT_LINK_GUEST) {
        now_linked(b->hall, seat);
        hkt_link_close(l);
        return 0;
    }
    if (rc == 1 && l->head.kind == HKT_STAY && l->state == HKT_LINK_GUEST) {
        seat->parent = 0;
        l->state     = HKT_LINK_MEMBER;
        now_linked(b->hall, seat);
        return hkt_link_say(l, HKT_JOINED, &b->self, sizeof(b->self), 0) ? hkt_bootstrap_lose(b, l, -ECONNRESET) : 0;
    }
    return hkt_bootstrap_lose(b, l, rc);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

/* Waits for something to happen, and sees to it. -ETIMEDOUT after the deadline. */
static int turn(struct hkt_bootstrap *b, uint64_t deadline)
{
    uint64_t next = deadline;

    b->polls = 0;
    hkt_door_watch(b, &next);
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        if (l->state != HKT_LINK_STRANGER)
            l->at = hkt_bootstrap_watch(b, l->fd, POLLIN);
    hkt_bootstrap_poll(b, next);
    if (hkt_socket_late(deadline))
        return -ETIMEDOUT;
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        if (l->fd >= 0 && l->state != HKT_LINK_STRANGER && hkt_bootstrap_ready(b, l->at))
            HKT_TRY(guest_turn(b, l));
    return hkt_door_turn(b, admit);
}

static int give_up(struct hkt_bootstrap *b)
{
    struct hkt_hall *hall   = b->hall;
    bool             absent = false;

    for (int r = 1; r < b->size; r++)
        absent = absent || !hall->seat[r].here;
    for (int r = 1; r < b->size; r++)
        hall->mark[r] = absent ? !hall->seat[r].here : !hall->seat[r].linked;
    return hkt_bootstrap_give_up(b, absent ? "did not come" : "came, but did not reach their place in the tree", hall->mark);
}

/* How many have not come. */
static int missing(const struct hkt_bootstrap *b)
{
    int n = b->hall ? 0 : b->size - 1;

    for (int r = 1; b->hall && r < b->size; r++)
        n += !b->hall->seat[r].here;
    return n;
}

/* For ranks on other hosts: the listener that came with the id, or another one at the same port. */
static int open_far(struct hkt_bootstrap *b)
{
    uint16_t port = b->id.port;

    if (!port || !hkt_proof_supported())
        return 0;
    b->door.far = hkt_id_listener(&b->id);
    if (b->door.far < 0)
        b->door.far = hkt_inet_listen(&port, SOMAXCONN);
    if (b->door.far < 0 && b->id.fixed)
        return b->door.far;
    if (b->door.far < 0) {
        b->door.far = -1;
        hkt_log(HKT_LOG_WARN, "ranks on other hosts will not find rank 0: %s; is it in the process that called hkt_unique_id()?", hkt_last_error());
    }
    return 0;
}

static int open_door(struct hkt_bootstrap *b)
{
    const uint64_t until = hkt_now_ns() + (b->timeout < IN_USE_NS ? b->timeout : IN_USE_NS);
    char           name[64];
    int            rc;

    hkt_id_socket(&b->id, name);
    while ((rc = hkt_door_near(b, name)) == -EADDRINUSE && hkt_now_ns() < until)
        poll(NULL, 0, 2); /* a communicator made from the same id is about to be complete, maybe */
    if (rc == -EADDRINUSE)
        return hkt_fail(HKT_ERR_ARGUMENT, "this id is in use: another rank 0 is waiting for its others with it");
    if (rc)
        return hkt_fail(HKT_ERR_SYSTEM, "cannot open a socket for the other ranks: %s", hkt_errno_text(-rc));
    return open_far(b);
}

static int open_hall(struct hkt_bootstrap *b)
{
    const size_t     n    = (size_t)b->size;
    struct hkt_hall *hall = hkt_alloc(sizeof(*hall) + n * (sizeof(*hall->seat) + sizeof(*hall->house) + sizeof(*hall->mark)));

    if (!hall)
        return HKT_ERR_MEMORY;
    hall->seat  = (struct seat *)(void *)(hall + 1);
    hall->house = (struct house *)(void *)(hall->seat + n);
    hall->mark  = (char *)(hall->house + n);
    memcpy(hall->may, b->self.can.may, HKT_MAY);
    hall->seat[0] = (struct seat){.who = b->self, .here = true, .linked = true};
    b->hall       = hall;
    enter_house(hall, 0);
    return hkt_meet_room(b, HKT_STRANGERS + (b->size - 1 < GUESTS ? b->size - 1 : GUESTS + 2 * hkt_bootstrap_arity));
}

void hkt_hall_free(struct hkt_bootstrap *b)
{
    hkt_free(b->hall);
    b->hall = NULL;
}

static int wait_for_all(struct hkt_bootstrap *b)
{
    const uint64_t deadline = hkt_now_ns() + b->timeout;
    int            rc       = open_hall(b);

    if (rc)
        hkt_bootstrap_fail(b, rc);
    while (!rc && b->hall->linked < b->size - 1)
        rc = turn(b, deadline);
    return rc == -ETIMEDOUT ? give_up(b) : rc;
}

int hkt_meet_as_hub(struct hkt_bootstrap *b)
{
    int rc = open_door(b);

    HKT_TRY(rc);
    rc = wait_for_all(b);
    if (rc) {
        if (rc != HKT_ERR_TIMEOUT)
            hkt_door_turn_away(b, missing(b), hkt_now_ns() + (b->timeout < AWAY_NS ? b->timeout : AWAY_NS));
        hkt_door_close(b);
        return hkt_fail_quiet(b->code, b->sentence);
    }
    memcpy(b->start->may, b->hall->may, HKT_MAY);
    for (int r = 0; r < b->size; r++)
        b->start->parent[r] = b->hall->seat[r].parent;
    hkt_hall_free(b);
    if (b->refused)
        hkt_log(HKT_LOG_INFO, "%u connections of strangers were refused while the ranks met", b->refused);
    return hkt_meet_done(b);
}
