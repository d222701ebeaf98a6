/* backend_mpi.c -- Open MPI and MPICH, by the calls that a user would write. MPI has no 16-bit floats: bfloat16 and
 * float16 go through user-defined operators, which is what an MPI program has to do. */
#include "harness.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MPI_Datatype types[ELEMENTS];
static MPI_Op       sums[ELEMENTS];
static int          have_float16;
#define all MPI_COMM_WORLD

static void sum_bfloat16(void *in, void *inout, int *length, MPI_Datatype *type)
{
    const uint16_t *const a = in;
    uint16_t *const       b = inout;

    (void)type;
    for (int i = 0; i < *length; i++) {
        uint32_t x = (uint32_t)a[i] << 16, y = (uint32_t)b[i] << 16;
        float    f, g;

        memcpy(&f, &x, sizeof f);
        memcpy(&g, &y, sizeof g);
        f += g;
        memcpy(&x, &f, sizeof x);
        b[i] = (uint16_t)((x + 0x7fff + ((x >> 16) & 1)) >> 16);
    }
}

#ifdef __FLT16_MAX__
static void sum_float16(void *in, void *inout, int *length, MPI_Datatype *type)
{
    const _Float16 *const a = in;
    _Float16 *const       b = inout;

    (void)type;
    for (int i = 0; i < *length; i++)
        b[i] = (_Float16)((float)a[i] + (float)b[i]);
}
#endif

static int mpi_open(const struct world *world, char *version, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int  length, rank, ranks;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    if (rank != world->rank || ranks != world->size) {
        fprintf(stderr, "MPI says rank %d of %d, the launcher %d of %d\n", rank, ranks, world->rank, world->size);
        return -1;
    }
    types[FLOAT32] = MPI_FLOAT;
    sums[FLOAT32]  = MPI_SUM;
    types[FLOAT16] = types[BFLOAT16] = MPI_UINT16_T;
#ifdef __FLT16_MAX__
    MPI_Op_create(sum_float16, 1, &sums[FLOAT16]);
    have_float16 = 1;
#endif
    MPI_Op_create(sum_bfloat16, 1, &sums[BFLOAT16]);
    MPI_Get_library_version(text, &length);
    snprintf(version, size, "%.*s", (int)strcspn(text, ",\n"), text); /* "Open MPI v4.1.4", "MPICH Version:   4.0.2" */
    return 0;
}

static void mpi_close(void)
{
    MPI_Finalize();
}

static void *mpi_allocate(int kind, size_t bytes)
{
    (void)kind;
    return aligned_alloc(4096, bytes);
}

static void mpi_release(int kind, void *memory, size_t bytes)
{
    (void)kind;
    (void)bytes;
    free(memory);
}

static void mpi_progress(void)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, 99, all, &flag, MPI_STATUS_IGNORE);
}

static int mpi_all_reduce(const void *send, void *recv, size_t count, enum element type)
{
    if (type == FLOAT16 && !have_float16)
        return -1;
    return MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count, types[type], sums[type], all);
}

static int mpi_reduce_scatter(const void *send, void *recv, size_t count, enum element type)
{
    return MPI_Reduce_scatter_block(send, recv, (int)count, types[type], sums[type], all);
}

static int mpi_all_gather(const void *send, void *recv, size_t count, enum element type)
{
    return MPI_Allgather(send, (int)count, types[type], recv, (int)count, types[type], all);
}

static int mpi_broadcast(void *buffer, size_t count, enum element type)
{
    return MPI_Bcast(buffer, (int)count, types[type], 0, all);
}

static int mpi_all_to_all(const void *send, void *recv, size_t count, enum element type)
{
    return MPI_Alltoall(send, (int)count, types[type], recv, (int)count, types[type], all);
}

static int mpi_sendrecv(const void *send, int to, void *recv, int from, size_t count, enum element type)
{
    return MPI_Sendrecv(send, (int)count, types[type], to, 0, recv, (int)count, types[type], from, 0, all,
                        MPI_STATUS_IGNORE);
}

static int mpi_send(const void *send, size_t count, enum element type, int to)
{
    return MPI_Send(send, (int)count, types[type], to, 0, all);
}

static int mpi_receive(void *recv, size_t count, enum element type, int from)
{
    return MPI_Recv(recv, (int)count, types[type], from, 0, all, MPI_STATUS_IGNORE);
}

const struct backend the_backend = {
    .one_memory     = 1,
    .open           = mpi_open,
    .close          = mpi_close,
    .allocate       = mpi_allocate,
    .release        = mpi_release,
    .progress       = mpi_progress,
    .all_reduce     = mpi_all_reduce,
    .reduce_scatter = mpi_reduce_scatter,
    .all_gather     = mpi_all_gather,
    .broadcast      = mpi_broadcast,
    .all_to_all     = mpi_all_to_all,
    .sendrecv       = mpi_sendrecv,
    .send           = mpi_send,
    .receive        = mpi_receive,
};
