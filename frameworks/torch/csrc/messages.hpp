// messages.hpp -- send and receive, beside the collectives and in any order with them, by tag, from a named rank or from any.
//
// Each direction between two ranks is a channel: a communicator of the two, made when the first message needs it, and a thread
// at each end. A message is a header (tag, bytes) and the data. A receiver that finds a message that nobody has asked for yet
// keeps it aside and goes on, so that tags may be waited for in any order. A receive that is there first gets the data in place.
#pragma once

#include "lane.hpp"
#include "meeting.hpp"

#include <list>
#include <map>

namespace hocket {

class Messages : public Runner, public std::enable_shared_from_this<Messages> {
public:
    // report: who is where in the group, as hkt_comm_report() writes it; looked at while a channel is being made.
    Messages(const Party &party, std::function<std::string()> report);

    // The tensor is contiguous. peer -1: from any rank. limit: what wait() waits.
    Operation send(const at::Tensor &tensor, int peer, int64_t tag, Milliseconds limit);
    Operation receive(const at::Tensor &tensor, int peer, int64_t tag, Milliseconds limit);

    void help(Work &) override {}
    std::string give_up(const Work &work, Milliseconds limit) override;
    Milliseconds limit() const override { return Milliseconds(0); }

    void abort();
    // Waits at most `grace` (0: as long as it takes) for what was sent, then ends everything.
    void close(Milliseconds grace);

private:
    struct Out; // a channel to a rank
    struct In;  // a channel from a rank
    struct Posted { // a receive that waits for its message
        Operation  work;
        at::Tensor place; // contiguous
        at::Tensor user;  // what the caller gave; the same unless it is not contiguous
        int        from;
        int64_t    tag;
    };
    struct Stray { // a message that waits for its receive
        int                  from;
        int64_t              tag;
        std::vector<uint8_t> data;
    };
    struct Serving;

    std::string name_of(int from, int to) const;
    void alive(int peer) const; // throws when it is not
    Out &out(int peer);
    In &in(int peer);
    void send_now(Out &channel, const at::Tensor &tensor, int64_t tag);
    bool wanted(int peer);
    void serve(int peer);
    bool serve_one(In &channel);
    void dispatch(In &channel, const uint64_t *header);
    void fail(int peer, std::exception_ptr error);
    static int serve_item(void *item);
    static void deliver(Posted &posted, int from, const std::vector<uint8_t> *data);

    const Party                          party_;
    const std::function<std::string()>   report_;
    std::mutex                           mutex_; // of all below
    bool                                 closed_ = false;
    uint64_t                             received_ = 0;
    std::map<int, std::shared_ptr<Out>>  out_;
    std::map<int, std::shared_ptr<In>>   in_;
    std::list<Posted>                    posted_;
    std::list<Stray>                     strays_;
};

} // namespace hocket
