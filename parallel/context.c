/* context.c -- context parallelism: attention over sequences whose positions are split over ranks, see hocket_train.h.
 *
 * In step s a rank has the keys and values of the rank s places before it. Backward, a rank's gradients of keys and
 * values start with the next rank, which adds its part and passes them on; after n - 1 hops they are home, where the
 * rank's own part waits. So a sum is always c0 + ((c1 + c2) + ... ), c0 the owner's, whatever arrives when. What
 * arrives in a step is not needed before its end: that is what hides the ring.
 *
 * The attention itself, threads, masks beyond the causal one are the caller's.
 */
#include "common.h"
#include "exponential.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum scratch { RING, PARTIAL, RETURN, SCRATCHES };

struct hkt_context {
    hkt_context_config_t config;
    int                  n, me;
    hkt_stream_t        *stream; /* NULL without overlap */
    float               *scratch[SCRATCHES];
    size_t               floats[SCRATCHES];
};

/* ---- places */

static int chunks(int n)
{
    return n > 1 ? 2 : 1;
}

/* Number in the sequence of a rank's first or second chunk. */
static size_t chunk_of(int rank, int n, int which)
{
    return (size_t)(which ? 2 * n - 1 - rank : rank);
}

size_t hkt_context_place(size_t row, size_t length, int rank, int n)
{
    const size_t chunk = length / (size_t)(n * chunks(n)), which = row / chunk;

    return chunk_of(rank, n, which > 0) * chunk + row % chunk;
}

/* ---- views */

static hkt_heads_t rows_of(hkt_heads_t v, size_t first)
{
    v.data += first * v.row;
    return v;
}

/* Dense (batch, rows, heads, size) of keys. */
static hkt_heads_t dense(float *data, size_t rows, size_t heads, size_t size)
{
    return (hkt_heads_t){data, rows * heads * size, heads * size, size, size};
}

struct extent {
    size_t batch, rows, heads, size;
};

static struct extent keys_of(const hkt_attention_t *a)
{
    return (struct extent){a->batch, a->keys, a->key_heads, a->size};
}

static size_t floats_of(struct extent e)
{
    return e.batch * e.rows * e.heads * e.size;
}

static float *at(hkt_heads_t v, size_t b, size_t i, size_t h)
{
    return v.data + b * v.sequence + i * v.row + h * v.group;
}

/* The same of queries, of which m share a head of keys. */
static float *of_query(hkt_heads_t v, size_t m, const size_t place[3])
{
    return at(v, place[0], place[1], place[2] / m) + place[2] % m * v.head;
}

static void copy(hkt_heads_t to, hkt_heads_t from, struct extent e)
{
    for (size_t b = 0; b < e.batch; b++)
        for (size_t i = 0; i < e.rows; i++)
            for (size_t h = 0; h < e.heads; h++)
                memcpy(at(to, b, i, h), at(from, b, i, h), e.size * sizeof(float));
}

static void add_floats(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void add(hkt_heads_t to, hkt_heads_t from, struct extent e)
{
    for (size_t b = 0; b < e.batch; b++)
        for (size_t i = 0; i < e.rows; i++)
            for (size_t h = 0; h < e.heads; h++)
                add_floats(at(to, b, i, h), at(from, b, i, h), e.size);
}

/* Keys and values of one rank, or their gradients, as they travel: dense, one behind the other. */
struct pair {
    hkt_heads_t key, value;
};

static struct pair pair_of(float *data, const hkt_attention_t *a)
{
    const struct extent e = keys_of(a);

    return (struct pair){dense(data, e.rows, e.heads, e.size), dense(data + floats_of(e), e.rows, e.heads, e.size)};
}

/* ---- the merge */

static void merge_row(float *restrict out, const float *restrict other, size_t size, const float weight[2])
{
    for (size_t d = 0; d < size; d++)
        out[d] = weight[0] * out[d] + weight[1] * other[d];
}

static void merge_place(const hkt_attention_t *into, hkt_heads_t out, hkt_heads_t log_sum, const size_t place[3])
{
    const size_t m    = into->heads / into->key_heads;
    float       *here = of_query(into->log_sum, m, place);
    const float  mine = *here, other = *of_query(log_sum, m, place), most = mine > other ? mine : other;

    if (other == -INFINITY)
        return;
    const float x = mine == -INFINITY ? 0 : exponential(mine - most), y = exponential(other - most);

    merge_row(of_query(into->out, m, place), of_query(out, m, place), into->size, (float[]){x / (x + y), y / (x + y)});
    *here = most + logf(x + y);
}

void hkt_attention_merge(const hkt_attention_t *into, const hkt_heads_t *out, const hkt_heads_t *log_sum)
{
    for (size_t b = 0; b < into->batch; b++)
        for (size_t i = 0; i < into->queries; i++)
            for (size_t h = 0; h < into->heads; h++)
                merge_place(into, *out, *log_sum, (size_t[]){b, i, h});
}

/* ---- making it */

static int check(const hkt_context_config_t *c)
{
    if (!c->forward || !c->backward)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "context parallelism needs the attention of a block, forward and backward: "
                             "config.%s is NULL",
                             c->forward ? "backward" : "forward");
    return HKT_OK;
}

int hkt_context_create(hkt_context_t **context, const hkt_context_config_t *config)
{
    struct hkt_context *c;
    int                 n = 1, me = 0, rc = HKT_OK;

    if (!context || !config || config->size != sizeof(*config))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_context_create: context or config is NULL, or config is not initialised with "
                             "HKT_CONTEXT_CONFIG_INIT");
    TRY(check(config));
    if (config->comm) {
        TRY(hkt_comm_size(config->comm, &n));
        TRY(hkt_comm_rank(config->comm, &me));
    }
    c = calloc(1, sizeof(*c));
    if (!c)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a context-parallel group");
    c->config = *config;
    c->n      = n;
    c->me     = me;
    if (config->overlap && n > 1)
        rc = hkt_stream_create(&c->stream);
    if (rc < 0) {
        free(c);
        return rc;
    }
    *context = c;
    return HKT_OK;
}

int hkt_context_destroy(hkt_context_t *c)
{
    int rc = HKT_OK;

    if (!c)
        return HKT_OK;
    if (c->stream)
        rc = hkt_stream_destroy(c->stream);
    for (int i = 0; i < SCRATCHES; i++)
        hkt_ledger_give(c->scratch[i], c->config.ledger);
    free(c);
    return rc;
}

static int scratch(struct hkt_context *c, enum scratch which, size_t floats)
{
    void *more;

    if (c->n == 1 || c->floats[which] >= floats)
        return HKT_OK;
    TRY(hkt_ledger_take(&more, floats * sizeof(float), HKT_BYTES_COMMUNICATION, which != PARTIAL, c->config.ledger));
    hkt_ledger_give(c->scratch[which], c->config.ledger);
    c->scratch[which] = more;
    c->floats[which]  = floats;
    return HKT_OK;
}

static int check_own(const hkt_attention_t *a, const struct hkt_context *c)
{
    if (!a || !c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "attention without a description of own rows or a context");
    if (a->batch == 0 || a->queries == 0 || a->heads == 0 || a->key_heads == 0 || a->size == 0)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "attention of %zu sequences, %zu own rows, %zu heads (%zu of keys) of %zu floats: all "
                             "must be positive",
                             a->batch, a->queries, a->heads, a->key_heads, a->size);
    if (a->queries != a->keys || a->queries % (size_t)chunks(c->n))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%zu own queries and %zu own keys on each of %d context-parallel ranks: as many of both, "
                             "in two chunks; a sequence is a multiple of %d",
                             a->queries, a->keys, c->n, c->n * chunks(c->n));
    if (a->heads % a->key_heads)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%zu heads of queries are no multiple of %zu heads of keys", a->heads,
                             a->key_heads);
    return HKT_OK;
}

/* ---- one pass round the ring */

struct ring {
    struct hkt_context             *c;
    const hkt_attention_t          *own;
    const hkt_attention_gradient_t *gradient; /* NULL: forward */
    void                           *arg;
    size_t                          chunk, travels; /* rows; floats of keys and values together */
    bool                            begun[2];       /* forward: out has something of the first and second chunk's */
};

/* Where rank `rank`'s keys of this step are. */
struct source {
    int         rank;
    struct pair at, gradient;
};

static hkt_attention_t block_of(const struct ring *r, const struct source *s, int query, int key)
{
    const struct hkt_context *c = r->c;
    hkt_attention_t           a = *r->own;
    const size_t              q = (size_t)query * r->chunk, k = (size_t)key * r->chunk;

    a.queries = a.keys = r->chunk;
    a.first_query      = chunk_of(c->me, c->n, query) * r->chunk;
    a.first_key        = chunk_of(s->rank, c->n, key) * r->chunk;
    a.own_query        = q;
    a.query            = rows_of(a.query, q);
    a.out              = rows_of(a.out, q);
    a.log_sum          = rows_of(a.log_sum, q);
    a.key              = rows_of(s->at.key, k);
    a.value            = rows_of(s->at.value, k);
    return a;
}

static int block_forward(struct ring *r, const hkt_attention_t *a, int query)
{
    struct hkt_context *c    = r->c;
    hkt_attention_t     part = *a;
    const size_t        m    = a->heads / a->key_heads;

    if (!r->begun[query]) {
        r->begun[query] = true;
        return c->config.forward(a, r->arg);
    }
    part.out =
        (hkt_heads_t){c->scratch[PARTIAL], r->chunk * a->heads * a->size, a->heads * a->size, m * a->size, a->size};
    part.log_sum = (hkt_heads_t){c->scratch[PARTIAL] + a->batch * r->chunk * a->heads * a->size, r->chunk, 1,
                                 m * a->batch * r->chunk, a->batch * r->chunk};
    TRY(c->config.forward(&part, r->arg));
    hkt_attention_merge(a, &part.out, &part.log_sum);
    return HKT_OK;
}

static int block_backward(const struct ring *r, const hkt_attention_t *a, const struct source *s, int key)
{
    const size_t                   k = (size_t)key * r->chunk;
    const hkt_attention_gradient_t g = {rows_of(r->gradient->dout, a->own_query),
                                        rows_of(r->gradient->dquery, a->own_query), rows_of(s->gradient.key, k),
                                        rows_of(s->gradient.value, k)};

    return r->c->config.backward(&g, a, r->arg);
}

/* All blocks of own queries and the source's keys. */
static int attend(struct ring *r, const struct source *s)
{
    const int count = chunks(r->c->n);

    for (int query = 0; query < count; query++)
        for (int key = 0; key < count; key++) {
            const hkt_attention_t a = block_of(r, s, query, key);

            if (r->c->config.causal && a.first_key > a.first_query)
                continue;
            TRY(r->gradient ? block_backward(r, &a, s, key) : block_forward(r, &a, query));
        }
    return HKT_OK;
}

/* Passes something on: to the next rank, while as much comes from the one before. */
static int pass_on(const struct ring *r, const float *out, float *in)
{
    const struct hkt_context *c = r->c;

    TRY(hkt_send(out, r->travels, HKT_FLOAT32, (c->me + 1) % c->n, c->config.comm, c->stream));
    return hkt_recv(in, r->travels, HKT_FLOAT32, (c->me + c->n - 1) % c->n, c->config.comm, c->stream);
}

/* What travels during step `step`: keys and values but in the last step, and gradients from the third one on. */
static float *ring_buffer(const struct ring *r, int step)
{
    return r->c->scratch[RING] + (size_t)(step % 2) * r->travels;
}

enum { ARRIVES = 2 };
static float *return_buffer(const struct ring *r, int which)
{
    return r->c->scratch[RETURN] + (size_t)which * r->travels;
}

static int begin_travel(const struct ring *r, int step)
{
    int rc = hkt_group_begin(), ended;

    if (rc < 0)
        return rc;
    if (step < r->c->n - 1)
        rc = pass_on(r, ring_buffer(r, step), ring_buffer(r, step + 1));
    if (rc >= 0 && r->gradient && step >= 2)
        rc = pass_on(r, return_buffer(r, (step - 1) % 2), return_buffer(r, ARRIVES));
    ended = hkt_group_end();
    return rc < 0 ? rc : ended;
}

static struct source source_of(const struct ring *r, int step)
{
    const struct hkt_context *c = r->c;
    struct source             s = {.rank = (c->me + c->n - step) % c->n, .at = {r->own->key, r->own->value}};

    if (r->gradient)
        s.gradient = (struct pair){r->gradient->dkey, r->gradient->dvalue};
    if (step == 0)
        return s;
    s.at = pair_of(ring_buffer(r, step), r->own);
    if (r->gradient)
        s.gradient = pair_of(return_buffer(r, step % 2), r->own);
    return s;
}

/* Nothing may travel any more when the caller gets its memory back. */
static int arrived(const struct ring *r, int rc)
{
    const int waited = r->c->stream ? hkt_stream_synchronize(r->c->stream) : HKT_OK;

    return rc < 0 ? rc : waited;
}

static int take_step(struct ring *r, int step)
{
    const struct source s         = source_of(r, step);
    const bool          returning = r->gradient && step > 0;

    if (returning)
        memset(s.gradient.key.data, 0, r->travels * sizeof(float));
    TRY(begin_travel(r, step));
    TRY(arrived(r, attend(r, &s)));
    if (returning && step >= 2)
        add_floats(s.gradient.key.data, return_buffer(r, ARRIVES), r->travels);
    return HKT_OK;
}

static int go_round(struct ring *r)
{
    const struct extent e     = keys_of(r->own);
    const struct pair   first = pair_of(ring_buffer(r, 0), r->own);

    copy(first.key, r->own->key, e);
    copy(first.value, r->own->value, e);
    for (int step = 0; step < r->c->n; step++)
        TRY(take_step(r, step));
    return HKT_OK;
}

static int pass(struct ring *r)
{
    struct hkt_context *c    = r->c;
    const size_t        rows = r->own->batch * r->chunk * r->own->heads;

    if (c->n == 1) {
        const struct source here = source_of(r, 0);

        return attend(r, &here);
    }
    TRY(scratch(c, RING, 2 * r->travels));
    TRY(scratch(c, PARTIAL, r->gradient ? 0 : rows * (r->own->size + 1)));
    TRY(scratch(c, RETURN, r->gradient ? 3 * r->travels : 0));
    return go_round(r);
}

static struct ring ring_of(const hkt_attention_t *own, void *arg, struct hkt_context *c)
{
    return (struct ring){.c       = c,
                         .own     = own,
                         .arg     = arg,
                         .chunk   = own->queries / (size_t)chunks(c->n),
                         .travels = 2 * floats_of(keys_of(own))};
}

int hkt_context_forward(const hkt_attention_t *own, void *arg, hkt_context_t *c)
{
    TRY(check_own(own, c));
    struct ring r = ring_of(own, arg, c);

    return pass(&r);
}

/* The gradients that came home. */
static int bring_home(const struct ring *r)
{
    const struct pair   back = pair_of(return_buffer(r, ARRIVES), r->own);
    const struct extent e    = keys_of(r->own);

    TRY(begin_travel(r, r->c->n)); /* what the last step made */
    TRY(arrived(r, HKT_OK));
    add(r->gradient->dkey, back.key, e);
    add(r->gradient->dvalue, back.value, e);
    return HKT_OK;
}

int hkt_context_backward(const hkt_attention_gradient_t *gradient, const hkt_attention_t *own, void *arg,
                         hkt_context_t *c)
{
    TRY(check_own(own, c));
    if (!gradient)
        return hkt_error_set(HKT_ERR_ARGUMENT, "the backward pass of attention without gradients");
    struct ring r = ring_of(own, arg, c);

    r.gradient = gradient;
    TRY(pass(&r));
    return c->n > 1 ? bring_home(&r) : HKT_OK;
}
