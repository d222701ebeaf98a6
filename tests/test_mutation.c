/* test_mutation.c -- breaks the schedules of every algorithm in every way that a slip can, one at a time, and proves that the verifier
 * sees each: drop, repeat or exchange steps; drop, renumber, misplace or exchange operands; finish or not.
 *
 * Some mutants are as right as the original. Which, is said by rule (see harmless()); every other must be refused, and each that is
 * accepted must also satisfy the second judge, concrete.h, which knows no rules.
 */
#include "concrete.h"
#include "language/verify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 9 };

enum kind {
    DROP_STEP,
    REPEAT_STEP,
    EXCHANGE_STEPS,
    TOGGLE_FINISH,
    DROP_OPERAND,
    RENUMBER,
    MISPLACE,
    EXCHANGE_SOURCES,
    KINDS
};

static const char *const kind_name[KINDS] = {"drop step",    "repeat step", "exchange steps", "toggle finish",
                                             "drop operand", "renumber",    "misplace",       "exchange sources"};

/* What is changed: a step, and where it matters an operand of it and the new number or place. */
struct mutation {
    enum kind kind;
    int       rank;
    uint32_t  step, operand, to;
};

struct subject {
    const struct hkt_algorithm *a;
    struct hkt_shape            shape;
    struct hkt_schedule         schedule[MAX_RANKS];
    bool                        canonical; /* promised */
};

static struct {
    long made[KINDS], refused[KINDS], harmless[KINDS];
} tally;

/* ---- mutants ----------------------------------------------------------------------------------------------------- */

static void append(struct hkt_schedule *to, const struct hkt_schedule *from, uint32_t step)
{
    const struct hkt_step *st = &from->step[step];

    hkt_step(to, st->flags);
    for (uint32_t i = 0; i < st->nsrc; i++)
        hkt_from(to, hkt_sources(from, st)[i].place, (int)hkt_sources(from, st)[i].id);
    for (uint32_t i = 0; i < st->ndst; i++)
        hkt_to(to, hkt_destinations(from, st)[i].place, (int)hkt_destinations(from, st)[i].id);
}

static void drop_operand(struct hkt_schedule *s, struct hkt_step *st, uint32_t operand)
{
    for (uint32_t i = operand; i + 1 < (uint32_t)st->nsrc + st->ndst; i++)
        s->operand[st->first + i] = s->operand[st->first + i + 1];
    if (operand < st->nsrc)
        st->nsrc--;
    else
        st->ndst--;
}

/* A changed copy of a schedule. */
static struct hkt_schedule mutate(const struct hkt_schedule *from, const struct mutation *m)
{
    struct hkt_schedule s = {.chunks = from->chunks};
    struct hkt_step    *st;

    for (uint32_t i = 0; i < from->nsteps; i++) {
        if (m->kind == EXCHANGE_STEPS && (i == m->step || i == m->step + 1))
            append(&s, from, i == m->step ? i + 1 : i - 1);
        else if (m->kind != DROP_STEP || i != m->step)
            append(&s, from, i);
        if (m->kind == REPEAT_STEP && i == m->step)
            append(&s, from, i);
    }
    s.tmp_chunks = from->tmp_chunks;
    ck_assert_int_eq(hkt_schedule_end(&s), 0);
    st = s.nsteps > m->step ? &s.step[m->step] : NULL;
    if (m->kind == TOGGLE_FINISH)
        st->flags ^= HKT_STEP_FINISH;
    else if (m->kind == DROP_OPERAND)
        drop_operand(&s, st, m->operand);
    else if (m->kind == RENUMBER)
        s.operand[st->first + m->operand].id = m->to;
    else if (m->kind == MISPLACE)
        s.operand[st->first + m->operand].place = (uint8_t)m->to;
    else if (m->kind == EXCHANGE_SOURCES) {
        const struct hkt_operand keep = s.operand[st->first + m->operand];

        s.operand[st->first + m->operand] = s.operand[st->first + m->to];
        s.operand[st->first + m->to]      = keep;
    }
    return s;
}

/* ---- which mutants are right ------------------------------------------------------------------------------------- */

/* Only one block of the side is the rank's, numbered from 0. */
static bool own_block(enum hkt_coll coll, bool out)
{
    return hkt_coll_in(coll, out ? HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(SCATTER)
                                 : HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(GATHER));
}

/* Where a chunk of IN or OUT lies when both are one buffer. */
static uint32_t offset(const struct subject *x, int rank, struct hkt_operand o)
{
    return own_block(x->shape.coll, o.place == HKT_OUT) ? (uint32_t)rank * x->schedule[0].chunks + o.id : o.id;
}

/* Do both name the same memory, in place? */
static bool same_memory(const struct subject *x, int rank, struct hkt_operand p, struct hkt_operand q)
{
    if (p.place == HKT_PEER || q.place == HKT_PEER)
        return false;
    if (p.place == q.place)
        return p.id == q.id;
    return p.place != HKT_TMP && q.place != HKT_TMP && x->shape.coll != HKT_COLL_ALL_TO_ALL &&
           offset(x, rank, p) == offset(x, rank, q);
}

/* Do a step and the next one touch something that one of them changes? Messages to one rank keep their order, and so do messages
 * from one. */
static bool conflict(const struct subject *x, int rank, uint32_t step)
{
    const struct hkt_schedule *s = &x->schedule[rank];
    const struct hkt_step     *a = &s->step[step], *b = a + 1;

    for (uint32_t i = 0; i < (uint32_t)a->nsrc + a->ndst; i++)
        for (uint32_t j = 0; j < (uint32_t)b->nsrc + b->ndst; j++) {
            const struct hkt_operand p = s->operand[a->first + i], q = s->operand[b->first + j];
            const bool               p_to = i >= a->nsrc, q_to = j >= b->nsrc;

            if (p.place == HKT_PEER && q.place == HKT_PEER && p.id == q.id && p_to == q_to)
                return true;
            if (same_memory(x, rank, p, q) && (p_to || q_to))
                return true;
        }
    return false;
}

/* The rules. Two steps in a row that share nothing may be exchanged, unless that locks up. The sources of a sum may be exchanged
 * where no order is promised, unless ranks then differ. `why`: what the verifier says, or NULL. */
static bool harmless(const struct subject *x, const struct mutation *m, const char *why)
{
    if (m->kind == EXCHANGE_STEPS)
        return !conflict(x, m->rank, m->step) && (!why || strstr(why, "deadlock"));
    return m->kind == EXCHANGE_SOURCES && !x->canonical && (!why || strstr(why, "another order than on rank 0"));
}

static void describe(const struct subject *x, const struct mutation *m, char *text, size_t size)
{
    snprintf(text, size, "%s %s n %d root %d radix %d groups %d: rank %d step %u operand %u to %u: %s", x->a->name,
             hkt_coll_name[x->shape.coll], x->shape.size, x->shape.root, x->shape.radix, x->shape.ngroups, m->rank,
             m->step + 1, m->operand, m->to, kind_name[m->kind]);
}

static bool judge(const struct subject *x, bool ordered)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct concrete c = {x->schedule, &x->shape, HKT_FIFO_DEPTH, in_place, ordered};

        if (!concrete_run(&c))
            return false;
    }
    return true;
}

static void try(struct subject *x, const struct mutation *m)
{
    const struct hkt_schedule original = x->schedule[m->rank];
    struct hkt_schedule       mutant   = mutate(&original, m);
    struct hkt_verify_result  result;
    const char               *why;
    char                      text[256];

    describe(x, m, text, sizeof(text));
    x->schedule[m->rank] = mutant;
    why                  = hkt_verify_schedules(x->schedule, &x->shape, HKT_FIFO_DEPTH, &result);
    tally.made[m->kind]++;
    if (why || (x->canonical && !result.canonical)) {
        tally.refused[m->kind]++;
    } else {
        tally.harmless[m->kind]++;
        ck_assert_msg(judge(x, x->canonical), "accepted and wrong: %s", text);
    }
    x->schedule[m->rank] = original;
    if (m->kind == EXCHANGE_STEPS && !conflict(x, m->rank, m->step))
        ck_assert_msg(harmless(x, m, why), "steps that share nothing: %s: %s", text, why);
    if (!why && (!x->canonical || result.canonical))
        ck_assert_msg(harmless(x, m, NULL), "not seen: %s", text);
    hkt_schedule_free(&mutant);
}

/* ---- all mutants of one schedule --------------------------------------------------------------------------------- */

static uint32_t side_size(const struct subject *x, bool out)
{
    const bool own = own_block(x->shape.coll, out);

    return x->schedule[0].chunks * (own || hkt_coll_in(x->shape.coll, HKT_COLLS_VECTOR) ? 1 : (uint32_t)x->shape.size);
}

static void try_operand(struct subject *x, struct mutation m, uint32_t limits[4])
{
    const struct hkt_schedule *s      = &x->schedule[m.rank];
    const struct hkt_step     *st     = &s->step[m.step];
    const struct hkt_operand   o      = s->operand[st->first + m.operand];
    const bool                 source = m.operand < st->nsrc;

    m.kind = DROP_OPERAND;
    if ((source ? st->nsrc : st->ndst) > 1)
        try(x, &m);
    m.kind = RENUMBER;
    for (m.to = 0; m.to < limits[o.place]; m.to++)
        if (m.to != o.id && (o.place != HKT_PEER || (int)m.to != m.rank))
            try(x, &m);
    m.kind = MISPLACE;
    for (m.to = source ? HKT_IN : HKT_OUT; m.to <= HKT_PEER; m.to++)
        if (m.to != o.place && o.id < limits[m.to] && (m.to != HKT_PEER || (int)o.id != m.rank))
            try(x, &m);
    m.kind = EXCHANGE_SOURCES;
    for (m.to = m.operand + 1; source && m.to < st->nsrc; m.to++)
        try(x, &m);
}

static void try_all(struct subject *x)
{
    for (int rank = 0; rank < x->shape.size; rank++) {
        struct hkt_schedule *s = &x->schedule[rank];
        uint32_t limits[4]     = {side_size(x, false), side_size(x, true), s->tmp_chunks, (uint32_t)x->shape.size};

        for (uint32_t step = 0; step < s->nsteps; step++) {
            struct mutation m = {.rank = rank, .step = step};

            for (m.kind = DROP_STEP; m.kind <= TOGGLE_FINISH; m.kind++)
                if (m.kind != EXCHANGE_STEPS || step + 1 < s->nsteps)
                    try(x, &m);
            for (m.operand = 0; m.operand < (uint32_t)s->step[step].nsrc + s->step[step].ndst; m.operand++)
                try_operand(x, m, limits);
        }
    }
}

static void try_shape(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    struct subject x = {.a = a, .shape = *shape};

    if (hkt_algorithm_refuses(a, shape))
        return;
    x.canonical = hkt_algorithm_canonical(a, shape);
    for (x.shape.rank = 0; x.shape.rank < shape->size; x.shape.rank++)
        ck_assert_int_eq(a->build(&x.schedule[x.shape.rank], &x.shape), 0);
    ck_assert(judge(&x, x.canonical));
    try_all(&x);
    for (int r = 0; r < shape->size; r++)
        hkt_schedule_free(&x.schedule[r]);
}

/* Every variant that the algorithm looks at: see verify_sweep.c. */
static void try_size(const struct hkt_algorithm *a, enum hkt_coll coll, int n)
{
    static const int group[][MAX_RANKS + 1] = {{0, 2, 4, 6, 8, 10}, {0, 1, 4, 5, 8, 9}};
    struct hkt_shape sh                     = {.coll = coll, .size = n};
    const bool       grouped                = n > 1 && hkt_algorithm_refuses(a, &sh);
    const bool radical = !grouped && hkt_algorithm_refuses(a, &(struct hkt_shape){.coll = coll, .size = n, .radix = 1});

    for (int i = 0; i < (n > 1 && hkt_coll_in(coll, HKT_COLLS_ROOTED) ? 2 : 1); i++)
        for (int g = 0; g < (grouped ? 2 : 1); g++)
            for (sh.radix = 0; sh.radix <= (radical ? 3 : 0); sh.radix++) {
                int start[MAX_RANKS + 1] = {0};

                sh.root        = i ? n / 2 : 0;
                sh.ngroups     = 0;
                sh.group_start = start;
                while (grouped && start[sh.ngroups] < n) {
                    const int end = group[g][sh.ngroups + 1];

                    start[++sh.ngroups] = end < n ? end : n;
                }
                try_shape(a, &sh);
            }
}

START_TEST(test_mutants)
{
    const struct hkt_algorithm *a = hkt_algorithms[_i];

    memset(&tally, 0, sizeof(tally));
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        for (int n = 1; n <= MAX_RANKS; n += n == 6 ? 3 : 1)
            if (hkt_coll_in((enum hkt_coll)coll, a->colls))
                try_size(a, (enum hkt_coll)coll, n);
    for (int k = 0; k < KINDS; k++) {
        printf("%-13s %-17s %7ld made %7ld refused %6ld harmless by rule\n", a->name, kind_name[k], tally.made[k],
               tally.refused[k], tally.harmless[k]);
    }
    ck_assert_int_gt(tally.refused[DROP_STEP], 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("mutation");
    TCase   *tcase = tcase_create("mutants");
    SRunner *runner;
    int      count = 0, failed;

    while (hkt_algorithms[count])
        count++;
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, test_mutants, 0, count);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
