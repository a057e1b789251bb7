// convolution and its two gradients: on tiles where they suit, through oneDNN where it has a kernel, else by im2col.
#include "conv_tiled.h"
#include "dtype_switch.h"
#include "index/gather_index.h"
#include "matmul/matmul_kernels.h"
#include "matmul/multiply_onednn.h"
#include "strided_rows.h"
#include "threads.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;
using onednn::Conv;

constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;

std::vector<int64_t> dense_strides(std::span<const int64_t> sizes, bool channels_last) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = channels_last ? sizes[1] : 1;
  for (size_t d = sizes.size(); d-- > (channels_last ? 2u : 0u);) strides[d] = step, step *= sizes[d];
  if (channels_last) strides[1] = 1, strides[0] = step;
  return strides;
}

bool lies_as(const Tensor& tensor, std::span<const int64_t> strides) {
  for (int d = 0; d < tensor.ndim(); ++d)
    if (tensor.size(d) != 1 && tensor.stride(d) != strides[d]) return false;
  return true;
}

void copy_strided(int64_t item, std::span<const int64_t> sizes, const char* from, std::span<const int64_t> from_strides,
                  char* to, std::span<const int64_t> to_strides) {
  switch_word("convolution", item, [&](auto tag) {
    using Word = typename decltype(tag)::type;
    StridedRows<2> rows(sizes, -1, {from_strides, to_strides});
    rows.seek(0);
    for (int64_t i = 0; i < rows.count(); ++i, rows.next())
      reinterpret_cast<Word*>(to)[rows.offset(1)] = reinterpret_cast<const Word*>(from)[rows.offset(0)];
  });
}

// A tensor in the dense layout the kernels work in, and in float32 for half types where asked: itself, or a copy.
class Operand {
public:
  Operand(const Tensor& tensor, bool channels_last, bool is_result)
      : tensor_(tensor), strides_(dense_strides(tensor.sizes(), channels_last)), data_(tensor.bytes()),
        is_result_(is_result) {
    if (lies_as(tensor, strides_)) return;
    dense_.resize(static_cast<size_t>(tensor.numel() * tensor.item_size()));
    data_ = dense_.data();
    if (!is_result) copy_strided(tensor.item_size(), tensor.sizes(), tensor.bytes(), tensor.strides(), data_, strides_);
  }
  void widen() {
    wide_.resize(static_cast<size_t>(tensor_.numel()));
    if (!is_result_) pick_widen_half()(tensor_.dtype(), 1, tensor_.numel(), {data_, tensor_.numel(), 1}, wide_.data());
  }
  char* data(int64_t image = 0) {
    const int64_t elements = image == 0 ? 0 : tensor_.numel() / tensor_.size(0) * image;
    return wide_.empty() ? data_ + elements * tensor_.item_size() : reinterpret_cast<char*>(wide_.data() + elements);
  }
  bool is_wide() const { return !wide_.empty(); }
  // Moves a result to where the caller wants it.
  void finish() {
    if (!wide_.empty())
      pick_narrow_half()(tensor_.dtype(), 1, tensor_.numel(), wide_.data(), {data_, tensor_.numel(), 1});
    if (!dense_.empty())
      copy_strided(tensor_.item_size(), tensor_.sizes(), data_, strides_, tensor_.bytes(), tensor_.strides());
  }

private:
  Tensor tensor_;
  std::vector<int64_t> strides_;
  char* data_;
  bool is_result_;
  std::vector<char> dense_;
  std::vector<float> wide_;
};

// The sum of what a kernel leaves in its result, part after part of a batch.
class PartialSums {
public:
  PartialSums(Operand& result, const Tensor& tensor) : result_(result), dtype_(tensor.dtype()), count_(tensor.numel()) {
    dtype_ == TS_FLOAT64 ? doubles_.resize(static_cast<size_t>(count_)) : floats_.resize(static_cast<size_t>(count_));
  }
  void add() {
    if (dtype_ == TS_FLOAT64) return add(doubles_, reinterpret_cast<const double*>(result_.data()));
    if (dtype_ == TS_FLOAT32 || result_.is_wide()) return add(floats_, reinterpret_cast<const float*>(result_.data()));
    std::vector<float> wide(static_cast<size_t>(count_));
    pick_widen_half()(dtype_, 1, count_, {result_.data(), count_, 1}, wide.data());
    add(floats_, wide.data());
  }
  void put() {
    if (dtype_ == TS_FLOAT64)
      std::copy(doubles_.begin(), doubles_.end(), reinterpret_cast<double*>(result_.data()));
    else if (dtype_ == TS_FLOAT32 || result_.is_wide())
      std::copy(floats_.begin(), floats_.end(), reinterpret_cast<float*>(result_.data()));
    else
      pick_narrow_half()(dtype_, 1, count_, floats_.data(), {result_.data(), count_, 1});
  }

private:
  template <class T> static void add(std::vector<T>& sums, const T* part) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
  }

  Operand& result_;
  int32_t dtype_;
  int64_t count_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
};

// The params from `first` on are stride, padding, dilation, groups.
ConvGeometry geometry_of(const Call& call, const Tensor& input, const Tensor& weight, const Tensor& output, int first,
                         bool channels_last) {
  const int spatial = input.ndim() - 2;
  const auto stride = call.param(first).as_ints(), padding = call.param(first + 1).as_ints(),
             dilation = call.param(first + 2).as_ints();
  const size_t expected = static_cast<size_t>(spatial);
  if (spatial < 1 || spatial > 3 || stride.size() != expected || padding.size() != expected ||
      dilation.size() != expected) {
    backend::fail(TS_ERROR,
                  "%s: expected 1 to 3 spatial dimensions with as many strides, paddings and dilations, got %d",
                  call.op(), spatial);
  }
  ConvGeometry g{spatial,   channels_last, input.size(0), input.size(1), output.size(1), call.param(first + 3).as_int(),
                 {1, 1, 1}, {1, 1, 1},     {1, 1, 1},     {1, 1, 1},     {0, 0, 0},      {1, 1, 1}};
  for (int d = 0; d < spatial; ++d) {
    const int at = 3 - spatial + d;
    g.in[at] = input.size(2 + d);
    g.out[at] = output.size(2 + d);
    g.kernel[at] = weight.size(2 + d);
    g.stride[at] = stride[static_cast<size_t>(d)];
    g.padding[at] = padding[static_cast<size_t>(d)];
    g.dilation[at] = dilation[static_cast<size_t>(d)];
  }
  return g;
}

bool run_onednn(Conv kind, const ConvGeometry& g, int32_t dtype, onednn::CallScratch& scratch, const ConvTensors& t) {
  if (dtype == TS_FLOAT64) return false;
  onednn::ConvProblem p{};
  p.kind = kind;
  p.type = onednn_type(dtype);
  p.threads = max_threads();
  p.spatial = g.spatial;
  p.channels_last = g.channels_last;
  p.bias = t.bias != nullptr;
  p.batch = g.batch, p.in_channels = g.in_channels, p.out_channels = g.out_channels, p.groups = g.groups;
  for (int d = 0; d < g.spatial; ++d) {
    const int at = 3 - g.spatial + d;
    p.in[d] = g.in[at], p.out[d] = g.out[at], p.kernel[d] = g.kernel[at];
    p.stride[d] = g.stride[at], p.padding[d] = g.padding[at], p.dilation[d] = g.dilation[at];
  }
  return onednn::convolution(p, scratch, t.input, t.weight, t.bias, t.output);
}

// Whether the weight is read from memory, for few results each: a single product over patches takes it as it lies,
// where oneDNN rearranges it first.
bool reads_mostly_weight(Conv kind, const ConvGeometry& g, int32_t dtype) {
  constexpr int64_t kResults = 64, kWeightFrom = 1 << 17; // elements
  return kind == Conv::forward && dtype == TS_FLOAT32 && !g.channels_last && g.groups == 1 && g.batch == 1 &&
         g.positions() <= kResults && g.out_channels * g.patch() >= kWeightFrom;
}

// Whether each image is one product over planes as they lie, where oneDNN rearranges planes into blocks of channels and
// back: 37 instead of 72 us for (2, 16, 48, 48) by 32 channels.
bool multiplies_planes(Conv kind, const ConvGeometry& g, int32_t dtype) {
  constexpr int64_t kPositionsFrom = 512; // fewer fill the tiles of a product less well
  return kind != Conv::backward_weight && dtype == TS_FLOAT32 && !g.channels_last && g.groups == 1 &&
         g.is_pointwise() && g.positions() >= kPositionsFrom;
}

// Of a batch, between two looks for the user's Ctrl-C.
int64_t images_at_once(const ConvGeometry& g) {
  double work =
      static_cast<double>(g.in_channels) / static_cast<double>(g.groups) * static_cast<double>(g.out_channels);
  for (int d = 0; d < 3; ++d) work *= static_cast<double>(g.out[d] * g.kernel[d]);
  const double images = static_cast<double>(kPatience) / std::max(1.0, work);
  return images >= static_cast<double>(g.batch) ? g.batch : std::max<int64_t>(1, static_cast<int64_t>(images));
}

void run(Conv kind, const Call& call, const Tensor& input, const Tensor& weight, const Tensor& output,
         const Tensor* bias, int first_param) {
  const Tensor leading = kind == Conv::backward_weight ? input : call.out(0);
  const bool channels_last = !lies_as(leading, dense_strides(leading.sizes(), false)) &&
                             lies_as(leading, dense_strides(leading.sizes(), true));
  const ConvGeometry geometry = geometry_of(call, input, weight, output, first_param, channels_last);
  Operand in(input, channels_last, kind == Conv::backward_input), out(output, channels_last, kind == Conv::forward);
  std::optional<Operand> b;
  if (bias) b.emplace(*bias, false, false);
  const int64_t images = images_at_once(geometry);
  const auto on_tiles = [&](TiledConv tiled, auto run_part) {
    if (b) tiled.bias = reinterpret_cast<float*>(b->data());
    for (int64_t i = 0; i < geometry.batch; i += images) {
      tiled.geometry.batch = std::min(images, geometry.batch - i);
      if (images < geometry.batch) call.check_interrupt();
      tiled.input = reinterpret_cast<float*>((kind == Conv::backward_input ? out : in).data(i));
      tiled.output = reinterpret_cast<float*>((kind == Conv::backward_input ? in : out).data(i));
      tiled.accumulate = i > 0;
      if (!run_part(tiled)) return false;
    }
    if (kind != Conv::backward_weight) (kind == Conv::forward ? out : in).finish();
    return true;
  };
  if (const std::optional<TiledConv> tiled = as_tiled(kind, geometry, weight)) {
    const auto winograd = [&](const TiledConv& part) { return run_winograd(kind, part); };
    const auto definition = [&](const TiledConv& part) { return run_tiled(kind, part), true; };
    const auto planes = [&](const TiledConv& part) { return run_planes(kind, part); };
    if (winograd_suits(tiled->geometry) && on_tiles(*tiled, winograd)) return;
    if (planes_suit(tiled->geometry) && on_tiles(*tiled, planes)) return;
    if (tiles_suit(kind, tiled->geometry) && on_tiles(*tiled, definition)) return;
  }
  Operand w(weight, false, kind == Conv::backward_weight);
  std::optional<PartialSums> sums; // a weight's gradient is a sum over the batch
  if (kind == Conv::backward_weight && images < geometry.batch) sums.emplace(w, weight);
  const bool by_patches =
      reads_mostly_weight(kind, geometry, input.dtype()) || multiplies_planes(kind, geometry, input.dtype());
  onednn::CallScratch scratch(call);
  ConvGeometry part = geometry;
  for (int64_t i = 0; i < geometry.batch; i += images) {
    part.batch = std::min(images, geometry.batch - i);
    if (images < geometry.batch) call.check_interrupt();
    const auto tensors = [&] { return ConvTensors{in.data(i), w.data(), b ? b->data() : nullptr, out.data(i)}; };
    if (by_patches || in.is_wide() || !run_onednn(kind, part, input.dtype(), scratch, tensors())) {
      const bool half = input.item_size() == 2;
      if (half && !in.is_wide()) {
        in.widen(), w.widen(), out.widen();
        if (b) b->widen();
      }
      const int32_t dtype = half ? static_cast<int32_t>(TS_FLOAT32) : input.dtype();
      if (!half || !run_onednn(kind, part, dtype, scratch, tensors())) conv_by_gemm(kind, part, dtype, tensors());
    }
    if (sums) sums->add();
  }
  if (sums) sums->put();
  (kind == Conv::forward ? out : kind == Conv::backward_input ? in : w).finish();
}

void convolution(const Call& call) {
  const bool has_bias = call.has_in(2);
  const Tensor bias = has_bias ? call.in(2) : call.in(1);
  run(Conv::forward, call, call.in(0), call.in(1), call.out(0), has_bias ? &bias : nullptr, 0);
}

// The size list in front of the strides repeats the output's sizes.
void convolution_backward_input(const Call& call) {
  run(Conv::backward_input, call, call.out(0), call.in(1), call.in(0), nullptr, 1);
}

void convolution_backward_weight(const Call& call) {
  run(Conv::backward_weight, call, call.in(1), call.out(0), call.in(0), nullptr, 1);
}

} // namespace

TS_KERNEL_AS("convolution", convolution, kFloats, TS_L_CHANNELS_LAST);
TS_KERNEL_AS("convolution_backward_input", convolution_backward_input, kFloats, TS_L_CHANNELS_LAST);
TS_KERNEL_AS("convolution_backward_weight", convolution_backward_weight, kFloats, TS_L_CHANNELS_LAST);

} // namespace tesserack::cpu
