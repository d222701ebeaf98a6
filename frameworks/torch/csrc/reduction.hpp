// reduction.hpp -- PyTorch's types and operators as Hocket's, and those few that Hocket does not have.
#pragma once

#include "torch_api.hpp"

#include <hocket.h>

namespace hocket {

// How elements of a PyTorch type travel: `count` of them are count * factor of `type`.
struct Carrier {
    hkt_type_t type;
    size_t     factor;
};
Carrier carrier(const at::Tensor &tensor);

enum class Bits { NONE, AND, OR, XOR };

// A reduction: either an operator of Hocket, or one on bits, which is made of gathering and folding.
struct Reduction {
    Carrier carrier;
    hkt_op_t op;
    Bits     bits;
    bool     scaled; // a premultiplied sum
    double   scale;
};
// Throws when the type has no such operator, saying which it has.
Reduction reduction(const at::Tensor &tensor, const c10d::ReduceOp &op);

// out[count] = reduction over ranks of in[count] (all elements of PyTorch's type); in == out is allowed.
void all_reduce(const Reduction &r, const void *in, void *out, size_t count, hkt_comm_t *comm);
// out[count] = of in[rank * count ..]. in and out do not overlap.
void reduce_scatter(const Reduction &r, const void *in, void *out, size_t count, hkt_comm_t *comm);
// On root: out[count]; elsewhere out is scratch of the same size or NULL.
void reduce(const Reduction &r, const void *in, void *out, size_t count, int root, hkt_comm_t *comm);

} // namespace hocket
