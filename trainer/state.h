/* state.h -- checkpoints of a run: weights and moments as pieces of the whole model's tensors, so that any layout goes
 * on from what any other has saved, and where the run stands.
 */
#ifndef TRAINER_STATE_H
#define TRAINER_STATE_H

#include "engine.h"

struct state {
    struct engine *engine;
    hkt_saver_t   *saver; /* --async-save */
    hkt_piece_t   *piece; /* room for one more than there are: */
    size_t         count;
    hkt_piece_t    codec; /* what the codec keeps of this rank's gradients; count 0: nothing */
    char           codec_name[32];
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

/* state_codec.c: begin fills `codec` in. fetch gives it memory with the state of now, drop frees that. load is
 * collective and returns what there is to say about it, or NULL. */
void        state_codec_begin(struct state *state);
void        state_codec_fetch(struct state *state);
void        state_codec_drop(struct state *state);
const char *state_codec_load(struct state *state, hkt_checkpoint_t *checkpoint);

#endif
