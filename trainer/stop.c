/* stop.c -- see stop.h. */
#include "stop.h"

#include <hocket.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int stop_rank = -1;

void stop(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    if (stop_rank >= 0)
        fprintf(stderr, "hkt-train, rank %d: ", stop_rank);
    else
        fprintf(stderr, "hkt-train: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void need(int rc, const char *doing)
{
    if (rc < 0)
        stop("%s: %s", doing, hkt_last_error());
}

float *take_floats(size_t count)
{
    const size_t size   = (count * sizeof(float) + 63) / 64 * 64 + 64;
    float       *memory = aligned_alloc(64, size);

    if (!memory)
        stop("out of memory: %zu MiB more are needed; make the model or --micro-batch-size smaller", size >> 20);
    return memset(memory, 0, size);
}
