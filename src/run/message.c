/* message.c -- send and receive between two ranks: a ring of lines per direction (shared.h, struct hkt_mail).
 *
 *   small   up to 40 bytes: the data goes with the line, the sender goes on at once
 *   direct  the line says where the data is, in memory that is mapped or can be read (process_vm_readv); the receiver copies it, the
 *           sender waits until it is taken
 *   shared  the same for large messages, but the receiver also says where they go, and a sender that would only wait copies, too: each
 *           side claims piece after piece until none is left
 *   staged  all else: the sender pushes slices through the banks and goes on when all are in; the receiver pulls them
 *
 * Message k of a direction uses one of HKT_MAIL_LINES lines, free again once the receiver has taken k - HKT_MAIL_LINES.
 */
#include "base/error.h"
#include "language/dtype.h"
#include "run/buffer.h"
#include "run/operation.h"
#include "run/tune.h"

#include <string.h>

enum { ROOM, PUSH, HELP, WAIT_TAKEN };
enum { OFFER, LISTEN, PULL };

/* Of a shared message: bytes of the smallest, pieces at most, bytes of a piece at least. The receiver begins at the front and the sender at
 * the back, so that a buffer that is used again finds each half in the cache that had it. */
enum { SHARED_LEAST = 65536, PIECES = 32, PIECE_LEAST = 32768 };
enum { SIDE_BITS = HKT_PIECE_BITS / 2, SIDE = (1 << SIDE_BITS) - 1, CLOSED = SIDE /* no piece is to be had */ };

static size_t pair_of(const struct hkt_communicator *c, int from, int to)
{
    return (size_t)c->peer[from].seat * (size_t)c->seats + (size_t)c->peer[to].seat;
}

static struct hkt_mail *mail(const struct hkt_communicator *c, int from, int to)
{
    return (struct hkt_mail *)(void *)((char *)c->shared + c->layout.mail) + pair_of(c, from, to);
}

static unsigned char *mail_bank(const struct hkt_communicator *c, int from, int to, uint64_t i)
{
    return (unsigned char *)c->shared + c->layout.mail_banks +
           (pair_of(c, from, to) * HKT_MAIL_BANKS + i % HKT_MAIL_BANKS) * HKT_EAGER;
}

static size_t bytes_of(const struct hkt_operation *op)
{
    return op->call->count * op->call->element;
}

/* A stretch of a message, bytes. */
struct piece {
    size_t at, n;
};

/* ---- shared messages --------------------------------------------------------------------------------------------- */

static size_t piece_bytes(size_t bytes)
{
    const size_t each = (bytes / PIECES + 4095) & ~(size_t)4095;

    return each < PIECE_LEAST ? PIECE_LEAST : each;
}

/* Begins the next piece, from the front or from the back: bytes [at, at + n). False when all are begun. */
static bool claim(const struct hkt_operation *op, struct hkt_mail *m, bool back, struct piece *piece)
{
    const size_t bytes = bytes_of(op), each = piece_bytes(bytes), pieces = (bytes + each - 1) / each;
    uint64_t     seen  = hkt_load_relaxed(&m->claimed);

    while (seen >> HKT_PIECE_BITS == op->number) {
        const size_t begun = seen & SIDE, ended = seen >> SIDE_BITS & SIDE, i = back ? pieces - 1 - ended : begun;

        if (begun + ended >= pieces)
            return false;
        if (!atomic_compare_exchange_weak_explicit(&m->claimed, &seen, seen + (back ? 1 << SIDE_BITS : 1), memory_order_acquire,
                                                   memory_order_relaxed)) /* acquire: pairs with hkt_publish() in offer() */
            continue;
        *piece = (struct piece){i * each, bytes - i * each < each ? bytes - i * each : each};
        return true;
    }
    return false;
}

/* The receiver says where the message goes. */
static void offer(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c = op->comm;
    struct hkt_location      at;
    const enum hkt_reach     reach = hkt_buffer_locate(c, op->call->recv, bytes_of(op), 0, &at);

    m->want  = (struct hkt_signature){.count = op->call->count, .what = (uint32_t)op->call->type};
    m->place = (struct hkt_entry){.out_segment = at.segment, .out_offset = at.segment ? at.offset : at.address};
    hkt_publish(&m->claimed, op->number << HKT_PIECE_BITS | (reach == HKT_REACH_STAGE ? CLOSED : 0), &c->peer[c->rank].cell->sleepers);
}

/* The sender copies pieces until all are begun. While it has one the receiver waits, so place stands. */
static int help(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator    *c      = op->comm;
    const struct hkt_peer      *peer   = &c->peer[op->call->root];
    const struct hkt_signature  mine   = m->line[hkt_line_index(op->number, HKT_MAIL_LINES)].signature;
    uint64_t                    helped = 0;
    struct piece                p;

    for (int rc; claim(op, m, true, &p); helped++) {
        const struct hkt_entry   *e    = &m->place;
        const struct hkt_location to   = {e->out_segment ? 0 : e->out_offset, e->out_segment, e->out_segment ? e->out_offset : 0};
        const char               *from = (const char *)op->call->send + p.at;
        char                     *there;

        if (!hkt_signature_equal(&m->want, &mine))
            return 0; /* it will be refused */
        there = peer->transport->map(peer->process, &to);
        if (there) {
            there += p.at;
            hkt_copy_bytes((void **)&there, 1, from, p.n, 2 * bytes_of(op) >= c->nontemporal);
        } else {
            rc = peer->transport->write(peer->process, to.address + p.at, from, p.n);
            if (rc)
                return rc;
        }
    }
    if (helped)
        hkt_publish(&m->helped, op->number << HKT_PIECE_BITS | helped, &c->peer[c->rank].cell->sleepers);
    return 0;
}

/* ---- send -------------------------------------------------------------------------------------------------------- */

/* Slices of one message through the banks; op->slice counts those that are in. */
static int push(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c     = op->comm;
    const int                to    = op->call->root;
    const size_t             bytes = bytes_of(op);

    while ((size_t)op->slice * HKT_EAGER < bytes) {
        const size_t   at   = (size_t)op->slice * HKT_EAGER, n = bytes - at < HKT_EAGER ? bytes - at : HKT_EAGER;
        const uint64_t next = c->pushed[to] + 1;

        if (next > c->known_pulled[to] + HKT_MAIL_BANKS) {
            const int rc = hkt_operation_wait(op, &m->pulled, next - HKT_MAIL_BANKS, to);

            if (rc)
                return rc;
            c->known_pulled[to] = hkt_load_acquire(&m->pulled); /* pairs with hkt_publish() in pull() */
        }
        memcpy(mail_bank(c, c->rank, to, next), (const char *)op->call->send + at, n);
        c->pushed[to] = next;
        op->slice++;
        hkt_publish(&m->pushed, next, &c->peer[c->rank].cell->sleepers);
    }
    return 0;
}

/* A staged message of one slice, when a bank is free: into the bank before the line is written, so that the receiver need not look twice. */
static bool push_ahead(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c    = op->comm;
    const int                to   = op->call->root;
    const uint64_t           next = c->pushed[to] + 1;

    if (bytes_of(op) > HKT_EAGER || next > c->known_pulled[to] + HKT_MAIL_BANKS)
        return false;
    memcpy(mail_bank(c, c->rank, to, next), op->call->send, bytes_of(op));
    c->pushed[to] = next;
    op->slice     = 1;
    hkt_store_release(&m->pushed, next); /* for a receiver that is at it already there is the line */
    return true;
}

/* Writes the line; small data goes with it. */
static void post(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c     = op->comm;
    const size_t             bytes = bytes_of(op);
    struct hkt_line         *line  = &m->line[hkt_line_index(op->number, HKT_MAIL_LINES)];
    struct hkt_location      at;

    line->signature = (struct hkt_signature){.count = op->call->count, .what = (uint32_t)op->call->type};
    op->slice       = 0;
    op->phase       = WAIT_TAKEN;
    if (bytes <= HKT_INLINE) {
        if (bytes)
            memcpy(line->data, op->call->send, bytes);
    } else {
        line->entry = (struct hkt_entry){.reach = (uint32_t)hkt_tune_message(hkt_buffer_locate(c, op->call->send, bytes, 0, &at), bytes)};
        line->entry.in_segment = at.segment;
        line->entry.in_offset  = at.segment ? at.offset : at.address;
        if (line->entry.reach == HKT_REACH_STAGE) {
            op->phase        = PUSH;
            line->entry.mail = push_ahead(op, m) ? HKT_MAIL_READY : HKT_MAIL_PLAIN;
        } else if (bytes >= SHARED_LEAST && op->waiter) { /* in a group there is other work */
            op->phase        = HELP;
            line->entry.mail = HKT_MAIL_HELPED;
        }
    }
    hkt_publish(&line->number, op->number, &c->peer[c->rank].cell->sleepers);
    hkt_own(&m->line[hkt_line_index(op->number + 1, HKT_MAIL_LINES)], sizeof(*line));
    if (op->phase == PUSH && op->slice)
        hkt_own(mail_bank(c, c->rank, op->call->root, c->pushed[op->call->root] + 1), bytes);
}

/* The receiver did not expect this. It has said so to its caller; a sender that is still here says so too. */
static int refused(struct hkt_operation *op, const struct hkt_mail *m)
{
    struct hkt_communicator *c = op->comm;
    char                     what[128], who[128];

    if (hkt_load_relaxed(&m->refused) != op->number)
        return 0;
    hkt_call_print(op->call, what, sizeof(what));
    return hkt_fail(HKT_ERR_MISMATCH, "communicator %s, message %llu: rank %d called %s, but %s called recv of %llu %s; nothing was received",
                    c->name, (unsigned long long)op->number, c->rank, what, hkt_communicator_who(c, op->call->root, who, sizeof(who)),
                    (unsigned long long)m->wanted.count, hkt_type_name((hkt_type_t)m->wanted.what));
}

static int send_advance(struct hkt_operation *op)
{
    struct hkt_communicator *c  = op->comm;
    const int                to = op->call->root;
    struct hkt_mail         *m  = mail(c, c->rank, to);
    int                      rc;

    if (op->phase == ROOM) {
        if (op->number > c->known_taken[to] + HKT_MAIL_LINES) {
            rc = hkt_operation_wait(op, &m->taken, op->number - HKT_MAIL_LINES, to);
            if (rc)
                return rc;
            c->known_taken[to] = hkt_load_acquire(&m->taken); /* pairs with hkt_publish() in receive_advance() */
        }
        post(op, m);
    }
    if (op->phase == PUSH)
        return push(op, m);
    if (bytes_of(op) <= HKT_INLINE)
        return 0;
    if (op->phase == HELP) {
        rc = hkt_operation_wait(op, &m->claimed, op->number << HKT_PIECE_BITS, to);
        if (rc)
            return rc;
        rc = help(op, m);
        if (rc)
            return hkt_operation_blame(op, rc);
        op->phase = WAIT_TAKEN;
    }
    rc = hkt_operation_wait(op, &m->taken, op->number, to);
    return rc ? rc : refused(op, m);
}

/* ---- receive ----------------------------------------------------------------------------------------------------- */

static int pull(struct hkt_operation *op, struct hkt_mail *m, bool ready)
{
    struct hkt_communicator *c     = op->comm;
    const int                from  = op->call->root;
    const size_t             bytes = bytes_of(op);

    while ((size_t)op->slice * HKT_EAGER < bytes) {
        const size_t   at   = (size_t)op->slice * HKT_EAGER, n = bytes - at < HKT_EAGER ? bytes - at : HKT_EAGER;
        const uint64_t next = c->pulled[from] + 1;
        const int      rc   = ready ? 0 : hkt_operation_wait(op, &m->pushed, next, from);

        if (rc)
            return rc;
        memcpy((char *)op->call->recv + at, mail_bank(c, from, c->rank, next), n);
        c->pulled[from] = next;
        op->slice++;
        hkt_publish(&m->pulled, next, &c->peer[c->rank].cell->sleepers);
    }
    return 0;
}

/* Takes a piece of a message straight from the sender's buffer. */
static int fetch(struct hkt_operation *op, const struct hkt_line *line, struct piece p)
{
    struct hkt_communicator    *c     = op->comm;
    const struct hkt_entry     *e     = &line->entry;
    const struct hkt_peer      *peer  = &c->peer[op->call->root];
    const struct hkt_location   from  = {e->in_segment ? 0 : e->in_offset, e->in_segment, e->in_segment ? e->in_offset : 0};
    const char                 *there = peer->transport->map(peer->process, &from);
    char                       *here  = (char *)op->call->recv + p.at;

    if (!there)
        return peer->transport->read(peer->process, here, from.address + p.at, p.n);
    if (there + p.at != here)
        hkt_copy_bytes((void **)&here, 1, there + p.at, p.n, 2 * bytes_of(op) >= c->nontemporal);
    return 0;
}

/* My pieces of a shared message; then the sender's have to be there. op->slice counts mine. */
static int fetch_shared(struct hkt_operation *op, struct hkt_mail *m, const struct hkt_line *line)
{
    const size_t bytes = bytes_of(op), each = piece_bytes(bytes);
    const size_t pieces = (bytes + each - 1) / each;
    struct piece p;

    if ((hkt_load_relaxed(&m->claimed) & SIDE) == CLOSED) /* only I can get at my buffer */
        return fetch(op, line, (struct piece){0, bytes});
    for (; claim(op, m, false, &p); op->slice++) {
        const int rc = fetch(op, line, p);

        if (rc)
            return rc;
    }
    return op->slice == pieces ? 0 : hkt_operation_wait(op, &m->helped, op->number << HKT_PIECE_BITS | (pieces - op->slice), op->call->root);
}

/* The message is not what the caller expects. Nothing is stored; a sender that has gone on already makes it fatal. */
static int refuse(struct hkt_operation *op, struct hkt_mail *m, const struct hkt_line *line)
{
    struct hkt_communicator *c     = op->comm;
    const struct hkt_call    there = {.coll = HKT_COLL_SEND, .type = (hkt_type_t)line->signature.what, .count = line->signature.count};
    char                     mine[128], theirs[128], who[128];
    const bool               gone = there.count * hkt_type_size(there.type) <= HKT_INLINE || line->entry.reach == HKT_REACH_STAGE;

    hkt_call_print(op->call, mine, sizeof(mine));
    hkt_call_print(&there, theirs, sizeof(theirs));
    hkt_communicator_who(c, op->call->root, who, sizeof(who));
    if (gone)
        return hkt_communicator_kill(c, HKT_ERR_MISMATCH,
                                     "communicator %s, message %llu: rank %d called %s, but %s called %s; the communicator cannot go on", c->name,
                                     (unsigned long long)op->number, c->rank, mine, who, theirs);
    m->wanted = (struct hkt_signature){.count = op->call->count, .what = (uint32_t)op->call->type};
    hkt_publish(&m->claimed, op->number << HKT_PIECE_BITS | CLOSED, &c->peer[c->rank].cell->sleepers);
    hkt_store_release(&m->refused, op->number);
    hkt_publish(&m->taken, op->number, &c->peer[c->rank].cell->sleepers);
    return hkt_fail(HKT_ERR_MISMATCH, "communicator %s, message %llu: rank %d called %s, but %s called %s; nothing was received", c->name,
                    (unsigned long long)op->number, c->rank, mine, who, theirs);
}

static int receive_advance(struct hkt_operation *op)
{
    struct hkt_communicator *c     = op->comm;
    const int                from  = op->call->root;
    struct hkt_mail         *m     = mail(c, from, c->rank);
    struct hkt_line         *line  = &m->line[hkt_line_index(op->number, HKT_MAIL_LINES)];
    const size_t             bytes = bytes_of(op);
    int                      rc;

    if (op->phase == OFFER) {
        if (bytes >= SHARED_LEAST && (hkt_load_acquire(&line->number) < op->number || line->entry.mail == HKT_MAIL_HELPED))
            offer(op, m); /* pairs with hkt_publish() in post() */
        op->phase = LISTEN;
    }
    if (op->phase == LISTEN) {
        rc = hkt_operation_wait(op, &line->number, op->number, from);
        if (rc)
            return rc;
        if (line->signature.count != op->call->count || line->signature.what != (uint32_t)op->call->type)
            return refuse(op, m, line);
        op->slice = 0;
        op->phase = PULL;
    }
    rc = 0;
    if (bytes <= HKT_INLINE) {
        if (bytes)
            memcpy(op->call->recv, line->data, bytes);
    } else if (line->entry.reach == HKT_REACH_STAGE)
        rc = pull(op, m, line->entry.mail == HKT_MAIL_READY);
    else if (line->entry.mail == HKT_MAIL_HELPED)
        rc = fetch_shared(op, m, line);
    else
        rc = fetch(op, line, (struct piece){0, bytes});
    if (rc < 0)
        return hkt_operation_blame(op, rc);
    if (!rc)
        hkt_publish(&m->taken, op->number, &c->peer[c->rank].cell->sleepers);
    return rc;
}

int hkt_message_advance(struct hkt_operation *op)
{
    return op->call->coll == HKT_COLL_SEND ? send_advance(op) : receive_advance(op);
}
