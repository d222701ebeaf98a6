// lane.cpp -- see lane.hpp. Operation k may run when done_ is k - 1; who runs it makes it k.
#include "lane.hpp"

namespace hocket {

struct Lane::Item {
    std::shared_ptr<Lane> lane;
    Operation             work;
};

Lane::Lane(std::string name, Milliseconds limit, GiveUp give_up) : name_(std::move(name)), limit_(limit), give_up_(std::move(give_up))
{
    check(hkt_stream_create(&stream_), "stream");
}

Lane::~Lane()
{
    stop();
}

// Its turn has come and begin() was true.
void Lane::run(Work &work)
{
    work.run();
    done_.store(work.number()); // this and waiting_ are sequentially consistent: one of the two threads sees the other's
    if (waiting_.load()) {
        std::lock_guard<std::mutex> guard(moved_mutex_);

        moved_.notify_all();
    }
}

// On the stream's thread.
int Lane::run_item(void *arg)
{
    const std::unique_ptr<Item> item(static_cast<Item *>(arg));
    Lane                       &lane   = *item->lane;
    const uint64_t              number = item->work->number();

    if (!item->work->begin())
        return 0; // who waited for it has run it, or does
    if (!lane.next(number)) {
        std::unique_lock<std::mutex> lock(lane.moved_mutex_);

        lane.waiting_++;
        lane.moved_.wait(lock, [&lane, number] { return lane.next(number); });
        lane.waiting_--;
    }
    lane.run(*item->work);
    return 0;
}

Operation Lane::submit(Work::Description description, bool async, Tensors inputs, Tensors outputs, std::function<void()> body)
{
    const bool in_time = description.limit.count() <= 0 || (limit_.count() && description.limit >= limit_);
    Operation  work;
    bool       here;

    {
        std::lock_guard<std::mutex> guard(mutex_);

        if (closed_)
            throw_error(name_ + " has been shut down; no call is possible any more");
        description.number = submitted_.load() + 1;
        work = c10::make_intrusive<Work>(description, shared_from_this(), std::move(inputs), std::move(outputs), std::move(body));
        here = !async && in_time && next(description.number) && work->begin();
        submitted_++;
        if (!here)
            check(hkt_stream_call(stream_, run_item, new Item{shared_from_this(), work}), "stream");
    }
    if (here)
        run(*work);
    return work;
}

void Lane::help(Work &work)
{
    if (next(work.number()) && work.begin())
        run(work);
}

std::string Lane::give_up(const Work &work, Milliseconds limit)
{
    return "Timed out waiting " + std::to_string(limit.count()) + "ms for " + work.title() + ", operation " + std::to_string(work.number()) +
           " of " + name_ + "; " + give_up_();
}

bool Lane::drain(Milliseconds limit)
{
    {
        std::lock_guard<std::mutex> guard(mutex_);

        closed_ = true;
    }
    std::unique_lock<std::mutex> lock(moved_mutex_);
    const auto                   all  = [this] { return done_.load() == submitted_.load(); };
    bool                         done = true;

    waiting_++;
    if (limit.count())
        done = moved_.wait_for(lock, limit, all);
    else
        moved_.wait(lock, all);
    waiting_--;
    return done;
}

void Lane::stop()
{
    hkt_stream_t *stream;

    {
        std::lock_guard<std::mutex> guard(mutex_);

        closed_ = true;
        stream  = stream_;
        stream_ = nullptr;
    }
    hkt_stream_destroy(stream); // without the lock: what still runs may call submit(), and be refused
}

} // namespace hocket
