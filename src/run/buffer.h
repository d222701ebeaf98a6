/* buffer.h -- the user's memory and the staging memory of a communicator, and who can reach them. */
#ifndef HKT_BUFFER_H
#define HKT_BUFFER_H

#include "run/communicator.h"
#include "run/plan.h"

/* How peers reach [ptr, ptr + bytes) of this rank, and its place for them. Shares its segment with them the first time. At most `edge` bytes
 * may lie before and after the segment (edge.h). */
enum hkt_reach hkt_buffer_locate(struct hkt_communicator *c, const void *ptr, size_t bytes, size_t edge, struct hkt_location *at);

/* The same for IN or OUT of a call, if the rank has it; with edges where the engine can do them. */
enum hkt_reach hkt_buffer_of_call(struct hkt_communicator *c, const struct hkt_call *call, bool out, struct hkt_location *at);

/* The worse of a call's two buffers. */
enum hkt_reach hkt_buffer_reach(struct hkt_communicator *c, const struct hkt_call *call);

/* My staging memory has at least `bytes`; peers know. */
int hkt_buffer_stage(struct hkt_communicator *c, size_t bytes);

/* Maps rank r's staging memory, which has at least `bytes`, if that is not done. */
int hkt_buffer_staging_of(struct hkt_communicator *c, int r, size_t bytes);

void hkt_buffer_release(struct hkt_communicator *c); /* staging memory of everybody, as far as it is ours to release */

/* A second mapping of the owner's shared memory that is mapped at `ptr`: its life is the caller's, whatever the owner does. NULL with an error. */
void *hkt_buffer_remap(const struct hkt_process *owner, void *ptr, size_t size);
void  hkt_buffer_unmap(const struct hkt_process *owner, void *ptr, size_t size);

#endif
