// messages.cpp -- see messages.hpp.
#include "messages.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

namespace hocket {

static constexpr int      ANY    = -1;
static constexpr uint64_t LEAVES = ~uint64_t(0); // in the place of the size: the last message of a channel

struct Messages::Out {
    int                       peer;
    std::shared_ptr<Lane>     lane;
    std::atomic<hkt_comm_t *> comm{nullptr};
    std::atomic<bool>         aborted{false};
};

struct Messages::In {
    int                       peer;
    hkt_stream_t             *stream = nullptr;
    std::atomic<hkt_comm_t *> comm{nullptr};
    bool                      serving = false; // under mutex_
    std::exception_ptr        error;           // under mutex_: nothing comes any more
};

struct Messages::Serving {
    std::shared_ptr<Messages> messages;
    int                       peer;
};

Messages::Messages(const Party &party, std::function<std::string()> report) : party_(party), report_(std::move(report)) {}

std::string Messages::name_of(int from, int to) const
{
    return party_.name + ", " + std::to_string(from) + " (rank 0 here) to " + std::to_string(to) + " (rank 1 here)";
}

void Messages::alive(int peer) const
{
    const std::string text = report_(), start = "\nrank " + std::to_string(peer) + " (";
    const size_t      at = text.find(start);

    if (at == std::string::npos)
        return;
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);

    if (line.find("has died") != std::string::npos || line.find("has destroyed its end") != std::string::npos)
        throw_error(party_.name + ": no message can be exchanged with " + line);
}

// ---- send ------------------------------------------------------------------------------------------------------------

Messages::Out &Messages::out(int peer)
{
    std::lock_guard<std::mutex> guard(mutex_);
    auto                       &channel = out_[peer];

    if (closed_)
        throw_error(party_.name + " has been shut down; no call is possible any more");
    if (!channel) {
        channel       = std::make_shared<Out>();
        channel->peer = peer;
        Out *self     = channel.get(); // asked only before close()
        channel->lane = std::make_shared<Lane>(name_of(party_.rank, peer), party_.limit, [self, this] {
            self->aborted = true;
            if (self->comm.load())
                hkt_comm_abort(self->comm.load());
            return "who is where:\n" + report_();
        });
    }
    return *channel;
}

// In the order of the channel.
void Messages::send_now(Out &channel, const at::Tensor &tensor, int64_t tag)
{
    const uint64_t header[2] = {uint64_t(tag), uint64_t(tensor.nbytes())};
    hkt_comm_t    *comm      = channel.comm.load();

    if (!comm && !channel.aborted) {
        comm = pair_sender({party_.store, party_.rank, channel.peer, name_of(party_.rank, channel.peer), party_.limit,
                            [&] { return !channel.aborted; }, [&] { alive(channel.peer); }});
        channel.comm = comm;
    }
    if (channel.aborted || !comm)
        throw_error(name_of(party_.rank, channel.peer) + " was aborted");
    try {
        check(hkt_send(header, 2, HKT_UINT64, 1, comm, nullptr), "send");
        check(hkt_send(tensor.data_ptr(), tensor.nbytes(), HKT_UINT8, 1, comm, nullptr), "send");
    } catch (...) {
        alive(channel.peer); // says it with the group's numbers
        throw;
    }
}

Operation Messages::send(const at::Tensor &tensor, int peer, int64_t tag, Milliseconds limit)
{
    Out &channel = out(peer);

    return channel.lane->submit({party_.rank, c10d::OpType::SEND, "hocket:send", limit, 0}, true, {tensor}, {tensor},
                                [this, &channel, tensor, tag] { send_now(channel, tensor, tag); });
}

// ---- receive ---------------------------------------------------------------------------------------------------------

Messages::In &Messages::in(int peer)
{
    auto &channel = in_[peer];

    if (!channel) {
        channel       = std::make_shared<In>();
        channel->peer = peer;
        check(hkt_stream_create(&channel->stream), "stream");
    }
    return *channel;
}

// The message is there: in place, or in `data`.
void Messages::deliver(Posted &posted, int from, const std::vector<uint8_t> *data)
{
    std::exception_ptr error;

    try {
        if (data && data->size() != posted.place.nbytes())
            throw_error("recv of " + std::to_string(posted.place.nbytes()) + " bytes, but rank " + std::to_string(from) + " sent " +
                        std::to_string(data->size()) + " bytes with tag " + std::to_string(posted.tag) +
                        "; both sides have to give tensors of one size and type");
        if (data && !data->empty())
            memcpy(posted.place.data_ptr(), data->data(), data->size());
        if (!posted.place.is_same(posted.user)) {
            at::AutoDispatchBelowADInplaceOrView raw;

            posted.user.copy_(posted.place);
        }
    } catch (...) {
        error = std::current_exception();
    }
    posted.work->set_source(from);
    posted.work->complete(error);
}

Operation Messages::receive(const at::Tensor &tensor, int peer, int64_t tag, Milliseconds limit)
{
    const at::Tensor             place = tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options());
    std::unique_lock<std::mutex> lock(mutex_);

    if (closed_)
        throw_error(party_.name + " has been shut down; no call is possible any more");
    const Work::Description what = {party_.rank, peer == ANY ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV,
                                    peer == ANY ? "hocket:recvAnySource" : "hocket:recv", limit, ++received_};
    Posted posted{c10::make_intrusive<Work>(what, shared_from_this(), Tensors{tensor}, Tensors{tensor}, nullptr), place, tensor, peer, tag};
    const Operation work = posted.work;

    for (auto s = strays_.begin(); s != strays_.end(); ++s)
        if ((peer == ANY || s->from == peer) && s->tag == tag) {
            const Stray stray = std::move(*s);

            strays_.erase(s);
            lock.unlock();
            deliver(posted, stray.from, &stray.data);
            return work;
        }
    posted_.push_back(posted);
    for (int r = 0; r < party_.size; r++) {
        if (r == party_.rank || (peer != ANY && r != peer))
            continue;
        In &channel = in(r);

        if (channel.error && peer != ANY)
            std::rethrow_exception((posted_.pop_back(), channel.error));
        if (channel.serving || channel.error)
            continue;
        channel.serving = true;
        check(hkt_stream_call(channel.stream, serve_item, new Serving{shared_from_this(), r}), "stream");
    }
    return work;
}

int Messages::serve_item(void *arg)
{
    const std::unique_ptr<Serving> item(static_cast<Serving *>(arg));

    item->messages->serve(item->peer);
    return 0;
}

bool Messages::wanted(int peer)
{
    std::lock_guard<std::mutex> guard(mutex_);

    if (!closed_)
        for (const auto &posted : posted_)
            if (posted.from == peer || posted.from == ANY)
                return true;
    return false;
}

// On the channel's thread: takes messages for as long as somebody waits for one from this rank.
void Messages::serve(int peer)
{
    In *channel;

    {
        std::lock_guard<std::mutex> guard(mutex_);

        channel = in_[peer].get();
    }
    for (;;) {
        {
            std::lock_guard<std::mutex> guard(mutex_);
            bool                        any = false;

            for (const auto &posted : posted_)
                any |= posted.from == peer || posted.from == ANY;
            if (closed_ || !any) {
                channel->serving = false;
                return;
            }
        }
        try {
            if (!serve_one(*channel))
                continue;
        } catch (...) {
            std::exception_ptr error = std::current_exception();

            try {
                alive(peer); // says it with the group's numbers
            } catch (...) {
                error = std::current_exception();
            }
            fail(peer, error);
            return;
        }
    }
}

// False when the connection was no longer wanted.
bool Messages::serve_one(In &channel)
{
    const int peer = channel.peer;
    uint64_t  header[2];

    if (!channel.comm.load())
        channel.comm = pair_receiver({party_.store, peer, party_.rank, name_of(peer, party_.rank), Milliseconds(0),
                                      [&] { return wanted(peer); }, [&] { alive(peer); }});
    if (!channel.comm.load())
        return false;
    check(hkt_recv(header, 2, HKT_UINT64, 0, channel.comm, nullptr), "recv");
    if (header[1] == LEAVES)
        throw_error(party_.name + ": rank " + std::to_string(peer) + " has left; nothing more comes from it");
    dispatch(channel, header);
    return true;
}

// Takes the data of a message to where it belongs.
void Messages::dispatch(In &channel, const uint64_t *header)
{
    const int64_t        tag   = int64_t(header[0]);
    const size_t         bytes = header[1];
    std::vector<uint8_t> data;
    std::list<Posted>    mine; // of one

    {
        std::lock_guard<std::mutex> guard(mutex_);

        for (auto p = posted_.begin(); p != posted_.end(); ++p)
            if ((p->from == ANY || p->from == channel.peer) && p->tag == tag) {
                mine.splice(mine.begin(), posted_, p);
                break;
            }
    }
    const bool in_place = !mine.empty() && mine.front().place.nbytes() == bytes;

    if (!in_place)
        data.resize(bytes);
    const int code = hkt_recv(in_place ? mine.front().place.data_ptr() : data.data(), bytes, HKT_UINT8, 0, channel.comm, nullptr);

    if (code < 0) {
        std::lock_guard<std::mutex> guard(mutex_);

        posted_.splice(posted_.begin(), mine); // fail() tells it
        check(code, "recv");
    }
    if (!mine.empty())
        return deliver(mine.front(), channel.peer, in_place ? nullptr : &data);

    std::unique_lock<std::mutex> lock(mutex_);

    for (auto p = posted_.begin(); p != posted_.end(); ++p) // asked for meanwhile?
        if ((p->from == ANY || p->from == channel.peer) && p->tag == tag) {
            mine.splice(mine.begin(), posted_, p);
            lock.unlock();
            return deliver(mine.front(), channel.peer, &data);
        }
    strays_.push_back({channel.peer, tag, std::move(data)});
}

// Nothing comes from that rank any more.
void Messages::fail(int peer, std::exception_ptr error)
{
    std::list<Posted> lost;

    {
        std::lock_guard<std::mutex> guard(mutex_);

        in_[peer]->error   = error;
        in_[peer]->serving = false;
        for (auto p = posted_.begin(); p != posted_.end();) {
            const auto next = std::next(p);

            if (p->from == peer || p->from == ANY)
                lost.splice(lost.end(), posted_, p);
            p = next;
        }
    }
    for (auto &posted : lost)
        posted.work->complete(error);
}

// ---- ends ------------------------------------------------------------------------------------------------------------

std::string Messages::give_up(const Work &work, Milliseconds limit)
{
    std::list<Posted> lost;
    std::string       from = "a rank that has sent it already";

    {
        std::lock_guard<std::mutex> guard(mutex_);

        for (auto p = posted_.begin(); p != posted_.end(); ++p)
            if (p->work.get() == &work) {
                from = p->from == ANY ? "any rank" : "rank " + std::to_string(p->from);
                from += ", tag " + std::to_string(p->tag);
                lost.splice(lost.begin(), posted_, p);
                break;
            }
    }
    const std::string text = party_.name + ": Timed out waiting " + std::to_string(limit.count()) + "ms for " + work.title() + " from " + from +
                             "; who is where:\n" + report_();

    if (lost.empty())
        abort(); // it is being stored into the caller's tensor
    else
        lost.front().work->complete(std::make_exception_ptr(std::runtime_error("hocket: " + text)));
    return text;
}

void Messages::abort()
{
    std::lock_guard<std::mutex> guard(mutex_);

    for (auto &entry : out_) {
        entry.second->aborted = true;
        if (entry.second->comm.load())
            hkt_comm_abort(entry.second->comm);
    }
    for (auto &entry : in_)
        if (entry.second->comm.load())
            hkt_comm_abort(entry.second->comm);
}

void Messages::close(Milliseconds grace)
{
    bool done = true;

    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (closed_)
            return;
        closed_ = true;
    }
    for (auto &entry : out_) {
        const uint64_t header[2] = {0, LEAVES};

        done &= entry.second->lane->drain(grace);
        if (done && entry.second->comm.load()) // so that a rank that still listens is not told that we died
            hkt_send(header, 2, HKT_UINT64, 1, entry.second->comm, nullptr);
    }
    if (!done)
        abort();
    for (auto &entry : in_)
        if (entry.second->serving && entry.second->comm.load())
            hkt_comm_abort(entry.second->comm);
    for (auto &entry : out_) {
        entry.second->lane->stop();
        hkt_comm_destroy(entry.second->comm);
    }
    for (auto &entry : in_) {
        hkt_stream_destroy(entry.second->stream);
        hkt_comm_destroy(entry.second->comm);
    }
    out_.clear();
    in_.clear();
    while (!posted_.empty()) {
        posted_.front().work->complete(std::make_exception_ptr(std::runtime_error("hocket: " + party_.name + " has been shut down")));
        posted_.pop_front();
    }
}

} // namespace hocket
