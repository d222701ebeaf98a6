// lane.hpp -- operations that run one after the other in the order of the calls: the collectives of a group, the sends to one rank.
//
// A caller that waits anyway runs its operation itself when nothing is before it: that saves two changes of thread, which cost
// more than a small all-reduce. Everything else is run by a Hocket stream, beside the caller.
#pragma once

#include "work.hpp"

#include <hocket.h>

namespace hocket {

class Lane : public Runner, public std::enable_shared_from_this<Lane> {
public:
    // What is done when an operation does not end in time; see Runner::give_up(), without the beginning of the sentence.
    using GiveUp = std::function<std::string()>;

    // limit: what Hocket itself waits for a rank; 0: for ever.
    Lane(std::string name, Milliseconds limit, GiveUp give_up);
    ~Lane() override;

    // Makes the next operation; body runs in turn. async: the caller goes on before it is done.
    Operation submit(Work::Description description, bool async, Tensors inputs, Tensors outputs, std::function<void()> body);

    void help(Work &work) override;
    std::string give_up(const Work &work, Milliseconds limit) override;
    Milliseconds limit() const override { return limit_; }

    uint64_t submitted() const { return submitted_.load(); }
    // No operation is taken any more. Waits at most `limit` (0: as long as it takes) for those that are there; false: some are not done.
    bool drain(Milliseconds limit);
    // Joins the thread: what runs has to end. After drain().
    void stop();

private:
    struct Item;
    static int run_item(void *item);
    void       run(Work &work);
    bool       next(uint64_t number) const { return done_.load() == number - 1; }

    const std::string       name_;
    const Milliseconds      limit_;
    const GiveUp            give_up_;
    hkt_stream_t           *stream_ = nullptr;
    bool                    closed_ = false; // under mutex_
    std::mutex              mutex_;          // numbers are given, and posted, under it
    std::atomic<uint64_t>   submitted_{0}, done_{0};
    std::atomic<int>        waiting_{0};     // for moved_
    std::mutex              moved_mutex_;
    std::condition_variable moved_;          // done_ has grown
};

} // namespace hocket
