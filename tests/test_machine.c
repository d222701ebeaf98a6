/* test_machine.c -- what a process may use of the machine: made-up systems with control groups of both versions, and
 * this one. */
#include "harness.h"

#include "setup/machine.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/test_machine-XXXXXX";

/* Writes a file of the made-up system, and the folders above it. */
static void put(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *path, const char *format, ...)
{
    char    full[PATH_MAX];
    va_list args;
    FILE   *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    f = fopen(full, "w");
    ck_assert_msg(f != NULL, "cannot write %s", full);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

static void begin(void)
{
    ck_assert(mkdtemp(root));
    hkt_machine_root = root;
    put("/proc/meminfo",
        "MemTotal: 100 kB\nMemFree:  1 kB\nMemAvailable:   65536 kB\nSwapTotal: 9 kB\nSwapFree: 1024 kB\n");
}

static void end(void)
{
    char command[64];

    hkt_machine_root = "";
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert(system(command) == 0);
}

static double quota(void)
{
    struct hkt_cpus cpus;

    hkt_machine_cpus(&cpus);
    return cpus.quota;
}

/* The least quota from the own group up to the top of version 2; "max" is none. */
START_TEST(test_quota_v2)
{
    begin();
    expect_true(isinf(quota()));
    put("/proc/self/mountinfo", "22 1 0:20 / /sys rw - sysfs sysfs rw\n29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 "
                                "- cgroup2 cgroup2 rw,nsdelegate\n");
    put("/proc/self/cgroup", "0::/user/job/step\n");
    put("/sys/fs/cgroup/user/job/step/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/user/job/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/user/cpu.max", "800000 100000\n");
    expect_true(quota() == 2.5);
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n"); /* inside a container the top has one */
    expect_true(quota() == 0.5);
    put("/proc/self/cgroup", "0::/\n");
    expect_true(quota() == 0.5);
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    expect_true(quota() == 0.5);
    end();
}
END_TEST

/* Version 1, whose mount inside a container shows only the container's part while the paths are the host's. */
START_TEST(test_quota_v1)
{
    begin();
    put("/proc/self/mountinfo", "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
                                "32 30 0:28 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
                                "33 30 0:29 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "5:cpuset:/docker/abc\n4:cpuacct,cpu:/docker/abc/sub\n0::/docker/abc\n");
    put("/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1\n");
    put("/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/sub/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/sub/cpu.cfs_period_us", "100000\n");
    expect_true(quota() == 3);
    put("/sys/fs/cgroup/cpu,cpuacct/sub/cpu.cfs_quota_us", "150000\n");
    expect_true(quota() == 1.5);
    put("/proc/self/cgroup",
        "4:cpuacct,cpu:/docker/abcdef\n"); /* not below the mount's part, though its name begins so */
    expect_true(quota() == 3);
    end();
}
END_TEST

/* Memory: the machine's, or the tightest group's with what can be dropped of it. */
START_TEST(test_memory)
{
    struct hkt_memory m;

    begin();
    hkt_machine_memory(&m);
    expect_true(m.available == (65536 + 1024) * 1024 && strstr(m.limit, "machine"));
    put("/proc/self/mountinfo", "29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "5000000\n");
    put("/sys/fs/cgroup/a/memory.max", "20000000\n");
    put("/sys/fs/cgroup/a/memory.current", "19000000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\nfile 9000000\ninactive_file 3000000\nactive_file 1000000\nslab 4\n");
    hkt_machine_memory(&m);
    expect(m.available == 5000000, "%llu bytes are available", (unsigned long long)m.available);
    expect_true(strstr(m.limit, "limit 20000000 of the memory control group") != NULL);
    put("/sys/fs/cgroup/a/memory.current", "29000000\n");
    hkt_machine_memory(&m);
    expect_true(m.available == 0);
    put("/proc/self/mountinfo", "29 22 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/proc/self/cgroup", "3:memory:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "10000000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 2000000\n");
    hkt_machine_memory(&m);
    expect_true(m.available == 3000000);
    end();
    hkt_machine_memory(&m);
    expect_true(m.available > 1 << 20 && m.limit[0]);
}
END_TEST

/* Caches of the core that runs this; defaults where the system does not say. */
START_TEST(test_caches)
{
    static const char *const level[] = {"1", "1", "2", "3"}, *const type[] = {"Data", "Instruction", "Unified",
                                                                              "Unified"};
    static const char *const size[] = {"48K", "32K", "2048K", "36M"};
    char                     path[128];

    begin();
    expect_true(hkt_machine_last_cache() == 32 << 20 && hkt_machine_core_cache() == 512 << 10);
    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); cpu++)
        for (int i = 0; i < 4; i++) {
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
            put(path, "%s\n", level[i]);
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
            put(path, "%s\n", type[i]);
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, i);
            put(path, "%s\n", size[i]);
        }
    expect_true(hkt_machine_last_cache() == 36 << 20 && hkt_machine_core_cache() == 2 << 20);
    end();
    expect_true(hkt_machine_last_cache() >= hkt_machine_core_cache());
}
END_TEST

/* The mask is that of the calling thread. */
START_TEST(test_affinity)
{
    struct hkt_cpus all, one;
    cpu_set_t       set;
    int             cpu = 0, bits = 0;

    hkt_machine_cpus(&all);
    while (!(all.bits[cpu / 64] >> cpu % 64 & 1))
        cpu++;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    expect_true(sched_setaffinity(0, sizeof(set), &set) == 0);
    hkt_machine_cpus(&one);
    for (int i = 0; i < HKT_CPU_WORDS; i++)
        bits += __builtin_popcountl(one.bits[i]);
    expect_true(bits == 1 && one.bits[cpu / 64] >> cpu % 64 & 1 && one.quota == all.quota);
}
END_TEST

/* Ranks from masks of processors: "01 0 12" are three ranks. */
static bool dedicated(const char *masks, double each_quota)
{
    struct hkt_cpus ranks[16] = {0};
    int             n         = 1;

    for (const char *c = masks; *c; c++)
        if (*c == ' ')
            n++;
        else
            ranks[n - 1].bits[(*c - '0') / 5] |= 1UL << ((*c - '0') % 5 + 50); /* some in another word */
    for (int r = 0; r < n; r++)
        ranks[r].quota = each_quota;
    return hkt_machine_dedicated(ranks, n);
}

/* Every rank has a core: a matching of ranks and processors, and enough quota. */
START_TEST(test_dedicated)
{
    struct hkt_cpus two[3] = {{.bits = {7}, .quota = 4}, {.bits = {7}, .quota = 2}, {.bits = {7}, .quota = 4}};

    expect_true(dedicated("0", INFINITY) && dedicated("01 01", INFINITY) && !dedicated("01 01 01", INFINITY));
    expect_true(dedicated("012 01 0", INFINITY) && dedicated("0 01 012", INFINITY) && dedicated("01 0 12", INFINITY));
    expect_true(!dedicated("0 0", INFINITY) && !dedicated("0123 01 0 1", INFINITY) &&
                dedicated("0123 01 0 12", INFINITY));
    expect_true(!dedicated("01234567 5 6 7 56 567", INFINITY) && dedicated("456789 78 89 97 56 6", INFINITY));
    expect_true(dedicated("01 01", 2) && !dedicated("01 01", 1.5) && !dedicated("0", 0.5) && dedicated("0", 1));
    expect_true(hkt_machine_dedicated(two, 3));
    two[0].quota = 1;
    expect_true(hkt_machine_dedicated(two, 3));
    two[2].quota = 2;
    expect_true(!hkt_machine_dedicated(two, 3));
}
END_TEST

/* 1024 ranks that may run anywhere, and those that are each bound to one processor, are decided quickly; 1025 have no
 * room. */
START_TEST(test_dedicated_many)
{
    struct hkt_cpus *ranks = calloc(1025, sizeof(*ranks));
    const double     begun = now();

    for (int r = 0; r < 1025; r++) {
        memset(ranks[r].bits, 0xff, sizeof(ranks[r].bits));
        ranks[r].quota = INFINITY;
    }
    expect_true(hkt_machine_dedicated(ranks, 1024) && !hkt_machine_dedicated(ranks, 1025));
    for (int r = 0; r < 1024;
         r++) /* rank r may use the processors 0 to r: every new one moves all others in the worst order */
        for (int c = 0; c < 1024; c++)
            if (c > 1023 - r)
                ranks[r].bits[c / 64] &= ~(1UL << c % 64);
    expect_true(hkt_machine_dedicated(ranks, 1024));
    ranks[1022] = ranks[1023];
    expect_true(!hkt_machine_dedicated(ranks, 1024));
    expect(now() - begun < 1 || slow_build(), "deciding took %.2f s", now() - begun);
    free(ranks);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, test_quota_v2, 1, 10);
    ADD(s, test_quota_v1, 1, 10);
    ADD(s, test_memory, 1, 10);
    ADD(s, test_caches, 1, 10);
    ADD(s, test_affinity, 1, 10);
    ADD(s, test_dedicated, 1, 10);
    ADD(s, test_dedicated_many, 1, 10);
}

int main(void)
{
    return run_suite("machine", add);
}
