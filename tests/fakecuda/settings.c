/* settings.c -- the knobs of the fake driver: environment variables, read once by cuInit().
 *
 *   FAKECUDA_DEVICES=n          GPUs of the machine (1). CUDA_VISIBLE_DEVICES chooses and orders those that a process sees.
 *   FAKECUDA_LINK=kind[,a-b:kind...]   what joins them: nvlink (normal), pcie, none; then exceptions, as in pcie,0-1:nvlink,2-3:nvlink
 *   FAKECUDA_SHARE=how          how processes share a GPU: concurrent (normal; as with MPS, but see FAKECUDA_MPS), exclusive (one
 *                               at a time, until its kernel ends), slice:US (likewise, but a kernel that waits loses it after so long)
 *   FAKECUDA_SESSION=text       processes with the same text share GPUs (0)
 *   FAKECUDA_MPS=1              the attribute says that MPS is there
 *   FAKECUDA_KERNELS=file       kernels built for the processor (libfakekernels.so beside the driver)
 *   FAKECUDA_SLOTS=n            blocks of a kernel that are resident at once (0: what cuOccupancyMaxActiveBlocksPerMultiprocessor() says)
 *   FAKECUDA_QUEUES=n           hardware queues that the streams of a process share: a wait at the head of one holds up all (0: one each)
 *   FAKECUDA_SEED=n             random order of threads, torn 16-byte stores (0: neither)
 *   FAKECUDA_JITTER=us          random pauses before operations (0)
 *   FAKECUDA_FAIL=name:n:error[,...]   the n-th call of an entry point fails with that number
 *   FAKECUDA_NOMEMOPS=1         no waiting and writing by streams
 *   FAKECUDA_DMABUF=1           cuMemGetHandleForAddressRange() gives a descriptor (of a memfd, no real dma-buf)
 *   FAKECUDA_HOSTACCESS=1       the host may touch device memory, which no GPU allows
 */
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_settings fake;

static const char *text(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value && *value ? value : otherwise;
}

static unsigned number(const char *name, unsigned otherwise)
{
    const char *value = getenv(name);

    return value && *value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static enum fake_link link_named(const char *name, size_t length)
{
    static const char *const names[] = {"none", "pcie", "nvlink"};

    for (int i = 0; i < 3; i++)
        if (strlen(names[i]) == length && !strncmp(name, names[i], length))
            return (enum fake_link)i;
    fprintf(stderr, "fakecuda: FAKECUDA_LINK: '%.*s' is none of none, pcie, nvlink\n", (int)length, name);
    abort();
}

static void read_links(const char *list)
{
    const enum fake_link all = link_named(list, strcspn(list, ","));

    for (int a = 0; a < FAKE_DEVICES; a++)
        for (int b = 0; b < FAKE_DEVICES; b++)
            fake.link[a][b] = a == b ? FAKE_LINK_NVLINK : all;
    for (list += strcspn(list, ","); *list == ','; list += strcspn(list, ",")) {
        int a, b, used = 0;

        list++;
        if (sscanf(list, "%d-%d:%n", &a, &b, &used) != 2 || !used || a < 0 || b < 0 || a >= FAKE_DEVICES || b >= FAKE_DEVICES) {
            fprintf(stderr, "fakecuda: FAKECUDA_LINK: '%s' does not begin with a pair of devices\n", list);
            abort();
        }
        fake.link[a][b] = fake.link[b][a] = link_named(list + used, strcspn(list + used, ","));
    }
}

static void read_devices(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const int   all     = (int)number("FAKECUDA_DEVICES", 1);

    fake.ndevices = 0;
    if (!visible) {
        for (int i = 0; i < all && i < FAKE_DEVICES; i++)
            fake.physical[fake.ndevices++] = i;
        return;
    }
    for (char *end; *visible && fake.ndevices < FAKE_DEVICES; visible = end + (*end == ',')) {
        const long device = strtol(visible, &end, 10);

        if (end == visible || device < 0 || device >= all)
            break; /* as the driver: the rest is not seen */
        fake.physical[fake.ndevices++] = (int)device;
    }
}

static void read_share(const char *how)
{
    fake.share = FAKE_CONCURRENT;
    if (!strcmp(how, "exclusive")) {
        fake.share = FAKE_EXCLUSIVE;
    } else if (!strncmp(how, "slice:", 6)) {
        fake.share    = FAKE_SLICES;
        fake.slice_us = strtol(how + 6, NULL, 10);
    } else if (strcmp(how, "concurrent")) {
        fprintf(stderr, "fakecuda: FAKECUDA_SHARE: '%s' is none of concurrent, exclusive, slice:US\n", how);
        abort();
    }
}

/* Beside this library. */
static void find_kernels(void)
{
    const char *given = getenv("FAKECUDA_KERNELS"), *slash;
    Dl_info     me;

    if (given) {
        snprintf(fake.kernels, sizeof(fake.kernels), "%s", given);
        return;
    }
    fake.kernels[0] = 0;
    if (dladdr((const void *)(uintptr_t)fake_settings_read, &me) && (slash = strrchr(me.dli_fname, '/')))
        snprintf(fake.kernels, sizeof(fake.kernels), "%.*s/libfakekernels.so", (int)(slash - me.dli_fname), me.dli_fname);
}

void fake_settings_read(void)
{
    read_devices();
    read_links(text("FAKECUDA_LINK", "nvlink"));
    read_share(text("FAKECUDA_SHARE", "concurrent"));
    find_kernels();
    snprintf(fake.session, sizeof(fake.session), "%s", text("FAKECUDA_SESSION", "0"));
    fake.mps               = number("FAKECUDA_MPS", 0);
    fake.slots             = number("FAKECUDA_SLOTS", 0);
    fake.queues            = number("FAKECUDA_QUEUES", 0);
    fake.seed              = number("FAKECUDA_SEED", 0);
    fake.jitter_us         = number("FAKECUDA_JITTER", 0);
    fake.memory_operations = !number("FAKECUDA_NOMEMOPS", 0);
    fake.dma_buf           = number("FAKECUDA_DMABUF", 0);
    fake.tagged            = !number("FAKECUDA_HOSTACCESS", 0);
    fake_fault_read(text("FAKECUDA_FAIL", ""));
}
