/* backend_hocket.c -- Hocket, through include/hocket.h alone. Kinds: memory from hkt_mem_alloc(), memory of malloc
 * given to hkt_comm_register(), and memory of malloc that the library has never heard of. */
#include "harness.h"

#include <hocket.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { ALLOC, REGISTERED, MALLOC };
enum { REGIONS = 8 };

static hkt_comm_t *comm;
static struct {
    void *memory, *handle;
} registered[REGIONS];

static const hkt_type_t types[ELEMENTS] = {HKT_FLOAT32, HKT_FLOAT16, HKT_BFLOAT16};

/* Anything but success ends the program: a benchmark of failures says nothing. */
static int must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "hocket: %s\n", hkt_last_error());
        exit(5);
    }
    return 0;
}

static int hocket_open(const struct world *world, char *version, size_t size)
{
    hkt_unique_id_t id = {{0}}, all[MAX_RANKS];
    const int       v  = hkt_version();

    if (world->rank == 0)
        must(hkt_unique_id(&id));
    exchange(&id, all, sizeof id);
    must(hkt_comm_init(&comm, world->size, &all[0], world->rank, NULL));
    snprintf(version, size, "Hocket %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return 0;
}

static void hocket_close(void)
{
    must(hkt_comm_destroy(comm));
}

static void *hocket_allocate(int kind, size_t bytes)
{
    void *p = NULL;

    if (kind == ALLOC) {
        must(hkt_mem_alloc(&p, bytes));
        return p;
    }
    p = aligned_alloc(4096, bytes);
    for (int i = 0; p && kind == REGISTERED && i < REGIONS; i++)
        if (!registered[i].memory) {
            registered[i].memory = p;
            must(hkt_comm_register(&registered[i].handle, comm, p, bytes));
            break;
        }
    return p;
}

static void hocket_release(int kind, void *memory, size_t bytes)
{
    (void)bytes;
    if (kind == ALLOC) {
        must(hkt_mem_free(memory));
        return;
    }
    for (int i = 0; i < REGIONS; i++)
        if (registered[i].memory == memory) {
            must(hkt_comm_deregister(registered[i].handle, comm));
            registered[i].memory = NULL;
        }
    free(memory);
}

static int hocket_all_reduce(const void *send, void *recv, size_t count, enum element type)
{
    return must(hkt_all_reduce(send, recv, count, types[type], HKT_SUM, comm, NULL));
}

static int hocket_reduce_scatter(const void *send, void *recv, size_t count, enum element type)
{
    return must(hkt_reduce_scatter(send, recv, count, types[type], HKT_SUM, comm, NULL));
}

static int hocket_all_gather(const void *send, void *recv, size_t count, enum element type)
{
    return must(hkt_all_gather(send, recv, count, types[type], comm, NULL));
}

static int hocket_broadcast(void *buffer, size_t count, enum element type)
{
    return must(hkt_broadcast(buffer, buffer, count, types[type], 0, comm, NULL));
}

static int hocket_all_to_all(const void *send, void *recv, size_t count, enum element type)
{
    return must(hkt_all_to_all(send, recv, count, types[type], comm, NULL));
}

static int hocket_sendrecv(const void *send, int to, void *recv, int from, size_t count, enum element type)
{
    must(hkt_group_begin());
    must(hkt_send(send, count, types[type], to, comm, NULL));
    must(hkt_recv(recv, count, types[type], from, comm, NULL));
    return must(hkt_group_end());
}

static int hocket_send(const void *send, size_t count, enum element type, int to)
{
    return must(hkt_send(send, count, types[type], to, comm, NULL));
}

static int hocket_receive(void *recv, size_t count, enum element type, int from)
{
    return must(hkt_recv(recv, count, types[type], from, comm, NULL));
}

const struct backend the_backend = {
    .open           = hocket_open,
    .close          = hocket_close,
    .allocate       = hocket_allocate,
    .release        = hocket_release,
    .all_reduce     = hocket_all_reduce,
    .reduce_scatter = hocket_reduce_scatter,
    .all_gather     = hocket_all_gather,
    .broadcast      = hocket_broadcast,
    .all_to_all     = hocket_all_to_all,
    .sendrecv       = hocket_sendrecv,
    .send           = hocket_send,
    .receive        = hocket_receive,
};
