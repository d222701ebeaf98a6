// memory.cpp -- see memory.hpp.
//
// A registration has to end before its memory is freed. PyTorch frees a storage's memory through the deleter of its DataPtr, also when
// the storage is resized; so the DataPtr is replaced by one that ends the registration and then lets the old one do its work.
//
// Registrations belong to a communicator of this process alone: what is shared with whom is found out by those that use the memory, and
// it outlives the groups.
#include "memory.hpp"

#include "work.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hocket {

static constexpr size_t LEAST = 32768, MOST = 256; // bytes from which on it is faster (measured), registrations at a time
static constexpr int    OFTEN = 3;                 // what comes for the third time will come again

static std::mutex          lock;
static std::atomic<size_t> registrations{0};

static hkt_comm_t *alone()
{
    static hkt_comm_t *comm = [] {
        hkt_comm_t     *made = nullptr;
        hkt_unique_id_t id;
        hkt_config_t    config = HKT_CONFIG_INIT;

        config.name = "memory of PyTorch";
        if (hkt_unique_id(&id) == HKT_OK)
            hkt_comm_init(&made, 1, &id, 0, &config);
        return made; // lives as long as the process
    }();

    return comm;
}

namespace {
struct Registered {
    at::DataPtr before; // owns the memory
    void       *handle;
};
} // namespace

static void end_registration(void *context)
{
    Registered *r = static_cast<Registered *>(context);

    {
        std::lock_guard<std::mutex> guard(lock);

        hkt_comm_deregister(r->handle, alone());
    }
    registrations--;
    delete r;
}

// `lock` is held.
static bool register_now(const at::Tensor &tensor)
{
    c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
    void             *handle;

    if (!alone() || registrations >= MOST || !tensor.nbytes() || hkt_comm_register(&handle, alone(), tensor.data_ptr(), tensor.nbytes()))
        return false;
    auto       *r       = new Registered{at::DataPtr(), handle};
    void       *pointer = storage->data_ptr().get();
    const auto  device  = storage->data_ptr().device();

    r->before = storage->set_data_ptr(at::DataPtr(pointer, r, end_registration, device));
    registrations++;
    return true;
}

bool share(const at::Tensor &tensor)
{
    std::lock_guard<std::mutex> guard(lock);

    return register_now(tensor);
}

size_t shared_count()
{
    return registrations;
}

// ---- what comes again ------------------------------------------------------------------------------------------------

namespace {
// A tensor seen of late. The weak pointer keeps the name of the storage, not its memory.
struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
    const void                               *data  = nullptr;
    size_t                                    bytes = 0;
    int                                       times = 0; // below 0: done with, shared or not
};
} // namespace

static bool wanted()
{
    static const bool on = [] {
        const char *text = getenv("HOCKET_TORCH_REGISTER");

        return !text || strcmp(text, "0") != 0;
    }();

    return on;
}

void share_if_useful(const at::Tensor &tensor)
{
    static Seen      *seen = new Seen[MOST]; // direct-mapped; never freed: storages may end after us
    const size_t      bytes = tensor.layout() == at::kStrided ? tensor.nbytes() : 0; // sparse ones have no such thing
    const void       *data;
    c10::StorageImpl *storage;

    if (bytes < LEAST || !wanted())
        return;
    std::lock_guard<std::mutex> guard(lock);

    data    = tensor.data_ptr();
    storage = tensor.storage().unsafeGetStorageImpl();
    Seen &s = seen[(reinterpret_cast<uintptr_t>(data) >> 12) * 0x9e3779b1u % MOST];

    if (s.storage._unsafe_get_target() != storage || s.storage.expired()) {
        s.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(storage));
        s.times   = 0;
    } else if (s.times < 0)
        return; // also when the storage was resized since: it will be resized again
    else if (s.data != data || s.bytes != bytes)
        s.times = 0;
    s.data  = data;
    s.bytes = bytes;
    if (++s.times < OFTEN)
        return;
    s.times = -1;
    register_now(tensor);
}

// ---- memory that is shared from the start ----------------------------------------------------------------------------

at::Tensor make_shared(at::IntArrayRef sizes, const at::TensorOptions &options)
{
    int64_t count = 1;
    void   *memory;

    for (const int64_t size : sizes)
        count *= size;
    check(hkt_mem_alloc(&memory, size_t(count) * options.dtype().itemsize()), "shared tensor");
    return at::from_blob(memory, sizes, [](void *p) { hkt_mem_free(p); }, options.device(at::kCPU));
}

Scratch::~Scratch()
{
    hkt_mem_free(memory_);
}

void *Scratch::get(size_t bytes)
{
    if (bytes > bytes_) {
        const size_t room = std::max(bytes, 2 * bytes_);

        hkt_mem_free(memory_);
        memory_ = nullptr;
        bytes_  = 0;
        check(hkt_mem_alloc(&memory_, room), "scratch memory");
        bytes_ = room;
    }
    return memory_;
}

void Scratch::trim()
{
    if (bytes_ > size_t(64) << 20) {
        hkt_mem_free(memory_);
        memory_ = nullptr;
        bytes_  = 0;
    }
}

} // namespace hocket
