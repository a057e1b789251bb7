// What cards offer beside computing: what they are and how they are linked, memory shared between processes, recovery;
// and the kernels that are kept on disk.
#include "python/bound.h"
#include "python/devices/runtime_bindings.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "runtime/services/kernel_cache.h"
#include "runtime/services/sharing.h"
#include <cstring>

namespace ts::py_runtime {
namespace {

using ts::py::expect_device;
using ts::py::expect_tensor;

// None where the backend does not tell, or declines.
nb::object device_identity(const nb::object& device) {
  Device d = expect_device(device.ptr(), "identity");
  Backend& b = backend_of(d);
  b.check_index(d.index);
  if (!b.table().identify) return nb::none();
  ts_identity told{};
  told.struct_size = sizeof told;
  told.numa_node = -1;
  int status = b.table().identify(b.table().ctx, d.index, &told);
  if (status == TS_DECLINED) return nb::none();
  b.check(status, "identify");
  TS_CHECK(std::memchr(told.bus, 0, sizeof told.bus), "identify: backend '", b.name(), "' gave a bus without an end");
  return ts::py::dict_of({{"uuid", nb::bytes(told.uuid, sizeof told.uuid)},
                          {"bus", std::string(told.bus)},
                          {"numa_node", told.numa_node}});
}

nb::object device_link(const nb::object& device, int peer) {
  Device d = expect_device(device.ptr(), "link");
  Backend& b = backend_of(d);
  b.check_index(d.index);
  b.check_index(peer);
  if (!b.table().link || peer == d.index) return nb::none();
  ts_link told{};
  told.struct_size = sizeof told;
  int status = b.table().link(b.table().ctx, d.index, peer, &told);
  if (status == TS_DECLINED) return nb::none();
  b.check(status, "link");
  TS_CHECK(!(told.flags & ~uint32_t{TS_LINK_DIRECT}), "link: backend '", b.name(), "' tells the flags ", told.flags,
           "; expected some of TS_LINK_*");
  return ts::py::dict_of({{"direct", (told.flags & TS_LINK_DIRECT) != 0}, {"bandwidth", told.bandwidth}});
}

} // namespace

void define_services(nb::module_& m) {
  m.def("_device_identity", device_identity);
  m.def("_device_link", device_link);
  m.def("_recover", [](const nb::object& device) {
    Device d = expect_device(device.ptr(), "recover");
    backend_of(d).recover(d.index);
  });
  m.def("_export_memory", [](const nb::object& tensor) -> nb::object {
    std::string name = export_memory(expect_tensor(tensor.ptr(), "export_memory"));
    return name.empty() ? nb::object(nb::none()) : nb::object(ts::py::to_bytes(name));
  });
  m.def("_import_memory", [](const nb::object& device, const nb::bytes& name, int64_t nbytes, int lease) {
    Tensor t =
        import_memory(expect_device(device.ptr(), "import_memory"), std::string(ts::py::view(name)), nbytes, lease);
    return ts::py::steal(ts::py::wrap(std::move(t)));
  });
  // The address of its ts_communicator, 0 where there is none, and what its slots are given first.
  m.def("_communicator_table", [](const std::string& name) {
    Backend* b = find_backend(name);
    return nb::make_tuple(b ? reinterpret_cast<uintptr_t>(b->table().communicator) : uintptr_t{0},
                          b ? reinterpret_cast<uintptr_t>(b->table().ctx) : uintptr_t{0});
  });
  // The memory of a tensor as slots are given it: a handle, and the byte where it begins.
  m.def("_handle_of", [](const nb::object& tensor) {
    const Tensor& t = expect_tensor(tensor.ptr(), "handle");
    void* handle = t->storage ? t->storage->handle : nullptr;
    return nb::make_tuple(reinterpret_cast<uintptr_t>(handle), t->byte_offset);
  });
  m.def("_kernel_cache_folder", kernel_cache_folder);
  m.def("_kernel_cache_name", [](const nb::bytes& key) { return kernel_cache_name(ts::py::view(key)); });
  m.def("_read_kept_kernel", [](const std::string& folder, const std::string& name) -> nb::object {
    auto kept = read_kept_kernel(folder, name);
    return kept ? nb::object(ts::py::to_bytes(*kept)) : nb::object(nb::none());
  });
  m.def("_keep_kernel", [](const std::string& folder, const std::string& name, const nb::bytes& data) {
    return keep_kernel(folder, name, ts::py::view(data));
  });
}

} // namespace ts::py_runtime
