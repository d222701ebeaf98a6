/* test_topology_read.c -- machines read from the system: made-up ones in sysfs, with control over every file; a made-up NVML; hwloc's XML; and
 * this one, on which the readers must agree. */
#include "config.h"

#include "harness.h"
#include "machines.h"

#include "setup/machine.h"
#include "setup/topology_nvml.h"
#include "setup/topology_read.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/test_topology_read-XXXXXX";

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* Writes a file of the made-up system, and the folders above it. */
static void put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *text, const char *format, ...)
{
    char    path[PATH_MAX], full[PATH_MAX + 64];
    va_list args;
    FILE   *f;

    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    snprintf(full, sizeof(full), "%s/sys/%s", root, path);
    make_folders(full);
    f = fopen(full, "we");
    ck_assert_msg(f != NULL, "cannot write %s", full);
    fprintf(f, "%s\n", text);
    fclose(f);
}

static void begin(void)
{
    strcpy(root + sizeof(root) - 7, "XXXXXX");
    ck_assert(mkdtemp(root));
    hkt_machine_root = root;
}

static void end(void)
{
    char command[64];

    hkt_machine_root = "";
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert(system(command) == 0);
}

/* A processor of a socket, with its caches: two cores share an L3. */
static void put_cpu(int cpu, int socket, const char *siblings, const char *l3)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", socket);
    put(text, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    put(siblings, "devices/system/cpu/cpu%d/topology/core_cpus_list", cpu);
    put("1", "devices/system/cpu/cpu%d/cache/index0/level", cpu);
    put("Data", "devices/system/cpu/cpu%d/cache/index0/type", cpu);
    put("3", "devices/system/cpu/cpu%d/cache/index1/level", cpu);
    put("Unified", "devices/system/cpu/cpu%d/cache/index1/type", cpu);
    put("32768K", "devices/system/cpu/cpu%d/cache/index1/size", cpu);
    put(l3, "devices/system/cpu/cpu%d/cache/index1/shared_cpu_list", cpu);
}

/* A PCI device at a path of bridges; `net`: the folder of the NIC's name, or NULL. */
static void put_pci(const char *path, const char *class, const char *vendor, const char *numa, const char *net)
{
    const char *address = strrchr(path, '/') + 1;
    char        link[PATH_MAX], to[PATH_MAX];

    put(class, "devices/%s/class", path);
    put(vendor, "devices/%s/vendor", path);
    put(numa, "devices/%s/numa_node", path);
    put("32.0 GT/s PCIe", "devices/%s/current_link_speed", path);
    put("16", "devices/%s/current_link_width", path);
    if (net)
        put("", "devices/%s/%s/.x", path, net);
    put("", "bus/pci/devices/.x");
    snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s", root, address);
    snprintf(to, sizeof(to), "../../../devices/%s", path);
    ck_assert(symlink(to, link) == 0);
}

static void put_kfd(int node, const char *location, int other)
{
    char text[128];

    snprintf(text, sizeof(text), "cpu_cores_count 0\nsimd_count 304\nlocation_id %s\ndomain 0", location);
    put(text, "class/kfd/kfd/topology/nodes/%d/properties", node);
    snprintf(text, sizeof(text), "type 2\nnode_to 0\nmax_bandwidth 1");
    put(text, "class/kfd/kfd/topology/nodes/%d/io_links/0/properties", node);
    snprintf(text, sizeof(text), "type 11\nversion_major 0\nnode_from %d\nnode_to %d\nmax_bandwidth 64000", node, other);
    put(text, "class/kfd/kfd/topology/nodes/%d/io_links/1/properties", node);
}

static const char made_up[] = "machine\n"
                              "└─ host 0: HOST\n"
                              "   ├─ socket 0\n"
                              "   │  └─ numa 0: 64GiB\n"
                              "   │     ├─ cache L3: 32MiB\n"
                              "   │     │  ├─ core 0: 2 threads\n"
                              "   │     │  └─ core 1: 1 thread, slow\n"
                              "   │     ├─ switch 0: at 0000:02:00.0\n"
                              "   │     │  ├─ gpu 0: at 0000:04:00.0, 63.0153846154GB/s\n"
                              "   │     │  └─ nic 0: mlx5_0, at 0000:05:00.0, 400Gb/s\n"
                              "   │     └─ gpu 1: at 0000:07:00.0, 63.0153846154GB/s\n"
                              "   ├─ socket 1\n"
                              "   │  └─ numa 1: 64GiB\n"
                              "   │     └─ cache L3: 32MiB\n"
                              "   │        ├─ core 2: 2 threads\n"
                              "   │        └─ core 3: 1 thread, slow\n"
                              "   ├─ nic 1: eth0, at 0000:01:00.0, 10Gb/s\n"
                              "   └─ numa 2: 16GiB\n"
                              "xgmi gpu 0 - gpu 1, 64GB/s\n";

static void put_machine(void)
{
    put("0-5", "devices/system/cpu/online");
    put("4-5", "devices/cpu_atom/cpus");
    put_cpu(0, 0, "0,2", "0,2,4");
    put_cpu(1, 1, "1,3", "1,3,5");
    put_cpu(2, 0, "0,2", "0,2,4");
    put_cpu(3, 1, "1,3", "1,3,5");
    put_cpu(4, 0, "4", "0,2,4");
    put_cpu(5, 1, "5", "1,3,5");
    put("0-1,4", "devices/system/node/online");
    put("0,2,4", "devices/system/node/node0/cpulist");
    put("1,3,5", "devices/system/node/node1/cpulist");
    put("", "devices/system/node/node4/cpulist");
    put("Node 0 MemTotal:       67108864 kB\nNode 0 MemFree: 1 kB", "devices/system/node/node0/meminfo");
    put("Node 1 MemTotal:       67108864 kB", "devices/system/node/node1/meminfo");
    put("Node 4 MemTotal:       16777216 kB", "devices/system/node/node4/meminfo");
    put_pci("pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:00.0/0000:04:00.0", "0x120000", "0x1002", "0", NULL);
    put_pci("pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:01.0/0000:05:00.0", "0x020000", "0x15b3", "0", "infiniband/mlx5_0");
    put_pci("pci0000:00/0000:00:02.0/0000:07:00.0", "0x120000", "0x1002", "0", NULL);
    put_pci("pci0000:00/0000:00:03.0/0000:08:00.0", "0x020000", "0x8086", "0", "net/eth1"); /* no link */
    put_pci("pci0000:00/0000:00:04.0/0000:09:00.0", "0x030000", "0x1a03", "0", NULL);       /* a server's screen */
    put_pci("pci0000:00/0000:00:05.0/0000:01:00.0", "0x020000", "0x1af4", "-1", "virtio0/net/eth0");
    put("4: ACTIVE", "class/infiniband/mlx5_0/ports/1/state");
    put("400 Gb/sec (4X NDR)", "class/infiniband/mlx5_0/ports/1/rate");
    put("up", "class/net/eth0/operstate");
    put("10000", "class/net/eth0/speed");
    put("down", "class/net/eth1/operstate");
    put("cpu_cores_count 6\nsimd_count 0", "class/kfd/kfd/topology/nodes/0/properties");
    put_kfd(1, "1024", 2); /* 04:00.0 */
    put_kfd(2, "1792", 1); /* 07:00.0 */
}

/* Sockets, memory nodes with and without processors, hybrid cores, what is behind a PCIe switch, the NICs that have a link, AMD's links. */
START_TEST(test_made_up)
{
    struct hkt_topology t;
    char               *text;

    begin();
    put_machine();
    expect_ok(hkt_topology_read(&t));
    strcpy(t.object[1].name, "HOST");
    text = print_machine(&t);
    expect(strcmp(text, made_up) == 0, "read was:\n%s\ninstead of:\n%s", text, made_up);
    ck_assert_int_eq(t.object[hkt_object_find(&t, 1, HKT_OBJECT_CORE, 2)].cpu[1], 3);
    free(text);
    hkt_topology_free(&t);
    end();
}
END_TEST

/* A system that says nothing is one host with nothing in it, and ranks can be placed there. */
START_TEST(test_nothing)
{
    struct hkt_topology t;
    struct hkt_graph    g;

    begin();
    expect_ok(hkt_topology_read(&t));
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_HOST), 1);
    graph_of(&g, &t, 5);
    check_graph(&g);
    hkt_graph_free(&g);
    hkt_topology_free(&t);
    end();
}
END_TEST

/* ---- a made-up NVML ---------------------------------------------------------------------------------------------- */

static int fake_switch; /* do the links go to a switch? */

static int fake_count(unsigned *devices)
{
    *devices = 4;
    return 0;
}

static int fake_handle(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return 0;
}

static int fake_pci(void *device, struct hkt_nvml_pci *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = (unsigned)(uintptr_t)device;
    return device == (void *)4; /* one has no address */
}

/* Of six links the first two go to the next GPU of three, the next two to the one after, then one is down. */
static int fake_state(void *device, unsigned link, unsigned *active)
{
    (void)device;
    *active = link < 4;
    return link >= 6;
}

static int fake_remote(void *device, unsigned link, struct hkt_nvml_pci *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = fake_switch ? 99 : ((unsigned)(uintptr_t)device - 1 + 1 + link / 2) % 3 + 1;
    return 0;
}

static int fake_type(void *device, unsigned link, unsigned *type)
{
    (void)device;
    (void)link;
    *type = fake_switch ? 2 : 0;
    return 0;
}

static int fake_version(void *device, unsigned link, unsigned *version)
{
    (void)device;
    (void)link;
    *version = 4;
    return 0;
}

static int fake_name(void *device, char *name, unsigned size)
{
    (void)device;
    snprintf(name, size, "NVIDIA H200");
    return 0;
}

START_TEST(test_nvml)
{
    const struct hkt_nvml nvml = {.count = fake_count, .handle = fake_handle, .pci = fake_pci,   .state = fake_state, .remote = fake_remote,
                                  .type = fake_type,   .name = fake_name,     .version = fake_version};
    struct hkt_topology   t;

    fake_switch = _i;
    ck_assert(hkt_topology_begin(&t) >= 0 && hkt_object_open(&t, HKT_OBJECT_HOST) >= 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(hkt_object_open(&t, HKT_OBJECT_GPU) >= 0);
        snprintf(t.object[t.open].bus, HKT_NAME_BYTES, "0000:%02x:00.0", i + 1);
        hkt_object_close(&t);
    }
    expect_ok(hkt_nvml_links(&t, &nvml));
    hkt_object_close(&t);
    expect_ok(hkt_topology_finish(&t));
    ck_assert_str_eq(t.object[hkt_object_find(&t, 0, HKT_OBJECT_GPU, 2)].name, "H200");
    ck_assert_int_eq(t.wires, 3);
    for (int w = 0; w < 3; w++)
        expect(t.wire[w].class == HKT_CLASS_NVLINK && t.wire[w].bandwidth == (fake_switch ? 100e9 : 50e9), "link %d has %g", w,
               t.wire[w].bandwidth);
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_FABRIC), fake_switch);
    ck_assert_int_eq(
        hkt_objects_class(&t, hkt_object_find(&t, 0, HKT_OBJECT_GPU, 0), hkt_object_find(&t, 0, HKT_OBJECT_GPU, 2)), HKT_CLASS_NVLINK);
    hkt_topology_free(&t);
}
END_TEST

/* ---- hwloc ------------------------------------------------------------------------------------------------------- */

static const char hwloc_xml[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" allowed_cpuset=\"0x3\" nodeset=\"0x1\" "
    "complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\"><info name=\"HostName\" value=\"saved\"/>\n"
    "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"2\" "
    "local_memory=\"1073741824\"/>\n"
    "<object type=\"Package\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"3\">\n"
    "<object type=\"L2Cache\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"4\" "
    "cache_size=\"2097152\" depth=\"2\" cache_linesize=\"64\" cache_associativity=\"0\" cache_type=\"0\">\n"
    "<object type=\"Core\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"5\">"
    "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"6\"/></object>\n"
    "<object type=\"Core\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"7\">"
    "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"8\"/></object>\n"
    "</object></object></object></topology>\n";

START_TEST(test_hwloc_file)
{
    struct hkt_topology t;
    char                path[] = "/tmp/test_hwloc-XXXXXX";
    const int           fd     = mkstemp(path);

    ck_assert(fd >= 0 && write(fd, hwloc_xml, sizeof(hwloc_xml) - 1) == (ssize_t)sizeof(hwloc_xml) - 1);
    close(fd);
#ifdef HAVE_HWLOC
    expect_ok(hkt_topology_file(&t, path));
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_SOCKET), 1);
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_CORE), 2);
    ck_assert_int_eq(hkt_object_count(&t, 0, HKT_OBJECT_CACHE), 1);
    ck_assert(t.object[hkt_object_find(&t, 0, HKT_OBJECT_NUMA, 0)].bytes == 1 << 30);
    ck_assert_str_eq(t.object[1].name, "saved");
    hkt_topology_free(&t);
    ck_assert(truncate(path, sizeof(hwloc_xml) / 2) == 0);
    expect_code(hkt_topology_file(&t, path), HKT_ERR_ARGUMENT);
    expect_said("hwloc");
#else
    expect_code(hkt_topology_file(&t, path), HKT_ERR_UNSUPPORTED);
    expect_said("configure it with hwloc");
#endif
    unlink(path);
}
END_TEST

/* This host, by sysfs and, where it is built in, by hwloc: the same sockets, cores and NICs; what is read can be saved and read again. */
START_TEST(test_this_host)
{
    static const enum hkt_object_kind kinds[] = {HKT_OBJECT_SOCKET, HKT_OBJECT_CORE, HKT_OBJECT_NIC};
    struct hkt_topology               t, hwloc, again;
    size_t                            size;
    char                             *xml;

    expect_ok(hkt_topology_read(&t));
    if (!slow_build() && hkt_read_hwloc(&hwloc) == HKT_OK) { /* plugins of hwloc leak, which a sanitizer would say */
        hkt_object_close(&hwloc);
        expect_ok(hkt_topology_finish(&hwloc));
        for (int k = 0; k < 3; k++)
            expect(hkt_object_count(&t, 0, kinds[k]) == hkt_object_count(&hwloc, 0, kinds[k]), "%d of kind %s, hwloc has %d",
                   hkt_object_count(&t, 0, kinds[k]), hkt_object_name[kinds[k]], hkt_object_count(&hwloc, 0, kinds[k]));
        hkt_topology_free(&hwloc);
    }
    xml = xml_of(&t, &size);
    expect_ok(hkt_topology_parse(&again, xml, size, "saved"));
    ck_assert_int_eq(again.objects, t.objects);
    free(xml);
    hkt_topology_free(&again);
    hkt_topology_free(&t);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_made_up, 1, 30);
    ADD(s, test_nothing, 1, 30);
    ADD(s, test_nvml, 2, 30);
    ADD(s, test_hwloc_file, 1, 30);
    ADD(s, test_this_host, 1, 30);
}

int main(void)
{
    return run_suite("topology_read", add);
}
