// compressor.cpp -- see compressor.hpp.
#include "compressor.hpp"

#include "tensors.hpp"

namespace hocket {

Compressor::Compressor(const c10::intrusive_ptr<Base> &base, Group &group, const Options &options)
    : base_(base), group_(group), count_(size_t(options.count))
{
    hkt_compressor_config_t        config = HKT_COMPRESSOR_CONFIG_INIT;
    std::vector<hkt_codec_shape_t> shapes;

    for (const auto &matrix : options.matrices)
        shapes.push_back({matrix.first, matrix.second});
    config.codec        = options.codec.c_str();
    config.seed         = options.seed;
    config.feedback     = options.feedback;
    config.matrices     = shapes.empty() ? nullptr : shapes.data();
    config.matrix_count = int(shapes.size());
    group_.run("hocket:compressor", {}, [&] { check(hkt_compressor_create(&compressor_, count_, &config, group_.comm(), nullptr), "compressor"); })
        ->wait();
}

Compressor::~Compressor()
{
    const Unlocked unlocked;

    try {
        quiet();
    } catch (const std::exception &) { // whoever held the work was told
    }
    hkt_compressor_destroy(compressor_);
}

void Compressor::quiet()
{
    if (last_)
        last_->wait();
}

WorkPointer Compressor::all_reduce(const at::Tensor &tensor, bool average)
{
    check_tensor(tensor, "compressed all_reduce");
    if (tensor.scalar_type() != at::kFloat || !is_plain(tensor) || size_t(tensor.numel()) != count_)
        throw_error("a compressor takes contiguous float32 tensors of the " + std::to_string(count_) + " elements that it was made for, not " +
                    std::to_string(tensor.numel()) + " " + at::toString(tensor.scalar_type()));
    share_if_useful(tensor);
    auto self = shared_from_this();

    last_ = group_.run("hocket:compressed_all_reduce", {tensor}, [self, tensor, average] {
        float *data = static_cast<float *>(tensor.data_ptr());

        check(hkt_compressor_all_reduce(self->compressor_, data, data, self->count_, average, nullptr), "compressed all_reduce");
    });
    return last_;
}

at::Tensor Compressor::save()
{
    size_t bytes;

    quiet();
    check(hkt_compressor_state_size(&bytes, compressor_), "compressor state");
    at::Tensor state = at::empty({int64_t(bytes)}, at::kByte);

    check(hkt_compressor_save(state.data_ptr(), compressor_), "compressor state");
    return state;
}

void Compressor::load(const at::Tensor &state)
{
    const at::Tensor bytes = state.to(at::kCPU, at::kByte).contiguous();

    quiet();
    check(hkt_compressor_load(compressor_, bytes.data_ptr(), bytes.nbytes()), "compressor state");
}

void Compressor::reset()
{
    quiet();
    check(hkt_compressor_reset(compressor_), "compressor");
}

std::map<std::string, double> Compressor::stats()
{
    hkt_compressor_stats_t s;

    quiet();
    check(hkt_compressor_stats(&s, compressor_), "compressor");
    return {{"calls", double(s.calls)},     {"faults", double(s.faults)}, {"code_bytes", double(s.code_bytes)}, {"ratio", s.ratio},
            {"code_s", s.code_s},           {"wire_s", s.wire_s},         {"plain_s", s.plain_s},               {"coded_s", s.coded_s}};
}

std::string Compressor::fault()
{
    quiet();
    return hkt_compressor_fault(compressor_);
}

} // namespace hocket
