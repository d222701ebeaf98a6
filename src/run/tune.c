/* tune.c -- how a call is run. The limits of the flat algorithm are measured (bench/versus): up to them one synchronisation and one extra copy
 * beat two synchronisations and none. Which algorithm runs what is choose.c's; here plans are made of it and kept. How plain memory is copied and
 * whether results bypass the caches is learned while the program runs.
 */
#include "run/tune.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "language/dtype.h"
#include "run/choose.h"
#include "run/far.h"
#include "run/scheduled.h"
#include "run/site.h"

/* Bytes. FLAT_MAPPED: above it, two synchronisations on mapped buffers beat one and a copy, when every rank has a core;
 * FLAT_BROADCAST: the same where the root goes on at once. READ_LEAST: from such messages and blocks on, plain memory is copied by system call: one copy instead of two. */
enum { FLAT_MAPPED = 2048, FLAT_BROADCAST = 8192, FLAT_FAR = 16384, READ_LEAST = 32768 };

/* One host: a cache line takes 50 to 240 ns, a core copies about 10 GB/s and reduces a little slower. */
const struct hkt_link hkt_tune_local_link = {.alpha = 300e-9, .gap = 20e-9, .beta = 0.1e-9, .gamma = 0.05e-9};

bool hkt_tune_flat(const struct hkt_communicator *comm, const struct hkt_call *call)
{
    const size_t bytes  = comm->far ? hkt_far_flat_bytes(comm, call) : hkt_flat_bytes(comm, call);
    const size_t mapped = call->coll == HKT_COLL_BROADCAST ? FLAT_BROADCAST : FLAT_MAPPED;
    const size_t most   = comm->far ? FLAT_FAR : comm->reach == HKT_REACH_MAP && !comm->waiter.shared ? mapped : HKT_EAGER;

    return bytes <= most && (call->coll >= HKT_COLL_SCHEDULED || !hkt_choose_forced(call->coll) || !call->count);
}

/* Bytes of the vector, or of the blocks of all ranks. */
static size_t whole(const struct hkt_communicator *comm, const struct hkt_call *call, size_t block)
{
    return block * call->element * (hkt_collective[call->coll].vector ? 1 : (size_t)comm->size);
}

/* ---- experience -------------------------------------------------------------------------------------------------- */

enum { FIRST = 8, TRIES = 2, AGAIN = 256, MAGNITUDES = 64 };

static struct hkt_experience *experience(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question)
{
    const int magnitude = 63 - __builtin_clzll((call->count * call->element) | 1);

    if (!comm->experience || call->coll >= HKT_COLL_SCHEDULED)
        return NULL;
    return &comm->experience[((int)question * HKT_COLL_SCHEDULED + (int)call->coll) * MAGNITUDES + magnitude];
}

/* Before anything is known, and where ranks share cores: there a call's time is mostly the scheduler's and says nothing. Measured. */
static enum hkt_way rule(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question)
{
    const struct hkt_collective *k     = &hkt_collective[call->coll];
    const bool                   small = call->count * call->element < READ_LEAST;

    if (question == HKT_MAPPED)
        return hkt_call_traffic(call, call->count, comm->size) * call->element >= comm->nontemporal ? HKT_WAY_BYPASS : HKT_WAY_CACHE;
    return comm->waiter.shared && (k->reduces || k->vector || small) ? HKT_WAY_STAGE : HKT_WAY_READ;
}

/* What the rule says at first; then the faster, and now and then the other, more than once, since the first call finds the caches as the other
 * way has left them. */
enum hkt_way hkt_tune_way(const struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question)
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

void hkt_tune_learn(struct hkt_communicator *comm, const struct hkt_call *call, enum hkt_open_question question, enum hkt_way way, double seconds)
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

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static bool same_offer(const struct hkt_choice *c, const struct hkt_offer *o)
{
    return c->algorithm == o->algorithm && c->inner == o->inner && c->outer == o->outer;
}

static const struct hkt_plan *same_plan(const struct hkt_communicator *comm, const struct hkt_choice *key, const struct hkt_offer *o)
{
    for (uint32_t i = 0; i < comm->choices; i++) {
        const struct hkt_choice *c = &comm->choice[i];

        if (c->coll == key->coll && c->reach == key->reach && c->root == key->root && same_offer(c, o))
            return c->plan;
    }
    return NULL;
}

/* Has it been chosen for another reach or root? Then the same it is. */
static bool same_choice(const struct hkt_communicator *comm, const struct hkt_choice *key, struct hkt_offer *o)
{
    for (uint32_t i = 0; i < comm->choices; i++) {
        const struct hkt_choice *c = &comm->choice[i];

        if (c->coll == key->coll && c->magnitude == key->magnitude) {
            *o = (struct hkt_offer){.algorithm = c->algorithm, .inner = c->inner, .outer = c->outer};
            return true;
        }
    }
    return false;
}

/* The choice is one of the magnitude, not of the call that happens to come first: hosts whose buffers are reached in other ways have seen others. */
static int choose(const struct hkt_communicator *comm, const struct hkt_terms *terms, const struct hkt_choice *key, struct hkt_offer *offer)
{
    const double           bytes = 0.75 * (double)(1ULL << (key->magnitude < 63 ? key->magnitude : 63));
    const struct hkt_shape shape = {.coll = key->coll, .rank = comm->rank, .size = comm->size, .root = key->root};
    const uint64_t         since = hkt_now_ns();
    char                   reason[HKT_REASON], name[64];

    if (same_choice(comm, key, offer))
        return 0;
    HKT_TRY(hkt_choose(terms, &shape, bytes, offer, reason));
    if (comm->rank) /* all find the same */
        return 0;
    hkt_log(HKT_LOG_DEBUG, "communicator %s: %s of up to %g bytes: %s: %s (chosen in %.2f ms)", comm->name, hkt_coll_name[key->coll], bytes / 0.75,
            hkt_offer_name(offer, name), reason, (double)(hkt_now_ns() - since) * 1e-6);
    return 0;
}

static int build(struct hkt_communicator *comm, struct hkt_choice *key)
{
    const struct hkt_far  *far    = comm->far;
    const struct hkt_terms terms  = {comm->site ? comm->site->predictor : NULL, far ? far->hosts : 1, comm->order, far ? (double)hkt_scheduled_slice(comm->size) : 0};
    struct hkt_shape       shape  = {.coll = key->coll, .rank = comm->rank, .size = comm->size, .root = key->root};
    struct hkt_offer       offer;
    struct hkt_plan       *made;

    HKT_TRY(choose(comm, &terms, key, &offer));
    if (!(comm->choices & (comm->choices - 1))) { /* 0, 1, 2, 4, 8 ...: full */
        void *more = hkt_realloc(comm->choice, (comm->choices ? 2 * comm->choices : 1) * sizeof(*comm->choice));

        if (!more)
            return HKT_ERR_MEMORY;
        comm->choice = more;
    }
    key->algorithm = offer.algorithm;
    key->inner     = offer.inner;
    key->outer     = offer.outer;
    key->plan      = same_plan(comm, key, &offer);
    key->owns      = !key->plan;
    if (!key->plan) {
        shape = hkt_choose_shape(&terms, &shape, &offer);
        HKT_TRY(hkt_plan_build(&made, offer.algorithm, &shape, (struct hkt_ground){key->reach, far ? far->host : NULL}));
        key->plan = made;
    }
    comm->choice[comm->choices++] = *key;
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
