// meeting.cpp -- see meeting.hpp. Keys: hocket/here/R, hocket/id for a group; hocket/F-T/id and hocket/F-T/ready for a pair.
#include "meeting.hpp"

#include "work.hpp"

#include <cstring>
#include <thread>

namespace hocket {

using Bytes = std::vector<uint8_t>;

template <typename Store>
static auto own(Store &store, int) -> decltype(store.clone())
{
    return store.clone();
}
template <typename Store>
static StorePointer own(Store &, long)
{
    return {};
}

StorePointer own_store(const StorePointer &store)
{
    StorePointer mine;

    try {
        mine = own(*store, 0);
    } catch (const std::exception &) { // a kind of store that cannot
    }
    return mine ? mine : store;
}

bool poll(const std::function<bool()> &ready, Milliseconds limit)
{
    using Clock = std::chrono::steady_clock;
    const auto                end   = Clock::now() + limit;
    std::chrono::microseconds pause = std::chrono::microseconds(100);

    while (!ready()) {
        if (Clock::now() >= end)
            return false;
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::microseconds(10000));
    }
    return true;
}

static Bytes make_id()
{
    hkt_unique_id_t id;

    check(hkt_unique_id(&id), "unique id");
    return Bytes(id.internal, id.internal + sizeof(id.internal));
}

static hkt_comm_t *join(const Bytes &bytes, int size, int rank, const std::string &name, Milliseconds limit)
{
    hkt_config_t    config = HKT_CONFIG_INIT;
    hkt_comm_t     *comm   = nullptr;
    hkt_unique_id_t id;

    if (bytes.size() != sizeof(id.internal))
        throw_error("the store holds an id of " + std::to_string(bytes.size()) + " bytes instead of " + std::to_string(sizeof(id.internal)) +
                    "; do all ranks run the same version of Hocket?");
    memcpy(id.internal, bytes.data(), sizeof(id.internal));
    config.name      = name.c_str();
    config.timeout_s = double(limit.count()) * 1e-3;
    check(hkt_comm_init(&comm, size, &id, rank, &config), "init_process_group");
    return comm;
}

// ---- groups ----------------------------------------------------------------------------------------------------------

std::vector<int> absent(const Party &party, const std::string &key)
{
    std::vector<std::string> keys;
    std::vector<int>         missing;

    for (int r = 0; r < party.size; r++)
        keys.push_back(key + "/" + std::to_string(r));
    if (!poll([&] { return party.store->check(keys); }, party.limit))
        for (int r = 0; r < party.size; r++)
            if (!party.store->check({keys[r]}))
                missing.push_back(r);
    return missing;
}

hkt_comm_t *meet(const Party &party)
{
    const std::string here = "hocket/here", id = "hocket/id";
    std::string       names;

    party.store->set(here + "/" + std::to_string(party.rank), Bytes{1});
    for (int r : absent(party, here))
        names += (names.empty() ? "" : ", ") + std::to_string(r);
    if (!names.empty())
        throw_error(party.name + ": rank " + std::to_string(party.rank) + " of " + std::to_string(party.size) + " waited " +
                    std::to_string(party.limit.count()) + " ms for the others; it Timed out without rank " + names +
                    "; were these started, and did they call init_process_group or new_group as well?");
    if (party.rank == 0)
        party.store->set(id, make_id());
    if (!poll([&] { return party.store->check({id}); }, party.limit))
        throw_error(party.name + ": rank 0 came but Timed out before it made an id; its own message says why");
    return join(party.store->get(id), party.size, party.rank, party.name, party.limit);
}

// ---- pairs -----------------------------------------------------------------------------------------------------------

static bool wait_key(const Pair &pair, const std::string &key)
{
    const Milliseconds for_ever = std::chrono::hours(24 * 365);
    int                looks    = 0;
    bool               there    = false;
    const auto         look     = [&] {
        if (++looks % 8 == 0)
            pair.alive();
        there = pair.store->check({key});
        return there || !pair.wanted();
    };

    if (!poll(look, pair.limit.count() ? pair.limit : for_ever))
        throw_error(pair.name + ": Timed out waiting " + std::to_string(pair.limit.count()) + "ms for the other side to call");
    return there;
}

static std::string key_of(const Pair &pair, const char *what)
{
    return "hocket/" + std::to_string(pair.from) + "-" + std::to_string(pair.to) + "/" + what;
}

// The receiver shows that it is there before either joins: joining waits for a minute at most, messages for as long as they like.
hkt_comm_t *pair_sender(const Pair &pair)
{
    const Bytes id = make_id();

    pair.store->set(key_of(pair, "id"), id);
    return wait_key(pair, key_of(pair, "ready")) ? join(id, 2, 0, pair.name, pair.limit) : nullptr;
}

hkt_comm_t *pair_receiver(const Pair &pair)
{
    if (!wait_key(pair, key_of(pair, "id")))
        return nullptr;
    const Bytes id = pair.store->get(key_of(pair, "id"));

    pair.store->set(key_of(pair, "ready"), Bytes{1});
    return join(id, 2, 1, pair.name, pair.limit);
}

} // namespace hocket
