/* fabric.c -- questions to a fabric, and the machines known by name, in one table with their sources. */
#include "fabric.h"

#include "base/error.h"

#include <string.h>

const char *const hkt_span_name[HKT_SPANS] = {"cache", "host", "network"};

/* Shared memory of one host, by processors: figures of hkt-simulate --measure. */
#define SHM {225e-9, 0, 0, 0, 0.017e-9}
/* NVLink 4 through switches: a copy engine or the SMs move it, 370 GB/s a direction and device. */
#define NVLINK {3.4e-6, 0.1e-6, 0, 1 / 370e9, 0}

const struct hkt_fabric_preset hkt_fabric_preset[] = {
    {{.name  = "ideal",
      .hosts = 64,
      .per_host = 1,
      .oversubscription = 1,
      .wire  = {[HKT_SPAN_NETWORK] = {2e-6, 0, 0.15e-6, 8e-11, 0}},
      .window = 1},
     "round numbers: 2 us, 0.15 us between messages, 100 Gb/s, folding and copying free, no limit to messages under way"},
    {{.name  = "tcp-1g",
      .hosts = 8,
      .per_host = 1,
      .rails = 1,
      .oversubscription = 1,
      .wire  = {SHM, SHM, {25e-6, 5e-6, 0, 1 / 117e6, 0}},
      .gamma = 0.082e-9,
      .copy  = 0.07e-9,
      .depth = HKT_FABRIC_DEPTH,
      .window = 1},
     "1 Gb/s less Ethernet, IP and TCP headers: 117 MB/s; 30 us one way through two kernels is usual"},
    {{.name  = "tcp-25g",
      .hosts = 8,
      .per_host = 1,
      .rails = 1,
      .oversubscription = 1,
      .wire  = {SHM, SHM, {15e-6, 5e-6, 0, 1 / 2.9e9, 0}},
      .gamma = 0.082e-9,
      .copy  = 0.07e-9,
      .depth = HKT_FABRIC_DEPTH,
      .window = 1},
     "25 Gb/s less headers: 2.9 GB/s; 20 us one way is usual for one socket pair in one rack"},
    {{.name  = "ib-ndr",
      .hosts = 16,
      .per_host = 8,
      .rails = 8,
      .oversubscription = 1,
      .wire  = {NVLINK, NVLINK, {2e-6, 0.15e-6, 0, 1 / 47e9, 0}},
      .gamma = 1 / 1.5e12,
      .copy  = 1 / 1.5e12,
      .depth = HKT_FABRIC_DEPTH,
      .window = 1},
     "hosts of 8 H100, a 400 Gb/s card each: 46 to 48 GB/s a card (nccl-tests issues 29 and 290)"},
    {{.name  = "nvlink",
      .hosts = 1,
      .per_host = 8,
      .oversubscription = 1,
      .wire  = {NVLINK, NVLINK, {0}},
      .gamma = 1 / 1.5e12,
      .copy  = 1 / 1.5e12,
      .depth = HKT_FABRIC_DEPTH,
      .window = 1},
     "8 H100 and NVSwitch: ring all-reduce bus bandwidth 370 GB/s (nccl-tests issue 212); 3.4 us a hop, NCCL's own constant"},
    {{.name  = "nccl-model",
      .hosts = 16,
      .per_host = 1,
      .oversubscription = 1,
      .wire  = {NVLINK, NVLINK, {14e-6, 0, 0, 1 / 47e9, 0}},
      .depth = 0,
      .window = 1},
     "the constants of NCCL's tuning model for its Simple protocol over a network: 14 us a hop"},
    {{.name  = "shm-here",
      .hosts = 1,
      .per_host = 2,
      .oversubscription = 1,
      .wire  = {SHM, SHM, {0}},
      .gamma = 0.082e-9,
      .copy  = 0.07e-9,
      .depth = HKT_FABRIC_DEPTH,
      .window = 1},
     "measured by hkt-simulate --measure on a virtual machine of two cores"},
};

const size_t hkt_fabric_presets = sizeof(hkt_fabric_preset) / sizeof(hkt_fabric_preset[0]);

const struct hkt_fabric_preset *hkt_fabric_find(const char *name)
{
    for (size_t i = 0; i < hkt_fabric_presets; i++)
        if (strcmp(hkt_fabric_preset[i].fabric.name, name) == 0)
            return &hkt_fabric_preset[i];
    return NULL;
}

static uint32_t cache_of(const struct hkt_fabric *f, uint32_t rank)
{
    return f->seat ? (uint32_t)f->seat[rank].cache : rank % (uint32_t)f->per_host / (uint32_t)f->per_cache;
}

enum hkt_span hkt_fabric_span(const struct hkt_fabric *f, uint32_t from, uint32_t to)
{
    if (hkt_fabric_host(f, from) != hkt_fabric_host(f, to))
        return HKT_SPAN_NETWORK;
    return !f->per_cache || cache_of(f, from) == cache_of(f, to) ? HKT_SPAN_CACHE : HKT_SPAN_HOST;
}

int hkt_fabric_resize(struct hkt_fabric *f, int ranks, int per_host)
{
    f->seat = NULL;
    if (per_host)
        f->per_host = per_host;
    if (ranks < f->per_host && !per_host)
        f->per_host = ranks;
    if (ranks < 1 || f->per_host < 1 || ranks % f->per_host)
        return hkt_fail(HKT_ERR_ARGUMENT, "%d ranks do not fill hosts of %d; give another number of ranks, or of ranks per host", ranks,
                        f->per_host);
    f->hosts = ranks / f->per_host;
    if (f->per_leaf > f->hosts)
        f->per_leaf = f->hosts;
    return 0;
}

/* ---- what is wrong with it --------------------------------------------------------------------------------------- */

static int check_number(const char *what, double value, double most)
{
    if (!(value >= 0 && value <= most))
        return hkt_fail(HKT_ERR_ARGUMENT, "the fabric's %s is %g; from 0 to %g is expected", what, value, most);
    return 0;
}

static int check_wire(const struct hkt_fabric *f, enum hkt_span span)
{
    const struct hkt_span_cost *w = &f->wire[span];
    const struct {
        const char *what;
        double      value, most;
    } row[] = {{"latency", w->alpha, 1},
               {"overhead of a message", w->overhead, 1},
               {"gap", w->gap, 1},
               {"time of a byte on a port", w->beta, 1e-3},
               {"time of a byte for the sender", w->touch, 1e-3}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        HKT_TRY(check_number(row[i].what, row[i].value, row[i].most));
    return 0;
}

static int check_seats(const struct hkt_fabric *f)
{
    for (int r = 0; f->seat && r < f->ranks; r++)
        if (f->seat[r].host < 0 || f->seat[r].host >= f->hosts || f->seat[r].local < 0 || f->seat[r].local >= f->per_host)
            return hkt_fail(HKT_ERR_ARGUMENT, "rank %d is number %d on host %d; there are %d hosts of up to %d ranks", r, f->seat[r].local,
                            f->seat[r].host, f->hosts, f->per_host);
    return !f->seat || f->ranks > 0 ? 0 : hkt_fail(HKT_ERR_ARGUMENT, "a fabric with seats for %d ranks", f->ranks);
}

int hkt_fabric_check(const struct hkt_fabric *f)
{
    if (f->hosts < 1 || f->per_host < 1 || f->hosts > (1 << 24) / f->per_host)
        return hkt_fail(HKT_ERR_ARGUMENT, "%d hosts of %d ranks are no fabric; from 1 to %d ranks are expected", f->hosts, f->per_host, 1 << 24);
    if (f->per_leaf < 0 || (f->per_leaf && f->hosts % f->per_leaf))
        return hkt_fail(HKT_ERR_ARGUMENT, "%d hosts do not fill leaf switches of %d hosts", f->hosts, f->per_leaf);
    if (f->rails < 0 || f->per_cache < 0 || f->depth < 0 || f->window < 1 || f->window > HKT_WINDOW_MOST)
        return hkt_fail(HKT_ERR_ARGUMENT, "rails %d, ranks per cache %d, depth %d or window %d: from 0, 0, 0 and 1 are expected, the window up to %d",
                        f->rails, f->per_cache, f->depth, f->window, HKT_WINDOW_MOST);
    if (!(f->oversubscription >= 1 && f->oversubscription <= 1e6))
        return hkt_fail(HKT_ERR_ARGUMENT, "an oversubscription of %g; 1 (none) or more is expected", f->oversubscription);
    HKT_TRY(check_seats(f));
    for (int span = 0; span < HKT_SPANS; span++)
        HKT_TRY(check_wire(f, (enum hkt_span)span));
    HKT_TRY(check_number("latency between leaves", f->spine, 1));
    HKT_TRY(check_number("time of a byte on the memory bus", f->bus, 1e-3));
    HKT_TRY(check_number("time of a byte between caches", f->socket, 1e-3));
    HKT_TRY(check_number("time of a byte folded", f->gamma, 1e-3));
    return check_number("time of a byte copied", f->copy, 1e-3);
}
