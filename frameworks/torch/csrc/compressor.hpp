// compressor.hpp -- a vector of fixed length that is all-reduced through one of Hocket's codecs, with the error feedback that belongs to it
// (hocket_train.h). What the communication hooks of DistributedDataParallel are made of.
#pragma once

#include "group.hpp"

#include <hocket_train.h>

#include <map>

namespace hocket {

class Compressor : public std::enable_shared_from_this<Compressor> {
public:
    struct Options {
        std::string                            codec;
        int64_t                                count; // fp32 elements
        uint64_t                               seed;
        int                                    feedback; // 1, 0; -1: where the codec is biased
        std::vector<std::pair<size_t, size_t>> matrices; // rows, columns (0: a vector), for powersgd
    };

    // Collective over the group.
    Compressor(const c10::intrusive_ptr<Base> &base, Group &group, const Options &options);
    ~Compressor();

    // In place, on the group's stream, in the order of its collectives.
    WorkPointer all_reduce(const at::Tensor &tensor, bool average);

    at::Tensor save();             // bytes
    void load(const at::Tensor &state);
    void reset();
    std::map<std::string, double> stats();
    std::string fault();           // of the last call; "" when there was none

private:
    const c10::intrusive_ptr<Base> base_; // keeps the group
    Group                         &group_;
    const size_t                   count_;
    hkt_compressor_t              *compressor_ = nullptr;
    WorkPointer                    last_;
    void                           quiet(); // waits until no call is under way
};

} // namespace hocket
