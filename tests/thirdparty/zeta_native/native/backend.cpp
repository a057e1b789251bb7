// Two simulated devices whose memory the host does not see, with streams that do nothing. The kernels are the ones that
// `tesserack new-backend --native` writes: the required set and nothing else. They offer what a driver does besides: a
// profile, memory that other processes open, who they are, and, asked for kLosing bytes, a device that is lost.
#include <tesserack/backend.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using tesserack::backend::Activities;
using tesserack::backend::fail;

namespace {

constexpr size_t kLimit = size_t{256} << 20, kLosing = 66613;
std::atomic<size_t> used[2];
std::atomic<bool> lost[2];
std::mutex mutex; // of all that follows

// In front of every block stands whose it is, so that a mix-up of devices is an error and not a wrong number.
struct alignas(64) Header {
  int device;
};

struct Mapping {
  int device, file; // -1: another process'
  size_t bytes;     // with the header
};
std::map<void*, Mapping> mappings; // by handle

struct Done {
  std::string name;
  ts_activity activity;
};
bool profiling[2];
std::deque<Done> done[2];
std::vector<Done> ranges[2];

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

void tell(int device, int kind, const char* name, int64_t begin, int64_t value, uint64_t call = 0) {
  std::lock_guard lock(mutex);
  if (profiling[device]) done[device].push_back({name, {0, kind, 0, nullptr, call, nullptr, begin, now(), value}});
}

void check(int device) {
  if (lost[device]) fail(TS_DEVICE_LOST, "zeta:%d fell off its bus", device);
}

char* block(int device, const void* handle) {
  check(device);
  char* bytes = static_cast<char*>(const_cast<void*>(handle));
  if (reinterpret_cast<Header*>(bytes - sizeof(Header))->device != device)
    fail(TS_ERROR, "a block of another device was used on zeta:%d", device);
  return bytes;
}

void* map(int device, int file, size_t bytes, bool own) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) fail(TS_OUT_OF_MEMORY, "zeta:%d cannot map %zu bytes", device, bytes);
  void* handle = static_cast<char*>(start) + sizeof(Header);
  std::lock_guard lock(mutex);
  mappings[handle] = {device, own ? file : -1, bytes};
  return handle;
}

void unmap(void* handle, const Mapping& m) {
  munmap(static_cast<char*>(handle) - sizeof(Header), m.bytes);
  if (m.file >= 0) close(m.file);
}

void forget(void* handle) {
  std::lock_guard lock(mutex);
  auto found = mappings.find(handle);
  unmap(handle, found->second);
  mappings.erase(found);
}

struct Zeta {
  static constexpr bool own_allocator = true;

  static int count(std::string&) { return 2; }
  static void describe(int device, ts_properties& out) {
    std::snprintf(out.name, sizeof out.name, "Zeta %d", device);
    out.total_memory = kLimit;
    out.free_memory = kLimit - used[device];
    out.dtypes = (uint64_t{1} << TS_COMPLEX64) - 1;
    out.flags = TS_P_SIMULATED;
  }
  static void* allocate(int device, size_t bytes, void*) {
    if (bytes == kLosing) lost[device] = true;
    check(device);
    if (used[device] + bytes > kLimit) return nullptr;
    const int file = memfd_create("zeta", MFD_CLOEXEC);
    const size_t whole = sizeof(Header) + (bytes + 63) / 64 * 64;
    if (file < 0 || ftruncate(file, static_cast<off_t>(whole)) != 0) return nullptr;
    char* handle = static_cast<char*>(map(device, file, whole, true));
    used[device] += bytes;
    new (handle - sizeof(Header)) Header{device};
    tell(device, TS_A_MEMORY, "blocks", now(), static_cast<int64_t>(bytes));
    return handle;
  }
  static void release(int device, void* handle, size_t bytes, void*) {
    if (lost[device]) return;
    static_cast<void>(block(device, handle));
    used[device] -= bytes;
    forget(handle);
    tell(device, TS_A_MEMORY, "blocks", now(), -static_cast<int64_t>(bytes));
  }
  static void copy(int device, void* dst, const void* src, size_t bytes, const char* name) {
    const int64_t begin = now();
    std::memmove(dst, src, bytes);
    tell(device, TS_A_COPY, name, begin, static_cast<int64_t>(bytes));
  }
  static void copy_from_host(int device, void* dst, int64_t offset, const void* src, size_t bytes, void*) {
    copy(device, block(device, dst) + offset, src, bytes, "from host");
  }
  static void copy_to_host(int device, void* dst, const void* src, int64_t offset, size_t bytes, void*) {
    copy(device, dst, block(device, src) + offset, bytes, "to host");
  }
  static void copy_within(int device, void* dst, int64_t to, const void* src, int64_t from, size_t bytes, void*) {
    copy(device, block(device, dst) + to, block(device, src) + from, bytes, "within");
  }
  static void synchronize(int device, void*) { check(device); }

  static void profile_start(int device) {
    std::lock_guard lock(mutex);
    profiling[device] = true;
    done[device].clear();
  }
  static void profile_collect(int device, const Activities& to) {
    std::lock_guard lock(mutex);
    for (Done& one : done[device]) {
      one.activity.name = one.name.c_str();
      to.add(one.activity);
    }
    done[device].clear();
  }
  static void profile_stop(int device) {
    std::lock_guard lock(mutex);
    profiling[device] = false;
  }
  static void profile_push(int device, const char* name, void*) {
    std::lock_guard lock(mutex);
    ranges[device].push_back({name, {0, TS_A_RANGE, 0, nullptr, 0, nullptr, now(), 0, 0}});
  }
  static void profile_pop(int device, void*) {
    std::lock_guard lock(mutex);
    Done range = std::move(ranges[device].back());
    ranges[device].pop_back();
    range.activity.end = now();
    done[device].push_back(std::move(range));
  }

  static std::string export_memory(int device, void* handle) {
    static_cast<void>(block(device, handle));
    std::lock_guard lock(mutex);
    const Mapping& m = mappings.at(handle);
    if (m.file < 0) return {};
    char name[96];
    std::snprintf(name, sizeof name, "/proc/%d/fd/%d %zu", getpid(), m.file, m.bytes);
    return name;
  }
  static void* import_memory(int device, std::string_view name) {
    check(device);
    const size_t space = name.find(' ');
    const int file = open(std::string(name.substr(0, space)).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) fail(TS_ERROR, "zeta:%d: the process that shared the memory is gone", device);
    void* handle = map(device, file, std::stoull(std::string(name.substr(space))), false);
    close(file);
    return handle;
  }
  static void release_imported(int, void* handle) { forget(handle); }

  static void identify(int device, ts_identity& out) {
    std::memcpy(out.uuid, "zeta simulated ", 15);
    out.uuid[15] = static_cast<uint8_t>(device);
    std::snprintf(out.bus, sizeof out.bus, "0000:0%d:00.0", device + 1);
    out.numa_node = 0;
  }
  static void link(int, int, ts_link& out) { out.bandwidth = 25'000'000'000; }
  static void recover(int device) {
    std::lock_guard lock(mutex);
    std::erase_if(mappings, [&](const auto& entry) {
      if (entry.second.device == device) unmap(entry.first, entry.second);
      return entry.second.device == device;
    });
    used[device] = 0;
    lost[device] = false;
  }
};

// Every kernel, with the time it takes.
int run_timed(const ts_call* call) {
  const auto& kernel = *static_cast<const ts_kernel*>(call->kernel_ctx);
  if (lost[call->device_index]) return tesserack::backend::guard([&] { check(call->device_index); });
  ts_call own = *call;
  own.kernel_ctx = kernel.ctx;
  const int64_t begin = now();
  const int status = kernel.run(&own);
  if (status == TS_OK) tell(call->device_index, TS_A_KERNEL, call->op, begin, 0, call->number);
  return status;
}

int get_kernel(void* ctx, int32_t device, const char* op, ts_kernel* out) {
  const int status = tesserack::backend::Slots<Zeta>::get_kernel(ctx, device, op, out);
  if (status != TS_OK) return status;
  out->ctx = new ts_kernel(*out); // for good, as the core keeps it
  out->run = run_timed;
  out->prepare = nullptr;
  return TS_OK;
}

} // namespace

// As TESSERACK_BACKEND does, with a slot of our own.
extern "C" __attribute__((visibility("default"))) int tesserack_backend(const ts_host* core, const ts_backend** out) {
  tesserack::backend::host() = core;
  static ts_backend table = tesserack::backend::make_table<Zeta>("zeta", "com.zeta.simulated", "0.9");
  table.get_kernel = get_kernel;
  *out = &table;
  return TS_OK;
}
