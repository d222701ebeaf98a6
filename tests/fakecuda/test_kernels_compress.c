/* test_kernels_compress.c -- the kernels that encode and decode give the bytes of the training layer's codecs: every codec and block at lengths
 * around groups, blocks and tiles, with and without error feedback; what is no number makes its block none. */
#include "kernel_case.h"

#include "device/kernels/compress.h"
#include "hocket_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 7000, ROOM = MOST * 4 + 4096, GUARD = 0x5a };

static const size_t counts[] = {1, 2, 31, 63, 64, 65, 100, 255, 256, 257, 1000, 2047, 2048, 2049, 4096, 5000, 6999};

static float       x[MOST], lost[MOST], back[MOST], got[MOST];
static uint8_t     code[ROOM], device_code[ROOM];
static CUdeviceptr at_x, at_code, at_error;

struct example {
    const char *name;
    uint32_t    block;
    size_t      count;
    bool        feedback;
    unsigned    askew; /* elements behind 16 bytes */
};

static void launch(const char *what, const struct example *e)
{
    const struct hkt_compress_arguments a = {.x     = at_x + 4 * e->askew,
                                             .code  = at_code,
                                             .error = e->feedback ? at_error + 4 * e->askew : 0,
                                             .count = e->count,
                                             .block = e->block};
    char                                name[64];
    void                               *parameters[] = {(void *)(uintptr_t)&a};

    snprintf(name, sizeof(name), "hkt_%s_%s", what, e->name);
    OK(cuLaunchKernel(kernel_case_find(name), 1 + below(3), 1, 1, 32 << below(3), 1, 1, 0, NULL, parameters, NULL));
}

static void must_be_equal(const void *a, const void *b, size_t bytes, const char *what, const struct example *e)
{
    if (!memcmp(a, b, bytes))
        return;
    for (size_t i = 0; i < bytes; i++)
        if (((const uint8_t *)a)[i] != ((const uint8_t *)b)[i]) {
            fprintf(stderr, "%s, blocks of %u, %zu elements%s: %s: byte %zu is %02x, not %02x\n", e->name, e->block, e->count,
                    e->feedback ? ", feedback" : "", what, i, ((const uint8_t *)b)[i], ((const uint8_t *)a)[i]);
            exit(1);
        }
}

static void try(const struct example *e, bool finite)
{
    const size_t bytes = 4 * e->count;
    char         text[64];
    hkt_codec_t  codec;
    size_t       size;

    snprintf(text, sizeof(text), e->block ? "%s:block=%u" : "%s", e->name, e->block);
    MUST(!hkt_codec_parse(&codec, text));
    size = hkt_codec_bound(&codec, e->count);
    OK(cuMemsetD8(at_code, GUARD, ROOM));
    OK(cuMemcpyHtoD(at_x + 4 * e->askew, x, bytes));
    OK(cuMemcpyHtoD(at_error + 4 * e->askew, lost, bytes));
    launch("encode", e);
    MUST(!hkt_codec_encode(code, e->feedback ? lost : NULL, x, e->count, NULL, &codec));
    memset(code + size, GUARD, ROOM - size);
    OK(cuMemcpyDtoH(device_code, at_code, ROOM));
    if (finite) /* else the codes of a block without a scale are anything */
        must_be_equal(code, device_code, ROOM, "the code", e);
    OK(cuMemcpyDtoH(got, at_error + 4 * e->askew, bytes));
    must_be_equal(lost, got, bytes, "what is lost", e);
    MUST(!hkt_codec_decode(back, device_code, e->count, &codec));
    launch("decode", e);
    OK(cuMemcpyDtoH(got, at_x + 4 * e->askew, bytes));
    must_be_equal(back, got, bytes, "the numbers", e);
}

/* Of all sizes, some zero, some tiny. */
static void fill(void)
{
    const float size = ldexpf(1, (int)below(60) - 30);

    for (int i = 0; i < MOST; i++) {
        x[i]    = below(20) ? size * ((float)below(1 << 20) - (1 << 19)) / (1 << 18) : below(2) ? 0.0f : -1e-38f;
        lost[i] = size * ((float)below(1 << 20) - (1 << 19)) / (1 << 24);
    }
}

static void every_code(const char *name, uint32_t block)
{
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        fill();
        try(&(struct example){name, block, counts[i], i % 2, below(3) ? 0 : below(4)}, true);
    }
}

/* A NaN, an infinity, the largest and the smallest numbers, each in a block of its own. */
static void no_numbers(const char *name, uint32_t block)
{
    fill();
    x[100]  = NAN;
    x[2100] = -INFINITY;
    x[4200] = 3.4e38f;
    for (int i = 4608; i < 4608 + 512; i++)
        x[i] = 1e-36f;
    memset(lost, 0, sizeof(lost));
    try(&(struct example){name, block, 6000, true, 0}, false);
}

int main(void)
{
    static const char *const names[]  = {"fp8", "int8", "onebit"};
    static const uint32_t    blocks[] = {64, 128, 256, 512, 1024, 2048};

    kernel_case_start();
    at_x     = kernel_case_allocate(ROOM);
    at_code  = kernel_case_allocate(ROOM);
    at_error = kernel_case_allocate(ROOM);
    every_code("fp16", 0);
    every_code("bf16", 0);
    for (int n = 0; n < 3; n++)
        for (int b = 0; b < 6; b++) {
            every_code(names[n], blocks[b]);
            no_numbers(names[n], blocks[b]);
        }
    printf("the codes are the training layer's\n");
    return 0;
}
