/* priority.h -- a larger share of a machine that others use too: the scheduler weighs sessions first, where it groups
 * them. */
#ifndef VERSUS_PRIORITY_H
#define VERSUS_PRIORITY_H

#include <stdio.h>

static inline void raise_priority(void)
{
    FILE *f = fopen("/proc/self/autogroup", "w");

    if (f) {
        fputs("-16", f);
        fclose(f);
    }
}

#endif
