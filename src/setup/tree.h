/* tree.h -- the shape of the tree, from who is below whom.
 */
#ifndef HKT_TREE_H
#define HKT_TREE_H

#include <stddef.h>
#include <stdint.h>

struct hkt_tree {
    int32_t *order; /* rank at each position, parents before their children, a subtree in one piece, children in the order of their ranks */
    int32_t *size;  /* by rank: of the subtree below and with it */
    int32_t *work;  /* for hkt_tree_sort() */
    char    *mark;  /* by rank, twice: for whoever has something to mark */
};

/* parent[0] is not looked at; the others' are ranks. Everything in one allocation, which is order's. HKT_ERR_MEMORY, or HKT_ERR_INTERNAL when it is no
 * tree. */
int hkt_tree_build(struct hkt_tree *t, const int32_t *parent, int n);

/* Sorts n blocks of `len` bytes that are in the tree's order by rank, in place. */
void hkt_tree_sort(struct hkt_tree *t, int n, char *blocks, size_t len);

void hkt_tree_free(struct hkt_tree *t);

#endif
