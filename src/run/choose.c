/* choose.c -- among schedules, ranks of one host take `direct`: there a message is a pointer, what counts is passes over memory, and it has the fewest
 * (docs/algorithms.md). Between hosts the schedules of all ranks are replayed on what was measured (language/cost.h), hierarchical in several
 * compositions; with more ranks than HKT_REPLAY_MOST the formulas decide. That is done once for a collective and magnitude: the plan remembers it.
 */
#include "run/choose.h"

#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "language/tuning.h"
#include "run/tune.h"
#include "setup/capability.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct hkt_algorithm *forced[HKT_COLL_SCHEDULED]; /* by HKT_ALGORITHM; written once at the start */
static struct hkt_tuning           table;                      /* of HKT_TUNING; likewise */

static void read_table(void)
{
    char hash[24];

    if (*hkt_options()->tuning && hkt_tuning_read(&table, hkt_options()->tuning) < 0)
        hkt_log(HKT_LOG_ERROR, "HKT_TUNING: %s; nothing of it is used", hkt_last_error());
    snprintf(hash, sizeof(hash), "%016" PRIx64, table.hash);
    if (table.hash)
        hkt_capability_must("HKT_TUNING, by the hash of its rules,", hash); /* ranks that choose by different tables would wait for each other */
}

/* "ring", or "all_reduce:ring;broadcast:tree". */
void hkt_choose_start(void)
{
    const char *text = hkt_options()->algorithm;
    char        name[64];

    read_table();
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

const struct hkt_algorithm *hkt_choose_forced(enum hkt_coll coll)
{
    return coll < HKT_COLL_SCHEDULED ? forced[coll] : NULL;
}

/* ---- what can run ------------------------------------------------------------------------------------------------- */

static struct hkt_question question(const struct hkt_terms *t, const struct hkt_shape *shape, double bytes)
{
    return (struct hkt_question){.coll        = shape->coll, /* the root does not matter: one choice serves all */
                                 .bytes       = bytes,
                                 .slice_bytes = t->slice_bytes,
                                 .canonical   = t->order == HKT_ORDER_CANONICAL,
                                 .formula     = shape->size > HKT_REPLAY_MOST};
}

struct hkt_shape hkt_choose_shape(const struct hkt_terms *t, const struct hkt_shape *shape, const struct hkt_offer *offer)
{
    struct hkt_question q = question(t, shape, 0);

    q.root = shape->root;
    return t->predictor ? hkt_predictor_shape(t->predictor, &q, offer, shape->rank) : *shape;
}

/* Can it run the shape, in the order asked for? */
static bool fits(const struct hkt_terms *t, const struct hkt_shape *shape, const struct hkt_offer *offer)
{
    const struct hkt_shape s = hkt_choose_shape(t, shape, offer);

    if (!offer->algorithm || hkt_algorithm_refuses(offer->algorithm, &s))
        return false;
    return t->order != HKT_ORDER_CANONICAL || hkt_algorithm_canonical(offer->algorithm, &s);
}

/* ---- what is best ------------------------------------------------------------------------------------------------- */

/* On one host where `direct` cannot run. */
static int choose_near(const struct hkt_terms *t, const struct hkt_shape *shape, double bytes, struct hkt_offer *best)
{
    const struct hkt_shape anywhere = {.coll = shape->coll, .size = shape->size};

    *best = (struct hkt_offer){0};
    for (int i = 0; hkt_algorithms[i]; i++) {
        struct hkt_offer o = {.algorithm = hkt_algorithms[i]};

        if (!fits(t, shape, &o))
            continue;
        o.formula = o.result.seconds = hkt_algorithm_cost(o.algorithm, &anywhere, bytes, &hkt_tune_local_link);
        if (!best->algorithm || o.formula < best->formula)
            *best = o;
    }
    return best->algorithm ? 0 : HKT_ERR_INTERNAL;
}

/* "direct (2 messages one after the other; ..); the next would be ring, 90 us". */
static void say_why(const struct hkt_offer *offer, int count, char reason[HKT_REASON])
{
    char name[64], why[200], time[24];
    int  n;

    n = snprintf(reason, HKT_REASON, "%s", hkt_offer_reason(&offer[0], why));
    if (count > 1 && !offer[1].why[0])
        snprintf(reason + n, HKT_REASON - (size_t)n, "; the next would be %s, %s", hkt_offer_name(&offer[1], name),
                 hkt_time_text(offer[1].result.seconds, time));
}

static int choose_far(const struct hkt_terms *t, const struct hkt_shape *shape, double bytes, struct hkt_offer *best, char reason[HKT_REASON])
{
    const struct hkt_question q = question(t, shape, bytes);
    struct hkt_offer          offer[HKT_OFFERS_MOST];
    int                       count;

    HKT_TRY(hkt_predict_all(t->predictor, &q, offer, &count));
    if (!count || offer[0].why[0])
        return HKT_ERR_INTERNAL;
    *best = offer[0];
    say_why(offer, count, reason);
    return 0;
}

int hkt_choose(const struct hkt_terms *t, const struct hkt_shape *shape, double bytes, struct hkt_offer *offer, char reason[HKT_REASON])
{
    const struct hkt_tuning_rule *rule = hkt_tuning_find(&table, shape, t->hosts, bytes);
    int                           rc   = 0;

    *offer = (struct hkt_offer){.algorithm = forced[shape->coll]};
    snprintf(reason, HKT_REASON, "HKT_ALGORITHM");
    if (fits(t, shape, offer))
        return 0;
    if (rule) {
        *offer = (struct hkt_offer){.algorithm = rule->algorithm,
                                    .inner     = rule->inner ? rule->inner->name : NULL,
                                    .outer     = rule->outer ? rule->outer->name : NULL};
        snprintf(reason, HKT_REASON, "line %d of HKT_TUNING", rule->line);
        if (fits(t, shape, offer))
            return 0;
    }
    if (t->hosts > 1) {
        rc = choose_far(t, shape, bytes, offer, reason);
    } else {
        *offer = (struct hkt_offer){.algorithm = hkt_algorithm_find("direct")};
        snprintf(reason, HKT_REASON, "on one host it passes memory least");
        if (!fits(t, shape, offer)) {
            snprintf(reason, HKT_REASON, "by formula, as direct cannot run it");
            rc = choose_near(t, shape, bytes, offer);
        }
    }
    return rc == HKT_ERR_INTERNAL ? hkt_fail(rc, "no algorithm can run %s over %d ranks", hkt_coll_name[shape->coll], shape->size) : rc;
}
