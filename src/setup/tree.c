/* tree.c -- a tree from its parents. See tree.h. */
#include "tree.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* Walks the tree from rank 0 down, children by lists `first` and `next`. Gives how many it met. */
static int walk(int32_t *order, const int32_t *parent, const int32_t *first, const int32_t *next, int n)
{
    int count = 0;

    for (int r = 0; count < n;) {
        order[count++] = r;
        if (first[r] >= 0) {
            r = first[r];
            continue;
        }
        while (r && next[r] < 0)
            r = parent[r];
        if (!r)
            break;
        r = next[r];
    }
    return count;
}

int hkt_tree_build(struct hkt_tree *t, const int32_t *parent, int n)
{
    int32_t *const at    = hkt_alloc((size_t)n * (4 * sizeof(*at) + 2));
    int32_t *const first = at + 2 * (ptrdiff_t)n, *const next = first + n;
    bool           good  = true;

    if (!at)
        return HKT_ERR_MEMORY;
    *t = (struct hkt_tree){.order = at, .size = at + n, .work = first, .mark = (char *)(at + 4 * (ptrdiff_t)n)};
    for (int r = 0; r < n; r++)
        first[r] = -1;
    for (int r = n - 1; r > 0; r--) {
        good = good && parent[r] >= 0 && parent[r] < n;
        if (!good)
            break;
        next[r]          = first[parent[r]];
        first[parent[r]] = r;
        t->size[r]       = 1;
    }
    t->size[0] = 1;
    if (!good || walk(t->order, parent, first, next, n) != n) {
        hkt_tree_free(t);
        return hkt_fail(HKT_ERR_INTERNAL, "rank 0 has sent a tree that is none");
    }
    for (int i = n - 1; i > 0; i--)
        t->size[parent[t->order[i]]] += t->size[t->order[i]];
    return 0;
}

static void swap(char *a, char *b, size_t len)
{
    char piece[512];

    for (size_t at = 0; at < len; at += sizeof(piece)) {
        const size_t n = len - at < sizeof(piece) ? len - at : sizeof(piece);

        memcpy(piece, a + at, n);
        memcpy(a + at, b + at, n);
        memcpy(b + at, piece, n);
    }
}

void hkt_tree_sort(struct hkt_tree *t, int n, char *blocks, size_t len)
{
    memcpy(t->work, t->order, (size_t)n * sizeof(*t->work));
    for (int32_t i = 0; i < n; i++)
        while (t->work[i] != i) { /* the block here goes to its place, the one that was there comes here */
            const int32_t to = t->work[i];

            swap(blocks + (size_t)i * len, blocks + (size_t)to * len, len);
            t->work[i]  = t->work[to];
            t->work[to] = to;
        }
}

void hkt_tree_free(struct hkt_tree *t)
{
    hkt_free(t->order);
    *t = (struct hkt_tree){.order = NULL};
}
