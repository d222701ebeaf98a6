/* execute_host.c -- the engine for host memory. Walks the bound steps of the plan, slice by slice: wait for what the step waits for, find the
 * pointers, one kernel call, publish. What cannot be pointed at (a peer's plain memory) is read into scratch, or written from what was stored
 * here, block by block.
 *
 * progress of a rank in operation k, after d steps of slice s: k << HKT_STEP_BITS | s * steps + d.
 */
#include "run/execute_host.h"

#include "base/error.h"
#include "base/memory.h"
#include "language/dtype.h"
#include "language/part.h"
#include "run/edge.h"
#include "run/scheduled.h"

#include <string.h>

enum { BLOCK_LEAST = 16384 };

/* A stretch of a buffer, elements. */
struct range {
    size_t begin, length;
};

/* Block `b` of IN or OUT of rank r; for a buffer of one block, b is ignored. */
static struct range block_range(const struct hkt_operation *op, uint32_t r, bool out, size_t b)
{
    const struct hkt_call *call = op->call;
    const enum hkt_extent  kind = out ? hkt_collective[call->coll].out : hkt_collective[call->coll].in;
    const int              n    = op->comm->size;

    if (!call->arrays)
        return (struct range){kind == HKT_BLOCK ? 0 : b * call->count, call->count};
    if (call->coll == HKT_COLL_ALL_TO_ALL) {
        const struct hkt_table_row *row = &hkt_scheduled_table(op, (int)r)[b];

        return out ? (struct range){row->out_displ, row->out_count} : (struct range){row->in_displ, row->in_count};
    }
    if (kind == HKT_BLOCK)
        return (struct range){0, hkt_array(call, out ? HKT_OUT_COUNTS : HKT_IN_COUNTS, n)[r]};
    return (struct range){hkt_array(call, out ? HKT_OUT_DISPLS : HKT_IN_DISPLS, n)[b],
                          hkt_array(call, out ? HKT_OUT_COUNTS : HKT_IN_COUNTS, n)[b]};
}

/* The part of chunk `id` that belongs to the current slice. */
static struct range chunk_range(const struct hkt_operation *op, uint32_t r, bool out, uint32_t id)
{
    const enum hkt_extent kind   = out ? hkt_collective[op->call->coll].out : hkt_collective[op->call->coll].in;
    const uint32_t        chunks = op->plan->chunks, piece = kind == HKT_BLOCKS ? id % chunks : id;
    const struct range    block = block_range(op, r, out, kind == HKT_BLOCKS ? id / chunks : 0);
    const size_t          begin = hkt_part_begin(block.length, chunks, piece), end = hkt_part_begin(block.length, chunks, piece + 1);
    const size_t          skip = (size_t)op->slice * op->slice_elements, left = end - begin > skip ? end - begin - skip : 0;

    return (struct range){block.begin + begin + skip, left < op->slice_elements ? left : op->slice_elements};
}

/* A stretch of a step's value: elements [at, at + count). */
struct piece {
    size_t at, count;
};

/* Where the piece is for one operand, whose elements have `size` bytes there; shortens the piece to what is contiguous. */
static char *pointer(const struct hkt_operation *op, const struct hkt_bound *o, size_t size, struct piece *piece)
{
    const struct hkt_communicator *c = op->comm;
    const bool                     out = o->home == HKT_HOME_OUT;
    size_t                         bytes = piece->count * size;
    char                          *p;

    if (o->home == HKT_HOME_SLOT)
        return c->peer[o->rank].staging + ((op->slice & 1) * (size_t)op->plan->slots + o->id) * op->slot_bytes + piece->at * size;
    p = hkt_edge_pointer(c, o->rank, out, (chunk_range(op, o->rank, out, o->id).begin + piece->at) * size, &bytes);
    piece->count = bytes / size;
    return p;
}

char *hkt_execute_place(const struct hkt_operation *op, const struct hkt_wire_place *p, size_t *bytes)
{
    const size_t size  = p->form == HKT_PARTIAL ? op->wide : op->element;
    struct piece piece = {0, chunk_range(op, p->like.rank, p->like.out, p->like.id).length};

    *bytes = piece.count * size;
    return piece.count ? pointer(op, &p->at, size, &piece) : NULL;
}

/* Plain memory of a peer, which no pointer reaches. */
static bool plain(const struct hkt_operation *op, const struct hkt_bound *o)
{
    return o->copy && !(o->home == HKT_HOME_IN ? op->comm->in_mapped : op->comm->out_mapped)[o->rank];
}

static int read_peer(const struct hkt_operation *op, uint32_t r, void *to, const char *from, size_t size)
{
    const struct hkt_peer *peer = &op->comm->peer[r];

    return peer->transport->read(peer->process, to, (uint64_t)(uintptr_t)from, size);
}

static int write_peer(const struct hkt_operation *op, uint32_t r, char *to, const void *from, size_t size)
{
    const struct hkt_peer *peer = &op->comm->peer[r];

    return peer->transport->write(peer->process, (uint64_t)(uintptr_t)to, from, size);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

struct job {
    struct hkt_operation        *op;
    const struct hkt_bound_step *st;
    const struct hkt_bound      *src, *dst;
    bool                         stream; /* past the caches: not what peers fetch from a slot at once */
    int                          ndst;  /* of the kernel: those that a pointer reaches */
    size_t                       count; /* elements */
    size_t                       in_size, out_size;
};

static int grow_scratch(struct hkt_communicator *c, size_t size)
{
    if (c->scratch_size >= size)
        return 0;
    hkt_free(c->scratch);
    c->scratch      = hkt_alloc_aligned(size, 4096);
    c->scratch_size = c->scratch ? size : 0;
    return c->scratch ? 0 : HKT_ERR_MEMORY;
}

/* A step of one source that changes nothing: bytes. Plain memory is read into, and written from, the first destination that is none. */
static int copy_step(const struct job *j)
{
    struct hkt_operation    *op    = j->op;
    struct hkt_communicator *c     = op->comm;
    const size_t             bytes = j->count * j->in_size;
    const void              *from  = c->src[0];
    void                   **other = c->dst + c->size + 1;
    void                    *here  = NULL;
    uint32_t                 n     = 0;

    for (int i = 0; i < j->st->ndst && !here; i++)
        here = plain(op, &j->dst[i]) ? NULL : c->dst[i];
    if (plain(op, j->src)) {
        if (!here) {
            HKT_TRY(grow_scratch(c, bytes));
            here = c->scratch;
        }
        HKT_TRY(read_peer(op, j->src->rank, here, from, bytes));
        from = here;
    }
    for (int i = 0; i < j->st->ndst; i++)
        if (!plain(op, &j->dst[i]) && c->dst[i] != from)
            other[n++] = c->dst[i];
    if (n)
        hkt_copy_bytes(other, n, from, bytes, j->stream);
    for (int i = 0; i < j->st->ndst; i++)
        if (plain(op, &j->dst[i]))
            HKT_TRY(write_peer(op, j->dst[i].rank, c->dst[i], from, bytes));
    return 0;
}

static void kernel(const struct job *j, size_t count)
{
    struct hkt_operation    *op = j->op;
    struct hkt_communicator *c  = op->comm;
    struct hkt_reduce        r  = {.src     = c->src,
                                   .dst     = c->dst,
                                   .count   = count,
                                   .nsrc    = j->st->nsrc,
                                   .ndst    = (uint32_t)j->ndst,
                                   .divisor = (uint32_t)c->size,
                                   .in      = j->st->in,
                                   .out     = j->st->out,
                                   .stream  = j->stream};

    if (op->call->op == HKT_PREMUL_SUM && j->st->in == HKT_RAW) {
        for (int i = 0; i < j->st->nsrc; i++)
            c->scale[i] = c->scales[j->src[i].from];
        r.scale = c->scale;
    }
    for (int i = 0; r.stream && i < j->ndst; i++)
        for (int s = 0; s < j->st->nsrc; s++)
            r.stream &= c->dst[i] != c->src[s]; /* in place its lines are in the cache already */
    hkt_reduce_kernel(op->call->type, op->call->op)(&r);
}

/* Makes source i of a block usable: copies what cannot be pointed at, widens what is raw among partials. */
static int fetch(const struct job *j, int i, size_t at, size_t count, char *scratch)
{
    struct hkt_operation    *op   = j->op;
    struct hkt_communicator *c    = op->comm;
    const bool               raw  = j->st->mixed && (j->st->raw >> i & 1);
    const size_t             size = raw || j->st->in != HKT_PARTIAL ? op->element : op->wide;
    const char              *from = (const char *)c->src[i] + at * size;

    if (plain(op, &j->src[i])) {
        HKT_TRY(read_peer(op, j->src[i].rank, scratch, from, count * size));
        from = scratch;
        scratch += (count * size + 63) & ~(size_t)63;
    }
    if (raw) {
        const void             *src = from;
        void                   *dst = scratch;
        const struct hkt_reduce r   = {.src = &src, .dst = &dst, .scale = &c->scales[j->src[i].from], .count = count, .nsrc = 1,
                                       .ndst = 1, .divisor = (uint32_t)c->size, .in = HKT_RAW, .out = HKT_PARTIAL};

        hkt_reduce_kernel(op->call->type, op->call->op)(&r);
        from = scratch;
    }
    c->src[i] = from;
    return 0;
}

/* Writes what the kernel has left at `from` to the destinations that no pointer reaches. */
static int deliver(const struct job *j, void *const *dst, const void *from, size_t at, size_t count)
{
    for (int i = 0; i < j->st->ndst; i++)
        if (plain(j->op, &j->dst[i]))
            HKT_TRY(write_peer(j->op, j->dst[i].rank, (char *)dst[i] + at * j->out_size, from, count * j->out_size));
    return 0;
}

/* A step with operands that no pointer reaches, in blocks that stay in the core's cache. */
static int reduce_blocks(struct job *j)
{
    struct hkt_communicator *c    = j->op->comm;
    const int                nsrc = j->st->nsrc;
    const size_t             each = j->in_size + (j->st->mixed ? j->op->element : 0);
    const size_t             room = c->core_cache / 2 / (nsrc + 1u);
    const size_t             block = (room < BLOCK_LEAST ? BLOCK_LEAST : room) / each / HKT_PART_ALIGN * HKT_PART_ALIGN;
    const size_t             lane = (block * each + 2 * 64 + 4095) & ~(size_t)4095;
    const void             **src  = c->src + c->size + 1; /* the starts */
    void                   **dst  = c->dst + c->size + 1;

    HKT_TRY(grow_scratch(c, lane * (nsrc + 1u)));
    memcpy(src, c->src, (size_t)nsrc * sizeof(*src));
    memcpy(dst, c->dst, j->st->ndst * sizeof(*dst));
    for (size_t at = 0; at < j->count; at += block) {
        const size_t n = j->count - at < block ? j->count - at : block;

        for (int i = 0; i < nsrc; i++) {
            c->src[i] = src[i];
            HKT_TRY(fetch(j, i, at, n, c->scratch + (size_t)i * lane));
        }
        j->ndst = 0;
        for (int i = 0; i < j->st->ndst; i++)
            if (!plain(j->op, &j->dst[i]))
                c->dst[j->ndst++] = (char *)dst[i] + at * j->out_size;
        if (!j->ndst)
            c->dst[j->ndst++] = c->scratch + (size_t)nsrc * lane;
        kernel(j, n);
        HKT_TRY(deliver(j, dst, c->dst[0], at, n));
    }
    return 0;
}

/* Bytes of an element of source i. */
static size_t source_size(const struct job *j, int i)
{
    const bool wide = j->st->in == HKT_PARTIAL && !(j->st->mixed && (j->st->raw >> i & 1));

    return wide ? j->op->wide : j->op->element;
}

static int run_piece(struct job *j, struct piece *piece)
{
    struct hkt_operation        *op      = j->op;
    struct hkt_communicator     *c       = op->comm;
    const struct hkt_bound_step *st      = j->st;
    bool                         blocks  = st->mixed;

    for (int i = 0; i < st->nsrc; i++) {
        c->src[i] = pointer(op, &j->src[i], source_size(j, i), piece);
        blocks |= plain(op, &j->src[i]);
    }
    for (int i = 0; i < st->ndst; i++) {
        c->dst[i] = pointer(op, &j->dst[i], j->out_size, piece);
        blocks |= plain(op, &j->dst[i]);
    }
    j->count = piece->count;
    j->ndst  = st->ndst;
    if (st->nsrc == 1 && (st->in == st->out || !hkt_collective[op->call->coll].reduces))
        return copy_step(j);
    if (blocks)
        return reduce_blocks(j);
    kernel(j, j->count);
    return 0;
}

static int run_step(struct hkt_operation *op, const struct hkt_bound_step *st)
{
    struct job   j     = {.op = op, .st = st, .src = op->plan->operand + st->first};
    const size_t count = chunk_range(op, st->like.rank, st->like.out, st->like.id).length;

    j.dst      = j.src + st->nsrc;
    j.in_size  = st->in == HKT_PARTIAL ? op->wide : op->element;
    j.out_size = st->out == HKT_PARTIAL ? op->wide : op->element;
    j.stream   = op->stream;
    for (int i = 0; i < st->ndst; i++)
        j.stream &= j.dst[i].home != HKT_HOME_SLOT;
    for (size_t at = 0; at < count; at += j.count) { /* once, unless a buffer has edges */
        struct piece piece = {at, count - at};

        HKT_TRY(run_piece(&j, &piece));
    }
    return 0;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Goes through waits [first, first + n) from op->wait on. */
static int pass_waits(struct hkt_operation *op, uint32_t first, uint32_t n)
{
    for (; op->wait < n; op->wait++) {
        const struct hkt_wait_for *w = &op->plan->wait[first + op->wait];
        uint64_t                   done;
        int                        rc;

        if (op->slice < w->back)
            continue;
        done = (uint64_t)(op->slice - w->back) * op->plan->steps_of[w->rank] + w->steps;
        rc   = hkt_operation_wait(op, &op->comm->peer[w->rank].cell->progress, op->number << HKT_STEP_BITS | done, (int)w->rank);
        if (rc)
            return rc;
    }
    op->wait = 0;
    return 0;
}

/* One step from where it was left: its waits, its messages from other hosts, the work, its messages to them. */
static int walk_step(struct hkt_operation *op, const struct hkt_bound_step *st)
{
    int rc = 0;

    switch (op->stage) {
    case HKT_STAGE_SLICE:
    case HKT_STAGE_WAITS:
        rc = op->plan->nlandings ? hkt_execute_name(op, false) : 0;
        if (!rc)
            rc = pass_waits(op, st->wait, st->nwait);
        if (rc)
            return rc;
        op->stage = HKT_STAGE_ARRIVALS;
        /* fall through */
    case HKT_STAGE_ARRIVALS:
        rc = op->plan->nlandings ? hkt_execute_arrivals(op, st) : 0;
        if (rc)
            return rc;
        rc = run_step(op, st);
        if (rc)
            return rc;
        op->stage = HKT_STAGE_SENDS;
        /* fall through */
    default:
        if (st->nsend)
            rc = hkt_execute_sends(op, st);
        if (rc)
            return rc;
        op->stage = HKT_STAGE_WAITS;
        return 0;
    }
}

static int walk_slice(struct hkt_operation *op)
{
    const struct hkt_plan *p    = op->plan;
    struct hkt_cell       *cell = op->comm->peer[op->comm->rank].cell;

    for (; op->step < p->nsteps; op->step++) {
        const struct hkt_bound_step *st = &p->step[op->step];
        const int                    rc = walk_step(op, st);

        if (rc) /* a wait that failed has killed the communicator already */
            return rc == HKT_IN_PROGRESS || hkt_communicator_state(op->comm) ? rc : hkt_operation_blame(op, rc);
        if (st->publish)
            hkt_publish(&cell->progress, op->number << HKT_STEP_BITS | ((uint64_t)op->slice * p->nsteps + op->step + 1), &cell->sleepers);
    }
    return 0;
}

int hkt_execute_host(struct hkt_operation *op)
{
    const struct hkt_plan *p = op->plan;
    int                    rc;

    for (; op->slice < op->slices; op->slice++, op->step = 0, op->stage = HKT_STAGE_SLICE) {
        rc = p->lane_in && op->stage == HKT_STAGE_SLICE ? hkt_execute_slice(op) : 0;
        if (!rc)
            rc = walk_slice(op);
        if (rc)
            return rc;
    }
    if (!op->slices)
        return 0;
    op->slice = op->slices - 1; /* the last waits are those of the last slice; stay there when resumed */
    op->step  = p->nsteps;
    rc        = pass_waits(op, p->last, p->nlast);
    if (!rc && p->lane_in)
        rc = hkt_execute_end(op);
    if (!rc)
        hkt_edge_restore(op, &op->comm->out_edge[op->comm->rank]);
    return rc;
}
