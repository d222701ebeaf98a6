/* copy.cu -- bytes from one place to several, in the widest steps that their addresses allow; what moves data without folding it. */
#include "device/kernels/wait.h"

template <class Word> DEVICE void copy_words(const hkt_kernel_segment &s, uint64_t from, uint64_t to) /* bytes */
{
    const uint64_t step = grid_threads() * sizeof(Word);
    uint64_t       i    = from + grid_thread() * sizeof(Word);

    for (; i + 3 * step < to; i += 4 * step) {
        Word w[4];

        UNROLL for (int u = 0; u < 4; u++)
            w[u] = load<Word>(s.src[0] + i + u * step);
        NO_UNROLL for (uint32_t d = 0; d < s.ndst; d++)
        {
            UNROLL for (int u = 0; u < 4; u++)
                store<Word>(s.dst[d] + i + u * step, w[u]);
        }
    }
    NO_UNROLL for (; i < to; i += step)
    {
        const Word w = load<Word>(s.src[0] + i);

        NO_UNROLL for (uint32_t d = 0; d < s.ndst; d++)
            store<Word>(s.dst[d] + i, w);
    }
}

/* Words between the first and the last whole one, bytes around them. */
template <class Word> DEVICE void copy_by(const hkt_kernel_segment &s)
{
    const uint64_t before = (0 - s.src[0]) % sizeof(Word), head = before < s.count ? before : s.count;
    const uint64_t tail = head + (s.count - head) / sizeof(Word) * sizeof(Word);

    copy_words<uint8_t>(s, 0, head);
    copy_words<Word>(s, head, tail);
    copy_words<uint8_t>(s, tail, s.count);
}

KERNEL(hkt_copy, hkt_kernel_arguments)
{
    if (aborted(a))
        return;
    if (a.wait & HKT_KERNEL_BEFORE)
        meet_peers(a, 0);
    NO_UNROLL for (uint32_t i = 0; i < a.segments; i++)
    {
        const hkt_kernel_segment &s     = a.segment[i];
        uint64_t           apart = 0;

        NO_UNROLL for (uint32_t d = 0; d < s.ndst; d++)
            apart |= s.dst[d] ^ s.src[0];
        if (apart % 16 == 0)
            copy_by<vec16>(s);
        else if (apart % 4 == 0)
            copy_by<uint32_t>(s);
        else
            copy_words<uint8_t>(s, 0, s.count);
    }
    if (a.wait & HKT_KERNEL_AFTER)
        meet_peers(a, 1);
    if (a.wait)
        finish_meeting(a);
}
