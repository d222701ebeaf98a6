/* stop.h -- how the trainer gives up: one sentence on stderr, exit status 1. The library tells the other ranks. */
#ifndef TRAINER_STOP_H
#define TRAINER_STOP_H

#include <stddef.h>

extern int stop_rank; /* named in the sentence; set once the rank is known */

_Noreturn void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For calls of the library: stops with its last error when `rc` is one. */
void need(int rc, const char *doing);

/* Zeroed memory for `count` floats, 64-byte aligned and touched, so that no page of it is faulted in later. Never NULL;
 * free(). */
float *take_floats(size_t count);

#endif
