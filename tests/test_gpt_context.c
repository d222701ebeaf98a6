/* test_gpt_context.c -- the model with its sequences split over context-parallel ranks, alone and with tensor and
 * sequence parallelism: losses, gradients and logits are those of one process, with every option on; recomputation
 * changes no bit.
 */
#include "gpt_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 24, DOCUMENT = 7 }; /* T is a multiple of 2 c for c = 1 to 4 */

struct layout {
    int  c, t;
    bool sequence;
};
static const struct layout layouts[] = {{2, 1, false}, {3, 1, false}, {4, 1, false},
                                        {2, 2, false}, {2, 2, true},  {3, 2, true}};
enum { LAYOUTS_TRIED = sizeof(layouts) / sizeof(layouts[0]) };

/* What a run leaves: of one process, or of one rank. */
struct result {
    double           loss;
    struct machine   a;
    const float     *logits;
    struct gpt_batch batch;
    int32_t          array[5][BATCH * T];
};

static struct gpt_options options_of(int variant)
{
    struct gpt_options o = tiny();

    apply(&o, &variants[variant]);
    o.shape.smoothing = variant == 1 ? 0.1 : 0;
    o.shape.layers = o.last = 2;
    o.shape.length          = T;
    return o;
}

/* Own rows of two sequences: tokens, targets, positions, starts, and weights of which some are 0. */
static void fill(struct result *r, int variant, int rank, int c)
{
    const int own    = T / c;
    float    *weight = (float *)(void *)r->array[4];

    for (int i = 0; i < BATCH * own; i++) {
        const int b = i / own, place = (int)hkt_context_place((size_t)(i % own), T, rank, c),
                  first = place / DOCUMENT * DOCUMENT;

        r->array[0][i] =
            (int32_t)(hkt_random_bits(hkt_random_at(99, (uint64_t)b, 0, 0, 0), (uint64_t)place) % VOCABULARY);
        r->array[1][i] = (r->array[0][i] * 5 + 1) % VOCABULARY;
        r->array[2][i] = place - first;
        r->array[3][i] = first;
        weight[i]      = place % DOCUMENT == DOCUMENT - 1 ? 0 : 1;
    }
    const bool documents = variants[variant].documents;

    r->batch = (struct gpt_batch){.count    = BATCH,
                                  .length   = own,
                                  .token    = r->array[0],
                                  .target   = r->array[1],
                                  .position = documents ? r->array[2] : NULL,
                                  .start    = documents ? r->array[3] : NULL,
                                  .weight   = documents ? weight : NULL,
                                  .step     = 3,
                                  .sequence = 4,
                                  .scale    = 1.0f / (BATCH * T),
                                  .final    = true};
}

static void pass(struct result *r)
{
    expect_ok(gpt_forward(r->a.model, 0, &r->batch, &(struct gpt_ends){NULL, NULL, GPT_TRAIN, &r->loss}));
    expect_ok(gpt_backward(r->a.model, 0, &r->batch, NULL, NULL));
    expect_ok(gpt_backward_weight(r->a.model, 0, &r->batch));
}

static void logits(struct result *r)
{
    double unused;

    expect_ok(gpt_forward(r->a.model, 0, &r->batch, &(struct gpt_ends){NULL, NULL, GPT_LOGITS, &unused}));
    expect_ok(gpt_logits(r->a.model, &r->batch, &r->logits));
}

/* A rank's part of a tensor against the whole. */
static void compare(const struct gpt_tensor *t, const struct gpt_tensor *whole)
{
    const size_t all  = (size_t)whole->rows * (size_t)whole->cols;
    double       size = 0, worst = 0;

    for (size_t i = 0; i < all; i++)
        size = fmax(size, fabs((double)whole->gradient[i]));
    for (int i = 0; i < t->own_rows; i++)
        for (int j = 0; j < t->own_cols; j++) {
            const bool vector   = t->rows == 1;
            const int  row      = vector ? 0 : gpt_global(i, t->first_row, t->own_rows, t),
                      col       = vector ? gpt_global(j, t->first_col, t->own_cols, t) : t->first_col + j;
            const double wanted = (double)whole->gradient[row * whole->cols + col];

            worst = fmax(worst, fabs((double)t->gradient[i * t->own_cols + j] - wanted));
        }
    expect(worst <= 1e-5 * size, "the gradient of %s is %g off, of at most %g", t->name, worst, size);
}

struct trial {
    const struct layout *layout;
    int                  variant;
};

static void groups(struct gpt_options *o, const struct layout *l, struct rank *me)
{
    o->sequence = l->sequence;
    expect_ok(hkt_comm_split(&o->comm, me->comm, me->rank / l->t, me->rank, NULL));
    expect_ok(hkt_comm_split(&o->context, me->comm, me->rank % l->t, me->rank, NULL));
}

static void context_rank(struct rank *me)
{
    const struct trial                *trial = me->arg;
    struct gpt_options                 o     = options_of(trial->variant);
    static _Thread_local struct result one, mine;
    int                                count, rank = me->rank / trial->layout->t;

    machine_begin(&one.a, &o);
    fill(&one, trial->variant, 0, 1);
    pass(&one);
    groups(&o, trial->layout, me);
    machine_begin(&mine.a, &o);
    fill(&mine, trial->variant, rank, trial->layout->c);
    pass(&mine);
    expect_ok(hkt_all_reduce(&mine.loss, &mine.loss, 1, HKT_FLOAT64, HKT_SUM, o.context, NULL));
    expect_ok(hkt_all_reduce(mine.a.gradient, mine.a.gradient, mine.a.floats, HKT_FLOAT32, HKT_SUM, o.context, NULL));
    expect(fabs(mine.loss - one.loss) <= 1e-6 * one.loss, "loss %.9g, not %.9g", mine.loss, one.loss);

    const struct gpt_tensor *whole = gpt_tensors(one.a.model, &count), *part = gpt_tensors(mine.a.model, &count);

    for (int i = 0; i < count; i++)
        compare(&part[i], &whole[i]);
    logits(&one);
    logits(&mine);
    for (int i = 0; i < BATCH * VOCABULARY && rank == 0; i++) {
        const int at = i / VOCABULARY * PADDED + i % VOCABULARY;

        expect(fabsf(mine.logits[at] - one.logits[at]) < 1e-5f, "logit %d is %g, not %g", i, (double)mine.logits[at],
               (double)one.logits[at]);
    }
    machine_end(&mine.a);
    machine_end(&one.a);
    expect_ok(hkt_comm_destroy(o.context));
    expect_ok(hkt_comm_destroy(o.comm));
}

START_TEST(split_sequences_are_the_model)
{
    const struct layout *l     = &layouts[_i / VARIANTS];
    struct trial         trial = {l, _i % VARIANTS};

    world(l->c * l->t, THREADS, context_rank, &trial);
}
END_TEST

/* Row 44: what is computed again goes round the ring again, and gives the same bits. */
static void recompute_rank(struct rank *me)
{
    const struct layout                layout = {2, 2, true};
    struct gpt_options                 o      = options_of(3);
    static _Thread_local struct result first, other;

    groups(&o, &layout, me);
    machine_begin(&first.a, &o);
    fill(&first, 3, me->rank / 2, 2);
    pass(&first);
    for (int recompute = GPT_NONE; recompute <= GPT_FULL; recompute++)
        for (int apart = 0; apart < 2; apart++) {
            o.recompute = (enum gpt_recompute)recompute;
            o.apart     = apart;
            o.overlap   = !apart;
            machine_begin(&other.a, &o);
            fill(&other, 3, me->rank / 2, 2);
            pass(&other);
            expect(other.loss == first.loss, "recompute %d, apart %d: loss %.17g, not %.17g", recompute, apart,
                   other.loss, first.loss);
            expect(memcmp(first.a.gradient, other.a.gradient, first.a.floats * sizeof(float)) == 0,
                   "recompute %d, apart %d: other gradients", recompute, apart);
            machine_end(&other.a);
        }
    machine_end(&first.a);
    expect_ok(hkt_comm_destroy(o.context));
    expect_ok(hkt_comm_destroy(o.comm));
}

START_TEST(recomputation_changes_no_bit)
{
    world(4, THREADS, recompute_rank, NULL);
}
END_TEST

START_TEST(refusals)
{
    struct gpt_options o = tiny();

    o.shape.length = 20;
    expect_code(gpt_check(&o, 1, 4), HKT_ERR_ARGUMENT);
    expect_said("sequence length 20 is no multiple of 8 (context-parallel size, in two chunks a rank): 16 and 24 are");
    o.sequence     = true;
    o.shape.length = 24;
    expect_code(gpt_check(&o, 4, 4), HKT_ERR_ARGUMENT);
    expect_said("sequence length 24 is no multiple of 16");
}
END_TEST

static void add(Suite *s)
{
    ADD(s, split_sequences_are_the_model, VARIANTS * LAYOUTS_TRIED, 60);
    ADD(s, recomputation_changes_no_bit, 1, 60);
    ADD(s, refusals, 1, 10);
}

int main(void)
{
    return run_suite("gpt_context", add);
}
