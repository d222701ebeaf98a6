/* tokenizer_parts.h -- what the files of the tokenizer share: its tables, and cutting text into words. */
#ifndef TRAINER_TOKENIZER_PARTS_H
#define TRAINER_TOKENIZER_PARTS_H

#include "tokenizer.h"

#include <stdbool.h>

/* The length in bytes of the first word of text[bytes], bytes > 0. (tokenizer_split.c) */
size_t word_length(const char *text, size_t bytes);

/* ---- tables (tokenizer_table.c): they only grow; `failed` sticks when memory was short */

/* A pair of tokens to a number. */
struct pairs {
    uint64_t *key; /* left << 32 | right; EMPTY_PAIR */
    uint32_t *value;
    size_t    room, count; /* room: a power of two, or 0 */
};
#define EMPTY_PAIR UINT64_MAX
uint64_t  pair_key(int32_t left, int32_t right);
uint32_t *pairs_find(const struct pairs *pairs, uint64_t key); /* NULL: not there */
uint32_t *pairs_add(struct pairs *pairs, uint64_t key);        /* its value, 0 at first; NULL: no memory */
void      pairs_free(struct pairs *pairs);

/* Byte strings, numbered from 0 in the order of their arrival. */
struct strings {
    char     *bytes;
    size_t   *start; /* of each, and of the next */
    size_t    count, room, bytes_room;
    uint32_t *slot; /* number + 1; 0: free */
    size_t    slots;
};
int64_t strings_find(const struct strings *strings, const char *text, size_t bytes); /* -1: not there */
int64_t strings_add(struct strings *strings, const char *text, size_t bytes); /* also when it is there; -1: no memory */
const char *strings_at(const struct strings *strings, size_t index, size_t *bytes);
void        strings_free(struct strings *strings);

/* ---- the tokenizer */

struct merge {
    int32_t left, right, result;
};

struct tokenizer {
    struct strings token;     /* token i is string i */
    int32_t        byte[256]; /* the token of a single byte */
    struct merge  *merge;     /* the first is done first */
    size_t         merges;
    struct pairs   rank; /* of a pair: its merge */
    int32_t        end;
};

/* Fills `rank` from `merge`, and `end`. */
int tokenizer_complete(struct tokenizer *t);

/* GPT-2 writes byte b in its files as a printable character; the code point, and back (-1: none). (tokenizer_files.c)
 */
uint32_t byte_to_character(unsigned char byte);
int      character_to_byte(uint32_t character);
/* The bytes in the order of GPT-2's first 256 tokens. */
void byte_order(unsigned char order[256]);

int no_memory(const char *what);

#endif
