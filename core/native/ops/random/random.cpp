// Random factories: rand, randn, randint, randperm, normal. See random_bits.h for which words of the stream each
// consumes.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/like.h"
#include "ops/common/no_gradient.h"
#include "ops/common/promotion.h"
#include "ops/random/random_bits.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRandomCode = "claims its random numbers before it is known who draws them";

using Format = std::optional<MemoryFormat>;

Tensor drawn(const char* op, IntSpan size, Generator* g, DType t, Device device) {
  Tensor out = outline(size, t, or_default(device));
  if (!out.device().is_meta()) generator_for(g, out.device(), op);
  return out;
}

// --- factories ---
Tensor rand_rule(IntSpan size, Generator* g, DType dtype, Device device, bool) {
  return drawn("rand", size, g, drawn_dtype(dtype, "rand"), device);
}
void rand(const Tensor& out, IntSpan, Generator* g, DType, Device, bool) {
  draw_uniform(out, generator_for(g, out.device(), "rand"));
}
Tensor randn_rule(IntSpan size, Generator* g, DType dtype, Device device, bool) {
  return drawn("randn", size, g, drawn_dtype(dtype, "randn"), device);
}
void randn(const Tensor& out, IntSpan, Generator* g, DType, Device, bool) {
  draw_normal(out, generator_for(g, out.device(), "randn"));
}
Tensor rand_like_rule(const Tensor& self, DType dtype, Device device, bool, Format format) {
  Tensor t = outline_as(self, dtype, device, format);
  drawn_dtype(t.dtype(), "rand_like");
  return t;
}
void rand_like(const Tensor& out, const Tensor&, DType, Device, bool, Format) {
  draw_uniform(out, default_generator(out.device()));
}
void randn_like(const Tensor& out, const Tensor&, DType, Device, bool, Format) {
  draw_normal(out, default_generator(out.device()));
}

void draw_integers(const Tensor& out, int64_t low, int64_t high, Generator* g) {
  fill_integers(out, low, high, generator_for(g, out.device(), "randint"));
}
Tensor randint_rule(int64_t low, int64_t high, IntSpan size, Generator* g, DType dtype, Device device, bool) {
  DType t = dtype == DType::Undefined ? DType::Int64 : dtype;
  check_integer_range(low, high, t, "randint");
  return drawn("randint", size, g, t, device);
}
void randint(const Tensor& out, int64_t low, int64_t high, IntSpan, Generator* g, DType, Device, bool) {
  draw_integers(out, low, high, g);
}
Tensor randint_high_rule(int64_t high, IntSpan size, Generator* g, DType dtype, Device device, bool grad) {
  return randint_rule(0, high, size, g, dtype, device, grad);
}
void randint_high(const Tensor& out, int64_t high, IntSpan, Generator* g, DType, Device, bool) {
  draw_integers(out, 0, high, g);
}
Tensor randint_like_rule(const Tensor& self, int64_t low, int64_t high, DType dtype, Device device, bool,
                         Format format) {
  Tensor t = outline_as(self, dtype, device, format);
  check_integer_range(low, high, t.dtype(), "randint_like");
  return t;
}
void randint_like(const Tensor& out, const Tensor&, int64_t low, int64_t high, DType, Device, bool, Format) {
  draw_integers(out, low, high, nullptr);
}
Tensor randint_like_high_rule(const Tensor& self, int64_t high, DType dtype, Device device, bool grad, Format format) {
  return randint_like_rule(self, 0, high, dtype, device, grad, format);
}
void randint_like_high(const Tensor& out, const Tensor&, int64_t high, DType, Device, bool, Format) {
  draw_integers(out, 0, high, nullptr);
}

// The stable order of random 63-bit keys: the same permutation wherever it is sorted.
Tensor randperm_rule(int64_t n, Generator* g, DType dtype, Device device, bool) {
  TS_CHECK(n >= 0, "randperm: n must be non-negative, got ", n);
  DType t = dtype == DType::Undefined ? DType::Int64 : dtype;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_bool(t) && !is_complex(t) && !is_storage_dtype(t),
                "randperm: not implemented for dtype ", t);
  // The greatest number up to which every one has a place of its own in the dtype.
  int64_t greatest = is_floating(t)      ? int64_t{1} << (t == DType::Float64   ? 53
                                                          : t == DType::Float32 ? 24
                                                          : t == DType::Float16 ? 11
                                                                                : 8)
                     : item_size(t) == 8 ? INT64_MAX
                                         : (int64_t{1} << (item_size(t) * 8 - !is_unsigned(t))) - 1;
  TS_CHECK(n - 1 <= greatest, "randperm: n = ", n, " is too large for ", t, " to hold every index");
  return drawn("randperm", IntSpan(&n, 1), g, t, device);
}
const KernelId kRandomOrder("random_order");
void randperm(const Tensor& out, int64_t, Generator* g, DType, Device, bool) {
  static const Op shift_right("_shift_right");
  Generator& generator = generator_for(g, out.device(), "randperm");
  Tensor keys = random_bits(out.sizes(), DType::UInt64, out.device(), generator);
  const bool at_once = out.dtype() == DType::Int64 && out.is_contiguous();
  Tensor order = at_once ? out : empty_tensor(out.sizes(), DType::Int64, out.device());
  if (Launch(kRandomOrder, out.device()).out(order).in(keys).run()) return at_once ? void() : raw_copy(out, order);
  keys = raw_cast(shift_right(keys, Scalar(1)), DType::Int64);
  raw_copy(out, ops::sort.multi<2>(keys, 0)[1]);
}

// --- normal(mean, std)
// Drawn in the dtype of the tensor that gives the shape.
void draw_like(const Tensor& out, DType drawn, Generator* given) {
  Generator& g = generator_for(given, out.device(), "normal");
  if (out.dtype() == drawn) return fill_normal(out, g);
  raw_copy(out, normal_tensor(out.sizes(), drawn, out.device(), g));
}
void check_std(const Tensor& std) {
  TS_CHECK(!raw_truth(ops::any(ops::lt(std, Scalar(0)))), "normal: expects all elements of std >= 0.0");
}
Tensor normal_like(const Tensor& t, Generator* g) {
  Tensor out = outline_like(t, floating_dtype(t.dtype(), "normal"));
  if (!t.device().is_meta()) generator_for(g, t.device(), "normal");
  return out;
}

Tensor normal_tensor_float_rule(const Tensor& mean, double std, Generator* g) {
  TS_CHECK(std >= 0, "normal: expects std >= 0.0, but found std ", std);
  return normal_like(mean, g);
}
void normal_tensor_float(const Tensor& out, const Tensor& mean, double std, Generator* g) {
  draw_like(out, mean.dtype(), g);
  ops::mul_(out, Scalar(std));
  ops::add_(out, mean);
}
Tensor normal_float_tensor_rule(double, const Tensor& std, Generator* g) { return normal_like(std, g); }
void normal_float_tensor(const Tensor& out, double mean, const Tensor& std, Generator* g) {
  check_std(std);
  draw_like(out, std.dtype(), g);
  ops::mul_(out, std);
  ops::add_(out, Scalar(mean));
}
Tensor normal_tensor_tensor_rule(const Tensor& mean, const Tensor& std, Generator* g) {
  floating_dtype(mean.dtype(), "normal"), floating_dtype(std.dtype(), "normal");
  check_same_device(mean, std, "normal");
  Dims sizes = broadcast_sizes(mean.sizes(), std.sizes(), "normal");
  const Tensor both[] = {mean, std};
  return drawn("normal", sizes, g, result_type(TensorList(both)), mean.device());
}
void normal_tensor_tensor(const Tensor& out, const Tensor& mean, const Tensor& std, Generator* g) {
  check_std(std);
  draw_like(out, mean.dtype(), g);
  ops::mul_(out, std);
  ops::add_(out, mean);
}
Tensor normal_float_float_rule(double, double std, IntSpan size, Generator* g, DType dtype, Device device, bool) {
  TS_CHECK(std >= 0, "normal: expects std >= 0.0, but found std ", std);
  return drawn("normal", size, g, floating_dtype(dtype, "normal"), device);
}
void normal_float_float(const Tensor& out, double mean, double std, IntSpan, Generator* g, DType, Device, bool) {
  fill_normal(out, generator_for(g, out.device(), "normal"));
  scale_and_shift(out, std, mean);
}

#define OPTIONS "ScalarType? dtype=None, Device? device=None, bool requires_grad=False"
#define LIKE_OPTIONS "*, " OPTIONS ", MemoryFormat? memory_format=None"
#define DRAW_OPTIONS "*, Generator? generator=None, " OPTIONS

} // namespace

TS_OPERATORS(random_factories) {
  def("rand(int[] size, " DRAW_OPTIONS ") -> Tensor")
      .rule<rand_rule>()
      .computation<rand>(kRandomCode)
      .function_only()
      .out()
      .doc("Uniform numbers in [0, 1).");
  def("randn(int[] size, " DRAW_OPTIONS ") -> Tensor")
      .rule<randn_rule>()
      .computation<randn>(kRandomCode)
      .function_only()
      .out()
      .doc("Standard normal numbers.");
  def("randint(int high, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .rule<randint_high_rule>()
      .computation<randint_high>(kRandomCode)
      .function_only()
      .out()
      .doc("Integers drawn evenly from [0, high).");
  def("randint.low(int low, int high, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .rule<randint_rule>()
      .computation<randint>(kRandomCode)
      .function_only()
      .out()
      .doc("Integers drawn evenly from [low, high).");
  def("randperm(int n, " DRAW_OPTIONS ") -> Tensor")
      .facts("kernel:random_order")
      .rule<randperm_rule>()
      .computation<randperm>(kRandomCode)
      .function_only()
      .out()
      .doc("A random order of 0, 1, ..., n - 1.");
  def("rand_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored:complex32")
      .rule<rand_like_rule>()
      .computation<rand_like>(kRandomCode)
      .function_only()
      .not_differentiable()
      .random()
      .doc("Uniform numbers in [0, 1) with self's shape, dtype and device.");
  def("randn_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored:complex32")
      .rule<rand_like_rule>()
      .computation<randn_like>(kRandomCode)
      .function_only()
      .not_differentiable()
      .random()
      .doc("Standard normal numbers with self's shape, dtype and device.");
  def("randint_like(Tensor self, int high, " LIKE_OPTIONS ") -> Tensor")
      .rule<randint_like_high_rule>()
      .computation<randint_like_high>(kRandomCode)
      .function_only()
      .not_differentiable()
      .random()
      .doc("Integers from [0, high) with self's shape, dtype and device.");
  def("randint_like.low_dtype(Tensor self, int low, int high, " LIKE_OPTIONS ") -> Tensor")
      .rule<randint_like_rule>()
      .computation<randint_like>(kRandomCode)
      .function_only()
      .not_differentiable()
      .random()
      .doc("Integers from [low, high) with self's shape, dtype and device.");
  def("normal.Tensor_float(Tensor mean, float std=1.0, *, Generator? generator=None) -> Tensor")
      .rule<normal_tensor_float_rule>()
      .computation<normal_tensor_float>(kRandomCode)
      .function_only()
      .gradient(zero_gradient)
      .out()
      .doc("Normal numbers around the elements of mean.");
  def("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .rule<normal_float_tensor_rule>()
      .computation<normal_float_tensor>(kRandomCode)
      .reads_host()
      .function_only()
      .gradient(zero_gradient)
      .out()
      .doc("Normal numbers with a standard deviation for each element.");
  def("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .rule<normal_tensor_tensor_rule>()
      .computation<normal_tensor_tensor>(kRandomCode)
      .reads_host()
      .function_only()
      .gradient(zero_gradient)
      .out()
      .doc("Normal numbers with mean and standard deviation for each element.");
  def("normal.float_float(float mean, float std, int[] size, " DRAW_OPTIONS ") -> Tensor")
      .rule<normal_float_float_rule>()
      .computation<normal_float_float>(kRandomCode)
      .function_only()
      .out()
      .doc("Normal numbers of the given mean and standard deviation.");
}

} // namespace ts
