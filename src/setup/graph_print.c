/* graph_print.c -- a machine, and what graph.h finds in it, as text. The same text is the golden one of the tests, so nothing goes into it but
 * the data: no width of a terminal, no colours.
 */
#include "graph.h"

#include "setup/topology_value.h"

#include <math.h>
#include <string.h>

enum { MATRIX = 16, WIDTH = 100, INDENT = 192 };

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* As it is when that is short, else to four digits. */
static void about(uint64_t bytes, char text[HKT_VALUE_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double                   value  = (double)bytes;
    int                      u      = 0;

    if (strlen(text) <= 7)
        return;
    for (; u < 5 && value >= 1024; u++)
        value /= 1024;
    snprintf(text, HKT_VALUE_TEXT, "%.4g%s", value, unit[u]);
}

void hkt_object_describe(const struct hkt_object *o, char text[HKT_DESCRIPTION])
{
    const char *name;
    char        value[HKT_VALUE_TEXT];
    int         n = 0, words = 0;

    for (int i = 0; (name = hkt_attribute_get(o, i, value)); i++) {
        const char *before = strcmp(name, "leaf") == 0 ? "leaf " : strcmp(name, "bus") == 0 ? "at " : "";

        if (!value[0] || strcmp(name, "level") == 0)
            continue;
        if (o->bytes && (strcmp(name, "memory") == 0 || strcmp(name, "size") == 0))
            about(o->bytes, value);
        if (strcmp(name, "slow") == 0)
            snprintf(value, sizeof(value), "slow");
        if (strcmp(name, "cpus") == 0)
            snprintf(value, sizeof(value), "%d thread%s", o->cpus, o->cpus == 1 ? "" : "s");
        n += snprintf(text + n, (size_t)(HKT_DESCRIPTION - n), "%s%s%s", words++ ? ", " : "", before, value);
    }
    text[n] = 0;
}

/* "gpu 3: H100, 80GiB, at 0000:1b:00.0"; of several alike "8 x core 0-7: 2 threads". */
static void print_object(FILE *f, const struct hkt_topology *t, int object, int count)
{
    const struct hkt_object *o = &t->object[object];
    char                     text[HKT_DESCRIPTION];

    if (count > 1)
        fprintf(f, "%d x ", count);
    if (o->kind == HKT_OBJECT_MACHINE)
        fprintf(f, "machine");
    else if (o->kind == HKT_OBJECT_CACHE)
        fprintf(f, "cache L%d", o->level);
    else
        fprintf(f, count > 1 ? "%s %d-%d" : "%s %d", hkt_object_name[o->kind], o->number, o->number + count - 1);
    hkt_object_describe(o, text);
    fprintf(f, "%s%s\n", text[0] ? ": " : "", text);
}

/* At most as deep as objects are. What is alike and has no name that anybody needs is shown once. */
static void print_tree(FILE *f, const struct hkt_topology *t, int object, const char *indent)
{
    const int end = t->object[object].end;

    for (int o = object + 1, next; o < end; o = next) {
        char deeper[INDENT];
        int  count = 1;

        next = t->object[o].end;
        while (t->object[o].kind < HKT_OBJECT_SWITCH && next < end && hkt_objects_alike(t, o, next)) {
            next = t->object[next].end;
            count++;
        }
        fprintf(f, "%s%s ", indent, next == end ? "└─" : "├─");
        print_object(f, t, o, count);
        snprintf(deeper, sizeof(deeper), "%s%s", indent, next == end ? "   " : "│  ");
        print_tree(f, t, o, deeper);
    }
}

static bool same_link(const struct hkt_gpu_link *x, const struct hkt_gpu_link *y)
{
    return x->class == y->class && x->bandwidth == y->bandwidth;
}

/* Links of the first host, those of neighbours to one fabric in one line. */
static void print_wires(FILE *f, const struct hkt_topology *t)
{
    const int first = hkt_object_find(t, 0, HKT_OBJECT_HOST, 0), end = t->object[first].end;
    char      rate[HKT_VALUE_TEXT];

    for (int w = 0, next; w < t->wires && t->wire[w].a < end; w = next) {
        const struct hkt_gpu_link   *wire = &t->wire[w];
        const struct hkt_object *a = &t->object[wire->a], *b = &t->object[wire->b];

        fprintf(f, "%s %s %d", hkt_class_name[wire->class], hkt_object_name[a->kind], a->number);
        next = w + 1;
        if (b->kind == HKT_OBJECT_FABRIC) {
            while (next < t->wires && t->wire[next].b == wire->b && same_link(&t->wire[next], wire))
                next++;
            if (next > w + 1)
                fprintf(f, "-%d", t->object[t->wire[next - 1].a].number);
        }
        fprintf(f, " - %s %d", hkt_object_name[b->kind], b->number);
        for (; b->kind == HKT_OBJECT_GPU && next < t->wires && t->wire[next].a == wire->a && same_link(&t->wire[next], wire); next++)
            fprintf(f, " %d", t->object[t->wire[next].b].number);
        fprintf(f, wire->bandwidth > 0 ? ", %s\n" : "\n", hkt_text_rate(wire->bandwidth, false, rate));
    }
}

void hkt_topology_print(FILE *f, const struct hkt_topology *t)
{
    print_object(f, t, 0, 1);
    print_tree(f, t, 0, "");
    print_wires(f, t);
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* Words with a line break where a line is full. */
struct lines {
    FILE *f;
    int   at;
};

static void put(struct lines *l, const char *word)
{
    const int n = (int)strlen(word);

    if (l->at + n > WIDTH) {
        fprintf(l->f, "\n   ");
        l->at = 3;
    }
    fprintf(l->f, " %s", word);
    l->at += n + 1;
}

static void begin(struct lines *l, FILE *f, const char *name, int number)
{
    l->f  = f;
    l->at = number < 0 ? fprintf(f, "%s:", name) : fprintf(f, "%s %d:", name, number);
}

static void print_matrix(FILE *f, const struct hkt_graph *g)
{
    fprintf(f, "links\n      ");
    for (int b = 0; b < g->size; b++)
        fprintf(f, " %7d", b);
    for (int a = 0; a < g->size; a++) {
        fprintf(f, "\n%5d ", a);
        for (int b = 0; b < g->size; b++)
            fprintf(f, " %7s", a == b ? "." : hkt_class_name[hkt_graph_class(g, a, b)]);
    }
    fprintf(f, "\n");
}

/* The ranks of each group, "0-3 8" and so on, separated by "|". */
static void print_groups(FILE *f, const struct hkt_graph *g, enum hkt_group group)
{
    struct lines l;

    begin(&l, f, hkt_group_name[group], -1);
    for (int n = 0; n < g->groups[group]; n++) {
        if (n)
            put(&l, "|");
        for (int r = 0, last; r < g->size; r = last + 1) {
            char word[32];

            for (last = r; last < g->size && g->group[group][last] == n; last++)
                ;
            last -= last > r;
            if (g->group[group][r] != n)
                continue;
            snprintf(word, sizeof(word), last > r ? "%d-%d" : "%d", r, last);
            put(&l, word);
        }
    }
    fprintf(f, "\n");
}

/* "gpu 3 by pcie to nic 3 mlx5_3, rail 3, 50GB/s" */
static void print_rank(FILE *f, const struct hkt_graph *g, int rank)
{
    const struct hkt_topology *t  = g->machine;
    const struct hkt_object   *at = &t->object[g->at[rank]], *nic = g->nic[rank] < 0 ? NULL : &t->object[g->nic[rank]];
    char                       rate[HKT_VALUE_TEXT];

    fprintf(f, "rank %d: host %d", rank, t->object[hkt_object_above(t, g->at[rank], HKT_OBJECT_HOST)].number);
    if (at->kind != HKT_OBJECT_HOST)
        fprintf(f, " %s %d", hkt_object_name[at->kind], at->number);
    if (nic)
        fprintf(f, ", rail %d: nic %d%s%s by %s, %s", g->rail[rank], nic->number, nic->name[0] ? " " : "", nic->name,
                hkt_class_name[hkt_objects_class(t, g->at[rank], g->nic[rank])],
                hkt_text_rate(round(hkt_objects_cost(t, g->at[rank], g->nic[rank]).bandwidth / 1e8) * 1e8, false, rate));
    fprintf(f, "\n");
}

static void print_counts(FILE *f, const int count[HKT_CLASSES])
{
    const char *between = "   (";

    for (int c = 0; c < HKT_CLASSES; c++)
        if (count[c]) {
            fprintf(f, "%s%d %s", between, count[c], hkt_class_name[c]);
            between = ", ";
        }
    fprintf(f, between[0] == ',' ? ")\n" : "\n");
}

static void print_ring(FILE *f, const struct hkt_graph *g, int r)
{
    const int   *ring = g->ring + (size_t)r * g->size;
    int          count[HKT_CLASSES] = {0};
    struct lines l;
    char         word[16];

    begin(&l, f, "ring", r);
    for (int i = 0; i < g->size; i++) {
        snprintf(word, sizeof(word), "%d", ring[i]);
        put(&l, word);
        if (g->size > 1)
            count[hkt_graph_class(g, ring[i], ring[(i + 1) % g->size])]++;
    }
    print_counts(f, count);
}

/* "0>1,4 1>2,3": parents with their children. */
static void print_tree_of(FILE *f, const struct hkt_graph *g, int r)
{
    const int   *parent = g->tree + (size_t)r * g->size;
    int          count[HKT_CLASSES] = {0};
    struct lines l;

    begin(&l, f, "tree", r);
    for (int a = 0; a < g->size; a++)
        if (parent[a] < 0) {
            char word[32];

            snprintf(word, sizeof(word), "root %d", a);
            put(&l, word);
        }
    for (int a = 0; a < g->size; a++) {
        char word[256];
        int  n = 0;

        for (int b = 0; b < g->size; b++)
            if (parent[b] == a && n < (int)sizeof(word) - 16) {
                n += n ? snprintf(word + n, 16, ",%d", b) : snprintf(word, 32, "%d>%d", a, b);
                count[hkt_graph_class(g, a, b)]++;
            }
        if (n)
            put(&l, word);
    }
    print_counts(f, count);
}

void hkt_graph_print(FILE *f, const struct hkt_graph *g)
{
    fprintf(f, "%d rank%s on %d host%s, %d rail%s\n", g->size, g->size == 1 ? "" : "s", g->hosts, g->hosts == 1 ? "" : "s", g->rails,
            g->rails == 1 ? "" : "s");
    if (g->size > 1 && g->size <= MATRIX)
        print_matrix(f, g);
    for (int r = 0; r < g->size && r < g->start[1] + MATRIX; r++)
        print_rank(f, g, r);
    for (int group = 0; group < HKT_GROUPS; group++)
        if (g->groups[group] < g->size || g->size == 1)
            print_groups(f, g, (enum hkt_group)group);
    for (int r = 0; r < g->rings; r++)
        print_ring(f, g, r);
    for (int r = 0; r < g->trees; r++)
        print_tree_of(f, g, r);
}
