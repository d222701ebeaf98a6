/* bucket_layout.h -- where every parameter lies when all of them are cut into buckets, and who owns what. Pure. */
#ifndef PARALLEL_BUCKET_LAYOUT_H
#define PARALLEL_BUCKET_LAYOUT_H

#include <parallel/common.h>

/* One bucket: elements first .. first + count of the space of all buckets; both are multiples of the number of ranks.
 * The parameters at positions position .. position + parameters of the order lie in it, then padding. */
struct hkt_flat_bucket {
    size_t first, count;
    int    position, parameters, group;
    int    same; /* a copy of a parameter that is here, too: the bucket of that one; else -1 */
};

/* Elements of one parameter that lie side by side in the space of all buckets, from element `first` of the parameter
 * on. */
struct hkt_flat_piece {
    int    parameter;
    size_t first, count;
    size_t at; /* in the space of all buckets */
};

struct hkt_flat {
    int                     parameters, buckets, ranks;
    size_t                  main;   /* elements without the buckets of copies, which lie behind all others */
    size_t                  total;  /* elements of the space of all buckets */
    int                    *order;  /* by position */
    size_t                 *at;     /* by parameter: its first element in that space */
    int                    *bucket; /* by parameter */
    size_t                 *size;   /* by parameter: elements */
    struct hkt_flat_bucket *cut;    /* by bucket */
};

/* What the layout depends on besides the parameters. Sizes in elements. order and groups may be NULL. */
struct hkt_flat_rule {
    size_t     first_limit, limit, alignment;
    int        ranks;
    const int *order, *groups;
};

int  hkt_flat_make(struct hkt_flat *layout, const hkt_parameter_t *parameters, int count,
                   const struct hkt_flat_rule *rule);
void hkt_flat_free(struct hkt_flat *layout);

/* The part of `parameter` that lies in [from, to) of the space of all buckets; count 0 when none does. */
struct hkt_flat_piece hkt_flat_within(const struct hkt_flat *layout, int parameter, size_t from, size_t to);

/* Rank's piece of a bucket begins here, in the space of all buckets; it has cut[bucket].count / ranks elements. In the
 * space of all of its own pieces it begins at cut[bucket].first / ranks. */
size_t hkt_flat_shard(const struct hkt_flat *layout, int bucket, int rank);

#endif
