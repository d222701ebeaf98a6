/* library.h -- what must be done once before anything else: options, fences, the choice of kernels. */
#ifndef HKT_LIBRARY_H
#define HKT_LIBRARY_H

/* Cheap after the first time. Every entry point that can be a program's first calls it. */
void hkt_library_start(void);

#endif
