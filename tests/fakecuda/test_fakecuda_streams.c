/* test_fakecuda_streams.c -- the fake driver does what it promises: the order of streams, events, captures and graphs, faults on demand, code. */
#include "driver_case.h"

#include <pthread.h>
#include <time.h>

/* ---- streams and events -------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(streams_wait_for_words_and_events)
{
    const CUdeviceptr p = (start(), allocate(8)), flag = p + 4;
    CUstream          a = new_stream(), b = new_stream();
    CUevent           e;

    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD8(p, 0, 8));
    OK(cuStreamWaitValue32(a, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(p, 1, 1, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD32Async(p, 2, 1, b));
    GIVES(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    GIVES(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    ck_assert_uint_eq(word_at(p), 0);
    OK(cuMemsetD32Async(flag, 4, 1, NULL));
    OK(cuStreamSynchronize(NULL));
    GIVES(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuMemsetD32Async(flag, 5, 1, NULL));
    OK(cuStreamSynchronize(b));
    ck_assert_uint_eq(word_at(p), 2);
    OK(cuEventQuery(e));
}
END_TEST

START_TEST(words_are_aligned_and_visible_and_batches_short)
{
    const CUdeviceptr        p = (start(), allocate(64));
    CUstream                 s = new_stream();
    uint32_t                 host = 0;
    CUstreamBatchMemOpParams o[256];

    GIVES(cuStreamWriteValue32(s, p + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuStreamWriteValue64(s, p + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuStreamWriteValue32(s, (uintptr_t)&host, 1, 0), CUDA_ERROR_INVALID_VALUE);
    memset(o, 0, sizeof(o));
    for (int i = 0; i < 256; i++) {
        o[i].operation          = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        o[i].writeValue.address = p + 4 * (unsigned)(i % 16);
        o[i].writeValue.value   = (unsigned)i;
    }
    GIVES(cuStreamBatchMemOp(s, 256, o, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamBatchMemOp(s, 255, o, 0));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(word_at(p), 240);
}
END_TEST

START_TEST(the_first_memory_operations_are_refused)
{
    void *f;

    CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
    CUresult (*write_value)(CUstream, CUdeviceptr, uint32_t, unsigned);

    start();
    OK(cuGetProcAddress_v2("cuStreamWriteValue32", &f, 8000, 0, NULL));
    memcpy(&write_value, &f, sizeof(f));
    GIVES(write_value(NULL, allocate(4), 1, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuGetProcAddress_v2("cuNothing", &f, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(the_legacy_stream_fences_blocking_streams)
{
    const CUdeviceptr p = (start(), allocate(4)), flag = allocate(4);
    CUstream          blocking, free_one = new_stream();

    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuMemsetD32Async(flag, 0, 1, free_one));
    OK(cuMemsetD32Async(p, 0, 1, free_one));
    OK(cuStreamSynchronize(free_one));
    OK(cuStreamWaitValue32(blocking, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(p, 1, 1, NULL)); /* behind the blocking stream */
    OK(cuStreamQuery(free_one));
    GIVES(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(free_one, flag, 1, 0));
    OK(cuStreamSynchronize(NULL));
    ck_assert_uint_eq(word_at(p), 1);
}
END_TEST

static void call_the_driver(void *argument)
{
    CUdeviceptr p;

    *(CUresult *)argument = cuMemAlloc(&p, 4);
}

START_TEST(host_functions_must_not_call_the_driver)
{
    CUresult error = CUDA_SUCCESS;

    start();
    OK(cuLaunchHostFunc(NULL, call_the_driver, &error));
    OK(cuStreamSynchronize(NULL));
    ck_assert_int_eq((int)error, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

static void *free_memory(void *argument)
{
    CUcontext context;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree(*(CUdeviceptr *)argument));
    return NULL;
}

START_TEST(freeing_waits_for_the_whole_context)
{
    CUdeviceptr           unrelated, flag;
    CUstream              s, t;
    pthread_t             thread;
    const struct timespec moment = {0, 50000000};

    start();
    unrelated = allocate(64);
    flag      = allocate(4);
    s         = new_stream();
    t         = new_stream();
    OK(cuMemsetD32Async(flag, 0, 1, t));
    OK(cuStreamSynchronize(t));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    ck_assert_int_eq(pthread_create(&thread, NULL, free_memory, &unrelated), 0);
    nanosleep(&moment, NULL);
    ck_assert_int_eq((int)fakecuda_alive(FAKE_ALLOCATIONS), 2); /* it cannot have been freed, however long one waits */
    OK(cuStreamWriteValue32(t, flag, 1, 0));
    pthread_join(thread, NULL);
    ck_assert_int_eq((int)fakecuda_alive(FAKE_ALLOCATIONS), 1);
}
END_TEST

/* A wait at the head of a hardware queue holds up the other streams of it. */
START_TEST(streams_share_hardware_queues)
{
    CUdeviceptr           p, flag;
    CUstream              a, b;
    const struct timespec moment = {0, 50000000};

    start_with("FAKECUDA_QUEUES", "1");
    p    = allocate(4);
    flag = allocate(4);
    OK(cuMemsetD32Async(flag, 0, 1, NULL));
    OK(cuStreamSynchronize(NULL));
    a = new_stream();
    b = new_stream();
    OK(cuStreamWaitValue32(a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(p, 1, 1, b));
    nanosleep(&moment, NULL);
    GIVES(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
}
END_TEST

/* ---- captures and graphs -------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(captures_fork_and_join_by_events)
{
    const CUdeviceptr p = (start(), allocate(8));
    CUstream          a = new_stream(), b = new_stream();
    CUevent           fork_event, join_event;
    CUgraph           graph;
    CUgraphExec       exec;

    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD8(p, 0, 8));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(fork_event, a));
    OK(cuStreamWaitEvent(b, fork_event, 0));
    OK(cuMemsetD32Async(p, 3, 1, b));
    GIVES(cuEventQuery(fork_event), FAKE_ERROR_CAPTURED_EVENT);
    OK(cuEventRecord(join_event, b));
    OK(cuStreamWaitEvent(a, join_event, 0));
    OK(cuMemcpyAsync(p + 4, p, 4, a));
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    ck_assert_uint_eq(word_at(p + 4), 0);
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    ck_assert_uint_eq(word_at(p + 4), 3);
    OK(cuGraphExecDestroy(exec));
    ck_assert_int_eq((int)fakecuda_alive(FAKE_GRAPHS), 0);
}
END_TEST

START_TEST(captures_that_go_wrong_say_so)
{
    const CUdeviceptr     p = (start(), allocate(8));
    CUstream              a = new_stream(), b = new_stream();
    CUevent               e, outside;
    CUgraph               graph;
    CUdeviceptr           other;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode   relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(outside, b));
    GIVES(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* a branch that does not come back */
    GIVES(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD32Async(p, 3, 1, b));
    GIVES(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    GIVES(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* a call that may wait */
    GIVES(cuMemAlloc(&other, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamIsCapturing(a, &status));
    ck_assert_int_eq((int)status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(cuMemsetD32Async(p, 3, 1, a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* unless the thread takes it upon itself */
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuMemAlloc(&other, 4));
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuStreamEndCapture(a, &graph));
}
END_TEST

static void note(void *argument)
{
    ++*(int *)argument;
}

START_TEST(graphs_keep_user_objects)
{
    CUstream     s = (start(), new_stream());
    CUuserObject object;
    CUgraph      graph;
    CUgraphExec  exec;
    int          destroyed = 0;

    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuUserObjectCreate(&object, &destroyed, note, 1, 1));
    OK(cuGraphRetainUserObject(graph, object, 1, FAKE_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    ck_assert_int_eq(destroyed, 0);
    OK(cuGraphExecDestroy(exec));
    ck_assert_int_eq(destroyed, 1);
}
END_TEST

/* External records and waits in a graph order it with work outside, launch by launch. */
START_TEST(external_events_belong_to_the_outside)
{
    const CUdeviceptr p = (start(), allocate(8));
    CUstream          a = new_stream(), b = new_stream();
    CUevent           e;
    CUgraph           graph;
    CUgraphExec       exec;

    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD32Async(p, 9, 1, a));
    OK(cuEventRecordWithFlags(e, a, FAKE_EVENT_EXTERNAL));
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        OK(cuMemsetD32Async(p, 0, 1, a));
        OK(cuGraphLaunch(exec, a));
        OK(cuStreamWaitEvent(b, e, 0));
        OK(cuMemcpyAsync(p + 4, p, 4, b));
        OK(cuStreamSynchronize(b));
        ck_assert_uint_eq(word_at(p + 4), 9);
    }
}
END_TEST

/* ---- faults, kernels, sharing -------------------------------------------------------------------------------------------------------------------------------- */

START_TEST(calls_fail_on_demand)
{
    CUdeviceptr p;
    CUstream    s;

    start_with("FAKECUDA_FAIL", "cuMemAlloc:2:2,cuStreamCreateWithPriority:1:999");
    OK(cuMemAlloc(&p, 4));
    GIVES(cuMemAlloc(&p, 4), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 4));
    GIVES(cuStreamCreateWithPriority(&s, 0, 0), CUDA_ERROR_UNKNOWN);
    fakecuda_fail("cuMemFree", 1, CUDA_ERROR_INVALID_HANDLE);
    GIVES(cuMemFree(p), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree(p));
    ck_assert_uint_eq(fakecuda_calls("cuMemAlloc"), 3);
}
END_TEST

START_TEST(code_is_looked_at)
{
    CUlibrary library;
    CUkernel  kernel;

    start();
    GIVES(cuLibraryLoadData(&library, "no code at all, sorry", NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_INVALID_IMAGE);
    OK(cuLibraryLoadData(&library, "// PTX", NULL, NULL, 0, NULL, NULL, 0));
    GIVES(cuLibraryGetKernel(&kernel, library, "nobody"), CUDA_ERROR_NOT_FOUND);
    OK(cuLibraryUnload(library));
}
END_TEST

START_TEST(a_stream_outlives_its_handle)
{
    const CUdeviceptr p = (start(), allocate(8));
    CUstream          s = new_stream(), t = new_stream();
    CUevent           e;

    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD8(p, 0, 8));
    OK(cuStreamWaitValue32(s, p, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(p + 4, 6, 1, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamDestroy(s));
    GIVES(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamWriteValue32(t, p, 1, 0));
    OK(cuEventSynchronize(e));
    ck_assert_uint_eq(word_at(p + 4), 6);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("fakecuda streams");
    TCase *c = tcase_create("traps");

    suite_add_tcase(s, c);
    tcase_set_timeout(c, 30);
    tcase_add_test(c, streams_wait_for_words_and_events);
    tcase_add_test(c, words_are_aligned_and_visible_and_batches_short);
    tcase_add_test(c, the_first_memory_operations_are_refused);
    tcase_add_test(c, the_legacy_stream_fences_blocking_streams);
    tcase_add_test(c, host_functions_must_not_call_the_driver);
    tcase_add_test(c, freeing_waits_for_the_whole_context);
    tcase_add_test(c, streams_share_hardware_queues);
    tcase_add_test(c, captures_fork_and_join_by_events);
    tcase_add_test(c, captures_that_go_wrong_say_so);
    tcase_add_test(c, graphs_keep_user_objects);
    tcase_add_test(c, external_events_belong_to_the_outside);
    tcase_add_test(c, calls_fail_on_demand);
    tcase_add_test(c, code_is_looked_at);
    tcase_add_test(c, a_stream_outlives_its_handle);
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
