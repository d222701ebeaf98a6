/* tuning.h -- a file that says which algorithm runs what, over the cost model. Text, one rule a line, the first that matches wins:
 *
 *     # collective  ranks   hosts  bytes      algorithm [inner outer]
 *     all_reduce    2-8     1      0-64K      oneshot
 *     all_reduce    *       2-     1M-        hierarchical direct circulant
 *     *             *       *      *          direct
 *
 * Ranges are N, N-M, N- (and more) or * (any), M included; bytes take K, M, G (binary) and are those of the vector, or of the blocks of all
 * ranks together. Everything after # is a remark. What a line says is wrong, or an algorithm that cannot do the collective, is an error
 * that names line and column, and nothing of the file is used.
 */
#ifndef HKT_TUNING_H
#define HKT_TUNING_H

#include "algorithm.h"

struct hkt_range {
    uint64_t least, most; /* both included */
};

struct hkt_tuning_rule {
    uint32_t                    colls; /* bit per hkt_coll */
    struct hkt_range            ranks, hosts, bytes;
    const struct hkt_algorithm *algorithm, *inner, *outer; /* the last two NULL but for hierarchical */
    int                         line;
};

struct hkt_tuning {
    struct hkt_tuning_rule *rule;
    uint32_t                count, cap;
    uint64_t                hash; /* of what the rules say; remarks and spaces do not count; 0 without rules: for all ranks to compare */
};

/* `name` is for messages. 0 or HKT_ERR_ARGUMENT, HKT_ERR_MEMORY; on error *t is empty. */
int hkt_tuning_parse(struct hkt_tuning *t, const char *text, const char *name);
int hkt_tuning_read(struct hkt_tuning *t, const char *path); /* also HKT_ERR_SYSTEM */
void hkt_tuning_free(struct hkt_tuning *t);

/* The first rule for the collective and size of the shape, or NULL. */
const struct hkt_tuning_rule *hkt_tuning_find(const struct hkt_tuning *t, const struct hkt_shape *shape, int hosts, double bytes);

#endif
