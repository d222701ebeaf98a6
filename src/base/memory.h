/* memory.h -- the only allocator of the library, so that tests can make the N-th allocation fail. */
#ifndef HKT_MEMORY_H
#define HKT_MEMORY_H

#include <stddef.h>

void *hkt_alloc(size_t size);               /* zeroed; NULL on failure, with the error sentence already set (HKT_ERR_MEMORY) */
void *hkt_alloc_aligned(size_t size, size_t align); /* likewise; align a power of two */
void *hkt_realloc(void *ptr, size_t size);  /* not zeroed; on failure NULL and ptr still valid */
char *hkt_strdup(const char *text);
void  hkt_free(void *ptr);                  /* NULL is allowed */

/* Tests: the n-th allocation from now on (1 = the next) of the calling thread fails, once; 0: none. Mappings made by the library
 * (segments, thread stacks) count too: they call hkt_alloc_check() first. */
void hkt_alloc_fail_at(long n);
int  hkt_alloc_check(void); /* 0, or -1 when this one is to fail */

#endif
