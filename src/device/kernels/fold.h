/* fold.h -- the values of up to eight sources, folded by the canonical tree; common to both kernels. */
#ifndef HKT_DEVICE_FOLD_H
#define HKT_DEVICE_FOLD_H

#include "device/kernels/types.h"

/* 16 bytes of elements. */
template <class E> union pack {
    enum { elements = 16 / sizeof(typename E::T) };

    vec16         vector;
    typename E::T element[elements];
};

/* v[0] becomes the fold of v[0 .. n), 1 <= n <= most: neighbours first, then pairs, then fours, which is the tree that splits at the
 * largest power of two below n. All indices are constants once unrolled, so v stays in registers. */
template <class Op, int most, class A> DEVICE A fold_tree(A *v, uint32_t n, uint64_t order)
{
    UNROLL for (int width = 1; width < most; width *= 2)
    {
        UNROLL for (int k = 0; k + width < most; k += 2 * width)
        {
            if ((uint32_t)(k + width) < n)
                v[k] = Op::fold(v[k], v[k + width], order);
        }
    }
    return v[0];
}

/* The same tree, a value at a time: sums of 1, 2 and 4 values wait for their neighbours. For loops that need not be fast, since it is little
 * code: value(k) is the k-th. */
template <class Op, class A, class Value> DEVICE A fold_one_by_one(uint32_t n, uint64_t order, const Value &value)
{
    A one = value(0), two = one, four = one, v = one;

    NO_UNROLL for (uint32_t k = 1; k < n; k++)
    {
        v = value(k);
        if (!(k & 1)) {
            one = v;
            continue;
        }
        v = Op::fold(one, v, order);
        if (!(k & 2)) {
            two = v;
            continue;
        }
        v = Op::fold(two, v, order);
        if (!(k & 4)) {
            four = v;
            continue;
        }
        v = Op::fold(four, v, order); /* all eight */
    }
    if (n == HKT_SEGMENT_FAN)
        return v;
    if (n & 1)
        v = one;
    if (n & 2)
        v = n & 1 ? Op::fold(two, v, order) : two;
    if (n & 4)
        v = n & 3 ? Op::fold(four, v, order) : four;
    return v;
}

/* What a raw value of a premultiplied sum is multiplied by; the bits are those of the wide type. */
DEVICE float scaled(float x, uint64_t scale)
{
    return x * float_of((uint32_t)scale);
}

DEVICE double scaled(double x, uint64_t scale)
{
    return x * double_of(scale);
}

DEVICE uint64_t scaled(uint64_t x, uint64_t scale)
{
    return x * scale;
}

DEVICE uint32_t scaled(uint32_t x, uint64_t scale)
{
    return x * (uint32_t)scale;
}

DEVICE uint16_t scaled(uint16_t x, uint64_t scale)
{
    return (uint16_t)(x * (uint32_t)scale);
}

DEVICE uint8_t scaled(uint8_t x, uint64_t scale)
{
    return (uint8_t)(x * (uint32_t)scale);
}

DEVICE wide128 scaled(wide128 x, uint64_t)
{
    return x; /* averages are not scaled */
}

DEVICE int64_t scaled(int64_t x, uint64_t)
{
    return x;
}

/* A value that leaves as an element of the type. */
template <class E, class Op> DEVICE typename E::T final_value(typename E::A v, const struct hkt_kernel_segment &s, uint32_t divisor)
{
    if (Op::divides && (s.out & HKT_SEGMENT_DIVIDE))
        v = E::divide(v, divisor);
    return E::down(v);
}

#endif
