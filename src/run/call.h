/* call.h -- one collective or message as the user asked for it, checked; and what each collective does with its buffers.
 *
 * Everything that differs between collectives and is not an algorithm stands in one table, hkt_collective[]: who has which
 * buffer, of how many blocks, and where in-place puts IN on OUT. Argument checks, the flat algorithm, plans and the engine read it.
 */
#ifndef HKT_CALL_H
#define HKT_CALL_H

#include "language/algorithm.h"

#include "hocket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hkt_call {
    enum hkt_coll coll;
    hkt_type_t    type;
    hkt_op_t      op;    /* HKT_SUM where there is none; HKT_PREMUL_SUM for every handle */
    int           root;  /* or the peer of a message; 0 where there is none */
    const void   *send;
    void         *recv;
    size_t        count;   /* elements of one block; of the largest in a v-form */
    size_t        element; /* bytes of one; 0 for a barrier */
    double        scale;   /* of a premultiplied sum */
    bool          staged;  /* its pointers are of the host: no need to ask */
    size_t       *arrays;  /* v-forms: four arrays of n, owned by the call: enum hkt_array; NULL: plain */
};

/* Counts and displacements of the blocks of IN and of OUT. */
enum hkt_array { HKT_IN_COUNTS, HKT_IN_DISPLS, HKT_OUT_COUNTS, HKT_OUT_DISPLS, HKT_ARRAYS };

static inline size_t *hkt_array(const struct hkt_call *c, enum hkt_array which, int size)
{
    return c->arrays + (size_t)which * (size_t)size;
}

/* How a buffer is made up. */
enum hkt_extent { HKT_NOTHING, HKT_BLOCK /* the rank's own */, HKT_BLOCKS /* one per rank */ };

struct hkt_collective {
    bool            reduces, rooted, vector; /* vector: one block that schedules cut into chunks for ranks */
    enum hkt_extent in, out;                 /* of a rank that has them */
    bool            in_root_only, out_root_only;
    enum hkt_extent flat_deposit; /* what a rank shows to the others in the flat algorithm (its IN) */
};

extern const struct hkt_collective hkt_collective[HKT_COLLS];

static inline bool hkt_has_in(const struct hkt_call *c, int rank)
{
    return hkt_collective[c->coll].in != HKT_NOTHING && (!hkt_collective[c->coll].in_root_only || rank == c->root);
}

static inline bool hkt_has_out(const struct hkt_call *c, int rank)
{
    return hkt_collective[c->coll].out != HKT_NOTHING && (!hkt_collective[c->coll].out_root_only || rank == c->root);
}

/* Elements in IN (out = false) or OUT of `rank`, from the start of the buffer to its last block's end. */
size_t hkt_call_extent(const struct hkt_call *c, bool out, int rank, int size);

/* Elements that all ranks together read and write at the least, with blocks of `block` elements. */
size_t hkt_call_traffic(const struct hkt_call *c, size_t block, int size);

/* Bytes that the call's counts describe, with a block for every rank once each. */
size_t hkt_call_payload(const struct hkt_call *c, int size);

/* "all_reduce of 1024 float32, sum" -- for sentences. */
void hkt_call_print(const struct hkt_call *c, char *text, size_t size);

void hkt_call_release(struct hkt_call *c); /* frees its arrays */

#endif
