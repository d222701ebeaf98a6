/* indexed_write.c -- writing, see indexed.h. Lengths and documents are kept in memory until the end, as they stand in
 * the index; tokens go straight to disk. Both files are synchronised before they get their names, PREFIX.idx last,
 * because it is what a reader opens.
 */
#include "indexed.h"

#include <errno.h>
#include <hocket_train.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A growing array of 64-bit numbers. */
struct numbers {
    int64_t *at;
    size_t   count, room;
};

struct indexed_writer {
    FILE          *bin;
    int            code;
    struct numbers lengths, documents;
    char          *path, *temporary; /* with room for an ending */
    size_t         prefix;           /* length of the name without it */
};

static int push(struct numbers *numbers, int64_t number)
{
    if (numbers->count == numbers->room) {
        const size_t room = numbers->room ? 2 * numbers->room : 1024;
        int64_t     *more = realloc(numbers->at, room * sizeof(*more));

        if (!more)
            return hkt_error_set(HKT_ERR_MEMORY, "no memory for an index of %zu entries", room);
        numbers->at   = more;
        numbers->room = room;
    }
    numbers->at[numbers->count++] = number;
    return HKT_OK;
}

static int fail(const char *what, const char *path)
{
    return hkt_error_set(HKT_ERR_SYSTEM, "%s %s: %s", what, path, strerror(errno));
}

static const char *ending(char *path, size_t prefix, const char *end)
{
    strcpy(path + prefix, end);
    return path;
}

int indexed_create(struct indexed_writer **writer, const char *prefix, int code)
{
    const size_t           n  = strlen(prefix);
    struct indexed_writer *w  = calloc(1, sizeof(*w));
    int                    rc = HKT_OK;

    if (w) {
        *w = (struct indexed_writer){.code = code, .prefix = n, .path = malloc(n + 16), .temporary = malloc(n + 16)};
        if (w->path && w->temporary) {
            memcpy(w->path, prefix, n + 1);
            memcpy(w->temporary, prefix, n + 1);
        }
    }
    if (!w || !w->path || !w->temporary)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to write %s", prefix);
    else if (!token_size(code) || code == TOKEN_F32 || code == TOKEN_F64)
        rc = hkt_error_set(HKT_ERR_ARGUMENT, "tokens of %s cannot be of type code %d (%s)", prefix, code,
                           token_name(code));
    else if (!(w->bin = fopen(ending(w->temporary, n, ".bin.tmp"), "wb")))
        rc = fail("creating", w->temporary);
    if (rc == HKT_OK)
        rc = push(&w->documents, 0);
    if (rc < 0)
        indexed_abandon(w);
    else
        *writer = w;
    return rc;
}

static int64_t least(int code)
{
    return code == TOKEN_U8 || code == TOKEN_U16 ? 0
           : code == TOKEN_I8                    ? INT8_MIN
           : code == TOKEN_I16                   ? INT16_MIN
                                                 : INT32_MIN;
}

static int64_t most(int code)
{
    return code == TOKEN_U8    ? UINT8_MAX
           : code == TOKEN_U16 ? UINT16_MAX
           : code == TOKEN_I8  ? INT8_MAX
           : code == TOKEN_I16 ? INT16_MAX
                               : INT32_MAX;
}

int indexed_add(struct indexed_writer *w, const int32_t *tokens, size_t count)
{
    const size_t size = token_size(w->code);

    if (count > INT32_MAX)
        return hkt_error_set(HKT_ERR_ARGUMENT, "a sequence of %zu tokens is longer than the format allows, %d", count,
                             INT32_MAX);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < least(w->code) || tokens[i] > most(w->code))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "token %" PRId32 " of sequence %zu is not in the range of %s, %" PRId64 " to %" PRId64,
                                 tokens[i], w->lengths.count, token_name(w->code), least(w->code), most(w->code));
    for (size_t i = 0; i < count; i++) {
        const int64_t token = tokens[i]; /* little-endian: the low bytes come first */

        if (fwrite(&token, size, 1, w->bin) != 1)
            return fail("writing", ending(w->temporary, w->prefix, ".bin.tmp"));
    }
    return push(&w->lengths, (int64_t)count);
}

int indexed_end_document(struct indexed_writer *w)
{
    return push(&w->documents, (int64_t)w->lengths.count);
}

int indexed_append(struct indexed_writer *w, const struct indexed *other)
{
    const int64_t before = (int64_t)w->lengths.count;
    int           rc     = HKT_OK;

    if (indexed_code(other) != w->code)
        return hkt_error_set(HKT_ERR_ARGUMENT, "data of %s cannot be added to data of %s",
                             token_name(indexed_code(other)), token_name(w->code));
    for (size_t i = 0; i < indexed_sequences(other) && rc == HKT_OK; i++) {
        const size_t length = indexed_length(other, i);

        if (fwrite(indexed_at(other, i), token_size(w->code), length, w->bin) != length)
            rc = fail("writing", ending(w->temporary, w->prefix, ".bin.tmp"));
        else
            rc = push(&w->lengths, (int64_t)length);
    }
    for (size_t d = 1; d <= indexed_documents(other) && rc == HKT_OK; d++)
        rc = push(&w->documents, before + (int64_t)indexed_document(other, d));
    return rc;
}

static int synchronise(FILE *file, const char *path)
{
    return fflush(file) || fsync(fileno(file)) ? fail("writing", path) : HKT_OK;
}

static void put64(FILE *file, int64_t number)
{
    fwrite(&number, sizeof(number), 1, file);
}

/* Errors of a stream stay with it: the one at the end is enough. */
static int write_index(struct indexed_writer *w, FILE *file, const char *path)
{
    const uint8_t code  = (uint8_t)w->code;
    int64_t       start = 0;

    fwrite("MMIDIDX\0\0", 9, 1, file);
    put64(file, 1);
    fwrite(&code, 1, 1, file);
    put64(file, (int64_t)w->lengths.count);
    put64(file, (int64_t)w->documents.count);
    for (size_t i = 0; i < w->lengths.count; i++) {
        const int32_t length = (int32_t)w->lengths.at[i];

        fwrite(&length, sizeof(length), 1, file);
    }
    for (size_t i = 0; i < w->lengths.count; i++) {
        put64(file, start);
        start += w->lengths.at[i] * (int64_t)token_size(w->code);
    }
    fwrite(w->documents.at, sizeof(*w->documents.at), w->documents.count, file);
    if (ferror(file))
        return fail("writing", path);
    return synchronise(file, path);
}

static int finish(struct indexed_writer *w)
{
    FILE *idx;
    int   rc;

    if (w->documents.at[w->documents.count - 1] != (int64_t)w->lengths.count && (rc = indexed_end_document(w)) < 0)
        return rc;
    if ((rc = synchronise(w->bin, ending(w->temporary, w->prefix, ".bin.tmp"))) < 0)
        return rc;
    idx = fopen(ending(w->temporary, w->prefix, ".idx.tmp"), "wb");
    if (!idx)
        return fail("creating", w->temporary);
    rc = write_index(w, idx, w->temporary);
    if (fclose(idx) && rc == HKT_OK)
        rc = fail("writing", w->temporary);
    if (rc < 0)
        return rc;
    if (rename(ending(w->temporary, w->prefix, ".bin.tmp"), ending(w->path, w->prefix, ".bin")) ||
        rename(ending(w->temporary, w->prefix, ".idx.tmp"), ending(w->path, w->prefix, ".idx")))
        return fail("renaming", w->temporary);
    return HKT_OK;
}

int indexed_finish(struct indexed_writer *w)
{
    const int rc = finish(w);

    indexed_abandon(w); /* what has its name is no longer under the temporary one */
    return rc;
}

void indexed_abandon(struct indexed_writer *w)
{
    if (!w)
        return;
    if (w->bin)
        fclose(w->bin);
    if (w->temporary && w->bin) {
        unlink(ending(w->temporary, w->prefix, ".bin.tmp"));
        unlink(ending(w->temporary, w->prefix, ".idx.tmp"));
    }
    free(w->lengths.at);
    free(w->documents.at);
    free(w->path);
    free(w->temporary);
    free(w);
}
