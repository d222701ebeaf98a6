/* wires.h -- ranks that pretend to be on hosts of their own, each with a wire to the others: for the suites of the network. */
#ifndef TEST_WIRES_H
#define TEST_WIRES_H

#include "party.h"

#include "net/wire.h"
#include "setup/proof.h"

/* What the events of a wire have said. */
struct heard {
    _Atomic uint32_t     conflicts, poisons, lefts;
    int                  from, code;
    enum hkt_lane        lane;
    struct hkt_wire_note notes[2];
    size_t               bytes[2];
    char                 sentence[1024];
};

struct wires {
    struct party     p;
    struct rank     *me;
    struct hkt_wire *w;
    struct heard     heard;
};

/* "HKT_NETWORK=...": the network that the suites of the wire are run over. TEST_NETWORK names it; empty: tcp. */
const char *wires_network(void);

/* The calling process says it is on the host `name`; before the first call of the library. */
void wires_host(const char *name);

/* Meets the others (every rank a process on a host of its own, unless HKT_HOST is set) and opens a wire; then more of them. */
void wires_join(struct wires *x, struct rank *me);
void wires_open(struct hkt_wire **w, struct wires *x, uint64_t id, struct heard *heard);
void wires_leave(struct wires *x); /* closes the wire after a barrier */

/* One message, waited for by polling; sleep: by leaving it to the thread. */
struct letter {
    int           peer;
    enum hkt_lane lane;
    size_t        bytes;
    uint64_t      tag; /* note.same[0] */
};
void     wires_send(struct hkt_wire *w, const struct letter *l, const void *from);    /* begins */
void     wires_receive(struct hkt_wire *w, const struct letter *l, void *to);         /* begins */
void     wires_await(_Atomic uint64_t *word, uint64_t value);                         /* polls */
void     wires_sleep(_Atomic uint64_t *word, uint64_t value);                         /* without polling */
void     wires_await_event(_Atomic uint32_t *count, uint32_t value, double seconds); /* polls now and then */

/* Bytes that depend on where they are and on the tag; checked. */
void wires_fill(void *to, size_t bytes, uint64_t tag);
void wires_check(const void *at, size_t bytes, uint64_t tag);

#endif
