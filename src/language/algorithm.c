/* algorithm.c -- the table of algorithms, generated from ALGORITHM_SOURCES in Makefile.am, and questions to it. */
#include "algorithm.h"

#include "base/error.h"

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

/* The place that a rank takes. */
static int place_of(const struct hkt_shape *shape, int rank)
{
    int place = 0;

    while (shape->label[place] != rank)
        place++;
    return place;
}

/* The shape as the algorithm sees it. */
static struct hkt_shape places_of(const struct hkt_shape *shape)
{
    struct hkt_shape places = *shape;

    if (shape->label) {
        places.rank  = place_of(shape, shape->rank);
        places.root  = hkt_coll_in(shape->coll, HKT_COLLS_ROOTED) ? place_of(shape, shape->root) : 0;
        places.label = NULL;
    }
    return places;
}

const char *hkt_algorithm_refuses(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    struct hkt_shape places;

    if (!hkt_coll_in(shape->coll, a->colls))
        return "it does not do this collective";
    if (!a->refuse)
        return NULL;
    places = places_of(shape);
    return a->refuse(&places);
}

bool hkt_algorithm_canonical(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    if (!hkt_coll_in(shape->coll, HKT_COLLS_REDUCING))
        return true;
    return !shape->label && (hkt_coll_in(shape->coll, a->canonical) || (a->canonical_for && a->canonical_for(shape)));
}

double hkt_algorithm_cost(const struct hkt_algorithm *a, const struct hkt_shape *shape, double bytes, const struct hkt_link *link)
{
    const struct hkt_shape places = places_of(shape);

    return a->cost(&places, bytes, link);
}

uint64_t hkt_algorithm_sent(const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    const struct hkt_shape places = places_of(shape);

    return a->sent(&places);
}

/* Do chunks of the place stand in blocks of all ranks? The others have the vector, or one rank's own block. */
static bool has_blocks(enum hkt_coll coll, enum hkt_place place)
{
    enum {
        IN_BLOCKS  = HKT_COLL_BIT(REDUCE_SCATTER) | HKT_COLL_BIT(SCATTER) | HKT_COLL_BIT(ALL_TO_ALL),
        OUT_BLOCKS = HKT_COLL_BIT(ALL_GATHER) | HKT_COLL_BIT(GATHER) | HKT_COLL_BIT(ALL_TO_ALL)
    };

    return (place == HKT_IN && hkt_coll_in(coll, IN_BLOCKS)) || (place == HKT_OUT && hkt_coll_in(coll, OUT_BLOCKS));
}

int hkt_schedule_build(struct hkt_schedule *s, const struct hkt_algorithm *a, const struct hkt_shape *shape)
{
    const struct hkt_shape places = places_of(shape);

    HKT_TRY(a->build(s, &places));
    for (uint32_t i = 0; shape->label && i < s->noperands; i++) {
        struct hkt_operand *o = &s->operand[i];

        if (o->place == HKT_PEER)
            o->id = (uint32_t)shape->label[o->id];
        else if (has_blocks(shape->coll, (enum hkt_place)o->place))
            o->id = (uint32_t)shape->label[o->id / s->chunks] * s->chunks + o->id % s->chunks;
    }
    return 0;
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
