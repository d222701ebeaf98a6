/* data.c -- see data.h. Every rank reads all of the text, and takes the sequences that are its own from it. */
#include "data.h"

#include "stop.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where there is text when none is named. */
static const char *const everywhere[] = {"/usr/share/common-licenses", "/usr/share/perl", NULL};

struct bytes {
    char  *byte;
    size_t size, files;
};

/* Appends the file; one that holds a zero byte is no text and is left out. */
static void append(struct bytes *all, const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    char *more = file && size ? realloc(all->byte, all->size + size) : NULL;

    if (more) {
        all->byte = more;
        size      = fread(more + all->size, 1, size, file);
        if (!memchr(more + all->size, 0, size)) {
            all->size += size;
            all->files++;
        }
    }
    if (file)
        fclose(file);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void append_all(struct bytes *all, const char *path)
{
    char   *paths[] = {(char *)path, NULL};
    FTS    *walk    = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    FTSENT *entry;

    while (walk && (entry = fts_read(walk)))
        if (entry->fts_info == FTS_F)
            append(all, entry->fts_path, (size_t)entry->fts_statp->st_size);
    if (walk)
        fts_close(walk);
}

static void open_text(struct data *d, const struct settings *s)
{
    struct bytes all = {NULL, 0, 0};
    struct stat  status;
    const char  *path = s->data_path;

    if (path && stat(path, &status))
        stop("--data-path %s: %s (and there is no %s.idx)", path, strerror(errno), path);
    if (path)
        append_all(&all, path);
    for (const char *const *place = everywhere; !path && *place; place++)
        append_all(&all, *place);
    snprintf(d->origin, sizeof(d->origin), "%s",
             path ? path : "licences and Perl sources of this machine (name better text with --data-path)");
    d->bytes = all.size;
    d->files = all.files;
    need(tokenizer_encode(&d->text.token, &d->text.size, d->tokenizer, all.byte ? all.byte : "", all.size),
         "cutting the text into tokens");
    free(all.byte);
    d->text.train = (size_t)((double)d->text.size * (1 - s->held_out / 100));
    if (d->text.train < 2 * d->length + 2 || d->text.size - d->text.train < d->length + 1)
        stop("%s: %zu tokens of text in %zu files are too few for sequences of %zu with %g %% held out", d->origin,
             d->text.size, d->files, d->length, s->held_out);
}

static void open_indexed(struct data *d, const struct settings *s, hkt_comm_t *comm)
{
    need(indexed_open(&d->indexed, s->data_path), "opening --data-path");
    need(indexed_check(d->indexed, (size_t)d->vocabulary), "reading --data-path with this --tokenizer");

    const size_t documents = indexed_documents(d->indexed);
    size_t       kept      = (size_t)((double)documents * (1 - s->held_out / 100));

    if (documents < 2)
        stop("%s has %zu documents; two are needed, so that one can be held out", s->data_path, documents);
    kept = kept < 1 ? 1 : kept == documents ? documents - 1 : kept;

    struct samples_description first = {.first  = indexed_document(d->indexed, 0),
                                        .last   = indexed_document(d->indexed, kept),
                                        .length = d->length,
                                        .wanted = (uint64_t)s->iterations * (uint64_t)s->global_batch,
                                        .seed   = d->seed,
                                        .cache  = s->data_cache};
    struct samples_description last  = first;

    last.first  = first.last;
    last.last   = indexed_document(d->indexed, documents);
    last.wanted = 0;
    need(samples_open(&d->training, d->indexed, &first, comm), "the samples of --data-path");
    need(samples_open(&d->held_out, d->indexed, &last, comm), "the held-out samples of --data-path");
    snprintf(d->origin, sizeof(d->origin), "%s.bin, %zu documents, %llu tokens, %llu epochs", s->data_path, documents,
             (unsigned long long)indexed_tokens(d->indexed), (unsigned long long)samples_epochs(d->training));
}

static void open_tokenizer(struct data *d, const char *name, bool text)
{
    char files[2][512];

    if (strncmp(name, "bpe:", 4) == 0) {
        snprintf(files[0], sizeof(files[0]), "%s/vocab.json", name + 4);
        snprintf(files[1], sizeof(files[1]), "%s/merges.txt", name + 4);
        need(tokenizer_load(&d->tokenizer, files[0], files[1]), "--tokenizer");
    } else if (strcmp(name, "bytes") == 0) {
        need(tokenizer_bytes(&d->tokenizer), "--tokenizer");
    } else {
        stop("--tokenizer %s: bytes or bpe:DIR is expected", name);
    }
    d->end        = tokenizer_end(d->tokenizer);
    d->vocabulary = (int)tokenizer_size(d->tokenizer);
    if (text && strcmp(name, "bytes") == 0) { /* text has no documents that could end */
        d->end        = -1;
        d->vocabulary = 256;
    }
}

void data_open(struct data *d, const struct settings *s, hkt_comm_t *comm)
{
    char index[4096];
    bool text;

    *d = (struct data){.length = (size_t)s->length, .seed = (uint64_t)s->seed};
    snprintf(index, sizeof(index), "%s.idx", s->data_path ? s->data_path : "");
    text = !s->data_path || access(index, R_OK);
    open_tokenizer(d, s->tokenizer, text);
    if (text)
        open_text(d, s);
    else
        open_indexed(d, s, comm);
}

void data_close(struct data *d)
{
    samples_close(d->held_out);
    samples_close(d->training);
    indexed_close(d->indexed);
    tokenizer_free(d->tokenizer);
    free(d->text.token);
}

const int32_t *text_sequence(const struct text *text, uint64_t seed, uint64_t index, size_t length)
{
    const uint64_t     windows = (text->train - 1) / length - 1, epoch = index / windows;
    const hkt_random_t named = hkt_random_named(seed, "data"), random = {seed, named.stream + epoch};
    const uint64_t     start = hkt_random_bits(random, UINT64_MAX) % length;

    return text->token + start + hkt_random_shuffle(random, index % windows, windows) * length;
}

void data_sequence(int32_t *tokens, const struct data *d, uint64_t index)
{
    if (d->indexed)
        samples_get(tokens, d->training, index, d->end);
    else
        memcpy(tokens, text_sequence(&d->text, d->seed, index, d->length), (d->length + 1) * sizeof(*tokens));
}

void data_held_out(int32_t *tokens, const struct data *d, uint64_t index, uint64_t count)
{
    const size_t   room = d->indexed ? samples_count(d->held_out) - 1 : d->text.size - d->text.train - (d->length + 1);
    const uint64_t at   = count > 1 ? room * index / (count - 1) : 0;

    if (d->indexed)
        samples_get(tokens, d->held_out, at, d->end);
    else
        memcpy(tokens, d->text.token + d->text.train + at, (d->length + 1) * sizeof(*tokens));
}
