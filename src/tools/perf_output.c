/* perf_output.c -- what hkt-perf shows: the table of nccl-tests, and at the end JSON and a plot of all rows. */
#include "perf.h"

#include "svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const struct perf_place *places;
    int                      size;
    struct perf_row         *rows;
    size_t                   count, room;
    FILE                    *json, *svg;
} out;

const char *perf_op_name(const struct perf_case *what, int op_index)
{
    return !what->reduces ? "none" : op_index == HKT_OPS ? "premul_sum" : hkt_op_name((hkt_op_t)op_index);
}

static const char *type_name(const struct perf_row *row)
{
    return row->what->send == SIDE_NONE ? "none" : hkt_type_name(row->type);
}

/* -1 where there is none, as nccl-tests prints it. */
static int shown_root(const struct perf_row *row)
{
    return row->what->send_root || row->what->recv_root ? row->root : -1;
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

/* A number in a column, with four digits or more. */
static void print_number(double value, int width)
{
    const int decimals = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

    printf(value < 1e8 ? " %*.*f" : " %*.*e", width, value < 1e8 ? decimals : 2, value);
}

static void print_cell(const struct perf_cell *cell)
{
    if (!cell->valid) {
        printf("  %8s %6s %6s %6s", "-", "-", "-", "N/A");
        if (perf.verbose)
            printf("  %8s %6s %6s", "-", "-", "-");
        return;
    }
    printf(" ");
    print_number(cell->time_s * 1e6, 8);
    print_number(cell->algorithm_gbps, 6);
    print_number(cell->bus_gbps, 6);
    if (cell->wrong < 0)
        printf(" %6s", "N/A");
    else
        printf(" %6.0f", cell->wrong);
    if (!perf.verbose)
        return;
    printf(" ");
    print_number(cell->cpu_s * 1e6, 8);
    print_number(cell->faults, 6);
    print_number(cell->switches, 6);
}

static int open_file(FILE **file, const char *path)
{
    if (!path)
        return 0;
    *file = fopen(path, "we");
    if (!*file)
        perror(path);
    return *file ? 0 : -1;
}

int perf_output_begin(const struct perf_place *places, int size)
{
    out.places = places;
    out.size   = size;
    if (open_file(&out.json, perf.json) || open_file(&out.svg, perf.svg))
        return -1;
    printf("# hkt-perf of Hocket %d.%d.%d, library %d.%d.%d\n", HKT_VERSION_MAJOR, HKT_VERSION_MINOR, HKT_VERSION_PATCH,
           hkt_version() / 10000, hkt_version() / 100 % 100, hkt_version() % 100);
    printf("# %s\n#\n# Using ranks\n", perf.command);
    for (int r = 0; r < size; r++)
        printf("#  Rank %3d Pid %7d thread %2d on %10s cpu %3d\n", r, places[r].pid, places[r].thread, places[r].host,
               places[r].cpu);
    printf("#\n");
    return 0;
}

/* The same heads over both cells. */
static void print_heads(const char *left, const char *cell, const char *verbose)
{
    printf("#%s", left);
    for (int i = 0; i < 2; i++)
        printf("%s%s", cell, perf.verbose ? verbose : "");
    printf("\n");
}

void perf_output_table(const struct perf_case *what)
{
    const int width = perf.verbose ? 55 : 31;
    char      left[64];

    printf("# %s\n#%*s%*s\n", what->name, 56 + width / 2 + 6, "out-of-place", width - 2, "in-place");
    snprintf(left, sizeof(left), "%12s %13s %12s %10s %5s", "size", "count", "type", "redop", "root");
    print_heads(left, "      time  algbw  busbw #wrong", "       cpu faults switch");
    snprintf(left, sizeof(left), "%12s %13s %12s %10s %5s", "(B)", "(elements)", "", "", "");
    print_heads(left, "      (us) (GB/s) (GB/s)       ", "      (us)              ");
}

void perf_output_row(const struct perf_row *row)
{
    printf("%13zu %13zu %12s %10s %5d", row->bytes, row->count, type_name(row), perf_op_name(row->what, row->op_index),
           shown_root(row));
    print_cell(&row->cell[0]);
    print_cell(&row->cell[1]);
    printf("\n");
    fflush(stdout);
    if (out.count == out.room) {
        out.room = out.room ? 2 * out.room : 64;
        out.rows = realloc(out.rows, out.room * sizeof(*out.rows));
        if (!out.rows) {
            perror("hkt-perf");
            exit(1);
        }
    }
    out.rows[out.count++] = *row;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_text(const char *text)
{
    fputc('"', out.json);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            fprintf(out.json, "\\u%04x", *text);
        else
            fprintf(out.json, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    fputc('"', out.json);
}

static void json_cell(const char *name, const struct perf_cell *cell)
{
    fprintf(out.json, ", \"%s\": ", name);
    if (!cell->valid) {
        fprintf(out.json, "null");
        return;
    }
    fprintf(out.json, "{\"time\": %.9g, \"alg_bw\": %.6g, \"bus_bw\": %.6g, \"nwrong\": ", cell->time_s * 1e6,
            cell->algorithm_gbps, cell->bus_gbps);
    fprintf(out.json, cell->wrong < 0 ? "null" : "%.0f", cell->wrong);
    fprintf(out.json, ", \"cpu\": %.6g, \"faults\": %.6g, \"switches\": %.6g, \"iterations\": %ld}", cell->cpu_s * 1e6,
            cell->faults, cell->switches, cell->iters);
}

static void write_json(double wrong, double average)
{
    static const char *const memories[] = {"malloc", "registered", "hkt_mem_alloc"};
    static const char *const stats[]    = {"avg", "median", "min"};

    fprintf(out.json, "{\"version\": \"%d.%d.%d\", \"command\": ", HKT_VERSION_MAJOR, HKT_VERSION_MINOR,
            HKT_VERSION_PATCH);
    json_text(perf.command);
    fprintf(
        out.json,
        ",\n \"config\": {\"ranks\": %d, \"threads\": %ld, \"memory\": \"%s\", \"blocking\": %ld, \"aggregated\": %ld, "
        "\"statistic\": \"%s\", \"misalign\": %ld, \"shift\": %zu},\n \"units\": {\"time\": \"us\", \"bandwidth\": "
        "\"GB/s\"},\n \"ranks\": [",
        out.size, perf.threads, memories[perf.memory], perf.blocking, perf.together, stats[perf.statistic],
        perf.misalign, perf.shift);
    for (int r = 0; r < out.size; r++) {
        fprintf(out.json, "%s\n  {\"rank\": %d, \"pid\": %d, \"thread\": %d, \"cpu\": %d, \"host\": ", r ? "," : "", r,
                out.places[r].pid, out.places[r].thread, out.places[r].cpu);
        json_text(out.places[r].host);
        fprintf(out.json, "}");
    }
    fprintf(out.json, "],\n \"results\": [");
    for (size_t i = 0; i < out.count; i++) {
        const struct perf_row *row = &out.rows[i];

        fprintf(out.json,
                "%s\n  {\"collective\": \"%s\", \"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", "
                "\"root\": %d",
                i ? "," : "", row->what->name, row->bytes, row->count, type_name(row),
                perf_op_name(row->what, row->op_index), shown_root(row));
        json_cell("out_of_place", &row->cell[0]);
        json_cell("in_place", &row->cell[1]);
        fprintf(out.json, "}");
    }
    fprintf(out.json, "],\n \"out_of_bounds\": {\"count\": %.0f, \"okay\": %s},\n \"average_bus_bandwidth\": %.6g}\n",
            wrong, wrong > 0 ? "false" : "true", average);
}

/* ---- plot -------------------------------------------------------------------------------------------------------- */

enum { MOST_CURVES = 24 };

struct plot {
    struct svg_series time[MOST_CURVES], bandwidth[MOST_CURVES];
    char              name[MOST_CURVES][96];
    size_t            curves;
    double           *values; /* x, time, bandwidth of each point */
    size_t            used;
    bool              one_collective, one_type, one_op;
};

/* Rows i and i + 1 belong to one curve. */
static bool continues(const struct perf_row *a, const struct perf_row *b)
{
    return a->what == b->what && a->type == b->type && a->op_index == b->op_index && a->root == b->root &&
           a->bytes < b->bytes;
}

static bool one_kind(const struct plot *plot)
{
    return plot->one_collective && plot->one_type && plot->one_op;
}

/* What tells it from the others; of several kinds each has one name for both its curves. */
static void name_curve(const struct plot *plot, const struct perf_row *row, int in_place, char *name, size_t size)
{
    if (one_kind(plot))
        snprintf(name, size, "%s", in_place ? "in place" : "out of place");
    else
        snprintf(name, size, "%s %s %s", plot->one_collective ? "" : row->what->name,
                 plot->one_type ? "" : type_name(row), plot->one_op ? "" : perf_op_name(row->what, row->op_index));
}

static void add_curve(struct plot *plot, size_t from, size_t to, int in_place, int colour)
{
    const size_t points = to - from;
    double      *x = plot->values + plot->used, *time = x + points, *bandwidth = time + points;
    const size_t k = plot->curves;

    if (k == MOST_CURVES || !out.rows[from].cell[in_place].valid || out.rows[from].bytes == 0)
        return;
    for (size_t i = 0; i < points; i++) {
        const struct perf_row *row = &out.rows[from + i];

        x[i]         = (double)row->bytes;
        time[i]      = row->cell[in_place].time_s;
        bandwidth[i] = row->cell[in_place].bus_gbps;
    }
    name_curve(plot, &out.rows[from], in_place, plot->name[k], sizeof(plot->name[k]));
    plot->time[k]      = (struct svg_series){plot->name[k], x, time, points, colour, in_place};
    plot->bandwidth[k] = (struct svg_series){plot->name[k], x, bandwidth, points, colour, in_place};
    plot->used += 3 * points;
    plot->curves++;
}

static void collect(struct plot *plot)
{
    int colour = 0;

    plot->one_collective = plot->one_type = plot->one_op = true;
    for (size_t i = 1; i < out.count; i++) {
        plot->one_collective &= out.rows[i].what == out.rows[0].what;
        plot->one_type &= out.rows[i].type == out.rows[0].type;
        plot->one_op &= out.rows[i].op_index == out.rows[0].op_index;
    }
    for (size_t from = 0, to; from < out.count; from = to) {
        for (to = from + 1; to < out.count && continues(&out.rows[to - 1], &out.rows[to]); to++)
            ;
        add_curve(plot, from, to, 0, colour);
        add_curve(plot, from, to, 1, one_kind(plot) ? colour + 1 : colour);
        colour++;
    }
}

static void add_word(char *text, size_t size, const char *word)
{
    const size_t n = strlen(text);

    snprintf(text + n, size - n, ", %s", word);
}

static void write_plot(void)
{
    struct plot     plot = {.values = calloc(6 * out.count + 1, sizeof(double))};
    char            title[160], subtitle[200];
    struct svg_page page = {.title = title, .subtitle = subtitle, .count = 2, .note = perf.command};

    if (!plot.values)
        return;
    collect(&plot);
    page.panel = (struct svg_panel[]){
        {"Time of one operation", "size", SVG_BYTES, SVG_SECONDS, plot.time, plot.curves},
        {"Bus bandwidth", "size", SVG_BYTES, SVG_BANDWIDTH, plot.bandwidth, plot.curves},
    };
    snprintf(title, sizeof(title), "%s", plot.one_collective ? out.rows[0].what->name : "Collectives");
    if (plot.one_type)
        add_word(title, sizeof(title), type_name(&out.rows[0]));
    if (plot.one_op && out.rows[0].what->reduces)
        add_word(title, sizeof(title), perf_op_name(out.rows[0].what, out.rows[0].op_index));
    snprintf(subtitle, sizeof(subtitle), "%d rank%s on %s, Hocket %d.%d.%d%s", out.size, out.size > 1 ? "s" : "",
             out.places[0].host, HKT_VERSION_MAJOR, HKT_VERSION_MINOR, HKT_VERSION_PATCH,
             one_kind(&plot) ? "" : "; dotted: in place");
    svg_write(out.svg, &page);
    free(plot.values);
}

static int close_file(FILE *file, const char *path)
{
    if (!file || fclose(file) == 0)
        return 0;
    perror(path);
    return 1;
}

int perf_output_end(void)
{
    double wrong = 0, sum = 0, cells = 0;
    int    status;

    for (size_t i = 0; i < out.count; i++)
        for (int k = 0; k < 2; k++) {
            const struct perf_cell *cell = &out.rows[i].cell[k];

            wrong += cell->valid && cell->wrong > 0 ? cell->wrong : 0;
            sum += cell->valid ? cell->bus_gbps : 0;
            cells += cell->valid;
        }
    printf("# Out of bounds values : %.0f %s\n# Avg bus bandwidth    : %g\n#\n", wrong, wrong > 0 ? "FAILED" : "OK",
           cells > 0 ? sum / cells : 0);
    if (out.json)
        write_json(wrong, cells > 0 ? sum / cells : 0);
    if (out.svg && out.count)
        write_plot();
    status = close_file(out.json, perf.json) | close_file(out.svg, perf.svg);
    free(out.rows);
    return status || wrong > 0;
}
