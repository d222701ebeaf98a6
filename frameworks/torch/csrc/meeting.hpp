// meeting.hpp -- how ranks find each other through the store that PyTorch hands to a backend.
//
// Nothing here blocks in the store: a client of a TCPStore has one connection, and a blocked one would stop every other thread
// of the process that needs the store.
#pragma once

#include "torch_api.hpp"

#include <hocket.h>

#include <functional>

namespace hocket {

// A handle of its own on the same keys where this PyTorch has that, else the store itself.
StorePointer own_store(const StorePointer &store);

// Waits until `ready` says so, looking ever more rarely (10 ms at most). False: at the deadline it did not.
bool poll(const std::function<bool()> &ready, Milliseconds limit);

// All ranks of a group: everybody shows up, rank 0 makes an id, all join. Names who did not come within `limit`.
struct Party {
    StorePointer store;
    int          rank, size;
    std::string  name; // shown in messages
    Milliseconds limit;
};
hkt_comm_t *meet(const Party &party);

// The ranks that have not set KEY/rank in the store within the limit.
std::vector<int> absent(const Party &party, const std::string &key);

// Two of them, for messages: `from` is its rank 0. Waits for the other while `wanted` says so, else NULL; `alive` throws when there
// is no other any more.
struct Pair {
    StorePointer          store;
    int                   from, to;
    std::string           name;
    Milliseconds          limit; // of this and of each message; 0: for ever
    std::function<bool()> wanted;
    std::function<void()> alive;
};
hkt_comm_t *pair_sender(const Pair &pair);
hkt_comm_t *pair_receiver(const Pair &pair);

} // namespace hocket
