/* arena.h -- the memory that tests hand to the library: every kind there is, with something around it that shows a byte too many.
 *
 * Plain, library and registered memory has canary bytes on both sides of a span; guarded memory ends (or begins) at a page that
 * cannot be touched, so that even reading one byte too many is a crash.
 */
#ifndef TEST_ARENA_H
#define TEST_ARENA_H

#include "harness.h"

enum memory { PLAIN, GUARD_END, GUARD_BEGIN, LIBRARY, REGISTERED, MEMORIES };
enum side { SEND, RECV, SIDES };
enum { MARGIN = 64, UNTOUCHED = 0xa5 /* what output memory and margins hold before a call */ };

struct region {
    char  *base; /* of the usable part */
    char  *map;  /* guarded: the mapping around it */
    size_t size, used;
    void  *handle; /* registered */
};

struct arena {
    hkt_comm_t   *comm;
    struct region region[MEMORIES][SIDES];
};

/* Memory of one buffer of a call. */
struct span {
    char  *at;
    size_t size, below, above; /* canary bytes before and behind */
};

extern const char *const memory_name[MEMORIES];

/* Regions of `size` bytes per kind and side. comm may be NULL: then there is no registered memory, and plain takes its place. */
void arena_make(struct arena *a, hkt_comm_t *comm, size_t size);
void arena_free(struct arena *a);
void arena_reset(struct arena *a); /* spans made so far are no longer needed */

/* A span of `size` bytes, `shift` (0 to 63) bytes off alignment where the kind leaves a choice, all of it UNTOUCHED. Guarded
 * regions hold one span at a time. */
struct span arena_span(struct arena *a, enum memory memory, enum side side, size_t size, size_t shift);

/* Fails the rank when a canary byte of the span has changed. */
void span_check(const struct span *s, const char *what);

/* True when all bytes are UNTOUCHED. */
bool untouched(const char *at, size_t size);

#endif
