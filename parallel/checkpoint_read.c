/* checkpoint_read.c -- from the pieces that were saved to the pieces that are asked for.
 *
 * A piece is walked in stretches that are consecutive in the tensor, in the piece asked for and in a stored one. The
 * first walk only sees whether everything is there; the second reads. Data comes by pread() and a block of its own, not
 * by mmap(): a file that is cut off or a bad disk is then an error that names the place, and not a SIGBUS.
 */
#include "parallel/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- blocks */

static int open_table(hkt_checkpoint_t *c, int rank, const char *path)
{
    const size_t blocks = (c->m.file[rank].bytes + CHECKPOINT_BLOCK - 1) / CHECKPOINT_BLOCK;
    uint64_t    *table;
    int          rc;

    if (c->fd[rank] < 0)
        c->fd[rank] = open(path, O_RDONLY | O_CLOEXEC);
    if (c->fd[rank] < 0)
        return file_error("opening", path);
    table = malloc(blocks * sizeof(*table));
    if (!table)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for the %zu checksums of %s", blocks, path);
    rc = file_read_at(c->fd[rank], table, blocks * sizeof(*table), c->m.file[rank].bytes, path);
    if (rc == HKT_OK && hkt_checksum(table, blocks * sizeof(*table), 0) != c->m.file[rank].checksum)
        rc = hkt_error_set(HKT_ERR_SYSTEM, "%s is damaged in its table of checksums, from offset %zu on", path,
                           c->m.file[rank].bytes);
    if (rc < 0)
        free(table);
    else
        c->table[rank] = table;
    return rc;
}

int checkpoint_block(const unsigned char **data, size_t *size, hkt_checkpoint_t *c, int rank, size_t index)
{
    const size_t offset = index * CHECKPOINT_BLOCK, rest = c->m.file[rank].bytes - offset;
    const size_t bytes = rest < CHECKPOINT_BLOCK ? rest : CHECKPOINT_BLOCK;
    char         name[CHECKPOINT_NAME], path[CHECKPOINT_PATH];

    if (c->block_rank != rank || c->block_index != index) {
        data_name(name, rank);
        TRY(file_join(path, c->path, name));
        if (!c->table[rank])
            TRY(open_table(c, rank, path));
        c->block_rank = -1;
        TRY(file_read_at(c->fd[rank], c->block, bytes, offset, path));
        if (hkt_checksum(c->block, bytes, 0) != c->table[rank][index])
            return hkt_error_set(HKT_ERR_SYSTEM, "%s is damaged between offset %zu and %zu: the checksum is wrong",
                                 path, offset, offset + bytes);
        c->block_rank  = rank;
        c->block_index = index;
    }
    *data = c->block;
    *size = bytes;
    return HKT_OK;
}

/* ---- stretches */

/* Elements that lie together wherever they lie. */
struct stretch {
    const struct stored *from;
    size_t               at, to; /* element of the stored piece; of the data asked for */
    size_t               count;
};

/* The stored pieces of one tensor and kind. */
struct candidates {
    const struct stored *at;
    size_t               count, last; /* last: which had the last stretch */
};

static struct candidates candidates(const hkt_checkpoint_t *c, const hkt_piece_t *want)
{
    const struct stored *s   = c->m.stored;
    size_t               low = 0, high = c->m.stored_count;

    while (low < high) { /* the first that is not before it */
        const size_t       middle = low + (high - low) / 2;
        const hkt_piece_t *p      = &s[middle].piece;
        const int          order  = strcmp(p->name, want->name);

        if (order < 0 || (order == 0 && p->kind < want->kind))
            low = middle + 1;
        else
            high = middle;
    }
    for (high = low; high < c->m.stored_count; high++)
        if (s[high].piece.kind != want->kind || strcmp(s[high].piece.name, want->name) != 0)
            break;
    return (struct candidates){s + low, high - low, 0};
}

/* The stretch at local element i of `want`; false when no piece has it. */
static bool stretch_at(struct stretch *stretch, const hkt_piece_t *want, size_t i, struct candidates *among)
{
    size_t       wanted, at, length;
    const size_t g = piece_global(want, i, &wanted);

    for (size_t k = 0; k < among->count; k++) {
        const size_t         which = (among->last + k) % among->count;
        const struct stored *from  = &among->at[which];

        if (piece_local(&from->piece, g, &at, &length)) {
            among->last = which;
            *stretch =
                (struct stretch){from, at - from->piece.first, i - want->first, wanted < length ? wanted : length};
            return true;
        }
    }
    return false;
}

/* Copies a stretch out of the blocks of its file. No element lies across two blocks: pieces begin at a multiple of
 * CHECKPOINT_ALIGN (seen to when the manifest is read). */
static int copy(hkt_checkpoint_t *c, const hkt_piece_t *want, const struct stretch *stretch)
{
    const hkt_piece_t *p      = &stretch->from->piece;
    const size_t       width  = hkt_type_size(p->type);
    char              *to     = (char *)want->data + stretch->to * hkt_type_size(want->type);
    size_t             offset = stretch->from->offset + stretch->at * width, left = stretch->count;

    while (left) {
        const unsigned char *block;
        size_t               size, n;

        TRY(checkpoint_block(&block, &size, c, stretch->from->rank, offset / CHECKPOINT_BLOCK));
        n = (size - offset % CHECKPOINT_BLOCK) / width;
        n = n < left ? n : left;
        TRY(hkt_convert(to, want->type, block + offset % CHECKPOINT_BLOCK, p->type, n));
        to += n * hkt_type_size(want->type);
        offset += n * width;
        left -= n;
    }
    return HKT_OK;
}

/* ---- what is not there */

enum { LISTED = 6 };

struct lacks {
    size_t count;
    char   text[800];
};

static void lack(struct lacks *lacks, const char *format, ...)
{
    const size_t used = strlen(lacks->text);
    va_list      args;

    if (lacks->count++ < LISTED) {
        snprintf(lacks->text + used, sizeof(lacks->text) - used, "; ");
        va_start(args, format);
        vsnprintf(lacks->text + used + 2, sizeof(lacks->text) - used - 2, format, args);
        va_end(args);
    }
}

/* Same tensor: shape and type. */
static bool fits(struct lacks *lacks, const hkt_piece_t *want, const hkt_piece_t *have)
{
    char wanted[96], had[96];

    piece_shape(want, wanted, sizeof(wanted));
    piece_shape(have, had, sizeof(had));
    if (strcmp(wanted, had) != 0)
        lack(lacks, "%s (%s) has shape %s there and %s here", want->name, hkt_piece_kind_name(want->kind), had, wanted);
    else if (!piece_convertible(want->type, have->type))
        lack(lacks, "%s (%s) is %s there and %s here", want->name, hkt_piece_kind_name(want->kind),
             hkt_type_name(have->type), hkt_type_name(want->type));
    else
        return true;
    return false;
}

/* Sees whether all of the piece is there. */
static void look(struct lacks *lacks, const hkt_piece_t *want, const hkt_checkpoint_t *c)
{
    struct candidates among = candidates(c, want);
    struct stretch    stretch;

    if (among.count == 0 && want->count)
        lack(lacks, "%s (%s): nothing of it", want->name, hkt_piece_kind_name(want->kind));
    for (size_t k = 0; k < among.count; k++)
        if (!fits(lacks, want, &among.at[k].piece))
            return;
    for (size_t i = want->first; among.count && i < want->first + want->count; i += stretch.count)
        if (!stretch_at(&stretch, want, i, &among)) {
            size_t length;

            lack(lacks, "%s (%s): from element %zu on", want->name, hkt_piece_kind_name(want->kind),
                 piece_global(want, i, &length));
            return;
        }
}

static int complain(const struct lacks *lacks, size_t asked, const hkt_checkpoint_t *c)
{
    if (!lacks->count)
        return HKT_OK;
    return hkt_error_set(HKT_ERR_ARGUMENT, "%.100s lacks %zu of %zu pieces%s%s", c->path, lacks->count, asked,
                         lacks->text, lacks->count > LISTED ? "; and more" : "");
}

static int read_piece(const hkt_piece_t *want, hkt_checkpoint_t *c)
{
    struct candidates among = candidates(c, want);
    struct stretch    stretch;

    for (size_t i = want->first; i < want->first + want->count; i += stretch.count) {
        if (!stretch_at(&stretch, want, i, &among))
            return hkt_error_set(HKT_ERR_INTERNAL, "piece %s was found and is gone", want->name);
        TRY(copy(c, want, &stretch));
    }
    return HKT_OK;
}

int hkt_checkpoint_read(const hkt_piece_t *pieces, size_t n_pieces, hkt_checkpoint_t *c)
{
    struct lacks lacks = {0};

    for (size_t i = 0; i < n_pieces; i++) {
        TRY(piece_check(&pieces[i], i));
        if (pieces[i].count && !pieces[i].data)
            return hkt_error_set(HKT_ERR_ARGUMENT, "piece %s has %zu elements and its data is NULL", pieces[i].name,
                                 pieces[i].count);
        look(&lacks, &pieces[i], c);
    }
    TRY(complain(&lacks, n_pieces, c));
    for (size_t i = 0; i < n_pieces; i++)
        TRY(read_piece(&pieces[i], c));
    return HKT_OK;
}

int hkt_checkpoint_verify(hkt_checkpoint_t *c)
{
    struct lacks lacks   = {0};
    size_t       tensors = 0;

    for (size_t i = 0, count; i < c->m.stored_count; i += count, tensors++) {
        hkt_piece_t whole = c->m.stored[i].piece;

        whole.first = whole.begin = whole.run = whole.stride = 0;
        whole.count                                          = piece_elements(&whole);
        count                                                = candidates(c, &whole).count;
        look(&lacks, &whole, c);
    }
    TRY(complain(&lacks, tensors, c));
    for (int r = 0; r < c->m.ranks; r++)
        for (size_t index = 0; index * CHECKPOINT_BLOCK < c->m.file[r].bytes; index++) {
            const unsigned char *block;
            size_t               size;

            TRY(checkpoint_block(&block, &size, c, r, index));
        }
    return HKT_OK;
}
