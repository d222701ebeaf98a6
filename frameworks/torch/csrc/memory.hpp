// memory.hpp -- memory that the other ranks read and write in place.
#pragma once

#include "torch_api.hpp"

#include <hocket.h>

namespace hocket {

// The calling thread gives `tensor` (contiguous) to a collective. When it comes again and again and is large enough to matter, its pages
// become shared (hkt_comm_register()): same address, same contents, and private again when its storage is freed or resized. Whatever
// cannot be shared stays as it is.
//
// Why this is safe beside other threads: during a collective nobody may write to its tensors, and only the pages that the tensor
// covers alone are moved. What a child of fork() writes there afterwards its parent sees: HOCKET_TORCH_REGISTER=0 turns all this off.
void share_if_useful(const at::Tensor &tensor);

// At once, whatever its size. False: it cannot be shared.
bool share(const at::Tensor &tensor);

// A tensor in shared memory from the start, not initialised to anything but 0.
at::Tensor make_shared(at::IntArrayRef sizes, const at::TensorOptions &options);

// How many tensors are shared now.
size_t shared_count();

// Shared memory for tensors that have to be copied together. One user at a time.
class Scratch {
public:
    ~Scratch();
    void *get(size_t bytes);
    void  trim(); // gives much of it back

private:
    void  *memory_ = nullptr;
    size_t bytes_  = 0;
};

} // namespace hocket
