// group.hpp -- the backend: one rank's end of a process group. PyTorch calls it with the interpreter's lock released.
#pragma once

#include "lane.hpp"
#include "memory.hpp"
#include "messages.hpp"

namespace hocket {

class Group : public Base {
public:
    // Blocks until all ranks have come; limit: for that, and of every operation that names none.
    Group(const StorePointer &store, int rank, int size, Milliseconds limit, const std::string &name);
    ~Group() override;

    const std::string getBackendName() const override { return "hocket"; }

    // ---- collectives (collectives.cpp)
    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options = {}) override;
    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options = {}) override;
    WorkPointer allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options = {}) override;
    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options = {}) override;
    WorkPointer reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &options = {}) override;
    WorkPointer _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options = {}) override;

    // ---- collectives that move without reducing (movement.cpp)
    WorkPointer allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options = {}) override;
    WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options = {}) override;
    WorkPointer allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options = {}) override;
    WorkPointer gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options = {}) override;
    WorkPointer scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options = {}) override;
    WorkPointer alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options = {}) override;
    WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                              const c10d::AllToAllOptions &options = {}) override;

    // ---- messages, barriers, life (group.cpp)
    WorkPointer send(Tensors &tensors, int to, int tag) override;
    WorkPointer recv(Tensors &tensors, int from, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions &options = {}) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks = false) override;
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return lane_->submitted(); }

    // Virtual in some versions only (torch_api.hpp). Since 2.0:
    WorkPointer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &options = {});
    WorkPointer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &options = {});
    WorkPointer gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options = {});
#if HOCKET_TORCH_AT_LEAST(2, 0)
    void startCoalescing();
    WorkPointer endCoalescing();
#endif
    void abort();
    void shutdown(); // waits for what is under way
    void setTimeout(Milliseconds limit) { limit_ = limit; }
    at::Tensor allocateTensor(long size, at::TensorOptions options = {});
    bool supportsTensorAlloc(c10::DeviceIndex) { return true; }
#if HOCKET_TORCH_AT_LEAST(2, 8)
    bool supportsSplitting() const { return true; }
    c10::intrusive_ptr<Base::Options> getBackendOptions();
    c10::intrusive_ptr<Base> split(const StorePointer &store, const std::vector<int> &ranks, const c10::intrusive_ptr<Base::Options> &options);
#endif

    hkt_comm_t *comm() const { return comm_; }
    std::string report() const; // who is where
    // body runs in the order of the group's collectives; it may use comm().
    WorkPointer run(const char *title, Tensors tensors, std::function<void()> body);

private:
    struct Call { // what the collectives have in common
        c10d::OpType type;
        const char  *title;
        Milliseconds limit;
        bool         async;
        Tensors      inputs, outputs;
    };
    template <typename Options>
    Call call(c10d::OpType type, const char *title, const Options &options, Tensors inputs, Tensors outputs) const
    {
        return {type, title, options.timeout, is_async(options, 0), std::move(inputs), std::move(outputs)};
    }
    WorkPointer submit(Call call, std::function<void()> body);
    Milliseconds limit_or_default(Milliseconds limit) const { return limit.count() > 0 ? limit : limit_; }
    void end(Milliseconds grace);

    void all_reduce_one(const at::Tensor &tensor, const c10d::ReduceOp &op);
    void reduce_scatter_one(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op);
    void all_gather_one(const at::Tensor &output, const at::Tensor &input);
    WorkPointer all_reduce_sparse(const at::Tensor &tensor, const c10d::AllreduceOptions &options);

    const Party                party_;
    Milliseconds               limit_;
    hkt_comm_t                *comm_;
    std::shared_ptr<Lane>      lane_;
    std::shared_ptr<Messages>  messages_;
    Scratch                    in_, out_;        // by whoever runs an operation of the lane
    std::atomic<bool>          aborted_{false};
    bool                       ended_ = false;
    uint64_t                   barriers_ = 0;
    bool                       coalescing_ = false;
    std::vector<Operation>     coalesced_;
};

} // namespace hocket
