/* bootstrap.c -- what ranks that have met do: gather and part. See bootstrap.h; how they meet is in meet.c and join.c, how they fail in failure.c.
 *
 * A rank collects the parts of those below it in the order of the tree, where a subtree is one piece, and hands them up in one message. Rank 0
 * sorts them and sends the result down, the same bytes to all. A rank sends nothing after its part before it has the result, so what comes from it
 * meanwhile can only be a failure or the end.
 *
 * Messages are frames on stream sockets.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "socket.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const int ASK_MS = 400; /* to hear who is missing further down */

uint32_t hkt_bootstrap_version = HKT_VERSION;

/* ---- up ----------------------------------------------------------------------------------------------------------- */

/* Rank 0 wants to know who is missing. */
static int answer(struct hkt_bootstrap *b)
{
    memset(b->tree.mark, 0, (size_t)b->size);
    hkt_bootstrap_find_missing(b, b->up.head.code);
    hkt_link_expect(&b->up, 0, NULL, 0);
    return hkt_link_say(&b->up, HKT_MISSING, b->tree.mark, (size_t)b->size, 0) ? hkt_bootstrap_lose(b, &b->up, -EPIPE) : 0;
}

/* What there is from the children and from above. */
static int collect_turn(struct hkt_bootstrap *b, int *left)
{
    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        const int rc = hkt_bootstrap_ready(b, l->at) ? hkt_link_pull(l) : 0;

        if (rc < 0 || (rc && (l->done || l->head.kind != HKT_GATHER)))
            return hkt_bootstrap_lose(b, l, rc);
        if (!rc)
            continue;
        l->done = true;
        --*left;
        hkt_link_expect(l, 0, NULL, 0);
    }
    if (hkt_bootstrap_ready(b, b->up.at)) {
        const int rc = hkt_link_pull(&b->up);

        if (rc == 1 && b->up.head.kind == HKT_ASK)
            return answer(b);
        if (rc)
            return hkt_bootstrap_lose(b, &b->up, rc);
    }
    return 0;
}

/* Waits until the parts of all below are in `all`, behind this rank's. */
static int collect(struct hkt_bootstrap *b, size_t len, char *all, uint64_t deadline)
{
    int    left = b->links;
    size_t at   = len;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        const size_t part = (size_t)b->tree.size[l->peer.rank] * len;

        hkt_link_expect(l, HKT_GATHER, all + at, part);
        l->done = false;
        at += part;
    }
    hkt_link_expect(&b->up, 0, NULL, 0);
    while (left) {
        b->polls = 0;
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            l->at = hkt_bootstrap_watch(b, l->fd, POLLIN); /* those that have given their part can still fail or die */
        b->up.at = hkt_bootstrap_watch(b, b->up.fd, POLLIN);
        if (hkt_bootstrap_poll(b, deadline)) {
            if (b->rank)
                return hkt_bootstrap_lose(b, &b->up, -ETIMEDOUT);
            hkt_bootstrap_find_missing(b, ASK_MS);
            return hkt_bootstrap_give_up(b, "did not answer", b->tree.mark);
        }
        HKT_TRY(collect_turn(b, &left));
    }
    return 0;
}

/* ---- down --------------------------------------------------------------------------------------------------------- */

/* Sends the result to all children at once: a slow one holds up nobody but the end. */
static int distribute(struct hkt_bootstrap *b, uint64_t deadline)
{
    int left = b->links;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        l->done = false;
    while (left) {
        b->polls = 0;
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
            const int rc = l->done ? 0 : hkt_link_push(l, &b->out, b->out_body);

            if (rc < 0)
                return hkt_bootstrap_lose(b, l, rc == -ECONNRESET ? -EPIPE : rc);
            l->done = l->done || rc;
            left -= rc;
            l->at = l->done ? -1 : hkt_bootstrap_watch(b, l->fd, POLLOUT);
        }
        if (left && hkt_bootstrap_poll(b, deadline)) {
            for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
                if (!l->done)
                    return hkt_bootstrap_lose(b, l, -ETIMEDOUT);
        }
    }
    return 0;
}

/* Waits for the result from above; the children can fail or die meanwhile. */
static int await_result(struct hkt_bootstrap *b, char *all, size_t size, uint64_t deadline)
{
    hkt_link_expect(&b->up, HKT_RESULT, all, size);
    for (;;) {
        int rc;

        b->polls = 0;
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            l->at = hkt_bootstrap_watch(b, l->fd, POLLIN);
        b->up.at = hkt_bootstrap_watch(b, b->up.fd, POLLIN);
        if (hkt_bootstrap_poll(b, deadline))
            return hkt_bootstrap_lose(b, &b->up, -ETIMEDOUT);
        rc = hkt_bootstrap_ready(b, b->up.at) ? hkt_link_pull(&b->up) : 0;
        if (rc == 1 && b->up.head.kind == HKT_RESULT)
            return 0;
        if (rc == 1 && b->up.head.kind == HKT_ASK)
            hkt_link_expect(&b->up, HKT_RESULT, all, size); /* the answer is on its way */
        else if (rc)
            return hkt_bootstrap_lose(b, &b->up, rc);
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            if (hkt_bootstrap_ready(b, l->at) && (rc = hkt_link_pull(l)))
                return hkt_bootstrap_lose(b, l, rc);
    }
}

static int hand_up(struct hkt_bootstrap *b, size_t len, char *all, uint64_t deadline)
{
    const struct hkt_frame head = hkt_frame_make(HKT_GATHER, (size_t)b->tree.size[b->rank] * len);
    const int              rc   = hkt_link_push_all(&b->up, &head, all, deadline);

    if (rc)
        return hkt_bootstrap_lose(b, &b->up, rc == -ECONNRESET ? -EPIPE : rc);
    return await_result(b, all, (size_t)b->size * len, deadline);
}

/* ---- interface ---------------------------------------------------------------------------------------------------- */

static void close_all(struct hkt_bootstrap *b)
{
    hkt_link_close(&b->up);
    for (int i = 0; i < b->links; i++)
        hkt_link_close(&b->link[i]);
    hkt_door_close(b);
    hkt_hall_free(b);
    hkt_tree_free(&b->tree);
    hkt_free(b->start);
    hkt_free(b->link);
}

int hkt_bootstrap_open(struct hkt_bootstrap **made, const hkt_unique_id_t *id, int size, int rank, double timeout)
{
    struct hkt_bootstrap  b = {.size = size, .rank = rank, .up.fd = -1, .timeout = (uint64_t)(timeout * 1e9)};
    struct hkt_bootstrap *kept;
    int                   rc = 0;

    memcpy(&b.id, id, sizeof(b.id));
    HKT_TRY(hkt_id_check(&b.id));
    b.self = (struct hkt_hello){.version = hkt_bootstrap_version, .size = size, .rank = rank, .pid = getpid(), .host_id = hkt_inet_host()};
    if (gethostname(b.self.host, HKT_HOST - 1))
        memcpy(b.self.host, "?", 2);
    hkt_capabilities_own(&b.self.can);
    hkt_door_init(&b.door);
    if (size > 1)
        rc = rank ? hkt_meet_as_other(&b) : hkt_meet_as_hub(&b);
    kept = rc ? NULL : hkt_alloc(sizeof(*kept)); /* at the end, so that the others hear of it when it fails */
    if (!kept) {
        if (!rc)
            hkt_bootstrap_fail(&b, rc = HKT_ERR_MEMORY);
        close_all(&b);
        return rc;
    }
    *kept = b;
    *made = kept;
    return 0;
}

int hkt_bootstrap_all_gather(struct hkt_bootstrap *b, const void *mine, size_t len, void *all)
{
    const uint64_t deadline = hkt_now_ns() + b->timeout, patient = deadline + (b->rank ? HKT_GRACE_NS : 0);

    if (b->code)
        return hkt_fail_quiet(b->code, b->sentence);
    memmove(all, mine, len);
    if (b->size == 1)
        return 0;
    HKT_TRY(collect(b, len, all, patient));
    if (b->rank)
        HKT_TRY(hand_up(b, len, all, patient));
    else
        hkt_tree_sort(&b->tree, b->size, all, len);
    b->out      = hkt_frame_make(HKT_RESULT, (size_t)b->size * len);
    b->out_body = all;
    return distribute(b, patient);
}

bool hkt_bootstrap_common(const struct hkt_bootstrap *b, const char *capability)
{
    return hkt_capabilities_have(b->start ? b->start->may : b->self.can.may, capability);
}

void hkt_bootstrap_close(struct hkt_bootstrap *b)
{
    if (b)
        close_all(b);
    hkt_free(b);
}

unsigned hkt_bootstrap_strangers(const struct hkt_bootstrap *b)
{
    return b->refused;
}

int hkt_bootstrap_sockets(const struct hkt_bootstrap *b)
{
    return b->links + (b->up.fd >= 0);
}
