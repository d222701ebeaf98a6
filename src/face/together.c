/* together.c -- several operations in one thread: each is advanced as far as it goes, then the next, until all are over. Operations that must keep an
 * order (collectives of one communicator, messages in one direction between two ranks) begin one after the other.
 */
#include "face/submit.h"

#include "base/error.h"
#include "base/memory.h"
#include "face/group.h"
#include "run/operation.h"

enum state { WAITING, BEGUN, OVER };

struct entry {
    struct hkt_operation op;
    struct hkt_pending  *pending;
    enum state           state;
    int                  code;
};

static bool same_lane(const struct hkt_pending *a, const struct hkt_pending *b)
{
    const bool a_message = a->call.coll == HKT_COLL_SEND || a->call.coll == HKT_COLL_RECV;
    const bool b_message = b->call.coll == HKT_COLL_SEND || b->call.coll == HKT_COLL_RECV;

    if (a->end != b->end || a_message != b_message)
        return false;
    return !a_message || (a->call.coll == b->call.coll && a->call.root == b->call.root);
}

static bool may_begin(const struct entry *e, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (e[j].state != OVER && same_lane(e[j].pending, e[i].pending))
            return false;
    return true;
}

/* Advances one as far as it goes. True when it got anywhere. */
static bool advance(struct entry *e, size_t i)
{
    struct entry            *x      = &e[i];
    struct hkt_communicator *c      = x->pending->end->comm;
    _Atomic uint64_t        *word   = x->op.word;
    const uint64_t           value  = x->op.value;
    const enum state         before = x->state;

    if (x->state == WAITING) {
        if (!may_begin(e, i))
            return false;
        x->code = hkt_communicator_state(c) ? hkt_communicator_dead(c) : 0;
        if (!x->code)
            hkt_operation_begin(&x->op, c, &x->pending->call, NULL);
        x->state = x->code ? OVER : BEGUN;
    }
    if (x->state == BEGUN) {
        x->code = hkt_operation_advance(&x->op);
        if (x->code != HKT_IN_PROGRESS)
            x->state = OVER;
    }
    return x->state != before || word != x->op.word || value != x->op.value;
}

/* Nothing moves: one turn of waiting for the word of one operation. */
static void idle(struct entry *x, struct hkt_backoff *b, bool alone)
{
    struct hkt_communicator *c = x->op.comm;
    int                      rc;

    b->word  = x->op.word;
    b->value = x->op.value;
    b->rank  = x->op.rank;
    rc       = hkt_backoff(hkt_waiter_here(c), b, alone ? HKT_SLEEP_NS : HKT_SLEEP_NS / 20);
    if (rc) {
        x->code  = hkt_operation_lost(&x->op, rc, x->op.rank);
        x->state = OVER;
    }
}

static void run(struct entry *e, size_t n)
{
    struct hkt_backoff b    = {.polls = 0};
    size_t             left = n, turn = 0;

    while (left) {
        bool          moved   = false;
        struct entry *blocked = NULL;

        left = 0;
        for (size_t k = 0; k < n; k++) {
            const size_t i = (k + turn) % n; /* another one's word each time */

            if (e[i].state == OVER)
                continue;
            moved |= advance(e, i);
            left += e[i].state != OVER;
            if (e[i].state == BEGUN)
                blocked = &e[i];
        }
        if (moved)
            b = (struct hkt_backoff){.polls = 0};
        else if (blocked)
            idle(blocked, &b, left == 1);
        turn++;
    }
}

/* All calls on one communicator have consecutive tickets: its turn has come when the first has. */
static void turns(struct hkt_pending *pending, size_t n, bool wait)
{
    for (size_t i = 0; i < n; i++)
        if (pending[i].again)
            continue;
        else if (wait)
            hkt_turn_wait(pending[i].end, pending[i].ticket - pending[i].before);
        else
            hkt_turn_pass(pending[i].end, 1);
}

enum { FEW = 8 }; /* operations that need no allocation */

int hkt_run_together(struct hkt_pending *pending, size_t n)
{
    struct entry  few[FEW];
    struct entry *e  = n <= FEW ? few : hkt_alloc(n * sizeof(*e));
    int           rc = e ? 0 : HKT_ERR_MEMORY;

    turns(pending, n, true);
    for (size_t i = 0; e && i < n; i++) {
        e[i].pending = &pending[i];
        e[i].state   = WAITING;
        e[i].code    = 0;
        e[i].op.word = NULL;
    }
    if (e)
        run(e, n);
    for (size_t i = 0; i < n; i++) {
        if (e && !rc)
            rc = e[i].code;
        if (!pending[i].kept)
            hkt_call_release(&pending[i].call);
    }
    turns(pending, n, false);
    if (e != few)
        hkt_free(e);
    return rc;
}
