/* hkt-info.c -- shows what Hocket sees and would do: the machine, its options, its algorithms, the plan for a call. */
#include "base/option.h"
#include "face/library.h"
#include "flags.h"
#include "info.h"

#include <stdio.h>
#include <string.h>

static struct {
    bool        options, man, algorithms, topology, launcher;
    const char *plan, *svg, *xml, *machine;
    long        ranks, root, rank;
    size_t      bytes;
    int         order;
} set = {.bytes = 1 << 20};

enum { RANKS = 4 }; /* of a call */

static const struct flag rows[] = {
    {0, "options", FLAG_ON, &set.options, 0, 0, NULL, "Every option (HKT_* variable): value, default, range, meaning."},
    {0, "algorithms", FLAG_ON, &set.algorithms, 0, 0, NULL,
     "What each algorithm would cost for -n ranks and -b bytes."},
    {0, "plan", FLAG_TEXT, &set.plan, 0, 0, "COLLECTIVE", "How a call of it over -n ranks with -b bytes would be run."},
    {0, "topology", FLAG_ON, &set.topology, 0, 0, NULL,
     "The machine as a tree, and rails, rings and trees of -n ranks on it."},
    {0, "launcher", FLAG_ON, &set.launcher, 0, 0, NULL, "What started this process, and how it was found out."},
    {0, "machine", FLAG_TEXT, &set.machine, 0, 0, "FILE|TEXT", "Another machine: XML, or \"2 hosts; 8 gpus nvswitch\"."},
    {0, "svg", FLAG_TEXT, &set.svg, 0, 0, "FILE", "Draws the machine."},
    {0, "xml", FLAG_TEXT, &set.xml, 0, 0, "FILE", "Saves the machine, for --machine and HKT_MACHINE."},
    {'n', "ranks", FLAG_INTEGER, &set.ranks, 1, 65536, "N",
     "Ranks of the call, 4 unless given; of --topology: one for each GPU or core."},
    {'b', "bytes", FLAG_BYTES, &set.bytes, 0, 0x1p62, "BYTES", "Bytes of the call: of the vector, or of all blocks."},
    {0, "rank", FLAG_INTEGER, &set.rank, 0, 65535, "R", "Whose part of the plan is shown."},
    {'r', "root", FLAG_INTEGER, &set.root, 0, 65535, "R", "Root, where the collective has one."},
    {0, "order", FLAG_WORD, &set.order, 0, 0, "canonical|any",
     "Order of the reduction that the communicator asks for."},
    {0, "man-options", FLAG_ON, &set.man, 0, 0, NULL, "The options as a part of a manual page."},
};

static const struct flags flags = {"hkt-info",
                                   "[flags]",
                                   "Shows what Hocket finds on this machine and what it would do there.",
                                   rows,
                                   sizeof(rows) / sizeof(rows[0]),
                                   false};

static const char *shorten(double value, const char *const *unit, int units, double step, char text[32])
{
    int i = 0;

    for (; i < units - 1 && value >= step * 0.9995; i++)
        value /= step;
    snprintf(text, 32, "%.4g %s", value, unit[i]);
    return text;
}

const char *info_bytes(double bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

    return shorten(bytes, unit, 7, 1024, text);
}

const char *info_seconds(double seconds, char text[32])
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};

    return shorten(seconds * 1e9, unit, 4, 1000, text);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* "0.1 to 1e+06 seconds", "off|on" */
static void print_range(const struct hkt_option_row *row, char *text, size_t size)
{
    char low[32], high[32];

    if (row->kind == HKT_OPTION_TEXT || row->kind == HKT_OPTION_SECRET || row->kind == HKT_OPTION_CHOICE)
        snprintf(text, size, "%s", row->unit);
    else if (row->kind == HKT_OPTION_BYTES)
        snprintf(text, size, "%s to %s", info_bytes(row->min, low), info_bytes(row->max, high));
    else
        snprintf(text, size, "%.10g to %.10g %s", row->min, row->max, row->unit);
}

static int print_options(void)
{
    char value[300], range[160];

    printf("%-18s %-14s %-14s %s\n", "option", "value", "default", "range");
    for (size_t i = 0; i < hkt_option_count; i++) {
        const struct hkt_option_row *row = &hkt_option_table[i];

        hkt_option_print(row, value, sizeof(value));
        print_range(row, range, sizeof(range));
        printf("%-18s %-14s %-14s %s\n    %s\n", row->name, value[0] ? value : "-",
               row->initial[0] ? row->initial : "-", range, row->doc);
    }
    return 0;
}

static void print_roff(const char *text)
{
    for (; *text; text++)
        printf(*text == '-' ? "\\-" : *text == '\\' ? "\\e" : "%c", *text);
}

static int print_man(void)
{
    char range[160];

    for (size_t i = 0; i < hkt_option_count; i++) {
        const struct hkt_option_row *row = &hkt_option_table[i];

        print_range(row, range, sizeof(range));
        printf(".TP\n.B %s\n", row->name);
        print_roff(row->doc);
        printf("\nRange: ");
        print_roff(range);
        printf("; default: ");
        print_roff(row->initial[0] ? row->initial : "none");
        printf(".\n");
    }
    return 0;
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static enum hkt_coll collective(const char *name)
{
    for (int c = 0; c < HKT_COLL_SCHEDULED; c++)
        if (strcmp(name, hkt_coll_name[c]) == 0)
            return (enum hkt_coll)c;
    flags_fail(&flags,
               "--plan %s: one of all_reduce, reduce_scatter, all_gather, reduce, broadcast, gather, scatter and "
               "all_to_all is expected",
               name);
}

int main(int argc, char **argv)
{
    const int        first = flags_parse(&flags, argc, argv);
    const long       ranks = set.ranks ? set.ranks : RANKS;
    struct hkt_shape shape = {.size = (int)ranks, .rank = (int)set.rank, .root = (int)set.root};

    if (first < argc)
        flags_fail(&flags, "%s means nothing here", argv[first]);
    if (set.root >= ranks || set.rank >= ranks)
        flags_fail(&flags, "--root and --rank must be below --ranks %ld", ranks);
    if (set.man)
        return print_man();
    hkt_library_start();
    if (set.options)
        return print_options();
    if (set.launcher)
        return info_launcher();
    if (set.topology || set.svg || set.xml || set.machine)
        return info_topology(&(struct info_topology){set.machine, set.svg, set.xml, (int)set.ranks});
    if (set.plan) {
        shape.coll = collective(set.plan);
        return info_plan(&shape, set.bytes, (hkt_order_t)set.order);
    }
    if (set.algorithms)
        return info_algorithms(&shape, set.bytes, (hkt_order_t)set.order);
    return info_machine();
}
