/* test_tokenizer.c -- byte-level BPE against golden values of two reference implementations, exact round trips of any bytes,
 * files that are wrong.
 */
#include "harness.h"

#include "json.h"
#include "tokenizer.h"
#include "tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char corpus[] = "She sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure.\n"
                             "If a dog chews shoes, whose shoes does he choose? Whose shoes, whose shoes, whose shoes?\n"
                             "Numbers: 1000, 2000, 3000 and 10000; caf\u00e9 caf\u00e9 caf\u00e9.\n";

static char folder[200], vocabulary[300], merges[300];

static struct tokenizer *trained(size_t size)
{
    struct tokenizer *t;

    ck_assert_msg(tokenizer_train(&t, corpus, sizeof(corpus) - 1, size) == 0, "%s", hkt_last_error());
    return t;
}

static void setup(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/hocket-tokenizer-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(vocabulary, sizeof(vocabulary), "%s/vocab.json", folder);
    snprintf(merges, sizeof(merges), "%s/merges.txt", folder);
}

static void clean(void)
{
    unlink(vocabulary);
    unlink(merges);
    ck_assert_int_eq(rmdir(folder), 0);
}

static size_t slurp(char *data, size_t room, const char *path)
{
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(data, 1, room, f) : 0;

    ck_assert_msg(f, "%s", path);
    fclose(f);
    return n;
}

static void spill(const char *data, size_t size, const char *path)
{
    FILE *f = fopen(path, "wb");

    ck_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* ---- words */

/* Proves: words are cut as the regular expression of GPT-2 cuts them; lengths in bytes as the module `regex` of Python gives
 * them. */
START_TEST(words_are_gpt2s)
{
    static const struct {
        const char *text;
        size_t      word[16];
    } golden[] = {
        {"don't  we'll 'sx ''s I'D", {3, 2, 1, 3, 3, 2, 2, 3, 1, 2, 1, 1}},
        {"a  b \n c\n", {1, 1, 2, 2, 2, 1}},
        {"x\u00a0 y\u2003\u2003z", {1, 2, 2, 3, 3, 1}},
        {"\u0301e\u0301 \u00bd\u0663\u2167 \u4e2d\u6587!?\U0001f600", {2, 1, 2, 8, 7, 6}},
        {"   ", {3}},
        {" a1b2_c3 --x", {2, 1, 1, 1, 1, 1, 1, 3, 1}},
        {"\t\tif (x){\n", {1, 1, 2, 2, 1, 2, 1}},
        {"a\xff\xfe b\xc3", {1, 2, 2, 1}}, /* no UTF-8: of the kind that is neither letter, number nor space */
        {" ", {1}},
    };

    for (size_t g = 0; g < sizeof(golden) / sizeof(golden[0]); g++) {
        const char *at = golden[g].text, *end = at + strlen(at);

        for (size_t w = 0; at < end; w++) {
            const size_t n = word_length(at, (size_t)(end - at));

            ck_assert_msg(n == golden[g].word[w], "'%s': word %zu has %zu bytes and not %zu", golden[g].text, w, n,
                          golden[g].word[w]);
            at += n;
        }
    }
}
END_TEST

/* ---- merges */

/* Proves: training gives the merges, and encoding the tokens, that the library `tokenizers` gives for the same text. */
START_TEST(training_and_encoding_are_the_reference)
{
    static const char *const golden_merges[] = {"Ġ s",     "h o",  "0 0",     "h e",     "e s",   "Ġs ho", "l l",    "s e",
                                                "Ġ c",     "Ġs e", "Ġsho es", "ll s",    "Ġs he", "ho se", "a f",    "r e",
                                                "w hose",  "Ã ©",  "Ġ a",     "Ġ whose", "00 0",  "Ġc af", "Ġse a",  "Ġshe lls",
                                                "Ġcaf Ã©", "d o",  "t he",    "Ġ 1",     "Ġ do",  "Ġ the", "Ġse lls"};
    enum { MERGES = sizeof(golden_merges) / sizeof(golden_merges[0]) };
    static const struct {
        const char *text;
        size_t      count;
        int32_t     token[16];
    } golden[] = {
        {"She chews shells", 7, {50, 259, 264, 259, 86, 82, 279}},
        {"whose sea?", 3, {272, 278, 30}},
        {"caf\u00e9 1000000",
         7,
         {66, 270, 273, 283, 258, 258, 258}}, /* the word is " 1000000": " 1" first, then pairs from the left */
        {"I'm sure  she's\n\n", 12, {40, 6, 76, 256, 84, 271, 220, 268, 6, 82, 198, 198}},
        {"\U0001f600\u4e2d", 7, {172, 253, 246, 222, 160, 116, 255}},
    };
    struct tokenizer *t = trained(400), *loaded;
    char              text[4000], expected[4000] = "#version: 0.2\n";
    int32_t          *tokens;
    size_t            count;

    setup();
    ck_assert_uint_eq(tokenizer_size(t), 256 + MERGES + 1); /* no more pair occurs twice */
    ck_assert_int_eq(tokenizer_end(t), 256 + MERGES);
    ck_assert_msg(tokenizer_save(t, folder) == 0, "%s", hkt_last_error());
    text[slurp(text, sizeof(text) - 1, merges)] = 0;
    for (size_t i = 0; i < MERGES; i++)
        strcat(strcat(expected, golden_merges[i]), "\n");
    ck_assert_str_eq(text, expected);

    ck_assert_msg(tokenizer_load(&loaded, vocabulary, merges) == 0, "%s", hkt_last_error());
    ck_assert(tokenizer_size(loaded) == tokenizer_size(t) && tokenizer_end(loaded) == tokenizer_end(t));
    for (size_t g = 0; g < sizeof(golden) / sizeof(golden[0]); g++)
        for (int which = 0; which < 2; which++) {
            ck_assert_int_eq(tokenizer_encode(&tokens, &count, which ? loaded : t, golden[g].text, strlen(golden[g].text)), 0);
            ck_assert_msg(count == golden[g].count && memcmp(tokens, golden[g].token, count * sizeof(*tokens)) == 0,
                          "'%s': %zu tokens", golden[g].text, count);
            free(tokens);
        }
    tokenizer_free(t);
    tokenizer_free(loaded);
    clean();
}
END_TEST

/* Proves: the first 256 tokens are GPT-2's: '!' is 0, 'a' 64, a space 220 (Ġ), a line feed 198 (Ċ), byte 255 is 187, byte 173 is
 * 255. */
START_TEST(bytes_have_gpt2s_numbers)
{
    static const struct {
        unsigned char byte;
        int32_t       token;
    } golden[]          = {{'!', 0}, {'a', 64}, {' ', 220}, {'\n', 198}, {255, 187}, {173, 255}, {0, 188}, {0xA1, 94}};
    struct tokenizer *t = trained(257);

    ck_assert_uint_eq(tokenizer_size(t), 257);
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        size_t      n;
        const char *token = tokenizer_token(t, golden[i].token, &n);

        ck_assert_msg(n == 1 && (unsigned char)*token == golden[i].byte, "token %d is byte %d", golden[i].token,
                      (unsigned char)*token);
    }
    tokenizer_free(t);
}
END_TEST

static void round_trip(const struct tokenizer *t, const char *text, size_t bytes)
{
    int32_t *tokens;
    char    *back;
    size_t   count, n;

    ck_assert_int_eq(tokenizer_encode(&tokens, &count, t, text, bytes), 0);
    ck_assert_uint_le(count, bytes);
    ck_assert_int_eq(tokenizer_decode(&back, &n, t, tokens, count), 0);
    ck_assert(n == bytes && memcmp(text, back, n) == 0);
    free(tokens);
    free(back);
}

/* Proves: any bytes come back exactly, by both kinds of tokenizers: random bytes, random pieces of words, nothing, every byte
 * alone. */
START_TEST(any_bytes_come_back)
{
    static char       text[5000];
    struct tokenizer *both[2] = {trained(290)};

    ck_assert_int_eq(tokenizer_bytes(&both[1]), 0);
    for (int which = 0; which < 2; which++) {
        round_trip(both[which], "", 0);
        for (int b = 0; b < 256; b++) {
            text[0] = (char)b;
            round_trip(both[which], text, 1);
        }
        for (uint64_t turn = 0; turn < 60; turn++) {
            for (size_t i = 0; i < sizeof(text); i++)
                text[i] = turn % 2 ? (char)mix(turn << 32 | i) : corpus[mix(turn << 32 | i / 3) % (sizeof(corpus) - 4) + i % 3];
            round_trip(both[which], text, sizeof(text) - (size_t)turn);
        }
        tokenizer_free(both[which]);
    }
}
END_TEST

/* Proves: a word of 2 million equal letters is merged in little time (n log n, not n squared). */
START_TEST(long_words)
{
    enum { N = 2000000 };
    char             *text = malloc(N);
    struct tokenizer *t;
    int32_t          *tokens;
    size_t            count;
    const double      begin = now();

    memset(text, 'a', N);
    ck_assert_int_eq(tokenizer_train(&t, text, N, 270), 0);
    ck_assert_int_eq(tokenizer_encode(&tokens, &count, t, text, N), 0);
    ck_assert_uint_lt(count, N / 2000);
    round_trip(t, text, N);
    ck_assert_msg(now() - begin < 30, "it took %g s", now() - begin);
    free(tokens);
    free(text);
    tokenizer_free(t);
}
END_TEST

/* Proves: a token that the vocabulary does not have is refused by number and place; the end token decodes to its text. */
START_TEST(decoding_wrong_tokens)
{
    struct tokenizer *t        = trained(290);
    int32_t           tokens[] = {64, 0, 290};
    char             *text;
    size_t            bytes;

    ck_assert_int_eq(tokenizer_decode(&text, &bytes, t, tokens, 3), HKT_ERR_ARGUMENT);
    ck_assert_msg(strstr(hkt_last_error(), "token 290 at place 2"), "%s", hkt_last_error());
    tokens[2] = -1;
    ck_assert_int_eq(tokenizer_decode(&text, &bytes, t, tokens, 3), HKT_ERR_ARGUMENT);
    tokens[2] = tokenizer_end(t);
    ck_assert_int_eq(tokenizer_decode(&text, &bytes, t, tokens, 3), 0);
    ck_assert_str_eq(text, "a!<|endoftext|>");
    free(text);
    ck_assert_int_eq(tokenizer_train(&t, corpus, 10, 256), HKT_ERR_ARGUMENT);
    tokenizer_free(t);
}
END_TEST

/* ---- files */

/* Proves: a vocabulary or merges cut off anywhere or with any byte changed are refused by file and place, or are still a
 * tokenizer. */
START_TEST(bad_files)
{
    static char       words[20000], lines[4000];
    struct tokenizer *t = trained(290);
    size_t            n, m;
    int               refused = 0;

    setup();
    ck_assert_int_eq(tokenizer_save(t, folder), 0);
    tokenizer_free(t);
    n = slurp(words, sizeof(words), vocabulary);
    m = slurp(lines, sizeof(lines), merges);
    for (size_t size = 0; size + 2 < n; size += 7) {
        spill(words, size, vocabulary);
        ck_assert_int_eq(tokenizer_load(&t, vocabulary, merges), HKT_ERR_ARGUMENT);
        ck_assert_msg(strstr(hkt_last_error(), "vocab.json"), "%s", hkt_last_error());
    }
    for (uint64_t turn = 0; turn < 2000; turn++) {
        const bool   in_words = turn % 2;
        const size_t at       = mix(turn) % (in_words ? n : m);
        char        *byte = in_words ? &words[at] : &lines[at], was = *byte;

        *byte = (char)mix(turn + 5000);
        spill(words, n, vocabulary);
        spill(lines, m, merges);
        *byte = was;
        if (tokenizer_load(&t, vocabulary, merges) == 0) {
            round_trip(t, corpus, sizeof(corpus) - 1);
            tokenizer_free(t);
        } else {
            refused++;
        }
    }
    ck_assert_msg(refused > 1000, "only %d of 2000 were refused", refused);
    spill(words, n, vocabulary);
    spill("#version: 0.2\nĠ s\nh q\n", 23, merges);
    ck_assert_int_eq(tokenizer_load(&t, vocabulary, merges), HKT_ERR_ARGUMENT);
    ck_assert_msg(strstr(hkt_last_error(), "merges.txt, line 3: a merge whose result"), "%s", hkt_last_error());
    unlink(merges);
    ck_assert_int_eq(tokenizer_load(&t, vocabulary, merges), HKT_ERR_SYSTEM);
    clean();
}
END_TEST

static bool read_json(const char *text)
{
    struct json j = json_text(text, strlen(text));
    char        key[32];
    size_t      length;
    uint64_t    number;

    json_enter(&j, '{');
    while (json_more(&j, '}'))
        if (!json_key(&j, key, sizeof(key), &length) || !(json_peek(&j) == '[' ? json_skip(&j) : json_unsigned(&j, &number)))
            break;
    return json_done(&j);
}

/* Proves: the reader of JSON takes what is right and refuses what is not, escapes and numbers to their limits. */
START_TEST(json_texts)
{
    static const char *const good[] = {"{}", " { } ", "{\"a\":1}", "{\"a\" : 1 , \"b\":[1,{\"c\":\"]\\\"\"}]}",
                                       "{\"\\u00e9\\ud83d\\ude00\\n\":18446744073709551615}"};
    static const char *const bad[]  = {"",
                                       "{",
                                       "}",
                                       "{\"a\":1,}",
                                       "{,}",
                                       "{\"a\"1}",
                                       "{a:1}",
                                       "{\"a\":-1}",
                                       "{\"a\":1.5}",
                                       "{\"a\":1e5}",
                                       "{\"a\":1} x",
                                       "{\"a\":18446744073709551616}",
                                       "{\"\\x\":1}",
                                       "{\"\\ud83d\":1}",
                                       "{\"\\u12\":1}",
                                       "{\"a\n\":1}",
                                       "{\"a\":[}",
                                       "{\"a\":\"",
                                       "{\"a\":1 \"b\":2}",
                                       "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}",
                                       "{\"a"};
    char                     text[20];
    size_t                   length;
    struct json              j = json_text("\"\\u00e9\\ud83d\\ude00\\/\"", 22);

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(read_json(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!read_json(bad[i]), "%s", bad[i]);
    ck_assert(json_string(&j, text, sizeof(text), &length) && length == 7);
    ck_assert_str_eq(text, "\u00e9\U0001f600/");
}
END_TEST

static void add(Suite *s)
{
    ADD(s, words_are_gpt2s, 1, 10);
    ADD(s, training_and_encoding_are_the_reference, 1, 10);
    ADD(s, bytes_have_gpt2s_numbers, 1, 10);
    ADD(s, any_bytes_come_back, 1, 10);
    ADD(s, long_words, 1, 60);
    ADD(s, decoding_wrong_tokens, 1, 10);
    ADD(s, bad_files, 1, 30);
    ADD(s, json_texts, 1, 10);
}

int main(void)
{
    return run_suite("tokenizer", add);
}
