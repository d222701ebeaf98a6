/* comm.h -- making and freeing the engine's communicator, for comm.c (from an id) and split.c (from another one). */
#ifndef HKT_COMM_H
#define HKT_COMM_H

#include "face/handle.h"
#include "setup/here.h"

/* What each rank tells the others while a communicator is made. */
struct hkt_introduction {
    int32_t         code;    /* HKT_OK, or why this rank cannot */
    uint32_t        segment; /* the first rank of a host: id of the segment that it has made */
    uint64_t        id[2];   /* rank 0: of the communicator, in the last round but one */
    int32_t         read_ok;
    struct hkt_cpus cpus;
    struct hkt_here here;
    uint64_t        machine; /* hkt_inet_machine() */
    char            sentence[256];
};

/* An end with everything but the segment; the processes of all ranks are taken over, detached by hkt_communicator_free(). */
int hkt_communicator_create(struct hkt_communicator **c, int rank, int size, struct hkt_process **process, const hkt_config_t *config);

/* The first rank of a host: makes its segment and hands it to the processes there; the id is for the others. */
int hkt_communicator_segment(struct hkt_communicator *c, struct hkt_segment **segment);

/* All: maps segment `id` of the process of their host's first rank. */
int hkt_communicator_attach(struct hkt_communicator *c, uint32_t id);

/* All: what everybody's introduction says about cores and reach. */
void hkt_communicator_settle(struct hkt_communicator *c, const struct hkt_introduction *all);

/* All: who is near whom (run/site.h). HKT_ERR_MEMORY. */
int hkt_communicator_sites(struct hkt_communicator *c, const struct hkt_introduction *all);

void hkt_communicator_free(struct hkt_communicator *c); /* NULL is allowed */

/* The user's config or the defaults; parent NULL: none. */
int hkt_config_read(hkt_config_t *to, const hkt_config_t *from, const struct hkt_communicator *parent);

/* Fills my introduction: code, reach, cpus. */
void hkt_introduce(struct hkt_introduction *me, const struct hkt_communicator *c, int code);

#endif
