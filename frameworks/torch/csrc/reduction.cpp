// reduction.cpp -- see reduction.hpp. Bools are bytes 0 and 1: their sum and maximum is "or", their product and minimum "and".
// Complex numbers are pairs, so that they have sums only. Operators on bits: the ranks' vectors are gathered a piece at a time and folded here.
#include "reduction.hpp"

#include "work.hpp"

#include <algorithm>
#include <cstring>

namespace hocket {

using c10d::ReduceOp;

static bool is_float8(at::ScalarType type, hkt_type_t *as)
{
#if HOCKET_TORCH_AT_LEAST(2, 1)
    if (type == at::kFloat8_e4m3fn)
        return *as = HKT_FLOAT8_E4M3, true;
    if (type == at::kFloat8_e5m2)
        return *as = HKT_FLOAT8_E5M2, true;
#endif
    (void)type, (void)as;
    return false;
}

// False: a type that can be moved but not reduced.
static bool numbers(at::ScalarType type, Carrier *as)
{
    static const struct {
        at::ScalarType type;
        Carrier        as;
    } table[] = {{at::kFloat, {HKT_FLOAT32, 1}},   {at::kDouble, {HKT_FLOAT64, 1}},       {at::kHalf, {HKT_FLOAT16, 1}},
                 {at::kBFloat16, {HKT_BFLOAT16, 1}}, {at::kLong, {HKT_INT64, 1}},           {at::kInt, {HKT_INT32, 1}},
                 {at::kShort, {HKT_INT16, 1}},     {at::kChar, {HKT_INT8, 1}},            {at::kByte, {HKT_UINT8, 1}},
                 {at::kBool, {HKT_UINT8, 1}},      {at::kComplexFloat, {HKT_FLOAT32, 2}}, {at::kComplexDouble, {HKT_FLOAT64, 2}},
                 {at::kComplexHalf, {HKT_FLOAT16, 2}},
#if HOCKET_TORCH_AT_LEAST(2, 3)
                 {at::kUInt16, {HKT_UINT16, 1}},   {at::kUInt32, {HKT_UINT32, 1}},        {at::kUInt64, {HKT_UINT64, 1}},
#endif
    };

    for (const auto &row : table)
        if (row.type == type)
            return *as = row.as, true;
    as->factor = 1;
    return is_float8(type, &as->type);
}

Carrier carrier(const at::Tensor &tensor)
{
    Carrier as;

    if (!numbers(tensor.scalar_type(), &as))
        as = {HKT_UINT8, size_t(tensor.element_size())};
    return as;
}

static const char *name_of(ReduceOp::RedOpType op)
{
    static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};

    return size_t(op) < sizeof(names) / sizeof(names[0]) ? names[op] : "UNUSED";
}

[[noreturn]] static void refuse(const at::Tensor &tensor, ReduceOp::RedOpType op, const char *why)
{
    throw_error(std::string("Cannot use ReduceOp.") + name_of(op) + " with " + at::toString(tensor.scalar_type()) + " tensors: " + why);
}

// The factor that is a tensor, or an undefined one. Old versions have one for each device.
template <typename Supplement>
static auto tensor_of(const Supplement &supplement, int) -> decltype(supplement.tensor_factor)
{
    return supplement.tensor_factor;
}
template <typename Supplement>
static at::Tensor tensor_of(const Supplement &supplement, long)
{
    return supplement.tensor_factors.empty() ? at::Tensor() : supplement.tensor_factors[0];
}

static double scale_of(const ReduceOp &op)
{
#if HOCKET_TORCH_AT_LEAST(2, 8)
    using Supplement = c10d::PreMulSumSupplement;
#else
    using Supplement = c10d::NCCLPreMulSumSupplement;
#endif
    const auto *supplement = dynamic_cast<const Supplement *>(op.supplement_.get());

    if (!supplement)
        throw_error("ReduceOp.PREMUL_SUM has no factor; make it with torch.distributed._make_nccl_premul_sum()");
    const at::Tensor tensor = tensor_of(*supplement, 0);

    return tensor.defined() ? tensor.item<double>() : supplement->double_factor;
}

static Reduction of_bools(const at::Tensor &tensor, ReduceOp::RedOpType op)
{
    switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR:
        return {{HKT_UINT8, 1}, HKT_MAX, Bits::NONE, false, 0};
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND:
        return {{HKT_UINT8, 1}, HKT_MIN, Bits::NONE, false, 0};
    case ReduceOp::BXOR:
        return {{HKT_UINT8, 1}, HKT_SUM, Bits::XOR, false, 0};
    default:
        refuse(tensor, op, "bools have no average");
    }
}

Reduction reduction(const at::Tensor &tensor, const ReduceOp &op)
{
    const ReduceOp::RedOpType kind = op;
    Reduction                 r    = {{HKT_UINT8, 1}, HKT_SUM, Bits::NONE, false, 0};

    if (tensor.scalar_type() == at::kBool)
        return of_bools(tensor, kind);
    if (!numbers(tensor.scalar_type(), &r.carrier))
        refuse(tensor, kind, "this type can be moved but not reduced");
    switch (kind) {
    case ReduceOp::SUM:
        return r;
    case ReduceOp::AVG:
        return r.op = HKT_AVG, r;
    case ReduceOp::PREMUL_SUM:
        return r.scaled = true, r.scale = scale_of(op), r;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::MAX:
        if (r.carrier.factor > 1)
            refuse(tensor, kind, "complex numbers have SUM, AVG and PREMUL_SUM");
        return r.op = kind == ReduceOp::PRODUCT ? HKT_PROD : kind == ReduceOp::MIN ? HKT_MIN : HKT_MAX, r;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
        if (!at::isIntegralType(tensor.scalar_type(), false))
            refuse(tensor, kind, "it works on integers and bools (non-integral dtype)");
        return r.bits = kind == ReduceOp::BAND ? Bits::AND : kind == ReduceOp::BOR ? Bits::OR : Bits::XOR, r;
    default:
        refuse(tensor, kind, "there is no such operator");
    }
}

// ---- operators on bits -----------------------------------------------------------------------------------------------

static void fold(Bits bits, uint8_t *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bits == Bits::AND ? to[i] & from[i] : bits == Bits::OR ? to[i] | from[i] : to[i] ^ from[i];
}

static int size_of(hkt_comm_t *comm)
{
    int n = 0;

    check(hkt_comm_size(comm, &n), "size");
    return n;
}

static constexpr size_t PIECE = 1 << 20; // bytes that are gathered at a time, of all ranks together

static void fold_all(Bits bits, const uint8_t *in, uint8_t *out, size_t bytes, hkt_comm_t *comm)
{
    const size_t         n = size_of(comm), piece = std::max<size_t>(PIECE / n, 1);
    std::vector<uint8_t> all(std::min(bytes, piece) * n);

    for (size_t at = 0; at < bytes; at += piece) {
        const size_t m = std::min(piece, bytes - at);

        check(hkt_all_gather(in + at, all.data(), m, HKT_UINT8, comm, nullptr), "all_reduce");
        memcpy(out + at, all.data(), m);
        for (size_t r = 1; r < n; r++)
            fold(bits, out + at, all.data() + r * m, m);
    }
}

static void fold_scatter(Bits bits, const uint8_t *in, uint8_t *out, size_t bytes, hkt_comm_t *comm)
{
    const size_t         n = size_of(comm);
    std::vector<uint8_t> all(bytes * n);

    check(hkt_all_to_all(in, all.data(), bytes, HKT_UINT8, comm, nullptr), "reduce_scatter");
    memcpy(out, all.data(), bytes);
    for (size_t r = 1; r < n; r++)
        fold(bits, out, all.data() + r * bytes, bytes);
}

// ---- the calls -------------------------------------------------------------------------------------------------------

namespace {
// The operator's handle, for the time of a call.
class Operator {
public:
    Operator(const Reduction &r, hkt_comm_t *comm) : op(r.op), comm_(r.scaled ? comm : nullptr)
    {
        if (comm_)
            check(hkt_op_create_premul_sum(&op, r.scale, comm_), "premul_sum");
    }
    ~Operator()
    {
        if (comm_)
            hkt_op_destroy(op, comm_);
    }
    Operator(const Operator &) = delete;
    Operator &operator=(const Operator &) = delete;

    hkt_op_t op;

private:
    hkt_comm_t *comm_;
};
} // namespace

void all_reduce(const Reduction &r, const void *in, void *out, size_t count, hkt_comm_t *comm)
{
    const Operator op(r, comm);

    if (r.bits != Bits::NONE)
        return fold_all(r.bits, static_cast<const uint8_t *>(in), static_cast<uint8_t *>(out), count * hkt_type_size(r.carrier.type), comm);
    check(hkt_all_reduce(in, out, count * r.carrier.factor, r.carrier.type, op.op, comm, nullptr), "all_reduce");
}

void reduce_scatter(const Reduction &r, const void *in, void *out, size_t count, hkt_comm_t *comm)
{
    const Operator op(r, comm);

    if (r.bits != Bits::NONE)
        return fold_scatter(r.bits, static_cast<const uint8_t *>(in), static_cast<uint8_t *>(out), count * hkt_type_size(r.carrier.type), comm);
    check(hkt_reduce_scatter(in, out, count * r.carrier.factor, r.carrier.type, op.op, comm, nullptr), "reduce_scatter");
}

void reduce(const Reduction &r, const void *in, void *out, size_t count, int root, hkt_comm_t *comm)
{
    const Operator op(r, comm);

    if (r.bits != Bits::NONE) {
        const size_t         bytes = count * hkt_type_size(r.carrier.type);
        std::vector<uint8_t> scratch(out ? 0 : bytes);

        return fold_all(r.bits, static_cast<const uint8_t *>(in), out ? static_cast<uint8_t *>(out) : scratch.data(), bytes, comm);
    }
    check(hkt_reduce(in, out, count * r.carrier.factor, r.carrier.type, op.op, root, comm, nullptr), "reduce");
}

} // namespace hocket
