#include "runtime/services/sharing.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "runtime/new_storage.h"
#include "runtime/recording_state.h"
#include "runtime/stream.h"
#include <unistd.h>

namespace ts {
namespace {

struct Lease {
  explicit Lease(int f) : file(f) {}
  ~Lease() {
    if (file >= 0) close(file);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  int file;
};

// What uses the memory may be on any stream.
void release_imported(Storage& s) {
  std::unique_ptr<Lease> lease(static_cast<Lease*>(s.deleter_ctx)); // the owner hears of it last
  if (is_gone(s)) return;
  try {
    synchronize_device(s.device);
  } catch (const Error& e) {
    warn(e.what(), "RuntimeWarning"); // there is nobody else to tell
  }
  const ts_backend& t = backend_of(s.device).table();
  t.sharing->release(t.ctx, s.device.index, s.handle);
}

} // namespace

std::string export_memory(const Tensor& t) {
  TS_CHECK(t.defined() && t->storage && t->storage->handle, "export_memory: expected a tensor with memory of its own");
  check_not_gone(*t->storage);
  check_recordable(t.device(), "sharing memory with other processes");
  Backend& b = backend_of(t.device());
  const ts_backend& table = b.table();
  if (!table.sharing) return {};
  SuspendInterpreter suspend(INT64_MAX);
  synchronize_device(t.device());
  std::string name(256, '\0');
  size_t bytes = name.size();
  auto ask = [&] {
    bytes = name.size();
    return table.sharing->export_memory(table.ctx, t.device().index, t->storage->handle, name.data(), &bytes);
  };
  int status = ask();
  for (int again = 0; status == TS_OK && bytes > name.size() && again < 3; ++again) {
    name.resize(bytes);
    status = ask();
  }
  if (status == TS_DECLINED) return {};
  b.check(status, "export_memory");
  TS_CHECK(bytes && bytes <= name.size(), "export_memory: backend '", b.name(), "' gave a name of ", bytes, " bytes");
  name.resize(bytes);
  return name;
}

Tensor import_memory(Device device, const std::string& name, int64_t nbytes, int file) {
  auto lease = std::make_unique<Lease>(file);
  Backend& b = backend_of(device);
  const ts_backend& table = b.table();
  TS_CHECK(table.sharing, "import_memory: backend '", b.name(), "' shares no memory between processes");
  TS_CHECK_VALUE(nbytes > 0, "import_memory: expected a positive number of bytes, got ", nbytes);
  b.allocator(device.index);
  void* handle = nullptr;
  {
    SuspendInterpreter suspend(INT64_MAX);
    b.check(table.sharing->import_memory(table.ctx, device.index, name.data(), name.size(), &handle), "import_memory");
  }
  TS_CHECK(handle, "import_memory: backend '", b.name(), "' gave no memory");
  void* host = b.host_pointer(device.index, handle);
  Storage* s = noted(Storage::make(device, static_cast<size_t>(nbytes), handle, host, release_imported, lease.get()));
  static_cast<void>(lease.release()); // the storage's now
  s->capacity = static_cast<size_t>(nbytes);
  s->stream = b.stream(device.index);
  s->epoch = b.epoch(device.index);
  int64_t sizes[] = {nbytes};
  return tensor_over(s, sizes, DType::UInt8);
}

} // namespace ts
