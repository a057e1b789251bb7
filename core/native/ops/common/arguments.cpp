#include "ops/common/arguments.h"
#include "dispatch/boxing.h"
#include "dispatch/describe.h"
#include "dispatch/op_handles.h"
#include "ops/common/narrow.h"
#include <algorithm>
#include <cmath>

namespace ts {
namespace {

// Whether one of few bits has room for a number: between the least and the most that it holds, or what it has codes
// for.
bool narrow_fits(double v, DType t) {
  double least = INFINITY, most = -INFINITY;
  bool finite = true, numbers = true;
  for (int code = 0; code < 256; ++code) {
    double held = narrow_value(t, static_cast<uint8_t>(code));
    finite = finite && !std::isinf(held);
    numbers = numbers && !std::isnan(held);
    if (!std::isfinite(held)) continue;
    least = std::min(least, held);
    most = std::max(most, held);
  }
  if (std::isnan(v)) return !numbers;
  return std::isinf(v) ? !finite : v >= least && v <= most;
}

double largest(DType t) {
  switch (t) {
  case DType::Complex32: return INFINITY; // as in PyTorch: what is too large becomes infinite
  case DType::Float16: return 65504.0;
  case DType::BFloat16: return 3.3895313892515355e38; // (2 - 2^-7) * 2^127
  case DType::Float32:
  case DType::Complex64: return 3.4028234663852886e38;
  default: return 1.7976931348623157e308;
  }
}

int bits_of(DType t) { return static_cast<int>(item_size(t)) * 8; }

bool integer_fits(int64_t v, DType t) {
  int bits = bits_of(t);
  if (bits == 64) return true; // a negative number wraps into uint64, as below
  int64_t top = int64_t{1} << (is_unsigned(t) ? bits : bits - 1);
  return v < top && v >= (is_unsigned(t) ? 1 - top : -top);
}

bool float_fits(double v, DType t) {
  if (std::isnan(v)) return false;
  double top = std::ldexp(1.0, is_unsigned(t) ? bits_of(t) : bits_of(t) - 1);
  v = std::trunc(v);
  return v < top && (is_unsigned(t) ? v > -top : v >= -top);
}

int64_t truncated(double v) {
  if (v >= 9223372036854775808.0) return static_cast<int64_t>(static_cast<uint64_t>(v));
  if (v < -9223372036854775808.0) return static_cast<int64_t>(-static_cast<uint64_t>(-v));
  return static_cast<int64_t>(v);
}

} // namespace

Scalar convert_scalar(Scalar value, DType t, const char* op) {
  if (value.is_complex()) {
    TS_CHECK(is_complex(t) || value.imag() == 0, op, ": value cannot be converted to type ", t,
             " without overflow: a complex number");
    if (!is_complex(t)) return convert_scalar(Scalar(value.real()), t, op);
    convert_scalar(Scalar(value.real()), t, op);
    convert_scalar(Scalar(value.imag()), t, op);
    return value;
  }
  if (is_bool(t)) return Scalar(value.is_float() ? value.f != 0 : value.i != 0);
  if (is_integral(t, false)) {
    bool fits = value.is_float() ? float_fits(value.f, t) : integer_fits(value.i, t);
    TS_CHECK(fits, op, ": value cannot be converted to type ", t, " without overflow: ", value.to_double());
    return Scalar(value.is_float() ? truncated(value.f) : value.i);
  }
  double v = value.to_double();
  bool fits = is_narrow(t) ? narrow_fits(v, t) : !std::isfinite(v) || std::fabs(v) <= largest(t);
  TS_CHECK(fits, op, ": value cannot be converted to type ", t, " without overflow: ", v);
  return Scalar(v);
}

void check_value_fits(const Tensor& value, DType t, const char* op) {
  if (value.dtype() == t || is_complex(t)) return;
  if (auto number = host_number(*value.impl())) convert_scalar(*number, t, op);
}

void check_same_device(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.device() == b.device(), op, ": ", devices_differ(a.device(), b.device()));
}

void check_index_dtype(const Tensor& index, const char* op) {
  TS_CHECK(index.dtype() == DType::Int64 || index.dtype() == DType::Int32, op,
           ": Expected dtype int32 or int64 for index, got ", index.dtype());
}

void check_long_index(const Tensor& index, const char* op) {
  TS_CHECK(index.dtype() == DType::Int64, op, "(): Expected a long tensor for index, but got ", index.dtype());
}

void check_not_meta(const Tensor& t, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !t.device().is_meta(), op,
                ": needs the values of a meta tensor, which has none; make the tensor on a real device");
}

Scalar scalar_in(const Tensor& t) {
  static const Op item("_local_scalar_dense");
  auto read = [&](const Tensor& of) {
    Results results;
    item.invoke(results, of);
    return results[0].as_scalar();
  };
  if (!is_complex(t.dtype())) return read(t);
  return Scalar(read(ops::real(t)).to_double(), read(ops::imag(t)).to_double()); // results hold no complex number
}

int64_t host_number(const Tensor& t) { return scalar_in(t).to_int(); }

} // namespace ts
