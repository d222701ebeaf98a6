/* samples.c -- the index of a data set of windows, see samples.h: the order of documents, where windows begin, the
 * order of windows. Cached files are samples_cache.c; what is done with samples afterwards is samples_batch.c.
 */
#include "samples_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void shuffle(int64_t *numbers, uint64_t count, uint64_t seed)
{
    for (uint64_t i = count; i > 1; i--) {
        uint64_t x = seed += 0x9e3779b97f4a7c15u;

        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;

        const uint64_t j     = (uint64_t)((unsigned __int128)x * i >> 64);
        const int64_t  moved = numbers[i - 1];

        numbers[i - 1] = numbers[j];
        numbers[j]     = moved;
    }
}

/* ---- how large it is */

static int plan_epochs(struct index_plan *plan, const struct samples_description *d)
{
    uint64_t needed;

    plan->epochs = 1;
    if (d->wanted == 0)
        return HKT_OK;
    if (__builtin_mul_overflow(d->wanted, (uint64_t)d->length, &needed) || needed >= INT64_MAX)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%" PRIu64 " samples of %zu tokens are more than 2^63 tokens", d->wanted,
                             d->length);
    plan->epochs = needed / plan->tokens + 1; /* the least E with E * tokens >= needed + 1 */
    return HKT_OK;
}

/* Samples that begin in the first `epochs` epochs. */
static uint64_t samples_in(const struct index_plan *plan, uint64_t epochs, size_t length)
{
    return (epochs * plan->tokens - 1) / length;
}

int index_plan(struct index_plan *plan, const struct indexed *indexed, const struct samples_description *d)
{
    struct index_plan p = {0};

    if (d->first > d->last || d->last > indexed_sequences(indexed) || d->length == 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "samples of %zu tokens from documents %zu to %zu of %zu", d->length,
                             d->first, d->last, indexed_sequences(indexed));
    if (indexed_code(indexed) == TOKEN_F32 || indexed_code(indexed) == TOKEN_F64)
        return hkt_error_set(HKT_ERR_ARGUMENT, "data of %s are no tokens", token_name(indexed_code(indexed)));
    for (size_t i = d->first; i < d->last; i++)
        p.tokens += indexed_length(indexed, i);
    if (p.tokens < 2 || (!d->keep_partial && p.tokens < d->length + 1 && d->wanted == 0))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "documents %zu to %zu have %" PRIu64 " tokens, too few for a sample of %zu + 1", d->first,
                             d->last, p.tokens, d->length);

    const int rc = plan_epochs(&p, d);

    if (rc < 0)
        return rc;
    p.samples = samples_in(&p, p.epochs, d->length) + (d->keep_partial && (p.epochs * p.tokens - 1) % d->length != 0);
    p.apart   = p.samples;
    if (p.epochs > 1) {
        const uint64_t before  = samples_in(&p, p.epochs - 1, d->length),
                       of_last = d->wanted > before ? d->wanted - before : 0;

        p.last_apart = of_last * 5 < samples_in(&p, 1, d->length) * 4;
        p.apart      = p.last_apart ? before : p.samples;
    }
    p.documents = p.epochs * (d->last - d->first);
    *plan       = p;
    return HKT_OK;
}

/* ---- making it */

static void order_documents(int64_t *documents, const struct index_plan *plan, const struct samples_description *d)
{
    const uint64_t each = d->last - d->first, apart = plan->last_apart ? plan->documents - each : plan->documents;

    for (uint64_t i = 0; i < plan->documents; i++)
        documents[i] = (int64_t)(d->first + i % each);
    shuffle(documents, apart, d->seed);
    shuffle(documents + apart, plan->documents - apart, d->seed + 1);
}

/* rows[2 i], rows[2 i + 1]: place in the order of documents and token in the document with which sample i begins. */
static void cut_windows(int64_t *rows, const int64_t *documents, const struct index_plan *plan,
                        const struct indexed *indexed, size_t length)
{
    uint64_t document = 0, token = 0;

    for (uint64_t i = 0; i <= plan->samples; i++) {
        rows[2 * i]     = (int64_t)document;
        rows[2 * i + 1] = (int64_t)token;
        for (uint64_t left = length; left && document < plan->documents;) {
            const uint64_t have = indexed_length(indexed, (size_t)documents[document]) - token;

            if (left < have) {
                token += left;
                left = 0;
            } else {
                left -= have;
                document++;
                token = 0;
            }
        }
        while (document < plan->documents &&
               indexed_length(indexed, (size_t)documents[document]) == token) { /* empty ones */
            document++;
            token = 0;
        }
    }
}

void index_make(int64_t *arrays, const struct index_plan *plan, const struct indexed *indexed,
                const struct samples_description *d)
{
    int64_t *documents = arrays, *rows = documents + plan->documents, *order = rows + 2 * (plan->samples + 1);

    order_documents(documents, plan, d);
    cut_windows(rows, documents, plan, indexed, d->length);
    for (uint64_t i = 0; i < plan->samples; i++)
        order[i] = (int64_t)i;
    shuffle(order, plan->apart, d->seed + 2);
    shuffle(order + plan->apart, plan->samples - plan->apart, d->seed + 3);
}

size_t index_numbers(const struct index_plan *plan)
{
    return plan->documents + 2 * (plan->samples + 1) + plan->samples;
}

/* ---- the data set */

struct samples {
    const struct indexed *indexed;
    size_t                length;
    struct index_plan     plan;
    struct index_memory   memory;
    const int64_t        *documents, *rows, *order;
};

/* Whether all ranks have the same, and no rank failed. */
static int compare(int rc, uint64_t checksum, hkt_comm_t *comm)
{
    uint64_t mine[2] = {(uint64_t)(int64_t)rc, checksum}, *all;
    char     sentence[900];
    int      n, code;

    snprintf(sentence, sizeof(sentence), "%s", rc < 0 ? hkt_last_error() : "");
    if ((code = hkt_comm_size(comm, &n)) < 0)
        return code;
    all = calloc((size_t)n, sizeof(mine));
    if (!all)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory to compare %d ranks", n);
    code = hkt_all_gather(mine, all, 2, HKT_UINT64, comm, NULL);
    for (int r = 0; r < n && code == HKT_OK && rc == HKT_OK; r++)
        if ((int64_t)all[2 * r] < 0)
            code = hkt_error_set((int)(int64_t)all[2 * r],
                                 "rank %d could not open the index of its samples; it says why", r);
        else if (all[2 * r + 1] != all[1])
            code = hkt_error_set(HKT_ERR_MISMATCH,
                                 "the index of the samples has checksum %016" PRIx64 " on rank 0 and %016" PRIx64
                                 " on rank %d: they have different data or settings",
                                 all[1], all[2 * r + 1], r);
    free(all);
    return rc < 0 ? hkt_error_set(rc, "%s", sentence) : code;
}

static int open_index(struct samples *s, const struct indexed *indexed, const struct samples_description *d)
{
    const int rc = index_plan(&s->plan, indexed, d);

    return rc < 0 ? rc : index_get(&s->memory, &s->plan, indexed, d);
}

int samples_open(struct samples **samples, const struct indexed *indexed, const struct samples_description *d,
                 hkt_comm_t *comm)
{
    struct samples *s  = calloc(1, sizeof(*s));
    int             rc = s ? open_index(s, indexed, d) : hkt_error_set(HKT_ERR_MEMORY, "no memory for samples");

    if (comm)
        rc = compare(rc, s ? s->memory.checksum : 0, comm);
    if (rc < 0) {
        samples_close(s);
        return rc;
    }
    s->indexed   = indexed;
    s->length    = d->length;
    s->documents = s->memory.arrays;
    s->rows      = s->documents + s->plan.documents;
    s->order     = s->rows + 2 * (s->plan.samples + 1);
    *samples     = s;
    return HKT_OK;
}

void samples_close(struct samples *s)
{
    if (s)
        index_release(&s->memory);
    free(s);
}

uint64_t samples_count(const struct samples *s)
{
    return s->plan.samples;
}

uint64_t samples_epochs(const struct samples *s)
{
    return s->plan.epochs;
}

uint64_t samples_checksum(const struct samples *s)
{
    return s->memory.checksum;
}

void samples_get(int32_t *tokens, const struct samples *s, uint64_t index, int32_t pad)
{
    const int64_t *row      = s->rows + 2 * s->order[index];
    uint64_t       document = (uint64_t)row[0];
    size_t         token = (size_t)row[1], left = s->length + 1;

    for (; left && document < s->plan.documents; document++, token = 0) {
        const size_t sequence = (size_t)s->documents[document], have = indexed_length(s->indexed, sequence) - token;
        const size_t n = have < left ? have : left;

        indexed_get(tokens, s->indexed, sequence, token, n);
        tokens += n;
        left -= n;
    }
    while (left--)
        *tokens++ = pad;
}
