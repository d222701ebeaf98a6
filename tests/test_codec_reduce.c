/* test_codec_reduce.c -- reductions of codes over ranks: two roundings at any n, the same bits everywhere, feedback,
 * traffic, the rule for what is not finite, saving, and streams. PowerSGD by itself: test_codec_powersgd.c. Whether
 * training with them converges: test_codec_training.c. */
#include "codecs.h"

enum { HEAD = 160 /* bytes of a state before the feedback */ };

static const char *const codecs[] = {"fp16", "bf16",     "fp8",    "int8",           "int4",
                                     "qsgd", "terngrad", "onebit", "topk:share=0.1", "powersgd"};
enum { CODECS = sizeof(codecs) / sizeof(codecs[0]), POWERSGD = CODECS - 1 };

/* ---- two shots */

static size_t part_of(size_t count, int n)
{
    return ((count + (size_t)n - 1) / (size_t)n + 63) / 64 * 64;
}

/* What the header says, done by one rank with the codec alone: two roundings, the sum in rank order. */
static void by_hand(float *out, const struct rank *me, const hkt_codec_t *codec, uint64_t step, size_t count)
{
    const size_t part = part_of(count, me->n);
    uint8_t     *code = malloc(hkt_codec_bound(codec, part) + 1);
    float       *sum = floats(part), *x = floats(count), *y = floats(part);

    for (size_t begin = 0; begin < count; begin += part) {
        const size_t size  = part < count - begin ? part : count - begin;
        const int    owner = (int)(begin / part);

        for (int r = 0; r <= me->n; r++) { /* the last time: the sum's own rounding */
            const bool         second = r == me->n;
            const hkt_random_t random = hkt_random_at(42, step, (uint32_t)(second ? owner : r), second, 0xC0DE);

            fill_noise(x, seed_of(step, r), count);
            for (size_t i = 0; second && i < size; i++)
                sum[i] /= (float)me->n;
            expect_ok(hkt_codec_encode(code, NULL, second ? sum : x + begin, size,
                                       &(hkt_codec_place_t){random.seed, random.stream, begin}, codec));
            expect_ok(hkt_codec_decode(second ? out + begin : y, code, size, codec));
            for (size_t i = 0; !second && i < size; i++)
                sum[i] = r ? sum[i] + y[i] : y[i];
        }
    }
    free(code);
    free(sum);
    free(x);
    free(y);
}

/* Three calls of a codec; `check`: against what is computed by hand, too. */
static void shots(struct rank *me, const char *name, size_t count, bool check)
{
    float            *in = floats(count), *out = floats(count), *wanted = floats(count);
    hkt_compressor_t *c = made_of(me, name, count, 0);
    hkt_codec_t       codec;

    expect_ok(hkt_codec_parse(&codec, name));
    for (uint64_t step = 0; step < 3; step++) {
        float *result = step == 1 ? in : out; /* step 1: in place */

        doing("%s, %zu elements, step %d", name, count, (int)step);
        fill_noise(in, seed_of(step, me->rank), count);
        expect_ok(hkt_compressor_all_reduce(c, in, result, count, true, NULL));
        same_everywhere(me, result, count, name);
        if (!check)
            continue;
        by_hand(wanted, me, &codec, step, count);
        for (size_t i = 0; i < count; i++)
            expect(result[i] == wanted[i], "element %zu is %g, by hand %g", i, (double)result[i], (double)wanted[i]);
    }
    expect_ok(hkt_compressor_destroy(c));
    free(in);
    free(out);
    free(wanted);
}

static void two_shots(struct rank *me)
{
    static const size_t counts[] = {1, 63, 1000, 20011};

    for (int k = 0; k < CODECS; k++)
        for (int s = 0; s < 4; s++) /* some ranks are enough by hand, as all are the same */
            shots(me, codecs[k], counts[s],
                  k != POWERSGD && strncmp(codecs[k], "terngrad", 8) != 0 && (me->n + s) % 3 == me->rank % 3);
}

/* Proves: an all-reduce is exactly two roundings at every n from 1 to 8, the bits are the same on all ranks, and in
 * place works. */
START_TEST(two_roundings_at_any_n)
{
    world(_i + 1, THREADS, two_shots, NULL);
}
END_TEST

/* Proves: the same between processes. */
START_TEST(two_roundings_between_processes)
{
    world(3, PROCESSES, two_shots, NULL);
}
END_TEST

/* Large enough for pieces, the last of which are short, and chunks that do not reach the last piece. */
static void pieces(struct rank *me)
{
    shots(me, "int8", 1000003, me->rank == 0);
    shots(me, "qsgd", 1000003, me->rank == 0);
    shots(me, "terngrad", 4000003, false);
}

/* Proves: what goes in pieces, beside the wire, has the bits of what goes in one. */
START_TEST(two_roundings_in_pieces)
{
    world(2 + _i, THREADS, pieces, NULL);
}
END_TEST

/* ---- sums, scatter, streams */

static void scattered(struct rank *me)
{
    enum { PART = 1001 };
    const size_t count = (size_t)me->n * PART;
    float       *in = floats(count), *out = floats(PART), *again = floats(PART);

    for (int k = 0; k < CODECS; k++) {
        hkt_compressor_t *c = made_of(me, codecs[k], count, 0), *twin = made_of(me, codecs[k], count, 0);
        double            wrong = 0, size = 0;

        doing("%s", codecs[k]);
        fill_noise(in, seed_of(1, me->rank), count);
        expect_ok(hkt_compressor_reduce_scatter(c, in, out, PART, false, NULL));
        for (size_t i = 0; i < PART; i++) {
            double sum = 0;

            for (int r = 0; r < me->n; r++)
                sum += (double)noise(seed_of(1, r), (size_t)me->rank * PART + i);
            wrong += ((double)out[i] - sum) * ((double)out[i] - sum);
            size += sum * sum;
        }
        expect(wrong <= (k < 4    ? 1e-3
                         : k == 4 ? 0.02
                                  : 3.5 * me->n) *
                            size,
               "the error of %s is %g of %g", codecs[k], wrong, size);
        expect_ok(hkt_compressor_reduce_scatter(twin, in, in + (size_t)me->rank * PART, PART, false, NULL));
        expect(!memcmp(out, in + (size_t)me->rank * PART, PART * sizeof(float)), "%s: in place is different",
               codecs[k]);
        fill_noise(in, seed_of(1, me->rank), count);
        expect_ok(hkt_compressor_reset(twin));
        expect_ok(hkt_compressor_reduce_scatter(twin, in, again, PART, true, NULL));
        for (size_t i = 0; i < PART; i++)
            expect(fabs((double)again[i] * me->n - (double)out[i]) <= 1e-5, "%s: the average of %g is %g", codecs[k],
                   (double)out[i], (double)again[i]);
        expect_ok(hkt_compressor_destroy(c));
        expect_ok(hkt_compressor_destroy(twin));
    }
    free(in);
    free(out);
    free(again);
}

/* Proves: reduce_scatter gives each rank its part of the sum with one rounding of each input; in place and averages are
 * the same. */
START_TEST(reduce_scatter)
{
    world(_i + 1, THREADS, scattered, NULL);
}
END_TEST

static void shares_scalers(struct rank *me)
{
    enum { PART = 3000, TILE = 2048 };
    const size_t      count = (size_t)me->n * PART;
    float            *in = floats(count), *out = floats(PART);
    hkt_compressor_t *c = made_of(me, "terngrad:clip=0", count, 0);

    for (size_t i = 0; i < count; i++)
        in[i] = noise(seed_of(1, me->rank), i) * (float)(1 + me->rank); /* the last rank has the largest */
    expect_ok(hkt_compressor_reduce_scatter(c, in, out, PART, false, NULL));
    for (size_t i = 0; i < PART; i++) {
        double most = 0, steps;

        for (size_t j = i / TILE * TILE; j < PART && j < (i / TILE + 1) * TILE; j++)
            for (int r = 0; r < me->n; r++)
                most = fmax(most, fabs((double)(noise(seed_of(1, r), (size_t)me->rank * PART + j) * (float)(1 + r))));
        steps = (double)out[i] / most;
        expect(fabs(steps - round(steps)) < 1e-5 && fabs(steps) <= me->n,
               "element %zu is %g, %g of the scaler of all ranks", i, (double)out[i], steps);
    }
    expect_ok(hkt_compressor_destroy(c));
    free(in);
    free(out);
}

/* Proves: TernGrad's ranks use one scaler per tile, the largest of all, so that a sum is a small integer of it. */
START_TEST(R82_scalers_are_shared)
{
    world(3, THREADS, shares_scalers, NULL);
}
END_TEST

static void streamed(struct rank *me)
{
    enum { COUNT = 5000, CALLS = 6 };
    float        *in = floats(CALLS * COUNT), *out = floats(CALLS * COUNT), *wanted = floats(CALLS * COUNT);
    hkt_stream_t *stream;

    expect_ok(hkt_stream_create(&stream));
    fill_noise(in, seed_of(3, me->rank), CALLS * COUNT);
    for (int k = 0; k < CODECS; k++) {
        hkt_compressor_t *c = made_of(me, codecs[k], COUNT, 1), *twin = made_of(me, codecs[k], COUNT, 1);

        for (size_t call = 0; call < CALLS; call++) /* all in flight at once */
            expect_ok(hkt_compressor_all_reduce(c, in + call * COUNT, out + call * COUNT, COUNT, true, stream));
        expect_ok(hkt_stream_synchronize(stream));
        for (size_t call = 0; call < CALLS; call++)
            expect_ok(hkt_compressor_all_reduce(twin, in + call * COUNT, wanted + call * COUNT, COUNT, true, NULL));
        expect(!memcmp(out, wanted, CALLS * COUNT * sizeof(float)), "%s: on a stream the bits are different",
               codecs[k]);
        expect_ok(hkt_compressor_destroy(c));
        expect_ok(hkt_compressor_destroy(twin));
    }
    expect_ok(hkt_stream_destroy(stream));
    free(in);
    free(out);
    free(wanted);
}

/* Proves: calls on a stream run in order, with the same bits, with the feedback handed from call to call. */
START_TEST(on_a_stream)
{
    world(3, THREADS, streamed, NULL);
}
END_TEST

/* ---- feedback */

/* Sums over ranks what feedback the state of a compressor holds: workers' divided by n, the owner's where it belongs.
 */
static void feedback_of(double *left, struct rank *me, hkt_compressor_t *c, size_t count, bool owner)
{
    const size_t part = part_of(count, me->n);
    float       *all  = floats(count);
    size_t       bytes;
    char        *state;

    expect_ok(hkt_compressor_state_size(&bytes, c));
    state = malloc(bytes);
    expect_ok(hkt_compressor_save(state, c));
    const float *worker = (const float *)(const void *)(state + HEAD), *sum = worker + count;

    for (size_t i = 0; i < count; i++)
        all[i] = worker[i] / (float)me->n + (owner && i / part == (size_t)me->rank ? sum[i % part] : 0);
    expect_ok(hkt_all_reduce(all, all, count, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
    for (size_t i = 0; i < count; i++)
        left[i] = (double)all[i];
    free(all);
    free(state);
}

static void telescopes(struct rank *me)
{
    enum { COUNT = 3000, STEPS = 40 };
    static _Thread_local double in[COUNT], out[COUNT], left[COUNT];
    float                      *x = floats(COUNT), *y = floats(COUNT);

    for (int k = 0; k < CODECS; k++) {
        hkt_compressor_t *c = made_of(me, codecs[k], COUNT, 1);

        memset(in, 0, sizeof(in));
        memset(out, 0, sizeof(out));
        for (uint64_t step = 0; step < STEPS; step++) {
            for (int r = 0; r < me->n; r++)
                for (size_t i = 0; i < COUNT; i++)
                    in[i] += (double)noise(seed_of(step, r), i) / me->n;
            fill_noise(x, seed_of(step, me->rank), COUNT);
            expect_ok(hkt_compressor_all_reduce(c, x, y, COUNT, true, NULL));
            for (size_t i = 0; i < COUNT; i++)
                out[i] += (double)y[i];
        }
        feedback_of(left, me, c, COUNT, k != POWERSGD);
        for (size_t i = 0; i < COUNT; i++)
            expect(fabs(out[i] + left[i] - in[i]) < 1e-3, "%s: element %zu: %g came out, %g is left, %g was put in",
                   codecs[k], i, out[i], left[i], in[i]);
        expect_ok(hkt_compressor_destroy(c));
    }
    free(x);
    free(y);
}

/* Proves: over many calls nothing is lost but what the feedback of workers and owners holds: the sums of inputs and
 * results differ by it. */
START_TEST(R80_R83_feedback_telescopes)
{
    world(_i + 1, THREADS, telescopes, NULL);
}
END_TEST

static void saves(struct rank *me)
{
    enum { COUNT = 2500 };
    float *x = floats(COUNT), *y = floats(COUNT), *z = floats(COUNT);

    for (int k = 0; k < CODECS; k++) {
        hkt_compressor_t *c = made_of(me, codecs[k], COUNT, -1), *other = made_of(me, codecs[k], COUNT, -1);
        size_t            bytes;
        char             *state;

        doing("%s", codecs[k]);
        for (uint64_t step = 0; step < 5; step++) {
            fill_noise(x, seed_of(step, me->rank), COUNT);
            expect_ok(hkt_compressor_all_reduce(c, x, y, COUNT, true, NULL));
        }
        expect_ok(hkt_compressor_state_size(&bytes, c));
        state = malloc(bytes);
        expect_ok(hkt_compressor_save(state, c));
        expect_ok(hkt_compressor_load(other, state, bytes));
        for (uint64_t step = 5; step < 8; step++) {
            fill_noise(x, seed_of(step, me->rank), COUNT);
            expect_ok(hkt_compressor_all_reduce(c, x, y, COUNT, true, NULL));
            expect_ok(hkt_compressor_all_reduce(other, x, z, COUNT, true, NULL));
            expect(!memcmp(y, z, COUNT * sizeof(float)), "%s: after loading, step %d is different", codecs[k],
                   (int)step);
        }
        state[HEAD - 100] ^= 1; /* the codec's name */
        expect_code(hkt_compressor_load(other, state, bytes), HKT_ERR_ARGUMENT);
        expect_code(hkt_compressor_load(other, state, 10), HKT_ERR_ARGUMENT);
        free(state);
        expect_ok(hkt_compressor_destroy(c));
        expect_ok(hkt_compressor_destroy(other));
    }
    free(x);
    free(y);
    free(z);
}

/* Proves: a compressor that loads a saved state goes on with the same bits; a state of something else is refused. */
START_TEST(saved_and_restored)
{
    world(3, THREADS, saves, NULL);
}
END_TEST

static void refuses_states(struct rank *me)
{
    hkt_compressor_t *c = made_of(me, "onebit", 1000, 1), *shorter = made_of(me, "onebit", 900, 1),
                     *plain = made_of(me, "onebit", 1000, 0), *block = made_of(me, "onebit:block=64", 1000, 1);
    size_t bytes;
    char  *state;
    float *x = floats(1000), *y = floats(1000), *z = floats(1000);

    expect_ok(hkt_compressor_state_size(&bytes, c));
    state = malloc(bytes);
    expect_ok(hkt_compressor_save(state, c));
    expect_code(hkt_compressor_load(shorter, state, bytes), HKT_ERR_ARGUMENT);
    expect_said("1000 elements");
    expect_code(hkt_compressor_load(plain, state, bytes), HKT_ERR_ARGUMENT);
    expect_said("feedback");
    expect_code(hkt_compressor_load(block, state, bytes), HKT_ERR_ARGUMENT);
    expect_said("block=64");
    expect_code(hkt_compressor_load(c, state, bytes - 4), HKT_ERR_ARGUMENT);
    state[44] = 1; /* the rank */
    expect_code(hkt_compressor_load(c, state, bytes), me->rank == 1 ? HKT_OK : HKT_ERR_ARGUMENT);
    if (me->rank != 1)
        expect_said("hkt_compressor_reset");
    fill_noise(x, seed_of(1, me->rank), 1000);
    expect_ok(hkt_compressor_all_reduce(c, x, y, 1000, true, NULL));
    expect_ok(hkt_compressor_all_reduce(c, x, z, 1000, true, NULL));
    expect_true(memcmp(y, z, 4000) != 0); /* by the feedback */
    expect_ok(hkt_compressor_reset(c));
    expect_ok(hkt_compressor_all_reduce(c, x, z, 1000, true, NULL));
    expect_true(!memcmp(y, z, 4000));
    expect_ok(hkt_compressor_destroy(c));
    expect_ok(hkt_compressor_destroy(shorter));
    expect_ok(hkt_compressor_destroy(plain));
    expect_ok(hkt_compressor_destroy(block));
    free(state);
    free(x);
    free(y);
    free(z);
}

/* Proves: states of another count, codec, rank or kind of feedback are refused by name; reset makes a compressor as
 * new. */
START_TEST(states_of_others)
{
    world(2, THREADS, refuses_states, NULL);
}
END_TEST

/* ---- traffic and memory */

static uint64_t bytes_of(struct rank *me, const char *collective)
{
    hkt_traffic_t t;

    expect_ok(hkt_comm_traffic(me->comm, collective, &t));
    return t.bytes;
}

static void counts_bytes(struct rank *me)
{
    enum { COUNT = 100000, CALLS = 4 };
    const size_t n = (size_t)me->n, part = part_of(COUNT, me->n);
    float       *x = floats(COUNT);

    for (int k = 0; k < POWERSGD; k++) {
        const uint64_t          tiles = !strcmp(codecs[k], "terngrad") ? n * ((part + 2047) / 2048) : 0;
        hkt_ledger_t           *ledger;
        hkt_codec_t             codec;
        hkt_compressor_t       *c;
        hkt_compressor_stats_t  stats;
        hkt_compressor_config_t config = HKT_COMPRESSOR_CONFIG_INIT;
        hkt_ledger_entry_t      entry;

        config.codec = codecs[k];
        expect_ok(hkt_ledger_create(&ledger));
        expect_ok(hkt_codec_parse(&codec, codecs[k]));
        expect_ok(hkt_compressor_create(&c, COUNT, &config, me->comm, ledger));
        const size_t   code = n * hkt_codec_bound(&codec, part);
        const uint64_t all = bytes_of(me, NULL), exchanged = bytes_of(me, "all_to_all"),
                       gathered = bytes_of(me, "all_gather");
        hkt_codec_info_t info   = {0};

        for (int i = 0; hkt_codec_list(&info, i) == HKT_OK && strncmp(info.name, codecs[k], strlen(info.name)) != 0;
             i++)
            ;
        const size_t feedback = info.feedback ? 4 * (COUNT + part) : 0;

        expect_ok(hkt_ledger_read(&entry, HKT_BYTES_COMMUNICATION, ledger));
        expect(entry.now == 2 * code + feedback + 4 * (1 + tiles), "%s takes %zu bytes, by formula %zu", codecs[k],
               entry.now, 2 * code + feedback + 4 * (1 + (size_t)tiles));
        expect_ok(hkt_ledger_reset_peaks(ledger));
        for (int call = 0; call < CALLS; call++)
            expect_ok(hkt_compressor_all_reduce(c, x, x, COUNT, true, NULL));
        expect_true(bytes_of(me, "all_to_all") - exchanged == CALLS * code &&
                    bytes_of(me, "all_gather") - gathered == CALLS * code);
        expect(bytes_of(me, NULL) - all == CALLS * (2 * code + 4 * (1 + tiles)), "%s: %llu bytes in all", codecs[k],
               (unsigned long long)(bytes_of(me, NULL) - all));
        for (hkt_bytes_t kind = 0; kind < HKT_BYTES_CLASSES; kind++) {
            expect_ok(hkt_ledger_read(&entry, kind, ledger));
            expect(entry.takes == 0, "%s takes memory in a call", codecs[k]);
        }
        expect_ok(hkt_compressor_stats(&stats, c));
        expect_true(stats.calls == CALLS && stats.code_bytes == code &&
                    fabs(stats.ratio - 4.0 * COUNT / (double)code) < 1e-9);
        expect_ok(hkt_compressor_destroy(c));
        expect_ok(hkt_ledger_destroy(ledger));
    }
    free(x);
}

/* Proves: bytes on the wire and in memory are those of the formulas in the header, and calls take no memory. */
START_TEST(R79_bytes_by_formula)
{
    world(_i ? 4 : 1, THREADS, counts_bytes, NULL);
}
END_TEST

/* ---- what is not finite, and mistakes */

static void faults(struct rank *me)
{
    enum { COUNT = 5000 };
    float *x = floats(COUNT), *y = floats(COUNT), *z = floats(COUNT);

    for (int k = 0; k < CODECS; k++)
        for (int scatter = 0; scatter < 2; scatter++) {
            hkt_compressor_t *c          = made_of(me, codecs[k], (size_t)(COUNT - COUNT % me->n), 1),
                             *twin       = made_of(me, codecs[k], (size_t)(COUNT - COUNT % me->n), 1);
            const size_t           count = (size_t)(COUNT - COUNT % me->n);
            hkt_compressor_stats_t stats;

            fill_noise(x, seed_of(1, me->rank), count);
            expect_ok(hkt_compressor_all_reduce(c, x, y, count, true, NULL));
            expect_ok(hkt_compressor_all_reduce(twin, x, y, count, true, NULL));
            expect(!*hkt_compressor_fault(c), "%s", hkt_compressor_fault(c));
            if (me->rank == me->n - 1) {
                x[1234] = -INFINITY;
                x[4000] = NAN;
            }
            if (scatter)
                expect_ok(hkt_compressor_reduce_scatter(c, x, y, count / (size_t)me->n, true, NULL));
            else
                expect_ok(hkt_compressor_all_reduce(c, x, y, count, true, NULL));
            for (size_t i = 0; i < (scatter ? count / (size_t)me->n : count); i++)
                expect(isnan(y[i]), "%s: element %zu is %g beside a fault", codecs[k], i, (double)y[i]);
            char wanted[64];

            snprintf(wanted, sizeof(wanted), "element 1234 of rank %d is -infinity", me->n - 1);
            expect(strstr(hkt_compressor_fault(c), wanted), "%s: '%s'", codecs[k], hkt_compressor_fault(c));
            expect_ok(hkt_compressor_stats(&stats, c));
            expect_true(stats.faults == 1 && stats.calls == 1);
            fill_noise(x, seed_of(2, me->rank), count); /* and on, as if nothing had been */
            expect_ok(hkt_compressor_all_reduce(c, x, y, count, true, NULL));
            expect_ok(hkt_compressor_all_reduce(twin, x, z, count, true, NULL));
            expect(!memcmp(y, z, count * sizeof(float)), "%s: a fault has left something behind", codecs[k]);
            expect_ok(hkt_compressor_destroy(c));
            expect_ok(hkt_compressor_destroy(twin));
        }
    free(x);
    free(y);
    free(z);
}

/* Proves: a NaN or infinity on one rank makes the result NaN on all, is named by rank and element, and does not touch
 * the state. */
START_TEST(not_finite_is_named)
{
    world(_i ? 3 : 1, THREADS, faults, NULL);
}
END_TEST

static void mistakes(struct rank *me)
{
    const hkt_codec_shape_t matrices[] = {{10, 10}, {(size_t)1 << 40, (size_t)1 << 40}};
    hkt_compressor_config_t config     = HKT_COMPRESSOR_CONFIG_INIT;
    hkt_compressor_t       *c          = (void *)me;
    float                   x[128]     = {0};

    config.codec = "int9";
    expect_code(hkt_compressor_create(&c, 100, &config, me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_said("int8");
    config.codec = me->rank ? "int8" : "int4";
    expect_code(hkt_compressor_create(&c, 100, &config, me->comm, NULL), HKT_ERR_MISMATCH);
    config.codec = me->rank ? "int8" : "none";
    expect_code(hkt_compressor_create(&c, 100, &config, me->comm, NULL),
                me->rank ? HKT_ERR_MISMATCH : HKT_ERR_ARGUMENT);
    config.codec = "int8";
    expect_code(hkt_compressor_create(&c, 100 + (size_t)me->rank, &config, me->comm, NULL), HKT_ERR_MISMATCH);
    config.codec        = "powersgd";
    config.matrices     = matrices;
    config.matrix_count = 1;
    expect_code(hkt_compressor_create(&c, 101, &config, me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_said("100 elements");
    config.matrix_count = 2;
    expect_code(hkt_compressor_create(&c, 101, &config, me->comm, NULL), HKT_ERR_ARGUMENT);
    config.size = 0;
    expect_code(hkt_compressor_create(&c, 101, &config, me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_true(c == (void *)me);

    c = made_of(me, "int8", 100, -1);
    expect_code(hkt_compressor_all_reduce(c, x, x, 99, true, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_compressor_all_reduce(c, x, x + 1, 100, true, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_compressor_all_reduce(c, NULL, x, 100, true, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_compressor_reduce_scatter(c, x, x, 100, true, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_compressor_all_reduce(NULL, x, x, 100, true, NULL), HKT_ERR_ARGUMENT);
    expect_ok(hkt_compressor_destroy(c));
    expect_ok(hkt_compressor_destroy(NULL));
    c = made_of(me, "onebit", 0, -1);
    expect_ok(hkt_compressor_all_reduce(c, NULL, NULL, 0, true, NULL));
    expect_ok(hkt_compressor_destroy(c));
}

/* Proves: wrong arguments are refused in words, nobody is left waiting when ranks differ, and nothing is a valid
 * vector. */
START_TEST(mistakes_are_said)
{
    world(2, THREADS, mistakes, NULL);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, two_roundings_at_any_n, 8, 30);
    ADD(s, two_roundings_between_processes, 1, 30);
    ADD(s, two_roundings_in_pieces, 2, 30);
    ADD(s, reduce_scatter, 4, 30);
    ADD(s, R82_scalers_are_shared, 1, 30);
    ADD(s, on_a_stream, 1, 30);
    ADD(s, R80_R83_feedback_telescopes, 4, 30);
    ADD(s, saved_and_restored, 1, 30);
    ADD(s, states_of_others, 1, 30);
    ADD(s, R79_bytes_by_formula, 2, 30);
    ADD(s, not_finite_is_named, 2, 30);
    ADD(s, mistakes_are_said, 1, 30);
}

int main(void)
{
    return run_suite("codec_reduce", add);
}
