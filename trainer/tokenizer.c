/* tokenizer.c -- encoding and decoding, see tokenizer.h. A word is a linked list of tokens; a heap of the merges that
 * its pairs allow, the first by rank and then from the left, keeps a word of n bytes at n log n even when it is a
 * megabyte of the same letter.
 */
#include "tokenizer_parts.h"

#include <hocket_train.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int no_memory(const char *what)
{
    return hkt_error_set(HKT_ERR_MEMORY, "no memory for %s", what);
}

int tokenizer_complete(struct tokenizer *t)
{
    t->end = (int32_t)strings_find(&t->token, TOKENIZER_END, strlen(TOKENIZER_END));
    for (size_t i = t->merges; i-- > 0;) { /* of a pair that is there twice the first counts */
        uint32_t *rank = pairs_add(&t->rank, pair_key(t->merge[i].left, t->merge[i].right));

        if (!rank)
            return no_memory("the merges of a tokenizer");
        *rank = (uint32_t)i;
    }
    return HKT_OK;
}

int tokenizer_bytes(struct tokenizer **tokenizer)
{
    struct tokenizer *t      = calloc(1, sizeof(*t));
    bool              failed = !t;

    for (int b = 0; b < 256 && !failed; b++) {
        const char byte = (char)b;

        t->byte[b] = b;
        failed     = strings_add(&t->token, &byte, 1) != b;
    }
    if (failed || strings_add(&t->token, TOKENIZER_END, strlen(TOKENIZER_END)) != 256) {
        tokenizer_free(t);
        return no_memory("a tokenizer");
    }
    t->end     = 256;
    *tokenizer = t;
    return HKT_OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    strings_free(&t->token);
    pairs_free(&t->rank);
    free(t->merge);
    free(t);
}

size_t tokenizer_size(const struct tokenizer *t)
{
    return t->token.count;
}

int32_t tokenizer_end(const struct tokenizer *t)
{
    return t->end;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t token, size_t *bytes)
{
    return token >= 0 && (size_t)token < t->token.count ? strings_at(&t->token, (size_t)token, bytes) : NULL;
}

/* ---- encoding */

/* One word at work. */
struct word {
    int32_t  *token;         /* by place; -1: merged into the one before */
    uint32_t *next, *before; /* places */
    uint64_t *heap;          /* rank << 32 | place */
    size_t    room, heaped, length;
};

static void word_free(struct word *w)
{
    free(w->token);
    free(w->next);
    free(w->before);
    free(w->heap);
}

static bool word_room(struct word *w, size_t length)
{
    if (length <= w->room)
        return true;
    word_free(w);
    *w        = (struct word){.room = 2 * length};
    w->token  = malloc(w->room * sizeof(*w->token));
    w->next   = malloc(w->room * sizeof(*w->next));
    w->before = malloc(w->room * sizeof(*w->before));
    w->heap   = malloc(3 * w->room * sizeof(*w->heap)); /* a merge adds two */
    if (w->token && w->next && w->before && w->heap)
        return true;
    word_free(w);
    *w = (struct word){0};
    return false;
}

static void push(struct word *w, uint64_t key)
{
    size_t i = w->heaped++;

    for (; i > 0 && w->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = key;
}

static uint64_t pop(struct word *w)
{
    const uint64_t top = w->heap[0], key = w->heap[--w->heaped];
    size_t         i = 0;

    for (size_t child; (child = 2 * i + 1) < w->heaped; i = child) {
        child += child + 1 < w->heaped && w->heap[child + 1] < w->heap[child];
        if (w->heap[child] >= key)
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = key;
    return top;
}

/* The merge of the token at a place with the next one; NULL: none. */
static const uint32_t *rank_at(const struct tokenizer *t, const struct word *w, size_t place)
{
    if (w->token[place] < 0 || w->next[place] >= w->length)
        return NULL;
    return pairs_find(&t->rank, pair_key(w->token[place], w->token[w->next[place]]));
}

static void offer(const struct tokenizer *t, struct word *w, size_t place)
{
    const uint32_t *rank = rank_at(t, w, place);

    if (rank)
        push(w, (uint64_t)*rank << 32 | place);
}

static void merge_word(const struct tokenizer *t, struct word *w)
{
    while (w->heaped) {
        const uint64_t  top   = pop(w);
        const size_t    place = top & UINT32_MAX;
        const uint32_t *rank  = rank_at(t, w, place);

        if (!rank || *rank != top >> 32) /* it has been merged otherwise */
            continue;

        const uint32_t gone = w->next[place];

        w->token[place] = t->merge[*rank].result;
        w->token[gone]  = -1;
        w->next[place]  = w->next[gone];
        if (w->next[gone] < w->length)
            w->before[w->next[gone]] = (uint32_t)place;
        offer(t, w, place);
        if (place > 0)
            offer(t, w, w->before[place]);
    }
}

/* Tokens of one word to `out`, at most as many as it has bytes; how many. */
static size_t encode_word(int32_t *out, const struct tokenizer *t, struct word *w, const char *text, size_t bytes)
{
    size_t n = 0;

    w->length = bytes;
    w->heaped = 0;
    for (size_t i = 0; i < bytes; i++) {
        w->token[i]  = t->byte[(unsigned char)text[i]];
        w->next[i]   = (uint32_t)i + 1;
        w->before[i] = (uint32_t)i - 1;
    }
    for (size_t i = 0; i + 1 < bytes; i++)
        offer(t, w, i);
    merge_word(t, w);
    for (size_t i = 0; i < bytes; i = w->next[i])
        out[n++] = w->token[i];
    return n;
}

int tokenizer_encode(int32_t **tokens, size_t *count, const struct tokenizer *t, const char *text, size_t bytes)
{
    struct word w   = {0};
    int32_t    *out = malloc((bytes + 1) * sizeof(*out)), *less;
    size_t      n   = 0;

    if (!out)
        return no_memory("the tokens of a text");
    for (size_t at = 0, length; at < bytes; at += length) {
        length = word_length(text + at, bytes - at);
        if (length >= UINT32_MAX || !word_room(&w, length)) {
            word_free(&w);
            free(out);
            return no_memory("a word of the text");
        }
        n += encode_word(out + n, t, &w, text + at, length);
    }
    word_free(&w);
    less    = realloc(out, (n + 1) * sizeof(*out));
    *tokens = less ? less : out;
    *count  = n;
    return HKT_OK;
}

int tokenizer_decode(char **text, size_t *bytes, const struct tokenizer *t, const int32_t *tokens, size_t count)
{
    size_t total = 0, n;
    char  *out, *at;

    for (size_t i = 0; i < count; i++) {
        if (!tokenizer_token(t, tokens[i], &n))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "token %" PRId32
                                 " at place %zu is none of the %zu tokens; is this the tokenizer of the data?",
                                 tokens[i], i, t->token.count);
        total += n;
    }
    out = malloc(total + 1);
    if (!out)
        return no_memory("the text of the tokens");
    at = out;
    for (size_t i = 0; i < count; i++) {
        const char *token = tokenizer_token(t, tokens[i], &n);

        memcpy(at, token, n);
        at += n;
    }
    *at    = 0;
    *text  = out;
    *bytes = total;
    return HKT_OK;
}
