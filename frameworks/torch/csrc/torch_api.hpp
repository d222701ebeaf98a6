// torch_api.hpp -- what differs between the versions of PyTorch, 1.13 to 2.x, so that no other file asks for a version.
//
// Virtuals that only some versions have are declared without `override` (group.hpp): where the base declares them they override,
// elsewhere they are plain members. Options that only some versions have are asked for by shape, below.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#define HOCKET_TORCH_AT_LEAST(major, minor)                                                                             \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if HOCKET_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace hocket {

#if HOCKET_TORCH_AT_LEAST(2, 0)
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using Milliseconds = std::chrono::milliseconds;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// Whether the caller goes on before the work is done. Versions without asyncOp do not say, so: yes.
template <typename Options>
auto is_async(const Options &options, int) -> decltype(options.asyncOp)
{
    return options.asyncOp;
}
template <typename Options>
bool is_async(const Options &, long)
{
    return true;
}

} // namespace hocket
