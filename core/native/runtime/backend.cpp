#include "runtime/call_copy.h"
#include "runtime/changes.h"
#include "runtime/computed_dtypes.h"
#include "runtime/interpreter.h"
#include "runtime/plugin.h"
#include "runtime/recording_state.h"
#include "runtime/services/device_profile.h"
#include "runtime/services/kernel_cache.h"
#include "runtime/stream.h"
#include <algorithm>
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

static int workspace_hook(const ts_call* call, size_t bytes, void** handle) {
  auto* memory = call ? static_cast<CallMemory*>(call->core) : nullptr;
  if (!memory || !handle) {
    set_last_error("workspace: expected the call of a running kernel");
    return TS_ERROR;
  }
  try {
    *handle = memory->take(bytes);
    return TS_OK;
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return TS_OUT_OF_MEMORY;
  }
}
static int copy_call_hook(const ts_call* call, ts_call** out) {
  if (!call || !out) {
    set_last_error("copy_call: expected a call, and where its copy is to be told");
    return TS_ERROR;
  }
  *out = copy_call(*call);
  return *out ? TS_OK : TS_OUT_OF_MEMORY;
}
constinit ts_host host_functions = {sizeof(ts_host),  TS_ABI_MAJOR, TS_ABI_MINOR,   set_last_error,
                                    interrupted_hook, log_hook,     nullptr,        workspace_hook,
                                    copy_call_hook,   free_call,    cache_get_hook, cache_put_hook};
void set_dispatch_table(const ts_dispatch* table) { host_functions.dispatch = table; }

// What to do when a device is lost.
static std::string after_loss(const std::string& backend) {
  const Backend* b = find_backend(backend);
  if (b && b->table().recover)
    return concat("what was on the device is lost: tesserack.backends.recover('", backend,
                  ":INDEX') makes it usable again, then load a checkpoint");
  return "what was on the device is lost, and its backend cannot recover it: start the process anew";
}

void check_not_gone(const Storage& s) {
  if (!is_gone(s)) return;
  fail(ErrorKind::DeviceLost, "expected a tensor made since ", s.device,
       " was recovered, got one of before, whose values were lost with the device; load them from a checkpoint");
}

void fail_status(int status, const std::string& backend, const char* what) {
  std::string message = take_last_error();
  if (message.empty())
    message = concat(what, ": backend '", backend, "' failed with status ", status);
  else if (!message.starts_with(concat(what, ": "))) // which kernels may say themselves
    message = concat(what, ": ", message);
  switch (status) {
  case TS_OUT_OF_MEMORY: throw Error(ErrorKind::OutOfMemory, message);
  case TS_INDEX_ERROR: throw Error(ErrorKind::Index, message);
  case TS_VALUE_ERROR: throw Error(ErrorKind::Value, message);
  case TS_DEVICE_LOST: throw Error(ErrorKind::DeviceLost, concat(message, "; ", after_loss(backend)));
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

bool checked_at_start() {
  const char* text = std::getenv("TESSERACK_CHECKED");
  return text && *text && std::strcmp(text, "0") != 0;
}
std::atomic<bool> checked_mode{checked_at_start()};

static constexpr size_t kGuardBytes = 256;
static constexpr uint8_t kGuardByte = 0xA5;

void* CallMemory::take(size_t bytes) {
  if (!given) given = std::make_unique<std::vector<Given>>();
  const bool guarded = checked_mode.load(std::memory_order_relaxed) && !RecordingState::current();
  Storage* s = backend.allocator(index).allocate(std::max<size_t>(bytes + (guarded ? kGuardBytes : 0), 1));
  given->push_back({s, bytes, guarded});
  if (guarded) {
    const std::vector<uint8_t> guard(kGuardBytes, kGuardByte);
    const ts_backend& t = backend.table();
    backend.check(t.copy_from_host(t.ctx, index, s->handle, static_cast<int64_t>(bytes), guard.data(), guard.size(),
                                   backend.stream(index)),
                  "workspace");
  }
  return s->handle;
}

void CallMemory::release() {
  for (const Given& g : *given) let_go(g.storage);
}

int CallMemory::check(const char* op) const {
  if (!given) return TS_OK;
  for (const Given& g : *given) {
    if (!g.guarded) continue;
    std::vector<uint8_t> found(kGuardBytes);
    const ts_backend& t = backend.table();
    void* stream = backend.stream(index);
    int status = t.copy_to_host(t.ctx, index, found.data(), g.storage->handle, static_cast<int64_t>(g.bytes),
                                found.size(), stream);
    if (status == TS_OK) status = t.synchronize(t.ctx, index, stream);
    if (status != TS_OK) return status;
    auto last = std::find_if(found.rbegin(), found.rend(), [](uint8_t b) { return b != kGuardByte; });
    if (last == found.rend()) continue;
    set_last_error(concat(op, ": wrote up to ", found.rend() - last, " bytes past the workspace of ", g.bytes,
                          " bytes that it asked for; ask for as many as the kernel uses")
                       .c_str());
    return TS_ERROR;
  }
  return TS_OK;
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
  bool told = status == TS_OK && count > 0 && table_.properties(table_.ctx, 0, &p) == TS_OK;
  std::lock_guard lock(mutex_);
  if (probed_) return;
  device_count_ = status == TS_OK && count > 0 ? count : 0;
  std::string said = take_last_error();
  reason_ = reason[0] ? std::string(reason) : said;
  if (device_count_ == 0 && reason_.empty()) reason_ = "no device found";
  devices_ = std::make_unique<DeviceEntry[]>(static_cast<size_t>(device_count_));
  if (told) note_memory(devices_[0], p);
  probed_ = true;
}

Backend::DeviceEntry::~DeviceEntry() {
  for (auto& chunk : kernels) delete chunk.load();
}

// Looking at memory that the device may be writing would be a wait that nobody sees: then the host copies.
void Backend::note_memory(DeviceEntry& d, const ts_properties& p) const {
  d.host = table_.host_pointer && (p.flags & TS_P_HOST_MEMORY) && !(p.flags & TS_P_ASYNC);
  d.async = table_.stream_create || (p.flags & TS_P_ASYNC);
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
  check_index(index);
  check(table_.properties(table_.ctx, index, &p), "properties");
  return p;
}

void Backend::check_index(int index) {
  int n = device_count();
  TS_CHECK_KIND(ErrorKind::BackendUnavailable, n > 0, "device: backend '", name_, "' from ", source_,
                " is installed but has no device: ", reason_, "; when that is mended: tesserack.backends.reload('",
                name_, "')");
  TS_CHECK(index >= 0 && index < n, "device: expected ", name_, " with an index below ", n, ", got ", name_, ":",
           index);
}

void Backend::check_claims(int index, const ts_properties& p) {
  auto claim = [&](bool holds, const auto&... words) {
    TS_CHECK(holds, "properties: backend '", name_, "' from ", source_, " tells of device ", index, " ", words...);
  };
  constexpr uint32_t kFlags = TS_P_HOST_MEMORY | TS_P_ATOMICS | TS_P_ASYNC | TS_P_SIMULATED;
  claim(std::memchr(p.name, 0, sizeof p.name) != nullptr, "a name without an end; the ", sizeof p.name,
        " bytes of ts_properties.name include a zero");
  claim(!(p.flags & ~kFlags), "the flags ", p.flags, "; expected some of TS_P_*, which are ", kFlags, " together");
  claim(!(p.dtypes >> TS_NUM_DTYPES), "the dtypes ", p.dtypes, "; expected bits of the ", int{TS_NUM_DTYPES},
        " dtypes");
  claim(!(p.flags & TS_P_HOST_MEMORY) || table_.host_pointer,
        "TS_P_HOST_MEMORY, but leaves the slot host_pointer empty; without it, leave the flag out");
  static const KernelId kCopyCast("copy_cast");
  constexpr uint64_t kComplex = uint64_t{1} << TS_COMPLEX64 | uint64_t{1} << TS_COMPLEX128;
  if (const ts_kernel* copies = p.dtypes & kComplex ? kernel(kCopyCast, index) : nullptr)
    claim(!(p.dtypes & kComplex & ~copies->dtypes),
          "complex dtypes, which its kernel copy_cast does not take; the core computes with pairs of real numbers "
          "where they are left out");
}

static void note_instructions(const std::string& backend, int index, const ts_properties& p, Backend::Limits& limits) {
  static constexpr int kBasic[] = {TS_I_COPY, TS_I_ADD, TS_I_SUB, TS_I_MUL,    TS_I_DIV,   TS_I_FMOD,
                                   TS_I_POW,  TS_I_EQ,  TS_I_LT,  TS_I_SELECT, TS_I_FLOOR, TS_I_SQRT,
                                   TS_I_EXP,  TS_I_LOG, TS_I_SIN, TS_I_COS,    TS_I_ATAN,  TS_I_AND,
                                   TS_I_OR,   TS_I_XOR, TS_I_SHL, TS_I_SHR};
  auto has = [](const uint64_t* words, int i) { return words[i / 64] >> (i % 64) & 1; };
  uint64_t any = 0;
  for (uint64_t word : p.instructions) any |= word;
  limits.instructions[0] = ~uint64_t{0}; // of a device that does not tell: TS_I_COPY to TS_I_FMA
  if (any) std::copy(std::begin(p.instructions), std::end(p.instructions), limits.instructions);
  for (int i : kBasic)
    TS_CHECK(has(limits.instructions, i), "properties: backend '", backend, "' tells instructions of device ", index,
             " without number ", i, ", one of those that every device has; see ts_properties.instructions in abi.h");
  for (int i = 0; i < TS_NUM_INSTRUCTIONS; ++i) limits.lowers |= !has(limits.instructions, i);
}

DeviceAllocator& Backend::open(int index) {
  check_index(index);
  DeviceEntry& d = devices_[static_cast<size_t>(index)];
  SuspendInterpreter suspend(INT64_MAX); // the thread that has the lock may be waiting for the interpreter
  std::lock_guard lock(d.opening);
  if (DeviceAllocator* known = d.allocator.load(std::memory_order_acquire)) return *known;
  if (table_.open) check(table_.open(table_.ctx, index), "open");
  ts_properties p = properties(index);
  TS_CHECK(p.max_ndim >= 0 && (p.alignment & (p.alignment - 1)) == 0, "properties: backend '", name_,
           "' tells a max_ndim of ", p.max_ndim, " and an alignment of ", p.alignment,
           "; expected 0 or more, and 0 or a power of two");
  check_claims(index, p);
  d.limits.max_allocation = p.max_allocation;
  d.limits.misaligned = p.alignment ? p.alignment - 1 : 0;
  d.limits.max_ndim = p.max_ndim ? std::min<int32_t>(p.max_ndim, TensorImpl::kMaxDims) : TensorImpl::kMaxDims;
  note_memory(d, p);
  note_computed_dtypes({id_, static_cast<int16_t>(index)}, p.dtypes);
  note_instructions(name_, index, p, d.limits);
  d.owned = std::make_unique<DeviceAllocator>(*this, static_cast<int16_t>(index));
  d.allocator.store(d.owned.get(), std::memory_order_release);
  profile_opened_device(*this, index);
  return *d.owned;
}

void Backend::recover(int index) {
  check_index(index);
  TS_CHECK(table_.recover, "recover: backend '", name_,
           "' cannot make a lost device usable again; start the process anew");
  TS_CHECK(!host_memory(index), "recover: ", Device{id_, static_cast<int16_t>(index)},
           " computes in memory of the host, which is not lost");
  DeviceEntry& d = devices_[static_cast<size_t>(index)];
  SuspendInterpreter suspend(INT64_MAX);
  std::lock_guard lock(d.opening);
  // From before the device is usable again nothing of it goes back: other threads may let go of it meanwhile.
  ++d.epoch;
  if (d.owned) d.owned->hold_back(true);
  if (int status = table_.recover(table_.ctx, index); status != TS_OK) {
    --d.epoch;
    if (d.owned) d.owned->hold_back(false);
    check(status, "recover");
  }
  d.last_launch = nullptr;
  kernel_changes.fetch_add(1); // parts of plans that were compiled for it are gone
  forget_streams({id_, static_cast<int16_t>(index)});
  if (!d.owned) return;
  d.limits.recovered = true;
  d.owned->abandon();
  auto fresh = std::make_unique<DeviceAllocator>(*this, static_cast<int16_t>(index));
  d.allocator.store(fresh.get(), std::memory_order_release);
  d.abandoned.push_back(std::exchange(d.owned, std::move(fresh)));
}

void Backend::check_wait(int status, int index, const char* what) const {
  if (status == TS_OK) [[likely]]
    return;
  const char* op = devices_[static_cast<size_t>(index)].last_launch.load(std::memory_order_relaxed);
  std::string message = take_last_error();
  if (message.empty()) message = "the device reports an error";
  set_last_error(message.c_str());
  if (op)
    set_last_error(concat(message, " (found while waiting; the last kernel queued was '", op,
                          "', and tesserack.backends.set_checked(True) raises at the one to blame)")
                       .c_str());
  fail_status(status, name_, what);
}

void* Backend::chosen_stream(int index) const { return current_stream_handle({id_, static_cast<int16_t>(index)}); }

void Backend::check(int status, const char* what) const {
  if (status != TS_OK) [[unlikely]]
    fail_status(status, name_, what);
}

void Backend::forget_kernel(const KernelId& id) {
  std::lock_guard lock(mutex_);
  ++forgotten_;
  kernel_changes.fetch_add(1);
  for (int d = 0; d < device_count_; ++d) kernel_slot(d, id).store(nullptr, std::memory_order_release);
}

std::atomic<const Backend::Entry*>& Backend::kernel_slot(int index, const KernelId& id) {
  auto at = static_cast<size_t>(id.index());
  std::atomic<Chunk*>& chunk = devices_[static_cast<size_t>(index)].kernels[at / KernelId::kChunk];
  if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Chunk{}, std::memory_order_release);
  return (*chunk.load(std::memory_order_relaxed))[at % KernelId::kChunk];
}

// What a kernel takes that does not say: of the dtypes below complex64, those that the device computes with.
static uint64_t usual_dtypes(const ts_properties& p) {
  constexpr uint64_t kAll = (uint64_t{1} << TS_COMPLEX64) - 1;
  return p.dtypes ? p.dtypes & kAll : kAll;
}

// An answer that was given before a kernel was replaced is not kept after it.
const Backend::Entry* Backend::resolve(const KernelId& id, int index) {
  const uint64_t asked = forgotten_.load();
  auto entry = std::make_unique<Entry>();
  entry->kernel.struct_size = sizeof(ts_kernel);
  int status = is_disabled(id.name()) ? TS_DECLINED : table_.get_kernel(table_.ctx, index, id.name(), &entry->kernel);
  entry->present = status == TS_OK && entry->kernel.run;
  if (status != TS_OK && status != TS_DECLINED) fail_status(status, name_, "get_kernel");
  if (entry->present) {
    constexpr uint32_t kFlags = TS_K_PROLOGUE | TS_K_EPILOGUE | TS_K_DEVICE_RANDOM;
    const ts_kernel& k = entry->kernel;
    TS_CHECK(!(k.flags & ~kFlags) && k.layouts <= (TS_L_CONTIGUOUS | TS_L_CHANNELS_LAST), "get_kernel: backend '",
             name_, "' from ", source_, " gives '", id.name(), "' the flags ", k.flags, " and the layouts ", k.layouts,
             "; expected some of TS_K_* and TS_L_*");
  }
  if (entry->kernel.dtypes == 0) entry->kernel.dtypes = usual_dtypes(properties(index));
  std::lock_guard lock(mutex_);
  owned_.push_back(std::move(entry));
  if (asked == forgotten_.load()) kernel_slot(index, id).store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

} // namespace ts
