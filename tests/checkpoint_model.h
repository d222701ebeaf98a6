/* checkpoint_model.h -- a small model whose every number is known, cut by any layout, for the tests of checkpoints.
 *
 * Element e of tensor t, kind k, at step s is one number, so whatever layout wrote it and whatever layout read it, each element
 * can be judged alone.
 */
#ifndef TEST_CHECKPOINT_MODEL_H
#define TEST_CHECKPOINT_MODEL_H

#include "harness.h"

#include <hocket_train.h>

enum { MOST_PIECES = 64 };

/* Ranks tp-pp-dp, the first fastest. */
struct layout {
    const char *name;
    int         tp, pp, dp;
    bool        sharded; /* weights whole on every data-parallel rank, the other kinds cut among them; else all whole */
};

int layout_ranks(const struct layout *layout);

struct pieces {
    hkt_piece_t piece[MOST_PIECES];
    size_t      count;
    float      *memory;
};

float model_number(size_t tensor, hkt_piece_kind_t kind, size_t element, int64_t step);

/* The pieces of one rank of a layout, with memory; filled for `step`, or with -1 when it is negative. */
void pieces_make(struct pieces *p, const struct layout *layout, int rank, int64_t step);
void pieces_free(struct pieces *p);
void pieces_check(const struct pieces *p, int64_t step);

size_t model_bytes(void); /* of every kind of every tensor, once */

/* A folder below $TMPDIR, made; the same name on every rank that knows `tag`. */
void scratch_make(char folder[256], const char *tag);
void scratch_remove(const char *folder);

#endif
