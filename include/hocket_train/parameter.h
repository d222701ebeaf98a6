/* parameter.h -- what the layer has to know about the tensors of a model. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_PARAMETER_H
#define HOCKET_TRAIN_PARAMETER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the layer has to know about one tensor of a model. Owned by the caller; names must outlive the handles made from them. */
typedef struct {
    const char *name;
    size_t      count; /* elements on this rank */
    unsigned    flags; /* HKT_PARAMETER_* */
} hkt_parameter_t;

enum {
    HKT_PARAMETER_NO_DECAY   = 1, /* biases and norms: no weight decay */
    HKT_PARAMETER_REPLICATED = 2, /* the same on all tensor-parallel ranks: counted once in norms */
    HKT_PARAMETER_SHARED     = 4, /* also on another pipeline stage (tied embedding): a bucket of its own */
    HKT_PARAMETER_COPY       = 8  /* the second copy of a shared one: counted on the other stage */
};

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_PARAMETER_H */
