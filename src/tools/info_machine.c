/* info_machine.c -- the overview of hkt-info: what of this machine Hocket can use, and what it cannot and why. */
#include "base/atomic.h"
#include "info.h"
#include "language/dtype.h"
#include "net/transport.h"
#include "setup/machine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static void line(const char *name, const char *text)
{
    printf("%-22s %s\n", name, text);
}

/* The first line of a file that begins with `key`, from its value on; false when there is none. */
static bool find_line(const char *path, const char *key, char *text, size_t size)
{
    FILE *file  = fopen(path, "re");
    bool  found = false;
    char  all[512];

    if (!file)
        return false;
    while (!found && fgets(all, sizeof(all), file)) {
        const char *value = all + strlen(key);

        if (strncmp(all, key, strlen(key)))
            continue;
        value += strspn(value, " \t:");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    fclose(file);
    return found;
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

static bool usable(const struct hkt_cpus *cpus, int cpu)
{
    const int bits = 8 * (int)sizeof(cpus->bits[0]);

    return cpu >= 0 && cpu < HKT_CPU_WORDS * bits && (cpus->bits[cpu / bits] >> (cpu % bits) & 1);
}

/* "0-3,8-11"; returns how many. */
static int list_cpus(const struct hkt_cpus *cpus, char *text, size_t size)
{
    int    count = 0;
    size_t n     = 0;

    text[0] = 0;
    for (int cpu = 0; cpu < HKT_CPU_WORDS * 64; cpu++) {
        int last = cpu;

        if (!usable(cpus, cpu))
            continue;
        while (usable(cpus, last + 1))
            last++;
        if (n < size)
            n += (size_t)snprintf(text + n, size - n, last > cpu ? "%s%d-%d" : "%s%d", n ? "," : "", cpu, last);
        count += last - cpu + 1;
        cpu = last;
    }
    return count;
}

static void show_cores(void)
{
    struct hkt_cpus cpus, ranks[256];
    char            list[300], text[500];
    int             count, most = 0;

    hkt_machine_cpus(&cpus);
    count = list_cpus(&cpus, list, sizeof(list));
    for (int r = 0; r < 256; r++)
        ranks[r] = cpus;
    while (most < 256 && hkt_machine_dedicated(ranks, most + 1))
        most++;
    if (isinf(cpus.quota))
        snprintf(text, sizeof(text), "%d usable of %ld (%s), no cgroup quota", count, sysconf(_SC_NPROCESSORS_ONLN),
                 list);
    else
        snprintf(text, sizeof(text), "%d usable of %ld (%s), cgroup quota %.2f cores", count,
                 sysconf(_SC_NPROCESSORS_ONLN), list, cpus.quota);
    line("processors", text);
    snprintf(text, sizeof(text), "%s%d; more share cores, and waiting ranks yield", most == 256 ? "at least " : "",
             most);
    line("ranks with own core", text);
}

static void show_memory(void)
{
    struct hkt_memory memory;
    struct rlimit     locked;
    char              text[256], a[32], b[32];

    hkt_machine_memory(&memory);
    snprintf(text, sizeof(text), "%s available (%s)", info_bytes((double)memory.available, a), memory.limit);
    line("memory", text);
    snprintf(text, sizeof(text), "%s of a core, %s last level", info_bytes((double)hkt_machine_core_cache(), a),
             info_bytes((double)hkt_machine_last_cache(), b));
    line("caches", text);
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
        line("locked memory", locked.rlim_cur == RLIM_INFINITY ? "no limit" : info_bytes((double)locked.rlim_cur, a));
}

/* ---- what the kernel lets us do ---------------------------------------------------------------------------------- */

/* Reads memory of the parent from a child, which is what ranks that hkt-run has started may do to one another. 0 or
 * errno. */
static int try_read(void)
{
    static const char word[] = "hocket";
    int               status;
    const pid_t       child = fork();

    if (child < 0)
        return errno;
    if (child == 0) {
        char               copy[sizeof(word)] = "";
        const struct iovec mine = {copy, sizeof(copy)}, theirs = {(void *)(uintptr_t)word, sizeof(word)};
        const ssize_t      n = process_vm_readv(getppid(), &mine, 1, &theirs, 1, 0);

        _exit(n == (ssize_t)sizeof(word) ? 0 : errno & 127);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO;
}

static void show_kernel(void)
{
    const int memfd = memfd_create("hkt-info", MFD_CLOEXEC);
    char      text[200], yama[32];
    int       error = memfd < 0 ? errno : 0;

    line("shared memory (memfd)", memfd >= 0 ? "works" : strerror(error));
    if (memfd >= 0)
        close(memfd);
    error = try_read();
    if (!error)
        line("process_vm_readv", "works: plain memory of other ranks is read directly");
    else {
        snprintf(text, sizeof(text), "%s%s%s: plain memory goes through staging", strerror(error),
                 find_line("/proc/sys/kernel/yama/ptrace_scope", "", yama, sizeof(yama))
                     ? ", kernel.yama.ptrace_scope is "
                     : "",
                 yama);
        line("process_vm_readv", text);
    }
    hkt_fence_init();
    line("membarrier",
         hkt_asymmetric ? "works: waking a sleeper costs the writer no fence" : "does not work: full fences instead");
}

static void show_library(void)
{
    static const char *const sets[] = {"avx512", "avx2", "portable"};
    const char              *in_use = hkt_reduce_isa();
    char                     text[200];
    size_t                   n = (size_t)snprintf(text, sizeof(text), "%s (of", in_use);

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        if (hkt_reduce_select(sets[i]))
            n += (size_t)snprintf(text + n, sizeof(text) - n, " %s", sets[i]);
    hkt_reduce_select(in_use);
    snprintf(text + n, sizeof(text) - n, ")");
    line("reduction kernels", text);
    for (int i = 0; hkt_transports[i]; i++) {
        snprintf(text, sizeof(text), "%s: %s", hkt_transports[i]->name, hkt_transports[i]->desc);
        line(i ? "" : "transports", text);
    }
    text[n = 0] = 0;
    for (int i = 0; hkt_algorithms[i]; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? ", " : "", hkt_algorithms[i]->name);
    line("algorithms", text);
}

int info_machine(void)
{
    struct utsname system;
    char           text[300];

    printf("Hocket %d.%d.%d\n\n", HKT_VERSION_MAJOR, HKT_VERSION_MINOR, HKT_VERSION_PATCH);
    uname(&system);
    snprintf(text, sizeof(text), "%s, %s %s, %s", system.nodename, system.sysname, system.release, system.machine);
    line("host", text);
    if (find_line("/proc/cpuinfo", "model name", text, sizeof(text)))
        line("processor", text);
    show_cores();
    show_memory();
    printf("\n");
    show_kernel();
    printf("\n");
    show_library();
    printf("\n");
    info_devices();
    printf("\nSee also hkt-info --topology, --options, --algorithms and --plan.\n");
    return 0;
}
