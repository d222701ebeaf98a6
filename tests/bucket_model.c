/* bucket_model.c -- see bucket_model.h. */
#include "bucket_model.h"

#include <stdio.h>
#include <string.h>

void model_make(struct model *m, size_t most)
{
    m->total = 0;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(m->name[i], sizeof m->name[i], "layer%d", i);
        m->parameter[i] = (hkt_parameter_t){m->name[i], 1 + mix((uint64_t)i) % most, 0};
        m->total += m->parameter[i].count;
    }
}

float value_of(int rank, int step, int parameter, size_t element, bool integer)
{
    const uint64_t x = mix(mix((uint64_t)rank * 1000 + (uint64_t)step) + (uint64_t)parameter * 65536 + element);

    return integer ? (float)(x % 17) - 8 : ((float)(x % 1000003) - 500000) * 0x1p-21f * (float)(1 + x % 7);
}

void fill_gradient(hkt_buckets_t *b, const struct model *m, int parameter, const int *at, bool integer)
{
    void  *gradient;
    float *g;

    expect_ok(hkt_buckets_gradient(&gradient, parameter, b));
    g = gradient;
    for (size_t i = 0; i < m->parameter[parameter].count; i++)
        g[i] += value_of(at[0], at[1], parameter, i, integer);
}

void whole(float *out, hkt_buckets_t *b, const struct model *m, int parameter, hkt_comm_t *comm)
{
    hkt_reduced_t r;

    memset(out, 0, m->parameter[parameter].count * sizeof *out);
    expect_ok(hkt_buckets_reduced(&r, parameter, b));
    if (r.count)
        memcpy(out + r.first, r.values, r.count * sizeof *out);
    if (r.count < m->parameter[parameter].count || comm)
        expect_ok(hkt_all_reduce(out, out, m->parameter[parameter].count, HKT_FLOAT32, HKT_SUM, comm, NULL));
}
