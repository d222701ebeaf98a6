/* tokenizer_train.c -- learning merges, see tokenizer.h. The text is reduced to its different words and how often each
 * occurs. Every pair of neighbours has its count and the words that it is in; a merge changes only those words. The
 * heap of pairs is lazy: an entry whose count is no longer right is put back with the right one.
 */
#include "tokenizer_parts.h"

#include <hocket_train.h>
#include <stdlib.h>
#include <string.h>

/* A different word: length tokens from `start` in `symbols`. */
struct kind {
    size_t   start, length;
    uint64_t times;
};

struct pair {
    uint64_t  key, count;
    uint32_t *kinds; /* words that it is or was in */
    uint32_t  kinds_count, kinds_room;
};

struct candidate {
    uint64_t count, key;
};

struct trainer {
    struct tokenizer *t;
    struct kind      *kinds;
    int32_t          *symbols;
    size_t            kinds_count;
    struct pairs      index; /* of a pair: its place in `pair` */
    struct pair      *pair;
    size_t            pairs, pairs_room;
    struct candidate *heap;
    size_t            heaped, heap_room;
    uint64_t         *touched; /* pairs of which this merge made more */
    size_t            touched_count, touched_room;
};

/* Room for one more of `size` bytes; false: no memory. */
static bool grow(void **at, size_t *room, size_t count, size_t size)
{
    void *more;

    if (count < *room)
        return true;
    more = realloc(*at, (*room ? 2 * *room : 64) * size);
    if (!more)
        return false;
    *at   = more;
    *room = *room ? 2 * *room : 64;
    return true;
}

static bool better(struct candidate a, struct candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static bool push(struct trainer *w, struct candidate c)
{
    size_t i = w->heaped;

    if (!grow((void **)&w->heap, &w->heap_room, i, sizeof(*w->heap)))
        return false;
    for (w->heaped++; i > 0 && better(c, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
    return true;
}

static struct candidate pop(struct trainer *w)
{
    const struct candidate top = w->heap[0], c = w->heap[--w->heaped];
    size_t                 i = 0;

    for (size_t child; (child = 2 * i + 1) < w->heaped; i = child) {
        child += child + 1 < w->heaped && better(w->heap[child + 1], w->heap[child]);
        if (!better(w->heap[child], c))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = c;
    return top;
}

static struct pair *pair_of(struct trainer *w, uint64_t key)
{
    uint32_t *place = pairs_add(&w->index, key); /* place + 1 */

    if (!place)
        return NULL;
    if (!*place) {
        size_t room = w->pairs_room;

        if (w->pairs >= UINT32_MAX - 1 || !grow((void **)&w->pair, &room, w->pairs, sizeof(*w->pair)))
            return NULL;
        w->pairs_room       = room;
        w->pair[w->pairs++] = (struct pair){.key = key};
        *place              = (uint32_t)w->pairs;
    }
    return &w->pair[*place - 1];
}

static bool remember(struct pair *p, uint32_t kind)
{
    size_t room = p->kinds_room;

    if (p->kinds_count && p->kinds[p->kinds_count - 1] == kind)
        return true;
    if (!grow((void **)&p->kinds, &room, p->kinds_count, sizeof(*p->kinds)))
        return false;
    p->kinds_room              = (uint32_t)room;
    p->kinds[p->kinds_count++] = kind;
    return true;
}

/* Adds a word's pairs to the counts; those with the token `made` (-1: all) get to know the word. */
static bool add_word(struct trainer *w, uint32_t which, int32_t made)
{
    const struct kind *kind = &w->kinds[which];
    const int32_t     *s    = w->symbols + kind->start;

    for (size_t i = 0; i + 1 < kind->length; i++) {
        struct pair *p = pair_of(w, pair_key(s[i], s[i + 1]));

        if (!p)
            return false;
        p->count += kind->times;
        if (made >= 0 && s[i] != made && s[i + 1] != made)
            continue;
        if (!remember(p, which) || !grow((void **)&w->touched, &w->touched_room, w->touched_count, sizeof(*w->touched)))
            return false;
        w->touched[w->touched_count++] = p->key;
    }
    return true;
}

static void subtract_word(struct trainer *w, uint32_t which)
{
    const struct kind *kind = &w->kinds[which];
    const int32_t     *s    = w->symbols + kind->start;

    for (size_t i = 0; i + 1 < kind->length; i++)
        w->pair[*pairs_find(&w->index, pair_key(s[i], s[i + 1])) - 1].count -= kind->times;
}

static bool has_pair(const struct trainer *w, uint32_t which, const struct merge *m)
{
    const int32_t *s = w->symbols + w->kinds[which].start;

    for (size_t i = 0; i + 1 < w->kinds[which].length; i++)
        if (s[i] == m->left && s[i + 1] == m->right)
            return true;
    return false;
}

static void merge_in(struct trainer *w, uint32_t which, const struct merge *m)
{
    struct kind *kind = &w->kinds[which];
    int32_t     *s    = w->symbols + kind->start;
    size_t       n    = 0;

    for (size_t i = 0; i < kind->length; n++)
        if (i + 1 < kind->length && s[i] == m->left && s[i + 1] == m->right) {
            s[n] = m->result;
            i += 2;
        } else {
            s[n] = s[i++];
        }
    kind->length = n;
}

static int cmp64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The pairs of which there are more now get into the heap, each once. */
static bool offer_touched(struct trainer *w)
{
    uint64_t last = EMPTY_PAIR;

    if (w->touched_count)
        qsort(w->touched, w->touched_count, sizeof(*w->touched), cmp64);
    for (size_t i = 0; i < w->touched_count; i++) {
        const uint64_t key = w->touched[i];

        if (key != last && !push(w, (struct candidate){w->pair[*pairs_find(&w->index, key) - 1].count, key}))
            return false;
        last = key;
    }
    w->touched_count = 0;
    return true;
}

static bool apply(struct trainer *w, uint64_t key, const struct merge *m)
{
    const uint32_t place = *pairs_find(&w->index, key) - 1;

    for (uint32_t k = 0; k < w->pair[place].kinds_count; k++) { /* the array may move, and grows only for other pairs */
        const uint32_t which = w->pair[place].kinds[k];

        if (!has_pair(w, which, m))
            continue;
        subtract_word(w, which);
        merge_in(w, which, m);
        if (!add_word(w, which, m->result))
            return false;
    }
    return offer_touched(w);
}

static int64_t new_token(struct tokenizer *t, int32_t left, int32_t right)
{
    size_t      n, m;
    const char *a = strings_at(&t->token, (size_t)left, &n), *b = strings_at(&t->token, (size_t)right, &m);
    char       *both  = malloc(n + m);
    int64_t     token = -1;

    if (both) {
        memcpy(both, a, n);
        memcpy(both + n, b, m);
        token = strings_add(&t->token, both, n + m); /* perhaps one that other merges give, too */
        free(both);
    }
    return token;
}

/* `size`: tokens without the end. */
static bool learn(struct trainer *w, size_t size)
{
    size_t room = 0;

    while (w->heaped && w->t->token.count < size) {
        const struct candidate best  = pop(w);
        const uint64_t         count = w->pair[*pairs_find(&w->index, best.key) - 1].count;
        struct merge           m     = {(int32_t)(best.key >> 32), (int32_t)(best.key & UINT32_MAX), 0};
        int64_t                token;

        if (count != best.count) {
            if (count >= 2 && count < best.count && !push(w, (struct candidate){count, best.key}))
                return false;
            continue;
        }
        if (count < 2)
            continue;
        token = new_token(w->t, m.left, m.right);
        if (token < 0 || !grow((void **)&w->t->merge, &room, w->t->merges, sizeof(m)))
            return false;
        m.result                    = (int32_t)token;
        w->t->merge[w->t->merges++] = m;
        if (!apply(w, best.key, &m))
            return false;
    }
    return true;
}

/* The different words of the text, as tokens of single bytes. */
static bool count_words(struct trainer *w, const char *text, size_t bytes)
{
    struct strings words = {0};
    size_t         room = 0, symbols = 0, symbols_room = 0;
    bool           ok = true;

    for (size_t at = 0, length; at < bytes && ok; at += length) {
        int64_t which;

        length = word_length(text + at, bytes - at);
        which  = strings_add(&words, text + at, length);
        ok     = which >= 0 && grow((void **)&w->kinds, &room, (size_t)which, sizeof(*w->kinds));
        if (ok && (size_t)which == w->kinds_count) {
            w->kinds[w->kinds_count++] = (struct kind){symbols, length, 0};
            for (size_t i = 0; i < length && ok; i++) {
                ok = grow((void **)&w->symbols, &symbols_room, symbols, sizeof(*w->symbols));
                if (ok)
                    w->symbols[symbols++] = w->t->byte[(unsigned char)text[at + i]];
            }
        }
        if (ok)
            w->kinds[which].times++;
    }
    strings_free(&words);
    return ok;
}

static bool first_tokens(struct tokenizer *t)
{
    unsigned char order[256];

    byte_order(order);
    for (int i = 0; i < 256; i++) {
        t->byte[order[i]] = i;
        if (strings_add(&t->token, (const char *)&order[i], 1) != i)
            return false;
    }
    return true;
}

static void trainer_free(struct trainer *w)
{
    for (size_t i = 0; i < w->pairs; i++)
        free(w->pair[i].kinds);
    free(w->pair);
    free(w->kinds);
    free(w->symbols);
    free(w->heap);
    free(w->touched);
    pairs_free(&w->index);
}

int tokenizer_train(struct tokenizer **tokenizer, const char *text, size_t bytes, size_t size)
{
    struct trainer w  = {.t = calloc(1, sizeof(*w.t))};
    bool           ok = w.t && first_tokens(w.t);

    if (size < 257 || size > INT32_MAX) {
        tokenizer_free(w.t);
        return hkt_error_set(HKT_ERR_ARGUMENT, "a vocabulary of %zu tokens; it has 257 (all bytes and %s) to %d", size,
                             TOKENIZER_END, INT32_MAX);
    }
    ok = ok && count_words(&w, text, bytes);
    for (size_t i = 0; i < w.kinds_count && ok; i++)
        ok = add_word(&w, (uint32_t)i, -1);
    ok = ok && offer_touched(&w) && learn(&w, size - 1);
    trainer_free(&w);
    ok = ok && strings_add(&w.t->token, TOKENIZER_END, strlen(TOKENIZER_END)) >= 0 && tokenizer_complete(w.t) == HKT_OK;
    if (!ok) {
        tokenizer_free(w.t);
        return no_memory("training a tokenizer");
    }
    *tokenizer = w.t;
    return HKT_OK;
}
