/* checkpoint_manifest.c -- the manifest of a checkpoint as text: written line by line, read back strictly. The checksum
 * at its end is looked at first; what passes it and is still not understood is refused with the line's number, as a
 * file of another version.
 */
#include "parallel/checkpoint.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void data_name(char name[CHECKPOINT_NAME], int rank)
{
    snprintf(name, CHECKPOINT_NAME, "rank-%05d.data", rank);
}

/* ---- writing */

void text_add(struct text *text, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    const int    n    = vsnprintf(NULL, 0, format, args);
    const size_t need = text->size + (size_t)n + 1;

    if (!text->failed && need > text->room) {
        const size_t room = need > 2 * text->room ? need + 4096 : 2 * text->room;
        char        *more = realloc(text->at, room);

        text->failed = !more;
        text->at     = more ? more : text->at;
        text->room   = more ? room : text->room;
    }
    if (!text->failed) {
        vsnprintf(text->at + text->size, text->room - text->size, format, again);
        text->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

static void add_escaped(struct text *text, const char *value)
{
    while (*value) {
        const size_t plain = strcspn(value, "\\\n\r");

        text_add(text, "%.*s", (int)plain, value);
        value += plain;
        if (*value)
            text_add(text, "%s", *value == '\n' ? "\\n" : *value == '\r' ? "\\r" : "\\\\");
        value += *value != 0;
    }
}

int manifest_begin(struct text *text, int64_t step, int ranks, const hkt_metadata_t *metadata, size_t count)
{
    text_add(text, "hocket-checkpoint 1\nstep %" PRId64 "\nranks %d\n", step, ranks);
    for (size_t i = 0; i < count; i++) {
        const char *key = metadata[i].key;

        if (!key || !*key || strpbrk(key, " \t\n\r") || !metadata[i].value)
            return hkt_error_set(HKT_ERR_ARGUMENT, "metadatum %zu (%s): a key is a word, and a value is not NULL", i,
                                 key ? key : "NULL");
        text_add(text, "meta %s ", key);
        add_escaped(text, metadata[i].value);
        text_add(text, "\n");
    }
    return HKT_OK;
}

void manifest_file(struct text *text, int rank, const struct data_file *file)
{
    text_add(text, "file %d %zu %016" PRIx64 "\n", rank, file->bytes, file->checksum);
}

void manifest_piece(struct text *text, const struct stored *stored)
{
    const hkt_piece_t *p = &stored->piece;
    char               shape[96];

    piece_shape(p, shape, sizeof(shape));
    text_add(text, "piece %s %s %s %zu %zu %zu %zu %zu %d %zu %s\n", hkt_piece_kind_name(p->kind),
             hkt_type_name(p->type), shape, p->first, p->count, p->begin, p->run, p->stride, stored->rank,
             stored->offset, p->name);
}

int manifest_end(struct text *text)
{
    if (!text->failed)
        text_add(text, "end %016" PRIx64 "\n", hkt_checksum(text->at, text->size, 0));
    return text->failed ? hkt_error_set(HKT_ERR_MEMORY, "no memory for the manifest of a checkpoint (%zu bytes so far)",
                                        text->size)
                        : HKT_OK;
}

/* ---- reading */

/* A line that is taken apart word by word; `bad` sticks. */
struct line {
    char *rest;
    bool  bad;
};

static char *word(struct line *line)
{
    static char nothing[1];
    char       *text = strsep(&line->rest, " ");

    line->bad |= !text || !*text;
    return line->bad ? nothing : text;
}

static uint64_t number_of(struct line *line, const char *text, int base, uint64_t most)
{
    char    *end;
    uint64_t x;

    errno = 0;
    x     = strtoull(text, &end, base);
    line->bad |= errno || *end || !isxdigit((unsigned char)*text) || x > most;
    return line->bad ? 0 : x;
}

static size_t size_word(struct line *line)
{
    return (size_t)number_of(line, word(line), 10, SIZE_MAX);
}

static int int_word(struct line *line, int most)
{
    return (int)number_of(line, word(line), 10, (uint64_t)most);
}

static hkt_type_t type_word(struct line *line)
{
    const char *name = word(line);

    for (int type = 0; type < HKT_TYPES; type++)
        if (strcmp(hkt_type_name((hkt_type_t)type), name) == 0)
            return (hkt_type_t)type;
    line->bad = true;
    return HKT_INT8;
}

static void shape_word(struct line *line, hkt_piece_t *piece)
{
    char *rest = word(line), *part;

    while (!line->bad && (part = strsep(&rest, "x"))) {
        line->bad |= piece->dims == HKT_PIECE_DIMS;
        if (!line->bad)
            piece->shape[piece->dims++] = (size_t)number_of(line, part, 10, SIZE_MAX);
    }
}

static void parse_piece(struct manifest *m, struct line *line)
{
    struct stored *s    = &m->stored[m->stored_count];
    hkt_piece_t   *p    = &s->piece;
    const int      kind = piece_kind(word(line));

    *s = (struct stored){0};
    line->bad |= kind < 0;
    p->kind = (hkt_piece_kind_t)(kind < 0 ? 0 : kind);
    p->type = type_word(line);
    shape_word(line, p);
    p->first  = size_word(line);
    p->count  = size_word(line);
    p->begin  = size_word(line);
    p->run    = size_word(line);
    p->stride = size_word(line);
    s->rank   = int_word(line, m->ranks - 1);
    s->offset = size_word(line);
    p->name   = word(line);
    line->bad |= line->rest || piece_check(p, m->stored_count) < 0;
    m->stored_count++;
}

static void parse_meta(struct manifest *m, struct line *line)
{
    char *key = word(line), *to = line->rest, *from = line->rest;

    line->bad |= !to;
    while (!line->bad && *from)
        if (*from == '\\') {
            line->bad |= !strchr("\\nr", from[1]) || !from[1];
            *to++ = from[1] == 'n' ? '\n' : from[1] == 'r' ? '\r' : '\\';
            from += 2;
        } else {
            *to++ = *from++;
        }
    if (!line->bad) {
        *to                              = 0;
        m->metadata[m->metadata_count++] = (hkt_metadata_t){key, line->rest};
    }
}

static void parse_file(struct manifest *m, struct line *line)
{
    const int        rank = int_word(line, m->ranks - 1);
    struct data_file file = {.used = true};

    file.bytes    = size_word(line);
    file.checksum = number_of(line, word(line), 16, UINT64_MAX);
    line->bad |= line->rest || file.bytes == 0 || file.bytes > SIZE_MAX / 2 || (!line->bad && m->file[rank].used);
    if (!line->bad)
        m->file[rank] = file;
}

static int parse_ranks(struct manifest *m, struct line *line)
{
    m->ranks = int_word(line, 1 << 24);
    line->bad |= line->rest || m->ranks < 1 || m->file;
    if (!line->bad && !(m->file = calloc((size_t)m->ranks, sizeof(*m->file))))
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the manifest of %d ranks", m->ranks);
    return HKT_OK;
}

/* One line without its end; `number` from 0 on. What a line needs stands in lines before it. */
static int parse_line(struct manifest *m, char *text, size_t number, bool *bad)
{
    struct line line = {text, false};
    const char *what = word(&line);
    int         rc   = HKT_OK;

    if (number == 0)
        line.bad |= strcmp(what, "hocket-checkpoint") != 0 || int_word(&line, 1) != 1;
    else if (strcmp(what, "step") == 0 && number == 1)
        m->step = (int64_t)number_of(&line, word(&line), 10, INT64_MAX);
    else if (strcmp(what, "ranks") == 0 && number == 2)
        rc = parse_ranks(m, &line);
    else if (strcmp(what, "meta") == 0 && m->file)
        parse_meta(m, &line);
    else if (strcmp(what, "file") == 0 && m->file)
        parse_file(m, &line);
    else if (strcmp(what, "piece") == 0 && m->file)
        parse_piece(m, &line);
    else
        line.bad = true;
    *bad = line.bad;
    return rc;
}

/* Cuts the last line off and checks what it says of the others; *size becomes theirs. */
static int check_end(struct manifest *m, char *text, size_t *size, const char *path)
{
    enum { END = 4 + 16 + 1 };
    char        line[END + 1];
    const char *end;

    if (*size >= END) {
        end         = text + *size - END;
        m->checksum = hkt_checksum(text, *size - END, 0);
        snprintf(line, sizeof(line), "end %016" PRIx64 "\n", m->checksum);
        if (memcmp(end, line, END) == 0) {
            *size -= END;
            text[*size] = 0;
            return HKT_OK;
        }
        if (memcmp(end, "end ", 4) == 0)
            return hkt_error_set(HKT_ERR_SYSTEM, "%s is damaged: its checksum is not the one in its last line", path);
    }
    return hkt_error_set(HKT_ERR_SYSTEM, "%s is cut off: it has %zu bytes and no line 'end' at its end", path, *size);
}

static size_t count_lines(const char *text, size_t size)
{
    size_t lines = 0;

    for (const char *at = text; (at = memchr(at, '\n', size - (size_t)(at - text))); at++)
        lines++;
    return lines;
}

/* Whether every piece lies within its file. */
static int check_places(const struct manifest *m, const char *path)
{
    for (size_t i = 0; i < m->stored_count; i++) {
        const struct stored *s = &m->stored[i];
        size_t               end;

        if (__builtin_add_overflow(s->offset, piece_bytes(&s->piece), &end) || end > m->file[s->rank].bytes ||
            s->offset % CHECKPOINT_ALIGN)
            return hkt_error_set(HKT_ERR_SYSTEM,
                                 "%s: piece %s cannot be at offset %zu of rank %d's file, which has %zu bytes", path,
                                 s->piece.name, s->offset, s->rank, m->file[s->rank].bytes);
    }
    return HKT_OK;
}

static int parse_all(struct manifest *m, size_t size, const char *path)
{
    const size_t lines = count_lines(m->text, size);
    char        *rest  = m->text;

    m->stored   = calloc(lines + 1, sizeof(*m->stored));
    m->metadata = calloc(lines + 1, sizeof(*m->metadata));
    if (!m->stored || !m->metadata)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the %zu lines of %s", lines, path);
    for (size_t i = 0; i < lines; i++) {
        char *line = strsep(&rest, "\n");
        bool  bad  = strlen(line) != (size_t)((rest ? rest : m->text + size + 1) - line) - 1; /* a zero byte in it */

        if (!bad)
            TRY(parse_line(m, line, i, &bad));
        if (bad)
            return hkt_error_set(HKT_ERR_UNSUPPORTED,
                                 "%s: line %zu is not understood; was it written by a newer version?", path, i + 1);
    }
    if (!m->file || (rest && *rest))
        return hkt_error_set(HKT_ERR_UNSUPPORTED, "%s is no manifest of a checkpoint", path);
    return check_places(m, path);
}

static int by_place(const void *a, const void *b)
{
    return piece_order(&((const struct stored *)a)->piece, &((const struct stored *)b)->piece);
}

int manifest_parse(struct manifest *m, char *text, size_t size, const char *path)
{
    struct manifest made = {.text = text};
    int             rc   = check_end(&made, text, &size, path);

    if (rc == HKT_OK)
        rc = parse_all(&made, size, path);
    if (rc < 0) {
        manifest_free(&made);
        return rc;
    }
    qsort(made.stored, made.stored_count, sizeof(*made.stored), by_place);
    *m = made;
    return HKT_OK;
}

int manifest_check_files(const struct manifest *m, const char *folder)
{
    for (int r = 0; r < m->ranks; r++) {
        const size_t blocks = (m->file[r].bytes + CHECKPOINT_BLOCK - 1) / CHECKPOINT_BLOCK,
                     size   = m->file[r].bytes + 8 * blocks;
        char        name[CHECKPOINT_NAME], path[CHECKPOINT_PATH];
        struct stat status;

        if (!m->file[r].used)
            continue;
        data_name(name, r);
        TRY(file_join(path, folder, name));
        if (stat(path, &status))
            return file_error("looking for the data of a rank, which all hosts must put into one folder:", path);
        if ((size_t)status.st_size != size)
            return hkt_error_set(HKT_ERR_SYSTEM, "%s has %lld bytes and not the %zu of its manifest", path,
                                 (long long)status.st_size, size);
    }
    return HKT_OK;
}

void manifest_free(struct manifest *m)
{
    free(m->text);
    free(m->file);
    free(m->stored);
    free(m->metadata);
    *m = (struct manifest){0};
}
