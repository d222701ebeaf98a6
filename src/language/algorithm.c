/* algorithm.c -- the table of algorithms, generated from ALGORITHM_SOURCES in Makefile.am, and questions to it. */
#include "algorithm.h"

#include <string.h>

const char *const hkt_coll_name[HKT_COLLS] = {
    [HKT_COLL_ALL_REDUCE]     = "all_reduce",
    [HKT_COLL_REDUCE_SCATTER] = "reduce_scatter",
    [HKT_COLL_ALL_GATHER]     = "all_gather",
    [HKT_COLL_REDUCE]         = "reduce",
    [HKT_COLL_BROADCAST]      = "broadcast",
    [HKT_COLL_GATHER]         = "gather",
    [HKT_COLL_SCATTER]        = "scatter",
    [HKT_COLL_ALL_TO_ALL]     = "all_to_all",
    [HKT_COLL_BARRIER]        = "barrier",
    [HKT_COLL_SEND]           = "send",
    [HKT_COLL_RECV]           = "recv",
    [HKT_COLL_SPLIT]          = "split",
};

#define X(name) extern const struct hkt_algorithm hkt_algorithm_##name;
#include "algorithms.list"
#undef X

const struct hkt_algorithm *const hkt_algorithms[] = {
#define X(name) &hkt_algorithm_##name,
#include "algorithms.list"
#undef X
    NULL,
};

const struct hkt_algorithm *hkt_algorithm_find(const char *name)
{
    for (const struct hkt_algorithm *const *a = hkt_algorithms; *a; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}

const char *hkt_algorithm_refuses(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    if (!hkt_coll_in(shape->coll, a->colls))
        return "it does not do this collective";
    return a->refuse ? a->refuse(shape) : NULL;
}

bool hkt_algorithm_canonical(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    return !hkt_coll_in(shape->coll, HKT_COLLS_REDUCING) || hkt_coll_in(shape->coll, a->canonical) ||
           (a->canonical_for && a->canonical_for(shape));
}

const char *hkt_refuse_wide(const struct hkt_shape *shape)
{
    return shape->size > UINT16_MAX ? "a step would need more than 65535 operands" : NULL;
}

const char *hkt_refuse_radix(const struct hkt_shape *shape)
{
    if (shape->radix < 0 || shape->radix == 1)
        return "the radix must be 2 or more";
    return shape->radix > UINT16_MAX ? "the radix is above 65535" : NULL;
}

int hkt_schedule_alone(struct hkt_schedule *s, const struct hkt_shape *shape)
{
    s->chunks = 1;
    hkt_step(s, hkt_coll_in(shape->coll, HKT_COLLS_REDUCING) ? HKT_STEP_FINISH : 0);
    hkt_from(s, HKT_IN, 0);
    hkt_to(s, HKT_OUT, 0);
    return hkt_schedule_end(s);
}
