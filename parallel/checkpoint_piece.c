/* checkpoint_piece.c -- pieces of tensors: what is a valid one, and the arithmetic between a piece's elements and the
 * tensor's. Everything that reads or writes a checkpoint in another layout than it was saved in comes down to
 * piece_global() and piece_local().
 */
#include "parallel/checkpoint.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[HKT_PIECE_KINDS] = {"weight", "master", "moment1", "moment2", "extra"};

const char *hkt_piece_kind_name(hkt_piece_kind_t kind)
{
    return (unsigned)kind < HKT_PIECE_KINDS ? kind_names[kind] : "?";
}

int piece_kind(const char *name)
{
    for (int kind = 0; kind < HKT_PIECE_KINDS; kind++)
        if (strcmp(kind_names[kind], name) == 0)
            return kind;
    return -1;
}

size_t piece_bytes(const hkt_piece_t *piece)
{
    return piece->count * hkt_type_size(piece->type);
}

size_t piece_elements(const hkt_piece_t *piece)
{
    size_t elements = 1;

    for (int d = 0; d < piece->dims; d++)
        elements *= piece->shape[d];
    return elements;
}

void piece_shape(const hkt_piece_t *piece, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (int d = 0; d < piece->dims && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", d ? "x" : "", piece->shape[d]);
}

static bool name_valid(const char *name)
{
    size_t n = 0;

    if (!name)
        return false;
    for (; name[n]; n++)
        if ((unsigned char)name[n] <= ' ' || name[n] == 127 || n == 255)
            return false;
    return n > 0;
}

/* Elements of the tensor; false when they or their bytes are more than a size_t holds. */
static bool shape_valid(const hkt_piece_t *piece, size_t *elements)
{
    size_t bytes = hkt_type_size(piece->type);

    *elements = 1;
    for (int d = 0; d < piece->dims; d++)
        if (__builtin_mul_overflow(*elements, piece->shape[d], elements) ||
            __builtin_mul_overflow(bytes, piece->shape[d], &bytes))
            return false;
    return true;
}

/* Whether all elements of the piece lie in the tensor of `elements`. */
static bool place_valid(const hkt_piece_t *piece, size_t elements)
{
    size_t last, end;

    if (piece->run ? piece->stride < piece->run : piece->stride != 0)
        return false;
    if (__builtin_add_overflow(piece->first, piece->count, &end))
        return false;
    if (piece->count == 0)
        return true;
    last = end - 1;
    if (piece->run && (__builtin_mul_overflow(last / piece->run, piece->stride, &end) ||
                       __builtin_add_overflow(end, last % piece->run, &last)))
        return false;
    return !__builtin_add_overflow(last, piece->begin, &last) && last < elements;
}

int piece_check(const hkt_piece_t *piece, size_t who)
{
    char   shape[96];
    size_t elements;

    if (!name_valid(piece->name))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "the name of piece %zu is empty, longer than 255 bytes, or holds a space or control "
                             "character; give every tensor a plain name",
                             who);
    if ((unsigned)piece->kind >= HKT_PIECE_KINDS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "piece %s has kind %d; kinds are 0 to %d", piece->name, (int)piece->kind,
                             HKT_PIECE_KINDS - 1);
    if (!hkt_type_size(piece->type))
        return hkt_error_set(HKT_ERR_ARGUMENT, "piece %s has type %d, which is none", piece->name, (int)piece->type);
    if (piece->dims < 1 || piece->dims > HKT_PIECE_DIMS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "piece %s has %d dimensions; 1 to %d are possible", piece->name,
                             piece->dims, HKT_PIECE_DIMS);
    if (!shape_valid(piece, &elements))
        return hkt_error_set(HKT_ERR_ARGUMENT, "the shape of piece %s has more elements than a size_t counts",
                             piece->name);
    piece_shape(piece, shape, sizeof(shape));
    if (!place_valid(piece, elements))
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "piece %s: elements %zu to %zu + %zu of a part that begins at %zu with runs of %zu every "
                             "%zu do not all lie "
                             "in the tensor of shape %s",
                             piece->name, piece->first, piece->first, piece->count, piece->begin, piece->run,
                             piece->stride, shape);
    return HKT_OK;
}

size_t piece_global(const hkt_piece_t *piece, size_t i, size_t *length)
{
    const size_t rest = piece->first + piece->count - i;

    if (!piece->run) {
        *length = rest;
        return piece->begin + i;
    }

    const size_t in_run = piece->run - i % piece->run;

    *length = in_run < rest ? in_run : rest;
    return piece->begin + i / piece->run * piece->stride + i % piece->run;
}

bool piece_local(const hkt_piece_t *piece, size_t g, size_t *i, size_t *length)
{
    if (g < piece->begin)
        return false;
    g -= piece->begin;
    if (piece->run) {
        if (g % piece->stride >= piece->run)
            return false;
        g = g / piece->stride * piece->run + g % piece->stride;
    }
    if (g < piece->first || g - piece->first >= piece->count)
        return false;
    *i = g;
    piece_global(piece, g, length);
    return true;
}

static int order(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

int piece_order(const hkt_piece_t *a, const hkt_piece_t *b)
{
    const size_t x[]    = {(size_t)a->kind, a->begin, a->first, a->count, a->run, a->stride};
    const size_t y[]    = {(size_t)b->kind, b->begin, b->first, b->count, b->run, b->stride};
    int          result = strcmp(a->name, b->name);

    for (size_t k = 0; k < sizeof(x) / sizeof(x[0]) && !result; k++)
        result = order(x[k], y[k]);
    return result;
}
