/* message.c -- send and receive between two ranks: a ring of lines per direction (shared.h, struct hkt_mail).
 *
 *   small   up to 40 bytes: the data goes with the line, the sender goes on at once
 *   mapped  the line says where the data is; the receiver copies it, the sender waits until it is taken
 *   read    the same, by process_vm_readv
 *   staged  all else: the sender pushes slices through the banks and goes on when all are in; the receiver pulls them
 *
 * Message k of a direction uses line k % HKT_MAIL_LINES, free again once the receiver has taken k - HKT_MAIL_LINES.
 */
#include "base/error.h"
#include "language/dtype.h"
#include "run/buffer.h"
#include "run/operation.h"
#include "run/tune.h"

#include <string.h>

enum { ROOM, PUSH, WAIT_TAKEN };
enum { LISTEN, PULL };

static struct hkt_mail *mail(const struct hkt_communicator *c, int from, int to)
{
    return (struct hkt_mail *)((char *)c->shared + c->layout.mail) + ((size_t)from * (size_t)c->size + (size_t)to);
}

static unsigned char *mail_bank(const struct hkt_communicator *c, int from, int to, uint64_t i)
{
    return (unsigned char *)c->shared + c->layout.mail_banks +
           (((size_t)from * (size_t)c->size + (size_t)to) * HKT_MAIL_BANKS + i % HKT_MAIL_BANKS) * HKT_EAGER;
}

static size_t bytes_of(const struct hkt_operation *op)
{
    return op->call->count * op->call->element;
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

        if (next > HKT_MAIL_BANKS) {
            const int rc = hkt_operation_wait(op, &m->pulled, next - HKT_MAIL_BANKS, to);

            if (rc)
                return rc;
        }
        memcpy(mail_bank(c, c->rank, to, next), (const char *)op->call->send + at, n);
        c->pushed[to] = next;
        op->slice++;
        hkt_publish(&m->pushed, next, &c->peer[c->rank].cell->sleepers);
    }
    return 0;
}

/* Writes the line; small data goes with it. */
static void post(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c     = op->comm;
    const size_t             bytes = bytes_of(op);
    struct hkt_line         *line  = &m->line[op->number % HKT_MAIL_LINES];
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
        if (line->entry.reach == HKT_REACH_STAGE)
            op->phase = PUSH;
    }
    hkt_publish(&line->number, op->number, &c->peer[c->rank].cell->sleepers);
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
        if (op->number > HKT_MAIL_LINES) {
            rc = hkt_operation_wait(op, &m->taken, op->number - HKT_MAIL_LINES, to);
            if (rc)
                return rc;
        }
        post(op, m);
    }
    if (op->phase == PUSH)
        return push(op, m);
    if (bytes_of(op) <= HKT_INLINE)
        return 0;
    rc = hkt_operation_wait(op, &m->taken, op->number, to);
    return rc ? rc : refused(op, m);
}

/* ---- receive ----------------------------------------------------------------------------------------------------- */

static int pull(struct hkt_operation *op, struct hkt_mail *m)
{
    struct hkt_communicator *c     = op->comm;
    const int                from  = op->call->root;
    const size_t             bytes = bytes_of(op);

    while ((size_t)op->slice * HKT_EAGER < bytes) {
        const size_t   at   = (size_t)op->slice * HKT_EAGER, n = bytes - at < HKT_EAGER ? bytes - at : HKT_EAGER;
        const uint64_t next = c->pulled[from] + 1;
        const int      rc   = hkt_operation_wait(op, &m->pushed, next, from);

        if (rc)
            return rc;
        memcpy((char *)op->call->recv + at, mail_bank(c, from, c->rank, next), n);
        c->pulled[from] = next;
        op->slice++;
        hkt_publish(&m->pulled, next, &c->peer[c->rank].cell->sleepers);
    }
    return 0;
}

/* Takes a large message straight from the sender's buffer. */
static int fetch(struct hkt_operation *op, const struct hkt_line *line)
{
    struct hkt_communicator    *c     = op->comm;
    const struct hkt_entry     *e     = &line->entry;
    const struct hkt_peer      *peer  = &c->peer[op->call->root];
    const size_t                bytes = bytes_of(op);
    const struct hkt_location   at    = {e->in_segment ? 0 : e->in_offset, e->in_segment, e->in_segment ? e->in_offset : 0};
    const char                 *there = peer->transport->map(peer->process, &at);

    if (!there)
        return peer->transport->read(peer->process, op->call->recv, at.address, bytes);
    if (there != op->call->recv)
        hkt_copy_bytes(&op->call->recv, 1, there, bytes, 2 * bytes >= c->nontemporal);
    return 0;
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
    struct hkt_line         *line  = &m->line[op->number % HKT_MAIL_LINES];
    const size_t             bytes = bytes_of(op);
    int                      rc;

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
        rc = pull(op, m);
    else
        rc = fetch(op, line);
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
