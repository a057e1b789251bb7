// Numbers by their bits: `nextafter` and `frexp`.
#include "storage.h"

#include "threads.h"

#include <bit>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kGrain = 32768;

// A format: its bits as an integer, the width of its mantissa, its bias.
template <typename Integer, int Mantissa, int Bias> struct Format {
  using Bits = Integer;
  static constexpr int kMantissa = Mantissa, kBias = Bias;
  static constexpr Bits kMagnitude = std::numeric_limits<Bits>::max(), kSign = std::numeric_limits<Bits>::min();
  static constexpr Bits kInfinity = static_cast<Bits>(kMagnitude >> Mantissa << Mantissa);
  static constexpr Bits kFraction = static_cast<Bits>((Bits{1} << Mantissa) - 1);
  static constexpr Bits kNan = static_cast<Bits>(kInfinity | (Bits{1} << (Mantissa - 1)));
};

template <typename Body> int with_format(int32_t dtype, Body&& body) {
  switch (dtype) {
  case TS_FLOAT32: body(Format<int32_t, 23, 127>()); return TS_OK;
  case TS_FLOAT64: body(Format<int64_t, 52, 1023>()); return TS_OK;
  case TS_FLOAT16: body(Format<int16_t, 10, 15>()); return TS_OK;
  case TS_BFLOAT16: body(Format<int16_t, 7, 127>()); return TS_OK;
  default: return TS_DECLINED;
  }
}

// Signed magnitudes count as the numbers do; a step to zero keeps the sign.
template <typename F> typename F::Bits next(typename F::Bits a, typename F::Bits b) {
  using Bits = typename F::Bits;
  const Bits size_a = a & F::kMagnitude, size_b = b & F::kMagnitude;
  constexpr int kTop = 8 * sizeof(Bits) - 1;
  const Bits fill_a = static_cast<Bits>(a >> kTop), fill_b = static_cast<Bits>(b >> kTop); // -1 where negative
  const Bits at = static_cast<Bits>((size_a ^ fill_a) - fill_a), to = static_cast<Bits>((size_b ^ fill_b) - fill_b);
  const Bits moved = static_cast<Bits>(to > at ? at + 1 : at - 1), fill = static_cast<Bits>(moved >> kTop);
  const Bits size = static_cast<Bits>((moved ^ fill) - fill);
  const Bits sign = static_cast<Bits>((moved == 0 ? a : moved) & F::kSign);
  const Bits result = to == at ? b : static_cast<Bits>(size | sign);
  const Bits larger = size_a > size_b ? size_a : size_b;
  return larger > F::kInfinity ? F::kNan : result;
}

// out0 = the numbers after in0 in the direction of in1; all contiguous and of one dtype.
int nextafter(const Call& call) {
  const Tensor out = call.out(0), a = call.in(0), b = call.in(1);
  if (!out.is_contiguous() || !a.is_contiguous() || !b.is_contiguous()) return TS_DECLINED;
  return with_format(out.dtype(), [&]<typename F>(F) {
    using Bits = typename F::Bits;
    Bits* z = out.data<Bits>();
    const Bits *x = a.data<Bits>(), *y = b.data<Bits>();
    parallel_for(0, out.numel(), kGrain, [&](int64_t first, int64_t last) {
#pragma GCC ivdep
      for (int64_t i = first; i < last; ++i) z[i] = next<F>(x[i], y[i]);
    });
  });
}

// Subnormal numbers are whole ones of the least bit, which a wider or equal format holds as normal ones.
template <typename F> void split(typename F::Bits x, typename F::Bits& mantissa, int32_t& exponent) {
  using Bits = typename F::Bits;
  using Wide = std::conditional_t<sizeof(Bits) == 8, double, float>;
  using WideBits = std::conditional_t<sizeof(Bits) == 8, int64_t, int32_t>;
  constexpr int kWideMantissa = sizeof(Bits) == 8 ? 52 : 23, kWideBias = sizeof(Bits) == 8 ? 1023 : 127;
  const Bits size = x & F::kMagnitude;
  const bool plain = (size == 0) | (size >= F::kInfinity), small = size <= F::kFraction;
  const WideBits whole = std::bit_cast<WideBits>(static_cast<Wide>(small ? size : Bits{1}));
  const int32_t normal = static_cast<int32_t>(size >> F::kMantissa) - F::kBias + 1;
  const int32_t subnormal = static_cast<int32_t>(whole >> kWideMantissa) - kWideBias + 2 - F::kBias - F::kMantissa;
  const Bits fraction = small ? static_cast<Bits>(whole >> (kWideMantissa - F::kMantissa)) : size;
  constexpr Bits kHalf = static_cast<Bits>(static_cast<Bits>(F::kBias - 1) << F::kMantissa);
  mantissa = plain ? x : static_cast<Bits>((x & F::kSign) | kHalf | (fraction & F::kFraction));
  exponent = plain ? 0 : small ? subnormal : normal;
}

// out0, out1 = mantissas and int32 exponents of in0; all contiguous.
int frexp(const Call& call) {
  const Tensor mantissa = call.out(0), exponent = call.out(1), in = call.in(0);
  if (!mantissa.is_contiguous() || !exponent.is_contiguous() || !in.is_contiguous()) return TS_DECLINED;
  return with_format(in.dtype(), [&]<typename F>(F) {
    using Bits = typename F::Bits;
    const Bits* x = in.data<Bits>();
    Bits* m = mantissa.data<Bits>();
    int32_t* e = exponent.data<int32_t>();
    parallel_for(0, in.numel(), kGrain, [&](int64_t first, int64_t last) {
#pragma GCC ivdep
      for (int64_t i = first; i < last; ++i) split<F>(x[i], m[i], e[i]);
    });
  });
}

} // namespace

TS_KERNEL("nextafter", nextafter);
TS_KERNEL("frexp", frexp);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
