/* move.h -- the kernel that moves: its segments, one after the other, all threads of the launch on each.
 *
 * Three ways, best first. Packs: 16 bytes of elements from every source, several loads in flight for each thread, where all addresses lie
 * alike in their 16 bytes and nothing is wider than its type. Fours: four elements a thread, wide or not, where the segment begins on
 * such a boundary everywhere. Single elements for all else: the ends of a segment, and buffers that lie askew to each other.
 */
#ifndef HKT_DEVICE_MOVE_H
#define HKT_DEVICE_MOVE_H

#include "device/kernels/fold.h"
#include "device/kernels/wait.h"

/* A segment and what the launch says about all of them; never a copy of the segment, which would leave constant memory. */
struct job {
    const struct hkt_kernel_segment &s;
    uint64_t                  order;
    uint32_t                  divisor;
};

/* ---- single elements ------------------------------------------------------------------------------------------------------------------- */

template <class E, bool scales> struct element_of {
    const hkt_kernel_segment &s;
    uint64_t           i;

    __device__ typename E::A operator()(uint32_t k) const
    {
        typedef typename E::T T;
        typedef typename E::A A;
        A                     v;

        if (s.partial >> k & 1)
            return load<A>(s.src[k] + i * sizeof(A));
        v = E::up(load<T>(s.src[k] + i * sizeof(T)));
        return scales && (s.scaled >> k & 1) ? scaled(v, s.scale[k]) : v;
    }
};

template <class E, class Op, bool scales> DEVICE void fold_elements(const job &j, uint64_t from, uint64_t to)
{
    typedef typename E::T T;
    typedef typename E::A A;

    NO_UNROLL for (uint64_t i = from + grid_thread(); i < to; i += grid_threads())
    {
        const A v = fold_one_by_one<Op, A>(j.s.nsrc, j.order, element_of<E, scales>{j.s, i});

        if (j.s.out & HKT_SEGMENT_PARTIAL) {
            NO_UNROLL for (uint32_t d = 0; d < j.s.ndst; d++)
                store<A>(j.s.dst[d] + i * sizeof(A), E::partial(v));
        } else {
            const T t = final_value<E, Op>(v, j.s, j.divisor);

            NO_UNROLL for (uint32_t d = 0; d < j.s.ndst; d++)
                store<T>(j.s.dst[d] + i * sizeof(T), t);
        }
    }
}

/* ---- packs ------------------------------------------------------------------------------------------------------------------------------ */

/* The first `count` elements of the packs x become those of y. */
template <class E, class Op, bool scales, int most, int count> DEVICE void fold_part(const job &j, pack<E> &y, const pack<E> *x)
{
    typedef typename E::A A;

    UNROLL for (int e = 0; e < count; e++)
    {
        A v[most];

        UNROLL for (int k = 0; k < most; k++)
        {
            if ((uint32_t)k < j.s.nsrc) {
                v[k] = E::up(x[k].element[e]);
                if (scales && (j.s.scaled >> k & 1))
                    v[k] = scaled(v[k], j.s.scale[k]);
            }
        }
        y.element[e] = final_value<E, Op>(fold_tree<Op, most>(v, j.s.nsrc, j.order), j.s, j.divisor);
    }
}

DEVICE void next_word(vec16 &v)
{
    const uint32_t first = v.word[0];

    v.word[0] = v.word[1];
    v.word[1] = v.word[2];
    v.word[2] = v.word[3];
    v.word[3] = first;
}

/* Sixteen bytes unrolled are too much code, and an index that is not a constant would send the pack to memory; so the words take turns in
 * the first place. */
template <class E, class Op, bool scales, int most> DEVICE void fold_pack(const job &j, pack<E> &y, pack<E> *x)
{
    if constexpr (sizeof(typename E::T) > 1) {
        fold_part<E, Op, scales, most, pack<E>::elements>(j, y, x);
    } else {
        NO_UNROLL for (int w = 0; w < 4; w++)
        {
            fold_part<E, Op, scales, most, pack<E>::elements / 4>(j, y, x);
            next_word(y.vector);
            UNROLL for (int k = 0; k < most; k++)
                next_word(x[k].vector);
        }
    }
}

/* Packs [i, packs) of this thread behind `skip` bytes, `deep` at a time; gives the first that is left. At most `most` sources. */
template <class E, class Op, bool scales, int most, int deep> DEVICE uint64_t fold_packs(const job &j, uint64_t skip, uint64_t i, uint64_t packs)
{
    const uint64_t step = grid_threads();

    NO_UNROLL for (; i + (deep - 1) * step < packs; i += deep * step)
    {
        pack<E> x[deep][most];

        UNROLL for (int k = 0; k < most; k++)
        {
            if ((uint32_t)k < j.s.nsrc) {
                UNROLL for (int u = 0; u < deep; u++)
                    x[u][k].vector = load<vec16>(j.s.src[k] + skip + (i + u * step) * 16);
            }
        }
        UNROLL for (int u = 0; u < deep; u++)
        {
            pack<E> y;

            fold_pack<E, Op, scales, most>(j, y, x[u]);
            NO_UNROLL for (uint32_t d = 0; d < j.s.ndst; d++)
                store<vec16>(j.s.dst[d] + skip + (i + u * step) * 16, y.vector);
        }
    }
    return i;
}

/* What hinders packs: different places in 16 bytes, or wide values of another size. */
template <class E> DEVICE bool fits_packs(const hkt_kernel_segment &s)
{
    uint64_t apart = s.src[0] % sizeof(typename E::T);

    if (sizeof(typename E::A) != sizeof(typename E::T) && (s.partial || (s.out & HKT_SEGMENT_PARTIAL)))
        return false;
    NO_UNROLL for (uint32_t k = 0; k < s.nsrc; k++)
        apart |= (s.src[k] ^ s.src[0]) & 15;
    NO_UNROLL for (uint32_t d = 0; d < s.ndst; d++)
        apart |= (s.dst[d] ^ s.src[0]) & 15;
    return !apart;
}

template <class E, class Op, bool scales> DEVICE void fold_by_packs(const job &j)
{
    const uint64_t size = sizeof(typename E::T), n = j.s.count;
    const uint64_t before = (0 - j.s.src[0]) % 16 / size, head = before < n ? before : n;
    const uint64_t packs = (n - head) * size / 16, tail = head + packs * 16 / size, skip = head * size;
    uint64_t       i = grid_thread();

    fold_elements<E, Op, scales>(j, 0, head);
    fold_elements<E, Op, scales>(j, tail, n);
    if constexpr (Op::common && !scales && sizeof(typename E::T) > 1) { /* the others make do with one loop */
        constexpr int deeper = sizeof(typename E::T) == 4 ? 2 : 1; /* as the registers allow */

        if (j.s.nsrc <= 2)
            i = fold_packs<E, Op, scales, 2, 2 * deeper>(j, skip, i, packs);
        else if (j.s.nsrc <= 4)
            i = fold_packs<E, Op, scales, 4, deeper>(j, skip, i, packs);
    }
    fold_packs<E, Op, scales, HKT_SEGMENT_FAN, 1>(j, skip, i, packs);
}

/* ---- fours ------------------------------------------------------------------------------------------------------------------------------- */

/* Four elements of any size, in as few loads as there can be. */
template <class X> union four {
    X     element[4];
    vec16 vector[sizeof(X) < 4 ? 1 : sizeof(X) / 4];
    uint64_t word64;
    uint32_t word32;
};

template <class X> DEVICE four<X> load_four(uint64_t address)
{
    four<X> x;

    if constexpr (sizeof(X) == 1) {
        x.word32 = load<uint32_t>(address);
    } else if constexpr (sizeof(X) == 2) {
        x.word64 = load<uint64_t>(address);
    } else {
        UNROLL for (unsigned i = 0; i < sizeof(X) / 4; i++)
            x.vector[i] = load<vec16>(address + 16 * i);
    }
    return x;
}

template <class X> DEVICE void store_four(uint64_t address, const four<X> &x)
{
    if constexpr (sizeof(X) == 1) {
        store<uint32_t>(address, x.word32);
    } else if constexpr (sizeof(X) == 2) {
        store<uint64_t>(address, x.word64);
    } else {
        UNROLL for (unsigned i = 0; i < sizeof(X) / 4; i++)
            store<vec16>(address + 16 * i, x.vector[i]);
    }
}

template <class X> DEVICE uint64_t askew_of_four(uint64_t address)
{
    return address % (sizeof(X) < 4 ? 4 * sizeof(X) : 16);
}

template <class E> DEVICE bool fits_fours(const hkt_kernel_segment &s)
{
    typedef typename E::T T;
    typedef typename E::A A;
    uint64_t              askew = 0;

    NO_UNROLL for (uint32_t k = 0; k < s.nsrc; k++)
        askew |= s.partial >> k & 1 ? askew_of_four<A>(s.src[k]) : askew_of_four<T>(s.src[k]);
    NO_UNROLL for (uint32_t d = 0; d < s.ndst; d++)
        askew |= s.out & HKT_SEGMENT_PARTIAL ? askew_of_four<A>(s.dst[d]) : askew_of_four<T>(s.dst[d]);
    return !askew;
}

/* Four values at once, with the operators of one. */
template <class Op> struct each_of_four {
    template <class A> DEVICE four<A> fold(const four<A> &a, const four<A> &b, uint64_t order)
    {
        four<A> v;

        UNROLL for (int e = 0; e < 4; e++)
            v.element[e] = Op::fold(a.element[e], b.element[e], order);
        return v;
    }
};

template <class E, bool scales> struct four_of {
    const hkt_kernel_segment &s;
    uint64_t           i;

    __device__ four<typename E::A> operator()(uint32_t k) const
    {
        typedef typename E::T T;
        typedef typename E::A A;
        four<A>               v;
        four<T>               x;

        if (s.partial >> k & 1)
            return load_four<A>(s.src[k] + 4 * i * sizeof(A));
        x = load_four<T>(s.src[k] + 4 * i * sizeof(T));
        UNROLL for (int e = 0; e < 4; e++)
        {
            v.element[e] = E::up(x.element[e]);
            if (scales && (s.scaled >> k & 1))
                v.element[e] = scaled(v.element[e], s.scale[k]);
        }
        return v;
    }
};

template <class E, class Op, bool scales> DEVICE void fold_by_fours(const job &j)
{
    typedef typename E::T T;
    typedef typename E::A A;
    const uint64_t        fours = j.s.count / 4;

    NO_UNROLL for (uint64_t i = grid_thread(); i < fours; i += grid_threads())
    {
        four<A> v = fold_one_by_one<each_of_four<Op>, four<A>>(j.s.nsrc, j.order, four_of<E, scales>{j.s, i});
        four<T> t;

        UNROLL for (int e = 0; e < 4; e++)
        {
            t.element[e] = final_value<E, Op>(v.element[e], j.s, j.divisor);
            v.element[e] = E::partial(v.element[e]);
        }
        NO_UNROLL for (uint32_t d = 0; d < j.s.ndst; d++)
        {
            if (j.s.out & HKT_SEGMENT_PARTIAL)
                store_four<A>(j.s.dst[d] + 4 * i * sizeof(A), v);
            else
                store_four<T>(j.s.dst[d] + 4 * i * sizeof(T), t);
        }
    }
    fold_elements<E, Op, scales>(j, 4 * fours, j.s.count);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------------------- */

template <class E, class Op, bool scales> DEVICE void fold_segment(const job &j)
{
    if constexpr (!E::rare) {
        if (fits_packs<E>(j.s)) {
            fold_by_packs<E, Op, scales>(j);
            return;
        }
    }
    if constexpr (sizeof(typename E::A) != sizeof(typename E::T)) {
        if (fits_fours<E>(j.s)) {
            fold_by_fours<E, Op, scales>(j);
            return;
        }
    }
    fold_elements<E, Op, scales>(j, 0, j.s.count);
}

template <class Segment> DEVICE void move(const hkt_kernel_arguments &a, Segment segment)
{
    if (aborted(a))
        return;
    if (a.wait & HKT_KERNEL_BEFORE)
        meet_peers(a, 0);
    NO_UNROLL for (uint32_t i = 0; i < a.segments; i++)
        segment(job{a.segment[i], a.order, a.divisor});
    if (a.wait & HKT_KERNEL_AFTER)
        meet_peers(a, 1);
    if (a.wait)
        finish_meeting(a);
}

#define MOVE(name, E, Op, scales)                                                                                                          \
    struct segment_##name {                                                                                                                \
        __device__ void operator()(const job &j) const                                                                                     \
        {                                                                                                                                  \
            fold_segment<E, Op, scales>(j);                                                                                                \
        }                                                                                                                                  \
    };                                                                                                                                     \
    KERNEL(hkt_move_##name, hkt_kernel_arguments)                                                                                          \
    {                                                                                                                                      \
        move(a, segment_##name());                                                                                                         \
    }

#endif
