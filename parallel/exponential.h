/* exponential.h -- e^x for loops that shall become vector code. Knows nothing of the library: the trainer's kernels use
 * it, too. */
#ifndef PARALLEL_EXPONENTIAL_H
#define PARALLEL_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

/* e^x within two units in the last place, without a branch: e^x = 2^n e^r, |r| <= ln 2 / 2; the polynomial is
 * Moshier's, of the Cephes library. NaN stays NaN. */
static inline __attribute__((always_inline)) float exponential(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;

    const float shifted =
        x * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: the integer part lands in the low bits */
    const float n = shifted - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float       e = 1.9875691500e-4f, power;
    uint32_t    bits;

    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - 0x4B400000u + 127u) << 23;
    memcpy(&power, &bits, sizeof(power));
    return e * power;
}

#endif
