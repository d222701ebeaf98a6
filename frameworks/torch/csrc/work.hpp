// work.hpp -- one operation in flight: what a caller of PyTorch holds, waits for and asks for a future.
//
// A Work is done exactly once, by the thread that ran it. It keeps the tensors alive until then. The future is made when
// somebody asks for it: most callers only wait, and a future costs more than a small all-reduce.
#pragma once

#include "torch_api.hpp"

#include <atomic>
#include <functional>

namespace hocket {

class Work;

// What a Work needs of whoever runs it. Lives until the last Work of it is done.
class Runner {
public:
    virtual ~Runner() = default;
    // The caller is about to wait for `work`: runs it here when its turn has come and nobody has begun it.
    virtual void help(Work &work) = 0;
    // `work` did not end within `limit`: gives everything up, and returns a sentence that names the late ranks.
    virtual std::string give_up(const Work &work, Milliseconds limit) = 0;
    // What Hocket waits for a rank before it says so itself; 0: for ever.
    virtual Milliseconds limit() const = 0;
};

// While it lives, this thread does not hold the interpreter's lock, if it did. For destructors, which Python calls with the lock: what they
// wait for may have to destroy a tensor that Python has seen, and that takes the lock.
class Unlocked {
public:
    Unlocked();
    ~Unlocked();
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

private:
    void *const state_;
};

// The text of the last error of this thread, as an exception that Python knows as torch.distributed.DistBackendError.
[[noreturn]] void throw_error(const std::string &what);
// The same from a code of Hocket; 0 and more: nothing.
void check(int code, const char *what);

class Work : public c10d::Work {
public:
    struct Description {
        int          rank;
        c10d::OpType type;
        const char  *title; // of the profiler, "hocket:all_reduce"; NULL: none
        Milliseconds limit; // what wait() waits at most; 0: what the runner does
        uint64_t     number;
    };

    Work(const Description &description, std::shared_ptr<Runner> runner, Tensors inputs, Tensors outputs, std::function<void()> body);

    bool wait(Milliseconds timeout = kNoTimeout) override;
    Tensors result() override;
    int sourceRank() const override { return source_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const { return description_.number; }     // override since 2.0
    Milliseconds getTimeout() const { return description_.limit; }         // override since 2.7

    const char *title() const { return description_.title ? description_.title : "hocket:work"; }
    uint64_t number() const { return description_.number; }
    bool     is_done() const { return done_.load(std::memory_order_acquire); } // pairs with the release store in complete()

    // True for the one thread that is to run it.
    bool begin() { return !begun_.exchange(true); }
    // Runs the body and completes. By the thread for which begin() was true.
    void run();
    // Completes without running; NULL: well.
    void complete(std::exception_ptr error);
    void set_source(int rank) { source_ = rank; }

private:
    const Description       description_;
    std::shared_ptr<Runner> runner_;
    Tensors                 inputs_, outputs_;
    std::function<void()>   body_;
    std::atomic<bool>       begun_{false}, done_{false};
    int                     source_ = -1;

    c10::intrusive_ptr<c10::ivalue::Future> future_; // under mutex_
};

using Operation = c10::intrusive_ptr<Work>;

// Several as one: done when all are. What startCoalescing() and endCoalescing() collect.
class Bundle : public c10d::Work {
public:
    explicit Bundle(std::vector<Operation> parts);
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(Milliseconds timeout = kNoTimeout) override;
    Tensors result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

private:
    std::vector<Operation> parts_;
};

} // namespace hocket
