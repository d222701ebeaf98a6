/* test_api.c -- the interface itself: what is refused and how, how communicators are made and unmade. Groups, streams, messages and
 * memory are in test_work.c; what costs memory or descriptors in test_resources.c. */
#include "job.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const hkt_config_t nonblocking = {.size = sizeof(nonblocking), .blocking = 0, .timeout_s = -1};

/* ---- arguments */

static void refused_buffers(struct rank *me)
{
    hkt_comm_t *c     = me->comm;
    float       x[64] = {0};

    expect_code(hkt_all_reduce(NULL, x, 1, HKT_FLOAT32, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_reduce(x, NULL, 1, HKT_FLOAT32, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_reduce_scatter(NULL, x, 1, HKT_FLOAT32, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_gather(x, NULL, 1, HKT_FLOAT32, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_to_all(NULL, NULL, 1, HKT_FLOAT32, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_reduce(NULL, x, 1, HKT_FLOAT32, HKT_SUM, 0, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_broadcast(x, NULL, 1, HKT_FLOAT32, 0, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_gather(NULL, x, 1, HKT_FLOAT32, 0, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_scatter(x, NULL, 1, HKT_FLOAT32, 0, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_gather_v(x, x + 8, NULL, NULL, HKT_FLOAT32, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_to_all_v(x, NULL, NULL, x + 8, NULL, NULL, HKT_FLOAT32, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_send(NULL, 1, HKT_FLOAT32, 0, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_recv(NULL, 1, HKT_FLOAT32, 0, c, NULL), HKT_ERR_ARGUMENT);
}

static void refused_values(struct rank *me)
{
    static const int bad_types[] = {-1, HKT_TYPES, 1000};
    static const int bad_ops[]   = {-1, HKT_OPS, 255, HKT_PREMUL_SUM + 63, INT_MAX};
    const int        bad_ranks[] = {-1, me->n, INT_MAX, INT_MIN};
    hkt_comm_t      *c           = me->comm;
    float            x[64]       = {0};

    for (int i = 0; i < 3; i++) {
        expect_code(hkt_all_reduce(x, x, 1, (hkt_type_t)bad_types[i], HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_all_gather(x, x + 8, 1, (hkt_type_t)bad_types[i], c, NULL), HKT_ERR_ARGUMENT);
    }
    for (int i = 0; i < 5; i++) {
        expect_code(hkt_all_reduce(x, x, 1, HKT_FLOAT32, (hkt_op_t)bad_ops[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_op_destroy((hkt_op_t)bad_ops[i], c), HKT_ERR_ARGUMENT);
    }
    for (int i = 0; i < 4; i++) {
        expect_code(hkt_broadcast(x, x, 1, HKT_FLOAT32, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_reduce(x, x, 1, HKT_FLOAT32, HKT_SUM, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_gather(x, x + 8, 1, HKT_FLOAT32, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_scatter(x + 8, x, 1, HKT_FLOAT32, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_send(x, 1, HKT_FLOAT32, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
        expect_code(hkt_recv(x, 1, HKT_FLOAT32, bad_ranks[i], c, NULL), HKT_ERR_ARGUMENT);
    }
    expect_true(*hkt_last_error() != 0);
}

/* The sizes that do not fit an address space, by every way to multiply. */
static void refused_sizes(struct rank *me)
{
    const size_t half = SIZE_MAX / 2, counts[2] = {half, half}, displs[2] = {0, half};
    hkt_comm_t  *c     = me->comm;
    double       x[64] = {0};

    expect_code(hkt_all_reduce(x, x, half, HKT_FLOAT64, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_reduce(x, x, SIZE_MAX, HKT_INT8, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_reduce(x, x, (size_t)1 << 61, HKT_FLOAT64, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_gather(x, x + 8, half / 2 + 1, HKT_INT8, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_reduce_scatter(x, x, half, HKT_INT16, HKT_SUM, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_to_all(x, x + 8, half / 2 + 1, HKT_INT8, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_gather_v(x, x + 8, counts, NULL, HKT_INT8, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_gather_v(x, x + 8, counts, displs, HKT_INT16, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_to_all_v(x, counts, displs, x + 8, counts, displs, HKT_FLOAT64, c, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_send(x, half, HKT_INT64, 0, c, NULL), HKT_ERR_ARGUMENT);
}

static void refused_makers(struct rank *me)
{
    hkt_comm_t     *out    = (void *)me, *const before = out;
    hkt_config_t    config = HKT_CONFIG_INIT;
    hkt_unique_id_t zero   = {{0}};
    void           *memory = me;

    config.size = 3;
    expect_code(hkt_comm_init(NULL, 1, me->id, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 0, me->id, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, -5, me->id, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 2, me->id, 2, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 2, me->id, -1, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 2, NULL, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 2, &zero, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_init(&out, 1, me->id, 0, &config), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_duplicate(NULL, me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_split(NULL, me->comm, 0, 0, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_rank(me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_size(me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_comm_error(me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_unique_id(NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_mem_alloc(NULL, 8), HKT_ERR_ARGUMENT);
    expect_code(hkt_mem_alloc(&memory, SIZE_MAX), HKT_ERR_MEMORY);
    expect_code(hkt_mem_free(me), HKT_ERR_ARGUMENT);
    expect_code(hkt_stream_create(NULL), HKT_ERR_ARGUMENT);
    expect_code(hkt_event_create(NULL), HKT_ERR_ARGUMENT);
    expect(out == before && memory == (void *)me, "an output was written although the call failed");
}

static void refusals(struct rank *me)
{
    float x = 1;

    for (int round = 0; round < 2; round++) {
        refused_buffers(me);
        refused_values(me);
        refused_sizes(me);
        refused_makers(me);
        x = 1;
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, me->comm, NULL));
        expect_true(x == 2);
    }
}

/* Proves: arguments that cannot be right are refused with HKT_ERR_ARGUMENT and a sentence, outputs stay as they were, and the
 * communicator is not harmed. C47: sizes that overflow are among them. */
START_TEST(C47_arguments_are_checked)
{
    world(2, _i, refusals, NULL);
}
END_TEST

/* Proves: texts and sizes exist for every code, type and operator, and for values that are none. */
START_TEST(names_and_sizes)
{
    static const char *const names[HKT_TYPES] = {"int8",    "uint8",   "int16",    "uint16",  "int32",   "uint32",      "int64",
                                                 "uint64",  "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"};

    ck_assert_str_eq(hkt_last_error(), "");
    ck_assert_int_eq(hkt_version(), HKT_VERSION);
    for (int code = -40; code <= 10; code++)
        ck_assert_msg(hkt_error_string(code) && *hkt_error_string(code), "code %d has no text", code);
    for (hkt_type_t t = 0; t < HKT_TYPES; t++) {
        ck_assert_uint_eq(hkt_type_size(t), size_of(t));
        ck_assert_str_eq(hkt_type_name(t), names[t]);
    }
    for (int op = 0; op < HKT_OPS; op++)
        ck_assert_str_eq(hkt_op_name(op), name_of_op(op));
    ck_assert_str_eq(hkt_op_name(HKT_PREMUL_SUM), "premul_sum");
    ck_assert_str_eq(hkt_op_name(HKT_OPS), "?");
    ck_assert_str_eq(hkt_type_name(HKT_TYPES), "?");
    ck_assert_uint_eq(hkt_type_size((hkt_type_t)-1), 0);
}
END_TEST

/* ---- operators */

static void premultiplied(struct rank *me)
{
    hkt_op_t ops[65], more = 12345;
    double   x, scale = 1.5 + me->rank;
    int32_t  k;

    for (int i = 0; i < 64; i++)
        expect_ok(hkt_op_create_premul_sum(&ops[i], scale * i, me->comm));
    expect_true(hkt_op_create_premul_sum(&more, 1, me->comm) < 0);
    expect(more == 12345, "the output was written although the call failed");
    for (int i = 0; i < 64; i += 9) {
        double  sum  = 0;
        int32_t ksum = 0;

        for (int r = 0; r < me->n; r++) {
            sum += (1.5 + r) * i * 2;
            ksum += (int32_t)((1.5 + r) * i) * 2;
        }
        x = k = 2;
        expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT64, ops[i], me->comm, NULL));
        expect(x == sum, "operator %d gives %g, not %g", i, x, sum);
        expect_ok(hkt_all_reduce(&k, &k, 1, HKT_INT32, ops[i], me->comm, NULL));
        expect(k == ksum, "operator %d gives %d, not %d", i, k, ksum);
    }
    for (int i = 0; i < 64; i++)
        expect_ok(hkt_op_destroy(ops[i], me->comm));
    expect_code(hkt_op_destroy(ops[0], me->comm), HKT_ERR_ARGUMENT);
    expect_code(hkt_all_reduce(&x, &x, 1, HKT_FLOAT64, ops[5], me->comm, NULL), HKT_ERR_ARGUMENT);
    expect_ok(hkt_op_create_premul_sum(&more, 2, me->comm));
    expect_ok(hkt_op_destroy(more, me->comm));
}

/* Proves: 64 premultiplied sums at a time, a different factor on every rank; a destroyed one is refused. */
START_TEST(premultiplied_sums)
{
    world(3, _i, premultiplied, NULL);
}
END_TEST

/* ---- making and unmaking communicators */

static void check_sum(hkt_comm_t *comm, int n)
{
    float x = 1;

    expect_ok(hkt_all_reduce(&x, &x, 1, HKT_FLOAT32, HKT_SUM, comm, NULL));
    expect(x == (float)n, "1 over %d ranks sums to %g", n, (double)x);
}

static void family(struct rank *me)
{
    hkt_comm_t *half, *copy, *single, *none = (void *)me, *reversed, *grandchild;
    int         rank, size;

    expect_ok(hkt_comm_split(&half, me->comm, me->rank % 2, -me->rank, NULL));
    expect_ok(hkt_comm_rank(half, &rank));
    expect_ok(hkt_comm_size(half, &size));
    expect(size == (me->n + 1 - me->rank % 2) / 2, "half has %d ranks", size);
    expect(rank == size - 1 - me->rank / 2, "rank %d is %d in its half, ordered by falling key", me->rank, rank);
    expect_ok(hkt_comm_split(&none, half, me->rank < 2 ? -1 : 3, 0, NULL));
    expect((none == NULL) == (me->rank < 2), "a negative colour gives no communicator");
    expect_ok(hkt_comm_split(&single, me->comm, me->rank, 0, NULL));
    expect_ok(hkt_comm_size(single, &size));
    expect_true(size == 1);
    expect_ok(hkt_comm_split(&reversed, me->comm, 7, me->n - me->rank, NULL));
    expect_ok(hkt_comm_rank(reversed, &rank));
    expect_true(rank == me->n - 1 - me->rank);
    expect_ok(hkt_comm_duplicate(&copy, reversed, NULL));
    expect_ok(hkt_comm_rank(copy, &rank));
    expect_true(rank == me->n - 1 - me->rank);
    expect_ok(hkt_comm_destroy(reversed)); /* the parent before the child */
    expect_ok(hkt_comm_split(&grandchild, copy, rank / 2, 0, NULL));
    check_sum(copy, me->n);
    if (me->rank % 2)
        expect_ok(hkt_comm_destroy(copy)); /* one rank early, another late */
    expect_ok(hkt_comm_size(grandchild, &size));
    check_sum(grandchild, size);
    expect_ok(hkt_comm_destroy(single));
    check_sum(me->comm, me->n);
    if (none)
        expect_ok(hkt_comm_destroy(none));
    if (me->rank % 2 == 0)
        expect_ok(hkt_comm_destroy(copy));
    expect_ok(hkt_comm_destroy(grandchild));
    expect_ok(hkt_comm_destroy(half));
}

/* Proves: split orders by key, leaves out negative colours; communicators may be destroyed in any order, parents first, at different
 * times on different ranks. */
START_TEST(split_duplicate_destroy)
{
    world(4 + _i / 2, _i % 2, family, NULL);
}
END_TEST

static void *join_now(void *arg)
{
    struct rank *me   = arg;
    hkt_comm_t  *comm = NULL;
    const int    rc   = hkt_comm_init(&comm, me->n, me->id, me->rank, NULL);

    if (rc == HKT_OK)
        hkt_comm_destroy(comm);
    return (void *)(intptr_t)rc;
}

static void same_id(struct rank *me)
{
    hkt_comm_t *first, *second;
    pthread_t   thread[2];
    void       *result[2];

    for (int round = 0; round < 3; round++) {
        expect_ok(hkt_comm_init(&first, me->n, me->id, me->rank, NULL));
        expect_ok(hkt_comm_init(&second, me->n, me->id, me->rank, NULL));
        check_sum(second, me->n);
        check_sum(first, me->n);
        expect_ok(hkt_comm_destroy(first));
        expect_ok(hkt_comm_destroy(second));
    }
    rendezvous(me);
    for (int t = 0; t < 2; t++)
        expect_true(pthread_create(&thread[t], NULL, join_now, me) == 0);
    for (int t = 0; t < 2; t++) { /* works or is refused; the deadline of the world says whether it hangs */
        pthread_join(thread[t], &result[t]);
        expect((intptr_t)result[t] <= 0, "init gives %d", (int)(intptr_t)result[t]);
    }
}

/* Proves: an id can be used again while and after its communicator lives; two inits with one id at once do not hang. */
START_TEST(C22_same_id_again)
{
    world_run(&(struct world){.n = 2 + _i / 2, .kind = _i % 2, .fn = same_id, .bare = true, .deadline = 30, .environment = {"HKT_INIT_TIMEOUT=5"}});
}
END_TEST

static void wait_made(hkt_comm_t *comm)
{
    const double end   = now() + 30;
    int          error = HKT_IN_PROGRESS;

    while (error == HKT_IN_PROGRESS) {
        expect(now() < end, "the communicator is not made after 30 s");
        expect_ok(hkt_comm_error(comm, &error));
        usleep(100);
    }
    expect(error == HKT_OK, "making the communicator ended with %d", error);
}

static void in_progress(struct rank *me)
{
    const float       in[3] = {1, 2, 3};
    float             out[3] = {0};
    _Atomic uint32_t *tried  = me->shared;
    hkt_comm_t       *comm, *copy;
    int               rc;

    if (me->rank)
        await(tried, 1, 30);
    rc = hkt_comm_init(&comm, me->n, me->id, me->rank, &nonblocking);
    expect(rc == HKT_IN_PROGRESS || rc == HKT_OK, "init gives %d: %s", rc, hkt_last_error());
    if (me->rank == 0) { /* the others are held back, so the communicator cannot be ready */
        expect_ok(hkt_group_begin());
        expect_code(hkt_all_to_all(in, out, 1, HKT_FLOAT32, comm, NULL), HKT_ERR_USAGE);
        expect_said("still being made");
        expect_code(hkt_group_end(), HKT_ERR_USAGE);
        expect_code(hkt_barrier(comm, NULL), HKT_ERR_USAGE);
        atomic_store(tried, 1);
    }
    wait_made(comm);
    expect_true(out[0] == 0 && out[1] == 0);
    expect_ok(hkt_group_begin());
    expect_ok(hkt_all_to_all(in, out, 1, HKT_FLOAT32, comm, NULL));
    expect_ok(hkt_group_end());
    for (int r = 0; r < me->n; r++)
        expect(out[r] == (float)(me->rank + 1), "from rank %d comes %g", r, (double)out[r]);
    rc = hkt_comm_duplicate(&copy, comm, &nonblocking);
    expect(rc == HKT_IN_PROGRESS || rc == HKT_OK, "duplicate gives %d", rc);
    wait_made(copy);
    check_sum(copy, me->n);
    expect_ok(hkt_comm_destroy(comm));
    expect_ok(hkt_comm_destroy(copy));
}

/* Proves: a call on a communicator that is still being made is refused, says why and does nothing; when it is made, results are right. */
START_TEST(C37_calls_before_it_is_made)
{
    world_run(&(struct world){.n = 3, .kind = _i, .fn = in_progress, .bare = true});
}
END_TEST

static void alone(struct rank *me)
{
    const double begin = now();
    const int    fds = open_descriptors(), tasks = threads();
    hkt_comm_t  *comm;
    int          error;

    expect_code(hkt_comm_init(&comm, 2, me->id, 0, &nonblocking), HKT_IN_PROGRESS);
    expect(slow_build() || now() - begin < 0.05, "took %.1f ms", (now() - begin) * 1e3);
    pause_ms(100);
    expect_ok(hkt_comm_error(comm, &error));
    expect_true(error == HKT_IN_PROGRESS);
    expect_ok(hkt_comm_abort(comm));
    expect_code(hkt_barrier(comm, NULL), HKT_ERR_ABORTED);
    expect_ok(hkt_comm_destroy(comm));
    expect(now() - begin < 5, "took %g s", now() - begin);
    /* the helper's thread stays, and a sanitizer's own comes with the first thread */
    expect(open_descriptors() <= fds + 8 && threads() <= tasks + 1 + slow_build(), "%d descriptors and %d threads stay", open_descriptors() - fds, threads() - tasks);
}

/* Proves: non-blocking init returns at once when a peer never comes, and abort and destroy free it. */
START_TEST(C38_peer_never_comes)
{
    world_run(&(struct world){.n = 1, .kind = _i, .fn = alone, .bare = true});
}
END_TEST

static void several_ranks(struct rank *me)
{
    hkt_comm_t *comm[3];
    float       x[3] = {1, 10, 100}, y[3];

    for (int r = 0; r < 3; r++) {
        const int rc = hkt_comm_init(&comm[r], 3, me->id, r, &nonblocking);

        expect(rc >= 0, "init gives %d: %s", rc, hkt_last_error());
    }
    for (int r = 0; r < 3; r++)
        wait_made(comm[r]);
    expect_ok(hkt_group_begin());
    for (int r = 0; r < 3; r++)
        expect_ok(hkt_all_reduce(&x[r], &y[r], 1, HKT_FLOAT32, HKT_SUM, comm[r], NULL));
    for (int r = 0; r < 3; r++)
        expect_ok(hkt_broadcast(&x[r], &x[r], 1, HKT_FLOAT32, 2, comm[r], NULL));
    expect_ok(hkt_group_end());
    for (int r = 0; r < 3; r++) {
        expect(y[r] == 111 && x[r] == 100, "rank %d has %g and %g", r, (double)y[r], (double)x[r]);
        expect_ok(hkt_comm_destroy(comm[r]));
    }
}

/* Proves: one thread can drive several ranks: non-blocking init, collectives in a group. */
START_TEST(one_thread_several_ranks)
{
    world_run(&(struct world){.n = 1, .kind = _i, .fn = several_ranks, .bare = true});
}
END_TEST

static void from_environment(struct rank *me)
{
    hkt_comm_t *comm;
    int         n;

    expect_ok(hkt_comm_init_env(&comm, NULL));
    expect_ok(hkt_comm_size(comm, &n));
    expect_true(n == 1 && me->n == 1);
    check_sum(comm, 1);
    expect_ok(hkt_comm_destroy(comm));
}

static void expect_traffic(hkt_comm_t *comm, const char *collective, uint64_t calls, uint64_t bytes)
{
    hkt_traffic_t t = {99, 99};

    expect_ok(hkt_comm_traffic(comm, collective, &t));
    expect(t.calls == calls && t.bytes == bytes, "%s: %llu calls, %llu bytes, not %llu and %llu", collective ? collective : "all",
           (unsigned long long)t.calls, (unsigned long long)t.bytes, (unsigned long long)calls, (unsigned long long)bytes);
}

static void traffic(struct rank *me)
{
    const size_t  n = (size_t)me->n, counts[4] = {3, 0, 2, 1};
    float         x[64] = {0}, y[64];
    hkt_comm_t   *c;
    hkt_traffic_t t;

    expect_ok(hkt_comm_duplicate(&c, me->comm, NULL));
    expect_traffic(c, NULL, 0, 0);
    expect_ok(hkt_all_reduce(x, x, 10, HKT_FLOAT32, HKT_SUM, c, NULL));
    expect_ok(hkt_all_reduce(x, x, 7, HKT_FLOAT32, HKT_SUM, c, NULL));
    expect_ok(hkt_all_gather(x, y, 5, HKT_INT8, c, NULL));
    expect_ok(hkt_all_gather_v(x, y, counts, NULL, HKT_FLOAT32, c, NULL));
    expect_ok(hkt_group_begin());
    expect_ok(hkt_send(x, 3, HKT_FLOAT64, (me->rank + 1) % me->n, c, NULL));
    expect_ok(hkt_recv(y, 3, HKT_FLOAT64, (me->rank + me->n - 1) % me->n, c, NULL));
    expect_ok(hkt_group_end());
    expect_ok(hkt_barrier(c, NULL));
    expect_traffic(c, "all_reduce", 2, 68);
    expect_traffic(c, "all_gather", 2, 5 * n + 4 * (3 + (n > 2 ? 2 : 0) + (n > 3 ? 1 : 0)));
    expect_traffic(c, "send", 1, 24);
    expect_traffic(c, "recv", 1, 24);
    expect_traffic(c, "barrier", 1, 0);
    expect_traffic(c, NULL, 7, 68 + 48 + 5 * n + 4 * (3 + (n > 2 ? 2 : 0) + (n > 3 ? 1 : 0)));
    expect_code(hkt_comm_traffic(c, "all_reduced", &t), HKT_ERR_ARGUMENT);
    expect_said("all_reduced");
    expect_code(hkt_comm_traffic(c, NULL, NULL), HKT_ERR_ARGUMENT);
    expect_ok(hkt_comm_destroy(c));
}

/* Proves: the ledger of a communicator counts every call once, with the bytes that its counts say. */
START_TEST(traffic_is_counted)
{
    world(1 + _i / 2, _i % 2, traffic, NULL);
}
END_TEST

/* Proves: without a launcher hkt_comm_init_env() gives a communicator of one rank. */
START_TEST(init_env_alone)
{
    world_run(&(struct world){.n = 1, .kind = PROCESSES, .fn = from_environment, .bare = true});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, C47_arguments_are_checked, 2, 30);
    ADD(s, names_and_sizes, 1, 30);
    ADD(s, premultiplied_sums, 2, 30);
    ADD(s, split_duplicate_destroy, 6, 60);
    ADD(s, C22_same_id_again, 4, 60);
    ADD(s, C37_calls_before_it_is_made, 2, 60);
    ADD(s, C38_peer_never_comes, 2, 30);
    ADD(s, one_thread_several_ranks, 2, 30);
    ADD(s, traffic_is_counted, 8, 30);
    ADD(s, init_env_alone, 1, 30);
}

int main(void)
{
    return run_suite("api", add);
}
