/* test_samples.c -- what is made of token data: windows and epochs against their definition, the shared index under races,
 * splits, blends, samplers, ramps, packing.
 */
#include "token_files.h"

#include "samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- windows */

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Proves for many shapes: the samples of one epoch, put in their order, are the shuffled documents end to end, each beginning
 * with the token before; every document is there once an epoch. */
START_TEST(windows_cover_an_epoch)
{
    const size_t    lengths[] = {7, 1, 30, 0, 12, 5, 0, 41, 3};
    const size_t    total     = 99;
    struct indexed *x         = make((folder_make(), "a"), lengths, 9);

    for (size_t length = 1; length <= 60; length++) {
        const struct samples_description d = {.first = 0, .last = 9, .length = length, .seed = length};
        struct samples                  *s;
        int32_t                          tokens[61], seen[200];
        size_t                           n = 0;

        ck_assert_msg(samples_open(&s, x, &d, NULL) == 0, "%s", hkt_last_error());
        ck_assert_uint_eq(samples_count(s), (total - 1) / length);
        for (uint64_t i = 0; i < samples_count(s); i++) {
            samples_get(tokens, s, i, -1);
            for (size_t k = 0; k < length; k++)
                seen[n++] = tokens[k];
            for (size_t k = 0; k <= length; k++)
                ck_assert_int_gt(tokens[k], 0);
        }
        qsort(seen, n, sizeof(*seen), by_number);
        for (size_t i = 1; i < n; i++)
            ck_assert_msg(seen[i] > seen[i - 1], "token %d comes twice in an epoch", seen[i]);
        samples_close(s);
    }
    indexed_close(x);
    folder_remove();
}
END_TEST

/* Proves: as many epochs as needed and no more; the last one apart when less than 80 % of it is used; a partial sample is padded;
 * the same description gives the same samples, another seed others. */
START_TEST(epochs_and_padding)
{
    const size_t    lengths[] = {10, 20, 30, 40}; /* 100 tokens */
    struct indexed *x         = make((folder_make(), "a"), lengths, 4);
    struct samples *s, *same, *other;
    int32_t         a[11], b[11], c[11], again[101] = {0};
    int             differ = 0;

    for (uint64_t wanted = 1; wanted <= 60; wanted++) {
        const struct samples_description d      = {.last = 4, .length = 10, .wanted = wanted, .seed = 1};
        const uint64_t                   epochs = (wanted * 10 + 1 + 99) / 100;

        ck_assert_int_eq(samples_open(&s, x, &d, NULL), 0);
        ck_assert_msg(samples_epochs(s) == epochs && samples_count(s) == (epochs * 100 - 1) / 10, "%lu samples: %lu epochs, %lu",
                      (unsigned long)wanted, (unsigned long)samples_epochs(s), (unsigned long)samples_count(s));
        samples_close(s);
    }

    const struct samples_description d = {.last = 4, .length = 10, .wanted = 22, .seed = 1},
                                     e = {.last = 4, .length = 10, .wanted = 22, .seed = 9};

    ck_assert(samples_open(&s, x, &d, NULL) == 0 && samples_open(&same, x, &d, NULL) == 0 &&
              samples_open(&other, x, &e, NULL) == 0);
    ck_assert(samples_checksum(s) == samples_checksum(same) && samples_checksum(s) != samples_checksum(other));
    for (uint64_t i = 0; i < samples_count(s); i++) {
        samples_get(a, s, i, -1);
        samples_get(b, same, i, -1);
        samples_get(c, other, i, -1);
        ck_assert(memcmp(a, b, sizeof(a)) == 0);
        differ += memcmp(a, c, sizeof(a)) != 0;
        for (int k = 0; k < 10 && i < 19; k++) /* two epochs first: no token a third time before all came twice */
            ck_assert_int_le(++again[a[k]], 2);
    }
    ck_assert_int_gt(differ, 10);
    samples_close(s);
    samples_close(same);
    samples_close(other);

    const struct samples_description partial = {.last = 4, .length = 60, .keep_partial = true};
    int32_t                          long_one[61], pads = 0;

    ck_assert_int_eq(samples_open(&s, x, &partial, NULL), 0);
    ck_assert_uint_eq(samples_count(s), 2);
    for (uint64_t i = 0; i < 2; i++) {
        samples_get(long_one, s, i, -1);
        for (int k = 0; k < 61; k++)
            pads += long_one[k] == -1;
    }
    ck_assert_int_eq(pads, 121 - 100);
    samples_close(s);
    indexed_close(x);
    folder_remove();
}
END_TEST

/* Proves: what 64 bits do not count is refused, not wrapped; so are too few tokens, documents beyond the end, and length 0. */
START_TEST(large_numbers)
{
    const size_t                     lengths[] = {10, 20};
    struct indexed                  *x         = make((folder_make(), "a"), lengths, 2);
    const struct samples_description too_many  = {.last = 2, .length = 1u << 20, .wanted = 1ull << 60},
                                     none = {.last = 2, .length = 50}, beyond = {.first = 1, .last = 3, .length = 5},
                                     zero = {.last = 2};
    struct samples *s;

    ck_assert_int_eq(samples_open(&s, x, &too_many, NULL), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "2^63"));
    ck_assert_int_eq(samples_open(&s, x, &none, NULL), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "30 tokens, too few"));
    ck_assert_int_eq(samples_open(&s, x, &beyond, NULL), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(samples_open(&s, x, &zero, NULL), HKT_ERR_ARGUMENT);
    indexed_close(x);
    folder_remove();
}
END_TEST

/* ---- the shared index */

static void open_cached(struct rank *me)
{
    char                       prefix[300], cache[300];
    struct indexed            *x;
    struct samples            *s;
    struct samples_description d = {.last = 4, .length = 10, .wanted = 5000, .seed = 3, .cache = cache};
    int32_t                    tokens[11];
    uint64_t                  *sums = me->shared;

    in_folder(cache, me->rank < 2 ? "cache" : me->rank == 2 ? "cache2" : "cache3");
    expect_ok(indexed_open(&x, in_folder(prefix, "a")));
    for (int turn = 0; turn < 10; turn++) {
        d.seed = (uint64_t)(3 + turn);
        rendezvous(me);
        expect_ok(samples_open(&s, x, &d, NULL)); /* two jobs: no communicator */
        samples_get(tokens, s, 17, -1);
        sums[me->rank] = samples_checksum(s);
        rendezvous(me);
        expect(sums[0] == sums[me->rank], "rank %d has another index than rank 0", me->rank);
        samples_close(s);
    }
    expect_ok(samples_open(&s, x, &d, me->comm));
    samples_close(s);
    d.seed = me->rank == 2 ? 77 : 3;
    expect_code(samples_open(&s, x, &d, me->comm), HKT_ERR_MISMATCH);
    expect_said("on rank 2");
    d.seed  = 3;
    d.cache = me->rank == 1 ? "/proc/none" : cache;
    expect_code(samples_open(&s, x, &d, me->comm), HKT_ERR_SYSTEM);
    expect_said(me->rank == 1 ? "/proc/none" : "rank 1 could not");
    indexed_close(x);
}

/* Proves: four processes with three cache folders, started at once, get the same index and write each file once; ranks with other
 * data are told so; a failure on one rank is an error on all. */
START_TEST(T_C11_index_is_built_once)
{
    const size_t lengths[] = {10, 20, 30, 40};

    folder_make();
    indexed_close(make("a", lengths, 4));
    world(4, PROCESSES, open_cached, NULL);
    for (int i = 1; i <= 3; i++) {
        char cache[300];

        in_folder(cache, i == 1 ? "cache" : i == 2 ? "cache2" : "cache3");
        ck_assert_int_eq(entries_with(cache, ".tmp"), 0);
        ck_assert_int_eq(entries_with(cache, ".index.lock"), 10 + (i == 2));
        ck_assert_int_eq(entries_with(cache, ".index"), 2 * (10 + (i == 2)));
    }
    folder_remove();
}
END_TEST

/* Proves: a cached index that is cut off or has a changed byte is made anew, and one that is whole is used as it is. */
START_TEST(T_C11_damaged_index_is_made_anew)
{
    const size_t               lengths[] = {10, 20, 30, 40};
    struct indexed            *x         = make((folder_make(), "a"), lengths, 4);
    char                       cache[300], command[700];
    struct samples_description d = {.last = 4, .length = 10, .seed = 3, .cache = in_folder(cache, "cache")};
    struct samples            *s;
    uint64_t                   right;

    ck_assert_int_eq(samples_open(&s, x, &d, NULL), 0);
    right = samples_checksum(s);
    samples_close(s);
    for (int how = 0; how < 4; how++) {
        static const char *const change[] = {
            "true", "truncate -s 600", "dd if=/dev/urandom bs=1 seek=580 count=8 conv=notrunc status=none of=", "truncate -s 0"};

        snprintf(command, sizeof(command), "set -e; for f in %s/*.index; do %s%s$f; done", cache, change[how],
                 how == 2 ? "" : " ");
        ck_assert_int_eq(system(command), 0);
        ck_assert_msg(samples_open(&s, x, &d, NULL) == 0, "%s", hkt_last_error());
        ck_assert_uint_eq(samples_checksum(s), right);
        samples_close(s);
    }
    indexed_close(x);
    folder_remove();
}
END_TEST

/* ---- splits, blends, samplers, ramps, masks */

/* Proves: Megatron's split of documents, and that nonsense is refused. */
START_TEST(splits)
{
    static const struct {
        const char *split;
        size_t      documents, bound[4];
    } good[] = {
        {"969,30,1", 1000, {0, 969, 999, 1000}}, {"969, 30, 1", 100, {0, 97, 100, 100}}, {"1", 7, {0, 7, 7, 7}},
        {"90,5,5", 41, {0, 37, 39, 41}},         {"0.5,0.5", 5, {0, 2, 5, 5}},           {"0,1,0", 9, {0, 0, 9, 9}},
    };
    static const char *const bad[] = {"", "x", "1,", "1,2,3,4", "-1,2", "0,0,0", "1;2", "nan", "1,,2"};
    size_t                   bound[4];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(split_bounds(bound, good[i].split, good[i].documents), 0);
        ck_assert_msg(memcmp(bound, good[i].bound, sizeof(bound)) == 0, "%s of %zu: %zu %zu %zu", good[i].split,
                      good[i].documents, bound[1], bound[2], bound[3]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(split_bounds(bound, bad[i], 10) == HKT_ERR_ARGUMENT, "'%s' is accepted", bad[i]);
}
END_TEST

/* Proves: the greedy blend: the known beginning for 0.5, 0.3, 0.2; counts never further than one from the weights; numbers count
 * up. */
START_TEST(blends)
{
    enum { N = 10000 };
    static int16_t  set[N];
    static uint64_t number[N];
    const double    weights[] = {5, 3, 2}, none[] = {0, 0}, negative[] = {1, -1};
    const int16_t   begin[]  = {0, 1, 2, 0, 1, 0, 2, 0, 1, 0};
    uint64_t        count[3] = {0};

    ck_assert_int_eq(blend_make(set, number, N, weights, 3), 0);
    for (int i = 0; i < N; i++) {
        if (i < 10)
            ck_assert_msg(set[i] == begin[i], "sample %d is of set %d", i, set[i]);
        ck_assert_uint_eq(number[i], count[set[i]]++);
        for (int d = 0; d < 3; d++)
            ck_assert(fabs(weights[d] / 10 * (i + 1) - (double)count[d]) <= 1);
    }
    ck_assert_int_eq(blend_make(set, number, N, none, 2), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(blend_make(set, number, N, negative, 2), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(blend_make(set, number, N, weights, 0), HKT_ERR_ARGUMENT);
    ck_assert_uint_eq(blend_wanted(0.3, 1000), 302);
}
END_TEST

/* Proves: whatever the ranks and the micro-batch, the samples of a step are the same set, each once, and go on where the last
 * ended. */
START_TEST(sampler_set_is_independent_of_layout)
{
    for (uint64_t consumed = 0; consumed < 96; consumed += 24)
        for (uint64_t ranks = 1; ranks <= 24; ranks++)
            for (uint64_t micro = 1; micro * ranks <= 24; micro++) {
                uint64_t seen = 0;

                if (24 % (micro * ranks))
                    continue;
                for (uint64_t r = 0; r < ranks; r++)
                    for (uint64_t m = 0; m < 24 / (micro * ranks); m++)
                        for (uint64_t b = 0; b < micro; b++) {
                            const struct sampler s = {micro, ranks, r};
                            const uint64_t       i = sampler_index(&s, consumed, m, b) - consumed;

                            ck_assert(i < 24 && !(seen >> i & 1));
                            seen |= 1ull << i;
                        }
                ck_assert_uint_eq(seen, (1u << 24) - 1);
            }
}
END_TEST

/* Proves: the ramp's steps are Megatron's (16 to 64 by 16 over 300 samples: 100 each), and a ramp that no layout can run is
 * refused with what could be. */
START_TEST(batch_ramp)
{
    const struct ramp ramp = {16, 16, 64, 300}, constant = {.global = 64}, odd = {16, 20, 64, 300}, zero = {0, 16, 64, 300};
    const struct {
        uint64_t consumed, batch;
    } golden[] = {{0, 16}, {99, 16}, {100, 32}, {199, 32}, {200, 48}, {299, 48}, {300, 64}, {100000, 64}};

    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
        ck_assert_msg(ramp_batch(&ramp, golden[i].consumed) == golden[i].batch, "batch at %lu",
                      (unsigned long)golden[i].consumed);
    ck_assert_uint_eq(ramp_batch(&constant, 0), 64);
    ck_assert_int_eq(ramp_check(&ramp, 4, 4), 0);
    ck_assert_int_eq(ramp_check(&ramp, 2, 8), 0);
    ck_assert_int_eq(ramp_check(&ramp, 4, 8), HKT_ERR_ARGUMENT);
    ck_assert(strstr(hkt_last_error(), "a batch of 48") && strstr(hkt_last_error(), "32 and 64 would be"));
    ck_assert_int_eq(ramp_check(&constant, 64, 1), 0);
    ck_assert_int_eq(ramp_check(&constant, 3, 1), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(ramp_check(&odd, 1, 1), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(ramp_check(&zero, 1, 1), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(ramp_check(&ramp, 0, 1), HKT_ERR_ARGUMENT);
}
END_TEST

/* Proves: positions, boundaries and weights of a packed sample, by hand; and that each document's predictions are those it would
 * have alone. */
START_TEST(packing_masks)
{
    const int32_t        tokens[] = {5, 6, 9, 7, 9, 9, 8, 4, -1};
    const struct packing reset = {9, -1, true, true, true}, plain = {9, -1, false, false, false};
    int32_t              position[8], begin[8];
    float                weight[8];
    const struct masks   masks = {position, begin, weight}, nothing = {0};
    const int32_t        want_position[] = {0, 1, 2, 0, 1, 0, 0, 1}, want_begin[] = {0, 0, 0, 3, 3, 5, 6, 6};
    const float          want_weight[] = {1, 1, 0, 1, 0, 0, 1, 0};

    ck_assert_uint_eq(pack_masks(&masks, tokens, 8, &reset), 4);
    ck_assert(memcmp(position, want_position, sizeof(position)) == 0 && memcmp(begin, want_begin, sizeof(begin)) == 0 &&
              memcmp(weight, want_weight, sizeof(weight)) == 0);
    ck_assert_uint_eq(pack_masks(&masks, tokens, 8, &plain), 7);
    ck_assert(position[7] == 7 && begin[7] == 0 && weight[2] == 1);
    ck_assert_uint_eq(pack_masks(&nothing, tokens, 8, &reset), 4);
}
END_TEST

/* Proves: a shuffle is a permutation, every place is reached evenly, and its first numbers stay what they are. */
START_TEST(shuffles)
{
    enum { N = 8, TURNS = 40000 };
    static const int golden[N] = {6, 0, 3, 2, 7, 1, 4, 5};
    static int       count[N][N];
    int64_t          x[N];

    for (uint64_t seed = 0; seed < TURNS; seed++) {
        uint64_t seen = 0;

        for (int i = 0; i < N; i++)
            x[i] = i;
        shuffle(x, N, mix(seed));
        for (int i = 0; i < N; i++) {
            seen |= 1ull << x[i];
            count[i][x[i]]++;
        }
        ck_assert_uint_eq(seen, (1u << N) - 1);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            ck_assert_msg(abs(count[i][j] - TURNS / N) < 400, "%d goes to %d %d times", j, i, count[i][j]); /* 6 deviations */
    for (int i = 0; i < N; i++)
        x[i] = i;
    shuffle(x, N, 1234);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(x[i], golden[i]);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, windows_cover_an_epoch, 1, 10);
    ADD(s, epochs_and_padding, 1, 10);
    ADD(s, large_numbers, 1, 10);
    ADD(s, T_C11_index_is_built_once, 1, 30);
    ADD(s, T_C11_damaged_index_is_made_anew, 1, 10);
    ADD(s, splits, 1, 10);
    ADD(s, blends, 1, 10);
    ADD(s, sampler_set_is_independent_of_layout, 1, 10);
    ADD(s, batch_ramp, 1, 10);
    ADD(s, packing_masks, 1, 10);
    ADD(s, shuffles, 1, 10);
}

int main(void)
{
    return run_suite("samples", add);
}
