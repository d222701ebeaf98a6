/* reach.c -- staggered attempts at many addresses. See reach.h. */
#include "reach.h"

#include "base/error.h"
#include "socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MS         = 1000000u;
static const uint64_t STAGGER_NS = 20000000u; /* a network answers within that; a dead address costs as much */
static const int      FIRST_MS = 20, LONGEST_MS = 400;

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static void add(struct hkt_reach *r, const struct hkt_inet_address *to)
{
    for (int i = 0; i < r->count; i++)
        if (memcmp(&r->try[i].to, to, sizeof(*to)) == 0)
            return;
    if (r->count < HKT_REACH_TRIES)
        r->try[r->count++] = (struct hkt_reach_try){.to = *to, .fd = -1, .delay_ms = FIRST_MS};
}

/* From every interface that speaks link-local. */
static void add_link(struct hkt_reach *r, const struct hkt_inet_address *to)
{
    struct hkt_inet_address own[HKT_INET_LIST], through = *to;
    const int               count = hkt_inet_own(own, HKT_INET_LIST);

    for (int i = 0; i < count; i++)
        if (own[i].kind == HKT_INET_LINK && own[i].family == 6) {
            through.interface = own[i].interface;
            add(r, &through);
        }
}

int hkt_reach_begin(struct hkt_reach *r, const struct hkt_inet_address *list, int count, const unsigned char key[HKT_PROOF_KEY],
                    uint64_t purpose)
{
    const uint64_t now = hkt_now_ns();

    if (!hkt_proof_supported())
        return hkt_proof_unsupported();
    *r = (struct hkt_reach){.purpose = purpose};
    memcpy(r->key, key, sizeof(r->key));
    for (int i = 0; i < count; i++) {
        struct hkt_inet_address to = list[i];

        if (to.kind == HKT_INET_LINK && to.family == 6) {
            add_link(r, &to);
        } else {
            to.interface = 0;
            add(r, &to);
        }
    }
    for (int i = 0; i < r->count; i++)
        r->try[i].due = now + (uint64_t)i * STAGGER_NS;
    return 0;
}

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

static void give_up(struct hkt_reach_try *t, int error)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd        = -1;
    t->connected = false;
    t->error     = error;
    t->due       = hkt_now_ns() + (uint64_t)t->delay_ms * MS;
    t->delay_ms  = t->delay_ms < LONGEST_MS / 2 ? 2 * t->delay_ms : LONGEST_MS;
}

/* 1: proven. */
static int go_on(const struct hkt_reach *r, struct hkt_reach_try *t, bool ready)
{
    int rc;

    if (t->fd < 0) {
        t->fd = hkt_inet_connect(&t->to);
        if (t->fd < 0 || hkt_proof_begin(&t->proof, HKT_PROOF_CONNECTS, r->key, r->purpose)) {
            give_up(t, t->fd < 0 ? t->fd : -ENOMEM);
            return 0;
        }
    }
    if (!t->connected) {
        if (!ready)
            return 0;
        rc = hkt_inet_connected(t->fd);
        if (rc) {
            give_up(t, rc);
            return 0;
        }
        t->connected = true;
    }
    rc = hkt_proof_turn(&t->proof, t->fd);
    if (rc < 0)
        give_up(t, rc);
    return rc == 1;
}

int hkt_reach_turn(struct hkt_reach *r)
{
    const uint64_t now = hkt_now_ns();
    bool           failed = false;

    for (int i = 0; i < r->count; i++) {
        struct hkt_reach_try *t     = &r->try[i];
        struct pollfd         p     = {.fd = t->fd, .events = t->connected ? t->proof.events : POLLOUT};
        const bool            begin = t->fd < 0 && (now >= t->due || (failed && !t->error && i > 0)); /* the one before has failed: go */

        if (begin || (t->fd >= 0 && poll(&p, 1, 0) > 0)) {
            if (go_on(r, t, p.fd >= 0)) {
                const int fd = t->fd;

                t->fd = -1;
                return fd;
            }
        }
        failed = t->fd < 0 && t->error;
    }
    return -EAGAIN;
}

int hkt_reach_poll(const struct hkt_reach *r, struct pollfd *polls, uint64_t *until)
{
    int n = 0;

    *until = hkt_now_ns() + 1000 * MS;
    for (int i = 0; i < r->count; i++) {
        const struct hkt_reach_try *t = &r->try[i];

        if (t->fd >= 0)
            polls[n++] = (struct pollfd){.fd = t->fd, .events = t->connected ? t->proof.events : POLLOUT};
        else if (t->due < *until)
            *until = t->due;
    }
    return n;
}

int hkt_reach_wait(struct hkt_reach *r, uint64_t deadline)
{
    struct pollfd polls[HKT_REACH_TRIES];
    uint64_t      until;
    int           fd, n;

    while ((fd = hkt_reach_turn(r)) == -EAGAIN) {
        if (hkt_socket_late(deadline))
            return -ETIMEDOUT;
        n = hkt_reach_poll(r, polls, &until);
        poll(polls, (nfds_t)n, hkt_socket_patience(until < deadline ? until : deadline)); /* interrupted: looks again */
    }
    return fd;
}

static const char *state_of(const struct hkt_reach_try *t)
{
    if (t->error == -EACCES)
        return "a stranger answers";
    if (t->error)
        return strerror(-t->error);
    return t->fd < 0 ? "not tried" : t->connected ? "connected, no answer" : "no answer";
}

const char *hkt_reach_text(const struct hkt_reach *r, char *text, size_t size)
{
    size_t at = 0;

    snprintf(text, size, "none");
    for (int i = 0; i < r->count && at + HKT_INET_TEXT + 60 < size; i++) {
        char address[HKT_INET_TEXT];

        at += (size_t)snprintf(text + at, size - at, "%s%s (%s)", at ? ", " : "", hkt_inet_text(&r->try[i].to, address), state_of(&r->try[i]));
    }
    return text;
}

void hkt_reach_end(struct hkt_reach *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->try[i].fd >= 0)
            close(r->try[i].fd);
    *r = (struct hkt_reach){.count = 0};
}
