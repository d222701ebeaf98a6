// tensors.hpp -- tensors as Hocket sees them: one stretch of memory. What does not lie so is copied, in scratch memory that the other
// ranks reach as well, and results are copied back.
#pragma once

#include "memory.hpp"
#include "work.hpp"

namespace hocket {

// On the CPU, dense, and such that results can be stored in it; else throws, saying what to do.
void check_tensor(const at::Tensor &tensor, const char *what);
// Does Hocket see the same numbers in its memory as PyTorch does? (Contiguous, no lazy conjugate.)
bool is_plain(const at::Tensor &tensor);
// Those of a call that takes one tensor.
const at::Tensor &the_one(const Tensors &tensors, const char *what);
// `n` of one type, shaped as `like`; of `what`.
void check_list(const Tensors &tensors, size_t n, const at::Tensor &like, const char *what);

// Where a tensor or several of the same type lie one after the other. For reading.
class Source {
public:
    explicit Source(const at::Tensor &tensor);
    Source(const Tensors &tensors, Scratch &scratch);
    const void *data() const { return data_; }

private:
    at::Tensor  tensor_; // keeps a copy
    const void *data_;
};

// The same for writing. store() brings the result to the caller's tensors.
class Target {
public:
    explicit Target(const at::Tensor &tensor);
    Target(const Tensors &tensors, Scratch &scratch);
    void *data() const { return data_; }
    void  store();

private:
    Tensors    tensors_; // of the caller, that need a copy
    at::Tensor tensor_;
    void      *data_;
};

} // namespace hocket
