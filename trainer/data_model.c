/* data_model.c -- the commands of hkt-data about models: what is in a checkpoint, and between checkpoints and
 * safetensors. */
#include "data_tool.h"

#include "safetensors_gpt2.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- checkpoint */

static void print_shape(const hkt_piece_t *piece)
{
    for (int d = 0; d < piece->dims; d++)
        printf("%s%zu", d ? "x" : "", piece->shape[d]);
}

static void print_tensors(const hkt_checkpoint_t *c, size_t pieces)
{
    hkt_piece_t piece = {.name = ""}, before = piece;
    size_t      same = 0;

    for (size_t i = 0; i <= pieces; i++) {
        if (i < pieces)
            (void)hkt_checkpoint_piece(&piece, i, c);
        if (same && (i == pieces || piece.kind != before.kind || strcmp(piece.name, before.name) != 0)) {
            printf("  %-8s %-9s ", hkt_piece_kind_name(before.kind), hkt_type_name(before.type));
            print_shape(&before);
            printf(" %s, %zu piece%s\n", before.name, same, same > 1 ? "s" : "");
            same = 0;
        }
        before = piece;
        same++;
    }
}

int data_checkpoint(char **words, int count)
{
    hkt_checkpoint_info_t info;
    int                   rc = HKT_OK;

    for (int i = 0; i < count && rc == HKT_OK; i++) {
        hkt_checkpoint_t *c;

        if ((rc = hkt_checkpoint_open(&c, words[i], settings.step, NULL)) < 0)
            break;
        (void)hkt_checkpoint_info(&info, c);
        printf("%s: step %" PRId64 ", saved by %d ranks, %zu pieces%s%s\n", info.path, info.step, info.ranks,
               info.pieces, *info.note ? "; " : "", info.note);
        for (size_t m = 0; m < info.metadata; m++) {
            hkt_metadata_t datum;

            (void)hkt_checkpoint_metadatum(&datum, m, c);
            printf("  %s = %s\n", datum.key, datum.value);
        }
        print_tensors(c, info.pieces);
        rc = hkt_checkpoint_verify(c);
        if (rc == HKT_OK)
            printf("  whole\n");
        (void)hkt_checkpoint_close(c);
    }
    return rc;
}

/* ---- export */

struct model {
    hkt_checkpoint_t *checkpoint;
    struct gpt2_shape shape;
};

/* The whole tensor as it was saved: the fp32 copy where there is one. */
static int find(hkt_piece_t *piece, const hkt_checkpoint_t *c, const char *name)
{
    hkt_checkpoint_info_t info;
    bool                  found = false;

    (void)hkt_checkpoint_info(&info, c);
    for (size_t i = 0; i < info.pieces; i++) {
        hkt_piece_t p;

        (void)hkt_checkpoint_piece(&p, i, c);
        if (strcmp(p.name, name) == 0 && (p.kind == HKT_PIECE_MASTER || (p.kind == HKT_PIECE_WEIGHT && !found))) {
            *piece = p;
            found  = true;
        }
    }
    if (!found)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s has no tensor %s", info.path, name);
    piece->first = piece->begin = piece->run = piece->stride = 0;
    piece->count                                             = 1;
    for (int d = 0; d < piece->dims; d++)
        piece->count *= piece->shape[d];
    return HKT_OK;
}

static int fetch(void *arg, size_t index, float *data)
{
    struct model            *m = arg;
    const struct gpt2_tensor t = gpt2_tensor(&m->shape, index);
    hkt_piece_t              piece;
    const int                rc = find(&piece, m->checkpoint, t.name);

    if (rc < 0)
        return rc;
    if (piece.count != t.rows * t.cols)
        return hkt_error_set(HKT_ERR_ARGUMENT, "tensor %s has %zu elements and not %zu x %zu", t.name, piece.count,
                             t.rows, t.cols);
    piece.type = HKT_FLOAT32;
    piece.data = data;
    return hkt_checkpoint_read(&piece, 1, m->checkpoint);
}

/* A number of the command line, else of the metadata, else `otherwise`. */
static size_t number(long given, const hkt_checkpoint_t *c, const char *key, size_t otherwise)
{
    const char *value = hkt_checkpoint_value(c, key);

    return given > 0 ? (size_t)given : value && strtoul(value, NULL, 10) ? strtoul(value, NULL, 10) : otherwise;
}

static int shape_of(struct gpt2_shape *s, const hkt_checkpoint_t *c)
{
    hkt_piece_t tokens, positions, up, norm;
    char        name[64];
    int         rc;

    if ((rc = find(&tokens, c, "wte.weight")) < 0 || (rc = find(&positions, c, "wpe.weight")) < 0 ||
        (rc = find(&up, c, "h.0.mlp.c_fc.weight")) < 0)
        return rc;
    if (tokens.dims != 2 || positions.dims != 2 || up.dims != 2)
        return hkt_error_set(HKT_ERR_ARGUMENT, "wte.weight, wpe.weight or h.0.mlp.c_fc.weight is no matrix");
    *s = (struct gpt2_shape){
        .width = tokens.shape[1], .mlp = up.shape[0], .length = positions.shape[0], .padded = tokens.shape[0]};
    do
        snprintf(name, sizeof(name), "h.%zu.ln_1.weight", s->layers);
    while (find(&norm, c, name) == HKT_OK && ++s->layers);
    s->vocabulary = number(settings.vocabulary, c, "vocab-size", s->padded);
    s->heads      = number(settings.heads, c, "num-attention-heads", s->width < 64 ? 1 : s->width / 64);
    return HKT_OK;
}

int data_export(char **words, int count)
{
    struct model             m      = {0};
    const struct gpt2_source source = {fetch, &m};
    int                      rc;

    if (count != 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "export takes one folder");
    rc = hkt_checkpoint_open(&m.checkpoint, words[0], settings.step, NULL);
    if (rc == HKT_OK)
        rc = shape_of(&m.shape, m.checkpoint);
    if (rc == HKT_OK)
        rc = gpt2_write(settings.output, &m.shape, &source);
    if (rc == HKT_OK)
        printf("%s: GPT-2 of %zu layers, width %zu, %zu heads, vocabulary %zu\n", settings.output, m.shape.layers,
               m.shape.width, m.shape.heads, m.shape.vocabulary);
    (void)hkt_checkpoint_close(m.checkpoint);
    return rc;
}

/* ---- import */

static int read_tensors(hkt_piece_t *pieces, struct gpt2_tensor *tensors, const struct gpt2_shape *s,
                        const struct safetensors *file)
{
    for (size_t i = 0; i < gpt2_count(s); i++) {
        hkt_piece_t *p = &pieces[i];
        int          rc;

        tensors[i]  = gpt2_tensor(s, i);
        *p          = (hkt_piece_t){.name = tensors[i].name, .kind = HKT_PIECE_WEIGHT, .type = HKT_FLOAT32, .dims = 2};
        p->count    = tensors[i].rows * tensors[i].cols;
        p->dims     = tensors[i].rows == 1 ? 1 : 2;
        p->shape[0] = tensors[i].rows == 1 ? tensors[i].cols : tensors[i].rows;
        p->shape[1] = tensors[i].rows == 1 ? 0 : tensors[i].cols;
        p->data     = malloc(p->count * sizeof(float));
        if (!p->data)
            return hkt_error_set(HKT_ERR_MEMORY, "no memory for tensor %s", tensors[i].name);
        if ((rc = gpt2_read(p->data, s, i, file)) < 0)
            return rc;
    }
    return HKT_OK;
}

static int save(const hkt_piece_t *pieces, const struct gpt2_shape *s)
{
    char                 heads[24], vocabulary[24];
    const hkt_metadata_t metadata[] = {{"num-attention-heads", heads}, {"vocab-size", vocabulary}};
    const hkt_config_t   config     = {sizeof(config), 1, -1.0, HKT_ORDER_CANONICAL, "hkt-data"};
    hkt_unique_id_t      id;
    hkt_comm_t          *comm;
    int                  rc;

    snprintf(heads, sizeof(heads), "%zu", s->heads);
    snprintf(vocabulary, sizeof(vocabulary), "%zu", s->vocabulary);
    if ((rc = hkt_unique_id(&id)) < 0 || (rc = hkt_comm_init(&comm, 1, &id, 0, &config)) < 0)
        return rc;
    rc = hkt_checkpoint_save(comm, settings.output, 0, 0, pieces, gpt2_count(s), metadata, 2);
    (void)hkt_comm_destroy(comm);
    return rc;
}

static int import_file(const struct safetensors *file)
{
    struct gpt2_shape   s = {0};
    hkt_piece_t        *pieces;
    struct gpt2_tensor *tensors;
    int                 rc = gpt2_shape(&s, file);

    if (rc < 0)
        return rc;
    s.heads = settings.heads > 0 ? (size_t)settings.heads : s.heads;
    pieces  = calloc(gpt2_count(&s), sizeof(*pieces));
    tensors = calloc(gpt2_count(&s), sizeof(*tensors));
    if (pieces && tensors)
        rc = read_tensors(pieces, tensors, &s, file);
    else
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory for %zu tensors", gpt2_count(&s));
    if (rc == HKT_OK)
        rc = save(pieces, &s);
    if (rc == HKT_OK)
        printf("%s: step 0 of a GPT-2 of %zu layers, width %zu, %zu heads, vocabulary %zu\n", settings.output, s.layers,
               s.width, s.heads, s.vocabulary);
    for (size_t i = 0; pieces && i < gpt2_count(&s); i++)
        free(pieces[i].data);
    free(pieces);
    free(tensors);
    return rc;
}

int data_import(char **words, int count)
{
    struct safetensors *file;
    int                 rc;

    if (count != 1)
        return hkt_error_set(HKT_ERR_ARGUMENT, "import takes one file");
    if ((rc = safetensors_open(&file, words[0])) < 0)
        return rc;
    rc = import_file(file);
    safetensors_close(file);
    return rc;
}
