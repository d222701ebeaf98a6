/* checkpoint_model.c -- see checkpoint_model.h. */
#include "checkpoint_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How tensor-parallel ranks cut a tensor: not, by rows, by columns. */
enum cut { WHOLE, ROWS, COLUMNS };

static const struct tensor {
    const char *name;
    size_t      rows, columns;
    enum cut    cut;
    int         layer; /* -1: on the first stage, 9: on the last */
} tensors[] = {
    {"wte.weight", 52, 12, ROWS, -1},
    {"h.0.ln_1.weight", 1, 13, WHOLE, 0},
    {"h.0.attn.c_attn.weight", 36, 12, ROWS, 0},
    {"h.0.mlp.c_proj.weight", 7, 20, COLUMNS, 0},
    {"h.1.ln_1.weight", 1, 13, WHOLE, 1},
    {"h.1.mlp.c_proj.weight", 11, 8, COLUMNS, 1},
    {"ln_f.weight", 1, 5, WHOLE, 9},
};
enum { TENSORS = sizeof(tensors) / sizeof(tensors[0]) };

static const hkt_piece_kind_t kinds[] = {HKT_PIECE_WEIGHT, HKT_PIECE_MASTER, HKT_PIECE_MOMENT1, HKT_PIECE_MOMENT2};
enum { USED = sizeof(kinds) / sizeof(kinds[0]) };

int layout_ranks(const struct layout *layout)
{
    return layout->tp * layout->pp * layout->dp;
}

float model_number(size_t tensor, hkt_piece_kind_t kind, size_t element, int64_t step)
{
    return (float)(mix(tensor * 1000003 + (size_t)kind * 7919 + element + (size_t)step * 0x10000000u) % 16777216);
}

static size_t elements(size_t t)
{
    return tensors[t].rows * tensors[t].columns;
}

size_t model_bytes(void)
{
    size_t sum = 0;

    for (size_t t = 0; t < TENSORS; t++)
        sum += elements(t) * sizeof(float) * USED;
    return sum;
}

static bool here(size_t t, const struct layout *layout, int stage)
{
    const int layer = tensors[t].layer;
    const int at    = layer < 0 ? 0 : layer >= layout->pp ? layout->pp - 1 : layer;

    return at == stage;
}

/* The part of a tensor that a tensor-parallel rank has. */
static hkt_piece_t part_of(size_t t, int tp, int of)
{
    const size_t rows = tensors[t].rows, columns = tensors[t].columns;
    hkt_piece_t  p = {.name = tensors[t].name, .type = HKT_FLOAT32, .dims = rows == 1 ? 1 : 2, .count = rows * columns};

    p.shape[0] = rows == 1 ? columns : rows;
    p.shape[1] = rows == 1 ? 0 : columns;
    if (tensors[t].cut == ROWS) {
        p.count = rows / (size_t)of * columns;
        p.begin = p.count * (size_t)tp;
    } else if (tensors[t].cut == COLUMNS && of > 1) {
        p.run    = columns / (size_t)of;
        p.begin  = p.run * (size_t)tp;
        p.stride = columns;
        p.count  = rows * p.run;
    }
    return p;
}

/* Data-parallel rank dp's even share, the first ones larger: shards end in the middle of rows and runs. */
static void shard(hkt_piece_t *p, int dp, int of)
{
    const size_t base = p->count / (size_t)of, more = p->count % (size_t)of, d = (size_t)dp;

    p->first = d * base + (d < more ? d : more);
    p->count = base + (d < more);
}

static size_t global(const hkt_piece_t *p, size_t i)
{
    return p->begin + (p->run ? i / p->run * p->stride + i % p->run : i);
}

static size_t tensor_of(const hkt_piece_t *p)
{
    size_t t = 0;

    while (strcmp(tensors[t].name, p->name) != 0)
        t++;
    return t;
}

void pieces_make(struct pieces *p, const struct layout *layout, int rank, int64_t step)
{
    const int tp = rank % layout->tp, pp = rank / layout->tp % layout->pp, dp = rank / layout->tp / layout->pp;
    float    *at = malloc(model_bytes() + 64);

    *p = (struct pieces){.memory = at};
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t k = 0; here(t, layout, pp) && k < USED; k++) {
            hkt_piece_t piece = part_of(t, tp, layout->tp);

            piece.kind = kinds[k];
            if (layout->sharded && piece.kind != HKT_PIECE_WEIGHT)
                shard(&piece, dp, layout->dp);
            piece.data = at;
            for (size_t i = 0; i < piece.count; i++)
                *at++ = step < 0 ? -1 : model_number(t, piece.kind, global(&piece, piece.first + i), step);
            p->piece[p->count++] = piece;
        }
}

void pieces_free(struct pieces *p)
{
    free(p->memory);
}

void pieces_check(const struct pieces *p, int64_t step)
{
    for (size_t k = 0; k < p->count; k++)
        for (size_t i = 0; i < p->piece[k].count; i++) {
            const hkt_piece_t *piece = &p->piece[k];
            const size_t       g     = global(piece, piece->first + i);
            const float        want = model_number(tensor_of(piece), piece->kind, g, step), got = ((const float *)piece->data)[i];

            expect(got == want, "%s (%s) element %zu is %g and not %g", piece->name, hkt_piece_kind_name(piece->kind), g,
                   (double)got, (double)want);
        }
}

void scratch_make(char folder[256], const char *tag)
{
    const char *base = getenv("TMPDIR");
    char        command[600];

    snprintf(folder, 256, "%s/hocket-%s-%d", base ? base : "/tmp", tag, (int)getpid());
    snprintf(command, sizeof(command), "rm -rf '%s' && mkdir -p '%s'", folder, folder);
    ck_assert_msg(system(command) == 0, "%s", command);
}

void scratch_remove(const char *folder)
{
    char command[600];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_msg(system(command) == 0, "%s", command);
}
