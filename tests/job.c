/* job.c -- see job.h. What differs between the collectives is one table. */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum extent { NONE, ONE /* the rank's own block */, ALL /* one block per rank */ };

static const struct form {
    const char *name;
    enum extent in, out;
    bool        reduces, rooted, in_root_only, out_root_only, v, in_place;
} form[COLLS] = {
    [ALL_REDUCE]       = {"all_reduce", ONE, ONE, true, false, false, false, false, true},
    [REDUCE_SCATTER]   = {"reduce_scatter", ALL, ONE, true, false, false, false, false, true},
    [ALL_GATHER]       = {"all_gather", ONE, ALL, false, false, false, false, false, true},
    [REDUCE]           = {"reduce", ONE, ONE, true, true, false, true, false, true},
    [BROADCAST]        = {"broadcast", ONE, ONE, false, true, true, false, false, true},
    [GATHER]           = {"gather", ONE, ALL, false, true, false, true, false, true},
    [SCATTER]          = {"scatter", ALL, ONE, false, true, true, false, false, true},
    [ALL_TO_ALL]       = {"all_to_all", ALL, ALL, false, false, false, false, false, false},
    [REDUCE_SCATTER_V] = {"reduce_scatter_v", ALL, ONE, true, false, false, false, true, true},
    [ALL_GATHER_V]     = {"all_gather_v", ONE, ALL, false, false, false, false, true, true},
    [GATHER_V]         = {"gather_v", ONE, ALL, false, true, false, true, true, true},
    [SCATTER_V]        = {"scatter_v", ALL, ONE, false, true, true, false, true, true},
    [ALL_TO_ALL_V]     = {"all_to_all_v", ALL, ALL, false, false, false, false, true, false},
    [BARRIER]          = {"barrier", NONE, NONE, false, false, false, false, false, false},
};

const char *const coll_name[COLLS] = {"all_reduce", "reduce_scatter",   "all_gather",   "reduce",   "broadcast", "gather",       "scatter",
                                      "all_to_all", "reduce_scatter_v", "all_gather_v", "gather_v", "scatter_v", "all_to_all_v", "barrier"};

bool coll_reduces(enum coll coll)
{
    return form[coll].reduces;
}

void lab_open(struct lab *lab, hkt_comm_t *comm, size_t bytes)
{
    memset(lab, 0, sizeof(*lab));
    lab->comm = comm;
    expect_ok(hkt_comm_rank(comm, &lab->rank));
    expect_ok(hkt_comm_size(comm, &lab->n));
    arena_make(&lab->arena, comm, bytes);
    expect_ok(hkt_op_create_premul_sum(&lab->premul[0], factor(HKT_UINT8, lab->rank), comm));
    expect_ok(hkt_op_create_premul_sum(&lab->premul[1], factor(HKT_FLOAT32, lab->rank), comm));
}

void lab_close(struct lab *lab)
{
    expect_ok(hkt_op_destroy(lab->premul[0], lab->comm));
    expect_ok(hkt_op_destroy(lab->premul[1], lab->comm));
    arena_free(&lab->arena);
}

/* ---- blocks */

/* Elements that go from rank `from` to rank `to` in a v-form; where there is one count per rank, that of `to` with from == to. */
static size_t v_count(const struct job *j, int from, int to)
{
    const uint64_t random = mix(j->seed ^ 0x7637 ^ mix((uint64_t)from * MOST_BLOCKS + (uint64_t)to));

    if (j->count == 0 || random % 100 < (j->sparse ? 70 : 15))
        return 0;
    return from + to == 0 ? j->count : 1 + (random >> 20) % j->count;
}

static size_t count_of(const struct running *r, enum side side, int block)
{
    const struct job *j = &r->job;

    if (!form[j->coll].v)
        return j->count;
    if (j->coll != ALL_TO_ALL_V)
        return v_count(j, block, block);
    return side == SEND ? v_count(j, r->lab->rank, block) : v_count(j, block, r->lab->rank);
}

/* Fills counts and displacements of a side; returns the elements from its start to the end of its last block. */
static size_t lay_out(struct running *r, enum side side, enum extent extent)
{
    const bool gaps = form[r->job.coll].v && !r->job.packed;
    size_t     at   = 0;

    r->all[side]    = extent == ALL;
    r->blocks[side] = extent == ALL ? r->lab->n : extent == ONE;
    for (int b = 0; b < r->lab->n; b++) {
        r->counts[side][b] = count_of(r, side, b);
        if (gaps && r->counts[side][b])
            at += mix(r->job.seed ^ (uint64_t)b) % 4; /* the same on every rank */
        r->displs[side][b] = at;
        at += r->counts[side][b];
    }
    return extent == ALL ? at : extent == ONE ? r->counts[side][r->lab->rank] : 0;
}

/* The block that stands at place b of a side: of a side with one block that of the rank itself. */
static size_t block_count(const struct running *r, enum side side, int b)
{
    return r->counts[side][r->all[side] ? b : r->lab->rank];
}

static char *block_at(const struct running *r, enum side side, int b)
{
    return r->at[side] + (r->all[side] ? r->displs[side][b] * size_of(r->job.type) : 0);
}

/* Data that is meant for rank `to` starts at this index of its sender's elements. */
static size_t index_for(const struct job *j, int to)
{
    return form[j->coll].in == ALL ? (size_t)to * 1009 : 0;
}

static struct origin origin_of(const struct running *r, enum side side, int b)
{
    const struct job *j = &r->job;
    struct origin     o = {j->type, j->values, j->seed ^ r->data, j->op, r->lab->n, r->lab->rank, index_for(j, b)};

    if (side == SEND)
        return o;
    o.index = index_for(j, r->lab->rank);
    if (form[j->coll].reduces)
        o.source = EVERYBODY;
    else if (form[j->coll].out == ALL)
        o.source = b;
    else
        o.source = j->root;
    return o;
}

/* ---- buffers */

/* One span that holds both sides; the smaller lies where the rank's own block does. */
static void place_together(struct running *r, size_t in, size_t out)
{
    const struct form *f    = &form[r->job.coll];
    const size_t       size = size_of(r->job.type), rank = (size_t)r->lab->rank;

    r->span[SEND] = arena_span(&r->lab->arena, r->job.memory[SEND], SEND, (in > out ? in : out) * size, r->job.shift[SEND]);
    r->span[RECV] = (struct span){NULL, 0, 0, 0};
    r->at[SEND] = r->at[RECV] = r->span[SEND].at;
    if (f->in == ONE && f->out == ALL)
        r->at[SEND] += r->displs[RECV][rank] * size;
    if (f->in == ALL && f->out == ONE)
        r->at[RECV] += r->displs[SEND][rank] * size;
}

static void place_apart(struct running *r, enum side side, size_t elements)
{
    const struct job *j = &r->job;

    r->span[side] = arena_span(&r->lab->arena, j->memory[side], side, elements * size_of(j->type), j->shift[side]);
    r->at[side]   = r->span[side].at;
    if (elements == 0 && j->seed & 1)
        r->at[side] = NULL; /* allowed: nothing is read or written */
}

static bool has(const struct running *r, enum side side)
{
    const struct form *f = &form[r->job.coll];

    if ((side == SEND ? f->in : f->out) == NONE)
        return false;
    return !(side == SEND ? f->in_root_only : f->out_root_only) || r->lab->rank == r->job.root;
}

static bool together(const struct running *r)
{
    return r->job.in_place && form[r->job.coll].in_place && has(r, SEND) && has(r, RECV);
}

static void fill_inputs(struct running *r)
{
    for (int b = 0; has(r, SEND) && b < r->blocks[SEND]; b++) {
        const struct origin o = origin_of(r, SEND, b);

        if (block_count(r, SEND, b))
            fill(&o, block_at(r, SEND, b), block_count(r, SEND, b));
    }
}

static void prepare(struct running *r)
{
    const struct form *f   = &form[r->job.coll];
    const size_t       in  = lay_out(r, SEND, f->in), out = lay_out(r, RECV, f->out);

    r->at[SEND] = r->at[RECV] = NULL;
    r->span[SEND] = r->span[RECV] = (struct span){NULL, 0, 0, 0};
    if (together(r)) {
        place_together(r, in, out);
    } else {
        if (has(r, SEND))
            place_apart(r, SEND, in);
        if (has(r, RECV))
            place_apart(r, RECV, out);
    }
    fill_inputs(r);
}

/* ---- the call */

static int call_v(const struct running *r, const void *send, void *recv, hkt_op_t op, hkt_stream_t *stream)
{
    const struct job *j        = &r->job;
    hkt_comm_t       *comm     = r->lab->comm;
    const size_t     *in       = j->packed ? NULL : r->displs[SEND];
    const size_t     *out      = j->packed ? NULL : r->displs[RECV];

    switch (j->coll) {
    case REDUCE_SCATTER_V:
        return hkt_reduce_scatter_v(send, recv, r->counts[SEND], in, j->type, op, comm, stream);
    case ALL_GATHER_V:
        return hkt_all_gather_v(send, recv, r->counts[RECV], out, j->type, comm, stream);
    case GATHER_V:
        return hkt_gather_v(send, recv, r->counts[RECV], out, j->type, j->root, comm, stream);
    case SCATTER_V:
        return hkt_scatter_v(send, recv, r->counts[SEND], in, j->type, j->root, comm, stream);
    case ALL_TO_ALL_V:
        return hkt_all_to_all_v(send, r->counts[SEND], in, recv, r->counts[RECV], out, j->type, comm, stream);
    default:
        return HKT_ERR_INTERNAL;
    }
}

int job_call(const struct running *r, const void *send, void *recv, hkt_stream_t *stream)
{
    const struct job *j    = &r->job;
    hkt_comm_t       *comm = r->lab->comm;
    const hkt_op_t    op   = j->op == OP_PREMUL ? r->lab->premul[j->type % 2 == 0 || j->type > HKT_UINT64] : (hkt_op_t)j->op;

    switch (j->coll) {
    case ALL_REDUCE:
        return hkt_all_reduce(send, recv, j->count, j->type, op, comm, stream);
    case REDUCE_SCATTER:
        return hkt_reduce_scatter(send, recv, j->count, j->type, op, comm, stream);
    case ALL_GATHER:
        return hkt_all_gather(send, recv, j->count, j->type, comm, stream);
    case REDUCE:
        return hkt_reduce(send, recv, j->count, j->type, op, j->root, comm, stream);
    case BROADCAST:
        return hkt_broadcast(send, recv, j->count, j->type, j->root, comm, stream);
    case GATHER:
        return hkt_gather(send, recv, j->count, j->type, j->root, comm, stream);
    case SCATTER:
        return hkt_scatter(send, recv, j->count, j->type, j->root, comm, stream);
    case ALL_TO_ALL:
        return hkt_all_to_all(send, recv, j->count, j->type, comm, stream);
    case BARRIER:
        return hkt_barrier(comm, stream);
    default:
        return call_v(r, send, recv, op, stream);
    }
}

void job_start(struct running *r, struct lab *lab, const struct job *job, hkt_stream_t *stream)
{
    r->job  = *job;
    r->lab  = lab;
    r->data = 0;
    prepare(r);
    doing("job %ld: %s of %zu %s %s, n = %d, root %d, %s %s+%zu to %s+%zu%s%s, seed %#llx", lab->jobs++, coll_name[job->coll], job->count,
          hkt_type_name(job->type), form[job->coll].reduces ? name_of_op(job->op) : "", lab->n, job->root,
          together(r) ? "in place" : "from", memory_name[job->memory[SEND]], job->shift[SEND], memory_name[job->memory[RECV]],
          job->shift[RECV], job->packed ? ", packed" : "", stream ? ", on a stream" : "", (unsigned long long)job->seed);
    expect_ok(lab->call ? lab->call(r, stream) : job_call(r, r->at[SEND], r->at[RECV], stream));
}

/* ---- the check */

static void check_blocks(const struct running *r, enum side side, int except)
{
    for (int b = 0; b < r->blocks[side]; b++) {
        const struct origin o     = origin_of(r, side, b);
        const size_t        count = block_count(r, side, b);
        const size_t        bad   = count && b != except ? differs(&o, block_at(r, side, b), count) : count;
        uint64_t            right = 0;

        if (bad == count)
            continue;
        fill(&(struct origin){o.type, o.values, o.seed, o.op, o.n, o.source, o.index + bad}, &right, 1);
        fail_at(__FILE__, __LINE__, "%s block %d, element %zu of %zu is %#llx, not %#llx", side == SEND ? "the input was changed:" : "result:", b,
                bad, count, (unsigned long long)load_element(o.type, block_at(r, side, b), bad), (unsigned long long)right);
    }
}

static void check_gaps(const struct running *r, enum side side)
{
    const size_t size = size_of(r->job.type);
    size_t       end  = 0;

    for (int b = 0; r->all[side] && b < r->blocks[side]; b++) {
        const size_t at = r->displs[side][b];

        expect(at <= end || untouched(r->at[side] + end * size, (at - end) * size), "the gap before block %d was written", b);
        end = at + r->counts[side][b];
    }
}

void job_again(struct running *r, uint64_t data)
{
    r->data = data;
    for (int s = 0; s < SIDES; s++)
        if (r->span[s].at)
            memset(r->span[s].at, UNTOUCHED, r->span[s].size);
    fill_inputs(r);
}

void job_check(const struct running *r)
{
    const struct form *f = &form[r->job.coll];

    if (has(r, RECV)) {
        check_blocks(r, RECV, -1);
        if (r->at[RECV])
            check_gaps(r, RECV);
    }
    if (has(r, SEND) && !together(r))
        check_blocks(r, SEND, -1);
    else if (together(r) && f->in == ALL) /* only the rank's own block was to be written */
        check_blocks(r, SEND, r->lab->rank);
    span_check(&r->span[SEND], "send");
    span_check(&r->span[RECV], "receive");
}

void job_run(struct lab *lab, const struct job *job)
{
    struct running r;

    job_start(&r, lab, job, NULL);
    job_check(&r);
    arena_reset(&lab->arena);
}

struct job job_random(uint64_t random, enum coll coll, hkt_type_t type, size_t count, int n)
{
    struct job j = {.coll = coll, .type = type, .count = count, .seed = mix(random)};

    j.root     = (int)(random % (uint64_t)n);
    j.in_place = random >> 8 & 1;
    j.packed   = random >> 9 & 1;
    j.sparse   = random >> 10 & 1;
    j.op       = (int)((random >> 12) % OP_COUNT);
    for (int s = 0; s < SIDES; s++) {
        j.memory[s] = (enum memory)((random >> (16 + 8 * s)) % MEMORIES);
        j.shift[s]  = (random >> (32 + 8 * s)) % 3 ? 0 : (random >> (36 + 8 * s)) % 16;
    }
    return j;
}
