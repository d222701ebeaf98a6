/* tensor.c -- the handle of a tensor-parallel group, and the mappings between split and whole activations.
 *
 * Rows (tokens) are the slow dimension, so own rows are a block of memory and travel as they lie. Columns are strided
 * and go through scratch. Everything else about splitting stands in tensor_linear.c and tensor_vocabulary.c.
 */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

int tensor_scratch(void **memory, size_t bytes, enum tensor_scratch which, struct hkt_tensor *t)
{
    if (t->scratch_bytes[which] < bytes) {
        void *more;

        TRY(hkt_ledger_take(&more, bytes, HKT_BYTES_COMMUNICATION, t->n > 1, t->config.ledger));
        hkt_ledger_give(t->scratch[which], t->config.ledger);
        t->scratch[which]       = more;
        t->scratch_bytes[which] = bytes;
    }
    *memory = t->scratch[which];
    return HKT_OK;
}

int tensor_divides(const char *what, size_t value, const struct hkt_tensor *t)
{
    const size_t parts = t->config.slices ? (size_t)t->config.slices : (size_t)t->n;

    if (value % parts == 0)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s %zu is no multiple of %zu, the %s: %zu and %zu are", what, value, parts,
                         t->config.slices ? "number of slices" : "size of the tensor-parallel group",
                         value / parts * parts, (value / parts + 1) * parts);
}

int tensor_all_reduce(void *x, size_t count, hkt_stream_t *stream, struct hkt_tensor *t)
{
    return t->n > 1 ? hkt_all_reduce(x, x, count, t->config.type, HKT_SUM, t->config.comm, stream) : HKT_OK;
}

static void copy(void *out, const void *in, size_t bytes)
{
    if (out != in && bytes > 0)
        memcpy(out, in, bytes);
}

int tensor_gather_rows(void *all, const void *own, size_t count_all, hkt_stream_t *stream, struct hkt_tensor *t)
{
    if (t->n > 1)
        return hkt_all_gather(own, all, count_all / (size_t)t->n, t->config.type, t->config.comm, stream);
    copy(all, own, count_all * t->element);
    return HKT_OK;
}

int tensor_reduce_rows(void *own, const void *all, size_t count_all, hkt_stream_t *stream, struct hkt_tensor *t)
{
    if (t->n > 1)
        return hkt_reduce_scatter(all, own, count_all / (size_t)t->n, t->config.type, HKT_SUM, t->config.comm, stream);
    copy(own, all, count_all * t->element);
    return HKT_OK;
}

int tensor_wait(struct hkt_tensor *t)
{
    return t->stream ? hkt_stream_synchronize(t->stream) : HKT_OK;
}

static bool power_of_two(int x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

static int check(const hkt_tensor_config_t *c, int n)
{
    if (c->type != HKT_FLOAT32 && c->type != HKT_BFLOAT16)
        return hkt_error_set(HKT_ERR_UNSUPPORTED, "activations of type %s: float32 and bfloat16 are supported",
                             hkt_type_name(c->type));
    if (!c->product)
        return hkt_error_set(HKT_ERR_ARGUMENT, "tensor parallelism needs a matrix product: config.product is NULL");
    if (c->slices == 0)
        return HKT_OK;
    if (!power_of_two(c->slices) || c->slices > 1 << (TREE_LEVELS - 1) || !power_of_two(n) || c->slices % n)
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "%d slices over %d tensor-parallel ranks: both must be powers of two, and the slices a multiple", c->slices,
            n);
    if (c->type != HKT_FLOAT32)
        return hkt_error_set(HKT_ERR_UNSUPPORTED, "sums over slices are made in float32 only, not in %s",
                             hkt_type_name(c->type));
    return HKT_OK;
}

int hkt_tensor_create(hkt_tensor_t **tensor, const hkt_tensor_config_t *config)
{
    struct hkt_tensor *t;
    int                n = 1, me = 0, rc = HKT_OK;

    if (!tensor || !config || config->size != sizeof(*config))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_tensor_create: tensor or config is NULL, or config is not initialised with "
                             "HKT_TENSOR_CONFIG_INIT");
    if (config->comm) {
        TRY(hkt_comm_size(config->comm, &n));
        TRY(hkt_comm_rank(config->comm, &me));
    }
    TRY(check(config, n));
    t = calloc(1, sizeof(*t));
    if (!t)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a tensor-parallel group");
    t->config       = *config;
    t->n            = n;
    t->me           = me;
    t->element      = hkt_type_size(config->type);
    t->local_slices = config->slices ? (size_t)(config->slices / n) : 1;
    if (config->overlap && n > 1)
        rc = hkt_stream_create(&t->stream);
    if (rc < 0) {
        free(t);
        return rc;
    }
    *tensor = t;
    return HKT_OK;
}

int hkt_tensor_destroy(hkt_tensor_t *t)
{
    int rc = HKT_OK;

    if (!t)
        return HKT_OK;
    if (t->stream)
        rc = hkt_stream_destroy(t->stream);
    for (int i = 0; i < SCRATCHES; i++)
        hkt_ledger_give(t->scratch[i], t->config.ledger);
    free(t);
    return rc;
}

/* ---- regions */

struct shape {
    size_t rows, cols;
};

static int same(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    copy(out, in, s.rows * s.cols * t->element);
    return HKT_OK;
}

static int sum(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    same(out, in, s, t);
    return tensor_all_reduce(out, s.rows * s.cols, NULL, t);
}

static int own_rows(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    const size_t bytes = s.rows / (size_t)t->n * s.cols * t->element;

    copy(out, (const char *)in + (size_t)t->me * bytes, bytes);
    return HKT_OK;
}

static int all_rows(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    return tensor_gather_rows(out, in, s.rows * s.cols, NULL, t);
}

static int own_rows_of_sum(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    return tensor_reduce_rows(out, in, s.rows * s.cols, NULL, t);
}

static int own_columns(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    const size_t run = s.cols / (size_t)t->n * t->element;

    for (size_t row = 0; row < s.rows; row++)
        memmove((char *)out + row * run, (const char *)in + (row * (size_t)t->n + (size_t)t->me) * run, run);
    return HKT_OK;
}

static int all_columns(void *out, const void *in, struct shape s, struct hkt_tensor *t)
{
    const size_t n = (size_t)t->n, run = s.cols / n * t->element;
    void        *blocks;

    if (n == 1)
        return same(out, in, s, t);
    TRY(tensor_scratch(&blocks, s.rows * n * run, SCRATCH_GATHERED, t));
    TRY(tensor_gather_rows(blocks, in, s.rows * s.cols, NULL, t));
    for (size_t rank = 0; rank < n; rank++)
        for (size_t row = 0; row < s.rows; row++)
            memcpy((char *)out + (row * n + rank) * run, (char *)blocks + (rank * s.rows + row) * run, run);
    return HKT_OK;
}

enum split { NEITHER, ROWS, COLUMNS };

static const struct {
    const char *name;
    enum split  split;
    int (*forward)(void *out, const void *in, struct shape s, struct hkt_tensor *t);
    int (*backward)(void *out, const void *in, struct shape s, struct hkt_tensor *t);
} regions[HKT_REGIONS] = {
    [HKT_REGION_COPY]            = {"copy", NEITHER, same, sum},
    [HKT_REGION_REDUCE]          = {"reduce", NEITHER, sum, same},
    [HKT_REGION_SCATTER]         = {"scatter", COLUMNS, own_columns, all_columns},
    [HKT_REGION_GATHER]          = {"gather", COLUMNS, all_columns, own_columns},
    [HKT_REGION_SEQUENCE_SPLIT]  = {"sequence split", ROWS, own_rows, all_rows},
    [HKT_REGION_SEQUENCE_JOIN]   = {"sequence join", ROWS, all_rows, own_rows},
    [HKT_REGION_SEQUENCE_GATHER] = {"sequence gather", ROWS, all_rows, own_rows_of_sum},
    [HKT_REGION_SEQUENCE_REDUCE] = {"sequence reduce", ROWS, own_rows_of_sum, all_rows},
};

static int check_region(struct shape s, hkt_region_t region, const struct hkt_tensor *t)
{
    const size_t n = (size_t)(t ? t->n : 1);

    if (!t || (unsigned)region >= HKT_REGIONS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "region %d of %d, or no tensor-parallel group", (int)region,
                             HKT_REGIONS);
    if ((regions[region].split == ROWS && s.rows % n) || (regions[region].split == COLUMNS && s.cols % n))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s of %zu rows and %zu columns over %zu tensor-parallel ranks: the %s are no "
                             "multiple",
                             regions[region].name, s.rows, s.cols, n,
                             regions[region].split == ROWS ? "rows" : "columns");
    return HKT_OK;
}

int hkt_region_forward(void *out, const void *in, size_t rows, size_t cols, hkt_region_t region, hkt_tensor_t *t)
{
    const struct shape s = {rows, cols};

    TRY(check_region(s, region, t));
    return regions[region].forward(out, in, s, t);
}

int hkt_region_backward(void *din, const void *dout, size_t rows, size_t cols, hkt_region_t region, hkt_tensor_t *t)
{
    const struct shape s = {rows, cols};

    TRY(check_region(s, region, t));
    return regions[region].backward(din, dout, s, t);
}
