/* failure.c -- who hears of what when a bootstrap fails.
 *
 * A rank that fails, or sees a neighbour in the tree fail, tells its parent, and so rank 0 hears of it. Rank 0 is the one place where failures are known:
 * the first that it hears of goes down to all. A rank between waits for that verdict a little before it dies, so that all end with the same sentence;
 * those below a rank that has died see that themselves, and name the same rank.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint64_t SILENCE_NS = 1000000000u; /* to tell everybody of a failure; to be told */

const char *hkt_rank_name(const struct hkt_hello *rank, char text[HKT_NAME])
{
    snprintf(text, HKT_NAME, "rank %d (host %.*s, pid %d)", rank->rank, HKT_HOST - 1, rank->host, rank->pid);
    return text;
}

/* ---- polling ------------------------------------------------------------------------------------------------------ */

int hkt_bootstrap_watch(struct hkt_bootstrap *b, int fd, short events)
{
    if (fd < 0)
        return -1;
    b->poll[b->polls] = (struct pollfd){.fd = fd, .events = events};
    return b->polls++;
}

int hkt_bootstrap_poll(struct hkt_bootstrap *b, uint64_t deadline)
{
    const int patience = hkt_socket_patience(deadline);

    if (poll(b->poll, (nfds_t)b->polls, patience) < 0) /* interrupted: nothing has happened, the caller looks again */
        for (int i = 0; i < b->polls; i++)
            b->poll[i].revents = 0;
    return patience ? 0 : -ETIMEDOUT;
}

bool hkt_bootstrap_ready(const struct hkt_bootstrap *b, int at)
{
    return at >= 0 && b->poll[at].revents;
}

/* ---- telling ------------------------------------------------------------------------------------------------------ */

/* Keeps why the bootstrap is dead. */
static int die(struct hkt_bootstrap *b, int code)
{
    if (!b->code) {
        b->code = code;
        snprintf(b->sentence, sizeof(b->sentence), "%s", hkt_last_error());
    }
    return hkt_fail_quiet(b->code, b->sentence);
}

static void tell_down(struct hkt_bootstrap *b, const char *sentence, int code)
{
    const uint64_t deadline = hkt_now_ns() + SILENCE_NS;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
        /* A result that has begun must end before anything else can be said. */
        if (l->fd >= 0 && l->state != HKT_LINK_STRANGER && (l->sent == 0 || hkt_link_push_all(l, &b->out, b->out_body, deadline) == 0))
            hkt_link_say(l, HKT_FAIL, sentence, strlen(sentence), code);
}

static void tell_up(struct hkt_bootstrap *b, const char *sentence, int code)
{
    if (b->up.fd >= 0 && b->up.sent == 0) /* else it is in the middle of another frame, and can only hang up */
        hkt_link_say(&b->up, HKT_FAIL, sentence, strlen(sentence), code);
}

int hkt_bootstrap_die_all(struct hkt_bootstrap *b, int code)
{
    const bool first = !b->code;

    die(b, code);
    if (first)
        tell_down(b, b->sentence, b->code);
    return hkt_fail_quiet(b->code, b->sentence);
}

void hkt_bootstrap_fail(struct hkt_bootstrap *b, int code)
{
    char sentence[HKT_TEXT + 2 * HKT_NAME], name[HKT_NAME];

    if (!b || b->code)
        return;
    snprintf(sentence, sizeof(sentence), "%s: %s", hkt_rank_name(&b->self, name), hkt_last_error());
    sentence[HKT_TEXT - 1] = 0;
    if (b->rank == 0) /* those who come later are told what it keeps */
        hkt_fail_quiet(code, sentence);
    die(b, code);
    tell_up(b, sentence, code);
    tell_down(b, sentence, code);
}

/* ---- hearing ------------------------------------------------------------------------------------------------------ */

int hkt_bootstrap_hear(struct hkt_link *l)
{
    char      text[HKT_TEXT];
    const int code = l->head.code < 0 ? l->head.code : HKT_ERR_INTERNAL;

    hkt_link_sentence(l, text, sizeof(text));
    return hkt_fail_quiet(code, text);
}

/* What rank 0 makes of a failure that it has been told of. 0 when it does not say. */
static int verdict(struct hkt_bootstrap *b)
{
    const uint64_t deadline = hkt_now_ns() + SILENCE_NS;
    int            rc       = 0;

    while (b->up.fd >= 0 && rc == 0) {
        rc = hkt_link_pull(&b->up);
        if (rc == 1 && b->up.head.kind == HKT_FAIL)
            return hkt_bootstrap_hear(&b->up);
        if (rc == 1 && (b->up.head.kind == HKT_ASK || b->up.got > sizeof(b->up.head))) {
            hkt_link_expect(&b->up, 0, NULL, 0); /* said before it has heard */
            rc = 0;
        } else if (rc == 0)
            rc = hkt_socket_wait(b->up.fd, POLLIN, deadline);
    }
    return 0;
}

/* What happened to the one at the other end, as this thread's last error. */
static int what_happened(struct hkt_bootstrap *b, struct hkt_link *l, int error)
{
    char name[HKT_NAME];

    hkt_rank_name(&l->peer, name);
    if (error == -EPIPE || error == -ECONNRESET) { /* it may have said why before it went */
        hkt_link_expect(l, 0, NULL, 0);
        if (error == -EPIPE)
            error = hkt_link_pull(l);
    }
    if (error == 1 && l->head.kind == HKT_FAIL)
        return hkt_bootstrap_hear(l);
    if (error >= 0 || error == -EPROTO)
        return hkt_fail(HKT_ERR_INTERNAL, "%s and rank %d are not at the same point of making the communicator", name, b->rank);
    if (error == -ETIMEDOUT)
        return hkt_fail(HKT_ERR_TIMEOUT, "%s did not answer within %.3g s while the communicator was being made", name,
                        (double)b->timeout / 1e9);
    return hkt_fail(HKT_ERR_PEER, "%s died or left while the communicator was being made", name);
}

int hkt_bootstrap_lose(struct hkt_bootstrap *b, struct hkt_link *l, int error)
{
    int code = what_happened(b, l, error);

    if (b->code)
        return die(b, code);
    if (b->rank && (l != &b->up || error == -ETIMEDOUT)) {
        int said;

        tell_up(b, hkt_last_error(), code);
        said = l != &b->up ? verdict(b) : 0;
        code = said ? said : code;
    }
    hkt_link_close(l);
    return hkt_bootstrap_die_all(b, code);
}

/* ---- who is missing ----------------------------------------------------------------------------------------------- */

/* Marks those that have not given their part, as far as can be known from here: asks the children that wait for others themselves. */
void hkt_bootstrap_find_missing(struct hkt_bootstrap *b, int ms)
{
    const uint64_t deadline = hkt_now_ns() + (uint64_t)ms * 1000000u;
    int            asked    = 0;

    for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
        if (l->done)
            continue;
        b->tree.mark[l->peer.rank] = 1; /* until it answers */
        if (b->tree.size[l->peer.rank] > 1 && l->got == 0 && hkt_link_say(l, HKT_ASK, NULL, 0, ms * 3 / 4) == 0)
            asked++;
        else
            l->done = true;
    }
    while (asked && hkt_now_ns() < deadline) {
        b->polls = 0;
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++)
            l->at = l->done ? -1 : hkt_bootstrap_watch(b, l->fd, POLLIN);
        hkt_bootstrap_poll(b, deadline);
        for (struct hkt_link *l = b->link; l < b->link + b->links; l++) {
            const int rc = hkt_bootstrap_ready(b, l->at) ? hkt_link_pull(l) : 0;
            char     *at = b->tree.mark + b->size;

            if (!rc)
                continue;
            asked--;
            l->done                    = true;
            b->tree.mark[l->peer.rank] = rc < 0;
            if (rc == 1 && l->head.kind == HKT_MISSING && hkt_link_body(l, at, (size_t)b->size) == (size_t)b->size)
                for (int r = 0; r < b->size; r++)
                    b->tree.mark[r] |= at[r];
        }
    }
}

/* Which ranks are marked, as "3, 5-7"; gives their number. */
static int list_missing(const char *mark, int n, char *text, size_t size)
{
    size_t at    = 0;
    int    count = 0;

    text[0] = 0;
    for (int r = 1, end; r < n; r = end + 1) {
        end = r;
        if (!mark[r])
            continue;
        while (end + 1 < n && mark[end + 1])
            end++;
        count += end - r + 1;
        if (at + 40 < size)
            at += (size_t)snprintf(text + at, size - at, end > r ? "%s%d-%d" : "%s%d", at ? ", " : "", r, end);
    }
    return count;
}

int hkt_bootstrap_give_up(struct hkt_bootstrap *b, const char *what, const char *mark)
{
    char list[512];
    int  missing;

    if (hkt_socket_stopped()) {
        hkt_fail(HKT_ERR_ABORTED, "rank 0 gave the communicator up while it was being made");
        return hkt_bootstrap_die_all(b, HKT_ERR_ABORTED);
    }
    missing = list_missing(mark, b->size, list, sizeof(list));
    hkt_fail(HKT_ERR_TIMEOUT, "%d of %d ranks %s within %.3g s (limit: HKT_INIT_TIMEOUT): %s", missing, b->size, what,
             (double)b->timeout / 1e9, list);
    return hkt_bootstrap_die_all(b, HKT_ERR_TIMEOUT);
}
