/* agree.h -- a collective maker's first step: a mistake of one rank becomes an error of all, and no hang. */
#ifndef PARALLEL_AGREE_H
#define PARALLEL_AGREE_H

#include <parallel/common.h>

/* Collective over `comm`. `rc` is what this rank has found out about its arguments so far, with its sentence in
 * hkt_last_error(); `request` says what it asks for ("tp 2, dp 4"; the first 255 bytes count). HKT_OK when all ranks
 * are fine and ask for the same. The others name the rank; `call` is the public function. */
int hkt_agree(hkt_comm_t *comm, int rc, const char *call, const char *request);

#endif
