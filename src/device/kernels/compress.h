/* compress.h -- what the kernels that encode and decode are told: plain C and C++. The codes are those of the training layer's codecs
 * (hkt_codec_create()), to the bit. */
#ifndef HKT_DEVICE_COMPRESS_H
#define HKT_DEVICE_COMPRESS_H

#include <stdint.h>

enum { HKT_COMPRESS_TILE = 2048, HKT_COMPRESS_GROUP = 64 }; /* elements: the code of a vector is those of its tiles; codes are whole groups */

/* Addresses are multiples of 4; 16 is faster. A launch has blocks of whole warps. */
struct hkt_compress_arguments {
    uint64_t x, code;  /* encode: from x to code; decode: from code to x */
    uint64_t error;    /* encode: what the last code lost, added to x, and afterwards what this one lost; 0: none */
    uint64_t count;    /* elements of x */
    uint32_t block;    /* elements that share a scale: a power of two, 64 to 2048; unused by fp16 and bf16 */
    uint32_t unused;
};

#define HKT_COMPRESS_KERNELS(X) X(fp16) X(bf16) X(fp8) X(int8) X(onebit) /* hkt_encode_fp16, hkt_decode_fp16, ... */

#endif
