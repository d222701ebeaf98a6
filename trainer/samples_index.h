/* samples_index.h -- between samples.c, which makes the index of a data set, and samples_cache.c, which keeps it in a
 * file. */
#ifndef TRAINER_SAMPLES_INDEX_H
#define TRAINER_SAMPLES_INDEX_H

#include "samples.h"

struct index_plan {
    uint64_t tokens;                     /* of an epoch */
    uint64_t epochs, documents, samples; /* documents: of all epochs */
    uint64_t apart;                      /* samples of the first shuffle; the rest is the second */
    bool     last_apart;
};

int index_plan(struct index_plan *plan, const struct indexed *indexed, const struct samples_description *description);
size_t index_numbers(const struct index_plan *plan);
void   index_make(int64_t *arrays, const struct index_plan *plan, const struct indexed *indexed,
                  const struct samples_description *description);

/* Arrays one behind the other: documents, rows (two a sample, one more), order. */
struct index_memory {
    const int64_t *arrays;
    uint64_t       checksum;
    void          *mapped, *allocated; /* one of them, or none */
    size_t         size;
};
int  index_get(struct index_memory *memory, const struct index_plan *plan, const struct indexed *indexed,
               const struct samples_description *description);
void index_release(struct index_memory *memory);

#endif
