/* compress.c -- compressors: reductions of codes with the feedback that belongs to them.
 *
 * A call begins with an all-reduce of a word or a few: whether some rank's input has a NaN or an infinity. Error
 * feedback would keep such a number for ever, and half of the ranks would have updated theirs before the others' codes
 * tell them; so nothing is touched before all have agreed. That costs a pass over the input and one small message.
 * TernGrad's shared scalers travel with it.
 */
#include "compress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- time */

double compress_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pass(hkt_compressor_t *c, double *to)
{
    const double now = compress_seconds();

    *to += now - c->since;
    c->since = now;
}

void compress_coded(hkt_compressor_t *c)
{
    pass(c, &c->code_s);
}

void compress_waited(hkt_compressor_t *c, double wire_s)
{
    pass(c, &c->wait_s);
    c->wire_s += wire_s;
}

void compress_wired(hkt_compressor_t *c)
{
    const double before = c->wait_s;

    pass(c, &c->wait_s);
    c->wire_s += c->wait_s - before;
}

static atomic_flag warned = ATOMIC_FLAG_INIT; /* one sentence a process: there may be a compressor per bucket */

/* Judges by the fastest call: the wire would have taken `ratio` times as long without the codec. That is too much where
 * latency counts, so the verdict "slower" is on the safe side. */
static void judge(hkt_compressor_t *c)
{
    hkt_compressor_stats_t *s = &c->stats;

    s->calls++;
    s->code_s += c->code_s;
    s->wire_s += c->wire_s;
    if (s->calls == 1 || c->code_s + c->wait_s < c->least_s)
        c->least_s = c->code_s + c->wait_s;
    if (s->calls == 1 || c->wire_s < c->least_wire_s)
        c->least_wire_s = c->wire_s;
    if (c->n == 1 || s->calls < COMPRESS_JUDGED)
        return;
    s->coded_s = c->least_s;
    s->plain_s = c->least_wire_s * s->ratio;
    if (s->calls == COMPRESS_JUDGED && s->coded_s > s->plain_s && c->me == 0 && !atomic_flag_test_and_set(&warned))
        fprintf(
            stderr,
            "hocket: the codec %s makes this reduction of %zu elements over %d ranks slower: %.3g ms, without it about "
            "%.3g ms; the link is faster than the codec\n",
            codec_of(&c->codec)->name, c->count, c->n, 1e3 * s->coded_s, 1e3 * s->plain_s);
}

/* ---- the rule for NaN and infinity */

/* Every rank learns which element of the lowest rank is at fault, and gets NaN. */
static int spread_fault(hkt_compressor_t *c, const struct request *r, size_t bad)
{
    const int culprit = c->n - (int)c->agreed[0];
    uint64_t  what[2] = {bad, 0};

    if (culprit == c->me)
        memcpy(&what[1], &r->in[bad], sizeof(float));
    TRY(hkt_broadcast(what, what, 2, HKT_UINT64, culprit, c->comm, NULL));
    float value;

    memcpy(&value, &what[1], sizeof(value));
    snprintf(c->fault, sizeof(c->fault),
             "element %llu of rank %d is %s in call %llu: the result is NaN, feedback and state stay",
             (unsigned long long)what[0], culprit,
             isnan(value) ? "NaN"
             : value > 0  ? "infinity"
                          : "-infinity",
             (unsigned long long)(c->stats.calls + c->stats.faults + 1));
    c->stats.faults++;
    for (size_t i = 0; i < r->end - r->begin; i++)
        r->out[i] = NAN;
    return HKT_OK;
}

static int reduce(hkt_compressor_t *c, const struct request *r)
{
    const struct chunks chunks = r->scatter ? compress_chunks(&c->codec, c->count / (size_t)c->n, c->n) : c->whole;
    const bool          shared = codec_of(&c->codec)->measure != NULL;
    size_t              bad;

    c->since  = compress_seconds();
    c->code_s = c->wait_s = c->wire_s = 0;
    bad                               = c->loops->bad(r->in, c->count);
    c->agreed[0]                      = bad < c->count ? (uint32_t)(c->n - c->me) : 0;
    if (shared)
        shot_measure(c->agreed + 1, c, r->in, &chunks);
    compress_coded(c);
    TRY(hkt_all_reduce(c->agreed, c->agreed, 1 + (shared ? (size_t)c->n * chunks.tiles : 0), HKT_UINT32, HKT_MAX,
                       c->comm, NULL));
    compress_wired(c);
    if (c->agreed[0])
        return spread_fault(c, r, bad);
    TRY(codec_of(&c->codec)->linear ? factors_run(c, r) : shot_run(c, r, &chunks));
    compress_coded(c);
    c->step++;
    judge(c);
    return HKT_OK;
}

static int reduce_on_stream(void *arg)
{
    struct request *r  = arg;
    const int       rc = reduce(r->compressor, r);

    atomic_store_explicit(&r->busy, 0, memory_order_release); /* pairs with the exchange in start() */
    return rc;
}

static int start(hkt_compressor_t *c, const struct request *what, hkt_stream_t *stream)
{
    if (!stream)
        return reduce(c, what);
    for (int i = 0; i < COMPRESS_WAITING; i++) {
        struct request *r = &c->request[i];

        if (atomic_exchange_explicit(&r->busy, 1,
                                     memory_order_acquire)) /* pairs with the store in reduce_on_stream() */
            continue;
        r->compressor = c;
        r->in         = what->in;
        r->out        = what->out;
        r->average    = what->average;
        r->scatter    = what->scatter;
        r->begin      = what->begin;
        r->end        = what->end;
        const int rc  = hkt_stream_call(stream, reduce_on_stream, r);

        if (rc < 0)
            atomic_store_explicit(&r->busy, 0, memory_order_release);
        return rc;
    }
    return hkt_error_set(HKT_ERR_USAGE,
                         "a compressor has %d calls waiting on streams, the most there may be; synchronize first",
                         COMPRESS_WAITING);
}

static bool is_waiting(hkt_compressor_t *c)
{
    for (int i = 0; i < COMPRESS_WAITING; i++)
        if (atomic_load_explicit(&c->request[i].busy, memory_order_acquire))
            return true;
    return false;
}

int hkt_compressor_all_reduce(hkt_compressor_t *c, const float *in, float *out, size_t count, bool average,
                              hkt_stream_t *stream)
{
    if (!c || (count && (!in || !out)))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_all_reduce: a pointer is NULL");
    if (count != c->count)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_compressor_all_reduce: %zu elements, but the compressor was made for %zu: its "
                             "feedback belongs to them",
                             count, c->count);
    if (in < out + count && out < in + count && in != out)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_all_reduce: in and out overlap; they may be equal");
    return start(c, &(struct request){.in = in, .out = out, .average = average, .begin = 0, .end = count}, stream);
}

int hkt_compressor_reduce_scatter(hkt_compressor_t *c, const float *in, float *out, size_t count, bool average,
                                  hkt_stream_t *stream)
{
    if (!c || (count && (!in || !out)))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_reduce_scatter: a pointer is NULL");
    if (count != c->count / (size_t)c->n || c->count % (size_t)c->n)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_compressor_reduce_scatter: %zu elements for each of %d ranks, but the compressor was "
                             "made for %zu in all",
                             count, c->n, c->count);
    const size_t begin = (size_t)c->me * count;

    if (in < out + count && out < in + c->count && out != in + begin)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_compressor_reduce_scatter: in and out overlap; out may be in + rank * count");
    return start(c,
                 &(struct request){
                     .in = in, .out = out, .average = average, .scatter = true, .begin = begin, .end = begin + count},
                 stream);
}

/* ---- making */

static int take(void **memory, size_t bytes, bool shared, hkt_compressor_t *c)
{
    TRY(hkt_ledger_take(memory, bytes, HKT_BYTES_COMMUNICATION, shared, c->ledger));
    memset(*memory, 0, bytes); /* touched now, not in a step */
    return HKT_OK;
}

static int take_memory(hkt_compressor_t *c, const hkt_compressor_config_t *config)
{
    const size_t n = (size_t)c->n, codes = n * c->whole.stride;
    const size_t tiles = codec_of(&c->codec)->measure ? n * c->whole.tiles : 0;

    TRY(take((void **)&c->agreed, (1 + tiles) * sizeof(uint32_t), true, c));
    if (c->feedback)
        TRY(take((void **)&c->worker, c->count * sizeof(float), false, c));
    if (codec_of(&c->codec)->linear)
        return factors_create(c, config);
    if (c->feedback)
        TRY(take((void **)&c->owner, c->whole.part * sizeof(float), false, c));
    TRY(take((void **)&c->sent, codes, true, c));
    TRY(take((void **)&c->got, codes, true, c));
    return shot_create(c);
}

static int give_memory(hkt_compressor_t *c)
{
    if (codec_of(&c->codec)->linear)
        factors_destroy(c);
    shot_destroy(c);
    hkt_ledger_give(c->got, c->ledger);
    hkt_ledger_give(c->sent, c->ledger);
    hkt_ledger_give(c->owner, c->ledger);
    hkt_ledger_give(c->worker, c->ledger);
    hkt_ledger_give(c->agreed, c->ledger);
    return hkt_ledger_give(c, c->ledger);
}

static uint64_t mixed(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* Also tells ranks that failed before from those that did not: nobody is left waiting. */
static int agree_on_arguments(hkt_compressor_t *c, const hkt_compressor_config_t *config, int rc)
{
    char     text[256] = "";
    uint64_t seen[3]   = {0xcbf29ce484222325u, 0, rc < 0};

    if (rc >= 0)
        rc = hkt_codec_text(text, sizeof(text), &c->codec);
    seen[0] = mixed(seen[0], text, strlen(text));
    seen[0] = mixed(seen[0], &c->count, sizeof(c->count));
    seen[0] = mixed(seen[0], &c->seed, sizeof(c->seed));
    seen[0] = mixed(seen[0], &c->feedback, sizeof(c->feedback));
    if (config->matrices && config->matrix_count > 0)
        seen[0] = mixed(seen[0], config->matrices, (size_t)config->matrix_count * sizeof(*config->matrices));
    const uint64_t own = seen[0];

    seen[1] = ~own;
    TRY(hkt_all_reduce(seen, seen, 3, HKT_UINT64, HKT_MAX, c->comm, NULL));
    if (rc < 0)
        return rc;
    if (seen[2])
        return hkt_error_set(HKT_ERR_MISMATCH, "hkt_compressor_create failed on another rank");
    if (seen[0] != own || seen[1] != ~own)
        return hkt_error_set(HKT_ERR_MISMATCH,
                             "hkt_compressor_create: the ranks differ in codec, count, seed, feedback or matrices; "
                             "here %s, %zu elements",
                             text, c->count);
    return HKT_OK;
}

static int fill_in(hkt_compressor_t *c, const hkt_compressor_config_t *config)
{
    TRY(hkt_codec_parse(&c->codec, config->codec));
    c->loops    = codec_loops();
    c->seed     = config->seed;
    c->feedback = config->feedback < 0 ? codec_of(&c->codec)->feedback : config->feedback != 0;
    c->whole    = compress_chunks(&c->codec, codec_groups((c->count + (size_t)c->n - 1) / (size_t)c->n), c->n);
    return take_memory(c, config);
}

int hkt_compressor_create(hkt_compressor_t **compressor, size_t count, const hkt_compressor_config_t *config,
                          hkt_comm_t *comm, hkt_ledger_t *ledger)
{
    hkt_compressor_t *c;
    int               n, me, rc;

    if (!compressor || !config || config->size != sizeof(*config))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_compressor_create: a pointer is NULL, or the config was not begun with "
                             "HKT_COMPRESSOR_CONFIG_INIT");
    TRY(hkt_comm_size(comm, &n));
    TRY(hkt_comm_rank(comm, &me));
    TRY(hkt_ledger_take((void **)&c, sizeof(*c), HKT_BYTES_OTHER, false, ledger));
    c->comm   = comm;
    c->ledger = ledger;
    c->n      = n;
    c->me     = me;
    c->count  = count;
    rc        = agree_on_arguments(c, config, fill_in(c, config));
    if (rc < 0) {
        if (c->codec.entry)
            give_memory(c);
        else
            hkt_ledger_give(c, ledger);
        return rc;
    }
    c->stats.code_bytes = codec_of(&c->codec)->linear ? factors_code_bytes(&c->factors) : (size_t)n * c->whole.stride;
    c->stats.ratio      = c->stats.code_bytes ? 4.0 * (double)count / (double)c->stats.code_bytes : 0;
    *compressor         = c;
    return HKT_OK;
}

int hkt_compressor_destroy(hkt_compressor_t *c)
{
    if (!c)
        return HKT_OK;
    if (is_waiting(c))
        return hkt_error_set(HKT_ERR_USAGE,
                             "hkt_compressor_destroy: calls are waiting on a stream; synchronize it first");
    return give_memory(c);
}

int compress_in_units(hkt_compressor_t *c, const float *unit)
{
    if (unit && (codec_of(&c->codec)->linear || codec_of(&c->codec)->measure || !c->feedback))
        return hkt_error_set(HKT_ERR_UNSUPPORTED,
                             "the codec %s does not round in units of its elements; onebit, int4, int8, fp8 and topk do, with "
                             "feedback",
                             codec_of(&c->codec)->name);
    c->unit = unit;
    return HKT_OK;
}

/* ---- looking at it */

int hkt_compressor_stats(hkt_compressor_stats_t *stats, hkt_compressor_t *c)
{
    if (!stats || !c)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_compressor_stats: a pointer is NULL");
    *stats = c->stats;
    return HKT_OK;
}

const char *hkt_compressor_fault(hkt_compressor_t *c)
{
    return c ? c->fault : "";
}
