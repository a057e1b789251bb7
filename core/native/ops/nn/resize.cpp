// Interpolation to another size, one dim at a time: every output position is a weighted sum of a few input positions.
#include "autograd/declared.h"
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "runtime/computed_dtypes.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

namespace ts {
namespace {

using OptionalScale = std::optional<double>;

enum class ResizeMode { Nearest, NearestExact, Linear, Cubic, Lanczos, Area };

// What output position o reads: at[k][o] with weight[k][o], for every tap k. No weights: one tap, taken as it is.
struct Taps {
  std::vector<std::vector<int64_t>> at;
  std::vector<std::vector<double>> weight;
  Taps(size_t taps, int64_t out, bool weighted)
      : at(taps, std::vector<int64_t>(static_cast<size_t>(out), 0)),
        weight(weighted ? taps : 0, std::vector<double>(static_cast<size_t>(out), 0.0)) {}
  void set(size_t k, int64_t o, int64_t position, double w) {
    at[k][static_cast<size_t>(o)] = position;
    weight[k][static_cast<size_t>(o)] = w;
  }
};

// Input positions between neighbouring output positions.
double step_of(int64_t in, int64_t out, bool align_corners, OptionalScale scale) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0.0;
  return scale && *scale > 0 ? 1 / *scale : static_cast<double>(in) / static_cast<double>(out);
}

// In float32, as PyTorch works out these positions for every dtype. Its images are repeated evenly where the size stays
// or doubles, whatever the scale.
Taps nearest(int64_t in, int64_t out, OptionalScale scale, bool exact, bool image) {
  Taps taps(1, out, false);
  if (image && !exact && (out == in || out == 2 * in)) scale.reset();
  auto step = static_cast<float>(step_of(in, out, false, scale));
  for (int64_t o = 0; o < out; ++o) {
    float at = exact ? static_cast<float>((static_cast<double>(o) + 0.5) * static_cast<double>(step))
                     : static_cast<float>(o) * step;
    taps.at[0][static_cast<size_t>(o)] = std::min(static_cast<int64_t>(std::floor(at)), in - 1);
  }
  return taps;
}

Taps resize_linear(int64_t in, int64_t out, bool align_corners, OptionalScale scale) {
  Taps taps(2, out, true);
  if (in == out) scale.reset(); // as PyTorch: the size stays, and so do the values
  double step = step_of(in, out, align_corners, scale);
  for (int64_t o = 0; o < out; ++o) {
    double x = static_cast<double>(o), at = align_corners ? step * x : std::max(step * (x + 0.5) - 0.5, 0.0);
    int64_t low = std::min(static_cast<int64_t>(at), in - 1);
    double share = std::min(at - static_cast<double>(low), 1.0);
    taps.set(0, o, low, 1 - share);
    taps.set(1, o, std::min(low + 1, in - 1), share);
  }
  return taps;
}

// Keys' cubic convolution kernel (IEEE Trans. ASSP 29, 1981) at distance x.
double cubic_kernel(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// Duchon's (J. Appl. Meteorology 18, 1979) of three lobes.
double lanczos_kernel(double x) {
  double at = std::numbers::pi * std::abs(x);
  return at == 0 ? 1 : at < 3 * std::numbers::pi ? 3 * std::sin(at) * std::sin(at / 3) / (at * at) : 0;
}
constexpr double kCubic = -0.75, kCubicAntialias = -0.5; // PyTorch's, and Pillow's, which it follows for antialiasing

Taps cubic(int64_t in, int64_t out, bool align_corners, OptionalScale scale) {
  Taps taps(4, out, true);
  double step = step_of(in, out, align_corners, scale);
  for (int64_t o = 0; o < out; ++o) {
    double x = static_cast<double>(o), at = align_corners ? step * x : step * (x + 0.5) - 0.5, low = std::floor(at);
    for (int64_t k = 0; k < 4; ++k) {
      double position = low - 1 + static_cast<double>(k);
      taps.set(static_cast<size_t>(k), o, std::clamp<int64_t>(static_cast<int64_t>(position), 0, in - 1),
               cubic_kernel(at - position, kCubic));
    }
  }
  return taps;
}

// Output position o averages floor(o * in / out) to ceil((o + 1) * in / out).
Taps area(int64_t in, int64_t out) {
  auto begin = [&](int64_t o) { return o * in / out; };
  auto end = [&](int64_t o) { return ((o + 1) * in + out - 1) / out; };
  int64_t widest = 0;
  for (int64_t o = 0; o < out; ++o) widest = std::max(widest, end(o) - begin(o));
  Taps taps(static_cast<size_t>(widest), out, true);
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = begin(o); i < end(o); ++i)
      taps.set(static_cast<size_t>(i - begin(o)), o, i, 1 / static_cast<double>(end(o) - begin(o)));
  return taps;
}

// The kernel stretched over as many input positions as one output position stands for, normalised.
Taps antialiased(int64_t in, int64_t out, bool align_corners, OptionalScale scale, ResizeMode mode) {
  double step = step_of(in, out, align_corners, scale), stretch = std::max(step, 1.0);
  double support = (mode == ResizeMode::Lanczos ? 3 : mode == ResizeMode::Cubic ? 2 : 1) * stretch;
  Taps taps(static_cast<size_t>(std::ceil(support)) * 2 + 1, out, true);
  for (int64_t o = 0; o < out; ++o) {
    double centre = step * (static_cast<double>(o) + 0.5), total = 0;
    int64_t begin = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    int64_t n = std::min(static_cast<int64_t>(centre + support + 0.5), in) - begin;
    n = std::clamp<int64_t>(n, 0, static_cast<int64_t>(taps.at.size()));
    std::vector<double> weights;
    for (int64_t k = 0; k < n; ++k) {
      double x = (static_cast<double>(k + begin) - centre + 0.5) / stretch;
      weights.push_back(mode == ResizeMode::Lanczos ? lanczos_kernel(x)
                        : mode == ResizeMode::Cubic ? cubic_kernel(x, kCubicAntialias)
                                                    : std::max(1 - std::abs(x), 0.0));
      total += weights.back();
    }
    for (int64_t k = 0; k < n; ++k)
      taps.set(static_cast<size_t>(k), o, begin + k, total != 0 ? weights[static_cast<size_t>(k)] / total : 0);
  }
  return taps;
}

// Taps that read one position, as beyond an edge, are one tap.
void merge(Taps& taps, size_t o) {
  for (size_t k = 1; k < taps.at.size(); ++k)
    for (size_t j = 0; j < k; ++j)
      if (taps.at[j][o] == taps.at[k][o]) taps.weight[j][o] += std::exchange(taps.weight[k][o], 0.0);
}

// The weights of images of bytes: whole numbers of 16 bits over a power of two, the largest one that they allow, as in
// Pillow and PyTorch. Sums of products of them with bytes are exact in float32.
void round_for_bytes(Taps& taps, bool may_repeat) {
  double greatest = 0;
  for (size_t o = 0; o < taps.at[0].size(); ++o) {
    if (may_repeat) merge(taps, o);
    for (const std::vector<double>& weights : taps.weight) greatest = std::max(greatest, weights[o]);
  }
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + std::ldexp(greatest, bits + 1)) < 1 << 15) ++bits;
  for (std::vector<double>& weights : taps.weight)
    for (double& w : weights) w = std::ldexp(std::round(std::ldexp(w, bits)), -bits);
}

Tensor apply(const Tensor& x, int64_t dim, const Taps& taps) {
  auto positions = [&](size_t k) {
    return constants_saved(ops::index_select(x, dim, from_host(taps.at[k], x.device())));
  };
  if (taps.weight.empty()) return positions(0);
  Dims shape(static_cast<size_t>(x.ndim() - dim), 1);
  shape[0] = static_cast<int64_t>(taps.at[0].size());
  Tensor total;
  auto weights = [&](size_t k) { return reshaped(raw_vector(taps.weight[k], x.dtype(), x.device()), shape); };
  static const Op two_taps("two_taps");
  for (size_t k = 0; k < taps.at.size(); k += 2) {
    Tensor part = k + 1 < taps.at.size() ? two_taps(positions(k), weights(k), positions(k + 1), weights(k + 1))
                                         : ops::mul(positions(k), weights(k));
    constants_saved(part);
    total = total.defined() ? ops::add(total, part) : part;
  }
  return total;
}

// --- arguments -------------------------------------------------------------------------------------------------------

ResizeMode parse_mode(const char* mode, size_t spatial) {
  constexpr std::pair<const char*, ResizeMode> kAny[] = {
      {"nearest", ResizeMode::Nearest}, {"nearest-exact", ResizeMode::NearestExact}, {"area", ResizeMode::Area}};
  for (auto [name, m] : kAny)
    if (!std::strcmp(mode, name)) return m;
  constexpr std::tuple<const char*, size_t, ResizeMode> kFixed[] = {{"linear", 1, ResizeMode::Linear},
                                                                    {"bilinear", 2, ResizeMode::Linear},
                                                                    {"trilinear", 3, ResizeMode::Linear},
                                                                    {"bicubic", 2, ResizeMode::Cubic},
                                                                    {"lanczos", 2, ResizeMode::Lanczos}};
  for (auto [name, n, m] : kFixed) {
    if (std::strcmp(mode, name)) continue;
    TS_CHECK_KIND(ErrorKind::NotImplemented, n == spatial, "interpolate: Got ", spatial + 2, "D input, but ", mode,
                  " mode needs ", n + 2, "D input");
    return m;
  }
  fail(ErrorKind::NotImplemented,
       "interpolate: expected mode to be nearest, nearest-exact, linear, bilinear, bicubic, "
       "lanczos, trilinear or area, got ",
       mode);
}

Dims output_sizes(IntSpan plane, std::optional<IntSpan> size, std::span<const double> scales) {
  Dims out(plane);
  constexpr double kLimit = 1ll << 40;
  for (size_t d = 0; d < plane.size(); ++d) {
    if (size) {
      out[d] = (*size)[size->size() == 1 ? 0 : d];
    } else {
      double n = std::floor(static_cast<double>(plane[d]) * scales[scales.size() == 1 ? 0 : d]);
      out[d] = n >= 0 && n < kLimit ? static_cast<int64_t>(n) : -1;
    }
    TS_CHECK(plane[d] > 0 && out[d] > 0, "interpolate: Input and output sizes should be greater than 0, but got input ",
             plane, " and output ", out[d], " in spatial dimension ", d);
  }
  return out;
}

const Op floor_op("floor");

// The dims in the order in which they are resized: what shrinks most goes first, so that little is left for the others.
// Images of bytes: rows first, as PyTorch, since each pass rounds.
SmallVector<size_t, 6> order_of(IntSpan plane, IntSpan out, bool bytes) {
  SmallVector<size_t, 6> order;
  for (size_t d = 0; d < plane.size(); ++d) order.push_back(bytes ? plane.size() - 1 - d : d);
  auto growth = [&](size_t d) { return static_cast<double>(out[d]) / static_cast<double>(plane[d]); };
  if (!bytes) std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return growth(a) < growth(b); });
  return order;
}

Tensor interpolate(const Tensor& input, std::optional<IntSpan> size, std::span<const double> scales, const char* mode,
                   std::optional<bool> align_corners, std::optional<bool> recompute, bool antialias) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, input.ndim() >= 3 && input.ndim() <= 5,
                "interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got ", input.ndim(), "D)");
  IntSpan plane = input.sizes().subspan(2);
  ResizeMode m = parse_mode(mode, plane.size());
  bool smooth = m == ResizeMode::Linear || m == ResizeMode::Cubic || m == ResizeMode::Lanczos;
  TS_CHECK_VALUE(smooth || !align_corners, "interpolate: align_corners option can only be set with the interpolating "
                                           "modes: linear | bilinear | bicubic | trilinear");
  TS_CHECK_VALUE(
      !antialias || (smooth && plane.size() == 2),
      "interpolate: Anti-alias option is restricted to bilinear, bicubic and lanczos modes and requires a 4-D tensor "
      "as input");
  TS_CHECK_VALUE(m != ResizeMode::Lanczos || (antialias && !align_corners.value_or(false)),
                 "interpolate: Lanczos mode requires antialias=True, without align_corners");
  TS_CHECK_VALUE(size || !scales.empty(), "interpolate: either size or scale_factor should be defined");
  TS_CHECK_VALUE(!size || scales.empty(), "interpolate: only one of size or scale_factor should be defined");
  TS_CHECK_VALUE(!size || !recompute.value_or(false),
                 "interpolate: recompute_scale_factor is not meaningful with an explicit size.");
  size_t given = size ? size->size() : scales.size();
  TS_CHECK_VALUE(given == 1 || given == plane.size(),
                 "interpolate: Input and output must have the same number of "
                 "spatial dimensions, but got input with spatial dimensions of ",
                 plane, " and ", given, " output sizes or scale factors");
  TS_CHECK_KIND(ErrorKind::NotImplemented,
                is_floating(input.dtype()) || m == ResizeMode::Nearest || m == ResizeMode::NearestExact ||
                    (input.dtype() == DType::UInt8 && plane.size() == 2 && smooth),
                "interpolate: mode ", mode, " is not implemented for '", input.dtype(), "'; convert to a float dtype");
  Dims out = output_sizes(plane, size, scales);
  bool weighted = smooth || m == ResizeMode::Area;
  bool bytes = weighted && input.dtype() == DType::UInt8;
  // Of the nearest, gradients of halves are sums of sums.
  bool sums = weighted || (requires_grad(input) && plane.size() > 1);
  DType wide = bytes ? DType::Float32 : sums ? accumulate_type(input) : input.dtype();
  Tensor x = wide == input.dtype() ? input : ops::to_dtype(input, wide);
  // Channels that lie together move together.
  const bool channels_last = plane.size() == 2 && is_channels_last(input);
  if (channels_last) x = ops::permute(x, Dims{0, 2, 3, 1});
  for (size_t d : order_of(plane, out, bytes)) {
    OptionalScale scale;
    if (!scales.empty() && !recompute.value_or(false)) scale = scales[scales.size() == 1 ? 0 : d];
    int64_t dim = static_cast<int64_t>(d) + (channels_last ? 1 : 2), n = plane[d];
    if (x.device().is_meta()) { // which has no positions: of any size at no cost
      x = ops::index_select(x, dim, outline(Dims{out[d]}, DType::Int64, x.device()));
      continue;
    }
    bool align = align_corners.value_or(false);
    Taps taps = m == ResizeMode::Area     ? area(n, out[d])
                : !smooth                 ? nearest(n, out[d], scale, m == ResizeMode::NearestExact, plane.size() == 2)
                : antialias               ? antialiased(n, out[d], align, scale, m)
                : m == ResizeMode::Linear ? resize_linear(n, out[d], align, scale)
                                          : cubic(n, out[d], align, scale);
    if (bytes) round_for_bytes(taps, !antialias);
    x = apply(x, dim, taps);
    if (bytes) x = ops::clamp(floor_op(ops::add(x, Scalar(0.5))), Scalar(0), Scalar(255)); // cubic weights overshoot
  }
  if (channels_last) x = ops::permute(x, Dims{0, 3, 1, 2});
  return as_laid_out(input, wide == input.dtype() ? x : ops::to_dtype(x, input.dtype()));
}

} // namespace

TS_OPERATORS(resize) {
  def("two_taps(Tensor a, Tensor weight_a, Tensor b, Tensor weight_b) -> Tensor")
      .pointwise("a * weight_a + b * weight_b")
      .derivative("a", "grad * weight_a")
      .derivative("b", "grad * weight_b")
      .hidden()
      .doc("Two weighted positions of interpolate in one pass.");
  def("interpolate(Tensor input, int[1]? size=None, float[1]? scale_factor=None, str mode='nearest', bool? "
      "align_corners=None, bool? recompute_scale_factor=None, bool antialias=False) -> Tensor")
      .facts("stored:none")
      .body<interpolate>()
      .hidden()
      .function_only()
      .in("nn.functional")
      .doc("Resizes the dims after the first two to size, or by scale_factor. mode: nearest, nearest-exact, area, or "
           "linear (3-D input), bilinear, bicubic and lanczos (4-D), trilinear (5-D). ValueError unless just one of "
           "size and "
           "scale_factor is given.");
}

} // namespace ts
