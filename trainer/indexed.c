/* indexed.c -- reading, see indexed.h; writing is indexed_write.c. The index is 34 bytes of header and arrays behind it
 * that are not aligned, so numbers are loaded by memcpy(), which costs nothing.
 */
#include "indexed.h"

#include "mapping.h"

#include <assert.h>
#include <hocket_train.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 9 + 8 + 1 + 8 + 8 };

static const struct {
    const char *name;
    size_t      size;
} types[] = {[TOKEN_U8] = {"uint8", 1},    [TOKEN_I8] = {"int8", 1},   [TOKEN_I16] = {"int16", 2},
             [TOKEN_I32] = {"int32", 4},   [TOKEN_I64] = {"int64", 8}, [TOKEN_F64] = {"float64", 8},
             [TOKEN_F32] = {"float32", 4}, [TOKEN_U16] = {"uint16", 2}};

struct indexed {
    struct mapping       idx, bin;
    int                  code;
    size_t               sequences, entries;
    const unsigned char *lengths, *starts, *documents;
    uint64_t             tokens, checksum;
    char                 prefix[]; /* for messages */
};

size_t token_size(int code)
{
    return code >= TOKEN_U8 && code <= TOKEN_U16 ? types[code].size : 0;
}

const char *token_name(int code)
{
    return token_size(code) ? types[code].name : "?";
}

int token_code_for(size_t vocabulary)
{
    return vocabulary < 65500 ? TOKEN_U16 : TOKEN_I32;
}

static uint64_t load64(const unsigned char *at)
{
    uint64_t x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static int32_t load32(const unsigned char *at)
{
    int32_t x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static uint64_t start_of(const struct indexed *x, size_t sequence)
{
    return load64(x->starts + 8 * sequence);
}

size_t indexed_sequences(const struct indexed *x)
{
    return x->sequences;
}

size_t indexed_documents(const struct indexed *x)
{
    return x->entries - 1;
}

uint64_t indexed_tokens(const struct indexed *x)
{
    return x->tokens;
}

int indexed_code(const struct indexed *x)
{
    return x->code;
}

size_t indexed_length(const struct indexed *x, size_t sequence)
{
    assert(sequence < x->sequences);
    return (size_t)load32(x->lengths + 4 * sequence);
}

size_t indexed_document(const struct indexed *x, size_t document)
{
    assert(document < x->entries);
    return (size_t)load64(x->documents + 8 * document);
}

uint64_t indexed_checksum(const struct indexed *x)
{
    return x->checksum;
}

const void *indexed_at(const struct indexed *x, size_t sequence)
{
    assert(sequence < x->sequences);
    return x->bin.at + start_of(x, sequence);
}

#define WIDEN(type)                                                                                                    \
    for (size_t i = 0; i < count; i++) {                                                                               \
        type token;                                                                                                    \
        memcpy(&token, at + i * sizeof(token), sizeof(token));                                                         \
        tokens[i] = (int32_t)token;                                                                                    \
    }                                                                                                                  \
    break

void indexed_get(int32_t *tokens, const struct indexed *x, size_t sequence, size_t first, size_t count)
{
    const unsigned char *at = (const unsigned char *)indexed_at(x, sequence) + first * token_size(x->code);

    assert(first <= indexed_length(x, sequence) && count <= indexed_length(x, sequence) - first);
    switch (x->code) {
    case TOKEN_U8:
        WIDEN(uint8_t);
    case TOKEN_I8:
        WIDEN(int8_t);
    case TOKEN_I16:
        WIDEN(int16_t);
    case TOKEN_U16:
        WIDEN(uint16_t);
    case TOKEN_I32:
        memcpy(tokens, at, count * sizeof(*tokens));
        break;
    case TOKEN_I64:
        WIDEN(int64_t);
    default:
        assert(0 && "floats are no tokens");
    }
}

int indexed_check(const struct indexed *x, size_t vocabulary)
{
    enum { AT_ONCE = 1024 };
    int32_t tokens[AT_ONCE];

    if (x->code == TOKEN_F32 || x->code == TOKEN_F64)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s has data of %s, which are no tokens", x->prefix,
                             token_name(x->code));
    for (size_t s = 0; s < x->sequences; s++)
        for (size_t first = 0, n; first < indexed_length(x, s); first += n) {
            n = indexed_length(x, s) - first < AT_ONCE ? indexed_length(x, s) - first : AT_ONCE;
            indexed_get(tokens, x, s, first, n);
            for (size_t i = 0; i < n; i++)
                if (tokens[i] < 0 || (size_t)tokens[i] >= vocabulary)
                    return hkt_error_set(HKT_ERR_ARGUMENT,
                                         "%s: token %zu of sequence %zu is %" PRId32
                                         ", and the vocabulary has %zu; was "
                                         "it made with another tokenizer?",
                                         x->prefix, first + i, s, tokens[i], vocabulary);
        }
    return HKT_OK;
}

/* ---- opening */

static int check_header(struct indexed *x)
{
    const unsigned char *h = x->idx.at;
    uint64_t             arrays;

    if (x->idx.size < HEADER || memcmp(h, "MMIDIDX\0\0", 9) != 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s.idx is no index: its %zu bytes do not begin with MMIDIDX", x->prefix,
                             x->idx.size);
    if (load64(h + 9) != 1)
        return hkt_error_set(HKT_ERR_UNSUPPORTED, "%s.idx has version %" PRIu64 "; only 1 is known", x->prefix,
                             load64(h + 9));
    x->code = h[17];
    if (!token_size(x->code))
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s.idx has type code %d; codes are 1 to 8", x->prefix, x->code);
    x->sequences = load64(h + 18);
    x->entries   = load64(h + 26);
    if (x->sequences > x->idx.size || x->entries > x->idx.size || x->entries == 0)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s.idx is cut off or damaged: %zu sequences and %zu document entries in %zu bytes",
                             x->prefix, x->sequences, x->entries, x->idx.size);
    arrays = HEADER + 12 * (uint64_t)x->sequences + 8 * (uint64_t)x->entries;
    if (x->idx.size != arrays && x->idx.size != arrays + x->sequences)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s.idx is cut off or damaged: it has %zu bytes, and its %zu sequences and %zu document "
                             "entries need %" PRIu64,
                             x->prefix, x->idx.size, x->sequences, x->entries, arrays);
    x->lengths   = h + HEADER;
    x->starts    = x->lengths + 4 * x->sequences;
    x->documents = x->starts + 8 * x->sequences;
    return HKT_OK;
}

static int check_sequences(struct indexed *x)
{
    const size_t size     = token_size(x->code);
    uint64_t     expected = 0;

    for (size_t i = 0; i < x->sequences; i++) {
        const int32_t length = load32(x->lengths + 4 * i);

        if (length < 0 || start_of(x, i) != expected)
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "%s.idx: sequence %zu has %" PRId32 " tokens at byte %" PRIu64
                                 "; it should begin at %" PRIu64,
                                 x->prefix, i, length, start_of(x, i), expected);
        expected += (uint64_t)length * size;
    }
    if (expected != x->bin.size)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s.bin has %zu bytes, and its index describes %" PRIu64
                             "; is it cut off, or of another index?",
                             x->prefix, x->bin.size, expected);
    x->tokens = expected / size;
    return HKT_OK;
}

static int check_documents(const struct indexed *x)
{
    uint64_t before = 0;

    for (size_t d = 0; d < x->entries; d++) {
        const uint64_t first = load64(x->documents + 8 * d);

        if (first < before || first > x->sequences || (d == 0 && first != 0))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "%s.idx: document %zu begins with sequence %" PRIu64 ", after %" PRIu64 " and of %zu",
                                 x->prefix, d, first, before, x->sequences);
        before = first;
    }
    if (before != x->sequences)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s.idx: documents end with sequence %" PRIu64 " of %zu", x->prefix,
                             before, x->sequences);
    return HKT_OK;
}

static int open_all(struct indexed *x, char *path)
{
    const size_t n = strlen(x->prefix);
    int          rc;

    strcpy(path + n, ".idx");
    if ((rc = mapping_open(&x->idx, path)) < 0)
        return rc;
    strcpy(path + n, ".bin");
    if ((rc = mapping_open(&x->bin, path)) < 0 || (rc = check_header(x)) < 0 || (rc = check_sequences(x)) < 0)
        return rc;
    x->checksum = hkt_checksum(x->idx.at, x->idx.size, 0);
    return check_documents(x);
}

int indexed_open(struct indexed **indexed, const char *prefix)
{
    const size_t    n    = strlen(prefix);
    struct indexed *x    = calloc(1, sizeof(*x) + n + 1);
    char           *path = malloc(n + 5);
    int             rc;

    if (x && path) {
        memcpy(x->prefix, prefix, n + 1);
        memcpy(path, prefix, n + 1);
        rc = open_all(x, path);
    } else {
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to open %s", prefix);
    }
    free(path);
    if (rc < 0)
        indexed_close(x);
    else
        *indexed = x;
    return rc;
}

void indexed_close(struct indexed *x)
{
    if (!x)
        return;
    mapping_close(&x->idx);
    mapping_close(&x->bin);
    free(x);
}
