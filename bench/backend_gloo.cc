// backend_gloo.cc -- Gloo over its TCP transport: on one host over the loopback interface (it has no other). Kinds: "ring"
// is the functional interface with its default ring, as torch.distributed calls it; "halving-doubling" is the older
// class for all-reduce. Reduce-scatter exists only as an in-place class over the whole vector: the copies in and out
// are part of its cost.
#include "harness.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace
{

enum kind { RING, HALVING_DOUBLING };

std::shared_ptr<gloo::rendezvous::Context> context;
int                                        chosen;

// Objects made for a pointer and a count. Making one is collective; it happens in the checked operation, outside the
// timing.
struct made {
    void                            *at    = nullptr;
    size_t                           count = 0, width = 0;
    std::unique_ptr<gloo::Algorithm> algorithm;

    bool fits(void *p, size_t n, size_t w) const
    {
        return algorithm && at == p && count == n && width == w;
    }
};
made                                                                                       reducer, scatterer;
std::vector<float>                                                                         whole;
std::map<std::pair<const void *, size_t>, std::unique_ptr<gloo::transport::UnboundBuffer>> bound;

// Newer releases take the store by shared_ptr.
template <typename C>
auto connect(C &c, std::shared_ptr<gloo::rendezvous::FileStore> store, std::shared_ptr<gloo::transport::Device> device,
             int) -> decltype(c.connectFullMesh(store, device))
{
    return c.connectFullMesh(store, device);
}

template <typename C>
void connect(C &c, std::shared_ptr<gloo::rendezvous::FileStore> store, std::shared_ptr<gloo::transport::Device> device,
             long)
{
    c.connectFullMesh(*store, device);
}

template <typename F> int guarded(F f)
{
    try {
        return f();
    } catch (const std::exception &e) {
        fprintf(stderr, "gloo: %s\n", e.what());
        exit(5);
    }
}

int gloo_open(const struct world *world, char *version, size_t size)
{
    return guarded([=] {
        gloo::transport::tcp::attr attributes;

        attributes.hostname = world->address;
        context             = std::make_shared<gloo::rendezvous::Context>(world->rank, world->size);
        context->setTimeout(std::chrono::milliseconds(60000));
        connect(*context, std::make_shared<gloo::rendezvous::FileStore>(std::string(world->directory)),
                gloo::transport::tcp::CreateDevice(attributes), 0);
        snprintf(version, size, "Gloo");
        return 0;
    });
}

void gloo_close()
{
    fflush(nullptr);
    _Exit(0); // its own teardown may wait for ranks that have left
}

void gloo_select(int kind)
{
    chosen = kind;
}

void *gloo_allocate(int, size_t bytes)
{
    return aligned_alloc(4096, bytes);
}

void gloo_release(int, void *memory, size_t)
{
    reducer   = made();
    scatterer = made();
    bound.clear();
    free(memory);
}

template <typename T> int reduce_ring(const void *send, void *recv, size_t count)
{
    gloo::AllreduceOptions options(context);
    void (*const sum)(void *, const void *, const void *, size_t) = &gloo::sum<T>;

    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    if (send != recv)
        options.setInput((T *)send, count);
    options.setOutput((T *)recv, count);
    options.setReduceFunction(sum);
    gloo::allreduce(options);
    return 0;
}

template <typename T> int reduce_halving(const void *send, void *recv, size_t count)
{
    if (!reducer.fits(recv, count, sizeof(T))) {
        reducer = made();
        line_up();
        reducer.algorithm.reset(
            new gloo::AllreduceHalvingDoubling<T>(context, std::vector<T *>{(T *)recv}, (int)count));
        reducer.at    = recv;
        reducer.count = count;
        reducer.width = sizeof(T);
        line_up();
    }
    if (send != recv)
        memcpy(recv, send, count * sizeof(T));
    reducer.algorithm->run();
    return 0;
}

int gloo_all_reduce(const void *send, void *recv, size_t count, enum element type)
{
    if (type == BFLOAT16)
        return -1;
    return guarded([=] {
        if (type == FLOAT16)
            return chosen == RING ? reduce_ring<gloo::float16>(send, recv, count)
                                  : reduce_halving<gloo::float16>(send, recv, count);
        return chosen == RING ? reduce_ring<float>(send, recv, count) : reduce_halving<float>(send, recv, count);
    });
}

int gloo_reduce_scatter(const void *send, void *recv, size_t count, enum element type)
{
    const size_t n = (size_t)context->size;

    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        if (!scatterer.fits(recv, count, sizeof(float))) {
            scatterer = made();
            line_up();
            whole.resize(count * n);
            scatterer.algorithm.reset(new gloo::ReduceScatterHalvingDoubling<float>(
                context, std::vector<float *>{whole.data()}, (int)(count * n), std::vector<int>(n, (int)count),
                gloo::ReductionFunction<float>::sum));
            scatterer.at    = recv;
            scatterer.count = count;
            scatterer.width = sizeof(float);
            line_up();
        }
        memcpy(whole.data(), send, count * n * sizeof(float));
        scatterer.algorithm->run();
        memcpy(recv, whole.data(), count * sizeof(float));
        return 0;
    });
}

int gloo_all_gather(const void *send, void *recv, size_t count, enum element type)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        gloo::AllgatherOptions options(context);

        options.setInput((float *)send, count);
        options.setOutput((float *)recv, count * (size_t)context->size);
        gloo::allgather(options);
        return 0;
    });
}

int gloo_broadcast(void *buffer, size_t count, enum element type)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        gloo::BroadcastOptions options(context);

        options.setOutput((float *)buffer, count);
        options.setRoot(0);
        gloo::broadcast(options);
        return 0;
    });
}

int gloo_all_to_all(const void *send, void *recv, size_t count, enum element type)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        gloo::AlltoallOptions options(context);

        options.setInput((float *)send, count * (size_t)context->size);
        options.setOutput((float *)recv, count * (size_t)context->size);
        gloo::alltoall(options);
        return 0;
    });
}

gloo::transport::UnboundBuffer *buffer(const void *at, size_t bytes)
{
    auto &b = bound[std::make_pair(at, bytes)];

    if (!b)
        b = context->createUnboundBuffer(const_cast<void *>(at), bytes);
    return b.get();
}

int gloo_sendrecv(const void *send, int to, void *recv, int from, size_t count, enum element type)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        auto *out = buffer(send, count * sizeof(float)), *in = buffer(recv, count * sizeof(float));

        in->recv(from, 7000);
        out->send(to, 7000);
        out->waitSend();
        in->waitRecv();
        return 0;
    });
}

int gloo_send(const void *send, size_t count, enum element type, int to)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        auto *b = buffer(send, count * sizeof(float));

        b->send(to, 7001);
        b->waitSend();
        return 0;
    });
}

int gloo_receive(void *recv, size_t count, enum element type, int from)
{
    if (type != FLOAT32 || chosen != RING)
        return -1;
    return guarded([=] {
        auto *b = buffer(recv, count * sizeof(float));

        b->recv(from, 7001);
        b->waitRecv();
        return 0;
    });
}

} // namespace

extern "C" {
extern const struct backend the_backend = {
    1 /* one memory */, 0, gloo_open,       gloo_close,      gloo_select,         gloo_allocate,
    gloo_release,       nullptr,         gloo_all_reduce, gloo_reduce_scatter, gloo_all_gather,
    gloo_broadcast,     gloo_all_to_all, gloo_sendrecv,   gloo_send,           gloo_receive,
};
}
