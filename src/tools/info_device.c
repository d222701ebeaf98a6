/* info_device.c -- the GPUs of this host as the CUDA driver sees them: what of them the library can use, and how they reach each other. */
#include "info.h"

#include "device/device.h"

#include <stdio.h>

static int attribute(CUdevice device, CUdevice_attribute which)
{
    int value = 0;

    return hkt_cuda()->cuDeviceGetAttribute(&value, which, device) ? 0 : value;
}

static void show(int i, CUdevice device, int n)
{
    char   name[128] = "?", bytes[32], peers[256] = "";
    size_t memory = 0, at = 0;

    hkt_cuda()->cuDeviceGetName(name, sizeof(name), device);
    hkt_cuda()->cuDeviceTotalMem(&memory, device);
    for (int j = 0; j < n; j++) {
        CUdevice peer;
        int      can = 0;

        if (j != i && !hkt_cuda()->cuDeviceGet(&peer, j) && !hkt_cuda()->cuDeviceCanAccessPeer(&can, device, peer) && can)
            at += (size_t)snprintf(peers + at, at < sizeof(peers) ? sizeof(peers) - at : 0, " %d", j);
    }
    printf("%-22s %s, %s, sm_%d%d, %d multiprocessors; reaches GPUs%s; memory is shared by %s%s\n", i ? "" : "GPUs", name,
           info_bytes((double)memory, bytes), attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
           attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
           peers[0] ? peers : ": none",
           attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) ? "file descriptors" : "IPC handles",
           attribute(device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED) ? "; MPS" : "");
}

void info_devices(void)
{
    int n = 0, version = 0;

    if (!hkt_cuda()) {
        printf("%-22s none: %s\n", "GPUs", hkt_cuda_missing());
        return;
    }
    hkt_cuda()->cuDriverGetVersion(&version);
    printf("%-22s %d.%d\n", "CUDA driver", version / 1000, version % 1000 / 10);
    hkt_cuda()->cuDeviceGetCount(&n);
    for (int i = 0; i < n; i++) {
        CUdevice device;

        if (!hkt_cuda()->cuDeviceGet(&device, i))
            show(i, device, n);
    }
}
