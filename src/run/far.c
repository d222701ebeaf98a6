/* far.c -- who is on which host; what the wire tells the communicator; how collectives over several hosts begin. See far.h.
 *
 * Two ranks share a host when their processes do (setup/process.h). Algorithms hear of the hosts as groups (site.h).
 */
#include "run/far.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

/* Are the processes on the same host? NULL for those of this one. */
static bool same_host(const struct hkt_process *a, const struct hkt_process *b)
{
    if (!a->net || !b->net)
        return !a->net && !b->net;
    return !memcmp(a->life->address.host, b->life->address.host, sizeof(a->life->address.host));
}

/* Numbers the hosts by their first ranks. */
static void number_hosts(const struct hkt_communicator *c, struct hkt_far *far)
{
    for (int r = 0; r < c->size; r++) {
        int s = 0;

        while (!same_host(c->peer[s].process, c->peer[r].process))
            s++;
        if (s == r)
            far->first[far->hosts] = r;
        far->host[r]  = s < r ? far->host[s] : far->hosts++;
        far->local[r] = far->seats[far->host[r]]++;
        if (far->local[r] >= far->most)
            far->most = far->local[r] + 1;
    }
}

static int create(struct hkt_communicator *c)
{
    const size_t    n   = (size_t)c->size;
    struct hkt_far *far = hkt_alloc(sizeof(*far));

    c->far = far;
    if (!far)
        return HKT_ERR_MEMORY;
    far->host  = hkt_alloc(n * sizeof(*far->host));
    far->in    = hkt_alloc(4 * n * sizeof(*far->in));
    far->named = hkt_alloc(n * sizeof(*far->named));
    far->local = hkt_alloc(3 * n * sizeof(*far->local));
    if (!far->host || !far->in || !far->named || !far->local)
        return HKT_ERR_MEMORY;
    far->first = far->local + n;
    far->seats = far->local + 2 * n;
    far->out   = far->in + n;
    far->got   = far->in + 2 * n;
    far->sent  = far->in + 3 * n;
    number_hosts(c, far);
    if (c->rank != c->leader || !hkt_far_shelves(c))
        return 0;
    far->cargo = hkt_alloc((size_t)far->hosts * HKT_EAGER);
    return far->cargo ? 0 : HKT_ERR_MEMORY;
}

size_t hkt_far_shelves(const struct hkt_communicator *c)
{
    return c->far && c->far->hosts <= HKT_SHELVES ? (size_t)c->far->hosts : 0;
}

int hkt_far_create(struct hkt_communicator *c)
{
    c->leader = -1;
    for (int r = 0; r < c->size; r++) {
        if (c->peer[r].process->net)
            continue;
        c->leader         = c->leader < 0 ? r : c->leader;
        c->peer[r].seat = c->seats++;
    }
    return c->seats == c->size ? 0 : create(c);
}

/* ---- what the wire tells ----------------------------------------------------------------------------------------- */

/* What a note is about; `lane` tells a collective from a message. */
static void print_note(const struct hkt_wire_note *note, enum hkt_lane lane, char *text, size_t size)
{
    const struct hkt_signature s = {.count = note->same[1], .what = (uint32_t)note->same[2], .root = (int32_t)(note->same[2] >> 32)};
    size_t                     n = (size_t)snprintf(text, size, "%s %llu, ", lane == HKT_LANE_COLLECTIVE ? "operation" : "message",
                                                    (unsigned long long)note->same[0]);

    hkt_signature_print(&s, text + n, size - n);
}

static void conflict(void *arg, enum hkt_lane lane, int from, const struct hkt_wire_note mine_theirs[2], const size_t bytes[2])
{
    struct hkt_communicator *c = arg;
    char                     mine[192], theirs[192], who[128], self[128];

    print_note(&mine_theirs[0], lane, mine, sizeof(mine));
    print_note(&mine_theirs[1], lane, theirs, sizeof(theirs));
    hkt_communicator_kill(c, HKT_ERR_MISMATCH,
                          "communicator %s: %s is in %s, but %s in %s (%zu bytes against %zu); the communicator cannot go on; make all ranks call "
                          "the same in the same order",
                          c->name, hkt_communicator_who(c, c->rank, self, sizeof(self)), mine, hkt_communicator_who(c, from, who, sizeof(who)),
                          theirs, bytes[0], bytes[1]);
    hkt_error_clear();
}

static void poison(void *arg, int from, int code, const char *sentence)
{
    (void)from;
    hkt_communicator_hear(arg, code, sentence);
}

static void left(void *arg, int rank)
{
    struct hkt_communicator *c = arg;

    atomic_store_explicit(&c->peer[rank].left, 1, memory_order_release); /* what it sent before has arrived; pairs with hkt_backoff()'s look */
}

int hkt_far_open(struct hkt_communicator *c, const uint64_t id[2])
{
    static const struct hkt_wire_events events  = {.conflict = conflict, .poison = poison, .left = left};
    const struct hkt_process          **process;
    int                                 rc;

    if (!c->far)
        return 0;
    process = hkt_alloc((size_t)c->size * sizeof(*process));
    if (!process)
        return HKT_ERR_MEMORY;
    for (int r = 0; r < c->size; r++)
        process[r] = c->peer[r].process;
    rc = hkt_wire_open(&c->far->wire, &(struct hkt_wire_config){.id      = {id[0], id[1]},
                                                                .rank    = c->rank,
                                                                .size    = c->size,
                                                                .process = (struct hkt_process *const *)process,
                                                                .events  = &events,
                                                                .arg     = c});
    hkt_free(process);
    for (int r = 0; !rc && r < c->size; r++)
        if (!hkt_near(c, r))
            c->sleepers[r] = hkt_wire_sleepers(c->far->wire, r);
    return rc;
}

void hkt_far_free(struct hkt_communicator *c)
{
    struct hkt_far *far = c->far;

    if (!far)
        return;
    if (far->wire && c->shared && hkt_communicator_state(c)) /* or another host hears first that this rank has left it */
        hkt_wire_dead(far->wire, hkt_communicator_state(c), c->shared->sentence);
    hkt_wire_close(far->wire);
    hkt_free(far->cargo);
    hkt_free(far->rows);
    hkt_free(far->named);
    hkt_free(far->in);
    hkt_free(far->local);
    hkt_free(far->host);
    hkt_free(far);
}

/* ---- how collectives begin --------------------------------------------------------------------------------------- */

/* The rows of all ranks by an all_gather, an operation of its own; then the call itself. */
static int gather_rows(struct hkt_operation *op)
{
    struct hkt_far *far = op->comm->far;
    const int       rc  = far->gather.count ? hkt_operation_advance(&far->gathering) : hkt_fail(HKT_ERR_MEMORY, "out of memory for the counts of all_to_all_v");

    if (rc == HKT_IN_PROGRESS) {
        op->word  = far->gathering.word;
        op->value = far->gathering.value;
        op->rank  = far->gathering.rank;
    }
    if (rc)
        return far->gather.count ? rc : hkt_operation_blame(op, rc);
    op->number  = ++op->comm->number;
    op->advance = hkt_scheduled_advance;
    return op->advance(op);
}

static bool make_rows(struct hkt_communicator *c, const struct hkt_call *call)
{
    struct hkt_far *far = c->far;
    const size_t    n   = (size_t)c->size;

    if (!far->rows)
        far->rows = hkt_alloc((n * n + n) * sizeof(*far->rows));
    if (!far->rows)
        return false;
    far->row = far->rows + n * n;
    for (int r = 0; r < c->size; r++)
        far->row[r] = (struct hkt_table_row){hkt_array(call, HKT_IN_COUNTS, c->size)[r], hkt_array(call, HKT_IN_DISPLS, c->size)[r],
                                             hkt_array(call, HKT_OUT_COUNTS, c->size)[r], hkt_array(call, HKT_OUT_DISPLS, c->size)[r]};
    return true;
}

int (*hkt_far_begin(struct hkt_operation *op))(struct hkt_operation *)
{
    struct hkt_communicator *c    = op->comm;
    struct hkt_call         *call = op->call;
    struct hkt_far          *far  = c->far;

    if (call->coll == HKT_COLL_BARRIER) {
        call->type    = HKT_UINT8;
        call->op      = HKT_MAX;
        call->count   = call->element = 1;
        call->send    = &far->token[0];
        call->recv    = &far->token[1];
    }
    if (call->coll != HKT_COLL_ALL_TO_ALL || !call->arrays)
        return hkt_scheduled_advance;
    far->gather = (struct hkt_call){.coll = HKT_COLL_SPLIT, .type = HKT_UINT8, .element = 1};
    if (make_rows(c, call)) {
        far->gather.send  = far->row;
        far->gather.recv  = far->rows;
        far->gather.count = (size_t)c->size * sizeof(*far->row);
    }
    far->gathering = (struct hkt_operation){.comm = c, .call = &far->gather, .waiter = op->waiter, .number = op->number, .advance = hkt_scheduled_advance};
    return gather_rows;
}
