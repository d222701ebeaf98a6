/* info_topology.c -- hkt-info --topology: hwloc's view of the machine as a tree of text and as a drawing. Levels that
 * only pass on one child of the same processors are kept: a reader wants to see the caches. */
#include "config.h"

#include "info.h"

#include <stdio.h>

#ifndef HAVE_HWLOC

int info_topology(const char *svg)
{
    (void)svg;
    fprintf(
        stderr,
        "hkt-info: this build has no topology, as hwloc was not there (Debian: libhwloc-dev) when it was configured\n");
    return 1;
}

#else

#include "svg.h"

#include <hwloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void describe(hwloc_obj_t object, char *text, size_t size)
{
    char bytes[32], type[64];

    hwloc_obj_type_snprintf(type, sizeof(type), object, 0);
    if (object->type == HWLOC_OBJ_MACHINE)
        snprintf(text, size, "Machine, %s", info_bytes((double)object->total_memory, bytes));
    else if (object->type == HWLOC_OBJ_NUMANODE)
        snprintf(text, size, "Memory node %u, %s", object->os_index,
                 info_bytes((double)object->attr->numanode.local_memory, bytes));
    else if (hwloc_obj_type_is_cache(object->type))
        snprintf(text, size, "%s %s", type, info_bytes((double)object->attr->cache.size, bytes));
    else if (object->type == HWLOC_OBJ_PU)
        snprintf(text, size, "CPU %u", object->os_index);
    else
        snprintf(text, size, "%s %u", type,
                 object->os_index == HWLOC_UNKNOWN_INDEX ? object->logical_index : object->os_index);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void print_tree(hwloc_obj_t object, const char *indent)
{
    char text[128], deeper[256];

    describe(object, text, sizeof(text));
    printf("%s\n", text);
    snprintf(deeper, sizeof(deeper), "%s", indent);
    for (hwloc_obj_t child = object->memory_first_child; child; child = child->next_sibling) {
        describe(child, text, sizeof(text));
        printf("%s%s %s\n", indent, object->arity || child->next_sibling ? "├─" : "└─", text);
    }
    for (unsigned i = 0; i < object->arity; i++) {
        const bool last = i + 1 == object->arity;

        printf("%s%s ", indent, last ? "└─" : "├─");
        snprintf(deeper, sizeof(deeper), "%s%s", indent, last ? "   " : "│  ");
        print_tree(object->children[i], deeper);
    }
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

enum {
    PAD           = 10,
    HEAD          = 22,
    LEAF_WIDTH    = 74,
    LEAF_HEIGHT   = 32,
    MEMORY_HEIGHT = 26,
    LABEL_WIDTH   = 150,
    EDGE          = 32,
    TITLE         = 72
};

struct box {
    double width, height;
};

static const char *fill_of(hwloc_obj_t object)
{
    switch (object->type) {
    case HWLOC_OBJ_PU:
        return "#ffffff";
    case HWLOC_OBJ_CORE:
        return "#d9e8f5";
    case HWLOC_OBJ_NUMANODE:
        return "#dcf0e4";
    case HWLOC_OBJ_PACKAGE:
        return "#eef1f4";
    default:
        return hwloc_obj_type_is_cache(object->type) ? "#fdf1d7" : "#f8f9fb";
    }
}

static bool is_leaf(hwloc_obj_t object)
{
    return object->arity == 0 && object->memory_arity == 0;
}

/* Columns that make children of this size about as wide as high, times two. */
static unsigned columns(hwloc_obj_t object, struct box child)
{
    const double best = ceil(sqrt(2.0 * object->arity * child.height / child.width));

    return best < 1 || !object->arity ? 1 : best > object->arity ? object->arity : (unsigned)best;
}

static struct box greatest_child(hwloc_obj_t object);

static struct box size_of(hwloc_obj_t object)
{
    struct box child = {0, 0}, box = {LEAF_WIDTH, LEAF_HEIGHT};

    if (is_leaf(object))
        return box;
    child      = greatest_child(object);
    box.height = HEAD + object->memory_arity * (MEMORY_HEIGHT + PAD) + (object->arity ? 0 : PAD);
    box.width  = LABEL_WIDTH;
    if (object->arity) {
        const unsigned across = columns(object, child), down = (object->arity + across - 1) / across;

        box.width = fmax(box.width, PAD + across * (child.width + PAD));
        box.height += down * (child.height + PAD);
    }
    return box;
}

static struct box greatest_child(hwloc_obj_t object)
{
    struct box most = {1, 1};

    for (unsigned i = 0; i < object->arity; i++) {
        const struct box child = size_of(object->children[i]);

        most.width  = fmax(most.width, child.width);
        most.height = fmax(most.height, child.height);
    }
    return most;
}

static void draw_box(FILE *f, hwloc_obj_t object, double x, double y, struct box box)
{
    char text[128];

    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\" fill=\"%s\" stroke=\"#b6bfc9\"/>\n",
            x, y, box.width, box.height, fill_of(object));
    describe(object, text, sizeof(text));
    if (is_leaf(object) && object->type == HWLOC_OBJ_PU)
        svg_text(f, x + box.width / 2, y + box.height / 2 + 4, "class=\"tick\" text-anchor=\"middle\"", text);
    else
        svg_text(f, x + PAD, y + 16, "class=\"tick\"", text);
}

static void draw(FILE *f, hwloc_obj_t object, double x, double y, struct box box)
{
    struct box     child  = greatest_child(object);
    const unsigned across = columns(object, child);

    draw_box(f, object, x, y, box);
    y += HEAD;
    for (hwloc_obj_t node = object->memory_first_child; node; node = node->next_sibling) {
        draw_box(f, node, x + PAD, y, (struct box){box.width - 2 * PAD, MEMORY_HEIGHT});
        y += MEMORY_HEIGHT + PAD;
    }
    child.width = (box.width - PAD) / across - PAD; /* may be more than it needs, when the label is what is wide */
    for (unsigned i = 0; i < object->arity; i++)
        draw(f, object->children[i], x + PAD + (i % across) * (child.width + PAD),
             y + (i / across) * (child.height + PAD), child);
}

static int draw_all(hwloc_obj_t root, const char *path)
{
    struct box  box  = size_of(root);
    const char *host = hwloc_obj_get_info_by_name(root, "HostName");
    char        title[128];
    FILE       *f = fopen(path, "we");

    if (!f) {
        perror(path);
        return 1;
    }
    box.width = fmax(box.width, 320);
    snprintf(title, sizeof(title), "Topology of %s", host ? host : "this machine");
    svg_begin(f, box.width + 2 * EDGE, box.height + TITLE + EDGE);
    svg_text(f, EDGE, 42, "class=\"title\"", title);
    draw(f, root, EDGE, TITLE - 8, box);
    fprintf(f, "</svg>\n");
    if (fclose(f)) {
        perror(path);
        return 1;
    }
    return 0;
}

int info_topology(const char *svg)
{
    hwloc_topology_t topology;
    int              status = 0;

    if (hwloc_topology_init(&topology) || hwloc_topology_load(topology)) {
        perror("hkt-info: hwloc cannot read this machine");
        return 1;
    }
    if (svg)
        status = draw_all(hwloc_get_root_obj(topology), svg);
    else
        print_tree(hwloc_get_root_obj(topology), "");
    hwloc_topology_destroy(topology);
    return status;
}

#endif
