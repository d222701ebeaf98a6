/* crew.h -- the threads that share one rank's loops. What a thread computes never depends on how many there are: they
 * divide rows, columns or heads, never sums.
 */
#ifndef TRAINER_CREW_H
#define TRAINER_CREW_H

#include <stddef.h>

/* Gives the calling thread a crew of `threads` with itself among them (1: none). Not from within a crew. */
void crew_begin(int threads);
void crew_end(void);
int  crew_size(void); /* of the calling thread; 1 without a crew, and within work that a crew does */

/* Calls work(arg, first, count) on disjoint runs that cover 0 .. total - 1, each a multiple of `grain` but the last;
 * returns when all are done. */
void crew_run(void (*work)(void *arg, size_t first, size_t count), void *arg, size_t total, size_t grain);

#endif
