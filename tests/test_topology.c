/* test_topology.c -- machines as files and lines of text: what is found in the recorded ones, what is refused and how, that nothing broken
 * breaks the reader. TEST_UPDATE=1 in the environment writes the expected texts anew, for the difference to be read. */
#include "harness.h"
#include "machines.h"

#include "base/memory.h"
#include "setup/topology_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void load(struct hkt_topology *t, const char *name)
{
    size_t size;
    char  *xml = read_recorded(name, ".xml", &size);

    doing("reading %s.xml", name);
    expect(xml != NULL, "tests/topologies/%s.xml cannot be read", name);
    expect_ok(hkt_topology_parse(t, xml, size, name));
    free(xml);
}

static void compare(const char *name, const char *found)
{
    const char *source = getenv("srcdir");
    size_t      size, line = 1, at = 0;
    char       *expected, path[512];

    snprintf(path, sizeof(path), "%s/tests/topologies/%s.expected", source ? source : ".", name);
    if (getenv("TEST_UPDATE")) {
        FILE *f = fopen(path, "we");

        ck_assert(f && fputs(found, f) >= 0 && fclose(f) == 0);
    }
    expected = read_recorded(name, ".expected", &size);
    expect(expected != NULL, "%s cannot be read", path);
    for (; expected[at] && expected[at] == found[at]; at++)
        line += expected[at] == '\n';
    expect(expected[at] == found[at], "%s:%zu differs from what is found (TEST_UPDATE=1 writes that):\n%.200s", path, line, found + at);
    free(expected);
}

static void compare_all(const char *name, const struct hkt_topology *t, int ranks)
{
    struct hkt_graph g;
    char            *machine, *graph, *both;

    graph_of(&g, t, ranks);
    check_graph(&g);
    machine = print_machine(t);
    graph   = print_graph(&g);
    both    = malloc(strlen(machine) + strlen(graph) + 2);
    sprintf(both, "%s\n%s", machine, graph);
    compare(name, both);
    free(both);
    free(graph);
    free(machine);
    hkt_graph_free(&g);
}

/* The machine, links, groups, rails, rings and trees of every recorded machine. */
START_TEST(test_recorded)
{
    struct hkt_topology t;

    load(&t, recorded[_i]);
    compare_all(recorded[_i], &t, 0);
    hkt_topology_free(&t);
}
END_TEST

/* What is saved is what was read, byte for byte. */
START_TEST(test_saved)
{
    struct hkt_topology t;
    size_t              before, after;
    char               *xml = read_recorded(recorded[_i], ".xml", &before), *again;

    load(&t, recorded[_i]);
    again = xml_of(&t, &after);
    expect(before == after && memcmp(xml, again, before) == 0, "%s.xml changes when it is saved", recorded[_i]);
    free(again);
    free(xml);
    hkt_topology_free(&t);
}
END_TEST

/* 32 hosts of 8 GPUs, 8 hosts for every leaf switch; and measured costs come back from a file. */
START_TEST(test_text)
{
    struct hkt_topology t, u;
    size_t              size;
    char               *xml;

    machine_of(&t, "32 hosts node- 8 per leaf; 2 sockets; 4 switches; 1 gpus H100 80GiB nvswitch 450GB/s; 1 nics mlx5_ 400Gb/s");
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_GPU), 256);
    compare_all("hosts-32", &t, 0);
    t.cost[HKT_CLASS_RAIL] = (struct hkt_class_cost){1.25e-6, 1e-7, 45.5e9};
    xml                    = xml_of(&t, &size);
    expect_ok(hkt_topology_parse(&u, xml, size, "saved"));
    ck_assert(t.objects == u.objects && t.wires == u.wires);
    ck_assert(fabs(u.cost[HKT_CLASS_RAIL].latency - 1.25e-6) < 1e-15 && u.cost[HKT_CLASS_RAIL].bandwidth == 45.5e9);
    ck_assert(u.cost[HKT_CLASS_LEAF].bandwidth == hkt_class_default[HKT_CLASS_LEAF].bandwidth);
    free(xml);
    hkt_topology_free(&t);
    hkt_topology_free(&u);
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *said;
} wrong_texts[] = {
    {"", "hosts, sockets"},
    {"8", "hosts, sockets"},
    {"gpus 8", "hosts, sockets"},
    {"8 gpu's", "hosts, sockets"},
    {"0 gpus", "from 1"},
    {"-1 gpus", "from 1"},
    {"99999999999999999999 gpus", "from 1"},
    {"257 gpus", "from 1"},
    {"8 nics; 8 gpus", "in this order"},
    {"8 gpus; 8 gpus", "each once"},
    {"8 gpus 400", "a number is followed"},
    {"8 gpus 400 threads", "a number is followed"},
    {"4 cores 9 threads", "1 to 8 threads"},
    {"2 hosts 4 per rack", "per leaf"},
    {"8 gpus 80Gigs", "no size"},
    {"2 sockets 3GHz", "no size"},
    {"8 gpus H100 H200", "no word"},
    {"8 gpus abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", "no word is that long"},
    {"131072 hosts; 8 gpus; 8 nics", "at most 1048576 objects"},
    {"1 hosts; 256 numa", "from 1"},
};

START_TEST(test_wrong_text)
{
    struct hkt_topology t;

    doing("reading \"%s\"", wrong_texts[_i].text);
    expect_code(hkt_topology_text(&t, wrong_texts[_i].text), HKT_ERR_ARGUMENT);
    expect_said(wrong_texts[_i].said);
    ck_assert(!t.object && !t.wire);
}
END_TEST

#define MACHINE(inside) "<machine format=\"1\">\n<host>\n" inside "\n</host></machine>"

static const struct {
    const char *xml, *said;
} wrong_files[] = {
    {"", "x:1: the file ends"},
    {"hello", "x:1: text stands"},
    {"<host/>", "begins with a machine"},
    {"<machine/>", "attribute format"},
    {"<machine format=\"2\"/>", "newer than this version"},
    {"<machine format=\"1\"/>", "the file ends inside"},
    {"<machine format=\"1\"></machine>", "without a host"},
    {"<!DOCTYPE machine [<!ENTITY a \"aaaa\">]><machine format=\"1\"/>", "the name of an element"},
    {MACHINE("<gpu name=\"&a;\"/>"), "x:3: a value in quotes"},
    {MACHINE("<gpu name=\"a<b\"/>"), "x:3: a value in quotes"},
    {MACHINE("<gpu name='1234567890123456789012345678901234567890123456789012345678901234'/>"), "shorter than 64"},
    {MACHINE("<gpu name='12345678901234567890123456789012'/>"), "fewer than 32"},
    {MACHINE("<gpu name=\"a\" name=\"b\"/>"), "stands twice"},
    {MACHINE("<gpu colour=\"red\"/>"), "no attribute of this name"},
    {MACHINE("<gpu memory=\"80\"/>"), "a size is expected"},
    {MACHINE("<gpu memory=\"-1GB\"/>"), "a size is expected"},
    {MACHINE("<gpu memory=\"1e300GB\"/>"), "a size is expected"},
    {MACHINE("<gpu memory=\"0x10GB\"/>"), "a size is expected"},
    {MACHINE("<nic rate=\"nanGb/s\"/>"), "a bandwidth is expected"},
    {MACHINE("<core cpus=\"1,2,3,4,5,6,7,8,9\"/>"), "hardware threads"},
    {MACHINE("<core cpus=\"99999\"/>"), "hardware threads"},
    {MACHINE("<core><core/></core>"), "no place in the one around it"},
    {MACHINE("<socket><numa><socket/></numa></socket>"), "do not lie within one another"},
    {MACHINE("<host/>"), "no place"},
    {MACHINE("<disk/>"), "no element is called disk"},
    {MACHINE("<gpu></nic>"), "another one: gpu"},
    {MACHINE("<link a=\"gpu0\" b=\"gpu1\" class=\"nvlink\"/>"), "before it"},
    {MACHINE("<gpu/><link a=\"gpu0\" b=\"gpu0\" class=\"nvlink\"/>"), "joins two GPUs"},
    {MACHINE("<gpu/><gpu/><link a=\"gpu0\" b=\"gpu1\" class=\"rail\"/>"), "nvlink or xgmi"},
    {MACHINE("<gpu/><gpu/><link a=\"gpu0\" b=\"gpu1\" class=\"nvlink\"/><link a=\"gpu1\" b=\"gpu0\" class=\"xgmi\"/>"), "linked twice"},
    {MACHINE("<gpu/><gpu/><link a=\"gpu0\" b=\"gpu1\" class=\"nvlink\"></link>"), "empty elements"},
    {MACHINE("<class name=\"rail\" latency=\"1us\" gap=\"1us\" rate=\"1GB/s\"/>"), "not in a host"},
    {"<machine format=\"1\"><class name=\"rail\" latency=\"1us\" gap=\"1us\" rate=\"0GB/s\"/><host></host></machine>", "a class has name"},
    {MACHINE("") "<machine format=\"1\"/>", "something stands after"},
    {MACHINE("<!-- no end"), "a comment has no end"},
    {MACHINE("<switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch><switch>"),
     "16 deep"},
};

START_TEST(test_wrong_file)
{
    struct hkt_topology t;

    doing("reading %s", wrong_files[_i].xml);
    expect_code(hkt_topology_parse(&t, wrong_files[_i].xml, strlen(wrong_files[_i].xml), "x"), HKT_ERR_ARGUMENT);
    expect_said(wrong_files[_i].said);
    ck_assert(!t.object && !t.wire);
}
END_TEST

/* hkt_topology_load() tells text from files, and says of a file that it cannot be read. */
START_TEST(test_load)
{
    struct hkt_topology t;

    expect_ok(hkt_topology_load(&t, " 2 hosts; 8 gpus"));
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_GPU), 16);
    hkt_topology_free(&t);
    expect_code(hkt_topology_load(&t, "2hosts.xml"), HKT_ERR_ARGUMENT);
    expect_said("the machine in 2hosts.xml cannot be read: No such file");
    expect_code(hkt_topology_load(&t, "/"), HKT_ERR_ARGUMENT);
    expect_said("Is a directory");
}
END_TEST

/* ---- nothing breaks the reader ----------------------------------------------------------------------------------- */

/* Whatever was accepted can be printed, saved, read again and asked for its graph. */
static void use(struct hkt_topology *t)
{
    struct hkt_topology again;
    struct hkt_graph    g;
    size_t              size, size_again;
    char               *text = print_machine(t), *xml = xml_of(t, &size), *xml_again;

    expect_ok(hkt_topology_parse(&again, xml, size, "saved"));
    xml_again = xml_of(&again, &size_again);
    expect(size == size_again && memcmp(xml, xml_again, size) == 0, "saved twice, it differs:\n%s\n%s", xml, xml_again);
    graph_of(&g, t, 9);
    check_graph(&g);
    hkt_graph_free(&g);
    hkt_topology_free(&again);
    hkt_topology_free(t);
    free(text);
    free(xml);
    free(xml_again);
}

/* One byte changed, pieces cut out, doubled or moved: of recorded files, and of texts. */
static size_t mutate(char *text, size_t size, size_t room, uint64_t seed)
{
    static const char strange[] = "<>/\"'&;=- \n09.GBabcxz\x00\xff\x7f";

    for (uint64_t n = 1 + mix(seed) % 3; n > 0; n--) {
        const uint64_t random = mix(seed + n), at = random % (size + 1), other = mix(random) % (size + 1);
        const size_t   length = mix(random + 1) % 40 < size - at ? mix(random + 1) % 40 : size - at;

        switch (mix(random + 2) % 4) {
        case 0:
            text[at] = strange[mix(random + 3) % sizeof(strange)];
            size += at == size && size + 1 < room;
            break;
        case 1:
            memmove(text + at, text + at + length, size - at - length);
            size -= length;
            break;
        case 2:
            if (size + length >= room)
                break;
            memmove(text + at + length, text + at, size - at);
            size += length;
            break;
        default:
            if (other + length <= size)
                memmove(text + other, text + at, length);
        }
    }
    return size;
}

START_TEST(test_broken_files)
{
    size_t       whole, size;
    char        *xml = read_recorded(recorded[_i], ".xml", &whole), *broken = malloc(whole + 4096);
    const int    turns    = long_tests() ? 100000 : slow_build() ? 1000 : 8000;
    int          accepted = 0;

    ck_assert(xml && broken);
    for (int turn = 0; turn < turns; turn++) {
        struct hkt_topology t;

        doing("reading %s, broken in way %d", recorded[_i], turn);
        memcpy(broken, xml, whole);
        size = mutate(broken, whole, whole + 4096, (uint64_t)turn * 977 + (uint64_t)_i);
        if (turn % 8 == 0)
            size = mix((uint64_t)turn) % (size + 1);
        if (hkt_topology_parse(&t, broken, size, "broken") == HKT_OK && accepted++ < 50)
            use(&t);
        else
            hkt_topology_free(&t);
    }
    expect(accepted > 0 && accepted < turns, "%d of %d broken files were accepted", accepted, turns);
    free(broken);
    free(xml);
}
END_TEST

START_TEST(test_broken_texts)
{
    static const char text[]   = "3 hosts n- 2 per leaf; 2 sockets EPYC; 2 numa 64GiB; 2 caches 32MiB; 4 cores 2 threads; 1 cores slow; 2 switches; "
                                 "2 gpus MI 192GB xgmi 64GB/s; 1 nics eth_ 200Gb/s";
    const int         turns    = long_tests() ? 200000 : 20000;
    int               accepted = 0;

    for (int turn = 0; turn < turns; turn++) {
        struct hkt_topology t;
        char                broken[1024] = "";
        size_t              size;

        memcpy(broken, text, sizeof(text));
        size         = mutate(broken, sizeof(text) - 1, sizeof(broken), (uint64_t)turn);
        broken[size] = 0;
        doing("reading \"%s\"", broken);
        if (hkt_topology_text(&t, broken) == HKT_OK && t.objects < 5000 && accepted++ < 50)
            use(&t);
        else
            hkt_topology_free(&t);
    }
    expect(accepted > 0 && accepted < turns, "%d of %d broken texts were accepted", accepted, turns);
}
END_TEST

/* Every allocation may fail: the error is said, nothing is left, and the next attempt works. */
START_TEST(test_no_memory)
{
    size_t size;
    char  *xml  = read_recorded("mi300x-like", ".xml", &size);
    bool   done = false;

    for (long n = 1; !done; n++) {
        struct hkt_topology t;
        struct hkt_graph    g;
        int                 at[8], rc;

        hkt_alloc_fail_at(n);
        rc = hkt_topology_parse(&t, xml, size, "x");
        if (!rc)
            rc = hkt_graph_place(&t, 8, at);
        if (!rc)
            rc = hkt_graph_make(&g, &t, at, 8);
        hkt_alloc_fail_at(0);
        done = rc == HKT_OK;
        expect(done || rc == HKT_ERR_MEMORY, "allocation %ld fails, and the error is %d", n, rc);
        if (done)
            hkt_graph_free(&g);
        hkt_topology_free(&t);
        ck_assert_int_lt(n, 1000);
    }
    free(xml);
}
END_TEST

/* ---- leaf switches ----------------------------------------------------------------------------------------------- */

static int leaf(const struct hkt_topology *t, int host, int nic)
{
    return t->object[hkt_object_find(t, hkt_object_find(t, 0, HKT_OBJECT_HOST, host), HKT_OBJECT_NIC, nic)].leaf;
}

START_TEST(test_leaves)
{
    struct hkt_topology t;

    machine_of(&t, "4 hosts n-; 2 gpus; 2 nics eth");
    expect_ok(hkt_topology_leaves(&t, "# racks\n* * spine-less\nn-0 0 left\nn-1\t0 left # cable 7\n\n2 1 right\n", "table"));
    ck_assert(leaf(&t, 0, 0) == 1 && leaf(&t, 1, 0) == 1 && leaf(&t, 2, 1) == 2 && leaf(&t, 3, 0) == 0 && leaf(&t, 0, 1) == 0);
    expect_code(hkt_topology_leaves(&t, "n-0 0 a\nn-0 0", "table"), HKT_ERR_ARGUMENT);
    expect_said("table:2: a host, a NIC");
    expect_code(hkt_topology_leaves(&t, "n-9 0 a", "table"), HKT_ERR_ARGUMENT);
    expect_said("table:1: no NIC");
    expect_code(hkt_topology_leaves(&t, "n-0 0 a b", "table"), HKT_ERR_ARGUMENT);
    expect_code(hkt_topology_leaves(&t, "n-0 0 abcdefghijklmnopqrstuvwxyzabcdefghijkl", "table"), HKT_ERR_ARGUMENT);
    hkt_topology_free(&t);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_recorded, RECORDED, 30);
    ADD(s, test_saved, RECORDED, 30);
    ADD(s, test_text, 1, 30);
    ADD(s, test_wrong_text, sizeof(wrong_texts) / sizeof(wrong_texts[0]), 30);
    ADD(s, test_wrong_file, sizeof(wrong_files) / sizeof(wrong_files[0]), 30);
    ADD(s, test_load, 1, 30);
    ADD(s, test_broken_files, RECORDED, 120);
    ADD(s, test_broken_texts, 1, 120);
    ADD(s, test_no_memory, 1, 60);
    ADD(s, test_leaves, 1, 30);
}

int main(void)
{
    return run_suite("topology", add);
}
