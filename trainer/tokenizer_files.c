/* tokenizer_files.c -- vocab.json and merges.txt as GPT-2 has them. vocab.json maps tokens to numbers, merges.txt has a
 * pair a line, the first merged first; in both a byte is written as a printable character: itself where it is printable
 * in Latin-1, and characters from 256 on for the others in their order.
 */
#include "json.h"
#include "tokenizer_parts.h"

#include <errno.h>
#include <hocket_train.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 4096 /* bytes of a token as it is written */ };

static bool printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

uint32_t byte_to_character(unsigned char byte)
{
    uint32_t others = 0;

    if (printable(byte))
        return byte;
    for (unsigned b = 0; b < byte; b++)
        others += !printable(b);
    return 256 + others;
}

int character_to_byte(uint32_t character)
{
    for (unsigned b = 0; b < 256; b++)
        if (byte_to_character((unsigned char)b) == character)
            return (int)b;
    return -1;
}

void byte_order(unsigned char order[256])
{
    size_t n = 0;

    for (int others = 0; others < 2; others++)
        for (unsigned b = 0; b < 256; b++)
            if (printable(b) != others)
                order[n++] = (unsigned char)b;
}

/* Which byte a character of up to two UTF-8 bytes stands for, made once a file. */
struct alphabet {
    int16_t byte[0x800]; /* -1: none */
};

static void alphabet_make(struct alphabet *a)
{
    memset(a->byte, 0xff, sizeof(a->byte));
    for (unsigned b = 0; b < 256; b++)
        a->byte[byte_to_character((unsigned char)b)] = (int16_t)b;
}

/* A written token to its bytes, in place; false when some character stands for no byte (then it is what it says). */
static bool to_bytes(const struct alphabet *a, char *text, size_t *length)
{
    const unsigned char *from = (unsigned char *)text, *end = from + *length;
    unsigned char        bytes[LONGEST];
    size_t               n = 0;

    while (from < end) {
        const bool two  = *from >= 0xC2 && *from < 0xE0 && end - from > 1;
        const int  byte = *from < 0x80 ? a->byte[*from] : two ? a->byte[(*from & 0x1F) << 6 | (from[1] & 0x3F)] : -1;

        if (byte < 0)
            return false;
        bytes[n++] = (unsigned char)byte;
        from += two ? 2 : 1;
    }
    memcpy(text, bytes, n);
    *length = n;
    return true;
}

static size_t to_characters(char *text, const char *bytes, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const uint32_t c = byte_to_character((unsigned char)bytes[i]);

        if (c >= 0x80)
            text[n++] = (char)(0xC0 | c >> 6);
        text[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
    }
    return n;
}

/* ---- reading */

static int slurp(char **text, size_t *size, const char *path)
{
    FILE       *file = fopen(path, "rb");
    struct stat status;
    char       *at = NULL;

    if (!file)
        return hkt_error_set(HKT_ERR_SYSTEM, "opening %s: %s", path, strerror(errno));
    if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode))
        at = malloc((size_t)status.st_size + 1);
    if (at)
        *size = fread(at, 1, (size_t)status.st_size, file);
    fclose(file);
    if (!at)
        return hkt_error_set(HKT_ERR_SYSTEM, "%s is no file, or there is no memory for it", path);
    at[*size] = 0;
    *text     = at;
    return HKT_OK;
}

/* What vocab.json says: written tokens by their numbers. */
struct entry {
    char  *bytes; /* NULL: the number is not there */
    size_t length;
};

static int wrong(const struct json *j, const char *path, const char *what)
{
    return hkt_error_set(HKT_ERR_ARGUMENT, "%s: %s at byte %zu", path, what ? what : j->wrong,
                         (size_t)(j->at - j->text));
}

static int read_entries(struct entry *entries, size_t most, struct json *j, const char *path)
{
    struct alphabet alphabet;
    char            text[LONGEST];
    size_t          length;
    uint64_t        number;

    alphabet_make(&alphabet);
    json_enter(j, '{');
    while (json_more(j, '}')) {
        if (!json_key(j, text, sizeof(text), &length) || !json_unsigned(j, &number))
            break;
        if (number >= most || entries[number].bytes)
            return wrong(j, path,
                         number >= most ? "a token's number is not below the number of tokens"
                                        : "two tokens have one number");
        (void)to_bytes(&alphabet, text, &length); /* else a special token, as it is written */
        entries[number] = (struct entry){malloc(length + 1), length};
        if (!entries[number].bytes)
            return no_memory("the vocabulary");
        memcpy(entries[number].bytes, text, length);
    }
    return json_done(j) ? HKT_OK : wrong(j, path, NULL);
}

static int take_entries(struct tokenizer *t, const struct entry *entries, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        int64_t number;

        if (!entries[i].bytes)
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s: no token has number %zu, but there are %zu tokens", path, i,
                                 count);
        number = strings_add(&t->token, entries[i].bytes, entries[i].length);
        if (number < 0)
            return no_memory("the vocabulary");
        if ((size_t)number != i)
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s: tokens %" PRId64 " and %zu are the same", path, number, i);
    }
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;

        t->byte[b] = (int32_t)strings_find(&t->token, &byte, 1);
        if (t->byte[b] < 0)
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s has no token for byte %d; a byte-level vocabulary has all 256",
                                 path, b);
    }
    return HKT_OK;
}

static int parse_vocabulary(struct tokenizer *t, const char *text, size_t size, const char *path)
{
    struct json   j     = json_text(text, size);
    size_t        count = 0;
    struct entry *entries;
    int           rc;

    for (size_t i = 0; i < size; i++) /* every entry has a colon */
        count += text[i] == ':';
    entries = calloc(count + 1, sizeof(*entries));
    if (!entries)
        return no_memory("the vocabulary");
    rc = read_entries(entries, count, &j, path);
    while (count && !entries[count - 1].bytes && rc == HKT_OK) /* colons in tokens */
        count--;
    if (rc == HKT_OK)
        rc = take_entries(t, entries, count, path);
    for (size_t i = 0; i < count; i++)
        free(entries[i].bytes);
    free(entries);
    return rc;
}

/* "left right" to a merge. */
static int parse_merge(struct tokenizer *t, const struct alphabet *a, char *line, size_t length)
{
    char        *space = memchr(line, ' ', length), text[LONGEST * 2];
    size_t       left, right;
    struct merge m;

    if (!space || length >= LONGEST)
        return hkt_error_set(HKT_ERR_ARGUMENT, "a merge is two tokens with a space");
    left  = (size_t)(space - line);
    right = length - left - 1;
    if (!left || !right || !to_bytes(a, line, &left) || !to_bytes(a, space + 1, &right))
        return hkt_error_set(HKT_ERR_ARGUMENT, "a merge is two tokens of the byte alphabet with a space");
    memcpy(text, line, left);
    memcpy(text + left, space + 1, right);
    m.left   = (int32_t)strings_find(&t->token, text, left);
    m.right  = (int32_t)strings_find(&t->token, text + left, right);
    m.result = (int32_t)strings_find(&t->token, text, left + right);
    if (m.left < 0 || m.right < 0 || m.result < 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "a merge whose %s is not in the vocabulary",
                             m.left < 0    ? "left token"
                             : m.right < 0 ? "right token"
                                           : "result");
    t->merge[t->merges++] = m;
    return HKT_OK;
}

static int parse_merges(struct tokenizer *t, char *text, size_t size, const char *path)
{
    struct alphabet alphabet;
    size_t          lines = 1, number = 0;

    alphabet_make(&alphabet);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    t->merge = calloc(lines, sizeof(*t->merge));
    if (!t->merge)
        return no_memory("the merges");
    for (char *line = text, *end; line < text + size; line = end + 1) {
        size_t length;

        end    = memchr(line, '\n', size - (size_t)(line - text));
        end    = end ? end : text + size;
        length = (size_t)(end - line);
        length -= length && line[length - 1] == '\r';
        if (++number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0)
            continue;
        if (length && parse_merge(t, &alphabet, line, length) < 0) {
            char why[200];

            snprintf(why, sizeof(why), "%s", hkt_last_error());
            return hkt_error_set(HKT_ERR_ARGUMENT, "%s, line %zu: %s", path, number, why);
        }
    }
    return HKT_OK;
}

int tokenizer_load(struct tokenizer **tokenizer, const char *vocabulary, const char *merges)
{
    struct tokenizer *t     = calloc(1, sizeof(*t));
    char             *words = NULL, *lines = NULL;
    size_t            size;
    int               rc = t ? slurp(&words, &size, vocabulary) : no_memory("a tokenizer");

    if (rc == HKT_OK)
        rc = parse_vocabulary(t, words, size, vocabulary);
    if (rc == HKT_OK)
        rc = slurp(&lines, &size, merges);
    if (rc == HKT_OK)
        rc = parse_merges(t, lines, size, merges);
    if (rc == HKT_OK)
        rc = tokenizer_complete(t);
    free(words);
    free(lines);
    if (rc < 0)
        tokenizer_free(t);
    else
        *tokenizer = t;
    return rc;
}

/* ---- writing */

static void write_vocabulary(const struct tokenizer *t, FILE *file, char *room)
{
    for (size_t i = 0; i < t->token.count; i++) {
        size_t      n;
        const char *bytes      = strings_at(&t->token, i, &n);
        char       *characters = room, *quoted = room + 2 * n + 1;

        n = (int32_t)i == t->end ? (size_t)(stpcpy(characters, TOKENIZER_END) - characters)
                                 : to_characters(characters, bytes, n);
        n = json_quote(quoted, characters, n);
        fprintf(file, "%s%.*s: %zu", i ? ", " : "{", (int)n, quoted, i);
    }
    fprintf(file, "}\n");
}

static void write_merges(const struct tokenizer *t, FILE *file, char *room)
{
    fprintf(file, "#version: 0.2\n");
    for (size_t i = 0; i < t->merges; i++)
        for (int side = 0; side < 2; side++) {
            size_t      n;
            const char *bytes = strings_at(&t->token, (size_t)(side ? t->merge[i].right : t->merge[i].left), &n);

            n = to_characters(room, bytes, n);
            fprintf(file, "%.*s%c", (int)n, room, side ? '\n' : ' ');
        }
}

static int write_file(const struct tokenizer *t, const char *folder, const char *name,
                      void (*write)(const struct tokenizer *, FILE *, char *))
{
    char   path[4096], temporary[4160], *room;
    size_t longest = 64, n;
    FILE  *file;
    bool   failed;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    for (size_t i = 0; i < t->token.count; i++)
        longest = (strings_at(&t->token, i, &n), n > longest ? n : longest);
    room = malloc(longest * 16 + 16);
    file = room ? fopen(temporary, "wb") : NULL;
    if (!file) {
        free(room);
        return hkt_error_set(HKT_ERR_SYSTEM, "creating %s: %s", temporary, strerror(errno));
    }
    write(t, file, room);
    free(room);
    failed = ferror(file) || fflush(file) || fsync(fileno(file));
    failed |= fclose(file) != 0;
    if (failed || rename(temporary, path)) {
        unlink(temporary);
        return hkt_error_set(HKT_ERR_SYSTEM, "writing %s: %s", path, strerror(errno));
    }
    return HKT_OK;
}

int tokenizer_save(const struct tokenizer *t, const char *folder)
{
    int rc;

    if (mkdir(folder, 0777) && errno != EEXIST)
        return hkt_error_set(HKT_ERR_SYSTEM, "making the folder %s: %s", folder, strerror(errno));
    rc = write_file(t, folder, "vocab.json", write_vocabulary);
    return rc < 0 ? rc : write_file(t, folder, "merges.txt", write_merges);
}
