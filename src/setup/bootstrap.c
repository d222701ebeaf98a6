/* bootstrap.c -- what ranks that have met (meet.c) do: gather, fail, part. See bootstrap.h.
 *
 * Rank 0 is the hub: it polls all connections at once, so that a stranger or a slow rank holds up nobody, and it is the
 * one place where failures are known: a rank tells the hub, the hub tells all. The others have one connection each.
 *
 * Messages are frames on stream sockets. A rank sends nothing after a gather's data before it has the result, so what
 * the hub reads from it meanwhile can only be a failure or the end.
 */
#include "meet.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "socket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint32_t ID_MAGIC   = 0x31544b48u;
static const uint64_t SILENCE_NS = 1000000000u; /* to tell everybody of a failure */

uint32_t hkt_bootstrap_version = HKT_VERSION;

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* Keeps why the bootstrap is dead. */
static int die(struct hkt_bootstrap *b, int code)
{
    if (!b->code) {
        b->code = code;
        snprintf(b->sentence, sizeof(b->sentence), "%s", hkt_last_error());
    }
    return hkt_fail_quiet(b->code, b->sentence);
}

/* The same on rank 0, which tells the others. */
int hkt_bootstrap_die_all(struct hkt_bootstrap *b, int code)
{
    const bool     first    = !b->code;
    const uint64_t deadline = hkt_now_ns() + SILENCE_NS;

    die(b, code);
    for (int r = 1; first && b->link && r < b->size; r++) {
        struct hkt_link *l = &b->link[r];

        /* A result that has begun must end before anything else can be said. */
        if (l->fd >= 0 && (l->sent == 0 || hkt_link_push_all(l, &b->result, b->result_body, deadline) == 0))
            hkt_link_say(l, HKT_FAIL, b->sentence, strlen(b->sentence), b->code);
    }
    return hkt_fail_quiet(b->code, b->sentence);
}

const char *hkt_rank_name(const struct hkt_hello *rank, char text[HKT_NAME])
{
    snprintf(text, HKT_NAME, "rank %d (host %.*s, pid %d)", rank->rank, HKT_HOST - 1, rank->host, rank->pid);
    return text;
}

/* Reads the sentence of a HKT_FAIL whose header has come and takes it over as this thread's error. */
int hkt_bootstrap_hear(struct hkt_link *l, const char *prefix)
{
    char      text[HKT_TEXT], sentence[HKT_TEXT + 2 * HKT_NAME];
    const int code = l->head.code < 0 ? l->head.code : HKT_ERR_INTERNAL;

    hkt_link_sentence(l, text, sizeof(text));
    snprintf(sentence, sizeof(sentence), "%s%s%s", prefix, *prefix ? ": " : "", text);
    return hkt_fail_quiet(code, sentence);
}

void hkt_bootstrap_fail(struct hkt_bootstrap *b, int code)
{
    char sentence[HKT_TEXT + 2 * HKT_NAME], name[HKT_NAME];

    if (!b || b->code)
        return;
    if (b->rank) {
        if (b->hub.sent == 0) /* else it is in the middle of another frame, and can only hang up */
            hkt_link_say(&b->hub, HKT_FAIL, hkt_last_error(), strlen(hkt_last_error()), code);
        die(b, code);
        return;
    }
    hkt_rank_name(&b->self, name);
    snprintf(b->sentence, sizeof(b->sentence), "%s", hkt_last_error());
    snprintf(sentence, sizeof(sentence), "%s: %s", name, b->sentence);
    hkt_fail_quiet(code, sentence);
    hkt_bootstrap_die_all(b, code);
}

/* The failure of the rank at the other end: what it says, or that it is gone. On rank 0 all hear of it. */
int hkt_bootstrap_lose(struct hkt_bootstrap *b, struct hkt_link *l, int error)
{
    char name[HKT_NAME];
    int  code;

    hkt_rank_name(&l->peer, name);
    if (error == -EPIPE || error == -ECONNRESET) { /* it may have said why before it went */
        hkt_link_expect(l, 0, NULL, 0);
        if (error == -EPIPE)
            error = hkt_link_pull(l);
    }
    if (error == 1 && l->head.kind == HKT_FAIL)
        code = hkt_bootstrap_hear(l, b->rank == 0 ? name : "");
    else if (error >= 0 || error == -EPROTO)
        code = hkt_fail(HKT_ERR_INTERNAL, "%s and rank %d are not at the same point of making the communicator", name,
                        b->rank);
    else if (error == -ETIMEDOUT)
        code = hkt_fail(HKT_ERR_TIMEOUT, "%s did not answer within %.3g s while the communicator was being made", name,
                        (double)b->timeout / 1e9);
    else
        code = hkt_fail(HKT_ERR_PEER, "%s died or left while the communicator was being made", name);
    if (b->rank && error == -ETIMEDOUT)
        hkt_bootstrap_fail(b, code);
    return b->rank == 0 ? hkt_bootstrap_die_all(b, code) : die(b, code);
}

/* Polls what has been put into b->poll. 0, or -ETIMEDOUT. */
int hkt_bootstrap_poll(struct hkt_bootstrap *b, int n, uint64_t deadline)
{
    const int patience = hkt_socket_patience(deadline);
    int       open = 0, at = 0, events;

    for (int i = 0; i < n; i++) /* poll() refuses more entries than the process may have descriptors */
        if (b->poll[i].fd >= 0)
            b->packed[open++] = b->poll[i];
    events = poll(b->packed, (nfds_t)open, patience); /* interrupted: nothing has happened, the caller looks again */
    for (int i = 0; i < n; i++) {
        const bool asked = b->poll[i].fd >= 0;

        b->poll[i].revents = asked && events > 0 ? b->packed[at].revents : 0;
        at += asked;
    }
    return patience ? 0 : -ETIMEDOUT;
}

/* Which ranks are missing, as "3, 5-7". */
static void list_missing(const struct hkt_bootstrap *b, char *text, size_t size)
{
    size_t at = 0;

    text[0] = 0;
    for (int r = 1, end; r < b->size && at + 40 < size; r = end + 1) {
        end = r;
        if (b->link[r].fd >= 0 && b->link[r].done)
            continue;
        while (end + 1 < b->size && (b->link[end + 1].fd < 0 || !b->link[end + 1].done))
            end++;
        at += (size_t)snprintf(text + at, size - at, end > r ? "%s%d-%d" : "%s%d", at ? ", " : "", r, end);
    }
}

int hkt_bootstrap_give_up(struct hkt_bootstrap *b, const char *what)
{
    char list[512];
    int  missing = 0;

    if (hkt_socket_stopped())
        return hkt_bootstrap_die_all(b, hkt_fail(HKT_ERR_ABORTED, "rank 0 gave the communicator up while it was being made"));
    for (int r = 1; r < b->size; r++)
        missing += b->link[r].fd < 0 || !b->link[r].done;
    list_missing(b, list, sizeof(list));
    return hkt_bootstrap_die_all(b, hkt_fail(HKT_ERR_TIMEOUT,
                                             "%d of %d ranks %s within %.3g s (limit: HKT_INIT_TIMEOUT): %s", missing,
                                             b->size, what, (double)b->timeout / 1e9, list));
}

/* ---- gathers --------------------------------------------------------------------------------------------------- */

/* Rank 0 waits until every rank's part is in `all`. */
static int collect(struct hkt_bootstrap *b, size_t len, char *all, uint64_t deadline)
{
    int left = b->size - 1;

    for (int r = 1; r < b->size; r++) {
        hkt_link_expect(&b->link[r], HKT_GATHER, all + (size_t)r * len, len);
        b->link[r].done = false;
    }
    while (left) {
        /* Those who have given their part are listened to as well: they can fail or die. */
        for (int r = 0; r < b->size; r++)
            b->poll[r] = (struct pollfd){.fd = r ? b->link[r].fd : -1, .events = POLLIN};
        if (hkt_bootstrap_poll(b, b->size, deadline))
            return hkt_bootstrap_give_up(b, "did not answer");
        for (int r = 1; r < b->size; r++) {
            struct hkt_link *l  = &b->link[r];
            const int        rc = b->poll[r].revents ? hkt_link_pull(l) : 0;

            if (rc < 0 || (rc && (l->done || l->head.kind != HKT_GATHER)))
                return hkt_bootstrap_lose(b, l, rc);
            if (!rc)
                continue;
            l->done = true;
            left--;
            hkt_link_expect(l, 0, NULL, 0);
        }
    }
    return 0;
}

/* Rank 0 sends the result to all at once: a slow rank holds up nobody but the end. */
static int distribute(struct hkt_bootstrap *b, uint64_t deadline)
{
    int left = b->size - 1;

    for (int r = 1; r < b->size; r++)
        b->link[r].done = false;
    while (left) {
        for (int r = 1; r < b->size; r++) {
            struct hkt_link *l  = &b->link[r];
            const int        rc = l->done ? 0 : hkt_link_push(l, &b->result, b->result_body);

            if (rc < 0)
                return hkt_bootstrap_lose(b, l, rc == -ECONNRESET ? -EPIPE : rc);
            l->done = l->done || rc;
            left -= rc;
            b->poll[r] = (struct pollfd){.fd = l->done ? -1 : l->fd, .events = POLLOUT};
        }
        b->poll[0].fd = -1;
        if (left && hkt_bootstrap_poll(b, b->size, deadline)) {
            for (int r = 1; r < b->size; r++)
                if (!b->link[r].done)
                    return hkt_bootstrap_lose(b, &b->link[r], -ETIMEDOUT);
        }
    }
    return 0;
}

static int gather_as_hub(struct hkt_bootstrap *b, size_t len, char *all)
{
    const uint64_t deadline = hkt_now_ns() + b->timeout;

    HKT_TRY(collect(b, len, all, deadline));
    b->result      = hkt_frame_make(HKT_RESULT, (size_t)b->size * len);
    b->result_body = all;
    return distribute(b, deadline);
}

static int gather_as_other(struct hkt_bootstrap *b, const void *mine, size_t len, char *all)
{
    const uint64_t         deadline = hkt_now_ns() + b->timeout;
    const struct hkt_frame head     = hkt_frame_make(HKT_GATHER, len);
    int                    rc       = hkt_link_push_all(&b->hub, &head, mine, deadline);

    if (rc)
        return hkt_bootstrap_lose(b, &b->hub, rc == -ECONNRESET ? -EPIPE : rc);
    hkt_link_expect(&b->hub, HKT_RESULT, all, (size_t)b->size * len);
    rc = hkt_link_pull_all(&b->hub, deadline + HKT_GRACE_NS);
    return rc == 0 && b->hub.head.kind == HKT_RESULT ? 0 : hkt_bootstrap_lose(b, &b->hub, rc ? rc : 1);
}

/* ---- interface ------------------------------------------------------------------------------------------------- */

static int check_id(const struct hkt_id *id)
{
    return id->magic == ID_MAGIC ? 0
                                 : hkt_fail(HKT_ERR_ARGUMENT, "this is no unique id: make one with hkt_unique_id()");
}

static void socket_name(char name[64], const struct hkt_id *id)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (int i = 0; i < HKT_KEY; i++)
        hash = (hash ^ id->public_key[i]) * 0x100000001b3u;
    snprintf(name, 64, "hocket-id-%016" PRIx64, hash);
}

static void close_all(struct hkt_bootstrap *b)
{
    hkt_link_close(&b->hub);
    for (int i = 1; b->link && i < b->size + HKT_STRANGERS; i++)
        hkt_link_close(&b->link[i]);
    hkt_meet_close(b);
    hkt_free(b->link);
}

int hkt_bootstrap_open(struct hkt_bootstrap **made, const hkt_unique_id_t *id, int size, int rank, double timeout)
{
    struct hkt_bootstrap b = {
        .size = size, .rank = rank, .listener = -1, .spare = -1, .hub.fd = -1, .timeout = (uint64_t)(timeout * 1e9)};
    struct hkt_bootstrap *kept;
    char                  name[64];
    int                   rc = 0;

    memcpy(&b.id, id, sizeof(b.id));
    HKT_TRY(check_id(&b.id));
    b.self = (struct hkt_hello){.version = hkt_bootstrap_version, .size = size, .rank = rank, .pid = getpid()};
    if (gethostname(b.self.host, HKT_HOST - 1))
        snprintf(b.self.host, HKT_HOST, "?");
    socket_name(name, &b.id);
    if (size > 1)
        rc = rank ? hkt_meet_as_other(&b, name) : hkt_meet_as_hub(&b, name);
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
    if (b->code)
        return hkt_fail_quiet(b->code, b->sentence);
    if (b->rank == 0 || b->size == 1)
        memmove((char *)all + (size_t)b->rank * len, mine, len);
    if (b->size == 1)
        return 0;
    return b->rank ? gather_as_other(b, mine, len, all) : gather_as_hub(b, len, all);
}

void hkt_bootstrap_close(struct hkt_bootstrap *b)
{
    if (b)
        close_all(b);
    hkt_free(b);
}

int hkt_bootstrap_unique_id(hkt_unique_id_t *id)
{
    struct hkt_id fresh = {.magic = ID_MAGIC};

    HKT_TRY(hkt_random(&fresh, offsetof(struct hkt_id, magic)));
    memset(id, 0, sizeof(*id));
    memcpy(id, &fresh, sizeof(fresh));
    return 0;
}

void hkt_bootstrap_id_print(const hkt_unique_id_t *id, char text[2 * HKT_UNIQUE_ID_BYTES + 1])
{
    for (int i = 0; i < HKT_UNIQUE_ID_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)id->internal[i]);
}

int hkt_bootstrap_id_parse(hkt_unique_id_t *id, const char *text)
{
    hkt_unique_id_t parsed;
    struct hkt_id   inner;

    if (strlen(text) != 2 * HKT_UNIQUE_ID_BYTES || strspn(text, "0123456789abcdefABCDEF") != 2 * HKT_UNIQUE_ID_BYTES)
        return hkt_fail(HKT_ERR_ARGUMENT, "a unique id has %d hex digits; this text is another one, of length %zu",
                        2 * HKT_UNIQUE_ID_BYTES, strlen(text));
    for (int i = 0; i < HKT_UNIQUE_ID_BYTES; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], 0};

        parsed.internal[i] = (char)strtoul(digits, NULL, 16);
    }
    memcpy(&inner, &parsed, sizeof(inner));
    HKT_TRY(check_id(&inner));
    *id = parsed;
    return 0;
}
