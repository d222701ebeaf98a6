/* test_indexed.c -- token data: Megatron's files bit for bit, merged, and bad ones refused. */
#include "token_files.h"

#include <hocket.h>
#include <string.h>

/* Proves: the files of {[1,2,3],[4,5]} in two documents are Megatron-LM's, byte for byte (82 and 10 bytes). */
START_TEST(golden_bytes)
{
    static const unsigned char idx[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 0,
        0,   0,   3,   0,   0,   0,   0,   0, 0, 0,                                           /* header */
        3,   0,   0,   0,   2,   0,   0,   0,                                                 /* lengths */
        0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0,                         /* starts */
        0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, /* documents */
    };
    static const unsigned char bin[]    = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0};
    const int32_t              tokens[] = {1, 2, 3, 4, 5};
    struct indexed_writer     *w;
    struct indexed            *x;
    unsigned char              got[200];
    char                       prefix[300];
    int32_t                    back[3];

    folder_make();
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "a"), token_code_for(50257)), 0);
    ck_assert_int_eq(indexed_add(w, tokens, 3), 0);
    ck_assert_int_eq(indexed_end_document(w), 0);
    ck_assert_int_eq(indexed_add(w, tokens + 3, 2), 0);
    ck_assert_int_eq(indexed_end_document(w), 0);
    ck_assert_int_eq(indexed_finish(w), 0);
    ck_assert(slurp(got, sizeof(got), "a.idx") == 82 && sizeof(idx) == 82 && memcmp(got, idx, 82) == 0);
    ck_assert(slurp(got, sizeof(got), "a.bin") == 10 && memcmp(got, bin, 10) == 0);
    ck_assert_int_eq(entries_with(folder, ""), 2);

    ck_assert_int_eq(indexed_open(&x, prefix), 0);
    ck_assert(indexed_sequences(x) == 2 && indexed_documents(x) == 2 && indexed_tokens(x) == 5 && indexed_document(x, 2) == 2);
    indexed_get(back, x, 1, 0, 2);
    ck_assert(back[0] == 4 && back[1] == 5);
    indexed_close(x);
    folder_remove();
}
END_TEST

static void round_trip(int code, int32_t least, int32_t most)
{
    const int32_t tokens[] = {least, 0, 1, most}, over[] = {most == INT32_MAX ? 0 : most + 1},
                  under[] = {least - (least > INT32_MIN)};
    struct indexed_writer *w;
    struct indexed        *x;
    int32_t                back[4];
    char                   prefix[300];

    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, token_name(code)), code), 0);
    ck_assert_int_eq(indexed_add(w, tokens, 4), 0);
    ck_assert_int_eq(indexed_add(w, NULL, 0), 0);
    if (most < INT32_MAX) {
        ck_assert_int_eq(indexed_add(w, over, 1), HKT_ERR_ARGUMENT);
        ck_assert_int_eq(indexed_add(w, under, 1), HKT_ERR_ARGUMENT);
        ck_assert(strstr(hkt_last_error(), "not in the range of"));
    }
    ck_assert_int_eq(indexed_finish(w), 0);
    ck_assert_msg(indexed_open(&x, prefix) == 0, "%s", hkt_last_error());
    ck_assert(indexed_sequences(x) == 2 && indexed_length(x, 1) == 0 && indexed_code(x) == code && indexed_documents(x) == 1);
    indexed_get(back, x, 0, 0, 4);
    ck_assert(memcmp(back, tokens, sizeof(back)) == 0);
    indexed_close(x);
}

/* Proves: every integer type keeps its extreme tokens and refuses what it cannot hold; float types are no tokens. */
START_TEST(types_of_tokens)
{
    struct indexed_writer *w;
    char                   prefix[300];

    folder_make();
    round_trip(TOKEN_U8, 0, UINT8_MAX);
    round_trip(TOKEN_I8, INT8_MIN, INT8_MAX);
    round_trip(TOKEN_I16, INT16_MIN, INT16_MAX);
    round_trip(TOKEN_U16, 0, UINT16_MAX);
    round_trip(TOKEN_I32, INT32_MIN, INT32_MAX);
    round_trip(TOKEN_I64, INT32_MIN, INT32_MAX);
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "f"), TOKEN_F32), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "f"), 9), HKT_ERR_ARGUMENT);
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "no/such/folder"), TOKEN_U8), HKT_ERR_SYSTEM);
    ck_assert(token_code_for(65499) == TOKEN_U16 && token_code_for(65500) == TOKEN_I32);
    folder_remove();
}
END_TEST

/* Proves: merging is concatenation, with rebased sequences and documents; other types are refused. */
START_TEST(merging)
{
    const size_t           one[] = {3, 0, 5}, two[] = {2, 4};
    struct indexed        *a, *b, *both, *other;
    struct indexed_writer *w;
    char                   prefix[300];
    int32_t                tokens[8];

    folder_make();
    a = make("a", one, 3);
    b = make("b", two, 2);
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "both"), TOKEN_U16), 0);
    ck_assert_int_eq(indexed_append(w, a), 0);
    ck_assert_int_eq(indexed_append(w, b), 0);
    ck_assert_int_eq(indexed_finish(w), 0);
    ck_assert_int_eq(indexed_open(&both, prefix), 0);
    ck_assert(indexed_documents(both) == 5 && indexed_tokens(both) == 14 && indexed_document(both, 4) == 4);
    indexed_get(tokens, both, 4, 0, 4);
    ck_assert(tokens[0] == 3 && tokens[3] == 6);
    ck_assert_int_eq(indexed_create(&w, in_folder(prefix, "other"), TOKEN_I32), 0);
    ck_assert_int_eq(indexed_append(w, a), HKT_ERR_ARGUMENT);
    indexed_abandon(w);
    ck_assert_int_eq(entries_with(folder, "other"), 0);
    ck_assert_int_eq(indexed_open(&other, prefix), HKT_ERR_SYSTEM);
    indexed_close(a);
    indexed_close(b);
    indexed_close(both);
    folder_remove();
}
END_TEST

/* Proves: a cut off or changed file never crashes a reader: every length of both files is refused by name, and of all changed
 * bytes of the index those that are not refused leave every token readable. */
START_TEST(bad_files)
{
    const size_t    lengths[] = {3, 0, 5, 7};
    unsigned char   idx[400], bin[100];
    char            prefix[300];
    struct indexed *x = make((folder_make(), "a"), lengths, 4);
    size_t          n, m;
    int             accepted = 0;

    indexed_close(x);
    n = slurp(idx, sizeof(idx), "a.idx");
    m = slurp(bin, sizeof(bin), "a.bin");
    in_folder(prefix, "a");
    for (size_t size = 0; size < n; size++) {
        spill(idx, size, "a.idx");
        ck_assert_int_eq(indexed_open(&x, prefix), HKT_ERR_ARGUMENT);
        ck_assert_msg(strstr(hkt_last_error(), "a.idx"), "%s", hkt_last_error());
    }
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            int32_t tokens[16];

            idx[at] ^= (unsigned char)(1 << bit);
            spill(idx, n, "a.idx");
            if (indexed_open(&x, prefix) == 0) {
                for (size_t s = 0; s < indexed_sequences(x) && indexed_code(x) != TOKEN_F32; s++)
                    indexed_get(tokens, x, s, 0, indexed_length(x, s));
                indexed_close(x);
                accepted++;
            }
            idx[at] ^= (unsigned char)(1 << bit);
        }
    ck_assert_msg(accepted < 20, "%d of %zu changed bits were not seen", accepted, n * 8);
    spill(idx, n, "a.idx");
    for (size_t size = 0; size < m; size++) {
        spill(bin, size, "a.bin");
        ck_assert_int_eq(indexed_open(&x, prefix), HKT_ERR_ARGUMENT);
        ck_assert_msg(strstr(hkt_last_error(), "a.bin has"), "%s", hkt_last_error());
    }
    folder_remove();
}
END_TEST

/* Proves: a token that the vocabulary does not have is named with its sequence and place. */
START_TEST(wrong_vocabulary)
{
    const size_t    lengths[] = {3, 1500, 20};
    struct indexed *x = make((folder_make(), "a"), lengths, 3); /* tokens 1 to 1000 */

    ck_assert_int_eq(indexed_check(x, 1001), 0);
    ck_assert_int_eq(indexed_check(x, 1000), HKT_ERR_ARGUMENT);
    ck_assert_msg(strstr(hkt_last_error(), "token 996 of sequence 1 is 1000"), "%s", hkt_last_error());
    indexed_close(x);
    folder_remove();
}
END_TEST

static void add(Suite *s)
{
    ADD(s, golden_bytes, 1, 10);
    ADD(s, types_of_tokens, 1, 10);
    ADD(s, merging, 1, 10);
    ADD(s, bad_files, 1, 20);
    ADD(s, wrong_vocabulary, 1, 10);
}

int main(void)
{
    return run_suite("indexed", add);
}
