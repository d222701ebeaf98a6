/* simulate_json.c -- hkt-simulate --json: the fabric, and every size with every algorithm, its parts or its reason. */
#include "simulate.h"

static void text(FILE *out, const char *words)
{
    fputc('"', out);
    for (; *words; words++) {
        if ((unsigned char)*words < ' ')
            fprintf(out, "\\u%04x", (unsigned char)*words);
        else
            fprintf(out, "%s%c", *words == '"' || *words == '\\' ? "\\" : "", *words);
    }
    fputc('"', out);
}

static void print_fabric(FILE *out, const struct simulate_view *view)
{
    const struct hkt_fabric *f = &view->fabric;

    fprintf(out, "{\"name\": ");
    text(out, f->name);
    fprintf(out, ", \"source\": ");
    text(out, view->source);
    fprintf(out, ", \"hosts\": %d, \"per_host\": %d, \"per_cache\": %d, \"rails\": %d, \"per_leaf\": %d, \"oversubscription\": %.9g, ", f->hosts,
            f->per_host, f->per_cache, f->rails, f->per_leaf, f->oversubscription);
    fprintf(out, "\"spine\": %.9g, \"bus\": %.9g, \"socket\": %.9g, \"gamma\": %.9g, \"copy\": %.9g, \"depth\": %d, \"window\": %d", f->spine,
            f->bus, f->socket, f->gamma, f->copy, f->depth, f->window);
    for (int span = 0; span < HKT_SPANS; span++) {
        const struct hkt_span_cost *w = &f->wire[span];

        fprintf(out, ",\n  \"%s\": {\"alpha\": %.9g, \"overhead\": %.9g, \"gap\": %.9g, \"beta\": %.9g, \"touch\": %.9g}", hkt_span_name[span],
                w->alpha, w->overhead, w->gap, w->beta, w->touch);
    }
    fprintf(out, "}");
}

static void print_offer(FILE *out, const struct hkt_offer *o)
{
    char name[64];

    fprintf(out, "   {\"algorithm\": ");
    text(out, hkt_offer_name(o, name));
    if (o->why[0]) {
        fprintf(out, ", \"cannot\": ");
        text(out, o->why);
        fprintf(out, "}");
        return;
    }
    fprintf(out, ", \"canonical\": %s, \"seconds\": %.9g, \"formula\": %.9g, \"hops\": %u, \"ranks_run\": %u, \"programs\": %u, \"messages\": %llu, "
                 "\"events\": %llu, \"parts\": {",
            o->canonical ? "true" : "false", o->result.seconds, o->formula, o->result.hops, o->result.ranks, o->result.programs,
            (unsigned long long)o->result.messages, (unsigned long long)o->result.events);
    for (int i = 0; i < HKT_TIME_PARTS; i++)
        fprintf(out, "%s\"%s\": %.9g", i ? ", " : "", hkt_time_part_name[i], o->result.part[i]);
    fprintf(out, "}}");
}

void simulate_json(FILE *out, const struct simulate_view *view)
{
    fprintf(out, "{\"collective\": \"%s\", \"ranks\": %d, \"root\": %d, \"slices\": %d,\n \"fabric\": ", hkt_coll_name[view->question.coll],
            hkt_fabric_ranks(&view->fabric), view->question.root, view->question.slices ? view->question.slices : 1);
    print_fabric(out, view);
    fprintf(out, ",\n \"sizes\": [");
    for (int i = 0; i < view->sizes; i++) {
        const struct simulate_row    *row  = &view->row[i];
        const struct hkt_tuning_rule *rule = simulate_rule(view, row);

        fprintf(out, "%s\n  {\"bytes\": %.0f, \"bound\": %.9g, \"bound_by\": \"%s\", \"rule\": ", i ? "," : "", row->bytes, row->bound,
                row->bound_by);
        if (rule)
            fprintf(out, "%d", rule->line);
        else
            fprintf(out, "null");
        fprintf(out, ", \"offers\": [\n");
        for (int k = 0; k < row->count; k++) {
            print_offer(out, &row->offer[k]);
            fprintf(out, "%s\n", k + 1 < row->count ? "," : "");
        }
        fprintf(out, "  ]}");
    }
    fprintf(out, "\n ]}\n");
}
