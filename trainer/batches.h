/* batches.h -- the micro-batches of one step, as the model reads them. */
#ifndef TRAINER_BATCHES_H
#define TRAINER_BATCHES_H

#include "data.h"
#include "gpt.h"

struct batches {
    const struct settings *settings;
    int                    most, count; /* micro-batches there is room for; in use */
    int                    context;     /* this context-parallel rank */
    struct gpt_batch      *batch;
    int32_t               *memory, *sequence; /* of all micro-batches; one whole sequence on its way */
    double                 weight;            /* of all rows of this rank's batches: the predictions that count */
};

/* Of a context-parallel rank. */
void batches_begin(struct batches *batches, const struct settings *settings, int most, int context);
void batches_end(struct batches *batches);

/* Which sequences: `count` micro-batches, the first sequence being `place` in a batch that begins with number
 * `consumed`; of held_out ones in all, where that is not 0. */
struct batches_span {
    int      count;
    uint64_t place, consumed, held_out;
};
void batches_fill(struct batches *batches, const struct data *data, const struct batches_span *span);

#endif
