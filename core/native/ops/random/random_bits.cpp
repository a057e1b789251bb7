#include "ops/random/random_bits.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/computed_dtypes.h"
#include "runtime/interpreter.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <cmath>

namespace ts {
namespace {

const KernelId kBits("random_bits"), kRand("rand_fill"), kRandn("randn_fill"), kRandint("randint_fill");
const Op shift_right("_shift_right"), remainder_of("_word_remainder"), box_muller("_box_muller");

// A contiguous tensor in one dimension: it may have more of them than a kernel is asked for.
Tensor in_a_row(const Tensor& t) {
  int64_t n = t.numel(), step = 1;
  return alias(t, IntSpan(&n, 1), IntSpan(&step, 1), t->byte_offset);
}

Tensor bits_at(IntSpan sizes, DType t, Device device, uint64_t seed, uint64_t offset) {
  Tensor out = empty_tensor(sizes, t, device);
  if (out.numel()) Launch(kBits, device).out(in_a_row(out)).random(seed, offset).run_required();
  return out;
}

// Word >> shift is exact in the float type, and so is its scaling by a power of two.
Tensor scaled(const Tensor& words, int shift, double scale, DType t) {
  return ops::mul(raw_cast(shift_right(words, Scalar(shift)), t), Scalar(scale));
}

Tensor uniform_from(const Tensor& words, DType t) {
  switch (t) {
  case DType::Float64: return scaled(words, 11, 0x1p-53, t);
  case DType::Float16: return scaled(words, 21, 0x1p-11, t);
  case DType::BFloat16: return scaled(words, 24, 0x1p-8, t);
  default: return scaled(words, 8, 0x1p-24, DType::Float32);
  }
}

bool launch_fill(const KernelId& id, const Tensor& t, uint64_t seed, uint64_t offset) {
  return Launch(id, t.device()).in_mutable(in_a_row(t)).random(seed, offset).run();
}

uint64_t claim(Generator& g, int64_t elements, int words_each) {
  return g.advance(static_cast<uint64_t>(elements) * static_cast<uint64_t>(words_each));
}

} // namespace

Generator& generator_for(Generator* given, Device device, const char* op) {
  if (!given) return default_generator(device);
  TS_CHECK(!given->device.defined() || given->device == device, op, ": Expected a '", to_string(device),
           "' device type for generator but found '", to_string(given->device), "'");
  return *given;
}

Place claim_place(Device device, uint64_t words) {
  if (words == 0) return {0, 0};
  Generator& g = default_generator(device);
  return {g.seed, g.advance(words)};
}

Tensor random_bits(IntSpan sizes, DType t, Device device, Generator& g) {
  int64_t n = checked_numel(sizes);
  return bits_at(sizes, t, device, g.seed, claim(g, n, t == DType::UInt64 ? 2 : 1));
}

void fill_uniform(const Tensor& t, Generator& g) {
  if (t.numel() == 0) return;
  bool wide = t.dtype() == DType::Float64;
  uint64_t offset = claim(g, t.numel(), wide ? 2 : 1);
  if (t.is_contiguous() && launch_fill(kRand, t, g.seed, offset)) return;
  raw_copy(
      t, uniform_from(bits_at(t.sizes(), wide ? DType::UInt64 : DType::UInt32, t.device(), g.seed, offset), t.dtype()));
}

void fill_normal(const Tensor& t, Generator& g) {
  if (t.numel() == 0) return;
  bool wide = t.dtype() == DType::Float64;
  uint64_t offset = claim(g, t.numel(), wide ? 4 : 2);
  if (t.is_contiguous() && launch_fill(kRandn, t, g.seed, offset)) return;
  int64_t pairs[] = {t.numel(), 2};
  Tensor words = bits_at(pairs, wide ? DType::UInt64 : DType::UInt32, t.device(), g.seed, offset);
  Tensor u = uniform_from(words, accumulate_type(t));
  Tensor z = box_muller(ops::select(u, 1, 0), ops::select(u, 1, 1));
  raw_copy(t, reshaped(raw_contiguous(z), t.sizes()));
}

Tensor uniform_tensor(IntSpan sizes, DType t, Device device, Generator& g) {
  Tensor out = empty_tensor(sizes, t, device);
  fill_uniform(out, g);
  return out;
}

Tensor uniform_steps(IntSpan sizes, Device device, Generator& g) {
  return raw_cast(shift_right(random_bits(sizes, DType::UInt32, device, g), Scalar(8)), DType::Int64);
}

Tensor uniform_at_least(IntSpan sizes, double p, Device device, Generator& g) {
  if (computes_with(device, DType::Float32))
    return ops::ge(uniform_tensor(sizes, DType::Float32, device, g), Scalar(p));
  const auto least = static_cast<int64_t>(std::ceil(std::ldexp(static_cast<double>(static_cast<float>(p)), 24)));
  return ops::ge(uniform_steps(sizes, device, g), Scalar(least));
}

Tensor normal_tensor(IntSpan sizes, DType t, Device device, Generator& g) {
  Tensor out = empty_tensor(sizes, t, device);
  fill_normal(out, g);
  return out;
}

namespace {

// From the words at hand, where there is no kernel for it. Modulo 2^64, where signed and unsigned addition agree.
Tensor integers_from(const Tensor& words, uint64_t span, int64_t low) {
  if (words.dtype() == DType::UInt32)
    return ops::add(remainder_of(raw_cast(words, DType::Int64), Scalar(static_cast<int64_t>(span))), Scalar(low));
  Tensor rest = remainder_of(words, Scalar(static_cast<int64_t>(span)));
  return ops::add(raw_cast(rest, DType::Int64), Scalar(low));
}

bool launch_integers(const Tensor& t, uint64_t seed, uint64_t offset, uint64_t span, int64_t low) {
  return Launch(kRandint, t.device())
      .in_mutable(in_a_row(t))
      .random(seed, offset)
      .param(static_cast<int64_t>(span))
      .param(low)
      .run();
}

} // namespace

void fill_integers(const Tensor& t, int64_t low, int64_t high, Generator& g) {
  if (t.numel() == 0) return;
  if (is_floating(t.dtype())) { // ends that the dtype holds: no draw is rounded out of the range
    const long double last = floor_number(static_cast<long double>(high) - 1, t.dtype());
    const long double first = -floor_number(-static_cast<long double>(low), t.dtype());
    if (first <= last) low = static_cast<int64_t>(first), high = static_cast<int64_t>(last) + 1;
  }
  uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const bool wide = span > uint64_t{1} << 32;
  uint64_t offset = claim(g, t.numel(), wide ? 2 : 1);
  if (t.is_contiguous() && launch_integers(t, g.seed, offset, span, low)) return;
  copy_into(t, integers_from(bits_at(t.sizes(), wide ? DType::UInt64 : DType::UInt32, t.device(), g.seed, offset), span,
                             low));
}

// Of floating dtypes: within the range, and a warning beyond the integers that they hold exactly.
void check_exact_range(int64_t low, int64_t high, DType t, const char* op) {
  int digits = t == DType::Float64 ? 53 : t == DType::Float32 ? 24 : t == DType::Float16 ? 11 : 8;
  auto check = [&](const char* name, int64_t bound) {
    TS_CHECK(t != DType::Float16 || std::abs(static_cast<double>(bound)) <= 65504, op, ": ", name,
             " is out of bounds for ", t, ", got ", bound);
    if (const int64_t exact = int64_t{1} << digits; bound > exact || bound < -exact)
      warn(concat(op, ": ", name, " is out of bounds [-(2^", digits, "), 2^", digits, "], beyond which ", t,
                  " does not hold every integer; got ", bound));
  };
  check("from", low), check("to - 1", high - 1);
}

void check_integer_range(int64_t low, int64_t high, DType t, const char* op) {
  TS_CHECK(low < high, op, ": expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_complex(t) && !is_storage_dtype(t), op, ": not implemented for dtype ",
                t);
  if (is_floating(t)) return check_exact_range(low, high, t, op);
  int bits = is_bool(t) ? 1 : static_cast<int>(item_size(t)) * 8;
  bool wide = bits == 64;
  int64_t top = wide ? INT64_MAX : (int64_t{1} << (is_unsigned(t) ? bits : bits - 1)) - 1;
  int64_t bottom = is_unsigned(t) ? 0 : wide ? INT64_MIN : -top - 1;
  TS_CHECK(low >= bottom && low <= top, op, ": from is out of bounds for ", t, ", got ", low);
  TS_CHECK(high - 1 <= top, op, ": to - 1 is out of bounds for ", t, ", got ", high - 1);
}

DType floating_dtype(DType t, const char* op) {
  t = or_default(t);
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_floating(t) && !is_storage_dtype(t), op, ": not implemented for dtype ",
                t, "; expected a floating one");
  return t;
}

DType drawn_dtype(DType t, const char* op) {
  t = or_default(t);
  return is_complex(t) ? t : floating_dtype(t, op);
}

void draw_uniform(const Tensor& t, Generator& g) { fill_uniform(is_complex(t.dtype()) ? raw_parts(t) : t, g); }

void draw_normal(const Tensor& t, Generator& g) {
  if (!is_complex(t.dtype())) return fill_normal(t, g);
  Tensor parts = raw_parts(t);
  fill_normal(parts, g);
  scale_and_shift(parts, M_SQRT1_2, 0);
}

namespace {

struct FloatFormat {
  int bits, lowest, highest; // of the mantissa, and the exponents of the smallest normal and beyond the largest number
};
FloatFormat format_of(DType t) {
  switch (t) {
  case DType::Float16: return {11, -14, 16};
  case DType::BFloat16: return {8, -126, 128};
  case DType::Float64: return {53, -1022, 1024};
  default: return {24, -126, 128};
  }
}

} // namespace

double largest_number(DType t) {
  const FloatFormat f = format_of(t);
  return std::ldexp(std::ldexp(1.0, f.bits) - 1, f.highest - f.bits);
}
double smallest_number(DType t) { return std::ldexp(1.0, format_of(t).lowest); }
double floor_number(long double x, DType t) {
  const FloatFormat f = format_of(t);
  if (!std::isfinite(x)) return static_cast<double>(x);
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent, f.lowest + 1) - f.bits;
  const long double down = std::ldexp(std::floor(std::ldexp(x, -step)), step);
  return static_cast<double>(std::min(down, static_cast<long double>(largest_number(t))));
}

void scale_and_shift(const Tensor& t, double scale, double shift) {
  if (t.numel() == 0 || (scale == 1 && shift == 0)) return;
  if (scale != 1) ops::mul_(t, Scalar(scale));
  if (shift != 0) ops::add_(t, Scalar(shift));
}

TS_OPERATORS(random_bits) {
  def("_shift_right(Tensor self, Scalar bits) -> Tensor")
      .pointwise("shr(self, bits)")
      .promote(Promote::Keep)
      .hidden()
      .not_differentiable()
      .doc("Bits moved right, zeros moving in for unsigned dtypes.");
  def("_word_remainder(Tensor self, Scalar span) -> Tensor")
      .pointwise("mod(self, span)")
      .promote(Promote::Keep)
      .hidden()
      .not_differentiable()
      .doc("self % span in self's own dtype; a negative span of uint64 stands for span + 2^64.");
  def("_box_muller(Tensor u, Tensor v) -> Tensor")
      .pointwise("sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * v)")
      .promote(Promote::Float)
      .hidden()
      .not_differentiable()
      .doc("Standard normal numbers from pairs of uniform ones (Box and Muller, 1958).");
}

} // namespace ts
