// movement.cpp -- the collectives that move data and compute nothing. See group.hpp.
#include "group.hpp"

#include "reduction.hpp"
#include "tensors.hpp"

namespace hocket {

using c10d::OpType;

static const Tensors &the_list(const TensorLists &lists, const char *what)
{
    if (lists.size() != 1)
        throw_error(std::string(what) + " takes one list of tensors a rank, not " + std::to_string(lists.size()));
    return lists[0];
}

static size_t units(const at::Tensor &tensor)
{
    return size_t(tensor.numel()) * carrier(tensor).factor;
}

WorkPointer Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    const at::Tensor tensor = the_one(tensors, "broadcast");
    const int        root   = int(options.rootRank);

    return submit(call(OpType::BROADCAST, "hocket:broadcast", options, {}, tensors), [this, tensor, root] {
        if (rank_ == root) {
            Source from(tensor);

            return check(hkt_broadcast(from.data(), const_cast<void *>(from.data()), units(tensor), carrier(tensor).type, root, comm_, nullptr),
                         "broadcast");
        }
        Target to(tensor);

        check(hkt_broadcast(nullptr, to.data(), units(tensor), carrier(tensor).type, root, comm_, nullptr), "broadcast");
        to.store();
    });
}

// ---- all_gather ------------------------------------------------------------------------------------------------------

static void check_gather(const at::Tensor &output, const at::Tensor &input, int size)
{
    check_tensor(output, "all_gather_into_tensor");
    check_tensor(input, "all_gather_into_tensor");
    if (output.scalar_type() != input.scalar_type() || input.numel() * size != output.numel())
        throw_error("all_gather_into_tensor: the output has to be world_size (" + std::to_string(size) +
                    ") times the input, of the same type: there are " + std::to_string(output.numel()) + " " + at::toString(output.scalar_type()) +
                    " and " + std::to_string(input.numel()) + " " + at::toString(input.scalar_type()));
}

void Group::all_gather_one(const at::Tensor &output, const at::Tensor &input)
{
    Source from(input);
    Target to(output);

    check(hkt_all_gather(from.data(), to.data(), units(input), carrier(input).type, comm_, nullptr), "all_gather");
    to.store();
}

WorkPointer Group::allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    const at::Tensor input = the_one(inputs, "all_gather");
    const Tensors    list  = the_list(outputs, "all_gather");

    check_list(list, size_t(size_), input, "all_gather");
    return submit(call(OpType::ALLGATHER, "hocket:all_gather", options, inputs, list), [this, input, list] {
        Source from(input);
        Target to(list, out_);

        check(hkt_all_gather(from.data(), to.data(), units(input), carrier(input).type, comm_, nullptr), "all_gather");
        to.store();
        out_.trim();
    });
}

WorkPointer Group::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options)
{
    check_gather(output, input, size_);
    return submit(call(OpType::_ALLGATHER_BASE, "hocket:_all_gather_base", options, {input}, {output}),
                  [this, output = output, input = input] { all_gather_one(output, input); });
}

// outputs[rank][k] from inputs[k].
WorkPointer Group::allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    Tensors              flat;
    std::vector<Tensors> lists(inputs.size());

    if (outputs.size() != size_t(size_))
        throw_error("all_gather_coalesced takes a list of outputs for each rank: " + std::to_string(size_) + ", not " + std::to_string(outputs.size()));
    for (const auto &of_rank : outputs)
        if (of_rank.size() != inputs.size())
            throw_error("all_gather_coalesced: " + std::to_string(of_rank.size()) + " outputs of a rank for " + std::to_string(inputs.size()) + " inputs");
    for (size_t k = 0; k < inputs.size(); k++) {
        check_tensor(inputs[k], "all_gather_coalesced");
        for (const auto &of_rank : outputs) {
            lists[k].push_back(of_rank[k]);
            flat.push_back(of_rank[k]);
        }
        check_list(lists[k], size_t(size_), inputs[k], "all_gather_coalesced");
    }
    return submit(call(OpType::ALLGATHER_COALESCED, "hocket:all_gather", options, inputs, flat), [this, lists, inputs] {
        for (size_t k = 0; k < inputs.size(); k++) {
            Source from(inputs[k]);
            Target to(lists[k], out_);

            check(hkt_all_gather(from.data(), to.data(), units(inputs[k]), carrier(inputs[k]).type, comm_, nullptr), "all_gather");
            to.store();
        }
        out_.trim();
    });
}

WorkPointer Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    if (outputs.size() != inputs.size())
        throw_error("all_gather_into_tensor_coalesced: " + std::to_string(outputs.size()) + " outputs for " + std::to_string(inputs.size()) + " inputs");
    for (size_t k = 0; k < inputs.size(); k++)
        check_gather(outputs[k], inputs[k], size_);
    return submit(call(OpType::_ALLGATHER_BASE, "hocket:all_gather", options, inputs, outputs), [this, outputs, inputs] {
        for (size_t k = 0; k < inputs.size(); k++)
            all_gather_one(outputs[k], inputs[k]);
    });
}

// ---- gather, scatter -------------------------------------------------------------------------------------------------

WorkPointer Group::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    const at::Tensor input = the_one(inputs, "gather");
    const int        root  = int(options.rootRank);
    const Tensors    list  = rank_ == root ? the_list(outputs, "gather") : Tensors();

    if (rank_ == root)
        check_list(list, size_t(size_), input, "gather");
    else if (!outputs.empty() && !outputs[0].empty())
        throw_error("gather: only the root, rank " + std::to_string(root) + ", gives outputs");
    return submit(call(OpType::GATHER, "hocket:gather", options, inputs, list), [this, input, list, root] {
        Source from(input);
        Target to(list, out_);

        check(hkt_gather(from.data(), to.data(), units(input), carrier(input).type, root, comm_, nullptr), "gather");
        to.store();
        out_.trim();
    });
}

WorkPointer Group::gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options)
{
    const int root = int(options.rootRank);

    check_tensor(input, "gather");
    if (rank_ == root)
        check_gather(output, input, size_);
    return submit(call(OpType::GATHER, "hocket:gather", options, {input}, rank_ == root ? Tensors{output} : Tensors()),
                  [this, output = output, input = input, root] {
                      Source from(input);

                      if (rank_ != root)
                          return check(hkt_gather(from.data(), nullptr, units(input), carrier(input).type, root, comm_, nullptr), "gather");
                      Target to(output);

                      check(hkt_gather(from.data(), to.data(), units(input), carrier(input).type, root, comm_, nullptr), "gather");
                      to.store();
                  });
}

WorkPointer Group::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options)
{
    const at::Tensor output = the_one(outputs, "scatter");
    const int        root   = int(options.rootRank);
    const Tensors    list   = rank_ == root ? the_list(inputs, "scatter") : Tensors();

    if (rank_ == root)
        check_list(list, size_t(size_), output, "scatter");
    else if (!inputs.empty() && !inputs[0].empty())
        throw_error("scatter: only the root, rank " + std::to_string(root) + ", gives inputs");
    return submit(call(OpType::SCATTER, "hocket:scatter", options, list, outputs), [this, output, list, root] {
        Source from(list, in_);
        Target to(output);

        check(hkt_scatter(from.data(), to.data(), units(output), carrier(output).type, root, comm_, nullptr), "scatter");
        to.store();
        in_.trim();
    });
}

// ---- all_to_all ------------------------------------------------------------------------------------------------------

using Counts = std::vector<size_t>;

// Elements for each rank, from rows; no rows given: equal shares.
static Counts counts_of(const at::Tensor &tensor, const std::vector<int64_t> &rows, int size)
{
    const Carrier as      = carrier(tensor);
    const int64_t all     = tensor.dim() ? tensor.size(0) : 0;
    const size_t  per_row = all ? size_t(tensor.numel() / all) * as.factor : 0;
    Counts        counts;

    for (int r = 0; r < size; r++)
        counts.push_back((rows.empty() ? size_t(all / size) : size_t(rows[size_t(r)])) * per_row);
    return counts;
}

static void check_rows(const at::Tensor &tensor, const std::vector<int64_t> &rows, int size, const char *which)
{
    const int64_t all = tensor.dim() ? tensor.size(0) : 0;
    int64_t       sum = 0;

    if (rows.empty()) {
        if (all % size)
            throw_error(std::string("all_to_all: the ") + which + " has " + std::to_string(all) + " rows: Tensor's dim 0 does not divide equally "
                        "across group size " + std::to_string(size) + "; give the splits");
        return;
    }
    if (rows.size() != size_t(size))
        throw_error(std::string("all_to_all: Number of tensor splits not equal to group size: ") + std::to_string(rows.size()) + " of the " + which +
                    ", " + std::to_string(size));
    for (const int64_t n : rows) {
        if (n < 0)
            throw_error(std::string("all_to_all: Split sizes must be non-negative; one of the ") + which + " is " + std::to_string(n));
        sum += n;
    }
    if (sum != all)
        throw_error(std::string("all_to_all: Split sizes doesn't match total dim 0 size: those of the ") + which + " add up to " +
                    std::to_string(sum) + ", it has " + std::to_string(all) + " rows");
}

WorkPointer Group::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                                 const c10d::AllToAllOptions &options)
{
    check_tensor(output, "all_to_all");
    check_tensor(input, "all_to_all");
    if (output.scalar_type() != input.scalar_type())
        throw_error(std::string("all_to_all: output is ") + at::toString(output.scalar_type()) + " and input " + at::toString(input.scalar_type()));
    check_rows(output, output_splits, size_, "output");
    check_rows(input, input_splits, size_, "input");
    const Counts to_counts = counts_of(output, output_splits, size_), from_counts = counts_of(input, input_splits, size_);

    return submit(call(OpType::ALLTOALL_BASE, "hocket:all_to_all", options, {input}, {output}),
                  [this, output = output, input = input, to_counts, from_counts] {
                      Source from(input);
                      Target to(output);

                      check(hkt_all_to_all_v(from.data(), from_counts.data(), nullptr, to.data(), to_counts.data(), nullptr, carrier(input).type, comm_,
                                             nullptr),
                            "all_to_all");
                      to.store();
                  });
}

WorkPointer Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    Counts to_counts, from_counts;

    if (outputs.size() != size_t(size_) || inputs.size() != size_t(size_))
        throw_error("all_to_all takes a tensor for each rank: " + std::to_string(size_) + " outputs and inputs, not " + std::to_string(outputs.size()) +
                    " and " + std::to_string(inputs.size()));
    for (const auto *tensors : {&outputs, &inputs})
        for (const auto &tensor : *tensors) {
            check_tensor(tensor, "all_to_all");
            if (tensor.scalar_type() != inputs[0].scalar_type())
                throw_error(std::string("all_to_all: all tensors need one type; there are ") + at::toString(inputs[0].scalar_type()) + " and " +
                            at::toString(tensor.scalar_type()));
            (tensors == &outputs ? to_counts : from_counts).push_back(units(tensor));
        }
    return submit(call(OpType::ALLTOALL, "hocket:all_to_all", options, inputs, outputs), [this, outputs, inputs, to_counts, from_counts] {
        Source from(inputs, in_);
        Target to(outputs, out_);

        check(hkt_all_to_all_v(from.data(), from_counts.data(), nullptr, to.data(), to_counts.data(), nullptr, carrier(inputs[0]).type, comm_, nullptr),
              "all_to_all");
        to.store();
        in_.trim();
        out_.trim();
    });
}

} // namespace hocket
