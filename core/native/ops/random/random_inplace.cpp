// Random draws into a tensor, and Bernoulli draws by element. See random_bits.h for the words they consume.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/random/random_bits.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRandomInplaceCode = "claims its random numbers before it is known who draws them";

void check_draw(const Tensor& self, Generator* g, const char* op) {
  check_inplace(self, op);
  if (!self.device().is_meta()) generator_for(g, self.device(), op);
}
Generator& generator_of(const Tensor& self, Generator* g) { return generator_for(g, self.device(), "random"); }

// The last number of t in [from, to), and below what `to` is rounded to, which is what users compare with.
double last_below(double from, double to, DType t) {
  const double below = floor_number(to, t), above = -floor_number(-to, t);
  const bool reached = above - to >= to - below;
  const double last = reached ? floor_number(std::nextafter(static_cast<long double>(below), -INFINITY), t) : below;
  return std::max(last, from);
}

void uniform_rule(const Tensor& self, double from, double to, Generator* g) {
  drawn_dtype(self.dtype(), "uniform_");
  TS_CHECK(from <= to, "uniform_: expects to return a [from, to) range, but found from=", from, " > to=", to);
  convert_scalar(Scalar(from), self.dtype(), "uniform_");
  convert_scalar(Scalar(to), self.dtype(), "uniform_");
  TS_CHECK(std::isfinite(to - from), "uniform_: expects to-from to be finite, but found to=", to, " and from=", from);
  convert_scalar(Scalar(to - from), self.dtype(), "uniform_: to-from");
  check_draw(self, g, "uniform_");
}
void uniform_(const Tensor& self, double from, double to, Generator* g) {
  draw_uniform(self, generator_of(self, g));
  if (self.numel() == 0 || (from == 0 && to == 1)) return;
  static const Op within("_scale_within_");
  Tensor drawn = is_complex(self.dtype()) ? raw_parts(self) : self;
  within(drawn, Scalar(to - from), Scalar(from), Scalar(last_below(from, to, drawn.dtype())));
}

void normal_rule(const Tensor& self, double, double std, Generator* g) {
  drawn_dtype(self.dtype(), "normal_");
  TS_CHECK(std >= 0, "normal_: expects std >= 0.0, but found std ", std);
  check_draw(self, g, "normal_");
}
void normal_(const Tensor& self, double mean, double std, Generator* g) {
  draw_normal(self, generator_of(self, g));
  scale_and_shift(self, std, mean);
}

// Without bounds: every integer the dtype holds exactly, from zero, as PyTorch.
int64_t natural_limit(DType t) {
  if (is_bool(t)) return 1;
  if (is_floating(t))
    return int64_t{1} << (t == DType::Float64 ? 53 : t == DType::Float32 ? 24 : t == DType::Float16 ? 11 : 8);
  if (item_size(t) >= 8) return INT64_MAX; // complex numbers, too, which are refused afterwards
  return (int64_t{1} << (item_size(t) * 8 - !is_unsigned(t))) - 1;
}
int64_t limit_of(const Tensor& self, std::optional<int64_t> to) {
  int64_t limit = natural_limit(self.dtype());
  return to.value_or(limit == INT64_MAX ? limit : limit + 1);
}

void random_from_rule(const Tensor& self, int64_t from, std::optional<int64_t> to, Generator* g) {
  check_integer_range(from, limit_of(self, to), self.dtype(), "random_");
  check_draw(self, g, "random_");
}
void random_from(const Tensor& self, int64_t from, std::optional<int64_t> to, Generator* g) {
  if (self.numel()) fill_integers(self, from, limit_of(self, to), generator_of(self, g));
}
void random_to_rule(const Tensor& self, int64_t to, Generator* g) { random_from_rule(self, 0, to, g); }
void random_to(const Tensor& self, int64_t to, Generator* g) { random_from(self, 0, to, g); }
void random_rule(const Tensor& self, Generator* g) { random_from_rule(self, 0, std::nullopt, g); }
void random_(const Tensor& self, Generator* g) { random_from(self, 0, std::nullopt, g); }

Tensor uniforms_for(const Tensor& self, Generator* g) {
  const DType t = is_floating(self.dtype()) ? accumulate_type(self) : DType::Float32;
  return uniform_tensor(self.sizes(), t, self.device(), generator_of(self, g));
}

// Values of float32 at least into self, none of them rounded to an end that their range excludes: infinity, nor zero
// where they are positive.
void copy_finite(const Tensor& self, const Tensor& values, double least) {
  const double most = largest_number(self.dtype());
  copy_into(self, ops::clamp(values, Scalar(least < 0 ? -most : std::max(least, smallest_number(self.dtype()))),
                             Scalar(most)));
}

// -log(1 - u) / rate.
void exponential_rule(const Tensor& self, double rate, Generator* g) {
  floating_dtype(self.dtype(), "exponential_");
  TS_CHECK(rate > 0, "exponential_: expects lambda > 0.0, but found lambda=", rate);
  check_draw(self, g, "exponential_");
}
void exponential_(const Tensor& self, double rate, Generator* g) {
  static const Op log1p("log1p");
  if (self.numel() == 0) return;
  if (std::isinf(rate)) return raw_fill(self, 0.0);
  Tensor u = uniforms_for(self, g);
  Tensor waiting = ops::mul(log1p(ops::neg(u)), Scalar(-1.0 / rate));
  // A u of zero stands for all up to half a step of u.
  copy_finite(self, waiting, (u.dtype() == DType::Float64 ? 0x1p-54 : 0x1p-25) / rate);
}

// Other distributions from uniform numbers in [0, 1), worked out in float32 at least and then cast.
void log_normal_rule(const Tensor& self, double, double std, Generator* g) {
  floating_dtype(self.dtype(), "log_normal_");
  TS_CHECK(std > 0, "log_normal_: expects std > 0.0, but found std=", std);
  check_draw(self, g, "log_normal_");
}
void log_normal_(const Tensor& self, double mean, double std, Generator* g) {
  Tensor normal = empty_tensor(self.sizes(), accumulate_type(self), self.device());
  fill_normal(normal, generator_of(self, g));
  if (self.numel()) copy_finite(self, ops::exp(ops::add(ops::mul(normal, Scalar(std)), Scalar(mean))), 0);
}
// median + sigma * tan(pi (u - 1/2)).
void cauchy_rule(const Tensor& self, double, double sigma, Generator* g) {
  floating_dtype(self.dtype(), "cauchy_");
  TS_CHECK(sigma > 0, "cauchy_: expects sigma > 0.0, but found sigma=", sigma);
  check_draw(self, g, "cauchy_");
}
void cauchy_(const Tensor& self, double median, double sigma, Generator* g) {
  static const Op tan_op("tan");
  if (self.numel() == 0) return;
  if (std::isinf(median)) return raw_fill(self, median);
  Tensor angle = ops::mul(ops::sub(uniforms_for(self, g), Scalar(0.5)), Scalar(M_PI));
  copy_finite(self, ops::add(ops::mul(tan_op(angle), Scalar(sigma)), Scalar(median)), -INFINITY);
}
// Tosses until the first success: ceil(log(1 - u) / log(1 - p)), at least one.
void geometric_rule(const Tensor& self, double p, Generator* g) {
  TS_CHECK(p > 0 && p < 1, "geometric_: expects p to be in (0, 1), but got p=", p);
  check_draw(self, g, "geometric_");
}
void geometric_(const Tensor& self, double p, Generator* g) {
  static const Op log1p("log1p"), ceil_op("ceil");
  if (self.numel() == 0) return;
  Tensor tosses = ops::mul(log1p(ops::neg(uniforms_for(self, g))), Scalar(1 / std::log1p(-p)));
  const int bits = static_cast<int>(item_size(self.dtype())) * 8 - !is_unsigned(self.dtype());
  const double most = is_floating(self.dtype()) ? largest_number(self.dtype()) : std::ldexp(1.0, bits) - 1;
  copy_into(self, ops::clamp(ceil_op(tosses), Scalar(1), Scalar(most)));
}

void check_probability(double p, const char* op) {
  TS_CHECK(p >= 0 && p <= 1, op, ": expects p to be in [0, 1], but got p=", p);
}

void bernoulli_float_rule(const Tensor& self, double p, Generator* g) {
  check_probability(p, "bernoulli_");
  check_draw(self, g, "bernoulli_");
}
// True where a uniform number is below p: that of float32, as whole numbers of 2^-24, on a device without it.
Tensor drawn_below(const Tensor& self, double p, Generator* g) {
  if (self.dtype() == DType::Float64 || computes_with(self.device(), DType::Float32))
    return ops::lt(uniforms_for(self, g), Scalar(p));
  return ops::logical_not(uniform_at_least(self.sizes(), p, self.device(), generator_of(self, g)));
}
Tensor drawn_below(const Tensor& self, const Tensor& p, Generator* g) {
  if (self.dtype() == DType::Float64 || computes_with(self.device(), DType::Float32))
    return ops::lt(uniforms_for(self, g), p);
  static const Op floor_op("floor"), ceil_op("ceil");
  Tensor scaled = ops::mul(p, Scalar(0x1p12)), high = floor_op(scaled); // halves hold either, and what is left
  Tensor low = ceil_op(ops::mul(ops::sub(scaled, high), Scalar(0x1p12)));
  Tensor limit = ops::add(ops::mul(raw_cast(high, DType::Int64), Scalar(4096)), raw_cast(low, DType::Int64));
  return ops::lt(uniform_steps(self.sizes(), self.device(), generator_of(self, g)), limit);
}

void bernoulli_float(const Tensor& self, double p, Generator* g) {
  if (self.numel()) copy_into(self, drawn_below(self, p, g));
}

// Waits for the device.
void check_probabilities(const Tensor& p, const char* op) {
  if (p.numel() == 0) return;
  Tensor bad = ops::any(ops::logical_not(ops::logical_and(ops::ge(p, Scalar(0)), ops::le(p, Scalar(1)))));
  TS_CHECK(!raw_truth(bad), op, ": Expected p_in >= 0 && p_in <= 1 for every probability");
}

void bernoulli_tensor_rule(const Tensor& self, const Tensor& p, Generator* g) {
  floating_dtype(p.dtype(), "bernoulli_");
  check_same_device(self, p, "bernoulli_");
  expand_strides(p.sizes(), p.strides(), self.sizes(), "bernoulli_");
  check_draw(self, g, "bernoulli_");
}
void bernoulli_tensor(const Tensor& self, const Tensor& p, Generator* g) {
  check_probabilities(p, "bernoulli_");
  Tensor seen = raw_expand(p, self.sizes(), "bernoulli_");
  if (self.numel()) copy_into(self, drawn_below(self, seen, g));
}

Tensor bernoulli_rule(const Tensor& self, Generator* g) {
  floating_dtype(self.dtype(), "bernoulli");
  if (!self.device().is_meta()) generator_for(g, self.device(), "bernoulli");
  return outline(self.sizes(), self.dtype(), self.device());
}
void bernoulli(const Tensor& out, const Tensor& self, Generator* g) {
  check_probabilities(self, "bernoulli");
  raw_copy(out, drawn_below(self, self, g));
}
Tensor bernoulli_p_rule(const Tensor& self, double p, Generator* g) {
  check_probability(p, "bernoulli_");
  if (!self.device().is_meta()) generator_for(g, self.device(), "bernoulli");
  return outline_like(self, self.dtype());
}
void bernoulli_p(const Tensor& out, const Tensor&, double p, Generator* g) { bernoulli_float(out, p, g); }

void draws_gradient(GradContext& c) { c.set(0, ops::zeros_like(c.grad())); }

} // namespace

TS_OPERATORS(random_inplace) {
  def("_scale_within(Tensor self, Scalar scale, Scalar shift, Scalar last) -> Tensor")
      .pointwise("min(self * scale + shift, last)")
      .promote(Promote::Keep)
      .inplace()
      .hidden()
      .not_differentiable()
      .doc("Uniform numbers moved to an interval that excludes its upper end.");
  def("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor")
      .rule<bernoulli_rule>()
      .computation<bernoulli>(kRandomInplaceCode)
      .reads_host()
      .gradient(draws_gradient)
      .out(kApart | kAnyDtype)
      .doc("1 with the probability that stands in each element of self, else 0.");
  def("bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor")
      .rule<bernoulli_p_rule>()
      .computation<bernoulli_p>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .out(kApart | kAnyDtype)
      .doc("1 with probability p, else 0, in self's shape and dtype.");
  def("uniform_(Tensor(a!) self, float from=0.0, float to=1.0, *, Generator? generator=None) -> Tensor(a!)")
      .facts("kernel:rand_fill")
      .facts("stored:complex32")
      .rule<uniform_rule>()
      .computation<uniform_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with uniform numbers in [from, to).");
  def("normal_(Tensor(a!) self, float mean=0.0, float std=1.0, *, Generator? generator=None) -> Tensor(a!)")
      .facts("kernel:randn_fill")
      .facts("stored:complex32")
      .rule<normal_rule>()
      .computation<normal_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with normal numbers.");
  def("random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)")
      .facts("kernel:randint_fill")
      .rule<random_rule>()
      .computation<random_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with integers from 0 to the largest its dtype holds exactly.");
  def("random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)")
      .rule<random_to_rule>()
      .computation<random_to, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with integers from [0, to).");
  def("random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)")
      .rule<random_from_rule>()
      .computation<random_from, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with integers from [from, to).");
  def("exponential_(Tensor(a!) self, float lambd=1.0, *, Generator? generator=None) -> Tensor(a!)")
      .rule<exponential_rule>()
      .computation<exponential_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with exponentially distributed numbers of rate lambd.");
  def("log_normal_(Tensor(a!) self, float mean=1.0, float std=2.0, *, Generator? generator=None) -> Tensor(a!)")
      .rule<log_normal_rule>()
      .computation<log_normal_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with numbers whose logarithms are normal.");
  def("cauchy_(Tensor(a!) self, float median=0.0, float sigma=1.0, *, Generator? generator=None) -> Tensor(a!)")
      .rule<cauchy_rule>()
      .computation<cauchy_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with numbers of a Cauchy distribution.");
  def("geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)")
      .rule<geometric_rule>()
      .computation<geometric_, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with counts of tosses up to the first success of probability p.");
  def("bernoulli_(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)")
      .rule<bernoulli_float_rule>()
      .computation<bernoulli_float, 0>(kRandomInplaceCode)
      .gradient(draws_gradient)
      .method_only()
      .doc("Fills self with 1 with probability p, else 0.");
  def("bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, Generator? generator=None) -> Tensor(a!)")
      .rule<bernoulli_tensor_rule>()
      .computation<bernoulli_tensor, 0>(kRandomInplaceCode)
      .reads_host()
      .gradient([](GradContext& c) {
        draws_gradient(c);
        if (c.needs(1)) c.set(1, ops::zeros(c.sizes(1), c.dtype(1), c.device(1)));
      })
      .method_only()
      .doc("Fills self with 1 with the probabilities p, broadcast to self, else 0.");
}

} // namespace ts
