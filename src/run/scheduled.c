/* scheduled.c -- large collectives, from entry to the engine: every rank says where its buffers are; all ranks then know how everybody can
 * reach everybody, take the plan for that, and run it (execute_host.c).
 *
 *   room     until my line for this operation may be written
 *   entry    write it: signature, places of my buffers, how they can be reached
 *   hear     all lines: compare signatures; the worst reach decides; pointers to everybody's buffers
 *   staging  when the plan uses slots: my staging memory, everybody's staging memory
 *   steps    the plan
 */
#include "run/scheduled.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/option.h"
#include "language/dtype.h"
#include "language/part.h"
#include "run/buffer.h"
#include "run/edge.h"
#include "run/execute_host.h"
#include "run/far.h"
#include "run/tune.h"

#include <string.h>
#include <sys/mman.h>

enum { ROOM, HEAR, PLAN, STAGING, STEPS };
enum { SLICES_BYTES = 4 << 20, SLICE_MOST = 512 << 10, SLICE_LEAST = 64 << 10 };

static struct hkt_table_row *table(const struct hkt_communicator *c, int rank, uint64_t number)
{
    struct hkt_table_row *rows = (struct hkt_table_row *)(void *)((char *)c->shared + c->layout.tables);

    if (c->far) /* gathered before */
        return c->far->rows + (size_t)rank * (size_t)c->size;
    return rows + ((size_t)rank * HKT_TABLES + number % HKT_TABLES) * (size_t)c->size;
}

const struct hkt_table_row *hkt_scheduled_table(const struct hkt_operation *op, int rank)
{
    return table(op->comm, rank, op->number);
}

static struct hkt_edge edge_of(const struct hkt_operation *op, int r, bool out, const struct hkt_location *at)
{
    const size_t bytes = op->call->arrays ? 0 : hkt_call_extent(op->call, out, r, op->comm->size) * op->element;

    return hkt_edge_of(op->comm, r, at, bytes, op->element);
}

/* My line, and for all_to_all_v my row of the table. */
static void enter(struct hkt_operation *op)
{
    struct hkt_communicator *c    = op->comm;
    const struct hkt_call   *call = op->call;
    struct hkt_line         *line = hkt_line_of(c, c->rank, op->number);
    struct hkt_location      in, out;
    const enum hkt_reach     in_reach = hkt_buffer_of_call(c, call, false, &in), out_reach = hkt_buffer_of_call(c, call, true, &out);
    const struct hkt_edge    edge     = edge_of(op, c->rank, false, &in);

    hkt_edge_save(op, &edge);
    if (call->coll == HKT_COLL_ALL_TO_ALL && call->arrays && !c->far)
        for (int r = 0; r < c->size; r++)
            table(c, c->rank, op->number)[r] = (struct hkt_table_row){
                hkt_array(call, HKT_IN_COUNTS, c->size)[r], hkt_array(call, HKT_IN_DISPLS, c->size)[r],
                hkt_array(call, HKT_OUT_COUNTS, c->size)[r], hkt_array(call, HKT_OUT_DISPLS, c->size)[r]};
    line->signature = hkt_signature_make(c, call);
    line->entry     = (struct hkt_entry){.in_offset   = in.segment ? in.offset : in.address,
                                         .out_offset  = out.segment ? out.offset : out.address,
                                         .in_segment  = in.segment,
                                         .out_segment = out.segment,
                                         .scale       = call->scale,
                                         .reach       = (uint32_t)(in_reach > out_reach ? in_reach : out_reach),
                                         .way         = {0, 0}};
    if (c->rank == c->leader) {
        line->entry.way.plain  = (uint16_t)hkt_tune_way(c, call, HKT_PLAIN);
        line->entry.way.mapped = (uint16_t)hkt_tune_way(c, call, HKT_MAPPED);
    }
    hkt_publish(&line->number, op->number, &c->peer[c->rank].cell->sleepers);
}

/* A pointer to a buffer of rank r, or its address there; says which. */
static char *base_of(const struct hkt_communicator *c, int r, uint32_t segment, uint64_t offset, bool *mapped)
{
    const struct hkt_location at = {.address = segment ? 0 : offset, .segment = segment, .offset = segment ? offset : 0};
    char                     *p  = c->peer[r].transport->map(c->peer[r].process, &at);

    *mapped = p != NULL;
    return p ? p : (char *)(uintptr_t)at.address;
}

/* The largest block of any rank, elements: the same on every rank, so what depends on it is too. */
static size_t largest_block(const struct hkt_operation *op)
{
    const struct hkt_communicator *c     = op->comm;
    size_t                         block = op->call->count;

    if (op->call->coll == HKT_COLL_ALL_TO_ALL && op->call->arrays) /* its counts differ from rank to rank */
        for (int r = block = 0; r < c->size; r++)
            for (int p = 0; p < c->size; p++)
                block = table(c, r, op->number)[p].in_count > block ? table(c, r, op->number)[p].in_count : block;
    return block;
}

/* All lines are there: do they match, and how is everybody reached? */
static int compare(struct hkt_operation *op, struct hkt_request *request)
{
    struct hkt_communicator   *c    = op->comm;
    const struct hkt_signature mine = hkt_line_of(c, c->rank, op->number)->signature;

    request->reach = HKT_REACH_MAP;
    request->way   = (enum hkt_way)hkt_line_of(c, c->leader, op->number)->entry.way.plain;
    for (int r = 0; r < c->size; r++) {
        const struct hkt_line *line = hkt_near(c, r) ? hkt_line_of(c, r, op->number) : NULL;

        if (!line)
            continue;
        if (!hkt_signature_equal(&line->signature, &mine))
            return hkt_communicator_mismatch(c, op->number, r);
        if ((enum hkt_reach)line->entry.reach > request->reach)
            request->reach = (enum hkt_reach)line->entry.reach;
    }
    for (int r = 0; r < c->size; r++) {
        const struct hkt_entry *e = hkt_near(c, r) ? &hkt_line_of(c, r, op->number)->entry : NULL;

        if (!e)
            continue;
        c->in[r]     = base_of(c, r, e->in_segment, e->in_offset, &c->in_mapped[r]);
        c->out[r]    = base_of(c, r, e->out_segment, e->out_offset, &c->out_mapped[r]);
        c->scales[r] = e->scale;
        c->in_edge[r]  = edge_of(op, r, false, &(struct hkt_location){.segment = e->in_segment, .offset = e->in_offset});
        c->out_edge[r] = edge_of(op, r, true, &(struct hkt_location){.segment = e->out_segment, .offset = e->out_offset});
    }
    c->in[c->rank]  = (char *)(uintptr_t)op->call->send;
    c->out[c->rank] = op->call->recv;
    c->reach        = (uint8_t)request->reach;
    return 0;
}

/* all_to_all_v: what each rank sends to each other must be what that one expects. Every rank looks at all pairs, so all find the same. */
static int compare_tables(const struct hkt_operation *op)
{
    const struct hkt_communicator *c = op->comm;
    char                           sender[128], receiver[128];

    for (int from = 0; from < c->size; from++)
        for (int to = 0; to < c->size; to++) {
            const uint64_t sent = table(c, from, op->number)[to].in_count, expected = table(c, to, op->number)[from].out_count;

            if (sent == expected)
                continue;
            hkt_communicator_who(c, from, sender, sizeof(sender));
            hkt_communicator_who(c, to, receiver, sizeof(receiver));
            return hkt_fail(HKT_ERR_MISMATCH,
                            "communicator %s, operation %llu, all_to_all_v: %s sends %llu elements to %s, which expects %llu; nothing was done; make "
                            "the counts of both agree",
                            c->name, (unsigned long long)op->number, sender, (unsigned long long)sent, receiver,
                            (unsigned long long)expected);
        }
    return 0;
}

/* Bytes of staging memory that the plan needs; the same on every rank of this host. */
static size_t staging_bytes(const struct hkt_operation *op)
{
    if (op->comm->far)
        return 2 * (size_t)op->plan->slots * op->slot_bytes;
    const size_t least = 2 * (size_t)op->plan->slots * HKT_STAGE_LEAST;

    return !op->plan->slots ? 0 : least > hkt_options()->staging ? least : hkt_options()->staging;
}

size_t hkt_scheduled_slice(int size)
{
    const size_t each = (SLICES_BYTES / (size_t)size + 4095) & ~(size_t)4095;

    return each > SLICE_MOST ? SLICE_MOST : each < SLICE_LEAST ? SLICE_LEAST : each;
}

static void cut_slices(struct hkt_operation *op, size_t block)
{
    const size_t wide    = op->wide > op->element ? op->wide : op->element;
    const size_t longest = hkt_part_begin(block, op->plan->chunks, 1); /* chunk */

    op->slices         = longest != 0;
    op->slice_elements = longest;
    if (op->comm->far || op->plan->slots) {
        op->slot_bytes     = op->comm->far ? hkt_scheduled_slice(op->comm->size) : staging_bytes(op) / (2 * op->plan->slots) / 4096 * 4096;
        op->slice_elements = op->slot_bytes / wide / HKT_PART_ALIGN * HKT_PART_ALIGN;
        op->slices         = (uint32_t)(longest / op->slice_elements + (longest % op->slice_elements != 0));
    }
}

static int plan(struct hkt_operation *op)
{
    struct hkt_communicator *c    = op->comm;
    const struct hkt_call   *call = op->call;
    struct hkt_request       request;
    size_t                   traffic;
    bool                     mapped;

    op->wide = hkt_wide_size(call->type, call->op);
    HKT_TRY(compare(op, &request));
    if (call->coll == HKT_COLL_ALL_TO_ALL && call->arrays)
        HKT_TRY(compare_tables(op));
    c->entered = op->number;
    request.block = largest_block(op);
    HKT_TRY(hkt_tune_plan(c, call, request, &op->plan));
    traffic    = hkt_call_traffic(call, request.block, c->size) * op->element;
    mapped     = request.reach == HKT_REACH_MAP;
    op->stream = mapped ? hkt_line_of(c, c->leader, op->number)->entry.way.mapped == HKT_WAY_BYPASS : traffic >= c->nontemporal;
    op->way    = mapped ? (enum hkt_way)op->stream : request.way;
    op->asked  = mapped ? HKT_MAPPED : HKT_PLAIN;
    op->step = op->wait = op->slice = 0;
    op->stage = HKT_STAGE_SLICE;
    cut_slices(op, request.block);
    op->began = hkt_tune_learns(c, request.reach, traffic) ? hkt_now_ns() : 0;
    return 0;
}

/* Everybody's staging memory is as large as this plan needs. */
static int stage(struct hkt_operation *op)
{
    struct hkt_communicator *c    = op->comm;
    const size_t             need = staging_bytes(op);

    HKT_TRY(hkt_buffer_stage(c, need));
    for (; op->peer < c->size; op->peer++) {
        struct hkt_cell *cell = c->peer[op->peer].cell;
        int              rc   = !cell ? 0 : hkt_operation_wait(op, &cell->staging, (uint64_t)(need >> 12) << 32, op->peer);

        if (!rc && cell)
            rc = hkt_buffer_staging_of(c, op->peer, need);
        if (rc)
            return rc;
    }
    op->peer = 0;
    return 0;
}

/* Waits for everybody's line. */
static int hear(struct hkt_operation *op)
{
    struct hkt_communicator *c = op->comm;

    for (; op->peer < c->size; op->peer++) {
        int rc;

        if (op->peer == c->rank || !hkt_near(c, op->peer))
            continue;
        rc = hkt_operation_wait(op, &hkt_line_of(c, op->peer, op->number)->number, op->number, op->peer);
        if (rc)
            return rc;
    }
    op->peer = 0;
    return 0;
}

/* A mismatch is told by both sides already; anything else that goes wrong here is this rank's alone. */
static int fatal(struct hkt_operation *op, int rc)
{
    return rc == HKT_IN_PROGRESS || rc == HKT_ERR_MISMATCH ? rc : hkt_operation_blame(op, rc);
}

/* The plan, to the end. */
static int steps(struct hkt_operation *op)
{
    const int rc = hkt_execute_host(op);

    if (!rc && op->began)
        hkt_tune_learn(op->comm, op->call, op->asked, op->way, (double)(hkt_now_ns() - op->began) * 1e-9);
    return rc;
}

int hkt_scheduled_advance(struct hkt_operation *op)
{
    int rc = 0;

    switch (op->phase) {
    case ROOM:
        op->element = op->call->element;
        rc = hkt_operation_room(op, op->call->coll == HKT_COLL_ALL_TO_ALL && op->call->arrays ? HKT_TABLES : HKT_LINES);
        if (rc)
            return rc;
        enter(op);
        op->phase = HEAR;
        /* fall through */
    case HEAR:
        rc = hear(op);
        if (rc)
            return rc;
        op->phase = PLAN;
        /* fall through */
    case PLAN:
        rc = plan(op);
        if (rc)
            return fatal(op, rc);
        op->phase = op->plan->slots && op->slices ? STAGING : STEPS;
        if (op->phase == STEPS)
            return steps(op);
        /* fall through */
    case STAGING:
        rc = stage(op);
        if (rc)
            return fatal(op, rc);
        op->phase = STEPS;
        /* fall through */
    default:
        return steps(op);
    }
}
