/* test_wire.c -- messages between ranks of different hosts, over every network that this machine has: what arrives, in which order, who may be
 * how far ahead. Hosts are names here (HKT_HOST); what happens when processes or hosts die is in test_wire_death.c.
 */
#include "wires.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- order, sizes, lanes */

enum { MESSAGES = 500, SLOTS = HKT_WIRE_RING };

static size_t size_of(uint64_t n, size_t most)
{
    const size_t odd[] = {0, 1, 8, 63, 64, 65, 4096, 8191, 16384, 16385, 262144, 262145, 1 << 20};

    return n % 3 ? mix(n) % (most + 1) : odd[mix(n) % 13] % (most + 1);
}

struct stream {
    struct hkt_wire *w;
    enum hkt_lane    lane;
    int              peer;
    size_t           most;
    uint64_t         posted[2], seen[2]; /* sends, receives; seen: checked */
    char            *slot[2][SLOTS];
};

static void stream_make(struct stream *s)
{
    for (int k = 0; k < 2 * SLOTS; k++)
        s->slot[k / SLOTS][k % SLOTS] = malloc(s->most + 8);
}

static void stream_free(struct stream *s)
{
    for (int k = 0; k < 2 * SLOTS; k++)
        free(s->slot[k / SLOTS][k % SLOTS]);
}

/* One more of each, where there is room; checks what has arrived. The values differ with the lane and the direction. */
static void stream_step(struct stream *s, int me)
{
    _Atomic uint64_t *arrived = hkt_wire_arrived(s->w, s->lane, s->peer), *sent = hkt_wire_sent(s->w, s->lane, s->peer);
    const uint64_t    salt = (uint64_t)s->lane * 7919 + 100000;

    while (s->seen[1] < atomic_load_explicit(arrived, memory_order_acquire)) {
        const uint64_t n = ++s->seen[1], tag = n + salt * (uint64_t)(1 + s->peer);

        wires_check(s->slot[1][n % SLOTS], size_of(tag, s->most), tag);
        expect_true(hkt_wire_value(s->w, s->lane, s->peer, n) == (double)tag / 2);
    }
    if (s->posted[1] < MESSAGES && s->posted[1] < s->seen[1] + SLOTS) {
        const uint64_t n = ++s->posted[1], tag = n + salt * (uint64_t)(1 + s->peer);

        wires_receive(s->w, &(struct letter){s->peer, s->lane, size_of(tag, s->most), tag}, s->slot[1][n % SLOTS]);
    }
    if (s->posted[0] < MESSAGES && s->posted[0] < atomic_load_explicit(sent, memory_order_acquire) + SLOTS) {
        const uint64_t n = ++s->posted[0], tag = n + salt * (uint64_t)(1 + me);

        wires_fill(s->slot[0][n % SLOTS], size_of(tag, s->most), tag);
        wires_send(s->w, &(struct letter){s->peer, s->lane, size_of(tag, s->most), tag}, s->slot[0][n % SLOTS]);
    }
}

static void order_rank(struct rank *me)
{
    struct stream     s[2 * PARTY * HKT_LANES];
    int               n = 0;
    struct wires      x;
    struct hkt_wire  *second;
    bool              busy = true;
    const double      end  = now() + 100;

    wires_join(&x, me);
    wires_open(&second, &x, 2, &x.heard);
    for (int k = 0; k < 2 * me->n * HKT_LANES; k++) {
        if (k / 2 / HKT_LANES == me->rank)
            continue;
        s[n] = (struct stream){.w = k & 1 ? second : x.w, .lane = k / 2 % HKT_LANES, .peer = k / 2 / HKT_LANES, .most = k & 1 ? 300000 : 3000};
        stream_make(&s[n++]);
    }
    while (busy) {
        busy = false;
        for (int i = 0; i < n; i++) {
            stream_step(&s[i], me->rank);
            busy |= s[i].seen[1] < MESSAGES || atomic_load(hkt_wire_sent(s[i].w, s[i].lane, s[i].peer)) < MESSAGES;
        }
        hkt_wire_poll();
        expect(now() < end, "not done");
    }
    for (int i = 0; i < n; i++)
        stream_free(&s[i]);
    party_barrier(&x.p);
    hkt_wire_close(second);
    wires_leave(&x);
}

/* Everything arrives, once, whole, in order, with its note: every lane of two communicators over one connection, sizes from 0, both ways. */
START_TEST(test_order)
{
    world_run(&(struct world){.n = 2 + _i, .kind = PROCESSES, .fn = order_rank, .bare = true, .deadline = 100});
}
END_TEST

static void add(Suite *s)
{
    if (!hkt_proof_supported()) {
        printf("skipped: built without libcrypto\n");
        return;
    }
    ADD(s, test_order, 2, 120);
}

int main(void)
{
    return run_suite("wire", add);
}
