/* topology_nvml.c -- names, memory and NVLinks of NVIDIA's GPUs from libnvidia-ml, which comes with the driver and is opened at run time; no
 * header of it is needed. See topology_read.h. Whatever it cannot say is left out.
 */
#include "topology_nvml.h"

#include "base/error.h"
#include "base/log.h"
#include "hocket.h"
#include "setup/topology_read.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { GPUS = 256, LINKS = 64, TO_GPU = 0, TO_SWITCH = 2 };

/* Bytes/s of one link each way, by its version. */
static const double link_bandwidth[] = {0, 20e9, 25e9, 25e9, 25e9, 50e9};

struct reading {
    struct hkt_topology   *t;
    const struct hkt_nvml *nvml;
    int                    gpu[GPUS];       /* object of each of the driver's devices; -1: not of this process */
    double                 to_gpu[GPUS];    /* of one device: bytes/s to every other device */
    double                 to_switch[GPUS]; /* of every device */
};

static void describe(struct reading *r, int i, void *device)
{
    struct hkt_object     *o;
    struct hkt_nvml_pci    pci;
    struct hkt_nvml_memory memory;
    char                   name[96] = "";

    r->gpu[i] = -1;
    if (r->nvml->pci(device, &pci))
        return;
    r->gpu[i] = hkt_gpu_at(r->t, pci.domain, pci.bus, pci.device);
    if (r->gpu[i] < 0)
        return;
    o = &r->t->object[r->gpu[i]];
    if (r->nvml->name && !r->nvml->name(device, name, sizeof(name) - 1))
        (void)hkt_value_name(strncmp(name, "NVIDIA ", 7) ? name : name + 7, o->name);
    if (r->nvml->memory && !r->nvml->memory(device, &memory))
        o->bytes = memory.total;
}

static double bandwidth(const struct hkt_nvml *nvml, void *device, unsigned link)
{
    unsigned version = 0;

    if (nvml->version && nvml->version(device, link, &version))
        version = 0;
    return version < sizeof(link_bandwidth) / sizeof(link_bandwidth[0]) ? link_bandwidth[version] : link_bandwidth[5];
}

/* Adds up the links of one device by where they go. A link whose other end is no GPU of this host goes to a switch. */
static void follow(struct reading *r, int i, void *device)
{
    for (unsigned link = 0; link < LINKS; link++) {
        struct hkt_nvml_pci pci;
        unsigned            active = 0, type = TO_GPU;
        const double        rate   = bandwidth(r->nvml, device, link);

        if (r->nvml->state(device, link, &active) || !active || r->nvml->remote(device, link, &pci))
            continue;
        if (r->nvml->type && !r->nvml->type(device, link, &type) && type == TO_SWITCH) {
            r->to_switch[i] += rate > 0 ? rate : 25e9;
            continue;
        }
        for (int other = 0, o = hkt_gpu_at(r->t, pci.domain, pci.bus, pci.device); o >= 0 && other < GPUS; other++)
            if (r->gpu[other] == o)
                r->to_gpu[other] += rate > 0 ? rate : 25e9;
    }
}

/* The driver does not say which of several switches a link goes to: all GPUs reach all of them, so they are one. */
static int join_by_switch(struct reading *r, int count)
{
    int fabric = -1;

    for (int i = 0; i < count; i++) {
        if (r->gpu[i] < 0 || r->to_switch[i] <= 0)
            continue;
        if (fabric < 0) {
            HKT_TRY(fabric = hkt_object_open(r->t, HKT_OBJECT_FABRIC));
            snprintf(r->t->object[fabric].name, HKT_NAME_BYTES, "NVSwitch");
            hkt_object_close(r->t);
        }
        HKT_TRY(hkt_gpu_link_add(r->t, r->gpu[i], fabric, (struct hkt_gpu_link){.class = HKT_CLASS_NVLINK, .bandwidth = r->to_switch[i]}));
    }
    return HKT_OK;
}

int hkt_nvml_links(struct hkt_topology *t, const struct hkt_nvml *nvml)
{
    struct reading r = {.t = t, .nvml = nvml};
    void          *device[GPUS];
    unsigned       count = 0;

    if (nvml->count(&count))
        return HKT_OK;
    count = count < GPUS ? count : GPUS;
    memset(r.gpu, -1, sizeof(r.gpu));
    for (unsigned i = 0; i < count; i++)
        if (!nvml->handle(i, &device[i]))
            describe(&r, (int)i, device[i]);
    for (unsigned i = 0; i < count; i++) {
        if (r.gpu[i] < 0)
            continue;
        memset(r.to_gpu, 0, sizeof(r.to_gpu));
        follow(&r, (int)i, device[i]);
        for (unsigned k = i + 1; k < count; k++)
            if (r.gpu[k] >= 0 && r.to_gpu[k] > 0)
                HKT_TRY(hkt_gpu_link_add(t, r.gpu[i], r.gpu[k], (struct hkt_gpu_link){.class = HKT_CLASS_NVLINK, .bandwidth = r.to_gpu[k]}));
    }
    return join_by_switch(&r, (int)count);
}

int hkt_read_nvml(struct hkt_topology *t)
{
    struct hkt_nvml nvml = {0};
    const struct {
        const char *name;
        void       *to; /* a pointer to a function in nvml */
        bool        needed;
    } calls[] = {{"nvmlInit_v2", &nvml.init, true},
                 {"nvmlShutdown", &nvml.shutdown, true},
                 {"nvmlDeviceGetCount_v2", &nvml.count, true},
                 {"nvmlDeviceGetHandleByIndex_v2", &nvml.handle, true},
                 {"nvmlDeviceGetPciInfo_v3", &nvml.pci, true},
                 {"nvmlDeviceGetNvLinkState", &nvml.state, true},
                 {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.remote, true},
                 {"nvmlDeviceGetNvLinkRemoteDeviceType", &nvml.type, false},
                 {"nvmlDeviceGetNvLinkVersion", &nvml.version, false},
                 {"nvmlDeviceGetName", &nvml.name, false},
                 {"nvmlDeviceGetMemoryInfo", &nvml.memory, false}};
    void *library;
    bool  whole = true;
    int   rc    = HKT_OK;

    if (!t->counted[HKT_OBJECT_GPU]) /* the driver is slow to start */
        return HKT_OK;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return HKT_OK;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *const found = dlsym(library, calls[i].name);

        memcpy(calls[i].to, &found, sizeof(found));
        whole = whole && (found || !calls[i].needed);
    }
    if (whole && !nvml.init()) {
        rc = hkt_nvml_links(t, &nvml);
        nvml.shutdown();
    } else
        hkt_log(HKT_LOG_INFO, "libnvidia-ml is there but does not work: links between GPUs are not known");
    dlclose(library);
    return rc;
}
