/* expression.h -- sums as trees over ranks, each different tree kept once: equal sums in equal order are equal numbers.
 *
 * Expression r < size is the input of rank r. The verifier computes with these instead of numbers.
 */
#ifndef HKT_EXPRESSION_H
#define HKT_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hkt_expression; /* a node */

struct hkt_expressions {
    struct hkt_expression *node;
    uint32_t              *table; /* open addressing over nodes; 0: free (node 0 is a leaf and never looked up) */
    uint32_t              *seen;  /* per rank: the last check that met it */
    uint32_t               used, cap, size, check;
};

int  hkt_expressions_init(struct hkt_expressions *e, int size); /* 0 or HKT_ERR_MEMORY */
void hkt_expressions_free(struct hkt_expressions *e);

/* The list folded by the canonical tree: split at the largest power of two below its length, recurse. False: out of memory. */
bool hkt_expression_fold(struct hkt_expressions *e, const uint32_t *list, uint32_t length, uint32_t *result);

/* True when every rank is in it exactly once. */
bool hkt_expression_complete(struct hkt_expressions *e, uint32_t id);

/* Writes it as text, "((0+1)+2)"; cut to fit. */
void hkt_expression_print(const struct hkt_expressions *e, uint32_t id, char *text, size_t size);

#endif
