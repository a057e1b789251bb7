#include "runtime/interpreter.h"
#include "runtime/plugin.h"
#include "runtime/stream.h"
#include <cstdlib>
#include <cstring>
#include <map>

namespace ts {
namespace {

thread_local std::string t_last_error;

struct KernelNames {
  std::mutex mutex;
  std::map<std::string, int> index;
};
KernelNames& kernel_names_table() {
  static KernelNames names;
  return names;
}

int interrupted_hook() {
  auto hook = interpreter_hooks().interrupted;
  return hook && hook() ? 1 : 0;
}
void log_hook(int32_t level, const char* message) {
  if (!message) return;
  if (auto log = interpreter_hooks().log)
    log(level, message);
  else if (level >= 2)
    warn(message, "RuntimeWarning");
}

// Kernels named in TESSERACK_DISABLE_KERNELS, separated by commas, count as missing: so that decompositions can be
// tried on a backend that has the kernels.
bool is_disabled(const std::string& name) {
  static const std::string listed = [] {
    const char* text = std::getenv("TESSERACK_DISABLE_KERNELS");
    return text ? "," + std::string(text) + "," : std::string();
  }();
  return !listed.empty() && listed.find("," + name + ",") != std::string::npos;
}

} // namespace

void set_last_error(const char* message) { t_last_error = message ? message : ""; }
std::string take_last_error() { return std::exchange(t_last_error, {}); }

static ts_host& host() {
  static ts_host host = {sizeof(ts_host),  TS_ABI_MAJOR, TS_ABI_MINOR, set_last_error,
                         interrupted_hook, log_hook,     nullptr};
  return host;
}
const ts_host* host_table() { return &host(); }
void set_dispatch_table(const ts_dispatch* table) { host().dispatch = table; }

void fail_status(int status, const std::string& backend, const char* what) {
  std::string message = take_last_error();
  if (message.empty())
    message = concat(what, ": backend '", backend, "' failed with status ", status);
  else
    message = concat(what, ": ", message);
  switch (status) {
  case TS_OUT_OF_MEMORY: throw Error(ErrorKind::OutOfMemory, message);
  case TS_INDEX_ERROR: throw Error(ErrorKind::Index, message);
  case TS_VALUE_ERROR: throw Error(ErrorKind::Value, message);
  case TS_INTERRUPTED: throw Error(ErrorKind::Interrupted, message);
  case TS_DECLINED:
    throw Error(ErrorKind::NotImplemented, concat(what, ": backend '", backend, "' has no kernel for this case"));
  default: throw Error(ErrorKind::Runtime, message);
  }
}

KernelId::KernelId(const char* name) {
  KernelNames& names = kernel_names_table();
  std::lock_guard lock(names.mutex);
  auto it = names.index.find(name);
  if (it == names.index.end()) {
    if (names.index.size() >= kMax) fail(ErrorKind::Runtime, "kernel: more than ", kMax, " kernel names");
    it = names.index.emplace(name, static_cast<int>(names.index.size())).first;
  }
  index_ = it->second;
  name_ = it->first.c_str();
}

bool KernelId::known(const std::string& name) {
  std::lock_guard lock(kernel_names_table().mutex);
  return kernel_names_table().index.contains(name);
}

std::vector<std::string> kernel_names() {
  KernelNames& names = kernel_names_table();
  std::lock_guard lock(names.mutex);
  std::vector<std::string> all;
  for (auto& [name, index] : names.index) all.push_back(name);
  return all;
}

std::span<const char* const> required_kernels() {
  static constexpr const char* kRequired[] = {"copy_cast", "fill",   "iota",    "pointwise", "reduce",     "scan",
                                              "matmul",    "gather", "scatter", "sort",      "random_bits"};
  return kRequired;
}

Backend::Backend(int16_t id, const ts_backend* table, std::string source)
    : id_(id), table_{}, name_(table->name), vendor_(table->vendor ? table->vendor : ""),
      version_(table->version ? table->version : ""), source_(std::move(source)) {
  // An older plugin's table is shorter: what lies beyond its end stays NULL.
  std::memcpy(&table_, table, std::min(table->struct_size, sizeof(ts_backend)));
}

// Callbacks run without the lock: one written in Python waits for an interpreter that may be waiting for us.
void Backend::probe() {
  char reason[512] = "";
  int32_t count = 0;
  int status = table_.probe(table_.ctx, &count, reason, sizeof reason);
  reason[sizeof reason - 1] = 0;
  ts_properties p{};
  p.struct_size = sizeof p;
  bool host = status == TS_OK && count > 0 && table_.host_pointer && table_.properties(table_.ctx, 0, &p) == TS_OK &&
              (p.flags & TS_P_HOST_MEMORY);
  std::lock_guard lock(mutex_);
  if (probed_) return;
  device_count_ = status == TS_OK && count > 0 ? count : 0;
  std::string said = take_last_error();
  reason_ = reason[0] ? std::string(reason) : said;
  if (device_count_ == 0 && reason_.empty()) reason_ = "no device found";
  host_memory_ = host;
  for (int i = 0; i < device_count_; ++i)
    allocators_.push_back(std::make_unique<DeviceAllocator>(*this, static_cast<int16_t>(i)));
  probed_ = true;
}

int Backend::device_count() {
  if (!probed_) probe();
  return device_count_;
}

const std::string& Backend::reason() {
  device_count();
  return reason_;
}

ts_properties Backend::properties(int index) {
  ts_properties p{};
  p.struct_size = sizeof p;
  allocator(index); // validates the index
  check(table_.properties(table_.ctx, index, &p), "properties");
  return p;
}

DeviceAllocator& Backend::allocator(int index) {
  int n = device_count();
  TS_CHECK_KIND(ErrorKind::BackendUnavailable, n > 0, "device: backend '", name_, "' from ", source_,
                " is installed but has no device: ", reason_, "; when that is mended: tesserack.backends.reload('",
                name_, "')");
  TS_CHECK(index >= 0 && index < n, "device: expected ", name_, " with an index below ", n, ", got ", name_, ":",
           index);
  return *allocators_[static_cast<size_t>(index)];
}

void* Backend::stream(int index) const {
  return thread_state().on_stream ? current_stream_handle({id_, static_cast<int16_t>(index)}) : nullptr;
}

void Backend::check(int status, const char* what) const {
  if (status != TS_OK) [[unlikely]]
    fail_status(status, name_, what);
}

void Backend::forget_kernel(const KernelId& id) {
  std::lock_guard lock(mutex_);
  ++forgotten_;
  kernels_[static_cast<size_t>(id.index())].store(nullptr, std::memory_order_release);
}

// An answer that was given before a kernel was replaced is not kept after it.
const Backend::Entry* Backend::resolve(const KernelId& id) {
  const uint64_t asked = forgotten_.load();
  auto entry = std::make_unique<Entry>();
  entry->kernel.struct_size = sizeof(ts_kernel);
  int status = is_disabled(id.name()) ? TS_DECLINED : table_.get_kernel(table_.ctx, id.name(), &entry->kernel);
  entry->present = status == TS_OK && entry->kernel.run;
  if (status != TS_OK && status != TS_DECLINED) fail_status(status, name_, "get_kernel");
  if (entry->kernel.dtypes == 0) entry->kernel.dtypes = (uint64_t{1} << TS_COMPLEX64) - 1;
  std::lock_guard lock(mutex_);
  owned_.push_back(std::move(entry));
  if (asked == forgotten_.load())
    kernels_[static_cast<size_t>(id.index())].store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

} // namespace ts
