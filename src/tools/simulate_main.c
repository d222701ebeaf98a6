/* simulate_main.c -- hkt-simulate: flags, the fabric they describe, the runs. */
#include "flags.h"
#include "simulate.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *algorithm, *collective, *fabric, *inner, *outer, *tuning, *json, *svg, *timeline;
    long        ranks, per_host, root, rails, per_cache, per_leaf, depth, window, slices, start, fanout, trips, gathers;
    size_t      begin, end, entry;
    double      factor, oversubscription, spine, bus, socket, reduce, copy, accept, message;
    double      latency[HKT_SPANS], overhead[HKT_SPANS], gap[HKT_SPANS], bandwidth[HKT_SPANS], touch[HKT_SPANS];
    bool        choose, canonical, measure, list, run;
} set = {.algorithm  = "all",
         .collective = "all_reduce",
         .fabric     = "ib-ndr",
         .begin      = 1024,
         .end        = 1 << 26,
         .factor     = 16,
         .rails      = -1,
         .per_cache  = -1,
         .per_leaf   = -1,
         .depth      = -1,
         .fanout     = 16,
         .trips      = 2,
         .gathers    = 2,
         .entry      = 64,
         .accept     = 140,
         .message    = 10};

#define MICRO 1e6
#define GIGA  1e9
#define WIRE(span, index)                                                                                              \
    {0, span "-latency", FLAG_NUMBER, &set.latency[index], 0, MICRO, "US", "One way; 0: the fabric's, here and below."}, \
        {0, span "-overhead", FLAG_NUMBER, &set.overhead[index], 0, MICRO, "US", "A processor's time for a message."}, \
        {0, span "-gap", FLAG_NUMBER, &set.gap[index], 0, MICRO, "US", "Between messages of one port."},               \
        {0, span "-bandwidth", FLAG_NUMBER, &set.bandwidth[index], 0, 1e6, "GB/s", "Of a port or card, each direction."}, \
        {0, span "-touch", FLAG_NUMBER, &set.touch[index], 0, 1e6, "GB/s", "At which the sending processor moves bytes."}

static const struct flag rows[] = {
    {'a', "algorithm", FLAG_TEXT, &set.algorithm, 0, 0, "NAME", "Which; all: every one that can."},
    {'c', "collective", FLAG_TEXT, &set.collective, 0, 0, "NAME", "Which."},
    {'n', "ranks", FLAG_INTEGER, &set.ranks, 1, 1 << 24, "N", "Ranks; without it, as many as the fabric has."},
    {'b', "begin", FLAG_BYTES, &set.begin, 1, 1e15, "BYTES", "The smallest vector, or blocks of all ranks together."},
    {'e', "end", FLAG_BYTES, &set.end, 1, 1e15, "BYTES", "The largest."},
    {'f', "factor", FLAG_NUMBER, &set.factor, 1.01, 1e15, "F", "Between sizes."},
    {'r', "root", FLAG_INTEGER, &set.root, 0, 1 << 24, "R", "Of the collectives that have one."},
    {0, "inner", FLAG_TEXT, &set.inner, 0, 0, "NAME", "What hierarchical runs inside hosts."},
    {0, "outer", FLAG_TEXT, &set.outer, 0, 0, "NAME", "What hierarchical runs across them."},
    {0, "slices", FLAG_INTEGER, &set.slices, 0, 1 << 20, "N", "Parts of the data that follow each other through the schedule; 0: one."},
    {0, "canonical", FLAG_ON, &set.canonical, 0, 0, NULL, "Only what keeps the canonical order of sums."},
    {'C', "choose", FLAG_ON, &set.choose, 0, 0, NULL, "Says for each size what is best and why the others are not."},
    {'T', "tuning", FLAG_TEXT, &set.tuning, 0, 0, "FILE", "A table of algorithms that overrules the model, as HKT_TUNING takes it."},
    {'F', "fabric", FLAG_TEXT, &set.fabric, 0, 0, "NAME", "A known machine (--list), which the flags below change."},
    {'l', "list", FLAG_ON, &set.list, 0, 0, NULL, "Lists the known machines and where their numbers are from."},
    {'m', "measure", FLAG_ON, &set.measure, 0, 0, NULL, "Shared memory of this computer, measured, instead of --fabric."},
    {'R', "run", FLAG_ON, &set.run, 0, 0, NULL, "Also runs them, as threads with messages in memory: up to 8 ranks; goes with --measure."},
    {'p', "per-host", FLAG_INTEGER, &set.per_host, 1, 1 << 20, "N", "Ranks of a host."},
    {0, "rails", FLAG_INTEGER, &set.rails, 0, 1 << 16, "N", "Network cards of a host; 0: one for each rank."},
    {0, "per-cache", FLAG_INTEGER, &set.per_cache, 0, 1 << 20, "N", "Ranks that share a cache; 0: all of a host."},
    {0, "per-leaf", FLAG_INTEGER, &set.per_leaf, 0, 1 << 20, "N", "Hosts on a leaf switch; 0: no leaves."},
    {0, "oversubscription", FLAG_NUMBER, &set.oversubscription, 1, 1e6, "F", "What hosts of a leaf can send / what its uplinks carry."},
    {0, "spine", FLAG_NUMBER, &set.spine, 0, MICRO, "US", "More latency between leaves."},
    {0, "bus", FLAG_NUMBER, &set.bus, 0, 1e6, "GB/s", "Memory bus of a host, for messages inside it."},
    {0, "socket", FLAG_NUMBER, &set.socket, 0, 1e6, "GB/s", "Between the caches of a host."},
    {0, "reduce", FLAG_NUMBER, &set.reduce, 0, 1e6, "GB/s", "At which a rank folds one more source."},
    {0, "copy", FLAG_NUMBER, &set.copy, 0, 1e6, "GB/s", "At which a rank puts what came into its place."},
    {0, "depth", FLAG_INTEGER, &set.depth, 0, 1 << 20, "N", "Messages between two ranks before the sender waits; 0: no limit."},
    {0, "window", FLAG_INTEGER, &set.window, 1, HKT_WINDOW_MOST, "N", "Steps a rank may run ahead of one that waits; 1: in order."},
    WIRE("cache", HKT_SPAN_CACHE),
    WIRE("host", HKT_SPAN_HOST),
    WIRE("network", HKT_SPAN_NETWORK),
    {'j', "json", FLAG_TEXT, &set.json, 0, 0, "FILE", "Writes all of it as JSON; - is the standard output."},
    {'s', "svg", FLAG_TEXT, &set.svg, 0, 0, "FILE", "Draws time over size."},
    {'t', "timeline", FLAG_TEXT, &set.timeline, 0, 0, "FILE", "Draws what every rank does in one run: the first algorithm, the smallest size."},
    {0, "start", FLAG_INTEGER, &set.start, 1, 1 << 24, "N", "Instead: until N ranks know each other, by a tree of connections."},
    {0, "fanout", FLAG_INTEGER, &set.fanout, 1, 1 << 24, "N", "Of the tree."},
    {0, "trips", FLAG_INTEGER, &set.trips, 1, 100, "N", "Round trips of a handshake."},
    {0, "gathers", FLAG_INTEGER, &set.gathers, 0, 1000, "N", "All-gathers that follow."},
    {0, "entry", FLAG_BYTES, &set.entry, 0, 1e9, "BYTES", "What a rank hands in to each."},
    {0, "accept", FLAG_NUMBER, &set.accept, 0, 1e9, "US", "A parent's processor for one connection with its proof."},
    {0, "message", FLAG_NUMBER, &set.message, 0, 1e9, "US", "A processor's time for a message of the start."},
};

static const struct flags flags = {"hkt-simulate",
                                   "[flags]",
                                   "Runs the schedules of all ranks in virtual time on a fabric: how long, what bounds it, what is best.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

/* ---- the fabric --------------------------------------------------------------------------------------------------- */

static void change(double *value, double given, bool rate)
{
    if (given > 0)
        *value = rate ? 1 / (given * GIGA) : given / MICRO;
}

static void change_number(int *value, long given)
{
    if (given >= 0)
        *value = (int)given;
}

static void change_fabric(struct hkt_fabric *f)
{
    for (int span = 0; span < HKT_SPANS; span++) {
        struct hkt_span_cost *w = &f->wire[span];

        change(&w->alpha, set.latency[span], false);
        change(&w->overhead, set.overhead[span], false);
        change(&w->gap, set.gap[span], false);
        change(&w->beta, set.bandwidth[span], true);
        change(&w->touch, set.touch[span], true);
    }
    change(&f->spine, set.spine, false);
    change(&f->bus, set.bus, true);
    change(&f->socket, set.socket, true);
    change(&f->gamma, set.reduce, true);
    change(&f->copy, set.copy, true);
    change_number(&f->rails, set.rails);
    change_number(&f->per_cache, set.per_cache);
    change_number(&f->per_leaf, set.per_leaf);
    change_number(&f->depth, set.depth);
    if (set.window)
        f->window = (int)set.window;
    if (set.oversubscription > 0)
        f->oversubscription = set.oversubscription;
}

static int find_fabric(struct simulate_view *view)
{
    const struct hkt_fabric_preset *preset = hkt_fabric_find(set.fabric);
    const int                       ranks  = set.ranks ? (int)set.ranks : 0;

    if (!preset)
        flags_fail(&flags, "there is no fabric %s; --list has those there are", set.fabric);
    view->fabric = preset->fabric;
    view->source = preset->source;
    if (set.measure) {
        HKT_TRY(simulate_measure(&view->fabric, ranks ? ranks : 2));
        view->source = "measured on this computer";
    }
    change_fabric(&view->fabric);
    HKT_TRY(hkt_fabric_resize(&view->fabric, ranks ? ranks : hkt_fabric_ranks(&view->fabric), (int)set.per_host));
    return hkt_fabric_check(&view->fabric);
}

/* ---- the runs ----------------------------------------------------------------------------------------------------- */

static const struct hkt_algorithm *algorithm(const char *name)
{
    const struct hkt_algorithm *a = hkt_algorithm_find(name);

    if (!a)
        flags_fail(&flags, "there is no algorithm %s", name);
    return a;
}

static enum hkt_coll collective(void)
{
    for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
        if (!strcmp(hkt_coll_name[coll], set.collective))
            return (enum hkt_coll)coll;
    flags_fail(&flags, "no algorithm does a collective %s", set.collective);
}

static int predict_row(struct hkt_predictor *p, struct simulate_view *view, struct simulate_row *row)
{
    struct hkt_question q = view->question;

    q.bytes    = row->bytes;
    row->bound = hkt_lower_bound(&q, &view->fabric, &row->bound_by);
    if (!strcmp(set.algorithm, "all"))
        return hkt_predict_all(p, &q, row->offer, &row->count);
    row->count    = 1;
    row->offer[0] = (struct hkt_offer){.algorithm = algorithm(set.algorithm)};
    if (set.inner || set.outer) {
        row->offer[0].inner = algorithm(set.inner ? set.inner : "direct")->name;
        row->offer[0].outer = algorithm(set.outer ? set.outer : "direct")->name;
    }
    return hkt_predict(p, &q, &row->offer[0]);
}

static int predict(struct simulate_view *view)
{
    struct hkt_predictor *p;
    int                   rc;

    view->row = calloc(SIMULATE_SIZES, sizeof(*view->row));
    if (!view->row)
        return hkt_fail(HKT_ERR_MEMORY, "out of memory");
    HKT_TRY(hkt_predictor_open(&p, &view->fabric));
    rc = 0;
    for (double bytes = (double)set.begin; bytes <= (double)set.end * (1 + 1e-9) && view->sizes < SIMULATE_SIZES && rc == 0; bytes *= set.factor) {
        view->row[view->sizes].bytes = floor(bytes + 0.5);
        rc                           = predict_row(p, view, &view->row[view->sizes++]);
    }
    hkt_predictor_close(p);
    for (int i = 0; i < view->sizes && set.run && rc == 0; i++)
        for (int k = 0; k < view->row[i].count && rc == 0; k++) {
            struct hkt_question q = view->question;

            q.bytes = view->row[i].bytes;
            if (!view->row[i].offer[k].why[0])
                rc = simulate_run(&view->row[i].offer[k], &q, hkt_fabric_ranks(&view->fabric), &view->row[i].real[k]);
        }
    return rc;
}

static FILE *open_file(const char *path)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "we") : stdout;

    if (!f) {
        fprintf(stderr, "hkt-simulate: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return f;
}

static int close_file(FILE *f, const char *path)
{
    const bool bad = ferror(f);

    if ((f == stdout ? fflush(f) : fclose(f)) || bad)
        return hkt_fail(HKT_ERR_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    return 0;
}

static int write_files(const struct simulate_view *view)
{
    FILE *f;
    int   rc = 0;

    if (set.json) {
        f = open_file(set.json);
        simulate_json(f, view);
        HKT_TRY(close_file(f, set.json));
    }
    if (set.svg) {
        f = open_file(set.svg);
        simulate_svg(f, view);
        HKT_TRY(close_file(f, set.svg));
    }
    if (set.timeline) {
        f  = open_file(set.timeline);
        rc = simulate_timeline(f, view, &view->row[0].offer[0], view->row[0].bytes);
        if (close_file(f, set.timeline) < 0)
            return HKT_ERR_SYSTEM;
    }
    return rc;
}

static int run(struct simulate_view *view)
{
    HKT_TRY(find_fabric(view));
    view->question = (struct hkt_question){.coll = collective(), .root = (int)set.root, .slices = (int)set.slices, .canonical = set.canonical};
    if (set.root >= hkt_fabric_ranks(&view->fabric) || (set.root && !hkt_coll_in(view->question.coll, HKT_COLLS_ROOTED)))
        flags_fail(&flags, "%s of %d ranks has no root %ld", set.collective, hkt_fabric_ranks(&view->fabric), set.root);
    if (set.tuning)
        HKT_TRY(hkt_tuning_read(&view->tuning, set.tuning));
    HKT_TRY(predict(view));
    if (!set.json || strcmp(set.json, "-")) {
        simulate_print_fabric(&view->fabric, view->source);
        if (set.choose)
            simulate_print_choice(view);
        else
            simulate_print_table(view);
    }
    return write_files(view);
}

static int start(void)
{
    const struct hkt_fabric_preset *preset = hkt_fabric_find(set.fabric);
    struct hkt_startup_result       result;
    struct hkt_startup              how;

    if (!preset)
        flags_fail(&flags, "there is no fabric %s; --list has those there are", set.fabric);
    how = (struct hkt_startup){.ranks   = (int)set.start,
                               .fanout  = (int)set.fanout,
                               .trips   = (int)set.trips,
                               .gathers = (int)set.gathers,
                               .accept  = set.accept / MICRO,
                               .message = set.message / MICRO,
                               .alpha   = preset->fabric.wire[HKT_SPAN_NETWORK].alpha,
                               .beta    = preset->fabric.wire[HKT_SPAN_NETWORK].beta,
                               .bytes   = (double)set.entry};
    change(&how.alpha, set.latency[HKT_SPAN_NETWORK], false);
    change(&how.beta, set.bandwidth[HKT_SPAN_NETWORK], true);
    HKT_TRY(hkt_startup_simulate(&how, &result));
    simulate_print_startup(&how, &result);
    return 0;
}

int main(int argc, char **argv)
{
    const int            first = flags_parse(&flags, argc, argv);
    struct simulate_view view  = {0};
    int                  rc;

    if (first < argc)
        flags_fail(&flags, "%s is not expected", argv[first]);
    if (set.list) {
        simulate_print_list();
        return 0;
    }
    rc = set.start ? start() : run(&view);
    if (rc < 0)
        fprintf(stderr, "hkt-simulate: %s\n", hkt_last_error());
    hkt_tuning_free(&view.tuning);
    free(view.row);
    return rc < 0;
}
