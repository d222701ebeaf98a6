/* part.h -- chunk to bytes: the only size arithmetic of the library. All of it in size_t, overflow-checked where user counts
 * enter (hkt_bytes). Chunk borders are multiples of HKT_PART_ALIGN elements so that vector kernels seldom meet a tail. */
#ifndef HKT_PART_H
#define HKT_PART_H

#include <stdbool.h>
#include <stddef.h>

enum { HKT_PART_ALIGN = 64 };

/* a * b * c into *out; false when it does not fit into PTRDIFF_MAX. */
static inline bool hkt_bytes(size_t a, size_t b, size_t c, size_t *out)
{
    size_t ab, abc;

    if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc) || abc > (size_t)PTRDIFF_MAX)
        return false;
    *out = abc;
    return true;
}

/* Elements before part i when `count` elements are cut into `parts` (i <= parts): parts are equal but for the last ones, and
 * multiples of HKT_PART_ALIGN elements when there is enough to share out. */
static inline size_t hkt_part_begin(size_t count, size_t parts, size_t i)
{
    const size_t align = count / parts >= 8 * HKT_PART_ALIGN ? HKT_PART_ALIGN : 1;
    const size_t units = count / align + (count % align != 0);
    const size_t each  = (units / parts + (units % parts != 0)) * align;

    return i < parts && each * i < count ? each * i : count;
}

#endif
