/* machines.c -- see machines.h. */
#include "machines.h"

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const recorded[] = {"dgx-h100-like", "mi300x-like", "cube-mesh-like", "two-socket", "cloud-vm", "laptop"};

static char *read_whole(const char *path, size_t *size)
{
    FILE *f    = fopen(path, "re");
    char *text = NULL;

    *size = 0;
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    text = calloc(1, *size + 1);
    ck_assert(text && fread(text, 1, *size, f) == *size);
    fclose(f);
    return text;
}

char *read_recorded(const char *name, const char *suffix, size_t *size)
{
    const char *source = getenv("srcdir");
    char        path[512];

    snprintf(path, sizeof(path), "%s/tests/topologies/%s%s", source ? source : ".", name, suffix);
    return read_whole(path, size);
}

void machine_of(struct hkt_topology *t, const char *text)
{
    doing("reading the machine \"%s\"", text);
    expect_ok(hkt_topology_text(t, text));
}

void graph_of(struct hkt_graph *g, const struct hkt_topology *t, int ranks)
{
    const int gpus = hkt_object_count(t, 0, HKT_OBJECT_GPU), cores = hkt_object_count(t, 0, HKT_OBJECT_CORE);
    int      *at;

    ranks = ranks ? ranks : gpus ? gpus : cores;
    at    = calloc((size_t)ranks, sizeof(int));
    expect_ok(hkt_graph_place(t, ranks, at));
    expect_ok(hkt_graph_make(g, t, at, ranks));
    free(at);
}

char *print_machine(const struct hkt_topology *t)
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);

    hkt_topology_print(f, t);
    fclose(f);
    return text;
}

char *print_graph(const struct hkt_graph *g)
{
    char  *text = NULL;
    size_t size;
    FILE  *f = open_memstream(&text, &size);

    hkt_graph_print(f, g);
    fclose(f);
    return text;
}

char *xml_of(const struct hkt_topology *t, size_t *size)
{
    char  path[] = "/tmp/test_topology-XXXXXX", *text;
    const int fd = mkstemp(path);

    ck_assert(fd >= 0);
    close(fd);
    expect_ok(hkt_topology_save(t, path));
    text = read_whole(path, size);
    unlink(path);
    ck_assert(text);
    return text;
}

static void check_ring(const struct hkt_graph *g, const int *ring, char *seen)
{
    int changes = 0;

    memset(seen, 0, (size_t)g->size);
    for (int i = 0; i < g->size; i++) {
        expect(ring[i] >= 0 && ring[i] < g->size && !seen[ring[i]], "place %d of the ring holds %d", i, ring[i]);
        seen[ring[i]] = 1;
        changes += g->host[ring[i]] != g->host[ring[(i + 1) % g->size]];
    }
    expect(changes == (g->hosts > 1 ? g->hosts : 0), "the ring changes hosts %d times over %d hosts", changes, g->hosts);
}

static void check_tree(const struct hkt_graph *g, const int *parent)
{
    int roots = 0, between = 0;

    for (int r = 0; r < g->size; r++) {
        int at = r, steps = 0;

        while (parent[at] >= 0 && steps++ < g->size)
            at = parent[at];
        expect(parent[at] == -1, "rank %d does not come to a root", r);
        roots += parent[r] < 0;
        between += parent[r] >= 0 && g->host[r] != g->host[parent[r]];
    }
    expect(roots == 1, "the tree has %d roots", roots);
    expect(between == g->hosts - 1, "%d links of the tree go between %d hosts", between, g->hosts);
}

void check_graph(const struct hkt_graph *g)
{
    char *seen = malloc((size_t)g->size);

    expect(g->rings >= 1 && g->trees >= 1, "%d rings, %d trees", g->rings, g->trees);
    for (int r = 0; r < g->rings; r++)
        check_ring(g, g->ring + (size_t)r * g->size, seen);
    for (int r = 0; r < g->trees; r++)
        check_tree(g, g->tree + (size_t)r * g->size);
    free(seen);
}
