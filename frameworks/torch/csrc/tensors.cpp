// tensors.cpp -- see tensors.hpp.
#include "tensors.hpp"

#include <ATen/MemoryOverlap.h>

#include <cstring>

namespace hocket {

void check_tensor(const at::Tensor &tensor, const char *what)
{
    if (!tensor.defined())
        throw_error(std::string(what) + ": a tensor is undefined");
    if (!tensor.device().is_cpu())
        throw_error(std::string(what) + ": the tensor is on " + tensor.device().str() +
                    ", and this version of Hocket's backend handles CPU tensors only; use tensor.cpu(), or give that device another backend: "
                    "init_process_group(backend=\"cpu:hocket,cuda:nccl\")");
    if (tensor.layout() != at::kStrided)
        throw_error(std::string(what) + ": the tensor is sparse; only all_reduce takes such ones (COO, SUM); use tensor.to_dense()");
}

bool is_plain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

const at::Tensor &the_one(const Tensors &tensors, const char *what)
{
    if (tensors.size() != 1)
        throw_error(std::string(what) + " takes one tensor a rank, not " + std::to_string(tensors.size()));
    check_tensor(tensors[0], what);
    return tensors[0];
}

void check_list(const Tensors &tensors, size_t n, const at::Tensor &like, const char *what)
{
    if (tensors.size() != n)
        throw_error(std::string(what) + ": the list has to hold " + std::to_string(n) + " tensors, one for each rank; it holds " +
                    std::to_string(tensors.size()));
    for (const auto &tensor : tensors) {
        check_tensor(tensor, what);
        if (tensor.scalar_type() != like.scalar_type() || tensor.numel() != like.numel())
            throw_error(std::string(what) + ": all tensors of the list need one type and size: there are " + std::to_string(like.numel()) + " " +
                        at::toString(like.scalar_type()) + " and " + std::to_string(tensor.numel()) + " " + at::toString(tensor.scalar_type()));
    }
}

// Where they lie one after the other; NULL: they do not, or there is nothing. Empty ones lie anywhere, PyTorch has them at NULL.
static void *stretch_of(const Tensors &tensors)
{
    const at::Tensor *first = nullptr;
    const char       *next  = nullptr;

    for (const auto &tensor : tensors) {
        if (!tensor.nbytes())
            continue;
        const char *here = static_cast<const char *>(tensor.data_ptr());

        if (!is_plain(tensor) || (first && (here != next || !tensor.is_alias_of(*first))))
            return nullptr;
        if (!first)
            first = &tensor;
        next = here + tensor.nbytes();
    }
    return first ? first->data_ptr() : nullptr;
}

static size_t bytes_of(const Tensors &tensors)
{
    size_t bytes = 0;

    for (const auto &tensor : tensors)
        bytes += tensor.nbytes();
    return bytes;
}

// The memory at `at` as a tensor shaped like `like`.
static at::Tensor view_of(void *at, const at::Tensor &like)
{
    return at::from_blob(at, like.sizes(), like.options().requires_grad(false));
}

Source::Source(const at::Tensor &tensor) : tensor_(tensor.resolve_conj().resolve_neg().contiguous()), data_(tensor_.data_ptr()) {}

Source::Source(const Tensors &tensors, Scratch &scratch) : data_(stretch_of(tensors))
{
    if (data_ || tensors.empty())
        return;
    char *at = static_cast<char *>(scratch.get(bytes_of(tensors)));

    data_ = at;
    for (const auto &tensor : tensors) {
        if (is_plain(tensor) && tensor.nbytes())
            memcpy(at, tensor.data_ptr(), tensor.nbytes());
        else if (tensor.nbytes())
            view_of(at, tensor).copy_(tensor);
        at += tensor.nbytes();
    }
}

Target::Target(const at::Tensor &tensor) : tensor_(tensor), data_(tensor.data_ptr())
{
    if (is_plain(tensor))
        return;
    at::assert_no_internal_overlap(tensor);
    tensors_ = {tensor};
    tensor_  = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
    data_    = tensor_.data_ptr();
}

Target::Target(const Tensors &tensors, Scratch &scratch) : data_(stretch_of(tensors))
{
    if (data_ || tensors.empty())
        return;
    tensors_ = tensors;
    data_    = scratch.get(bytes_of(tensors));
}

void Target::store()
{
    char *at = static_cast<char *>(data_);

    for (auto &tensor : tensors_) {
        if (is_plain(tensor) && tensor.nbytes())
            memcpy(tensor.data_ptr(), at, tensor.nbytes());
        else if (tensor.nbytes())
            tensor.copy_(view_of(at, tensor));
        at += tensor.nbytes();
    }
}

} // namespace hocket
