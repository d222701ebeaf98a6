/* bucket_model.h -- a list of parameters of odd sizes and gradients for them, for the suites of the buckets. */
#ifndef TEST_BUCKET_MODEL_H
#define TEST_BUCKET_MODEL_H

#include "harness.h"

#include <hocket_train.h>

enum { MANY = 40, STEPS = 4 };

struct model {
    hkt_parameter_t parameter[MANY];
    char            name[MANY][16];
    size_t          total;
};

void model_make(struct model *m, size_t most); /* sizes from 1 to most */

/* A gradient that is a small integer, or a fraction whose sums round. */
float value_of(int rank, int step, int parameter, size_t element, bool integer);

/* Adds that of rank at[0] and step at[1] to the parameter's gradient. */
void fill_gradient(hkt_buckets_t *b, const struct model *m, int parameter, const int *at, bool integer);

/* All of a parameter's reduced gradient, with the pieces of the ranks of comm (NULL: this rank has all). */
void whole(float *out, hkt_buckets_t *b, const struct model *m, int parameter, hkt_comm_t *comm);

#endif
