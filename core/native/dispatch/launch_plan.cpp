#include "dispatch/launch_plan.h"
#include "runtime/border.h"
#include "runtime/recording_state.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace ts {
namespace {

const ts_tensor& operand(const ts_call& call, int32_t k) {
  return k < call.n_outputs ? *TS_OUT(&call, k) : *TS_IN(&call, k - call.n_outputs);
}

bool launch_plan_is_number(const ts_value& v) { return v.tag == TS_V_INT || v.tag == TS_V_FLOAT || v.tag == TS_V_BOOL; }

// Writes into room that is known to be enough.
struct Words {
  uint64_t* at;
  void put(uint64_t word) { *at++ = word; }
  void put(const int64_t* list, size_t n) {
    for (size_t k = 0; k < n; ++k) put(static_cast<uint64_t>(list[k]));
  }
  void put_bytes(const void* data, size_t bytes) {
    if (!bytes) return;
    at[(bytes - 1) / 8] = 0;
    std::memcpy(at, data, bytes);
    at += (bytes + 7) / 8;
  }
};

size_t length_of(const ts_value& v) {
  return v.tag == TS_V_STR ? std::strlen(v.as.str) : static_cast<size_t>(std::max(0, v.len));
}

// At most: what a call's words are.
size_t room_for(const ts_call& call) {
  size_t n = 6;
  for (int32_t k = 0; k < call.n_outputs; ++k) n += 1 + 2 * static_cast<size_t>(TS_OUT(&call, k)->ndim);
  for (int32_t k = 0; k < call.n_inputs; ++k) n += 1 + 2 * static_cast<size_t>(TS_IN(&call, k)->ndim);
  for (int32_t k = 0; k < call.n_params; ++k) n += 3 + length_of(call.params[k]);
  return n;
}

void sign_tensor(const ts_tensor& t, Words& out) {
  uint64_t head = static_cast<uint64_t>(t.flags) << 32 | static_cast<uint64_t>(t.dtype & 0xff) << 24 |
                  static_cast<uint64_t>(t.ndim & 0xffff) << 8;
  if (t.flags & (TS_T_SCALAR | TS_T_NONE)) return out.put(head);
  out.put(head | static_cast<uint64_t>(t.byte_offset & 15));
  out.put(t.sizes, static_cast<size_t>(t.ndim));
  out.put(t.strides, static_cast<size_t>(t.ndim));
}

void sign_value(const ts_value& v, bool changes, Words& out) {
  changes = changes && launch_plan_is_number(v);
  size_t length = length_of(v);
  out.put(static_cast<uint64_t>(v.tag) << 48 | static_cast<uint64_t>(changes) << 47 | length);
  if (changes) return;
  switch (v.tag) {
  case TS_V_NONE: break;
  case TS_V_STR: out.put_bytes(v.as.str, length); break;
  case TS_V_INTS:
  case TS_V_FLOATS: out.put_bytes(v.as.ptr, 8 * length); break;
  case TS_V_COMPLEX: out.put_bytes(v.as.ptr, 16); break;
  default: out.put(static_cast<uint64_t>(v.as.i)); break;
  }
}

// In two chains, which a processor follows at once.
uint64_t hash_words(std::span<const uint64_t> words) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  auto mix = [](uint64_t h, uint64_t w) { return (std::rotl(h, 23) ^ w) * kOdd; };
  uint64_t a = words.size(), b = kOdd;
  size_t k = 0;
  for (; k + 1 < words.size(); k += 2) {
    a = mix(a, words[k]);
    b = mix(b, words[k + 1]);
  }
  if (k < words.size()) a = mix(a, words[k]);
  a = mix(a, b);
  return a ^ a >> 29;
}

// --- patches -----------------------------------------------------------------------------------------------------

struct PatchValue {
  bool floating;
  int64_t i;
  double f;
};

PatchValue patch_value(const ts_call& call, const LaunchPatch& p) {
  if (p.kind == LaunchPatch::Param) {
    const ts_value& v = call.params[p.index];
    return {v.tag == TS_V_FLOAT, v.as.i, v.as.f};
  }
  const ts_tensor& t = operand(call, p.index);
  if (p.kind == LaunchPatch::Offset) return {false, t.byte_offset, 0};
  return {is_floating(static_cast<DType>(t.dtype)), t.scalar.i, t.scalar.f};
}

template <class T> bool store_integer(int64_t v, bool exact, unsigned char* to) {
  auto narrow = static_cast<T>(v);
  std::memcpy(to, &narrow, sizeof narrow);
  return !exact || static_cast<int64_t>(narrow) == v;
}

// False for an offset that does not fit. Other integers wrap, as conversions between dtypes do.
bool store_patch(const LaunchPatch& p, const PatchValue& v, unsigned char* to) {
  if (p.format == 'd' || p.format == 'f') {
    double d = v.floating ? v.f : static_cast<double>(v.i);
    auto single = static_cast<float>(d);
    p.format == 'd' ? std::memcpy(to, &d, sizeof d) : std::memcpy(to, &single, sizeof single);
    return true;
  }
  bool in_range = v.f >= -9223372036854775808.0 && v.f < 9223372036854775808.0;
  int64_t i = !v.floating ? v.i : in_range ? static_cast<int64_t>(v.f) : 0;
  bool exact = p.kind == LaunchPatch::Offset;
  switch (p.format) {
  case 'b': return store_integer<int8_t>(i, exact, to);
  case 'B': return store_integer<uint8_t>(i, exact, to);
  case 'h': return store_integer<int16_t>(i, exact, to);
  case 'H': return store_integer<uint16_t>(i, exact, to);
  case 'i': return store_integer<int32_t>(i, exact, to);
  case 'I': return store_integer<uint32_t>(i, exact, to);
  default: return store_integer<int64_t>(i, false, to);
  }
}

struct ReleaseStorage {
  void operator()(Storage* s) const { let_go(s); }
};

} // namespace

void LaunchSignature::sign(const ts_call& call, uint64_t changing, uint32_t epoch) {
  room_.reserve(room_for(call));
  Words out{room_.data()};
  out.put(call.program ? call.program->id : 0);
  bool inner = call.prologue || call.epilogue;
  out.put(static_cast<uint64_t>(static_cast<uint32_t>(call.opcode)) << 32 | static_cast<uint64_t>(inner) << 31 |
          static_cast<uint64_t>(call.flags & 0x7f) << 24 | static_cast<uint64_t>(call.compute_dtype & 0xff) << 16 |
          static_cast<uint64_t>(call.device_index));
  if (inner) {
    out.put(call.prologue ? call.prologue->id : 0);
    out.put(call.epilogue ? call.epilogue->id : 0);
  }
  out.put(static_cast<uint64_t>(call.n_outputs) << 42 | static_cast<uint64_t>(call.n_inputs) << 21 |
          static_cast<uint64_t>(call.n_params));
  for (int32_t k = 0; k < call.n_outputs; ++k) sign_tensor(*TS_OUT(&call, k), out);
  for (int32_t k = 0; k < call.n_inputs; ++k) sign_tensor(*TS_IN(&call, k), out);
  for (int32_t k = 0; k < call.n_params; ++k) sign_value(call.params[k], k < 64 && (changing >> k & 1), out);
  if (epoch) [[unlikely]]
    out.put(epoch);
  size_ = static_cast<size_t>(out.at - room_.data());
  hash_ = hash_words(words());
}

int LaunchPlan::run(const ts_call& call) const {
  if (declines) return TS_DECLINED;
  SmallVector<std::max_align_t, 16> block; // the arguments passed by value
  block.reserve((bytes.size() + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  auto* image = reinterpret_cast<unsigned char*>(block.data());
  if (!bytes.empty()) std::memcpy(image, bytes.data(), bytes.size());
  for (const LaunchPatch& p : patches) {
    if (p.kind == LaunchPatch::Offset && (p.format == 'q' || p.format == 'Q')) [[likely]]
      std::memcpy(image + p.at, &operand(call, p.index).byte_offset, sizeof(int64_t));
    else if (!store_patch(p, patch_value(call, p), image + p.at)) [[unlikely]] {
      set_last_error(concat("an offset of ", patch_value(call, p).i, " bytes does not fit the '", p.format,
                            "' that the launch plan gives it; use 'q'")
                         .c_str());
      return TS_ERROR;
    }
  }
  // Goes back to the allocator once the launches are queued: the stream's order keeps its next use apart.
  void* scratch = nullptr;
  if (workspace) try {
      scratch = static_cast<CallMemory*>(call.core)->take(workspace);
    } catch (const Error& e) {
      set_last_error(e.what());
      return status_of(e.kind());
    }
  SmallVector<ts_launch_argument, 12> list;
  for (const LaunchArgument& a : arguments)
    if (a.operand == LaunchArgument::kBytes)
      list.grow() = {sizeof(ts_launch_argument), image + a.at, a.size, TS_LA_BYTES, 0};
    else
      list.grow() = {sizeof(ts_launch_argument),
                     a.operand == LaunchArgument::kWorkspace ? &scratch : &operand(call, a.operand).handle,
                     sizeof(void*), TS_LA_HANDLE, 0};
  ts_launch launch{};
  launch.struct_size = sizeof launch;
  launch.host = call.host;
  launch.stream = call.stream;
  launch.device_index = call.device_index;
  launch.argument_size = sizeof(ts_launch_argument);
  launch.op = call.op;
  launch.number = call.number;
  for (const PlannedLaunch& l : launches) {
    launch.kernel = l.kernel;
    launch.n_arguments = static_cast<int32_t>(l.n_arguments);
    launch.arguments = list.data() + l.first_argument;
    std::memcpy(launch.groups, l.groups, sizeof l.groups);
    std::memcpy(launch.group_size, l.group_size, sizeof l.group_size);
    launch.shared_bytes = l.shared_bytes;
    int status = l.entry(&launch);
    if (status == TS_OK) [[likely]]
      continue;
    if (status == TS_DECLINED) set_last_error("the launcher declined a launch; decline when the plan is made");
    return status == TS_DECLINED ? TS_ERROR : status;
  }
  return TS_OK;
}

// --- the cache ---------------------------------------------------------------------------------------------------

struct LaunchPlanCache::Entry {
  uint64_t hash;
  std::vector<uint64_t> words;
  std::shared_ptr<const LaunchPlan> plan;
  std::atomic<bool> used{true}; // since the last sweep
};

// Open addressing, at most half full.
struct LaunchPlanCache::Table {
  explicit Table(size_t capacity) : mask(capacity - 1), slots(std::make_unique<std::atomic<Entry*>[]>(capacity)) {}
  size_t mask;
  std::unique_ptr<std::atomic<Entry*>[]> slots;
};

LaunchPlanCache::LaunchPlanCache(PlanTraffic& traffic) : traffic_(traffic), owned_table_(std::make_unique<Table>(16)) {
  table_ = owned_table_.get();
}
LaunchPlanCache::~LaunchPlanCache() = default;

LaunchPlanCache::Entry* LaunchPlanCache::find(const Table& table, const LaunchSignature& signature) {
  uint64_t hash = signature.hash();
  std::span<const uint64_t> words = signature.words();
  for (size_t at = hash & table.mask;; at = (at + 1) & table.mask) {
    Entry* e = table.slots[at].load(std::memory_order_acquire);
    if (!e) return nullptr;
    if (e->hash == hash && std::equal(words.begin(), words.end(), e->words.begin(), e->words.end())) return e;
  }
}

bool LaunchPlanCache::run(const LaunchSignature& signature, const ts_call& call, int& status) {
  PlanTraffic::Call reading(traffic_);
  Entry* e = find(*table_.load(), signature);
  if (!e) return false;
  reading.went_by_plan();
  if (!e->used.load(std::memory_order_relaxed)) e->used.store(true, std::memory_order_relaxed);
  status = e->plan->run(call);
  return true;
}

void LaunchPlanCache::put(Table& table, Entry* entry) {
  size_t at = entry->hash & table.mask;
  while (table.slots[at].load(std::memory_order_relaxed)) at = (at + 1) & table.mask;
  table.slots[at].store(entry, std::memory_order_release);
}

void LaunchPlanCache::rebuild(size_t capacity) {
  auto bigger = std::make_unique<Table>(capacity);
  for (auto& e : entries_) put(*bigger, e.get());
  retired_tables_.push_back(std::move(owned_table_));
  owned_table_ = std::move(bigger);
  table_.store(owned_table_.get());
}

void LaunchPlanCache::insert(const LaunchSignature& signature, std::shared_ptr<const LaunchPlan> plan) {
  std::lock_guard lock(mutex_);
  if (find(*owned_table_, signature)) return;
  if (entries_.size() >= kMaxPlans) {
    // What was used since the last sweep stays, unless that is nearly all.
    size_t kept = 0;
    for (size_t k = 0; k < entries_.size(); ++k) {
      bool stays = entries_[k]->used.exchange(false) && kept < kMaxPlans / 2;
      if (!stays)
        retired_entries_.push_back(std::move(entries_[k]));
      else if (kept++ != k)
        entries_[kept - 1] = std::move(entries_[k]);
    }
    entries_.resize(kept);
    rebuild(owned_table_->mask + 1);
  } else if (2 * (entries_.size() + 1) > owned_table_->mask + 1) {
    rebuild(4 * (owned_table_->mask + 1));
  }
  std::span<const uint64_t> words = signature.words();
  entries_.push_back(
      std::make_unique<Entry>(signature.hash(), std::vector(words.begin(), words.end()), std::move(plan)));
  put(*owned_table_, entries_.back().get());
  free_retired();
}

// A reader counted from here on sees the new table alone.
void LaunchPlanCache::free_retired() {
  if (!traffic_.idle()) return;
  retired_entries_.clear();
  retired_tables_.clear();
}

} // namespace ts
