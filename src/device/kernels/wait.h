/* wait.h -- how ranks wait for each other inside a kernel.
 *
 * Block b of each rank meets block b of its peers, nobody else: a rank that has come to the barrier before the work has its input in
 * memory, all of it, since its stream had got there; and its kernel ends only when all its blocks have, so the barrier after the work holds
 * it until all blocks of its peers are done. Every block of a launch waits, so all of them must be resident; that is the host's to see to.
 */
#ifndef HKT_DEVICE_WAIT_H
#define HKT_DEVICE_WAIT_H

#include "device/kernels/gpu.h"

enum { ABORT_EVERY = 256 /* looks at a flag, between two at the host's word, which is slow to read */ };

DEVICE bool aborted(const struct hkt_kernel_arguments &a)
{
    return a.abort && load_relaxed(a.abort);
}

DEVICE uint64_t epoch_of(const struct hkt_kernel_arguments &a, uint32_t peer)
{
    return a.control[a.rank] + offsetof(struct hkt_kernel_control, epoch) + 4 * (uint64_t)peer;
}

DEVICE uint64_t flag_of(const struct hkt_kernel_arguments &a, uint32_t owner, uint32_t after, uint32_t from)
{
    return a.control[owner] + 4 * (((uint64_t)after * HKT_KERNEL_BLOCKS + this_block()) * HKT_SEGMENT_FAN + from);
}

/* One thread for each peer tells it and waits for it. Ends early when the host says so. */
DEVICE void meet_peers(const struct hkt_kernel_arguments &a, uint32_t after)
{
    const uint32_t peer = this_thread();

    block_barrier(); /* so that what all threads of the block wrote goes before the flag */
    if (peer < a.ranks && peer != a.rank && (a.peers >> peer & 1)) {
        const uint32_t epoch = load<uint32_t>(epoch_of(a, peer)) + 1;
        const uint64_t mine  = flag_of(a, a.rank, after, peer);

        store_release(flag_of(a, peer, after, a.rank), epoch); /* pairs with the acquire below, in the peer */
        for (uint32_t looks = 1; (int32_t)(load_acquire(mine) - epoch) < 0; looks++) {
            spin();
            if (looks % ABORT_EVERY == 0 && aborted(a))
                break;
        }
    }
    block_barrier(); /* nobody reads before all peers are there */
}

/* The last block of the launch to come here; its thread 0 is told. */
DEVICE bool is_last_block(const struct hkt_kernel_arguments &a)
{
    const uint64_t done = a.control[a.rank] + offsetof(struct hkt_kernel_control, blocks_done);

    block_barrier();
    if (this_thread() || add_in_gpu(done, 1) != grid_blocks() - 1)
        return false;
    store<uint32_t>(done, 0);
    return true;
}

/* The epochs go on when no block needs the old ones. */
DEVICE void finish_meeting(const struct hkt_kernel_arguments &a)
{
    if (!is_last_block(a))
        return;
    for (uint32_t peer = 0; peer < a.ranks; peer++)
        if (a.peers >> peer & 1)
            store<uint32_t>(epoch_of(a, peer), load<uint32_t>(epoch_of(a, peer)) + 1);
}

#endif
