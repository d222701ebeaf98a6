/* tokenizer_split.c -- GPT-2's rule for words, see tokenizer.h, without a machine for regular expressions: the
 * alternatives are tried in their order, and each is one run of characters of a kind.
 */
#include "tokenizer_parts.h"
#include "tokenizer_unicode.h"

#include <string.h>

enum kind { LETTER, NUMBER, SPACE, OTHER };

static bool within(const struct range *ranges, size_t count, uint32_t c)
{
    size_t low = 0, high = count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= c;
}

#define WITHIN(ranges, c) within(ranges, sizeof(ranges) / sizeof((ranges)[0]), c)

/* The character at text[bytes], 1 byte for what is no UTF-8 (then -1). */
static int64_t decode(const unsigned char *text, size_t bytes, size_t *length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t          n       = text[0] < 0x80   ? 1
                                    : text[0] < 0xC2 ? 0
                                    : text[0] < 0xE0 ? 2
                                    : text[0] < 0xF0 ? 3
                                    : text[0] < 0xF5 ? 4
                                                     : 0;
    uint32_t              c       = n > 1 ? text[0] & (0x7Fu >> n) : text[0];

    *length = 1;
    if (n == 0 || n > bytes)
        return -1;
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return -1;
        c = c << 6 | (text[i] & 0x3F);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return -1;
    *length = n;
    return c;
}

static enum kind kind_at(const char *text, size_t bytes, size_t *length)
{
    const unsigned char *at = (const unsigned char *)text;
    int64_t              c;

    *length = 1;
    if (*at < 0x80) { /* most of them */
        if ((*at | 32) >= 'a' && (*at | 32) <= 'z')
            return LETTER;
        return *at >= '0' && *at <= '9' ? NUMBER : *at == ' ' || (*at >= 9 && *at <= 13) ? SPACE : OTHER;
    }
    c = decode(at, bytes, length);
    if (c < 0)
        return OTHER;
    if (WITHIN(letters, (uint32_t)c))
        return LETTER;
    return WITHIN(numbers, (uint32_t)c) ? NUMBER : WITHIN(spaces, (uint32_t)c) ? SPACE : OTHER;
}

static size_t contraction(const char *text, size_t bytes)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const size_t n = strlen(endings[i]);

        if (n <= bytes && memcmp(text, endings[i], n) == 0)
            return n;
    }
    return 0;
}

/* Bytes of the run of this kind; *last: of its last character. */
static size_t run_of(enum kind kind, const char *text, size_t bytes, size_t *last)
{
    size_t n = 0, length;

    *last = 0;
    while (n < bytes && kind_at(text + n, bytes - n, &length) == kind) {
        n += length;
        *last = length;
    }
    return n;
}

size_t word_length(const char *text, size_t bytes)
{
    const size_t shortened = contraction(text, bytes);
    const size_t lead      = text[0] == ' ' && bytes > 1;
    size_t       length, run;
    enum kind    kind = kind_at(text + lead, bytes - lead, &length);

    if (shortened)
        return shortened;
    if (kind != SPACE)
        return lead + run_of(kind, text + lead, bytes - lead, &length);
    run = run_of(SPACE, text, bytes, &length);
    return run == bytes || run == length ? run : run - length; /* the last one goes with what follows */
}
