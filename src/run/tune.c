/* tune.c -- choosing. The limits of the flat algorithm are measured (bench/versus): up to them one synchronisation and one extra copy
 * beat two synchronisations and none. Among schedules, ranks of one host take `direct`: there a message is a pointer, what counts is
 * passes over memory, and it has the fewest (docs/algorithms.md). Where that cannot run, the algorithms' cost functions decide. How plain
 * memory is copied and whether results bypass the caches is learned while the program runs.
 */
#include "run/tune.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "language/dtype.h"
#include "language/tuning.h"
#include "run/far.h"
#include "setup/capability.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes. FLAT_MAPPED: above it, two synchronisations on mapped buffers beat one and a copy, when every rank has a core;
 * FLAT_BROADCAST: the same where the root goes on at once. READ_LEAST: from such messages and blocks on, plain memory is copied by system call: one copy instead of two. */
enum { FLAT_MAPPED = 2048, FLAT_BROADCAST = 8192, READ_LEAST = 32768 };

/* One host: a cache line takes 50 to 240 ns, a core copies about 10 GB/s and reduces a little slower. */
const struct hkt_link hkt_tune_local_link = {.alpha = 300e-9, .gap = 20e-9, .beta = 0.1e-9, .gamma = 0.05e-9};

static const struct hkt_algorithm *forced[HKT_COLL_SCHEDULED]; /* by HKT_ALGORITHM; written once at the start */
static struct hkt_tuning           table;                      /* of HKT_TUNING; likewise */

/* "ring", or "all_reduce:ring;broadcast:tree". */
void hkt_tune_start(void)
{
    const char *text = hkt_options()->algorithm;
    char        name[64];

    if (*hkt_options()->tuning && hkt_tuning_read(&table, hkt_options()->tuning) < 0)
        hkt_log(HKT_LOG_ERROR, "HKT_TUNING: %s; nothing of it is used", hkt_last_error());
    snprintf(name, sizeof(name), "%016" PRIx64, table.hash);
    if (table.hash)
        hkt_capability_must("HKT_TUNING, by the hash of its rules,", name); /* ranks that choose by different tables would wait for each other */
    while (*text) {
        const size_t                n = strcspn(text, ";");
        const struct hkt_algorithm *a;
        char                       *colon;

        snprintf(name, sizeof(name), "%.*s", (int)n, text);
        colon = strchr(name, ':');
        a     = hkt_algorithm_find(colon ? colon + 1 : name);
        if (!a)
            hkt_log(HKT_LOG_ERROR, "HKT_ALGORITHM: there is no algorithm %s; hkt-info --algorithms lists them", colon ? colon + 1 : name);
        if (colon)
            *colon = 0;
        for (int k = 0; k < HKT_COLL_SCHEDULED; k++)
            if (!colon || !strcmp(name, hkt_coll_name[k]))
                forced[k] = a;
        text += n + (text[n] == ';');
    }
}

bool hkt_tune_flat(const struct hkt_communicator *comm, const struct hkt_call *call)
{
    const size_t bytes  = hkt_flat_bytes(comm, call);
    const size_t mapped = call->coll == HKT_COLL_BROADCAST ? FLAT_BROADCAST : FLAT_MAPPED;
    const size_t most   = comm->reach == HKT_REACH_MAP && !comm->waiter.shared ? mapped : HKT_EAGER;

    return bytes <= most && (call->coll >= HKT_COLL_SCHEDULED || !forced[call->coll] || !call->count);
}

/* Bytes of the vector, or of the blocks of all ranks. */
static size_t whole(const struct hkt_communicator *comm, const struct hkt_call *call, size_t block)
{
    return block * call->element * (hkt_collective[call->coll].vector ? 1 : (size_t)comm->size);
}

/* ---- experience -------------------------------------------------------------------------------------------------- */

enum { FIRST = 8, TRIES = 2, AGAIN = 256, MAGNITUDES = 64 };

static struct hkt_experience *experience(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_question question)
{
    const int magnitude = 63 - __builtin_clzll((call->count * call->element) | 1);

    if (!comm->experience || call->coll >= HKT_COLL_SCHEDULED)
        return NULL;
    return &comm->experience[((int)question * HKT_COLL_SCHEDULED + (int)call->coll) * MAGNITUDES + magnitude];
}

/* Before anything is known, and where ranks share cores: there a call's time is mostly the scheduler's and says nothing. Measured. */
static enum hkt_way rule(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_question question)
{
    const struct hkt_collective *k     = &hkt_collective[call->coll];
    const bool                   small = call->count * call->element < READ_LEAST;

    if (question == HKT_MAPPED)
        return hkt_call_traffic(call, call->count, comm->size) * call->element >= comm->nontemporal ? HKT_WAY_BYPASS : HKT_WAY_CACHE;
    return comm->waiter.shared && (k->reduces || k->vector || small) ? HKT_WAY_STAGE : HKT_WAY_READ;
}

/* What the rule says at first; then the faster, and now and then the other, more than once, since the first call finds the caches as the other
 * way has left them. */
enum hkt_way hkt_tune_way(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_question question)
{
    const struct hkt_experience *e    = experience(comm, call, question);
    enum hkt_way                 best = rule(comm, call, question);

    if (!e || !e->calls)
        return best;
    if (e->seconds[0] > 0 && e->seconds[1] > 0)
        best = e->seconds[1] < e->seconds[0] ? 1 : 0;
    return e->calls % AGAIN - FIRST < TRIES ? 1 - best : best;
}

bool hkt_tune_learns(const struct hkt_communicator *comm, enum hkt_reach reach, size_t traffic)
{
    if (comm->far || comm->rank || comm->waiter.shared || reach == HKT_REACH_STAGE)
        return false;
    return reach == HKT_REACH_READ || (!hkt_options()->nontemporal && traffic >= comm->nontemporal / 4);
}

void hkt_tune_learn(struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_question question, enum hkt_way way, double seconds)
{
    struct hkt_experience *e;
    float                 *known;

    if (!comm->experience)
        comm->experience = hkt_alloc(HKT_QUESTIONS * HKT_COLL_SCHEDULED * MAGNITUDES * sizeof(*comm->experience));
    e = experience(comm, call, question);
    if (!e)
        return;
    known = &e->seconds[way];
    if (*known <= 0 || (float)seconds < *known)
        *known = (float)seconds;
    else /* forget slowly: cores move, and a low time may have been luck */
        *known += ((float)seconds - *known) / 16;
    e->calls++;
}

enum hkt_reach hkt_tune_message(enum hkt_reach reach, size_t bytes)
{
    return bytes < (reach == HKT_REACH_MAP ? FLAT_MAPPED : READ_LEAST) ? HKT_REACH_STAGE : reach;
}

/* Can it run the shape, in the order asked for? */
static bool fits(const struct hkt_algorithm *a, const struct hkt_shape *shape, hkt_order_t order)
{
    if (!a || hkt_algorithm_refuses(a, shape))
        return false;
    return order != HKT_ORDER_CANONICAL || !hkt_collective[shape->coll].reduces || hkt_algorithm_canonical(a, shape);
}

/* Seconds over `hosts` hosts, the same for all ranks. All ranks of a host send by the one link it has; what an algorithm that knows
 * of no hosts sends may all go from host to host. */
static double cost_over(const struct hkt_algorithm *a, const struct hkt_shape *shape, double bytes, struct hkt_hosts over)
{
    const bool       knows    = shape->ngroups > 1 && !strcmp(a->name, "hierarchical");
    struct hkt_link  link     = over.hosts < 2 ? hkt_tune_local_link : *over.link;
    struct hkt_link  near     = over.hosts < 2 ? hkt_tune_local_link : *over.near;
    struct hkt_shape anywhere = *shape;

    anywhere.rank = anywhere.root;
    if (over.hosts > 1)
        link.beta *= (double)shape->size / over.hosts;
    near.outer = &link;
    return a->cost(&anywhere, bytes, knows ? &near : &link);
}

/* Steps run in order, so a rank that waits for one block does not send the next: where rounds have many blocks the formulas count a latency a
 * round, but the engine pays one a block (docs/simulator.md: 64 ranks, 1 MiB: circulant 417 us instead of 190). Between hosts these are not taken. */
static bool pays_per_block(const struct hkt_algorithm *a)
{
    static const char *const names[] = {"circulant", "halving", "bruck", "tree", "pat"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(a->name, names[i]))
            return true;
    return false;
}

const struct hkt_algorithm *hkt_tune_choose(const struct hkt_shape *shape, double bytes, hkt_order_t order, struct hkt_hosts over)
{
    const struct hkt_tuning_rule *rule  = hkt_tuning_find(&table, shape, over.hosts, bytes);
    const struct hkt_algorithm   *best  = hkt_algorithm_find("direct");
    double                        least = 0;

    if (fits(forced[shape->coll], shape, order))
        return forced[shape->coll];
    if (rule && fits(rule->algorithm, shape, order))
        return rule->algorithm;
    if (over.hosts < 2 && fits(best, shape, order))
        return best;
    best = NULL;
    for (int i = 0; hkt_algorithms[i]; i++) {
        double cost;

        if (!fits(hkt_algorithms[i], shape, order) || (over.hosts > 1 && pays_per_block(hkt_algorithms[i])))
            continue;
        cost = cost_over(hkt_algorithms[i], shape, bytes, over);
        if (!best || cost < least) {
            best  = hkt_algorithms[i];
            least = cost;
        }
    }
    return best;
}

static const struct hkt_plan *same_plan(const struct hkt_communicator *comm, const struct hkt_choice *key, const struct hkt_algorithm *a)
{
    for (uint32_t i = 0; i < comm->choices; i++) {
        const struct hkt_choice *c = &comm->choice[i];

        if (c->coll == key->coll && c->reach == key->reach && c->root == key->root && c->plan->algorithm == a)
            return c->plan;
    }
    return NULL;
}

/* The choice is one of the magnitude, not of the call that happens to come first: hosts whose buffers are reached in other ways have seen others. */
static int build(struct hkt_communicator *comm, struct hkt_choice *key)
{
    const double           bytes = 0.75 * (double)(1ULL << (key->magnitude < 63 ? key->magnitude : 63));
    const struct hkt_far  *far   = comm->far;
    const struct hkt_shape shape = {.coll        = key->coll,
                                    .rank        = comm->rank,
                                    .size        = comm->size,
                                    .root        = key->root,
                                    .ngroups     = far && far->group ? far->hosts : 0,
                                    .group_start = far ? far->group : NULL};
    const struct hkt_ground ground = {key->reach, far ? far->host : NULL};
    const struct hkt_algorithm *a = hkt_tune_choose(&shape, bytes, comm->order, far ? (struct hkt_hosts){far->hosts, &far->link, &far->near} : (struct hkt_hosts){1, NULL, NULL});
    struct hkt_plan            *made;

    if (!a)
        return hkt_fail(HKT_ERR_INTERNAL, "no algorithm can run %s over %d ranks", hkt_coll_name[key->coll], comm->size);
    if (!(comm->choices & (comm->choices - 1))) { /* 0, 1, 2, 4, 8 ...: full */
        void *more = hkt_realloc(comm->choice, (comm->choices ? 2 * comm->choices : 1) * sizeof(*comm->choice));

        if (!more)
            return HKT_ERR_MEMORY;
        comm->choice = more;
    }
    key->plan = same_plan(comm, key, a);
    key->owns = !key->plan;
    if (!key->plan) {
        HKT_TRY(hkt_plan_build(&made, a, &shape, ground));
        key->plan = made;
    }
    comm->choice[comm->choices++] = *key;
    hkt_log(HKT_LOG_DEBUG, "communicator %s: %s of up to %g bytes: %s", comm->name, hkt_coll_name[key->coll], bytes / 0.75, a->name);
    return 0;
}

int hkt_tune_plan(struct hkt_communicator *comm, const struct hkt_call *call, struct hkt_request request, const struct hkt_plan **plan)
{
    const enum hkt_coll coll  = call->coll == HKT_COLL_SPLIT     ? HKT_COLL_ALL_GATHER
                                : call->coll == HKT_COLL_BARRIER ? HKT_COLL_ALL_REDUCE
                                                                 : call->coll;
    const size_t        bytes = whole(comm, call, request.block);
    struct hkt_choice   key   = {.coll = (uint8_t)coll, .reach = (uint8_t)request.reach, .root = call->root};

    if (request.reach == HKT_REACH_READ && request.way == HKT_WAY_STAGE)
        key.reach = HKT_REACH_STAGE;
    key.magnitude = (uint8_t)(64 - __builtin_clzll(bytes | 1));
    for (uint32_t i = 0; i < comm->choices; i++) {
        const struct hkt_choice *c = &comm->choice[i];

        if (c->coll == key.coll && c->reach == key.reach && c->root == key.root && c->magnitude == key.magnitude) {
            *plan = c->plan;
            return 0;
        }
    }
    HKT_TRY(build(comm, &key));
    *plan = key.plan;
    return 0;
}

void hkt_tune_free(struct hkt_communicator *comm)
{
    for (uint32_t i = 0; i < comm->choices; i++)
        if (comm->choice[i].owns)
            hkt_plan_free((struct hkt_plan *)(uintptr_t)comm->choice[i].plan);
    hkt_free(comm->choice);
    hkt_free(comm->experience);
}
