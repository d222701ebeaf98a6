// module.cpp -- what Python sees: hocket.torch._C. Nothing is done here.
#include "compressor.hpp"
#include "group.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;
using namespace hocket;

static c10::intrusive_ptr<Base> create(const StorePointer &store, int rank, int size, const std::chrono::duration<float> &timeout,
                                       const std::string &name)
{
    return c10::make_intrusive<Group>(store, rank, size, std::chrono::duration_cast<Milliseconds>(timeout), name);
}

// The Group behind what Python holds: itself, or below a wrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL has none that could be looked through).
static Group &group_of(const c10::intrusive_ptr<Base> &base)
{
    auto *group = dynamic_cast<Group *>(base.get());

    if (!group)
        throw_error("this group's backend is not hocket but " + base->getBackendName());
    return *group;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    using Released = py::call_guard<py::gil_scoped_release>;

    m.attr("torch_version") = TORCH_VERSION;
    m.attr("hocket_version") = hkt_version();
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"), Released());
    m.def("report", [](const c10::intrusive_ptr<Base> &base) { return group_of(base).report(); }, Released());
    m.def("share", &share, Released());
    m.def("shared_count", &shared_count);
    m.def(
        "make_shared",
        [](const std::vector<int64_t> &sizes, const py::object &type) {
            if (!THPDtype_Check(type.ptr()))
                throw py::type_error("dtype has to be a torch.dtype");
            return make_shared(sizes, at::TensorOptions().dtype(reinterpret_cast<THPDtype *>(type.ptr())->scalar_type));
        },
        py::arg("sizes"), py::arg("dtype"));
    py::class_<Compressor, std::shared_ptr<Compressor>>(m, "Compressor")
        .def(py::init([](const c10::intrusive_ptr<Base> &base, const std::string &codec, int64_t count, uint64_t seed, int feedback,
                         const std::vector<std::pair<size_t, size_t>> &matrices) {
                 return std::make_shared<Compressor>(base, group_of(base), Compressor::Options{codec, count, seed, feedback, matrices});
             }),
             py::arg("backend"), py::arg("codec"), py::arg("count"), py::arg("seed"), py::arg("feedback"), py::arg("matrices"), Released())
        .def(
            "all_reduce",
            [](const std::shared_ptr<Compressor> &self, const at::Tensor &tensor, bool average) { return self->all_reduce(tensor, average); },
            py::arg("tensor"), py::arg("average"), Released())
        .def("save", &Compressor::save, Released())
        .def("load", &Compressor::load, Released())
        .def("reset", &Compressor::reset, Released())
        .def("stats", &Compressor::stats, Released())
        .def("fault", &Compressor::fault, Released());
}
