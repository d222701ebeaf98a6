// work.cpp -- see work.hpp.
#include <Python.h> // before all others

#include "work.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <hocket.h>

namespace hocket {

Unlocked::Unlocked() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

Unlocked::~Unlocked()
{
    if (state_)
        PyEval_RestoreThread(static_cast<PyThreadState *>(state_));
}

void throw_error(const std::string &what)
{
#if HOCKET_TORCH_AT_LEAST(2, 0)
    C10_THROW_ERROR(DistBackendError, "hocket: " + what);
#else
    C10_THROW_ERROR(Error, "hocket: " + what);
#endif
}

void check(int code, const char *what)
{
    if (code < 0)
        throw_error(std::string(what) + ": " + hkt_last_error() + (code == HKT_ERR_TIMEOUT ? " ( Timed out )" : ""));
}

static c10::intrusive_ptr<c10::ivalue::Future> make_future()
{
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

static void fulfil(c10::ivalue::Future &future, const Tensors &outputs, const std::exception_ptr &error)
{
    if (error)
        future.setError(error);
    else
        future.markCompleted(c10::IValue(outputs));
}

// ---- Work ------------------------------------------------------------------------------------------------------------

Work::Work(const Description &description, std::shared_ptr<Runner> runner, Tensors inputs, Tensors outputs, std::function<void()> body)
    : c10d::Work(description.rank, description.type, description.title, inputs.empty() ? outputs : inputs), // for the profiler
      description_(description),
      runner_(std::move(runner)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      body_(std::move(body))
{
}

void Work::run()
{
    std::exception_ptr error;

    try {
        // Below autograd: results are stored whatever requires_grad, inference mode or the version counters of views say,
        // as a backend that writes through pointers does.
        at::AutoDispatchBelowADInplaceOrView raw;
        body_();
    } catch (...) {
        error = std::current_exception();
    }
    complete(error);
}

void Work::complete(std::exception_ptr error)
{
    std::unique_lock<std::mutex> lock(mutex_);
    const auto                   future = future_;
    std::function<void()>        body; // what these hold is released at the end, without the lock
    Tensors                      inputs;

    if (future) { // first, so that a wait that is over means that the future is complete
        lock.unlock();
        fulfil(*future, outputs_, error);
        lock.lock();
    }
    if (recordFunctionEndCallback_) // before anybody knows: who waits may end the profiler next
        recordFunctionEndCallback_();
    body.swap(body_);
    inputs.swap(inputs_);
    completed_ = true;
    exception_ = error;
    done_.store(true, std::memory_order_release); // pairs with is_done()
    const auto late = future_;
    lock.unlock();
    if (late && late != future)
        fulfil(*late, outputs_, error);
    cv_.notify_all();
}

bool Work::wait(Milliseconds timeout)
{
    const Milliseconds limit  = timeout.count() > 0 ? timeout : description_.limit;
    const bool         itself = limit.count() <= 0 || (runner_->limit().count() && limit >= runner_->limit()); // Hocket keeps time

    if (itself && !is_done())
        runner_->help(*this);
    if (!is_done()) {
        std::unique_lock<std::mutex> lock(mutex_);

        if (itself)
            cv_.wait(lock, [this] { return completed_; });
        else if (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
            lock.unlock();
            throw_error(runner_->give_up(*this, limit));
        }
    }
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

Tensors Work::result()
{
    return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    std::unique_lock<std::mutex> lock(mutex_);

    if (!future_) {
        future_ = make_future();
        if (completed_) {
            lock.unlock(); // callbacks may ask for the work
            fulfil(*future_, outputs_, exception_);
        }
    }
    return future_;
}

// ---- Bundle ----------------------------------------------------------------------------------------------------------

Bundle::Bundle(std::vector<Operation> parts) : parts_(std::move(parts)) {}

bool Bundle::isCompleted()
{
    for (const auto &part : parts_)
        if (!part->is_done())
            return false;
    return true;
}

std::exception_ptr Bundle::exception() const
{
    for (const auto &part : parts_)
        if (part->is_done() && part->exception())
            return part->exception();
    return nullptr;
}

bool Bundle::isSuccess() const
{
    for (const auto &part : parts_)
        if (!part->is_done() || part->exception())
            return false;
    return true;
}

bool Bundle::wait(Milliseconds timeout)
{
    for (const auto &part : parts_)
        part->wait(timeout);
    return true;
}

Tensors Bundle::result()
{
    Tensors all;

    for (const auto &part : parts_)
        for (auto &tensor : part->result())
            all.push_back(tensor);
    return all;
}

c10::intrusive_ptr<c10::ivalue::Future> Bundle::getFuture()
{
    auto       future = make_future();
    auto       self   = c10::intrusive_ptr<Bundle>::unsafe_reclaim_from_nonowning(this);
    auto       left   = std::make_shared<std::atomic<size_t>>(parts_.size() + 1);
    const auto one    = [future, self, left] {
        if (left->fetch_sub(1) == 1)
            fulfil(*future, self->result(), self->exception());
    };

    for (const auto &part : parts_)
        part->getFuture()->addCallback([one](c10::ivalue::Future &) { one(); });
    one();
    return future;
}

} // namespace hocket
