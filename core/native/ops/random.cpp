// Random factories: rand, randn, randint, randperm, normal. See random_bits.h for which words of the stream each
// consumes.
#include "ops/api.h"
#include "ops/arguments.h"
#include "ops/copy.h"
#include "ops/declare.h"
#include "ops/random_bits.h"

namespace ts {
namespace {

using Format = std::optional<MemoryFormat>;

Tensor like_sizes(const Tensor& self, DType dtype, Device device, Format format) {
  static const Op empty_like("empty_like");
  return empty_like(self, dtype, device, false, format);
}

// --- factories ---
Tensor rand(IntSpan size, Generator* g, DType dtype, Device device, bool) {
  Device d = or_default(device);
  return uniform_tensor(size, floating_dtype(dtype, "rand"), d, generator_for(g, d, "rand"));
}
Tensor randn(IntSpan size, Generator* g, DType dtype, Device device, bool) {
  Device d = or_default(device);
  return normal_tensor(size, floating_dtype(dtype, "randn"), d, generator_for(g, d, "randn"));
}
Tensor rand_like(const Tensor& self, DType dtype, Device device, bool, Format format) {
  Tensor t = like_sizes(self, dtype, device, format);
  floating_dtype(t.dtype(), "rand_like");
  fill_uniform(t, default_generator(t.device()));
  return t;
}
Tensor randn_like(const Tensor& self, DType dtype, Device device, bool, Format format) {
  Tensor t = like_sizes(self, dtype, device, format);
  floating_dtype(t.dtype(), "randn_like");
  fill_normal(t, default_generator(t.device()));
  return t;
}

Tensor randint(int64_t low, int64_t high, IntSpan size, Generator* g, DType dtype, Device device, bool) {
  Device d = or_default(device);
  DType t = dtype == DType::Undefined ? DType::Int64 : dtype;
  check_integer_range(low, high, t, "randint");
  return raw_cast(integer_tensor(size, low, high, d, generator_for(g, d, "randint")), t);
}
Tensor randint_high(int64_t high, IntSpan size, Generator* g, DType dtype, Device device, bool grad) {
  return randint(0, high, size, g, dtype, device, grad);
}
Tensor randint_like(const Tensor& self, int64_t low, int64_t high, DType dtype, Device device, bool, Format format) {
  Tensor t = like_sizes(self, dtype, device, format);
  check_integer_range(low, high, t.dtype(), "randint_like");
  copy_into(t, integer_tensor(t.sizes(), low, high, t.device(), default_generator(t.device())));
  return t;
}
Tensor randint_like_high(const Tensor& self, int64_t high, DType dtype, Device device, bool grad, Format format) {
  return randint_like(self, 0, high, dtype, device, grad, format);
}

// The stable order of random 63-bit keys: the same permutation wherever it is sorted.
Tensor randperm(int64_t n, Generator* g, DType dtype, Device device, bool) {
  TS_CHECK(n >= 0, "randperm: n must be non-negative, got ", n);
  Device d = or_default(device);
  DType t = dtype == DType::Undefined ? DType::Int64 : dtype;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_bool(t) && !is_complex(t), "randperm: not implemented for dtype ", t);
  int64_t exact = is_floating(t)      ? int64_t{1} << (t == DType::Float64   ? 53
                                                       : t == DType::Float32 ? 24
                                                       : t == DType::Float16 ? 11
                                                                             : 8)
                  : item_size(t) == 8 ? INT64_MAX
                                      : int64_t{1} << (item_size(t) * 8 - !is_unsigned(t));
  TS_CHECK(n <= exact, "randperm: n = ", n, " is too large for ", t, " to hold every index");
  static const Op shift_right("_shift_right");
  Tensor keys = random_bits(IntSpan(&n, 1), DType::UInt64, d, generator_for(g, d, "randperm"));
  keys = raw_cast(shift_right(keys, Scalar(1)), DType::Int64);
  return raw_cast(ops::sort.multi<2>(keys, 0)[1], t);
}

// --- normal(mean, std)
Tensor normal_of(const Tensor& shape_of, Generator* g) {
  floating_dtype(shape_of.dtype(), "normal");
  return normal_tensor(shape_of.sizes(), shape_of.dtype(), shape_of.device(),
                       generator_for(g, shape_of.device(), "normal"));
}
void check_std(const Tensor& std) {
  floating_dtype(std.dtype(), "normal");
  if (std.numel())
    TS_CHECK(!raw_truth(ops::any(ops::lt(std, Scalar(0)))), "normal: expects all elements of std >= 0.0");
}
Tensor normal_tensor_float(const Tensor& mean, double std, Generator* g) {
  TS_CHECK(std >= 0, "normal: expects std >= 0.0, but found std ", std);
  return ops::add(ops::mul(normal_of(mean, g), Scalar(std)), mean);
}
Tensor normal_float_tensor(double mean, const Tensor& std, Generator* g) {
  check_std(std);
  return ops::add(ops::mul(normal_of(std, g), std), Scalar(mean));
}
Tensor normal_tensor_tensor(const Tensor& mean, const Tensor& std, Generator* g) {
  check_std(std);
  check_same_device(mean, std, "normal");
  Dims sizes = broadcast_sizes(mean.sizes(), std.sizes(), "normal");
  return ops::add(ops::mul(normal_of(raw_expand(mean, sizes, "normal"), g), std), mean);
}
Tensor normal_float_float(double mean, double std, IntSpan size, Generator* g, DType dtype, Device device, bool) {
  Device d = or_default(device);
  TS_CHECK(std >= 0, "normal: expects std >= 0.0, but found std ", std);
  Tensor out = normal_tensor(size, floating_dtype(dtype, "normal"), d, generator_for(g, d, "normal"));
  scale_and_shift(out, std, mean);
  return out;
}

#define OPTIONS "ScalarType? dtype=None, Device? device=None, bool requires_grad=False"
#define LIKE_OPTIONS "*, " OPTIONS ", MemoryFormat? memory_format=None"
#define DRAW_OPTIONS "*, Generator? generator=None, " OPTIONS

} // namespace

TS_OPERATORS(random_factories) {
  def("rand(int[] size, " DRAW_OPTIONS ") -> Tensor")
      .body<rand>()
      .function_only()
      .out()
      .doc("Uniform numbers in [0, 1).");
  def("randn(int[] size, " DRAW_OPTIONS ") -> Tensor")
      .body<randn>()
      .function_only()
      .out()
      .doc("Standard normal numbers.");
  def("randint(int high, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .body<randint_high>()
      .function_only()
      .out()
      .doc("Integers drawn evenly from [0, high).");
  def("randint.low(int low, int high, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .body<randint>()
      .function_only()
      .out()
      .doc("Integers drawn evenly from [low, high).");
  def("randperm(int n, " DRAW_OPTIONS ") -> Tensor")
      .body<randperm>()
      .function_only()
      .out()
      .doc("A random order of 0, 1, ..., n - 1.");
  def("rand_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .body<rand_like>()
      .function_only()
      .not_differentiable()
      .doc("Uniform numbers in [0, 1) with self's shape, dtype and device.");
  def("randn_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .body<randn_like>()
      .function_only()
      .not_differentiable()
      .doc("Standard normal numbers with self's shape, dtype and device.");
  def("randint_like(Tensor self, int high, " LIKE_OPTIONS ") -> Tensor")
      .body<randint_like_high>()
      .function_only()
      .not_differentiable()
      .doc("Integers from [0, high) with self's shape, dtype and device.");
  def("randint_like.low_dtype(Tensor self, int low, int high, " LIKE_OPTIONS ") -> Tensor")
      .body<randint_like>()
      .function_only()
      .not_differentiable()
      .doc("Integers from [low, high) with self's shape, dtype and device.");
  def("normal.Tensor_float(Tensor mean, float std=1.0, *, Generator? generator=None) -> Tensor")
      .body<normal_tensor_float>()
      .function_only()
      .not_differentiable()
      .doc("Normal numbers around the elements of mean.");
  def("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .body<normal_float_tensor>()
      .function_only()
      .not_differentiable()
      .doc("Normal numbers with a standard deviation for each element.");
  def("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .body<normal_tensor_tensor>()
      .function_only()
      .not_differentiable()
      .doc("Normal numbers with mean and standard deviation for each element.");
  def("normal.float_float(float mean, float std, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .body<normal_float_float>()
      .function_only()
      .out()
      .doc("Normal numbers of the given mean and standard deviation.");
}

} // namespace ts
