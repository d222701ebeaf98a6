/* fuzz_text.c -- parsers: bytes in, a struct or an error out. */
#include "fuzz.h"

#include "language/tuning.h"
#include "net/address.h"
#include "setup/graph.h"
#include "setup/id.h"
#include "setup/bootstrap.h"
#include "setup/tree.h"
#include "transports/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes as a string; free() it. */
static char *text_of(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    return text;
}

void fuzz_tuning(const uint8_t *data, size_t size)
{
    char             *text = text_of(data, size);
    struct hkt_tuning t;

    if (hkt_tuning_parse(&t, text, "fuzz") == 0)
        for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
            hkt_tuning_find(&t, &(struct hkt_shape){.coll = (enum hkt_coll)coll, .size = 8}, 2, 4096);
    hkt_tuning_free(&t);
    free(text);
}

/* What was read can be used. */
static void use(struct hkt_topology *t)
{
    int              at[4];
    struct hkt_graph g;

    if (hkt_graph_place(t, 4, at) == 0 && hkt_graph_make(&g, t, at, 4) == 0)
        hkt_graph_free(&g);
    hkt_topology_free(t);
}

void fuzz_xml(const uint8_t *data, size_t size)
{
    struct hkt_topology t;

    if (hkt_topology_parse(&t, (const char *)data, size, "fuzz") == 0)
        use(&t);
}

void fuzz_machine(const uint8_t *data, size_t size)
{
    char               *text = text_of(data, size);
    struct hkt_topology t;

    if (hkt_topology_text(&t, text) == 0 && t.objects < 1 << 14)
        use(&t);
    else
        hkt_topology_free(&t);
    if (hkt_topology_text(&t, "4 hosts; 2 nics") == 0) {
        hkt_topology_leaves(&t, text, "fuzz");
        hkt_topology_free(&t);
    }
    free(text);
}

void fuzz_tree(const uint8_t *data, size_t size)
{
    const int       n = size / sizeof(int32_t) < 256 ? (int)(size / sizeof(int32_t)) : 256;
    int32_t         parent[256];
    char            blocks[256];
    struct hkt_tree t;

    if (n < 1)
        return;
    memcpy(parent, data, (size_t)n * sizeof(*parent));
    if (hkt_tree_build(&t, parent, n))
        return;
    for (int i = 0; i < n; i++)
        blocks[i] = (char)t.order[i];
    hkt_tree_sort(&t, n, blocks, 1);
    for (int i = 0; i < n; i++)
        if (blocks[i] != (char)i)
            abort();
    hkt_tree_free(&t);
}

void fuzz_address(const uint8_t *data, size_t size)
{
    struct hkt_net_address a = {.bytes = (unsigned char)(size < sizeof(a.data) ? size : sizeof(a.data))};
    struct hkt_channel     c = {0};
    const unsigned char   *record;
    size_t                 n;

    memcpy(a.data, data, a.bytes);
    record = hkt_net_record(&a, "tcp", &n);
    if (record)
        tcp_read_record(&c, record, n);
}

void fuzz_id(const uint8_t *data, size_t size)
{
    struct hkt_inet_address list[HKT_ID_ADDRESSES];
    char                   *text = text_of(data, size);
    struct hkt_id           id   = {0};
    hkt_unique_id_t         printed;

    memcpy(&id, data, size < sizeof(id) ? size : sizeof(id));
    hkt_id_check(&id);
    hkt_id_addresses(&id, list);
    hkt_bootstrap_id_parse(&printed, text);
    free(text);
}
