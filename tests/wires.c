/* wires.c -- see wires.h. */
#include "wires.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void conflict(void *arg, enum hkt_lane lane, int from, const struct hkt_wire_note notes[2], const size_t bytes[2])
{
    struct heard *h = arg;

    h->lane = lane;
    h->from = from;
    memcpy(h->notes, notes, sizeof(h->notes));
    memcpy(h->bytes, bytes, sizeof(h->bytes));
    atomic_fetch_add(&h->conflicts, 1);
}

static void poison(void *arg, int from, int code, const char *sentence)
{
    struct heard *h = arg;

    h->from = from;
    h->code = code;
    snprintf(h->sentence, sizeof(h->sentence), "%s", sentence);
    atomic_fetch_add(&h->poisons, 1);
}

static void left(void *arg, int rank)
{
    struct heard *h = arg;

    h->from = rank;
    atomic_fetch_add(&h->lefts, 1);
}

static const struct hkt_wire_events events = {conflict, poison, left};

const char *wires_network(void)
{
    static char text[80];
    const char *name = getenv("TEST_NETWORK");

    snprintf(text, sizeof(text), "HKT_NETWORK=%s", name && *name ? name : "tcp");
    return text;
}

void wires_host(const char *name)
{
    static char text[80];

    snprintf(text, sizeof(text), "HKT_HOST=%s", name);
    putenv(text);
}

void wires_open(struct hkt_wire **w, struct wires *x, uint64_t id, struct heard *heard)
{
    const struct hkt_wire_config config = {
        .id = {id, ~id}, .rank = x->me->rank, .size = x->me->n, .process = x->p.peer, .events = &events, .arg = heard};

    expect_ok(hkt_wire_open(w, &config));
}

void wires_join(struct wires *x, struct rank *me)
{
    static uint64_t joins; /* ids are new every time, as those of communicators are: an old one has closed, and says so */
    char            name[32];

    snprintf(name, sizeof(name), "host%d", me->rank);
    if (!getenv("HKT_HOST"))
        wires_host(name);
    memset(x, 0, sizeof(*x));
    x->me = me;
    party_join(&x->p, me);
    for (int r = 0; r < me->n; r++)
        expect((r == me->rank) == !x->p.peer[r]->net, "rank %d is %s", r, x->p.peer[r]->net ? "elsewhere" : "here");
    wires_open(&x->w, x, 1 + 1000 * joins++, &x->heard);
}

void wires_leave(struct wires *x)
{
    party_barrier(&x->p);
    hkt_wire_close(x->w);
    party_leave(&x->p, x->me);
}

static struct hkt_wire_note note_of(const struct letter *l)
{
    return (struct hkt_wire_note){.same = {l->tag, ~l->tag, l->bytes}, .value = (double)l->tag / 2, .bytes = l->bytes};
}

void wires_send(struct hkt_wire *w, const struct letter *l, const void *from)
{
    const struct hkt_wire_note note = note_of(l);
    const double               end  = now() + 30;

    while (hkt_wire_send(w, l->lane, l->peer, from, &note)) {
        expect(now() < end, "a send finds no place for 30 s");
        hkt_wire_poll();
    }
}

void wires_receive(struct hkt_wire *w, const struct letter *l, void *to)
{
    const struct hkt_wire_note note = note_of(l);
    const double               end  = now() + 30;

    while (hkt_wire_receive(w, l->lane, l->peer, to, &note)) {
        expect(now() < end, "a receive finds no place for 30 s");
        hkt_wire_poll();
    }
}

void wires_await(_Atomic uint64_t *word, uint64_t value)
{
    const double end = now() + 30;

    for (unsigned i = 0; atomic_load_explicit(word, memory_order_acquire) < value; i++) {
        hkt_wire_poll();
        if (i % 256 == 255) {
            expect(now() < end, "waited 30 s for message %llu, but it is %llu", (unsigned long long)value,
                   (unsigned long long)atomic_load(word));
            usleep(0); /* the others may need this core */
        }
    }
}

void wires_sleep(_Atomic uint64_t *word, uint64_t value)
{
    const double end = now() + 30;

    hkt_wire_rest();
    while (atomic_load_explicit(word, memory_order_acquire) < value) {
        expect(now() < end, "waited 30 s for message %llu, but it is %llu", (unsigned long long)value,
               (unsigned long long)atomic_load(word));
        usleep(100);
    }
}

void wires_await_event(_Atomic uint32_t *count, uint32_t value, double seconds)
{
    const double end = now() + seconds * (slow_build() ? 3 : 1);

    while (atomic_load(count) < value) {
        expect(now() < end, "waited %g s for an event", seconds);
        hkt_wire_poll();
        usleep(200);
    }
}

static uint64_t word_at(size_t i, uint64_t tag)
{
    return (i + 1) * 0x9e3779b97f4a7c15u ^ tag * 0xbf58476d1ce4e5b9u;
}

void wires_fill(void *to, size_t bytes, uint64_t tag)
{
    char *p = to;

    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t w = word_at(i, tag);

        memcpy(p + i, &w, bytes - i < 8 ? bytes - i : 8);
    }
}

void wires_check(const void *at, size_t bytes, uint64_t tag)
{
    const char *p = at;

    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t w = word_at(i, tag);

        expect(memcmp(p + i, &w, bytes - i < 8 ? bytes - i : 8) == 0, "byte %zu of %zu of message %llu is wrong", i, bytes,
               (unsigned long long)tag);
    }
}
