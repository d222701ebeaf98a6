/* machine.c -- cores, memory and caches that this process may use, from /proc and /sys. See machine.h.
 *
 * Control groups come in two versions, may both be mounted, and inside a container the path in /proc/self/cgroup may be
 * that of the host while the mount shows only the container's part; the walk goes from the process's group up to what
 * the mount shows.
 */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 1024, WORD_BITS = 8 * sizeof(unsigned long), CPUS = HKT_CPU_WORDS * WORD_BITS, MASK_BYTES = 8192 };

const char *hkt_machine_root = "";

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Reads the beginning of a small file; "" and false when that cannot be. */
static bool read_text(char *text, size_t size, const char *format, ...)
{
    char    path[PATH + 64];
    va_list args;
    ssize_t n;
    int     fd;

    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    text[0] = 0;
    fd      = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while ((n = read(fd, text, size - 1)) < 0 && errno == EINTR)
        continue;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static FILE *open_text(const char *path)
{
    char full[PATH];

    snprintf(full, sizeof(full), "%s%s", hkt_machine_root, path);
    return fopen(full, "re");
}

/* The number after `name` at the beginning of a line; 0 when there is none. */
static uint64_t number_after(const char *text, const char *name)
{
    const size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && (line[n] == ' ' || line[n] == ':'))
            return strtoull(line + n + 1, NULL, 10);
    }
    return 0;
}

/* ---- control groups -------------------------------------------------------------------------------------------- */

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',' || at[n] == '\n'))
            return true;
    return false;
}

/* The path of this process's group: of version 2, or of a controller of version 1. */
static bool own_group(char path[PATH], const char *controller, bool v2)
{
    FILE *f = open_text("/proc/self/cgroup");
    char  line[PATH];
    bool  found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = 0;
        names++;
        if (v2 ? *names != 0 : !has_word(names, controller))
            continue;
        group[strcspn(group, "\n")] = 0;
        snprintf(path, PATH, "%s", group);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* What is done with each group, from this process's own up to the top one that can be seen. */
struct climb {
    const char *controller;
    void (*visit)(const char *directory, bool v2, void *arg);
    void *arg;
};

static void climb(const struct climb *c, const char *mount, const char *root, bool v2)
{
    char   group[PATH], directory[2 * PATH];
    size_t top, skip = strcmp(root, "/") ? strlen(root) : 0;

    if (!own_group(group, c->controller, v2))
        return;
    if (strncmp(group, root, skip) != 0 || (skip && group[skip] != '/' && group[skip] != 0))
        skip = strlen(group); /* the mount shows some other part: its top is the nearest that can be seen */
    top = (size_t)snprintf(directory, sizeof(directory), "%s%s", hkt_machine_root, mount);
    snprintf(directory + top, sizeof(directory) - top, "%s", group + skip);
    for (;;) {
        char *slash;

        c->visit(directory, v2, c->arg);
        slash = strrchr(directory + top, '/');
        if (!slash)
            break;
        *slash = 0;
    }
}

static void visit_groups(const struct climb *c)
{
    FILE *f = open_text("/proc/self/mountinfo");
    char  line[2 * PATH], root[PATH], mount[PATH], type[32], options[PATH];

    while (f && fgets(line, sizeof(line), f)) {
        const char *rest = strstr(line, " - "); /* optional fields end here */
        bool        v2;

        if (!rest || sscanf(line, "%*s %*s %*s %1023s %1023s", root, mount) != 2 ||
            sscanf(rest, " - %31s %*s %1023s", type, options) != 2)
            continue;
        v2 = strcmp(type, "cgroup2") == 0;
        if (v2 || (strcmp(type, "cgroup") == 0 && has_word(options, c->controller)))
            climb(c, mount, root, v2);
    }
    if (f)
        fclose(f);
}

/* ---- cores ----------------------------------------------------------------------------------------------------- */

static void least_quota(const char *directory, bool v2, void *arg)
{
    double *least = arg;
    char    text[64], period_text[64];
    double  quota, period;

    if (v2) {
        if (!read_text(text, sizeof(text), "%s/cpu.max", directory) || sscanf(text, "%lf %lf", &quota, &period) != 2)
            return; /* "max 100000" is no limit */
    } else {
        if (!read_text(text, sizeof(text), "%s/cpu.cfs_quota_us", directory) ||
            !read_text(period_text, sizeof(period_text), "%s/cpu.cfs_period_us", directory))
            return;
        quota  = strtod(text, NULL);
        period = strtod(period_text, NULL);
    }
    if (quota > 0 && period > 0 && quota / period < *least)
        *least = quota / period;
}

void hkt_machine_cpus(struct hkt_cpus *cpus)
{
    unsigned long      mask[MASK_BYTES / sizeof(unsigned long)] = {0};
    const struct climb c                                        = {"cpu", least_quota, &cpus->quota};
    bool               any                                      = false;

    /* The kernel refuses masks smaller than its own; ours is what its largest can be. */
    sched_getaffinity(0, sizeof(mask), (cpu_set_t *)mask);
    memcpy(cpus->bits, mask, sizeof(cpus->bits));
    for (int i = 0; i < HKT_CPU_WORDS; i++)
        any = any || cpus->bits[i];
    if (!any) /* only processors beyond the 1024th, or the system does not say */
        for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN) && i < CPUS; i++)
            cpus->bits[i / WORD_BITS] |= 1UL << (i % WORD_BITS);
    cpus->quota = INFINITY;
    visit_groups(&c);
}

/* A matching of ranks to processors, grown by one rank at a time along augmenting paths. */
struct matching {
    const struct hkt_cpus *ranks;
    int                    rank_of[CPUS]; /* + 1; 0: free */
    unsigned long          seen[HKT_CPU_WORDS];
};

/* Finds `rank` a processor, moving others if need be. At most CPUS calls deep, since each takes one from `seen`. */
static bool place(struct matching *m, int rank)
{
    for (int w = 0; w < HKT_CPU_WORDS; w++) {
        unsigned long left;

        while ((left = m->ranks[rank].bits[w] & ~m->seen[w])) {
            const int bit = __builtin_ctzl(left), cpu = w * WORD_BITS + bit;

            m->seen[w] |= 1UL << bit;
            if (!m->rank_of[cpu] || place(m, m->rank_of[cpu] - 1)) {
                m->rank_of[cpu] = rank + 1;
                return true;
            }
        }
    }
    return false;
}

bool hkt_machine_dedicated(const struct hkt_cpus *ranks, int count)
{
    struct matching m = {.ranks = ranks};

    if (count > CPUS)
        return false;
    for (int r = 0; r < count; r++) {
        int sharers = 0; /* ranks with this quota or less: the groups may lie within one another */

        for (int i = 0; i < count; i++)
            sharers += ranks[i].quota <= ranks[r].quota;
        if (ranks[r].quota < sharers)
            return false;
    }
    for (int r = 0; r < count; r++) {
        memset(m.seen, 0, sizeof(m.seen));
        if (!place(&m, r))
            return false;
    }
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void least_memory(const char *directory, bool v2, void *arg)
{
    struct hkt_memory *m = arg;
    char               limit_text[64], used_text[64], stat[8192];
    uint64_t           limit, used, cached, left;

    if (!read_text(limit_text, sizeof(limit_text), "%s/%s", directory, v2 ? "memory.max" : "memory.limit_in_bytes") ||
        !read_text(used_text, sizeof(used_text), "%s/%s", directory, v2 ? "memory.current" : "memory.usage_in_bytes") ||
        limit_text[0] == 'm') /* "max" */
        return;
    read_text(stat, sizeof(stat), "%s/memory.stat", directory);
    limit  = strtoull(limit_text, NULL, 10);
    used   = strtoull(used_text, NULL, 10);
    cached = number_after(stat, v2 ? "inactive_file" : "total_inactive_file") + /* can be dropped */
             number_after(stat, v2 ? "active_file" : "total_active_file");
    used = used > cached ? used - cached : 0;
    left = limit > used ? limit - used : 0;
    if (left < m->available) {
        m->available = left;
        snprintf(m->limit, sizeof(m->limit), "limit %llu of the memory control group", (unsigned long long)limit);
    }
}

void hkt_machine_memory(struct hkt_memory *memory)
{
    const struct climb c = {"memory", least_memory, memory};
    char               text[4096];

    memory->available = UINT64_MAX;
    snprintf(memory->limit, sizeof(memory->limit), "unknown");
    if (read_text(text, sizeof(text), "%s/proc/meminfo", hkt_machine_root)) {
        memory->available = (number_after(text, "MemAvailable") + number_after(text, "SwapFree")) * 1024;
        snprintf(memory->limit, sizeof(memory->limit), "what the machine has left");
    }
    visit_groups(&c);
}

/* ---- caches ---------------------------------------------------------------------------------------------------- */

/* Size of the data cache of this level of the current core, or of the last level when level is 0; 0: unknown. */
static size_t cache_size(int level)
{
    const int cpu  = sched_getcpu();
    size_t    size = 0;
    long      last = 0;
    char      text[64];

    for (int i = 0; i < 16; i++) {
        char  *end;
        long   l;
        size_t n;

        if (!read_text(text, sizeof(text), "%s/sys/devices/system/cpu/cpu%d/cache/index%d/level", hkt_machine_root,
                       cpu < 0 ? 0 : cpu, i))
            break;
        l = strtol(text, NULL, 10);
        read_text(text, sizeof(text), "%s/sys/devices/system/cpu/cpu%d/cache/index%d/type", hkt_machine_root,
                  cpu < 0 ? 0 : cpu, i);
        if (text[0] == 'I' || (level ? l != level : l < last)) /* instructions */
            continue;
        read_text(text, sizeof(text), "%s/sys/devices/system/cpu/cpu%d/cache/index%d/size", hkt_machine_root,
                  cpu < 0 ? 0 : cpu, i);
        n = strtoul(text, &end, 10);
        n *= *end == 'K' ? (size_t)1 << 10 : *end == 'M' ? (size_t)1 << 20 : 1;
        if (n) {
            size = n;
            last = l;
        }
    }
    return size;
}

size_t hkt_machine_last_cache(void)
{
    const size_t size = cache_size(0);

    return size ? size : (size_t)32 << 20;
}

size_t hkt_machine_core_cache(void)
{
    const size_t size = cache_size(2);

    return size ? size : (size_t)512 << 10;
}
