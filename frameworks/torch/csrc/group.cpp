// group.cpp -- see group.hpp: how a group begins and ends, messages, barriers.
#include "group.hpp"

#include "tensors.hpp"

#include <algorithm>

namespace hocket {

using c10d::OpType;

// A group that goes away without shutdown() (1.13 has none; or the program ends on an error) gives what is under way so long.
static constexpr Milliseconds GRACE{2000};

Group::Group(const StorePointer &store, int rank, int size, Milliseconds limit, const std::string &name)
    : Base(rank, size), party_{own_store(store), rank, size, name, limit}, limit_(limit)
{
    comm_     = meet(party_);
    lane_     = std::make_shared<Lane>(name, limit, [this] {
        const std::string who = report();

        abort();
        return "who is where:\n" + who;
    });
    messages_ = std::make_shared<Messages>(party_, [this] { return report(); });
    Base::init();
}

Group::~Group()
{
    const Unlocked unlocked;

    try {
        end(GRACE);
    } catch (const std::exception &) { // nobody is left to be told
    }
}

void Group::end(Milliseconds grace)
{
    if (ended_)
        return;
    ended_ = true;
    if (!lane_->drain(grace))
        abort();
    lane_->stop();
    messages_->close(grace);
    hkt_comm_destroy(comm_);
}

void Group::shutdown()
{
    end(aborted_ ? Milliseconds(1) : limit_);
}

void Group::abort()
{
    if (aborted_.exchange(true))
        return;
    hkt_comm_abort(comm_);
    if (messages_)
        messages_->abort();
}

std::string Group::report() const
{
    std::string text(4096, 0);

    if (hkt_comm_report(comm_, &text[0], text.size()))
        return "(no report: " + std::string(hkt_last_error()) + ")\n";
    return text.c_str();
}

// ---- operations ------------------------------------------------------------------------------------------------------

WorkPointer Group::submit(Call call, std::function<void()> body)
{
    const Work::Description what = {rank_, call.type, call.title, limit_or_default(call.limit), 0};

    for (const auto *tensors : {&call.inputs, &call.outputs})
        for (const auto &tensor : *tensors)
            if (tensor.is_contiguous())
                share_if_useful(tensor);
    Operation work = lane_->submit(what, call.async || coalescing_, std::move(call.inputs), std::move(call.outputs), std::move(body));

    if (coalescing_)
        coalesced_.push_back(work);
    return work;
}

WorkPointer Group::run(const char *title, Tensors tensors, std::function<void()> body)
{
    return lane_->submit({rank_, OpType::UNKNOWN, title, limit_, 0}, true, tensors, tensors, std::move(body));
}

#if HOCKET_TORCH_AT_LEAST(2, 0)
void Group::startCoalescing()
{
    coalescing_ = true;
    coalesced_.clear();
}

WorkPointer Group::endCoalescing()
{
    coalescing_ = false;
    return c10::make_intrusive<Bundle>(std::move(coalesced_));
}
#endif

WorkPointer Group::barrier(const c10d::BarrierOptions &options)
{
    return submit(call(OpType::BARRIER, "hocket:barrier", options, {}, {}), [this] { check(hkt_barrier(comm_, nullptr), "barrier"); });
}

// Through the store, so that it tells who is missing even when that rank is in another collective, and the group lives on.
void Group::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    const Milliseconds limit = options.timeout.count() < 0 ? limit_ : options.timeout; // 0: who is not there is late
    const std::string  key   = "hocket/monitored/" + std::to_string(++barriers_), verdict = key + "/verdict";
    std::string        names;

    party_.store->set(key + "/" + std::to_string(rank_), std::vector<uint8_t>{1});
    if (rank_) { // rank 0 waits for as long; a little more, so that it is rank 0 that knows
        std::string text;

        if (!poll([&] { return party_.store->check({verdict}); }, limit + Milliseconds(1000)))
            throw_error("[Rank " + std::to_string(rank_) + "]: Rank 0 failed to pass monitoredBarrier in " + std::to_string(limit.count()) + " ms");
        const auto bytes = party_.store->get(verdict);

        text.assign(bytes.begin(), bytes.end());
        if (text != "passed")
            throw_error("Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                        "from rank 0: " + text);
        return;
    }
    for (int r : absent({party_.store, 0, size_, party_.name, limit}, key)) {
        names += (names.empty() ? "" : ", ") + std::to_string(r);
        if (!wait_all_ranks)
            break;
    }
    std::string text = "passed";

    if (!names.empty())
        text = (limit.count() ? "" : "Rank 0 timed out in monitoredBarrier: ") + std::string(wait_all_ranks ? "Ranks " : "Rank ") + names +
               " failed to pass monitoredBarrier in " + std::to_string(limit.count()) + " ms";

    party_.store->set(verdict, std::vector<uint8_t>(text.begin(), text.end()));
    if (!names.empty())
        throw_error("[Rank 0]: " + text);
}

// ---- messages --------------------------------------------------------------------------------------------------------

static void check_peer(int peer, int rank, int size)
{
    if (peer < 0 || peer >= size || peer == rank)
        throw_error("rank " + std::to_string(rank) + " can exchange messages with the other ranks of 0 to " + std::to_string(size - 1) +
                    ", not with " + std::to_string(peer));
}

WorkPointer Group::send(Tensors &tensors, int to, int tag)
{
    const at::Tensor &tensor = the_one(tensors, "send");

    check_peer(to, rank_, size_);
    if (tensor.is_contiguous())
        share_if_useful(tensor);
    return messages_->send(tensor.contiguous(), to, tag, limit_);
}

WorkPointer Group::recv(Tensors &tensors, int from, int tag)
{
    const at::Tensor &tensor = the_one(tensors, "recv");

    check_peer(from, rank_, size_);
    if (tensor.is_contiguous())
        share_if_useful(tensor);
    return messages_->receive(tensor, from, tag, limit_);
}

WorkPointer Group::recvAnysource(Tensors &tensors, int tag)
{
    return messages_->receive(the_one(tensors, "recv"), -1, tag, limit_);
}

// ---- memory, splitting -----------------------------------------------------------------------------------------------

at::Tensor Group::allocateTensor(long size, at::TensorOptions options)
{
    return make_shared({size}, options);
}

#if HOCKET_TORCH_AT_LEAST(2, 8)
c10::intrusive_ptr<Base::Options> Group::getBackendOptions()
{
    auto options = c10::make_intrusive<Base::Options>("hocket", limit_);

    options->group_name = getGroupUid();
    return options;
}

c10::intrusive_ptr<Base> Group::split(const StorePointer &store, const std::vector<int> &ranks, const c10::intrusive_ptr<Base::Options> &options)
{
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);

    if (me == ranks.end())
        return nullptr;
    return c10::make_intrusive<Group>(store, int(me - ranks.begin()), int(ranks.size()), options ? options->timeout : limit_,
                                      options && !options->group_name.empty() ? options->group_name : party_.name + " split");
}
#endif

} // namespace hocket
