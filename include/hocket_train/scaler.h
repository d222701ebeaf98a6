/* scaler.h -- loss scaling that all ranks agree on. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_SCALER_H
#define HOCKET_TRAIN_SCALER_H

#include <hocket.h>
#include <hocket_train/zero.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps small gradients of 16-bit floats above zero: the loss is multiplied by a scale, the gradients are divided by it again.
 * Dynamic: the rule of Megatron-LM. After `hysteresis` overflows the scale is multiplied by `backoff` (again by each further
 * overflow, until it grows); after `interval` steps without one it is multiplied by `growth`, and only then the hysteresis is
 * refilled. A step that overflowed is skipped: neither the step count nor the learning rate advances. */
typedef struct hkt_scaler hkt_scaler_t;

typedef struct {
    size_t size;       /* sizeof(hkt_scaler_config_t), set by HKT_SCALER_CONFIG_INIT */
    bool   dynamic;    /* false: always `initial` */
    double initial, least, growth, backoff;
    int    interval, hysteresis;
    int    patience;   /* so many skipped steps in a row at the least scale (static: at all) end it; 0: never */
} hkt_scaler_config_t;
#define HKT_SCALER_CONFIG_INIT { sizeof(hkt_scaler_config_t), true, 4294967296.0, 1.0, 2.0, 0.5, 1000, 2, 50 }

HKT_API int hkt_scaler_create(hkt_scaler_t **scaler, const hkt_scaler_config_t *config); /* NULL: the defaults */
HKT_API int hkt_scaler_destroy(hkt_scaler_t *scaler); /* NULL is allowed */
HKT_API double hkt_scaler_scale(const hkt_scaler_t *scaler); /* what to multiply the next loss by */

/* Ends a step. `overflow` must be the same on every rank (hkt_zero_step() and hkt_scaler_agree() see to that); `tensor` is where
 * it was seen first, or NULL. HKT_ERR_USAGE, naming the tensor, when patience has run out. */
HKT_API int hkt_scaler_update(hkt_scaler_t *scaler, bool overflow, const char *tensor);

/* What a checkpoint has to keep. Setting refuses numbers that no scaler of this configuration can have. */
typedef struct {
    double   scale;
    int      growth, hysteresis; /* steps without overflow; overflows that are still free */
    int      stuck;              /* skipped in a row at the least scale */
    uint64_t skipped;            /* in all */
} hkt_scaler_state_t;
HKT_API int hkt_scaler_get(hkt_scaler_state_t *state, const hkt_scaler_t *scaler);
HKT_API int hkt_scaler_set(hkt_scaler_t *scaler, const hkt_scaler_state_t *state);

/* The first of `count` elements that is infinite or not a number: its index, or `count`. Float types only. Pure. */
HKT_API int hkt_find_nonfinite(size_t *index, const void *values, size_t count, hkt_type_t type);

/* Makes all ranks of `comm` (NULL: this one alone) agree on whether some rank `saw` an overflow, and where: what the highest such
 * rank says, because backward passes begin on the last stage. `tensor` and `element` are of interest where it saw one. Collective. */
HKT_API int hkt_scaler_agree(hkt_overflow_t *overflow, bool saw, const char *tensor, size_t element, hkt_comm_t *comm);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_SCALER_H */
