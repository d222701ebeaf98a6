/* codec_gain.c -- what a codec gains on a link: the rates of this processor, measured once, and arithmetic. */
#include "compress.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    PROBE   = 1 << 17 /* elements: fits the second-level cache, as a codec's rate is asked for and not the memory's */,
    ROUNDS  = 5,
    ENTRIES = 32
};

struct rates {
    hkt_codec_t codec; /* that was measured; no entry: none yet */
    double      encode, decode;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rates    known[ENTRIES]; /* under the lock; by the hash of the codec's address, the last one stays */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Scratch of a probe: numbers, feedback, code. */
struct bench {
    float   *x, *e;
    uint8_t *code;
};

static void encode_once(struct bench *b, const hkt_codec_t *codec)
{
    const struct codec_source source = {codec, codec_random(1, 1, 0, 0), 0, NULL, NULL};

    codec_encode(b->code, codec_of(codec)->feedback ? b->e : NULL, b->x, PROBE, &source);
}

static void decode_once(struct bench *b, const hkt_codec_t *codec)
{
    codec_decode(b->e, b->code, PROBE, codec);
}

/* The passes of PowerSGD over a square, half of them before the last reduction and half behind. */
static void factor_once(struct bench *b, const hkt_codec_t *codec)
{
    const struct codec_loops *loops  = codec_loops();
    const hkt_codec_shape_t   s      = factors_square(PROBE);
    float                    *factor = (float *)(void *)b->code;

    for (size_t i = 0; i < s.rows; i++)
        for (int r = 0; r < (int)codec->value[0] && (size_t)(r + 1) * s.cols <= PROBE; r++) {
            const float along = loops->dot(b->x + i * s.cols, factor + (size_t)r * s.cols, s.cols);

            if (r % 2)
                loops->add_scaled(b->e + i * s.cols, along, factor + (size_t)r * s.cols, s.cols);
        }
}

static double rate_of(void (*work)(struct bench *, const hkt_codec_t *), struct bench *b, const hkt_codec_t *codec)
{
    double best = INFINITY;

    for (int round = 0; round < ROUNDS; round++) {
        const double start = seconds();
        double       took;

        work(b, codec);
        took = seconds() - start;
        best = took < best ? took : best;
    }
    return PROBE * sizeof(float) / (best > 1e-9 ? best : 1e-9);
}

static int measure(struct rates *rates, const hkt_codec_t *codec)
{
    const bool   linear = codec_of(codec)->linear;
    const size_t code   = linear ? PROBE * sizeof(float) : hkt_codec_bound(codec, PROBE);
    void        *memory;
    struct bench b;

    TRY(hkt_ledger_take(&memory, 2 * PROBE * sizeof(float) + code, HKT_BYTES_OTHER, false, NULL));
    b = (struct bench){memory, (float *)memory + PROBE, (uint8_t *)memory + 2 * PROBE * sizeof(float)};
    hkt_random_fill_normal(b.x, codec_random(1, 0, 0, 0), 0, PROBE, 1);
    rates->codec  = *codec;
    rates->encode = rate_of(linear ? factor_once : encode_once, &b, codec);
    rates->decode = rate_of(linear ? factor_once : decode_once, &b, codec);
    return hkt_ledger_give(memory, NULL);
}

static int rates_of(struct rates *rates, const hkt_codec_t *codec)
{
    struct rates *slot;
    int           rc = HKT_OK;

    pthread_mutex_lock(&lock);
    slot = &known[(uintptr_t)codec->entry / sizeof(struct codec) % ENTRIES];
    if (slot->codec.entry != codec->entry || memcmp(slot->codec.value, codec->value, sizeof(codec->value)) != 0)
        rc = measure(slot, codec);
    *rates = *slot;
    pthread_mutex_unlock(&lock);
    return rc;
}

static double code_bytes(const hkt_codec_t *codec, size_t count, int n)
{
    const hkt_codec_shape_t s = factors_square(count);

    if (codec_of(codec)->linear)
        return 4 * (codec->value[0] * (double)(s.rows + s.cols) + (double)(count - s.rows * s.cols));
    return (double)n * (double)hkt_codec_bound(codec, codec_groups((count + (size_t)n - 1) / (size_t)n));
}

int hkt_codec_gain(hkt_codec_gain_t *gain, const hkt_codec_t *codec, size_t count, int n, double bytes_per_s,
                   double latency_s)
{
    const double plain = 4 * (double)count;
    struct rates rates;

    if (!gain || !codec || !codec->entry)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_codec_gain: a pointer is NULL, or the codec was not parsed");
    if (n < 1 || !(bytes_per_s > 0) || !(latency_s >= 0))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_codec_gain: %d ranks, %g bytes/s, %g s: they are to be >= 1, > 0, >= 0", n,
                             bytes_per_s, latency_s);
    TRY(rates_of(&rates, codec));
    const double code = code_bytes(codec, count, n), hops = 2.0 * (n - 1), per = 1.0 / n;
    const double work =
        plain * (1 + per) / rates.encode + 2 * plain / rates.decode; /* own, the owned sum; n parts, the result */

    *gain = (hkt_codec_gain_t){
        .plain_s     = hops * (latency_s + plain * per / bytes_per_s),
        .coded_s     = work + hops * (latency_s + code * per / bytes_per_s) + 2 * ceil(log2(n)) * latency_s,
        .encode_rate = rates.encode,
        .decode_rate = rates.decode,
        .code_bytes  = code,
    };
    return HKT_OK;
}
