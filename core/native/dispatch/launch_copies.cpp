// Kernel calls on copies: contiguous ones for kernels that need them, cpu ones for kernels a backend lacks.
#include "dispatch/describe.h"
#include "dispatch/launch.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "runtime/transfer_guard.h"
#include "tensor/geometry.h"
#include <deque>
#include <map>
#include <mutex>

namespace ts {
namespace {

const KernelId kCopy("copy_cast");

struct Fallbacks {
  std::mutex mutex;
  std::map<std::string, int64_t> counts;
  std::atomic<int> mode{1};
};
Fallbacks& fallbacks() {
  static Fallbacks f;
  return f;
}

Tensor contiguous_copy(const Tensor& t) {
  Tensor c = empty_tensor(t.sizes(), t.dtype(), t.device());
  if (t.numel()) Launch(kCopy, t.device()).out(c).in(t).run_required();
  return c;
}

Tensor to_device(const Tensor& t, Device device) {
  Tensor src = t.is_contiguous() ? t : contiguous_copy(t);
  Tensor dst = empty_tensor(t.sizes(), t.dtype(), device);
  if (src.data())
    copy_bytes_from_host(dst, src.data(), static_cast<size_t>(src.nbytes()));
  else
    move_bytes_to_host(dst.data(), src, static_cast<size_t>(src.nbytes())); // the cpu side is host-addressable
  return dst;
}

void write_back(const Tensor& dst, const Tensor& src) {
  if (src.device() != dst.device() && src.data() && dst.is_contiguous() && src.is_contiguous())
    return copy_bytes_from_host(dst, src.data(), static_cast<size_t>(src.nbytes()));
  Tensor staged = src.device() == dst.device() ? src : to_device(src, dst.device());
  if (dst.numel()) Launch(kCopy, dst.device()).out(dst).in(staged).run_required();
}

// The bytes from a tensor's lowest element to its highest, as a block on the cpu and in place.
struct Extent {
  explicit Extent(const Tensor& t) : tensor(t) {
    auto [low, high] = byte_extent(t.sizes(), t.strides(), t.item_size());
    start = t->byte_offset + low;
    bytes = static_cast<size_t>(high - low);
  }
  Tensor in_place() const {
    int64_t one[] = {1};
    return alias(tensor, one, one, start);
  }
  Tensor fetch(Device cpu) {
    int64_t n[] = {static_cast<int64_t>(bytes) / tensor.item_size()};
    block = empty_tensor(n, tensor.dtype(), cpu);
    copy_bytes_to_host(block.data(), in_place(), bytes);
    return alias(block, tensor.sizes(), tensor.strides(), tensor->byte_offset - start);
  }
  void put_back() const { copy_bytes_from_host(in_place(), block.data(), bytes); }

  Tensor tensor, block;
  int64_t start = 0;
  size_t bytes = 0;
};

// The fallback of copy_cast itself, on which all others rest: moves bytes alone.
void copy_on_cpu(const Tensor& dst, const Tensor& src, Device cpu) {
  Extent from(src), to(dst);
  Tensor there = to.fetch(cpu);
  Launch(kCopy, cpu).out(there).in(from.fetch(cpu)).run_required();
  to.put_back();
}

} // namespace

void set_fallback_mode(int mode) { fallbacks().mode = mode; }
int fallback_mode() { return fallbacks().mode; }

std::vector<std::pair<std::string, int64_t>> fallback_counts() {
  std::lock_guard lock(fallbacks().mutex);
  return {fallbacks().counts.begin(), fallbacks().counts.end()};
}

void reset_fallback_counts() {
  std::lock_guard lock(fallbacks().mutex);
  fallbacks().counts.clear();
}

static Tensor seen(const ts_tensor& d, TensorImpl* t) {
  Tensor x = Tensor::share(t);
  if (!t || d.sizes == t->sizes_data()) return x;
  size_t n = static_cast<size_t>(d.ndim);
  return alias(x, {d.sizes, n}, {d.strides, n}, t->byte_offset);
}
Tensor Launch::input(size_t k) const { return seen(inputs_[k], input_tensors_[k]); }
Tensor Launch::output(size_t k) const { return seen(outputs_[k], output_tensors_[k]); }

bool Launch::layouts_suit(const ts_kernel& kernel) const {
  if (!(kernel.layouts & TS_L_CHANNELS_LAST)) return false;
  auto suits = [](const Tensor& x) {
    return !x.defined() || x.is_contiguous() || x.is_contiguous(MemoryFormat::ChannelsLast) ||
           x.is_contiguous(MemoryFormat::ChannelsLast3d);
  };
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (!suits(input(k))) return false;
  for (size_t k = 0; k < outputs_.size(); ++k)
    if (!suits(output(k))) return false;
  return true;
}

// Pointwise operands have the same sizes, so that contiguous ones are of one dimension.
Launch Launch::on_copies(Device device, Copies& copies) const {
  bool same_device = device == device_, flat = call_.program;
  static constexpr int64_t kOne[] = {1};
  Launch copy(id_, device);
  copy.call_.opcode = call_.opcode;
  copy.call_.compute_dtype = call_.compute_dtype;
  copy.call_.program = call_.program;
  copy.call_.prologue = call_.prologue;
  copy.call_.epilogue = call_.epilogue;
  copy.needs_ = needs_;
  copy.params_ = params_;
  if (flat) copies.flat = {outputs_[0].numel};
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].flags & TS_T_SCALAR) {
      copy.inputs_.push_back(inputs_[k]);
      copy.input_tensors_.push_back(nullptr);
      copies.ins.emplace_back();
      continue;
    }
    Tensor t = input(k);
    if (t.defined()) t = same_device ? (t.is_contiguous() ? t : contiguous_copy(t)) : to_device(t, device);
    copies.ins.push_back(t);
    flat ? copy.in(t, copies.flat, kOne) : mutable_input(k) ? copy.in_mutable(t) : copy.in(t);
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    Tensor t = output(k);
    bool in_place = t.defined() && same_device && t.is_contiguous();
    // Outputs are copied in as well, but for pointwise ones: scatter's holds its base.
    if (t.defined() && !in_place)
      t = flat ? empty_tensor(t.sizes(), t.dtype(), device) : same_device ? contiguous_copy(t) : to_device(t, device);
    copies.outs.push_back(t);
    flat ? copy.out(t, copies.flat, kOne) : copy.out(t);
  }
  return copy;
}

bool Launch::run_contiguous() {
  Copies copies;
  if (!on_copies(device_, copies).run()) return false;
  auto is_copy = [](const Tensor& t, const TensorImpl* of) { return t.defined() && t->storage != of->storage; };
  for (size_t k = 0; k < copies.outs.size(); ++k)
    if (is_copy(copies.outs[k], output_tensors_[k])) write_back(output(k), copies.outs[k]);
  for (size_t k = 0; k < copies.ins.size(); ++k)
    if (mutable_input(k) && is_copy(copies.ins[k], input_tensors_[k])) write_back(input(k), copies.ins[k]);
  return true;
}

bool Launch::by_element() const {
  return call_.program || id_.index() == kCopy.index() || std::string_view(id_.name()) == "fill";
}

// What run_merged sees of an operand: the dims up to each cut as one.
static Dims merged_sizes(IntSpan sizes, size_t first, size_t second) {
  Dims merged{1};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d == first || (d == second && second != first)) merged.push_back(1);
    merged[static_cast<int64_t>(merged.size()) - 1] *= sizes[d];
  }
  return merged;
}

static Dims dense_strides(IntSpan sizes) {
  Dims strides(sizes.size(), 1);
  for (auto d = static_cast<int64_t>(sizes.size()) - 1; d > 0; --d) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// The required kernels that work along dims: two or three are left. Others decline, and are decomposed.
bool Launch::run_merged() {
  const std::string_view name = id_.name();
  const bool reduces = name == "reduce", along = name == "gather" || name == "scatter", product = name == "matmul";
  const bool last = name == "scan" || name == "sort";
  const int32_t most = backend_of(device_).limits(device_.index).max_ndim;
  if (!(reduces || along || product || last) || call_.prologue || call_.epilogue || most < (reduces || last ? 2 : 3))
    return false;
  Launch merged(id_, device_);
  merged.call_.opcode = call_.opcode;
  merged.call_.compute_dtype = call_.compute_dtype;
  merged.params_ = params_;
  if (reduces || along) merged.params_[0].as.i = 1;
  const size_t own = reduces || along ? static_cast<size_t>(params_[0].as.i) : 0;
  auto seen = [&](IntSpan sizes, bool writes) {
    const size_t n = sizes.size();
    if (along) return merged_sizes(sizes, own == 0 ? n : own, own + 1);
    if (product) return merged_sizes(sizes, n - 2, n - 1);
    return reduces ? merged_sizes(sizes, writes ? n : n - own, n) : merged_sizes(sizes, n - 1, n);
  };
  std::vector<Tensor> kept;                       // copies live as long as the call
  std::vector<std::pair<Tensor, Tensor>> written; // results, and where they belong
  std::deque<std::pair<Dims, Dims>> geometries;
  if (along && own == 0) merged.params_[0].as.i = 0;
  auto geometry = [&](const Tensor& t, bool writes) -> std::pair<Dims, Dims>& {
    Dims sizes = seen(t.sizes(), writes);
    Dims strides = dense_strides(sizes);
    return geometries.emplace_back(std::move(sizes), std::move(strides));
  };
  for (size_t k = 0; k < outputs_.size(); ++k) {
    Tensor t = output(k);
    if (!t.is_contiguous()) {
      Tensor copy = name == "scatter" ? contiguous_copy(t) : empty_tensor(t.sizes(), t.dtype(), device_);
      written.emplace_back(copy, t);
      t = copy;
    }
    kept.push_back(t);
    auto& [sizes, strides] = geometry(t, true);
    merged.out(t, sizes, strides);
  }
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].flags & TS_T_SCALAR) {
      merged.inputs_.push_back(inputs_[k]);
      merged.input_tensors_.push_back(nullptr);
      continue;
    }
    Tensor t = input(k);
    if (!t.defined()) {
      merged.in(t);
      continue;
    }
    if (name == "gather" && k == 0) { // of which the positions may leave out the ends of other dims
      Dims sizes(outputs_[0].sizes, outputs_[0].sizes + outputs_[0].ndim);
      sizes[static_cast<int64_t>(own)] = t.sizes()[own];
      t = alias(t, sizes, t.strides(), t->byte_offset);
    }
    if (!t.is_contiguous()) t = contiguous_copy(t);
    kept.push_back(t);
    auto& [sizes, strides] = geometry(t, false);
    merged.in(t, sizes, strides);
  }
  if (!merged.run()) return false;
  for (auto& [result, place] : written) write_back(place, result);
  return true;
}

// Kernels over elements alone see a tensor of many dims part by part.
bool Launch::run_slices() {
  std::vector<Tensor> whole;
  for (size_t k = 0; k < outputs_.size(); ++k) whole.push_back(output(k));
  for (size_t k = 0; k < inputs_.size(); ++k) whole.push_back(input(k));
  for (int64_t i = 0; i < outputs_[0].sizes[0]; ++i) {
    Launch part(id_, device_);
    part.call_.opcode = call_.opcode;
    part.call_.compute_dtype = call_.compute_dtype;
    part.call_.program = call_.program;
    part.params_ = params_;
    std::vector<Tensor> parts;
    for (const Tensor& t : whole)
      parts.push_back(!t.defined() ? t
                                   : alias(t, t.sizes().subspan(1), t.strides().subspan(1),
                                           t->byte_offset + i * t.strides()[0] * t.item_size()));
    for (size_t k = 0; k < outputs_.size(); ++k) part.out(parts[k]);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (inputs_[k].flags & TS_T_SCALAR) {
        part.inputs_.push_back(inputs_[k]);
        part.input_tensors_.push_back(nullptr);
      } else {
        part.in(parts[outputs_.size() + k]);
      }
    }
    if (!part.run()) return false;
  }
  return true;
}

// As the parts of complex numbers do: what is written back of one would undo the other.
bool Launch::outputs_share_bytes() const {
  for (size_t a = 0; a < outputs_.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      Tensor x = output(a), y = output(b);
      if (!x.defined() || !y.defined() || x->storage != y->storage) continue;
      Extent one(x), two(y);
      if (one.start < two.start + static_cast<int64_t>(two.bytes) &&
          two.start < one.start + static_cast<int64_t>(one.bytes))
        return true;
    }
  return false;
}

// The bytes around an operand go to an allocation of their own, where it begins at a multiple of the alignment.
bool Launch::run_aligned() {
  uint64_t misaligned = backend_of(device_).limits(device_.index).misaligned;
  std::vector<Tensor> kept;
  std::vector<std::pair<Tensor, Tensor>> written; // bytes, and where they go back to
  Launch copy = *this;
  copy.shape_.offsets = 0;
  auto align = [&](ts_tensor& d, const Tensor& t, bool writes) {
    if (!(static_cast<uint64_t>(d.byte_offset) & misaligned) || !t.defined()) return;
    Extent from(t);
    // A flipped operand begins behind its first byte: so much further that it does at a multiple, too.
    const int64_t before = t->byte_offset - from.start;
    const auto pad = static_cast<int64_t>(-static_cast<uint64_t>(before) & misaligned);
    int64_t n[] = {pad + static_cast<int64_t>(from.bytes)}, one[] = {1}, bytes[] = {n[0] - pad};
    Tensor whole = empty_tensor(n, DType::UInt8, device_);
    Tensor block = alias(whole, bytes, one, pad);
    copy_bytes_within(block, from.in_place(), from.bytes);
    d.handle = whole->storage->handle;
    d.byte_offset = pad + before;
    if (writes) written.emplace_back(block, from.in_place());
    kept.push_back(whole);
  };
  if (outputs_.size() > 1 && outputs_share_bytes()) return run_contiguous();
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (!(inputs_[k].flags & TS_T_SCALAR)) align(copy.inputs_[k], input(k), mutable_input(k));
  for (size_t k = 0; k < outputs_.size(); ++k) align(copy.outputs_[k], output(k), true);
  if (copy.shape_.offsets || !copy.run()) return false;
  for (auto& [block, place] : written) copy_bytes_within(place, block, static_cast<size_t>(block.numel()));
  return true;
}

void note_fallback(std::string_view name, const Backend& here, const std::string& case_text) {
  const std::string lacks = concat(name, ": backend '", here.name(), "' has no kernel for (", case_text, ")");
  const bool nowhere = &here == &backend_of(parse_device("cpu"));
  TS_CHECK_KIND(ErrorKind::NotImplemented, !nowhere && fallback_mode() != 2, lacks,
                nowhere ? "" : ", and falling back to cpu is off (set_fallback)");
  guard_transfer(Transfer::Fallback, [&] { return concat(lacks, ", which runs on the cpu"); });
  bool first;
  {
    std::lock_guard lock(fallbacks().mutex);
    first = fallbacks().counts[std::string(name)]++ == 0;
  }
  if (first && fallback_mode() == 1) warn(concat(lacks, "; running it on the cpu, with copies"));
}

void Launch::fall_back() {
  Backend& here = backend_of(device_);
  Device cpu = parse_device("cpu");
  std::string case_text;
  auto add = [&](const Tensor& t) { case_text += (case_text.empty() ? "" : ", ") + describe(t); };
  for (size_t k = 0; k < inputs_.size(); ++k) add(input(k));
  if (inputs_.empty()) // a factorisation has only what it writes in place
    for (size_t k = 0; k < outputs_.size(); ++k) add(output(k));
  note_fallback(id_.name(), here, case_text);
  if (id_.index() == kCopy.index() && input_tensors_[0]) return copy_on_cpu(output(0), input(0), cpu);
  Copies copies;
  Launch copy = on_copies(cpu, copies);
  TS_CHECK_KIND(ErrorKind::NotImplemented, copy.run(), id_.name(), ": neither '", here.name(),
                "' nor cpu has a kernel for (", case_text, ")");
  for (size_t k = 0; k < copies.outs.size(); ++k)
    if (copies.outs[k].defined()) write_back(output(k), copies.outs[k]);
  for (size_t k = 0; k < copies.ins.size(); ++k)
    if (mutable_input(k) && copies.ins[k].defined()) write_back(input(k), copies.ins[k]);
}

} // namespace ts
