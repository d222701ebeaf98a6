/* low.h -- the kernel for tiny messages: an all-reduce in one step, data and flags in the same 16 bytes.
 *
 * A line holds 8 bytes of data and the epoch twice, one beside each 4 bytes, so each half of 8 bytes, which hardware never tears, shows by
 * itself whether it is new. Each rank stores its lines at every peer and folds what stands in its own area, by the tree, so all ranks
 * have the same bits. There are two banks by the epoch's parity: a peer that writes bank e + 2 has got my lines of e + 1, which I sent after
 * I had read bank e.
 */
#ifndef HKT_DEVICE_LOW_H
#define HKT_DEVICE_LOW_H

#include "device/kernels/fold.h"
#include "device/kernels/wait.h"

DEVICE uint64_t low_epoch_of(const struct hkt_kernel_arguments &a)
{
    return a.control[a.rank] + offsetof(struct hkt_kernel_control, low_epoch);
}

/* Never 0, which is what memory holds at the start; after the last number comes 2, so that the banks still take turns. */
DEVICE uint32_t next_epoch(uint32_t epoch)
{
    return epoch == UINT32_MAX ? 2 : epoch + 1;
}

DEVICE uint64_t line_of(const struct hkt_kernel_arguments &a, uint32_t owner, uint32_t from, uint32_t epoch)
{
    return a.low[owner] + ((epoch & 1) * HKT_SEGMENT_FAN + from) * (uint64_t)(HKT_LOW_LINES * HKT_LOW_LINE);
}

/* The line when it is new; when the host gives up, what stands there. */
DEVICE vec16 await_line(const struct hkt_kernel_arguments &a, uint64_t address, uint32_t epoch, bool &ended)
{
    vec16 v = load_line(address);

    for (uint32_t looks = 1; !ended && (v.word[1] != epoch || v.word[3] != epoch); looks++) {
        spin();
        if (looks % ABORT_EVERY == 0)
            ended = aborted(a);
        v = load_line(address);
    }
    return v;
}

/* Words of 8 bytes hold the first element in their lowest bits. A whole word is loaded and stored at once where its address allows that. */
template <class T> DEVICE uint64_t load_word(uint64_t address, uint64_t count)
{
    const uint32_t bits = 8 * sizeof(T);
    uint64_t       w    = 0;

    if (count * sizeof(T) >= 8 && address % 8 == 0)
        return load<uint64_t>(address);
    NO_UNROLL for (uint32_t e = 0; e < 8 / sizeof(T) && e < count; e++)
        w |= (uint64_t)load<T>(address + e * sizeof(T)) << (bits * e % 64);
    return w;
}

template <class T> DEVICE void store_word(uint64_t address, uint64_t count, uint64_t w)
{
    const uint32_t bits = 8 * sizeof(T);

    if (count * sizeof(T) >= 8 && address % 8 == 0) {
        store<uint64_t>(address, w);
        return;
    }
    NO_UNROLL for (uint32_t e = 0; e < 8 / sizeof(T) && e < count; e++)
        store<T>(address + e * sizeof(T), (T)(w >> (bits * e % 64)));
}

/* An element as the bits it is. */
template <class X, class Bits> DEVICE X element_from(Bits bits)
{
    union {
        Bits bits;
        X    x;
    } u;

    u.bits = bits;
    return u.x;
}

template <int size> struct bits_type;
template <> struct bits_type<1> { typedef uint8_t type; };
template <> struct bits_type<2> { typedef uint16_t type; };
template <> struct bits_type<4> { typedef uint32_t type; };
template <> struct bits_type<8> { typedef uint64_t type; };

/* The fold of the ranks' words, an element at a time from the lowest bits of all; what comes out enters the result at its top. */
template <class E, class Op, bool scales> DEVICE uint64_t fold_words(const struct hkt_kernel_arguments &a, uint64_t *x)
{
    typedef typename E::T                        T;
    typedef typename E::A                        A;
    typedef typename bits_type<sizeof(T)>::type Bits;
    const uint32_t                               bits = 8 * sizeof(T), elements = 8 / sizeof(T);
    uint64_t                                     y = 0;

    NO_UNROLL for (uint32_t e = 0; e < elements; e++)
    {
        A v[HKT_SEGMENT_FAN];

        UNROLL for (int r = 0; r < HKT_SEGMENT_FAN; r++)
        {
            if ((uint32_t)r < a.ranks) {
                v[r] = E::up(element_from<T>((Bits)x[r]));
                if (scales)
                    v[r] = scaled(v[r], a.segment[0].scale[r]);
                x[r] = bits < 64 ? x[r] >> (bits % 64) : 0;
            }
        }
        y = (bits < 64 ? y >> (bits % 64) : 0) |
            (uint64_t)element_from<Bits>(final_value<E, Op>(fold_tree<Op, HKT_SEGMENT_FAN>(v, a.ranks, a.order), a.segment[0], a.divisor)) << (64 - bits);
    }
    return y;
}

/* A word of this rank's own input, and where its line is in every rank's stretch. */
struct own_word {
    uint64_t word, offset;
    uint32_t epoch;
};

/* The words of rank r and all after it. One function for each, since a loop with a loop inside is not unrolled for every architecture, and
 * x would then be in memory. */
template <int r> DEVICE void collect(const struct hkt_kernel_arguments &a, const own_word &own, uint64_t *x, bool &ended)
{
    if constexpr (r < HKT_SEGMENT_FAN) {
        if ((uint32_t)r == a.rank) {
            x[r] = own.word;
        } else if ((uint32_t)r < a.ranks) {
            const vec16 v = await_line(a, line_of(a, a.rank, (uint32_t)r, own.epoch) + own.offset, own.epoch, ended);

            x[r] = v.word[0] | (uint64_t)v.word[2] << 32;
        }
        collect<r + 1>(a, own, x, ended);
    }
}

template <class E, class Op, bool scales> DEVICE void low_all_reduce(const struct hkt_kernel_arguments &a)
{
    typedef typename bits_type<sizeof(typename E::T)>::type Bits;
    const hkt_kernel_segment &s        = a.segment[0];
    const uint32_t            epoch    = next_epoch(load<uint32_t>(low_epoch_of(a)));
    const uint64_t            elements = 8 / sizeof(Bits), words = (s.count + elements - 1) / elements;
    bool                      ended    = false;

    NO_UNROLL for (uint64_t i = grid_thread(); i < words; i += grid_threads())
    {
        const uint64_t left = s.count - i * elements, mine = load_word<Bits>(s.src[0] + 8 * i, left);
        const vec16    line = {{(uint32_t)mine, epoch, (uint32_t)(mine >> 32), epoch}};
        uint64_t       x[HKT_SEGMENT_FAN];

        NO_UNROLL for (uint32_t k = 1; k < a.ranks; k++)
            store_line(line_of(a, (a.rank + k) % a.ranks, a.rank, epoch) + i * HKT_LOW_LINE, line);
        collect<0>(a, own_word{mine, i * HKT_LOW_LINE, epoch}, x, ended);
        store_word<Bits>(s.dst[0] + 8 * i, left, fold_words<E, Op, scales>(a, x));
    }
    if (is_last_block(a))
        store<uint32_t>(low_epoch_of(a), epoch);
}

#define LOW(name, E, Op, scales)                                                                                                           \
    KERNEL(hkt_low_##name, hkt_kernel_arguments)                                                                                           \
    {                                                                                                                                      \
        low_all_reduce<E, Op, scales>(a);                                                                                                  \
    }

#endif
