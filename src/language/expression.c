/* expression.c -- hash-consing: a join that exists is found, not made, so that comparing two sums of a thousand ranks is
 * comparing two integers, and exact. */
#include "expression.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { UNCHECKED, COMPLETE, INCOMPLETE };

struct hkt_expression {
    uint32_t left, right;
    uint32_t leaves;
    uint32_t state; /* of hkt_expression_complete() */
};

static uint32_t slot_of(const struct hkt_expressions *e, uint32_t left, uint32_t right)
{
    const uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(key >> 32) & (2 * e->cap - 1);
}

static void enter(struct hkt_expressions *e, uint32_t id)
{
    uint32_t slot = slot_of(e, e->node[id].left, e->node[id].right);

    while (e->table[slot])
        slot = (slot + 1) & (2 * e->cap - 1);
    e->table[slot] = id;
}

static bool grow(struct hkt_expressions *e)
{
    const uint32_t         cap   = e->cap * 2;
    struct hkt_expression *node  = hkt_realloc(e->node, cap * sizeof(*node));
    uint32_t              *table = node ? hkt_alloc(2 * (size_t)cap * sizeof(*table)) : NULL;

    if (node)
        e->node = node;
    if (!table)
        return false;
    hkt_free(e->table);
    e->table = table;
    e->cap   = cap;
    for (uint32_t id = e->size; id < e->used; id++)
        enter(e, id);
    return true;
}

int hkt_expressions_init(struct hkt_expressions *e, int size)
{
    memset(e, 0, sizeof(*e));
    e->size = e->used = (uint32_t)size;
    for (e->cap = 64; e->cap < 2 * e->size;)
        e->cap *= 2;
    e->node  = hkt_alloc(e->cap * sizeof(*e->node));
    e->table = hkt_alloc(2 * (size_t)e->cap * sizeof(*e->table));
    e->seen  = hkt_alloc(e->size * sizeof(*e->seen));
    if (!e->node || !e->table || !e->seen) {
        hkt_expressions_free(e);
        return HKT_ERR_MEMORY;
    }
    for (uint32_t rank = 0; rank < e->size; rank++)
        e->node[rank].leaves = 1;
    return 0;
}

void hkt_expressions_free(struct hkt_expressions *e)
{
    hkt_free(e->node);
    hkt_free(e->table);
    hkt_free(e->seen);
    memset(e, 0, sizeof(*e));
}

static bool join(struct hkt_expressions *e, uint32_t left, uint32_t right, uint32_t *result)
{
    for (uint32_t slot = slot_of(e, left, right); e->table[slot]; slot = (slot + 1) & (2 * e->cap - 1)) {
        const uint32_t id = e->table[slot];

        if (e->node[id].left == left && e->node[id].right == right) {
            *result = id;
            return true;
        }
    }
    if (e->used == e->cap && !grow(e))
        return false;
    e->node[e->used] = (struct hkt_expression){left, right, e->node[left].leaves + e->node[right].leaves, UNCHECKED};
    enter(e, e->used);
    *result = e->used++;
    return true;
}

bool hkt_expression_fold(struct hkt_expressions *e, const uint32_t *list, uint32_t length, uint32_t *result)
{
    uint32_t split = 1, left, right;

    if (length == 1) {
        *result = list[0];
        return true;
    }
    while (split * 2 < length)
        split *= 2;
    return hkt_expression_fold(e, list, split, &left) && hkt_expression_fold(e, list + split, length - split, &right) &&
           join(e, left, right, result);
}

/* Marks the ranks below `id` as seen by the present check; false when one already is. The left spine is a loop: a ring's sum is
 * as deep as it has ranks. */
static bool distinct(struct hkt_expressions *e, uint32_t id)
{
    for (; id >= e->size; id = e->node[id].left)
        if (!distinct(e, e->node[id].right))
            return false;
    if (e->seen[id] == e->check)
        return false;
    e->seen[id] = e->check;
    return true;
}

bool hkt_expression_complete(struct hkt_expressions *e, uint32_t id)
{
    struct hkt_expression *node = &e->node[id];

    if (node->state == UNCHECKED) {
        e->check++;
        node->state = node->leaves == e->size && distinct(e, id) ? COMPLETE : INCOMPLETE;
    }
    return node->state == COMPLETE;
}

static size_t print(const struct hkt_expressions *e, uint32_t id, char *text, size_t size)
{
    size_t used;

    if (id < e->size)
        return (size_t)snprintf(text, size, "%u", id);
    if (size < 16) /* no room for what is inside */
        return (size_t)snprintf(text, size, "..");
    used    = 1;
    text[0] = '(';
    used += print(e, e->node[id].left, text + used, size - used - 8);
    text[used++] = '+';
    used += print(e, e->node[id].right, text + used, size - used - 1);
    text[used++] = ')';
    text[used]   = 0;
    return used;
}

void hkt_expression_print(const struct hkt_expressions *e, uint32_t id, char *text, size_t size)
{
    print(e, id, text, size);
}
