/* data.c -- see data.h. Every rank reads all of the text; a rank takes the sequences that are its own from it. */
#include "data.h"

#include "random.h"
#include "stop.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where there is text when none is named. */
static const char *const everywhere[] = {"/usr/share/common-licenses", "/usr/share/perl", NULL};

/* Appends the file; one that holds a zero byte is no text and is left out. */
static void append(struct text *text, const char *path, size_t size)
{
    FILE    *file = fopen(path, "rb");
    uint8_t *more = file && size ? realloc(text->bytes, text->size + size) : NULL;

    if (more) {
        text->bytes = more;
        size        = fread(more + text->size, 1, size, file);
        if (!memchr(more + text->size, 0, size)) {
            text->size += size;
            text->files++;
        }
    }
    if (file)
        fclose(file);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void append_all(struct text *text, const char *path)
{
    char   *paths[] = {(char *)path, NULL};
    FTS    *walk    = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    FTSENT *entry;

    while (walk && (entry = fts_read(walk)))
        if (entry->fts_info == FTS_F)
            append(text, entry->fts_path, (size_t)entry->fts_statp->st_size);
    if (walk)
        fts_close(walk);
}

void text_load(struct text *text, const char *path, double held_out_percent, size_t length)
{
    struct stat status;

    *text = (struct text){0};
    if (path && stat(path, &status))
        stop("--data-path %s: %s", path, strerror(errno));
    if (path) {
        append_all(text, path);
        snprintf(text->origin, sizeof(text->origin), "%s", path);
    } else {
        for (const char *const *place = everywhere; *place; place++)
            append_all(text, *place);
        snprintf(text->origin, sizeof(text->origin),
                 "licences and Perl sources of this machine (name better text with --data-path)");
    }
    text->train = (size_t)((double)text->size * (1 - held_out_percent / 100));
    if (text->train < 2 * length + 2 || text->size - text->train < length + 1)
        stop("%s: %zu bytes of text in %zu files are too few for sequences of %zu bytes with %g %% held out",
             text->origin, text->size, text->files, length, held_out_percent);
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

const uint8_t *text_sequence(const struct text *text, uint64_t seed, uint64_t index, size_t length)
{
    const uint64_t windows = (text->train - 1) / length - 1, epoch = index / windows;
    const uint64_t stream = random_stream("data") + epoch;
    const uint64_t start  = random_bits(seed, stream, UINT64_MAX) % length;

    return text->bytes + start + random_shuffle(seed, stream, index % windows, windows) * length;
}

const uint8_t *text_held_out(const struct text *text, uint64_t index, uint64_t count, size_t length)
{
    const size_t room = text->size - text->train - (length + 1);

    return text->bytes + text->train + (count > 1 ? room * index / (count - 1) : 0);
}
