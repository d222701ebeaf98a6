/* ledger.h -- memory counted by what it is for. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_LEDGER_H
#define HOCKET_TRAIN_LEDGER_H

#include <hocket.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes by what they are for, exactly as asked for (no rounding), so that formulas can be checked to the byte. Any thread. */
typedef enum {
    HKT_BYTES_PARAMETER = 0, /* weights in the type of computation */
    HKT_BYTES_GRADIENT,
    HKT_BYTES_OPTIMIZER,     /* moments and master weights */
    HKT_BYTES_ACTIVATION,
    HKT_BYTES_COMMUNICATION, /* staging, codecs' error feedback and the like */
    HKT_BYTES_OTHER,
    HKT_BYTES_CLASSES
} hkt_bytes_t;

typedef struct hkt_ledger hkt_ledger_t;

HKT_API int hkt_ledger_create(hkt_ledger_t **ledger);
HKT_API int hkt_ledger_destroy(hkt_ledger_t *ledger); /* HKT_ERR_USAGE, naming class and bytes, while memory is out; NULL is allowed */

/* Zeroed memory of `bytes` (aligned to 64; `shared`: from hkt_mem_alloc(), for what is communicated), counted in `kind`. A
 * NULL ledger counts nothing. Zero bytes give a pointer, too. Give it back to the same ledger; NULL is allowed there. */
HKT_API int hkt_ledger_take(void **memory, size_t bytes, hkt_bytes_t kind, bool shared, hkt_ledger_t *ledger);
HKT_API int hkt_ledger_give(void *memory, hkt_ledger_t *ledger);

/* Bytes of a class that are out now, the most that ever were at once, and how often memory was taken. */
typedef struct { size_t now, peak, takes; } hkt_ledger_entry_t;
HKT_API int hkt_ledger_read(hkt_ledger_entry_t *entry, hkt_bytes_t kind, hkt_ledger_t *ledger);
HKT_API int hkt_ledger_reset_peaks(hkt_ledger_t *ledger);     /* peak = now, takes = 0 */
HKT_API const char *hkt_bytes_name(hkt_bytes_t kind);         /* "parameters"; "?" when it is no class */

/* Uses all the memory of `comm` through which small data pass, so that later calls fault no page in. Collective; NULL is allowed. */
HKT_API int hkt_comm_touch(hkt_comm_t *comm);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_LEDGER_H */
