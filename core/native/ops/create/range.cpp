// Sequences and triangles: arange, linspace, logspace, tril, triu and their indices.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/common/storage_dtypes.h"
#include "runtime/computed_dtypes.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRangeCode = "counts by the entry point iota, then steps of its own";

const KernelId kRangeIota("iota"), kTriangleIndices("triangle_indices");

void iota_into(const Tensor& out, Scalar start, Scalar step) {
  if (out.numel()) Launch(kRangeIota, out.device()).out(out).param(start).param(step).run_required();
}

// Exact in 128 bits for integers; in double otherwise, as PyTorch counts.
int64_t integer_count(int64_t start, int64_t end, int64_t step) {
  TS_CHECK(step != 0, "arange: step must be nonzero");
  TS_CHECK((step > 0 && end >= start) || (step < 0 && end <= start),
           "arange: upper bound and lower bound inconsistent with step sign, got start ", start, ", end ", end,
           ", step ", step);
  __int128 span = static_cast<__int128>(end) - start, s = step;
  __int128 n = (span + s - (s > 0 ? 1 : -1)) / s;
  TS_CHECK(n <= INT64_MAX, "arange: invalid size, possible overflow");
  return static_cast<int64_t>(n);
}

int64_t float_count(double start, double end, double step) {
  TS_CHECK(step != 0, "arange: step must be nonzero");
  TS_CHECK(std::isfinite(start) && std::isfinite(end), "arange: unsupported range: ", start, " -> ", end);
  TS_CHECK(!std::isnan(step), "arange: step must not be NaN");
  TS_CHECK((step > 0 && end >= start) || (step < 0 && end <= start),
           "arange: upper bound and lower bound inconsistent with step sign, got start ", start, ", end ", end,
           ", step ", step);
  double n = std::ceil((end - start) / step);
  TS_CHECK(n >= 0 && n < 9223372036854775808.0, "arange: invalid size, possible overflow");
  return static_cast<int64_t>(n);
}

int64_t whole(Scalar s) { return convert_scalar(s, DType::Int64, "arange").i; }

Tensor arange_step_rule(Scalar start, Scalar end, Scalar step, DType dtype, Device device, bool) {
  bool integers = !start.is_float() && !end.is_float() && !step.is_float();
  DType t = dtype != DType::Undefined ? dtype : integers ? DType::Int64 : default_dtype();
  refuse_storage_dtype(t, "arange");
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_bool(t) && !is_complex(t), "arange: not implemented for dtype ", t);
  bool exact = integers || t == DType::Int64;
  if (is_integral(t, false)) whole(start), whole(step);
  int64_t n = exact ? integer_count(whole(start), whole(end), whole(step))
                    : float_count(start.to_double(), end.to_double(), step.to_double());
  return outline(IntSpan(&n, 1), t, or_default(device));
}
void arange_step(const Tensor& out, Scalar start, Scalar, Scalar step, DType, Device, bool) {
  if (is_integral(out.dtype(), false))
    iota_into(out, whole(start), whole(step));
  else
    iota_into(out, start.to_double(), step.to_double());
}
Tensor arange_start_rule(Scalar start, Scalar end, DType dtype, Device device, bool grad) {
  return arange_step_rule(start, end, Scalar(1), dtype, device, grad);
}
void arange_start(const Tensor& out, Scalar start, Scalar end, DType dtype, Device device, bool grad) {
  arange_step(out, start, end, Scalar(1), dtype, device, grad);
}
Tensor arange_rule(Scalar end, DType dtype, Device device, bool grad) {
  return arange_step_rule(Scalar(0), end, Scalar(1), dtype, device, grad);
}
void arange(const Tensor& out, Scalar end, DType dtype, Device device, bool grad) {
  arange_step(out, Scalar(0), end, Scalar(1), dtype, device, grad);
}

// The upper half counts down from the end, so that both ends are exact; the step of float32 is one, as PyTorch's.
Tensor spaced(double start, double end, int64_t steps, DType t, Device device) {
  Tensor out = empty_tensor(IntSpan(&steps, 1), t, device);
  if (steps == 1) {
    raw_fill(out, Scalar(start));
    return out;
  }
  double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  float first = static_cast<float>(start), last = static_cast<float>(end), reach = last - first;
  if (t == DType::Float32 && std::isfinite(reach))
    start = first, end = last, step = reach / static_cast<float>(steps > 1 ? steps - 1 : 1);
  int64_t lower = steps / 2, upper = steps - lower, minus_one = -1;
  iota_into(raw_narrow(out, 0, 0, lower), start, step);
  if (upper == 0) return out;
  Tensor down = empty_tensor(IntSpan(&upper, 1), t, device);
  iota_into(down, end, -step);
  raw_copy(raw_narrow(out, 0, lower, upper),
           alias(down, IntSpan(&upper, 1), IntSpan(&minus_one, 1), (upper - 1) * item_size(t)));
  return out;
}

DType spaced_dtype(Scalar start, Scalar end, DType dtype, int64_t steps, const char* op) {
  TS_CHECK(steps >= 0, op, ": number of steps must be non-negative, got ", steps);
  bool complex = start.is_complex() || end.is_complex();
  DType t = complex && dtype == DType::Undefined ? complex_type(or_default(dtype)) : or_default(dtype);
  TS_CHECK(!complex || is_complex(t), op, ": complex bounds can't be safely cast to dtype ", t);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_bool(t), op, ": not implemented for dtype ", t);
  refuse_storage_dtype(t, op);
  return t;
}

DType spacing_dtype(DType t, Device device) {
  return is_floating(t) || is_complex(t) ? accumulate_type(t, device) : DType::Float64;
}

// Complex numbers on a straight line: part by part.
Tensor spaced(Scalar start, Scalar end, int64_t steps, DType t, Device device) {
  if (!is_complex(t)) return spaced(start.to_double(), end.to_double(), steps, t, device);
  Tensor out = empty_tensor(IntSpan(&steps, 1), t, device);
  raw_copy(raw_part(out, false), spaced(start.real(), end.real(), steps, real_type(t), device));
  raw_copy(raw_part(out, true), spaced(start.imag(), end.imag(), steps, real_type(t), device));
  return out;
}

// Bounds of integers are integers, as PyTorch has it, and those that are reached are numbers of the dtype.
void to_bounds(Scalar& start, Scalar& end, int64_t steps, DType t, const char* op) {
  if (steps > 0) convert_scalar(start, t, op);
  if (steps > 1) convert_scalar(end, t, op);
  if (!is_integral(t, false)) return;
  start = Scalar(std::trunc(start.to_double())), end = Scalar(std::trunc(end.to_double()));
}

Tensor linspace_rule(Scalar start, Scalar end, int64_t steps, DType dtype, Device device, bool) {
  return outline(IntSpan(&steps, 1), spaced_dtype(start, end, dtype, steps, "linspace"), or_default(device));
}
void linspace(const Tensor& out, Scalar start, Scalar end, int64_t steps, DType, Device, bool) {
  to_bounds(start, end, steps, out.dtype(), "linspace");
  raw_copy(out, spaced(start, end, steps, spacing_dtype(out.dtype(), out.device()), out.device()));
}

Tensor logspace_rule(Scalar start, Scalar end, int64_t steps, double, DType dtype, Device device, bool) {
  return outline(IntSpan(&steps, 1), spaced_dtype(start, end, dtype, steps, "logspace"), or_default(device));
}
void logspace(const Tensor& out, Scalar start, Scalar end, int64_t steps, double base, DType, Device, bool) {
  DType computed = spacing_dtype(out.dtype(), out.device());
  to_bounds(start, end, steps, out.dtype(), "logspace");
  Tensor exponents = spaced(start, end, steps, computed, out.device());
  raw_copy(out, ops::pow(filled({}, Scalar(base), computed, out.device()), exponents));
}

// --- triangles ---
// True where the element is dropped: below the diagonal (upper) or above it.
Tensor dropped(int64_t rows, int64_t columns, int64_t diagonal, bool upper, Device device) {
  diagonal = std::clamp(diagonal, -rows - 1, columns + 1);
  int64_t rows_shape[] = {rows, 1};
  Tensor limit = empty_tensor(IntSpan(&rows, 1), DType::Int64, device);
  iota_into(limit, diagonal, int64_t{1});
  Tensor column = counting(columns, device);
  return upper ? ops::lt(column, reshaped(limit, rows_shape)) : ops::gt(column, reshaped(limit, rows_shape));
}

template <bool upper> Tensor triangle_rule(const Tensor& self, int64_t) {
  TS_CHECK(self.ndim() >= 2, upper ? "triu" : "tril", ": input tensor must have at least 2 dimensions, got sizes ",
           self.sizes());
  return outline(self.sizes(), self.dtype(), self.device());
}
template <bool upper> Tensor triangle_parts(const Tensor& self, int64_t diagonal) {
  return ops::masked_fill(self, dropped(self.size(-2), self.size(-1), diagonal, upper, self.device()), Scalar(0));
}

// Elements of a rows x columns matrix where column <= row + diagonal: rows that grow by one, then full ones.
int64_t lower_count(int64_t rows, int64_t columns, int64_t diagonal) {
  int64_t first = std::clamp<int64_t>(-diagonal, 0, rows); // the first row with an element
  int64_t full = std::clamp<int64_t>(columns - 1 - diagonal, first, rows), shortest = first + diagonal + 1;
  int64_t growing = full - first;
  __int128 n = static_cast<__int128>(growing) * (2 * static_cast<__int128>(shortest) + growing - 1) / 2 +
               static_cast<__int128>(rows - full) * columns;
  TS_CHECK(n <= INT64_MAX / 16, "tril_indices: a triangle of ", rows, " rows and ", columns,
           " columns has too many elements");
  return static_cast<int64_t>(n);
}

// Diagonals beyond the corners are as those at them.
int64_t within(int64_t row, int64_t col, int64_t offset) { return std::clamp(offset, -row, col); }

template <bool upper>
Tensor triangle_indices_rule(int64_t row, int64_t col, int64_t offset, DType dtype, Device device, bool) {
  const char* op = upper ? "triu_indices" : "tril_indices";
  TS_CHECK(row >= 0 && col >= 0, op, ": row and col must be non-negative, got ", row, " and ", col);
  DType t = dtype == DType::Undefined ? DType::Int64 : dtype;
  TS_CHECK(t == DType::Int64 || t == DType::Int32, op, ": expected dtype int32 or int64, got ", t);
  int64_t diagonal = within(row, col, offset);
  // The upper triangle is the transposed matrix's lower one.
  return outline(Dims{2, upper ? lower_count(col, row, -diagonal) : lower_count(row, col, diagonal)}, t,
                 or_default(device));
}
template <bool upper>
void triangle_indices(const Tensor& out, int64_t row, int64_t col, int64_t offset, DType, Device, bool) {
  int64_t diagonal = within(row, col, offset);
  if (Launch(kTriangleIndices, out.device()).out(out).param(row).param(col).param(diagonal).param(int64_t{upper}).run())
    return;
  Tensor kept = ops::logical_not(dropped(row, col, diagonal, upper, out.device()));
  raw_copy(out, ops::transpose(ops::nonzero(kept), 0, 1));
}

Scalar number_at_end(Scalar s, const char*, Device) { return s; }
Scalar number_at_end(const Tensor& t, const char* op, Device made) {
  TS_CHECK(t.ndim() == 0, op, " only supports 0-dimensional start and end tensors, got one of shape ", t.sizes());
  return made.is_meta() && t.device().is_meta() ? Scalar(0) : scalar_in(t);
}

template <class T> using End = std::conditional_t<std::is_same_v<T, Tensor>, const Tensor&, T>;

template <class A, class B>
Tensor linspace_between(End<A> start, End<B> end, int64_t steps, DType dtype, Device device, bool) {
  static const Op linspace("linspace");
  return linspace(number_at_end(start, "linspace", device), number_at_end(end, "linspace", device), steps, dtype,
                  device, false);
}
template <class A, class B>
Tensor logspace_between(End<A> start, End<B> end, int64_t steps, double base, DType dtype, Device device, bool) {
  static const Op logspace("logspace");
  return logspace(number_at_end(start, "logspace", device), number_at_end(end, "logspace", device), steps, base, dtype,
                  device, false);
}

#define OPTIONS "*, ScalarType? dtype=None, Device? device=None, bool requires_grad=False"

// Their ends stay unknown until the graph that holds them runs.
template <class A, class B> void declare_between(const char* overload, const char* ends) {
  def(concat("linspace.", overload, "(", ends, ", int steps, " OPTIONS ") -> Tensor").c_str())
      .body<linspace_between<A, B>>()
      .facts("leaf")
      .function_only()
      .doc("linspace between ends of which some are in 0-d tensors, to which no gradient flows.");
  def(concat("logspace.", overload, "(", ends, ", int steps, float base=10.0, " OPTIONS ") -> Tensor").c_str())
      .body<logspace_between<A, B>>()
      .facts("leaf")
      .function_only()
      .doc("logspace between exponents of which some are in 0-d tensors, to which no gradient flows.");
}

} // namespace

TS_OPERATORS(range) {
  def("arange(Scalar end, " OPTIONS ") -> Tensor")
      .rule<arange_rule>()
      .computation<arange>(kRangeCode)
      .function_only()
      .out()
      .doc("0, 1, ... below end; int64 for integers, else the default dtype.");
  def("arange.start(Scalar start, Scalar end, " OPTIONS ") -> Tensor")
      .rule<arange_start_rule>()
      .computation<arange_start>(kRangeCode)
      .function_only()
      .out()
      .doc("start, start + 1, ... below end.");
  def("arange.start_step(Scalar start, Scalar end, Scalar step=1, " OPTIONS ") -> Tensor")
      .rule<arange_step_rule>()
      .computation<arange_step>(kRangeCode)
      .function_only()
      .out()
      .doc("start, start + step, ... before end. RuntimeError when step is 0 or points away from end.");
  declare_between<Tensor, Tensor>("Tensor_Tensor", "Tensor start, Tensor end");
  declare_between<Tensor, Scalar>("Tensor_Scalar", "Tensor start, Scalar end");
  declare_between<Scalar, Tensor>("Scalar_Tensor", "Scalar start, Tensor end");
  def("linspace(Scalar start, Scalar end, int steps, " OPTIONS ") -> Tensor")
      .rule<linspace_rule>()
      .computation<linspace>(kRangeCode)
      .function_only()
      .out()
      .doc("`steps` evenly spaced numbers from start to end, both included.");
  def("logspace(Scalar start, Scalar end, int steps, float base=10.0, " OPTIONS ") -> Tensor")
      .rule<logspace_rule>()
      .computation<logspace>(kRangeCode)
      .function_only()
      .out()
      .doc("base to the power of `steps` evenly spaced exponents from start to end, both included.");
  def("tril(Tensor self, int diagonal=0) -> Tensor")
      .facts("stored:complex32")
      .rule<triangle_rule<false>>()
      .kernel("tril", "self: contiguous", "diagonal")
      .decompose<triangle_parts<false>>()
      .inplace()
      .out(kSameDtype)
      .gradient([](GradContext& c) {
        static const Op tril("tril");
        c.set(0, tril(c.grad(), c.value<int64_t>(1)));
      })
      .doc("The lower triangles of matrices, zeros elsewhere; diagonal shifts the boundary up.");
  def("triu(Tensor self, int diagonal=0) -> Tensor")
      .facts("stored:complex32")
      .rule<triangle_rule<true>>()
      .kernel("triu", "self: contiguous", "diagonal")
      .decompose<triangle_parts<true>>()
      .inplace()
      .out(kSameDtype)
      .gradient([](GradContext& c) {
        static const Op triu("triu");
        c.set(0, triu(c.grad(), c.value<int64_t>(1)));
      })
      .doc("The upper triangles of matrices, zeros elsewhere; diagonal shifts the boundary up.");
  def("tril_indices(int row, int col, int offset=0, " OPTIONS ") -> Tensor")
      .facts("kernel:triangle_indices")
      .rule<triangle_indices_rule<false>>()
      .computation<triangle_indices<false>>(kRangeCode)
      .reads_host()
      .function_only()
      .doc("Row and column indices (2, n) of the lower triangle of a row by col matrix, in row-major order.");
  def("triu_indices(int row, int col, int offset=0, " OPTIONS ") -> Tensor")
      .facts("kernel:triangle_indices")
      .rule<triangle_indices_rule<true>>()
      .computation<triangle_indices<true>>(kRangeCode)
      .reads_host()
      .function_only()
      .doc("Row and column indices (2, n) of the upper triangle of a row by col matrix, in row-major order.");
}

} // namespace ts
