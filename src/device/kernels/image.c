/* image.c -- see image.h. The file that nvcc has made is taken in by the assembler as it is. */
#include "device/kernels/image.h"

#include "config.h"

#ifdef HKT_KERNEL_FATBIN

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl hkt_kernel_fatbin\n"
        ".hidden hkt_kernel_fatbin\n"
        "hkt_kernel_fatbin:\n"
        ".incbin \"" HKT_KERNEL_FATBIN "\"\n"
        ".previous\n");

extern const unsigned char hkt_kernel_fatbin[] __attribute__((visibility("hidden")));

const void *hkt_kernel_image(void)
{
    return hkt_kernel_fatbin;
}

int hkt_kernel_image_is_empty(void)
{
    return 0;
}

#else

/* The driver of the tests takes it: it has its kernels elsewhere. */
static const char nothing[64] __attribute__((aligned(64))) = "hocket: no device code";

const void *hkt_kernel_image(void)
{
    return nothing;
}

int hkt_kernel_image_is_empty(void)
{
    return 1;
}

#endif
