/* touch.c -- memory of communicators is touched before training, so that its steps fault no page in.
 *
 * A communicator passes small data through places that it uses in turn, up to 64 of them, and touches none before. */
#include <parallel/common.h>

enum { SMALL = 1024, LARGE = 16384 /* bytes: what goes by the one kind of places, and by the other */ };

int hkt_comm_touch(hkt_comm_t *comm)
{
    static const struct {
        size_t bytes;
        int    places;
    } kind[]         = {{SMALL, 64}, {LARGE, 16}};
    char data[LARGE] = {0};
    int  ranks;

    if (!comm)
        return HKT_OK;
    TRY(hkt_comm_size(comm, &ranks));
    for (int k = 0; ranks > 1 && k < 2; k++)
        for (int i = 0; i < kind[k].places; i++)
            TRY(hkt_all_reduce(data, data, kind[k].bytes, HKT_UINT8, HKT_MAX, comm, NULL));
    return HKT_OK;
}
