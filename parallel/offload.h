/* offload.h -- optimizer state that does not lie in the device's memory: in another arena, or in a file.
 *
 * It is moved tile by tile through three buffers: while one tile is updated, the next is read and the one before is
 * written, on two streams. A tile is `count` elements of each of `kinds` arrays. */
#ifndef PARALLEL_OFFLOAD_H
#define PARALLEL_OFFLOAD_H

#include <parallel/common.h>

struct hkt_offload;

/* Where a tile lies in each array. */
struct hkt_tile {
    size_t first, count;
    int    bucket; /* for those who work on it */
};

struct hkt_offload_rule {
    hkt_tier_t    tier; /* HOST or FILE */
    const char   *path;
    bool          resume;
    size_t        count, largest; /* elements of each array; of the largest tile */
    int           kinds;
    uint64_t      layout; /* a file with another one is refused */
    hkt_ledger_t *device, *host;
    size_t        host_cap;
};

/* Takes memory; opens or makes the file. All state is 0 at first. */
int hkt_offload_make(struct hkt_offload **offload, const struct hkt_offload_rule *rule);
int hkt_offload_free(struct hkt_offload *offload); /* NULL is allowed */

/* Newest generation that is whole; and which of the two is to be used (resume only). */
uint64_t hkt_offload_generation(const struct hkt_offload *offload);
int      hkt_offload_choose(struct hkt_offload *offload, uint64_t generation);

/* Calls work(arg, tile, memory[kind]) for every tile in order. With `keep` what it leaves in memory is written, and the
 * whole becomes generation `generation` at the end; until then the one before stays. */
typedef int hkt_tile_work(void *arg, const struct hkt_tile *tile, float *const *memory);
struct hkt_pass {
    const struct hkt_tile *tiles;
    int                    count;
    bool                   keep;
    uint64_t               generation;
    hkt_tile_work         *work;
    void                  *arg;
};
int hkt_offload_pass(struct hkt_offload *offload, const struct hkt_pass *pass);

/* Part of one array, in the current generation. A file being put into is not whole until hkt_offload_settle(). */
int    hkt_offload_get(float *values, int kind, size_t first, size_t count, struct hkt_offload *offload);
int    hkt_offload_put(struct hkt_offload *offload, int kind, size_t first, size_t count, const float *values);
int    hkt_offload_settle(struct hkt_offload *offload, uint64_t generation);
int    hkt_offload_force(struct hkt_offload *offload); /* the current generation outlives the machine; FILE */
float *hkt_offload_memory(struct hkt_offload *offload, int kind); /* NULL: in a file */

void hkt_offload_times(hkt_offload_times_t *times, const struct hkt_offload *offload); /* of the last pass */

#endif
