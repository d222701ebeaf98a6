/* simulate_print.c -- what hkt-simulate shows in a terminal. */
#include "simulate.h"

#include <string.h>

const char *simulate_bytes(double bytes, char text[SIMULATE_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int                      i      = 0;

    for (; i < 4 && bytes >= 1024; i++)
        bytes /= 1024;
    snprintf(text, SIMULATE_TEXT, "%.4g %s", bytes, unit[i]);
    return text;
}

const char *simulate_seconds(double seconds, char text[SIMULATE_TEXT])
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    int                      i      = 0;

    for (seconds *= 1e9; i < 3 && seconds >= 999.5; i++)
        seconds /= 1000;
    snprintf(text, SIMULATE_TEXT, seconds < 99.95 ? "%.2f %s" : seconds < 999.5 ? "%.1f %s" : "%.0f %s", seconds, unit[i]);
    return text;
}

const struct hkt_tuning_rule *simulate_rule(const struct simulate_view *view, const struct simulate_row *row)
{
    const struct hkt_shape shape = {.coll = view->question.coll, .size = hkt_fabric_ranks(&view->fabric)};

    return hkt_tuning_find(&view->tuning, &shape, view->fabric.hosts, row->bytes);
}

/* ---- fabrics ------------------------------------------------------------------------------------------------------ */

static void print_wire(const char *name, const struct hkt_span_cost *w)
{
    char a[SIMULATE_TEXT], o[SIMULATE_TEXT], g[SIMULATE_TEXT];

    if (w->alpha == 0 && w->beta == 0 && w->touch == 0)
        return;
    printf("  %-8s latency %s, overhead %s, gap %s", name, simulate_seconds(w->alpha, a), simulate_seconds(w->overhead, o),
           simulate_seconds(w->gap, g));
    if (w->beta > 0)
        printf(", %.4g GB/s", 1e-9 / w->beta);
    if (w->touch > 0)
        printf(", moved by the processor at %.4g GB/s", 1e-9 / w->touch);
    printf("\n");
}

void simulate_print_fabric(const struct hkt_fabric *f, const char *source)
{
    printf("%s: %d ranks, %d host%s of %d", f->name, hkt_fabric_ranks(f), f->hosts, f->hosts == 1 ? "" : "s", f->per_host);
    if (f->hosts > 1)
        printf(", %d card%s a host", f->rails ? f->rails : f->per_host, (f->rails ? f->rails : f->per_host) == 1 ? "" : "s");
    if (f->per_leaf)
        printf(", leaves of %d hosts, oversubscribed %g", f->per_leaf, f->oversubscription);
    printf("\n");
    for (int span = f->per_cache && f->per_cache < f->per_host ? 0 : 1; span < HKT_SPANS; span++)
        if (span == HKT_SPAN_NETWORK ? f->hosts > 1 : f->per_host > 1)
            print_wire(hkt_span_name[span], span == HKT_SPAN_HOST && !f->per_cache ? &f->wire[HKT_SPAN_CACHE] : &f->wire[span]);
    if (f->gamma > 0 || f->copy > 0)
        printf("  a rank   folds %.4g GB/s, copies %.4g GB/s\n", f->gamma > 0 ? 1e-9 / f->gamma : 0, f->copy > 0 ? 1e-9 / f->copy : 0);
    printf("  %s, ", f->window > 1 ? "runs ahead of steps that wait" : "steps in order");
    if (f->depth)
        printf("%d messages between two ranks at a time\n", f->depth);
    else
        printf("no limit to messages under way\n");
    printf("  (%s)\n", source);
}

void simulate_print_list(void)
{
    for (size_t i = 0; i < hkt_fabric_presets; i++)
        simulate_print_fabric(&hkt_fabric_preset[i].fabric, hkt_fabric_preset[i].source);
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

/* The largest part, and its share. */
static const char *bounded_by(const struct hkt_sim_result *r, char text[SIMULATE_TEXT])
{
    int most = 0;

    for (int i = 1; i < HKT_TIME_PARTS; i++)
        if (r->part[i] > r->part[most])
            most = i;
    snprintf(text, SIMULATE_TEXT, "%s %.0f %%", hkt_time_part_name[most], r->seconds > 0 ? 100 * r->part[most] / r->seconds : 0);
    return text;
}

static void print_offer(const struct simulate_view *view, const struct simulate_row *row, int k)
{
    const struct hkt_offer *o = &row->offer[k];
    const double factor = hkt_bus_factor(view->question.coll, hkt_fabric_ranks(&view->fabric));
    const double rate   = o->result.seconds > 0 ? row->bytes / o->result.seconds * 1e-9 : 0;
    char         size[SIMULATE_TEXT], time[SIMULATE_TEXT], formula[SIMULATE_TEXT], bound[SIMULATE_TEXT], name[64];

    printf("%10s  %-32s ", simulate_bytes(row->bytes, size), hkt_offer_name(o, name));
    if (o->why[0]) {
        printf("cannot: %s\n", o->why);
        return;
    }
    printf("%10s %9.4g %9.4g %6.1f %% %10s %8u  %s", simulate_seconds(o->result.seconds, time), rate, rate * factor,
           o->result.seconds > 0 ? 100 * row->bound / o->result.seconds : 100, simulate_seconds(o->formula, formula), o->result.hops,
           bounded_by(&o->result, bound));
    if (row->real[k] > 0)
        printf("; run: %s, %.2f of it", simulate_seconds(row->real[k], time), o->result.seconds / row->real[k]);
    printf("\n");
}

void simulate_print_table(const struct simulate_view *view)
{
    printf("\n%10s  %-32s %10s %9s %9s %8s %10s %8s  %s\n", "size", hkt_coll_name[view->question.coll], "time", "GB/s", "bus GB/s", "of bound",
           "formula", "messages", "bounded by");
    for (int i = 0; i < view->sizes; i++)
        for (int k = 0; k < view->row[i].count; k++)
            print_offer(view, &view->row[i], k);
    printf("\nmessages: one after the other, on the longest path; bound: a latency and what must pass a %s\n",
           view->sizes ? view->row[view->sizes - 1].bound_by : "port");
}

void simulate_print_choice(const struct simulate_view *view)
{
    char size[SIMULATE_TEXT], name[64], why[200];

    for (int i = 0; i < view->sizes; i++) {
        const struct simulate_row    *row  = &view->row[i];
        const struct hkt_tuning_rule *rule = simulate_rule(view, row);

        printf("\n%s of %s: ", hkt_coll_name[view->question.coll], simulate_bytes(row->bytes, size));
        if (rule)
            printf("%s%s%s%s%s%s, by line %d of the table\n", rule->algorithm->name, rule->inner ? "(" : "", rule->inner ? rule->inner->name : "",
                   rule->inner ? "," : "", rule->outer ? rule->outer->name : "", rule->outer ? ")" : "", rule->line);
        else if (row->count && !row->offer[0].why[0])
            printf("%s\n", hkt_offer_name(&row->offer[0], name));
        else
            printf("nothing can\n");
        for (int k = 0; k < row->count; k++)
            printf("  %-32s %s\n", hkt_offer_name(&row->offer[k], name), hkt_offer_reason(&row->offer[k], why));
    }
    if (view->tuning.count)
        printf("\n%u rules, hash %016llx\n", view->tuning.count, (unsigned long long)view->tuning.hash);
}

void simulate_print_startup(const struct hkt_startup *how, const struct hkt_startup_result *r)
{
    char a[SIMULATE_TEXT], b[SIMULATE_TEXT], c[SIMULATE_TEXT];

    printf("%d ranks, a tree of fanout %d: depth %d, %d connections at the busiest rank\n", how->ranks, how->fanout, r->depth,
           r->most_children);
    printf("  connected after %s, %d gather%s of %g bytes a rank %s: %s in all\n", simulate_seconds(r->connected, a), how->gathers,
           how->gathers == 1 ? "" : "s", how->bytes, simulate_seconds(r->gathered, b), simulate_seconds(r->seconds, c));
}
