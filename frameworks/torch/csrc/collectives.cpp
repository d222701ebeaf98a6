// collectives.cpp -- the collectives that reduce. See group.hpp.
#include "group.hpp"

#include "reduction.hpp"
#include "tensors.hpp"

namespace hocket {

using c10d::OpType;
using c10d::ReduceOp;

// ---- all_reduce ------------------------------------------------------------------------------------------------------

void Group::all_reduce_one(const at::Tensor &tensor, const ReduceOp &op)
{
    const Reduction r = reduction(tensor, op);

    if (is_plain(tensor))
        return all_reduce(r, tensor.data_ptr(), tensor.data_ptr(), size_t(tensor.numel()), comm_);
    Source from(tensor);
    Target to(tensor);

    all_reduce(r, from.data(), to.data(), size_t(tensor.numel()), comm_);
    to.store();
}

// Sparse tensors (COO): everybody's indices and values are gathered, and what has the same index is added.
WorkPointer Group::all_reduce_sparse(const at::Tensor &tensor, const c10d::AllreduceOptions &options)
{
    const ReduceOp::RedOpType op = options.reduceOp;

    if (tensor.layout() != at::kSparse || op != ReduceOp::SUM)
        throw_error("all_reduce of sparse tensors takes COO tensors and ReduceOp.SUM; use tensor.to_dense()");
    if (!tensor.device().is_cpu())
        check_tensor(tensor, "all_reduce");
    return submit(call(OpType::ALLREDUCE, "hocket:sparse_all_reduce", options, {}, {tensor}), [this, tensor] {
        const at::Tensor mine    = tensor.coalesce();
        const at::Tensor indices = mine.indices().t().contiguous(), values = mine.values().contiguous(); // both by element
        int64_t          count   = mine._nnz();
        std::vector<int64_t> counts(size_t(size_), 0);

        check(hkt_all_gather(&count, counts.data(), 1, HKT_INT64, comm_, nullptr), "all_reduce");
        int64_t             all   = 0;
        std::vector<size_t> index_counts, value_counts;
        const size_t        width = count ? size_t(values.numel() / count) : 0;

        size_t row = 1;
        for (int64_t d = tensor.sparse_dim(); d < tensor.dim(); d++)
            row *= size_t(tensor.size(d));
        TORCH_INTERNAL_ASSERT(!count || width == row);
        const Carrier as = carrier(values);
        for (const int64_t n : counts) {
            all += n;
            index_counts.push_back(size_t(n) * size_t(tensor.sparse_dim()));
            value_counts.push_back(size_t(n) * row * as.factor);
        }
        auto value_sizes = values.sizes().vec();
        value_sizes[0]   = all;
        const at::Tensor all_indices = at::empty({all, tensor.sparse_dim()}, indices.options()), all_values = at::empty(value_sizes, values.options());

        check(hkt_all_gather_v(indices.data_ptr(), all_indices.data_ptr(), index_counts.data(), nullptr, HKT_INT64, comm_, nullptr), "all_reduce");
        check(hkt_all_gather_v(values.data_ptr(), all_values.data_ptr(), value_counts.data(), nullptr, as.type, comm_, nullptr), "all_reduce");
        const at::Tensor sum = at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes()).coalesce();

        at::Tensor(tensor).copy_(sum);
    });
}

WorkPointer Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() != at::kStrided)
        return all_reduce_sparse(tensors[0], options);
    const at::Tensor tensor = the_one(tensors, "all_reduce");
    const Reduction  r      = reduction(tensor, options.reduceOp); // refuses before anything begins

    (void)r;
    return submit(call(OpType::ALLREDUCE, "hocket:all_reduce", options, {}, tensors),
                  [this, tensor, op = options.reduceOp] { all_reduce_one(tensor, op); });
}

WorkPointer Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    for (const auto &tensor : tensors) {
        check_tensor(tensor, "all_reduce_coalesced");
        reduction(tensor, options.reduceOp);
    }
    return submit(call(OpType::ALLREDUCE_COALESCED, "hocket:all_reduce", options, {}, tensors), [this, tensors, op = options.reduceOp] {
        for (const auto &tensor : tensors)
            all_reduce_one(tensor, op);
    });
}

// ---- reduce ----------------------------------------------------------------------------------------------------------

WorkPointer Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const at::Tensor tensor = the_one(tensors, "reduce");
    const Reduction  r      = reduction(tensor, options.reduceOp);
    const int        root   = int(options.rootRank);

    return submit(call(OpType::REDUCE, "hocket:reduce", options, {}, tensors), [this, tensor, r, root] {
        Source from(tensor);

        if (rank_ != root)
            return hocket::reduce(r, from.data(), nullptr, size_t(tensor.numel()), root, comm_);
        Target to(tensor);

        hocket::reduce(r, from.data(), to.data(), size_t(tensor.numel()), root, comm_);
        to.store();
    });
}

// ---- reduce_scatter --------------------------------------------------------------------------------------------------

WorkPointer Group::reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &options)
{
    const at::Tensor output = the_one(outputs, "reduce_scatter");

    if (inputs.size() != 1)
        throw_error("reduce_scatter takes one list of inputs a rank, not " + std::to_string(inputs.size()));
    const Tensors list = inputs[0];

    check_list(list, size_t(size_), output, "reduce_scatter");
    const Reduction r = reduction(output, options.reduceOp);

    return submit(call(OpType::REDUCE_SCATTER, "hocket:reduce_scatter", options, list, outputs), [this, output, list, r] {
        Source from(list, in_);
        Target to(output);

        hocket::reduce_scatter(r, from.data(), to.data(), size_t(output.numel()), comm_);
        to.store();
        in_.trim();
    });
}

static void check_scatter(const at::Tensor &output, const at::Tensor &input, int size)
{
    check_tensor(output, "reduce_scatter_tensor");
    check_tensor(input, "reduce_scatter_tensor");
    if (output.scalar_type() != input.scalar_type() || output.numel() * size != input.numel())
        throw_error("reduce_scatter_tensor: the input has to be world_size (" + std::to_string(size) + ") times the output, of the same type: there are " +
                    std::to_string(input.numel()) + " " + at::toString(input.scalar_type()) + " and " + std::to_string(output.numel()) + " " +
                    at::toString(output.scalar_type()));
}

void Group::reduce_scatter_one(const at::Tensor &output, const at::Tensor &input, const ReduceOp &op)
{
    Source from(input);
    Target to(output);

    hocket::reduce_scatter(reduction(output, op), from.data(), to.data(), size_t(output.numel()), comm_);
    to.store();
}

WorkPointer Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options)
{
    check_scatter(output, input, size_);
    reduction(output, options.reduceOp);
    return submit(call(OpType::_REDUCE_SCATTER_BASE, "hocket:_reduce_scatter_base", options, {input}, {output}),
                  [this, output = output, input = input, op = options.reduceOp] { reduce_scatter_one(output, input, op); });
}

WorkPointer Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &options)
{
    if (outputs.size() != inputs.size())
        throw_error("reduce_scatter_tensor_coalesced: " + std::to_string(outputs.size()) + " outputs for " + std::to_string(inputs.size()) + " inputs");
    for (size_t k = 0; k < outputs.size(); k++) {
        check_scatter(outputs[k], inputs[k], size_);
        reduction(outputs[k], options.reduceOp);
    }
    return submit(call(OpType::_REDUCE_SCATTER_BASE, "hocket:reduce_scatter", options, inputs, outputs),
                  [this, outputs, inputs, op = options.reduceOp] {
                      for (size_t k = 0; k < outputs.size(); k++)
                          reduce_scatter_one(outputs[k], inputs[k], op);
                  });
}

} // namespace hocket
