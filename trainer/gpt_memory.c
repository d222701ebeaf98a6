/* gpt_memory.c -- the activations of a part of the GPT: made once, for all slots, from the tables of gpt_inside.h,
 * which are also the formula. In elements per row of a layer (Korthikanti et al. 2022, who count 16 of 2 bytes and
 * masks): nothing recomputed 4 C + 12 C / n (all divided by n with sequence parallelism), selective 2 C + 8 C / n, full
 * C; and statistics of the norms and the softmax. Masks are drawn again, scores are never kept. Rows are own rows: a
 * c-th of all with context parallelism.
 */
#include "gpt_inside.h"

#include <stdlib.h>

/* The sizes that the tables name. */
struct sizes {
    size_t rows, own, C, F, U, Q, H, V, n, B, head_rows, threads, widest;
};

static struct sizes sizes_of(const struct gpt *m)
{
    const struct gpt_shape *s = &m->options.shape;
    struct sizes            z = {.C       = (size_t)s->width,
                                 .F       = (size_t)s->mlp,
                                 .U       = (size_t)(s->gated ? 2 * s->mlp : s->mlp),
                                 .Q       = gpt_qkv(m).row * (size_t)m->n,
                                 .H       = (size_t)s->heads,
                                 .V       = (size_t)s->padded,
                                 .n       = (size_t)m->n,
                                 .B       = (size_t)m->options.batch,
                                 .threads = (size_t)m->threads};

    z.widest    = z.U > z.Q ? z.U : z.Q;
    z.widest    = z.widest > z.C * z.n ? z.widest : z.C * z.n; /* biases of row layers are whole */
    z.rows      = z.B * (size_t)(s->length / m->ranks);
    z.own       = m->options.sequence ? z.rows / z.n : z.rows;
    z.head_rows = z.rows < HEAD_BLOCK ? z.rows : HEAD_BLOCK;
    z.head_rows = z.head_rows < z.B ? z.B : z.head_rows;
    return z;
}

/* Writes the floats of every row of a table; what a table does not name is not used. */
#define NAMES                                                                                                          \
    const struct sizes z = sizes_of(m);                                                                                \
    const size_t rows = z.rows, own = z.own, C = z.C, F = z.F, U = z.U, Q = z.Q, H = z.H, V = z.V, n = z.n, B = z.B,   \
                 head_rows = z.head_rows, threads = z.threads, widest = z.widest;                                      \
    const bool rms = m->options.shape.rms;                                                                             \
    (void)rows, (void)own, (void)C, (void)F, (void)U, (void)Q, (void)H, (void)V, (void)n, (void)B, (void)head_rows;    \
    (void)threads, (void)widest, (void)rms

static void saved_floats(size_t floats[SAVED], const struct gpt *m, bool kept)
{
    NAMES;
#define SIZE(id, count, level) floats[id] = (m->options.recompute <= (level)) == kept ? (count) : 0;
    SAVED_FIELDS(SIZE)
#undef SIZE
}

static void late_floats(size_t floats[LATE], const struct gpt *m, bool kept)
{
    NAMES;
#define SIZE(id, count) floats[id] = m->options.apart == kept ? (count) : 0;
    LATE_FIELDS(SIZE)
#undef SIZE
}

static void slot_floats(size_t floats[PER_SLOT], const struct gpt *m)
{
    NAMES;
#define SIZE(id, count) floats[id] = (count);
    SLOT_FIELDS(SIZE)
#undef SIZE
}

static void work_floats(size_t floats[WORK], const struct gpt *m)
{
    NAMES;
#define SIZE(id, count) floats[id] = (count);
    WORK_FIELDS(SIZE)
#undef SIZE
}

static size_t total(const size_t *floats, int count)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++)
        sum += floats[i];
    return sum;
}

static size_t layer_floats(const struct gpt *m, bool kept)
{
    size_t saved[SAVED], late[LATE];

    saved_floats(saved, m, kept);
    late_floats(late, m, kept);
    return total(saved, SAVED) + total(late, LATE);
}

size_t gpt_slot_bytes(const struct gpt *m)
{
    size_t floats[PER_SLOT];

    slot_floats(floats, m);
    return (total(floats, PER_SLOT) + (size_t)(m->options.last - m->options.first) * layer_floats(m, true)) *
           sizeof(float);
}

size_t gpt_work_bytes(const struct gpt *m)
{
    size_t floats[WORK];

    work_floats(floats, m);
    return (total(floats, WORK) + layer_floats(m, false)) * sizeof(float);
}

/* Cuts fields off *cursor; those of size 0 keep what they have. */
static void cut(float **field, const size_t *floats, int count, float **cursor)
{
    for (int i = 0; i < count; i++)
        if (floats[i] > 0) {
            field[i] = *cursor;
            *cursor += floats[i];
        }
}

static void cut_layer(struct layer_memory *l, const struct gpt *m, bool kept, float **cursor)
{
    size_t saved[SAVED], late[LATE];

    saved_floats(saved, m, kept);
    late_floats(late, m, kept);
    cut(l->saved, saved, SAVED, cursor);
    cut(l->late, late, LATE, cursor);
}

static int cut_slots(struct gpt *m, const struct layer_memory *shared)
{
    const int layers = m->options.last - m->options.first;
    float    *cursor = m->slots_memory;
    size_t    floats[PER_SLOT];

    slot_floats(floats, m);
    m->slot = calloc((size_t)m->options.slots, sizeof(*m->slot));
    if (!m->slot)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for %d slots", m->options.slots);
    for (int i = 0; i < m->options.slots; i++) {
        struct slot *s = &m->slot[i];

        s->layer = calloc((size_t)layers + 1, sizeof(*s->layer));
        if (!s->layer)
            return hkt_error_set(HKT_ERR_MEMORY, "no memory for %d layers", layers);
        cut(s->field, floats, PER_SLOT, &cursor);
        for (int layer = 0; layer < layers; layer++) {
            s->layer[layer] = *shared;
            cut_layer(&s->layer[layer], m, true, &cursor);
        }
    }
    return HKT_OK;
}

int gpt_memory_create(struct gpt *m)
{
    struct layer_memory shared = {{NULL}, {NULL}};
    size_t              floats[WORK];
    float              *cursor;
    void               *memory;

    TRY(hkt_ledger_take(&memory, gpt_slot_bytes(m) * (size_t)m->options.slots, HKT_BYTES_ACTIVATION, m->n > 1,
                        m->options.ledger));
    m->slots_memory = memory;
    TRY(hkt_ledger_take(&memory, gpt_work_bytes(m), HKT_BYTES_OTHER, m->n > 1, m->options.ledger));
    m->work_memory = cursor = memory;
    work_floats(floats, m);
    cut(m->work, floats, WORK, &cursor);
    m->nothing.weight   = m->work[NOTHING];
    m->nothing.gradient = m->nothing.weight ? m->nothing.weight + floats[NOTHING] / 2 : NULL;
    cut_layer(&shared, m, false, &cursor);
    m->random = calloc((size_t)m->options.batch, sizeof(*m->random));
    if (!m->random)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the streams of %d sequences", m->options.batch);
    return cut_slots(m, &shared);
}

void gpt_memory_destroy(struct gpt *m)
{
    for (int i = 0; m->slot && i < m->options.slots; i++)
        free(m->slot[i].layer);
    free(m->slot);
    free(m->random);
    hkt_ledger_give(m->work_memory, m->options.ledger);
    hkt_ledger_give(m->slots_memory, m->options.ledger);
}
