// Products of matrices that are stored in few bits, with scales for the whole, for rows, or for blocks.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/empty.h"
#include "tesserack/narrow.hpp"
#include <cmath>

namespace ts {
namespace {

constexpr const char* kOp = "_scaled_matmul";

int64_t matrix_columns(const Tensor& t) { return t.size(1) * values_in(t.dtype()); }

// A scale belongs to `block` rows and columns, the last ones to what is left.
void check_scale(const Tensor& t, const Tensor& scale, IntSpan block, const char* which) {
  TS_CHECK(block.size() == 2 && block[0] > 0 && block[1] > 0, kOp, ": expected blocks of two positive sizes for ",
           which, ", got ", block);
  const int64_t rows = (t.size(0) + block[0] - 1) / block[0], blocks = (matrix_columns(t) + block[1] - 1) / block[1];
  TS_CHECK(scale.ndim() == 2 && scale.size(0) == rows && scale.size(1) == blocks, kOp, ": expected scales of ", which,
           " of (", rows, ", ", blocks, ") for blocks of ", block, ", got ", scale.sizes());
  TS_CHECK(scale.dtype() == DType::Float32 || scale.dtype() == DType::Float8E8M0FNU ||
               scale.dtype() == DType::Float8E4M3FN,
           kOp, ": expected scales of ", which, " as float32, float8_e8m0fnu or float8_e4m3fn, got ", scale.dtype());
}

Tensor scaled_matmul_rule(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                          IntSpan block_a, IntSpan block_b, DType dtype) {
  for (const Tensor* t : {&a, &b})
    TS_CHECK(t->ndim() == 2 && (is_narrow(t->dtype()) || is_packed(t->dtype())) && t->dtype() != DType::Float8E8M0FNU,
             kOp, ": expected matrices of float8, float6, float4, int4 or uint4, got ", t->dtype(), " of ", t->sizes());
  TS_CHECK(matrix_columns(a) == matrix_columns(b), kOp,
           ": expected rows of a and of b (which comes transposed) as long, got ", matrix_columns(a), " and ",
           matrix_columns(b));
  TS_CHECK(dtype == DType::Float32 || is_half(dtype), kOp, ": expected a result of float32, bfloat16 or float16, got ",
           dtype);
  check_scale(a, scale_a, block_a, "a");
  check_scale(b, scale_b, block_b, "b");
  int64_t sizes[] = {a.size(0), b.size(0)};
  return outline(sizes, dtype, a.device());
}

// What fewer than eight bits stand for, by arithmetic that every device has: of float8 a cast is that.
Tensor from_codes(const Tensor& code, const tesserack::backend::NarrowFormat& f) {
  auto times = [](const Tensor& x, double y) { return ops::mul(x, Scalar(y)); };
  auto bits_above = [&](const Tensor& x, int n) { return ops::floor(times(x, std::ldexp(1.0, -n))); };
  if (!f.has_sign) return code;
  Tensor sign = bits_above(code, f.bits - 1);
  if (f.integer) return ops::sub(code, times(sign, 1 << f.bits));
  Tensor rest = ops::sub(code, times(sign, 1 << (f.bits - 1)));
  Tensor e = bits_above(rest, f.mantissa);
  Tensor none = raw_cast(ops::eq(e, Scalar(0.0)), DType::Float32);
  // 2^max(e, 1), bit by bit of e: no function that might be off.
  Tensor power;
  for (int k = 0; (1 << k) <= f.top(); ++k) {
    Tensor bit = ops::sub(bits_above(e, k), times(bits_above(e, k + 1), 2));
    Tensor factor = ops::add(times(bit, std::ldexp(1.0, 1 << k) - 1), Scalar(1.0));
    power = power.defined() ? ops::mul(power, factor) : factor;
  }
  power = ops::add(power, none);
  Tensor digits = ops::sub(rest, times(e, 1 << f.mantissa));
  Tensor leading = ops::add(digits, times(ops::add(times(none, -1), Scalar(1.0)), 1 << f.mantissa));
  Tensor size = times(ops::mul(leading, power), std::ldexp(1.0, -f.bias - f.mantissa));
  return ops::mul(size, ops::add(times(sign, -2), Scalar(1.0)));
}

Tensor widened(const Tensor& t) {
  const auto format = tesserack::backend::narrow_format(static_cast<int32_t>(t.dtype()));
  if (format.bits == 8) return raw_cast(t, DType::Float32);
  Tensor codes = raw_cast(raw_contiguous(as_bytes(t, DType::UInt8)), DType::Float32);
  if (is_packed(t.dtype())) {
    Tensor high = ops::floor(ops::mul(codes, Scalar(0.0625)));
    std::vector<Tensor> halves{ops::sub(codes, ops::mul(high, Scalar(16.0))), high};
    int64_t sizes[] = {t.size(0), matrix_columns(t)};
    codes = ops::reshape(ops::stack(halves, int64_t{-1}), IntSpan(sizes));
  }
  return from_codes(codes, format);
}

Tensor dequantized(const Tensor& t, const Tensor& scale, IntSpan block) {
  Tensor values = widened(t);
  const int64_t rows = scale.size(0), blocks = scale.size(1);
  int64_t apart[] = {rows, 1, blocks, 1}, wide[] = {rows, block[0], blocks, block[1]};
  int64_t whole[] = {rows * block[0], blocks * block[1]};
  Tensor each = ops::reshape(ops::expand(ops::reshape(raw_cast(scale, DType::Float32), IntSpan(apart)), IntSpan(wide)),
                             IntSpan(whole));
  each = ops::narrow(ops::narrow(each, int64_t{0}, int64_t{0}, t.size(0)), int64_t{1}, int64_t{0}, matrix_columns(t));
  return ops::mul(values, each);
}

Tensor scaled_matmul_parts(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                           IntSpan block_a, IntSpan block_b, DType dtype) {
  Tensor product = ops::matmul(dequantized(a, scale_a, block_a),
                               ops::transpose(dequantized(b, scale_b, block_b), int64_t{0}, int64_t{1}));
  return raw_cast(product, dtype);
}

} // namespace

TS_OPERATORS(scaled_matmul) {
  def("_scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, int[] block_a, int[] block_b, "
      "ScalarType dtype) -> Tensor")
      .rule<scaled_matmul_rule>()
      .kernel("scaled_matmul", "a b scale_a scale_b: contiguous", "block_a, block_b")
      .decompose<scaled_matmul_parts>()
      .facts("stored")
      .not_differentiable()
      .hidden()
      .doc("a (m, k) times b (n, k) transposed, of float8, float6, float4, int4 or uint4 (k values, two to an element "
           "where "
           "the dtype ends in _x2): each block of block_a rows and columns of a times its element of scale_a, and so "
           "for b. Accumulated in float32.");
}

} // namespace ts
