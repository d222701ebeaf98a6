/* here.c -- see here.h. With HKT_MACHINE this host is the one of its name there, else the first. */
#include "here.h"

#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "graph.h"
#include "topology.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t      once = PTHREAD_ONCE_INIT;
static struct hkt_topology machine; /* written once; for the life of the process */
static int                 host = -1; /* in it; -1: it could not be read */

static void find_host(void)
{
    char name[64] = "";

    if (gethostname(name, sizeof(name) - 1))
        name[0] = 0;
    for (int h = 1; machine.objects > 1 && h < machine.object[0].end; h = machine.object[h].end)
        if (host < 0 || !strcmp(machine.object[h].name, *hkt_options()->host ? hkt_options()->host : name))
            host = h;
}

static void read_machine(void)
{
    if (hkt_topology_get(&machine)) {
        hkt_log(HKT_LOG_INFO, "nothing is known of where ranks are: %s", hkt_last_error());
        hkt_error_clear();
        return;
    }
    find_host();
}

static int number_above(int object, enum hkt_object_kind kind)
{
    const int o = hkt_object_above(&machine, object, kind);

    return o < 0 ? -1 : machine.object[o].number;
}

/* May it run on every processor there is? Then it is nowhere in particular. */
static bool is_bound(const struct hkt_cpus *cpus)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    long       mine   = 0;

    for (int i = 0; i < HKT_CPU_WORDS; i++)
        mine += __builtin_popcountl(cpus->bits[i]);
    return mine < online;
}

void hkt_here(struct hkt_here *here, const struct hkt_cpus *cpus)
{
    int seat;

    *here = (struct hkt_here){-1, -1, -1};
    if (!is_bound(cpus))
        return;
    pthread_once(&once, read_machine);
    if (host < 0)
        return;
    seat          = hkt_graph_seat(&machine, host, cpus);
    here->socket  = number_above(seat, HKT_OBJECT_SOCKET);
    here->numa    = number_above(seat, HKT_OBJECT_NUMA);
    for (int o = seat; o > 0; o = machine.object[o].parent) /* the last one, not a core's own */
        if (machine.object[o].kind == HKT_OBJECT_CACHE)
            here->cache = machine.object[o].number;
}

/* The NIC of that name, and the bandwidth of the host's fastest. */
static int find_nic(const char *name, double *fastest)
{
    int found = -1;

    *fastest = 0;
    for (int o = host; o < machine.object[host].end; o++) {
        if (machine.object[o].kind != HKT_OBJECT_NIC)
            continue;
        if (hkt_port_bandwidth(&machine, o) > *fastest)
            *fastest = hkt_port_bandwidth(&machine, o);
        found = strcmp(machine.object[o].name, name) ? found : o;
    }
    return found;
}

int hkt_here_interface(const char *name)
{
    struct hkt_cpus cpus;
    double          fastest;
    int             nic, seat, far;

    pthread_once(&once, read_machine);
    nic = host < 0 ? -1 : find_nic(name, &fastest);
    if (nic < 0)
        return 0;
    hkt_machine_cpus(&cpus);
    seat = is_bound(&cpus) ? hkt_graph_seat(&machine, host, &cpus) : host;
    switch (hkt_objects_class(&machine, seat, nic)) {
    case HKT_CLASS_SOCKET:
        far = 1;
        break;
    case HKT_CLASS_HOST:
        far = seat == host ? 0 : 2; /* of one that is nowhere in particular all are as near */
        break;
    default:
        far = 0;
    }
    return far + (hkt_port_bandwidth(&machine, nic) < fastest / 2 ? 3 : 0);
}

int hkt_here_compare(const struct hkt_here *a, const struct hkt_here *b)
{
    const int difference[] = {a->socket - b->socket, a->numa - b->numa, a->cache - b->cache};

    for (int i = 0; i < 3; i++)
        if (difference[i])
            return difference[i];
    return 0;
}
