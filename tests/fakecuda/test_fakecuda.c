/* test_fakecuda.c -- the fake driver does what it promises: starting, devices, memory of all kinds, memory between processes. */
#include "driver_case.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `body` in a process of its own, which has not touched the driver; the two share a pair of sockets. */
static pid_t with_process(void (*body)(int socket), int *socket)
{
    int   pair[2];
    pid_t child;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        body(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    *socket = pair[0];
    return child;
}

static void join_process(pid_t child)
{
    int status;

    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Of a child process, where Check's assertions cannot report. */
static void child_must(bool fine, int line)
{
    if (!fine) {
        fprintf(stderr, "child: line %d\n", line);
        _exit(1);
    }
}
#define CHILD_MUST(condition) child_must(condition, __LINE__)

/* ---- starting and contexts ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(nothing_works_before_it_is_started)
{
    int         n;
    CUdeviceptr p;
    CUcontext   context;

    GIVES(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    ck_assert_int_eq(n, 1);
    GIVES(cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 4));
    OK(cuDevicePrimaryCtxRelease(0));
    GIVES(cuMemAlloc(&p, 4), FAKE_ERROR_CONTEXT_IS_DESTROYED);
}
END_TEST

static void *without_context(void *argument)
{
    CUdeviceptr p;

    *(CUresult *)argument = cuMemAlloc(&p, 4);
    return NULL;
}

START_TEST(a_new_thread_has_no_context)
{
    CUresult  error = CUDA_SUCCESS;
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, without_context, &error), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq((int)error, CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(a_fork_loses_the_driver)
{
    pid_t child;

    start();
    child = fork();
    if (!child)
        _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    join_process(child);
}
END_TEST

START_TEST(visible_devices_are_chosen_and_ordered)
{
    int    n;
    char   text[32];
    CUuuid uuid;

    setenv("FAKECUDA_DEVICES", "4", 1);
    start_with("CUDA_VISIBLE_DEVICES", "3,1");
    OK(cuDeviceGetCount(&n));
    ck_assert_int_eq(n, 2);
    OK(cuDeviceGetPCIBusId(text, sizeof(text), 0));
    ck_assert_str_eq(text, "0000:40:00.0");
    OK(cuDeviceGetUuid(&uuid, 1));
    ck_assert_int_eq(uuid.bytes[15], 1);
}
END_TEST

START_TEST(links_are_as_asked_for)
{
    int can, rank;

    setenv("FAKECUDA_DEVICES", "3", 1);
    start_with("FAKECUDA_LINK", "pcie,0-1:nvlink,1-2:none");
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    OK(cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
    ck_assert(can && rank == 0);
    OK(cuDeviceCanAccessPeer(&can, 0, 2));
    OK(cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 2, 0));
    ck_assert(can && rank == 1);
    OK(cuDeviceCanAccessPeer(&can, 2, 1));
    ck_assert(!can);
}
END_TEST

/* ---- memory ----------------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(small_allocations_share_a_block_and_nothing_is_zero)
{
    const CUdeviceptr a = (start(), allocate(100)), b = allocate(100), large = allocate(3 * MIB);

    ck_assert_int_eq((int)(b - a), 512);
    ck_assert_uint_eq(word_at(a), 0xCDCDCDCD);
    ck_assert_uint_eq(word_at(large), 0xCDCDCDCD);
    OK(cuMemFree(a));
    GIVES(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(b + 4), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(the_host_cannot_touch_device_memory)
{
    const CUdeviceptr p = (start(), allocate(4096));

    *(volatile int *)(uintptr_t)p = 1;
}
END_TEST

START_TEST(what_reaches_beyond_an_allocation_is_refused)
{
    const CUdeviceptr p = (start(), allocate(100));
    char              host[256];

    memset(host, 0, sizeof(host));
    OK(cuMemcpyHtoD(p, host, 100));
    GIVES(cuMemcpyHtoD(p, host, 101), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemsetD8(p + 99, 0, 2), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyHtoD(p + 4096, host, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(host_memory_is_registered_once)
{
    static char host[8192];
    CUdeviceptr p;
    unsigned    type;

    start();
    GIVES(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister(host, sizeof(host), CU_MEMHOSTREGISTER_PORTABLE));
    GIVES(cuMemHostRegister(host + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer(&p, host + 8, 0));
    ck_assert_uint_eq(p, (uintptr_t)host + 8);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
    OK(cuMemHostUnregister(host));
    GIVES(cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
END_TEST

/* Copies from plain memory have taken it when they return; copies to plain memory are done when they return. */
START_TEST(plain_memory_is_copied_as_documented)
{
    const CUdeviceptr p = (start(), allocate(4)), flag = allocate(4);
    CUstream          s = new_stream(), t = new_stream();
    uint32_t          host = 7, back = 0;

    OK(cuMemsetD32Async(flag, 0, 1, t));
    OK(cuStreamSynchronize(t));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyHtoDAsync(p, &host, 4, s));
    host = 8;
    OK(cuStreamWriteValue32(t, flag, 1, 0));
    OK(cuMemcpyDtoHAsync(&back, p, 4, s));
    ck_assert_uint_eq(back, 7);
}
END_TEST

/* ---- peers ------------------------------------------------------------------------------------------------------------------------------------------ */

START_TEST(peer_memory_needs_access)
{
    CUcontext   other, mine;
    CUdeviceptr theirs, p;

    setenv("FAKECUDA_DEVICES", "2", 1);
    start();
    OK(cuCtxGetCurrent(&mine));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent(other));
    theirs = allocate(64);
    OK(cuCtxPopCurrent(NULL));
    p = allocate(64);
    GIVES(cuMemcpy(p, theirs, 64), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxEnablePeerAccess(other, 0));
    GIVES(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    GIVES(cuCtxEnablePeerAccess(mine, 0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuMemcpy(p, theirs, 64));
    OK(cuCtxPushCurrent(other));
    GIVES(cuMemcpy(theirs, p, 64), CUDA_ERROR_INVALID_VALUE); /* one way only */
}
END_TEST

static CUmemAllocationProp shareable(int device)
{
    return (CUmemAllocationProp){.type                 = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location             = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUmemAccessDesc access_of(int device)
{
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

START_TEST(mapped_memory_needs_access_and_whole_granules)
{
    CUmemAllocationProp          prop = shareable(0);
    CUmemAccessDesc              mine = access_of(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr                  p;
    size_t                       granule;
    CUipcMemHandle               ipc;

    start();
    OK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    GIVES(cuMemCreate(&handle, granule / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&handle, granule, &prop, 0));
    GIVES(cuMemMap(GRANULE, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); /* never reserved */
    OK(cuMemAddressReserve(&p, 2 * granule, 0, 0, 0));
    OK(cuMemMap(p, granule, 0, handle, 0));
    OK(cuMemRelease(handle));
    GIVES(cuMemsetD8(p, 0, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(p, granule, &mine, 1));
    OK(cuMemsetD8(p, 0, 4));
    GIVES(cuIpcGetMemHandle(&ipc, p), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(p, 2 * granule), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    OK(cuMemUnmap(p, granule));
    OK(cuMemAddressFree(p, 2 * granule));
    ck_assert_int_eq((int)fakecuda_alive(FAKE_ALLOCATIONS), 0);
    ck_assert_int_eq((int)fakecuda_alive(FAKE_MAPPINGS), 0);
}
END_TEST

static int receive_fd(int socket)
{
    char           byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec   part = {&byte, 1};
    struct msghdr  m    = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    int            fd;

    if (recvmsg(socket, &m, 0) != 1)
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

static void send_fd(int socket, int fd)
{
    char            byte = 0, space[CMSG_SPACE(sizeof(int))];
    struct iovec    part = {&byte, 1};
    struct msghdr   m    = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *c    = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type  = SCM_RIGHTS;
    c->cmsg_len   = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    ck_assert_int_eq((int)sendmsg(socket, &m, 0), 1);
}

static void import_and_add(int socket)
{
    CUmemAccessDesc              mine = access_of(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr                  p;
    CUcontext                    context;
    uint32_t                     word;
    const int                    fd = receive_fd(socket);

    CHILD_MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context));
    CHILD_MUST(!cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHILD_MUST(!cuMemAddressReserve(&p, GRANULE, 0, 0, 0) && !cuMemMap(p, GRANULE, 0, handle, 0) && !cuMemSetAccess(p, GRANULE, &mine, 1));
    CHILD_MUST(!cuMemcpyDtoH(&word, p, 4) && word == 41);
    word++;
    CHILD_MUST(!cuMemcpyHtoD(p, &word, 4));
}

START_TEST(descriptors_carry_memory_to_other_processes)
{
    CUmemAllocationProp          prop = shareable(0);
    CUmemAccessDesc              mine = access_of(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr                  p;
    const uint32_t               word = 41;
    int                          fd, socket;
    const pid_t                  child = with_process(import_and_add, &socket);

    start();
    OK(cuMemCreate(&handle, GRANULE, &prop, 0));
    OK(cuMemAddressReserve(&p, GRANULE, 0, 0, 0));
    OK(cuMemMap(p, GRANULE, 0, handle, 0));
    OK(cuMemSetAccess(p, GRANULE, &mine, 1));
    OK(cuMemcpyHtoD(p, &word, 4));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(socket, fd);
    join_process(child);
    ck_assert_uint_eq(word_at(p), 42);
}
END_TEST

static void open_and_add(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr    base;
    CUcontext      context;
    uint32_t       word;

    CHILD_MUST(read(socket, &handle, sizeof(handle)) == sizeof(handle));
    CHILD_MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context));
    CHILD_MUST(cuIpcOpenMemHandle(&base, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_MUST(!cuIpcOpenMemHandle(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHILD_MUST(!cuMemcpyDtoH(&word, base + 16, 4) && word == 41); /* the base, whatever pointer the handle was made for */
    word++;
    CHILD_MUST(!cuMemcpyHtoD(base + 16, &word, 4) && !cuIpcCloseMemHandle(base));
}

START_TEST(handles_open_at_the_base_and_elsewhere_only)
{
    CUipcMemHandle handle;
    CUdeviceptr    p, again;
    const uint32_t word = 41;
    int            socket;
    const pid_t    child = with_process(open_and_add, &socket);

    start();
    p = allocate(4096);
    OK(cuMemcpyHtoD(p + 16, &word, 4));
    OK(cuIpcGetMemHandle(&handle, p + 16));
    GIVES(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_int_eq((int)write(socket, &handle, sizeof(handle)), (int)sizeof(handle));
    join_process(child);
    ck_assert_uint_eq(word_at(p + 16), 42);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("fakecuda");
    TCase *c = tcase_create("traps");

    suite_add_tcase(s, c);
    tcase_set_timeout(c, 30);
    tcase_add_test(c, nothing_works_before_it_is_started);
    tcase_add_test(c, a_new_thread_has_no_context);
    tcase_add_test(c, a_fork_loses_the_driver);
    tcase_add_test(c, visible_devices_are_chosen_and_ordered);
    tcase_add_test(c, links_are_as_asked_for);
    tcase_add_test(c, small_allocations_share_a_block_and_nothing_is_zero);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they take the signal */
    tcase_add_test_raise_signal(c, the_host_cannot_touch_device_memory, SIGSEGV);
#else
    (void)the_host_cannot_touch_device_memory;
#endif
    tcase_add_test(c, what_reaches_beyond_an_allocation_is_refused);
    tcase_add_test(c, host_memory_is_registered_once);
    tcase_add_test(c, plain_memory_is_copied_as_documented);
    tcase_add_test(c, peer_memory_needs_access);
    tcase_add_test(c, mapped_memory_needs_access_and_whole_granules);
    tcase_add_test(c, descriptors_carry_memory_to_other_processes);
    tcase_add_test(c, handles_open_at_the_base_and_elsewhere_only);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int      failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
