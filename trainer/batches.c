/* batches.c -- see batches.h. Memory is made once. A rank has consecutive sequences of the global batch, so that sums
 * over micro-batches and over ranks can be one tree whatever their numbers. */
#include "batches.h"

#include "stop.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 5 };

static size_t own_length(const struct settings *s)
{
    return (size_t)(s->length / s->cp);
}

void batches_begin(struct batches *b, const struct settings *s, int most, int context)
{
    const size_t rows = (size_t)s->micro_batch * own_length(s), all = rows * (size_t)most * ARRAYS,
                 whole = ARRAYS * (size_t)s->length + 1;

    *b          = (struct batches){.settings = s, .most = most, .context = context};
    b->memory   = calloc(all + whole, sizeof(*b->memory));
    b->batch    = calloc((size_t)most, sizeof(*b->batch));
    b->sequence = b->memory + all;
    if (!b->memory || !b->batch)
        stop("out of memory for %d micro-batches", most);
    memset(b->memory, 0, (all + whole) * sizeof(*b->memory)); /* every page is there before the first step */
}

void batches_end(struct batches *b)
{
    free(b->memory);
    free(b->batch);
}

/* Own rows of the sequence at hand. The arrays behind its tokens are positions, starts and weights of all rows. */
static void fill_row(struct batches *b, const struct data *d, int32_t *const *array, size_t at)
{
    const struct settings *s      = b->settings;
    const size_t           length = (size_t)s->length, own = own_length(s);
    int32_t               *behind        = b->sequence + length + 1;
    const int32_t         *whole[ARRAYS] = {b->sequence, b->sequence + 1, behind, behind + length, behind + 2 * length};
    const struct packing   rule          = {d->end, -1, s->reset_position, s->reset_attention, s->mask_end};
    const float           *weight        = (const float *)(const void *)whole[4];

    pack_masks(&(struct masks){behind, behind + length, (float *)(void *)(behind + 2 * length)}, b->sequence, length,
               &rule);
    for (size_t i = 0; i < own; i++) {
        const size_t place = hkt_context_place(i, length, b->context, (int)s->cp);

        for (int k = 0; k < ARRAYS; k++)
            array[k][at + i] = whole[k][place];
        b->weight += (double)weight[place];
    }
}

void batches_fill(struct batches *b, const struct data *d, const struct batches_span *span)
{
    const struct settings *s    = b->settings;
    const size_t           rows = (size_t)s->micro_batch * own_length(s);

    b->count  = span->count;
    b->weight = 0;
    for (int k = 0; k < span->count; k++) {
        int32_t       *array[ARRAYS];
        const uint64_t first = span->place + (uint64_t)k * (uint64_t)s->micro_batch;

        for (int i = 0; i < ARRAYS; i++)
            array[i] = b->memory + ((size_t)k * ARRAYS + (size_t)i) * rows;
        for (long i = 0; i < s->micro_batch; i++) {
            if (span->held_out)
                data_held_out(b->sequence, d, span->consumed + first + (uint64_t)i, span->held_out);
            else
                data_sequence(b->sequence, d, span->consumed + first + (uint64_t)i);
            fill_row(b, d, array, (size_t)i * own_length(s));
        }
        b->batch[k] = (struct gpt_batch){.count    = (int)s->micro_batch,
                                         .length   = (int)own_length(s),
                                         .token    = array[0],
                                         .target   = array[1],
                                         .position = s->reset_position ? array[2] : NULL,
                                         .start    = s->reset_attention ? array[3] : NULL,
                                         .weight   = d->end >= 0 ? (float *)(void *)array[4] : NULL,
                                         .sequence = (uint32_t)first};
    }
}
