/* common.h -- what several parts of the training layer need and the core does not export. */
#ifndef PARALLEL_COMMON_H
#define PARALLEL_COMMON_H

#include <hocket_train.h>

/* Passes an error on. Only where nothing is to be undone. */
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        const int rc_ = (expr);                                                                                        \
        if (rc_ < 0)                                                                                                   \
            return rc_;                                                                                                \
    } while (0)

#endif
