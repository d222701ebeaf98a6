/* tokenizer_table.c -- the hash tables of the tokenizer: open addressing, doubled when half full. */
#include "tokenizer_parts.h"

#include <hocket_train.h>
#include <stdlib.h>
#include <string.h>

uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const struct pairs *p, uint64_t key)
{
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (p->room - 1);

    while (p->key[i] != key && p->key[i] != EMPTY_PAIR)
        i = (i + 1) & (p->room - 1);
    return i;
}

uint32_t *pairs_find(const struct pairs *p, uint64_t key)
{
    size_t i;

    if (!p->room)
        return NULL;
    i = slot_of(p, key);
    return p->key[i] == key ? &p->value[i] : NULL;
}

static bool pairs_grow(struct pairs *p)
{
    struct pairs more = {.room = p->room ? 2 * p->room : 1024, .count = p->count};

    more.key   = malloc(more.room * sizeof(*more.key));
    more.value = calloc(more.room, sizeof(*more.value));
    if (!more.key || !more.value) {
        pairs_free(&more);
        return false;
    }
    memset(more.key, 0xff, more.room * sizeof(*more.key));
    for (size_t i = 0; i < p->room; i++)
        if (p->key[i] != EMPTY_PAIR) {
            const size_t to = slot_of(&more, p->key[i]);

            more.key[to]   = p->key[i];
            more.value[to] = p->value[i];
        }
    pairs_free(p);
    *p = more;
    return true;
}

uint32_t *pairs_add(struct pairs *p, uint64_t key)
{
    size_t i;

    if (2 * p->count >= p->room && !pairs_grow(p))
        return NULL;
    i = slot_of(p, key);
    if (p->key[i] == EMPTY_PAIR) {
        p->key[i] = key;
        p->count++;
    }
    return &p->value[i];
}

void pairs_free(struct pairs *p)
{
    free(p->key);
    free(p->value);
    *p = (struct pairs){0};
}

const char *strings_at(const struct strings *s, size_t index, size_t *bytes)
{
    *bytes = s->start[index + 1] - s->start[index];
    return s->bytes + s->start[index];
}

static size_t string_slot(const struct strings *s, const char *text, size_t bytes)
{
    size_t i = (size_t)hkt_checksum(text, bytes, 0) & (s->slots - 1), n;

    while (s->slot[i]) {
        const char *there = strings_at(s, s->slot[i] - 1, &n);

        if (n == bytes && memcmp(there, text, n) == 0)
            break;
        i = (i + 1) & (s->slots - 1);
    }
    return i;
}

int64_t strings_find(const struct strings *s, const char *text, size_t bytes)
{
    return s->slots ? (int64_t)s->slot[string_slot(s, text, bytes)] - 1 : -1;
}

static bool strings_grow(struct strings *s, size_t bytes)
{
    if (s->count + 2 > s->room) {
        const size_t room  = s->room ? 2 * s->room : 1024;
        size_t      *start = realloc(s->start, room * sizeof(*start));
        uint32_t    *slot  = start ? calloc(2 * room, sizeof(*slot)) : NULL;

        s->start = start ? start : s->start;
        if (!slot)
            return false;
        free(s->slot);
        s->start[0] = 0;
        s->room     = room;
        s->slot     = slot;
        s->slots    = 2 * room;
        for (size_t i = 0; i < s->count; i++) {
            size_t      n;
            const char *text = strings_at(s, i, &n);

            s->slot[string_slot(s, text, n)] = (uint32_t)i + 1;
        }
    }
    if (s->start[s->count] + bytes > s->bytes_room || !s->bytes) {
        const size_t room = 2 * s->bytes_room + bytes + 4096;
        char        *more = realloc(s->bytes, room);

        if (!more)
            return false;
        s->bytes      = more;
        s->bytes_room = room;
    }
    return true;
}

int64_t strings_add(struct strings *s, const char *text, size_t bytes)
{
    size_t i;

    if (s->count >= UINT32_MAX - 1 || !strings_grow(s, bytes))
        return -1;
    i = string_slot(s, text, bytes);
    if (!s->slot[i]) {
        memcpy(s->bytes + s->start[s->count], text, bytes);
        s->start[s->count + 1] = s->start[s->count] + bytes;
        s->slot[i]             = (uint32_t)++s->count;
    }
    return (int64_t)s->slot[i] - 1;
}

void strings_free(struct strings *s)
{
    free(s->bytes);
    free(s->start);
    free(s->slot);
    *s = (struct strings){0};
}
