/* info_plan.c -- hkt-info --algorithms and --plan: what the cost model says and what the engine would do, asked from
 * the code that decides it when a call is made (run/tune.h, run/plan.h). */
#include "info.h"

#include "language/dtype.h"
#include "run/choose.h"
#include "run/operation.h"
#include "run/plan.h"
#include "run/tune.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 /* algorithms, and steps that are listed */ };

struct offer {
    const struct hkt_algorithm *algorithm;
    double                      cost;
    bool                        keeps_order;
};

static int by_cost(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;

    return (x->cost > y->cost) - (x->cost < y->cost);
}

static int find_offers(const struct hkt_shape *shape, double bytes, struct offer *offer)
{
    int n = 0;

    for (int i = 0; hkt_algorithms[i] && n < MOST; i++) {
        const struct hkt_algorithm *a = hkt_algorithms[i];

        if (!hkt_algorithm_refuses(a, shape))
            offer[n++] =
                (struct offer){a, hkt_algorithm_cost(a, shape, bytes, &hkt_tune_local_link), hkt_algorithm_canonical(a, shape)};
    }
    qsort(offer, (size_t)n, sizeof(*offer), by_cost);
    return n;
}

/* Does the call run flat, without a schedule? */
static bool runs_flat(const struct hkt_shape *shape, size_t bytes)
{
    const struct hkt_communicator comm   = {.size = shape->size};
    const size_t                  blocks = hkt_coll_in(shape->coll, HKT_COLLS_VECTOR) ? 1 : (size_t)shape->size;
    const struct hkt_call         call   = {
                  .coll = shape->coll, .type = HKT_UINT8, .count = (bytes + blocks - 1) / blocks, .root = shape->root};

    return hkt_tune_flat(&comm, &call);
}

static int choose(const struct hkt_shape *shape, double bytes, hkt_order_t order, struct hkt_offer *offer, char reason[HKT_REASON])
{
    return hkt_choose(&(struct hkt_terms){.hosts = 1, .order = order}, shape, bytes, offer, reason);
}

static void print_offers(const struct hkt_shape *shape, double bytes, hkt_order_t order)
{
    struct hkt_offer            picked;
    char                        reason[HKT_REASON], time[32];
    const struct hkt_algorithm *chosen = choose(shape, bytes, order, &picked, reason) ? NULL : picked.algorithm;
    struct offer                offer[MOST];
    const int                   n = find_offers(shape, bytes, offer);

    for (int i = 0; i < n; i++)
        printf("  %c %-14s %12s   %-12s %s\n", offer[i].algorithm == chosen ? '*' : ' ', offer[i].algorithm->name,
               info_seconds(offer[i].cost, time), offer[i].keeps_order ? "" : "other order", offer[i].algorithm->desc);
    for (int i = 0; hkt_algorithms[i]; i++) {
        const char *why =
            hkt_coll_in(shape->coll, hkt_algorithms[i]->colls) ? hkt_algorithm_refuses(hkt_algorithms[i], shape) : NULL;

        if (why)
            printf("    %-14s %12s   %-12s cannot: %s\n", hkt_algorithms[i]->name, "-", "", why);
    }
}

int info_algorithms(const struct hkt_shape *shape, size_t bytes, hkt_order_t order)
{
    struct hkt_shape one = *shape;
    char             text[32];

    printf("%d ranks on one machine, %s, cost by formula; * is chosen%s\n", shape->size,
           info_bytes((double)bytes, text), order == HKT_ORDER_CANONICAL ? " (canonical order)" : " (any order)");
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++) {
        one.coll = (enum hkt_coll)coll;
        printf("\n%s%s\n", hkt_coll_name[coll],
               runs_flat(&one, bytes) ? "   (so small a call runs flat, without a schedule)" : "");
        print_offers(&one, (double)bytes, order);
    }
    return 0;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void print_operand(const struct hkt_bound *at, const char *before)
{
    static const char *const home[] = {[HKT_HOME_IN] = "in", [HKT_HOME_OUT] = "out", [HKT_HOME_SLOT] = "slot"};

    printf("%s%s[%u] of %u%s", before, home[at->home], at->id, at->rank, at->copy ? " (copied)" : "");
}

static void print_step(const struct hkt_plan *plan, uint32_t i)
{
    static const char *const forms[]  = {[HKT_RAW] = "input", [HKT_PARTIAL] = "partial", [HKT_FINISHED] = "finished"};
    const struct hkt_bound_step *step = &plan->step[i];
    const struct hkt_bound      *at   = plan->operand + step->first;

    printf("  %3u ", i + 1);
    for (uint32_t w = 0; w < step->nwait; w++)
        printf("%s%u.%u%s", w ? ", " : "wait for ", plan->wait[step->wait + w].rank, plan->wait[step->wait + w].steps,
               w + 1 == step->nwait ? "; " : "");
    for (uint32_t k = step->nsrc; k < (uint32_t)step->nsrc + step->ndst; k++)
        print_operand(&at[k], k > step->nsrc ? ", " : "");
    printf(" <- ");
    for (uint32_t k = 0; k < step->nsrc; k++)
        print_operand(&at[k], k ? " + " : "");
    printf(" (%s)%s\n", forms[step->out], step->publish ? ", tell" : "");
}

static int print_plan(const struct hkt_algorithm *a, const struct hkt_shape *shape, enum hkt_reach reach)
{
    struct hkt_plan *plan;

    if (hkt_plan_build(&plan, a, shape, (struct hkt_ground){reach, NULL})) {
        fprintf(stderr, "hkt-info: %s\n", hkt_last_error());
        return 1;
    }
    printf("\nbuffers reached by \"%s\": %u chunks, %u steps of rank %d, %u waits at the end, %u staging slots\n",
           hkt_reach_name[reach], plan->chunks, plan->nsteps, shape->rank, plan->nlast, plan->slots);
    for (uint32_t i = 0; i < plan->nsteps && i < MOST; i++)
        print_step(plan, i);
    if (plan->nsteps > MOST)
        printf("  ... and %u more\n", plan->nsteps - MOST);
    hkt_plan_free(plan);
    return 0;
}

int info_plan(const struct hkt_shape *shape, size_t bytes, hkt_order_t order)
{
    struct hkt_offer offer;
    char             text[32], reason[HKT_REASON];
    const int        chosen = choose(shape, (double)bytes, order, &offer, reason);
    int              rc     = 0;

    printf("%s of %s over %d ranks on one machine\n", hkt_coll_name[shape->coll], info_bytes((double)bytes, text),
           shape->size);
    if (runs_flat(shape, bytes)) {
        printf("runs flat: every rank shows its data in shared memory and takes what it needs (up to %s)\n",
               info_bytes(HKT_EAGER, text));
        return 0;
    }
    if (chosen) {
        printf("no algorithm can run it\n");
        return 1;
    }
    printf("runs %s: %s\nby: %s\n\n", offer.algorithm->name, offer.algorithm->desc, reason);
    print_offers(shape, (double)bytes, order);
    for (int reach = 0; reach < HKT_REACHES && !rc; reach++)
        rc = print_plan(offer.algorithm, shape, (enum hkt_reach)reach);
    return rc;
}
