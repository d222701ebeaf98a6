/* hierarchical.c -- composes two algorithms over groups of ranks (nodes): `inner` inside each group, `outer` across groups, so that only
 * what must cross does, and every rank of a group carries its share of it.
 *
 * The vector is cut into columns, as many as the largest group has ranks. In a group of g ranks local rank l owns the columns l, l + g,
 * l + 2g ..: one each where groups are even. The owners of a column, one a group, run `outer` on it.
 *   all_reduce       inner reduce_scatter, one run for each g columns; outer all_reduce; inner all_gather
 *   reduce           inner reduce_scatter; outer reduce to the root's group; there the owners send to the root
 *   broadcast        the root sends to the owners in its group; outer broadcast; inner all_gather
 *   reduce_scatter   the columns are those of blocks: block (group q, local k) is in column k. Inner reduce_scatter for every q; outer
 *   all_gather       reduce_scatter over the groups that reach column k; all_gather is its mirror image
 * A run that is short of columns, where groups are uneven, leaves out the steps of those that are missing.
 *
 * hkt-verify --print hierarchical all_reduce 4 --groups 2,2  (inner and outer direct; chunk 2k + c is piece c of column k)
 *      rank 0                   rank 1                   rank 2                   rank 3
 *   1  IN 2 -> >1               IN 0 -> >0               IN 2 -> >3               IN 0 -> >2
 *   2  IN 0 + <1 -> TMP 0       <0 + IN 2 -> TMP 0       IN 0 + <3 -> TMP 0       <2 + IN 2 -> TMP 0
 *   3  IN 3 -> >1               IN 1 -> >0               IN 3 -> >3               IN 1 -> >2
 *   4  IN 1 + <1 -> TMP 1       <0 + IN 3 -> TMP 1       IN 1 + <3 -> TMP 1       <2 + IN 3 -> TMP 1
 *   5  TMP 1 -> >2              TMP 1 -> >3              TMP 0 -> >0              TMP 0 -> >1
 *   6  TMP 0 + <2 => OUT 0, >2  TMP 0 + <3 => OUT 2, >3  <0 + TMP 1 => OUT 1, >0  <1 + TMP 1 => OUT 3, >1
 *   7  <2 -> OUT 1              <3 -> OUT 3              <0 -> OUT 0              <1 -> OUT 2
 *   8  OUT 0 -> >1              OUT 2 -> >0              OUT 0 -> >3              OUT 2 -> >2
 *   9  <1 -> OUT 2              <0 -> OUT 0              <3 -> OUT 2              <2 -> OUT 0
 *  10  OUT 1 -> >1              OUT 3 -> >0              OUT 1 -> >3              OUT 3 -> >2
 *  11  <1 -> OUT 3              <0 -> OUT 1              <3 -> OUT 3              <2 -> OUT 1
 *
 * Cost of S bytes: the inner ones with S, the outer one with S/g for each column that a rank owns. Canonical where groups are aligned powers
 * of two (the last may be smaller) and both algorithms are. (Reduce-scatter, all-reduce by rails, all-gather: Jia et al. 2018 and many.)
 */
#include "language/algorithm.h"

#include "base/error.h"
#include "base/memory.h"

/* One of the composed algorithms, its schedule for my place in the sub-communicator. */
struct sub {
    const struct hkt_algorithm *a;
    struct hkt_shape            sh;
    struct hkt_schedule         s;
};

/* Where the chunks of one run of a sub-schedule lie in the whole; ids of -1 are missing. */
struct run {
    const struct sub *sub;
    enum hkt_place    in, out;
    bool              finish; /* keep FINISH */
    bool              whole;  /* nothing is missing */
};

struct work {
    const struct hkt_shape *sh;
    struct hkt_schedule    *s;                     /* NULL: count only */
    uint64_t                sends;                 /* counted */
    struct sub              reduce, gather, outer; /* reduce_scatter and all_gather inside, the collective across */
    int                     group, local, ranks;   /* mine, of .. in my group */
    int                     columns, turns;        /* columns in all; runs inside that they take */
    int                     pieces;                /* chunks that outer cuts a column into */
    int                     scratch;               /* TMP chunks before those of the sub-schedules */
    int                     result;                /* TMP chunk of the first finished piece on its way to the root */
    int                    *in, *out, *peer;       /* maps of the run at hand */
    bool                   *missing;               /* per TMP chunk of the sub-schedule */
};

static int group_size(const struct hkt_shape *sh, int group)
{
    return sh->group_start[group + 1] - sh->group_start[group];
}

static int group_of(const struct hkt_shape *sh, int rank)
{
    int group = 0;

    while (sh->group_start[group + 1] <= rank)
        group++;
    return group;
}

static int largest_group(const struct hkt_shape *sh)
{
    int largest = 0;

    for (int q = 0; q < sh->ngroups; q++)
        largest = group_size(sh, q) > largest ? group_size(sh, q) : largest;
    return largest;
}

static int owner(const struct hkt_shape *sh, int group, int column)
{
    return sh->group_start[group] + column % group_size(sh, group);
}

static bool is_vector(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, HKT_COLLS_VECTOR);
}

static bool is_reducing(const struct hkt_shape *sh)
{
    return hkt_coll_in(sh->coll, HKT_COLLS_REDUCING);
}

/* ---- a sub-schedule in the whole --------------------------------------------------------------------------------- */

static struct hkt_operand translate(const struct work *w, const struct run *run, struct hkt_operand o)
{
    switch ((enum hkt_place)o.place) {
    case HKT_IN:
        return (struct hkt_operand){.place = (uint8_t)run->in, .id = (uint32_t)w->in[o.id]};
    case HKT_OUT:
        return (struct hkt_operand){.place = (uint8_t)run->out, .id = (uint32_t)w->out[o.id]};
    case HKT_TMP:
        return (struct hkt_operand){.place = HKT_TMP, .id = o.id + (uint32_t)w->scratch};
    case HKT_PEER:
        break;
    }
    return (struct hkt_operand){.place = HKT_PEER, .id = (uint32_t)w->peer[o.id]};
}

/* Is the step about a chunk that is missing from this run? Its operands tell, scratch by what was stored there. */
static bool is_missing(struct work *w, const struct hkt_schedule *s, const struct hkt_step *st)
{
    bool missing = false;

    for (uint32_t i = 0; i < (uint32_t)st->nsrc + st->ndst; i++) {
        const struct hkt_operand o = s->operand[st->first + i];

        if (o.place == HKT_IN)
            missing |= w->in[o.id] < 0;
        else if (o.place == HKT_OUT)
            missing |= w->out[o.id] < 0;
        else if (o.place == HKT_TMP && i < st->nsrc)
            missing |= w->missing[o.id];
    }
    for (uint32_t i = 0; i < st->ndst; i++)
        if (hkt_destinations(s, st)[i].place == HKT_TMP)
            w->missing[hkt_destinations(s, st)[i].id] = missing;
    return missing;
}

/* Writes a step in its new place. What would be copied onto itself is left out. */
static void write_step(struct work *w, const struct run *run, const struct hkt_step *st)
{
    const struct hkt_schedule *s     = &run->sub->s;
    const struct hkt_operand   first = translate(w, run, hkt_sources(s, st)[0]);
    bool                       open  = false;

    for (uint32_t i = 0; i < st->ndst; i++) {
        const struct hkt_operand to = translate(w, run, hkt_destinations(s, st)[i]);

        if (st->nsrc == 1 && to.place == first.place && to.id == first.id && to.place != HKT_PEER)
            continue;
        w->sends += to.place == HKT_PEER;
        if (!w->s)
            continue;
        if (!open) {
            hkt_step(w->s, run->finish ? st->flags : st->flags & ~(unsigned)HKT_STEP_FINISH);
            for (uint32_t j = 0; j < st->nsrc; j++) {
                const struct hkt_operand from = translate(w, run, hkt_sources(s, st)[j]);

                hkt_from(w->s, from.place, (int)from.id);
            }
            open = true;
        }
        hkt_to(w->s, to.place, (int)to.id);
    }
}

static void write_run(struct work *w, const struct run *run)
{
    if (!w->s && run->whole) {
        w->sends += run->sub->a->sent(&run->sub->sh);
        return;
    }
    for (uint32_t i = 0; i < run->sub->s.nsteps; i++)
        if (!is_missing(w, &run->sub->s, &run->sub->s.step[i]))
            write_step(w, run, &run->sub->s.step[i]);
}

/* ---- inside my group --------------------------------------------------------------------------------------------- */

/* Columns in the whole: column k lies at first + k * stride while k < count. */
struct columns {
    int first, stride, count;
};

static int column_id(const struct columns *c, int k)
{
    return k < c->count ? c->first + k * c->stride : -1;
}

/* One run on the columns turn * ranks and following: reduced to, or gathered from, their owners; mine is TMP `partial` or OUT. */
static void inside(struct work *w, const struct columns *c, int turn, int partial)
{
    const bool       reducing = partial >= 0;
    const struct run run      = {.sub   = reducing ? &w->reduce : &w->gather,
                                 .in    = reducing ? HKT_IN : HKT_OUT,
                                 .out   = reducing ? HKT_TMP : HKT_OUT,
                                 .whole = (turn + 1) * w->ranks <= c->count};
    const int        mine     = column_id(c, turn * w->ranks + w->local);
    int *const       all      = reducing ? w->in : w->out;

    for (int b = 0; b < w->ranks; b++) {
        all[b]     = column_id(c, turn * w->ranks + b);
        w->peer[b] = w->sh->group_start[w->group] + b;
    }
    if (reducing)
        w->out[0] = mine < 0 ? -1 : partial;
    else
        w->in[0] = mine;
    write_run(w, &run);
}

/* All runs inside, in a vector or over the blocks of every group. */
static void inside_all(struct work *w, bool reducing)
{
    const int parts = is_vector(w->sh) ? w->pieces : w->sh->ngroups;

    for (int turn = 0; turn < w->turns && w->ranks > 1; turn++)
        for (int q = 0; q < parts; q++) {
            struct columns c = {q, w->pieces, w->columns};

            if (!is_vector(w->sh))
                c = (struct columns){w->sh->group_start[q], 1, group_size(w->sh, q)};
            inside(w, &c, turn, reducing ? turn * parts + q : -1);
        }
}

/* ---- across groups ----------------------------------------------------------------------------------------------- */

/* Outer on column k, the turn-th of mine. The partial sums lie as inside_all() leaves them. */
static void across(struct work *w, int turn)
{
    const struct hkt_shape *sh = w->sh;
    const int               k  = turn * w->ranks + w->local;
    const bool end = sh->coll != HKT_COLL_REDUCE || sh->rank == sh->root; /* else the result goes on to the root */
    struct run run = {.sub = &w->outer, .in = HKT_IN, .out = end ? HKT_OUT : HKT_TMP, .finish = true, .whole = true};

    if (is_reducing(sh) && w->ranks > 1)
        run.in = HKT_TMP;
    else if (sh->coll == HKT_COLL_BROADCAST && sh->rank != sh->root)
        run.in = HKT_OUT;
    for (int q = 0; q < sh->ngroups; q++) {
        const int block = k < group_size(sh, q) ? sh->group_start[q] + k : -1;

        w->peer[q] = owner(sh, q, k);
        run.whole &= block >= 0 || is_vector(sh);
        if (sh->coll == HKT_COLL_REDUCE_SCATTER)
            w->in[q] = block >= 0 && run.in == HKT_TMP ? turn * sh->ngroups + q : block;
        else if (sh->coll == HKT_COLL_ALL_GATHER)
            w->out[q] = block;
    }
    if (sh->coll == HKT_COLL_REDUCE_SCATTER)
        w->out[0] = turn == 0 ? 0 : -1;
    else if (sh->coll == HKT_COLL_ALL_GATHER)
        w->in[0] = turn == 0 ? 0 : -1;
    for (int c = 0; c < w->pieces && is_vector(sh); c++) {
        w->in[c]  = (run.in == HKT_TMP ? turn : k) * w->pieces + c;
        w->out[c] = end ? k * w->pieces + c : w->result + c;
    }
    write_run(w, &run);
}

static void copy(struct work *w, struct hkt_operand from, struct hkt_operand to)
{
    w->sends += to.place == HKT_PEER;
    if (w->s)
        hkt_copy(w->s, from.place, (int)from.id, to.place, (int)to.id);
}

/* The pieces of one column between its owner and the root, in the root's group: handed out by a broadcast, handed in by a reduce. */
static void hand(struct work *w, int column)
{
    const bool is_root = w->sh->rank == w->sh->root, out = w->sh->coll == HKT_COLL_BROADCAST;
    const int  other = is_root ? owner(w->sh, w->group, column) : w->sh->root;

    for (int c = 0; c < w->pieces; c++) {
        const uint32_t           chunk = (uint32_t)(column * w->pieces + c), result = (uint32_t)(w->result + c);
        const struct hkt_operand peer = {HKT_PEER, (uint32_t)other};

        if (is_root == out) /* sends */
            copy(w, out ? (struct hkt_operand){HKT_IN, chunk} : (struct hkt_operand){HKT_TMP, result}, peer);
        else
            copy(w, peer, (struct hkt_operand){HKT_OUT, chunk});
    }
}

/* Every rank takes the columns in ascending order, the root also those that are handed in: so no two wait for each other. */
static void across_all(struct work *w)
{
    const bool hands = w->group == w->outer.sh.root, is_root = w->sh->rank == w->sh->root;

    for (int k = 0; k < w->columns && hands && w->sh->coll == HKT_COLL_BROADCAST; k++)
        if (is_root != (k % w->ranks == w->local))
            hand(w, k);
    for (int k = 0; k < w->columns; k++) {
        const bool mine = k % w->ranks == w->local;

        if (mine)
            across(w, k / w->ranks);
        if (hands && w->sh->coll == HKT_COLL_REDUCE && is_root != mine)
            hand(w, k);
    }
}

/* ---- what an algorithm is ---------------------------------------------------------------------------------------- */

/* The shape of a part: a collective over `size` of the ranks, mine at `rank`. */
static struct hkt_shape part_shape(const struct hkt_shape *sh, enum hkt_coll coll, int rank, int size)
{
    return (struct hkt_shape){.coll = coll, .rank = rank, .size = size, .radix = sh->radix, .pieces = sh->pieces};
}

static struct hkt_shape outer_shape(const struct hkt_shape *sh)
{
    struct hkt_shape outer = part_shape(sh, sh->coll, group_of(sh, sh->rank), sh->ngroups);

    outer.root = hkt_coll_in(sh->coll, HKT_COLLS_ROOTED) ? group_of(sh, sh->root) : 0;
    return outer;
}

static const struct hkt_algorithm *algorithm(const char *name)
{
    return hkt_algorithm_find(name ? name : "direct");
}

static int build_sub(struct sub *sub, const struct hkt_algorithm *a, struct hkt_shape shape)
{
    sub->a  = a;
    sub->sh = shape;
    return a->build(&sub->s, &sub->sh);
}

static void finish(struct work *w)
{
    hkt_schedule_free(&w->reduce.s);
    hkt_schedule_free(&w->gather.s);
    hkt_schedule_free(&w->outer.s);
    hkt_free(w->in);
    hkt_free(w->missing);
}

static uint32_t max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static int start(struct work *w)
{
    const struct hkt_shape     *sh    = w->sh;
    const struct hkt_algorithm *inner = algorithm(sh->inner), *outer = algorithm(sh->outer);
    uint32_t                    tmp, ids;

    w->group   = group_of(sh, sh->rank);
    w->ranks   = group_size(sh, w->group);
    w->local   = sh->rank - sh->group_start[w->group];
    w->columns = largest_group(sh);
    w->turns   = (w->columns + w->ranks - 1) / w->ranks;
    HKT_TRY(build_sub(&w->reduce, inner, part_shape(sh, HKT_COLL_REDUCE_SCATTER, w->local, w->ranks)));
    HKT_TRY(build_sub(&w->gather, inner, part_shape(sh, HKT_COLL_ALL_GATHER, w->local, w->ranks)));
    HKT_TRY(build_sub(&w->outer, outer, outer_shape(sh)));
    if (w->reduce.s.chunks != 1 || w->gather.s.chunks != 1 || (!is_vector(sh) && w->outer.s.chunks != 1))
        return hkt_fail(HKT_ERR_INTERNAL, "hierarchical cannot compose algorithms that cut blocks, as %s or %s does",
                        inner->name, outer->name);
    w->pieces  = (int)w->outer.s.chunks;
    w->scratch = is_reducing(sh) && w->ranks > 1 ? w->turns * (is_vector(sh) ? w->pieces : sh->ngroups) : 0;
    tmp        = max(max(w->reduce.s.tmp_chunks, w->gather.s.tmp_chunks), w->outer.s.tmp_chunks);
    w->result  = w->scratch + (int)tmp;
    ids        = max(max((uint32_t)w->columns, (uint32_t)w->pieces), (uint32_t)sh->ngroups);
    w->in      = hkt_alloc(3 * (size_t)ids * sizeof(*w->in));
    w->missing = hkt_alloc(((size_t)tmp + 1) * sizeof(*w->missing));
    if (!w->in || !w->missing)
        return HKT_ERR_MEMORY;
    w->out  = w->in + ids;
    w->peer = w->out + ids;
    return 0;
}

/* Writes the schedule into w->s, or only counts its messages. */
static int compose(struct work *w)
{
    int rc = start(w);

    if (rc == 0) {
        if (is_reducing(w->sh))
            inside_all(w, true);
        across_all(w);
        if (w->sh->coll != HKT_COLL_REDUCE && w->sh->coll != HKT_COLL_REDUCE_SCATTER)
            inside_all(w, false);
    }
    finish(w);
    return rc;
}

static int build(struct hkt_schedule *s, const struct hkt_shape *sh)
{
    struct work w = {.sh = sh, .s = s};

    s->chunks = 1;
    HKT_TRY(compose(&w));
    if (is_vector(sh))
        s->chunks = (uint32_t)(w.columns * w.pieces);
    return hkt_schedule_end(s);
}

static uint64_t sent(const struct hkt_shape *sh)
{
    struct work w = {.sh = sh};

    return compose(&w) == 0 ? w.sends : UINT64_MAX;
}

static double cost(const struct hkt_shape *sh, double bytes, const struct hkt_link *l)
{
    const struct hkt_algorithm *inner = algorithm(sh->inner), *outer = algorithm(sh->outer);
    const struct hkt_link      *far     = l->outer ? l->outer : l;
    const int                   g       = largest_group(sh);
    const struct hkt_shape      scatter = part_shape(sh, HKT_COLL_REDUCE_SCATTER, 0, g);
    const struct hkt_shape      gather = part_shape(sh, HKT_COLL_ALL_GATHER, 0, g), across_groups = outer_shape(sh);
    const double                to_owners = l->alpha + (g - 1) * (l->gap + bytes / g * l->beta);
    int                         smallest  = g;
    double                      seconds;

    for (int q = 0; q < sh->ngroups; q++)
        smallest = group_size(sh, q) < smallest ? group_size(sh, q) : smallest;
    seconds = (g + smallest - 1) / smallest * outer->cost(&across_groups, bytes / g, far);
    if (g == 1)
        return seconds;
    seconds += is_reducing(sh) ? inner->cost(&scatter, bytes, l) : sh->coll == HKT_COLL_BROADCAST ? to_owners : 0;
    if (sh->coll != HKT_COLL_REDUCE && sh->coll != HKT_COLL_REDUCE_SCATTER)
        seconds += inner->cost(&gather, bytes, l);
    return seconds + (sh->coll == HKT_COLL_REDUCE ? to_owners : 0);
}

static const char *refuse(const struct hkt_shape *sh)
{
    const struct hkt_algorithm *inner = algorithm(sh->inner), *outer = algorithm(sh->outer);
    const char                 *why;

    if (sh->ngroups < 2)
        return "it needs the ranks in two groups or more";
    if (!inner || !outer)
        return "there is no algorithm of the name given for inside or across groups";
    for (int q = 0; q < sh->ngroups; q++) {
        const struct hkt_shape scatter = part_shape(sh, HKT_COLL_REDUCE_SCATTER, 0, group_size(sh, q));
        const struct hkt_shape gather  = part_shape(sh, HKT_COLL_ALL_GATHER, 0, group_size(sh, q));

        if ((why = hkt_algorithm_refuses(inner, &scatter)) || (why = hkt_algorithm_refuses(inner, &gather)))
            return why;
    }
    return hkt_algorithm_refuses(outer, &(struct hkt_shape){.coll = sh->coll, .size = sh->ngroups, .radix = sh->radix});
}

static bool canonical_for(const struct hkt_shape *sh)
{
    const int              g       = group_size(sh, 0);
    const struct hkt_shape scatter = part_shape(sh, HKT_COLL_REDUCE_SCATTER, 0, g), across_groups = outer_shape(sh);

    for (int q = 0; q < sh->ngroups; q++)
        if (q < sh->ngroups - 1 ? group_size(sh, q) != g : group_size(sh, q) > g)
            return false;
    return (g & (g - 1)) == 0 && (g == 1 || hkt_algorithm_canonical(algorithm(sh->inner), &scatter)) &&
           hkt_algorithm_canonical(algorithm(sh->outer), &across_groups);
}

const struct hkt_algorithm hkt_algorithm_hierarchical = {
    .name  = "hierarchical",
    .desc  = "one algorithm inside groups (nodes), another across them; all ranks share the links out",
    .colls = HKT_COLL_BIT(ALL_REDUCE) | HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(REDUCE) |
             HKT_COLL_BIT(BROADCAST),
    .canonical_for = canonical_for,
    .refuse        = refuse,
    .cost          = cost,
    .sent          = sent,
    .build         = build,
};
