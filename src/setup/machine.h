/* machine.h -- what this process may use of the machine: cores (affinity and cgroup), caches. Plain sysfs and system calls; the
 * full topology (hwloc) is not needed to run on one host. */
#ifndef HKT_MACHINE_H
#define HKT_MACHINE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HKT_CPU_WORDS = 16 }; /* 1024 processors */

struct hkt_cpus {
    unsigned long bits[HKT_CPU_WORDS]; /* affinity mask of a rank's thread */
    double        quota;               /* cores the cgroup allows, over all its processes; infinity: no limit */
};

/* Of the calling thread. Cgroup v1 and v2; the least quota of all ancestors. */
void hkt_machine_cpus(struct hkt_cpus *cpus);

/* True when every one of the `count` ranks can have a core of its own: a matching of ranks to the processors of their masks exists,
 * and the quota covers them. */
bool hkt_machine_dedicated(const struct hkt_cpus *ranks, int count);

/* What memory can be had now: the least of what the machine and the memory cgroups of this process allow. */
struct hkt_memory {
    uint64_t available; /* bytes */
    char     limit[96]; /* whose limit that is */
};
void hkt_machine_memory(struct hkt_memory *memory);

size_t hkt_machine_last_cache(void); /* bytes of the last-level cache of this core; 32 MiB when the system does not say */
size_t hkt_machine_core_cache(void); /* bytes of its L2; 512 KiB when the system does not say */

extern const char *hkt_machine_root; /* what stands before /proc and /sys: "", but for tests with a made-up machine */

#endif
