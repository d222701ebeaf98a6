/* state.h -- checkpoints of a run: weights and moments as pieces of the whole model's tensors, so that any layout goes
 * on from what any other has saved, and where the run stands.
 */
#ifndef TRAINER_STATE_H
#define TRAINER_STATE_H

#include "engine.h"

struct state {
    struct engine *engine;
    hkt_saver_t   *saver; /* --async-save */
    hkt_piece_t   *piece;
    size_t         count;
};

/* Where a run stands. */
struct progress {
    long     step;     /* that are done, skipped ones included */
    uint64_t consumed; /* sequences */
};

void state_begin(struct state *state, struct engine *engine);
void state_end(struct state *state); /* waits for what is being saved */

void state_save(struct state *state, const struct progress *progress);
/* False where --load names no folder or there is nothing in it. */
bool state_load(struct progress *progress, struct state *state);

#endif
