/* ledger.c -- memory that grows with the model, counted by what it is for.
 *
 * The formulas of the literature (ZeRO's 16 bytes a parameter, 34 s b h of activations) are claims about bytes asked
 * for, so exactly these are counted: no rounding, no header. Every block carries its size and class in the line before
 * it; so giving back needs no table and no lock, and a block given to a ledger that it is not from is noticed.
 *
 * It is no allocator: pools, and what is kept between steps, are the business of those who take. */
#include <parallel/common.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MARK = 0x6c656467 };

struct account {
    _Atomic size_t now, peak, takes;
};

struct hkt_ledger {
    struct account accounts[HKT_BYTES_CLASSES];
};

/* Lies in the LINE bytes before the memory that the caller sees. */
struct block {
    uint32_t      mark, shared;
    hkt_bytes_t   kind;
    size_t        bytes;
    void         *base; /* what free() or hkt_mem_free() wants */
    hkt_ledger_t *ledger;
};
_Static_assert(sizeof(struct block) <= LINE, "the description of a block fits the line before it");

static const char *const names[HKT_BYTES_CLASSES] = {
    [HKT_BYTES_PARAMETER] = "parameters",        [HKT_BYTES_GRADIENT] = "gradients",
    [HKT_BYTES_OPTIMIZER] = "optimizer",         [HKT_BYTES_ACTIVATION] = "activations",
    [HKT_BYTES_COMMUNICATION] = "communication", [HKT_BYTES_OTHER] = "other",
};

static bool known(hkt_bytes_t kind)
{
    return (unsigned)kind < HKT_BYTES_CLASSES;
}

/* Counters only; nothing else is published through them, so relaxed. */
static void count(struct account *a, size_t bytes)
{
    const size_t now  = atomic_fetch_add_explicit(&a->now, bytes, memory_order_relaxed) + bytes;
    size_t       peak = atomic_load_explicit(&a->peak, memory_order_relaxed);
    while (peak < now &&
           !atomic_compare_exchange_weak_explicit(&a->peak, &peak, now, memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_fetch_add_explicit(&a->takes, 1, memory_order_relaxed);
}

/* Zeroed `bytes` behind a line; base is what has to be freed. */
static int allocate(void **memory, void **base, size_t bytes, bool shared)
{
    if (shared) {
        TRY(hkt_mem_alloc(base, bytes + LINE));
        *memory = (char *)*base + LINE;
        return HKT_OK;
    }
    *base = calloc(1, bytes + 2 * (size_t)LINE); /* not aligned_alloc(): large blocks come as untouched zero pages */
    if (!*base)
        return hkt_error_set(HKT_ERR_MEMORY,
                             "%zu bytes could not be allocated; use less (a smaller micro-batch, more shards)", bytes);
    const uintptr_t past = (uintptr_t)*base + 2 * (size_t)LINE;
    *memory              = (char *)*base + (2 * (size_t)LINE - past % LINE);
    return HKT_OK;
}

int hkt_ledger_create(hkt_ledger_t **ledger)
{
    if (!ledger)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_ledger_create: ledger is NULL");
    hkt_ledger_t *made = calloc(1, sizeof *made);
    if (!made)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for a ledger");
    *ledger = made;
    return HKT_OK;
}

int hkt_ledger_destroy(hkt_ledger_t *ledger)
{
    if (!ledger)
        return HKT_OK;
    for (int i = 0; i < HKT_BYTES_CLASSES; i++) {
        const size_t now = atomic_load_explicit(&ledger->accounts[i].now, memory_order_relaxed);
        if (now)
            return hkt_error_set(
                HKT_ERR_USAGE,
                "hkt_ledger_destroy: %zu bytes of class \"%s\" are still out; destroy what took them first", now,
                names[i]);
    }
    free(ledger);
    return HKT_OK;
}

int hkt_ledger_take(void **memory, size_t bytes, hkt_bytes_t kind, bool shared, hkt_ledger_t *ledger)
{
    if (!memory || !known(kind))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_ledger_take: %s",
                             memory ? "kind is not one of HKT_BYTES_*" : "memory is NULL");
    if (bytes > SIZE_MAX / 2)
        return hkt_error_set(HKT_ERR_MEMORY, "hkt_ledger_take: %zu bytes are more than there can be", bytes);
    void *taken = NULL, *base = NULL;
    TRY(allocate(&taken, &base, bytes, shared));
    struct block *b = (struct block *)(void *)((char *)taken - LINE);
    *b              = (struct block){MARK, shared, kind, bytes, base, ledger};
    if (ledger)
        count(&ledger->accounts[kind], bytes);
    *memory = taken;
    return HKT_OK;
}

int hkt_ledger_give(void *memory, hkt_ledger_t *ledger)
{
    if (!memory)
        return HKT_OK;
    struct block *b = (struct block *)(void *)((char *)memory - LINE);
    if (b->mark != MARK)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_ledger_give: %p does not come from hkt_ledger_take() or was given back", memory);
    if (b->ledger != ledger)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "hkt_ledger_give: %zu bytes of class \"%s\" were taken from another ledger", b->bytes,
                             names[b->kind]);
    if (ledger)
        atomic_fetch_sub_explicit(&ledger->accounts[b->kind].now, b->bytes, memory_order_relaxed);
    b->mark = 0;
    if (b->shared)
        return hkt_mem_free(b->base);
    free(b->base);
    return HKT_OK;
}

int hkt_ledger_read(hkt_ledger_entry_t *entry, hkt_bytes_t kind, hkt_ledger_t *ledger)
{
    if (!entry || !ledger || !known(kind))
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_ledger_read: %s",
                             known(kind) ? "entry or ledger is NULL" : "kind is not one of HKT_BYTES_*");
    struct account *a = &ledger->accounts[kind];
    entry->now        = atomic_load_explicit(&a->now, memory_order_relaxed);
    entry->peak       = atomic_load_explicit(&a->peak, memory_order_relaxed);
    entry->takes      = atomic_load_explicit(&a->takes, memory_order_relaxed);
    return HKT_OK;
}

int hkt_ledger_reset_peaks(hkt_ledger_t *ledger)
{
    if (!ledger)
        return hkt_error_set(HKT_ERR_ARGUMENT, "hkt_ledger_reset_peaks: ledger is NULL");
    for (int i = 0; i < HKT_BYTES_CLASSES; i++) {
        struct account *a = &ledger->accounts[i];
        atomic_store_explicit(&a->peak, atomic_load_explicit(&a->now, memory_order_relaxed), memory_order_relaxed);
        atomic_store_explicit(&a->takes, 0, memory_order_relaxed);
    }
    return HKT_OK;
}

const char *hkt_bytes_name(hkt_bytes_t kind)
{
    return known(kind) ? names[kind] : "?";
}
