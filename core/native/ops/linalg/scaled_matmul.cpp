// Products of matrices that are stored in few bits, with scales for the whole, for rows, or for blocks.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "runtime/empty.h"

namespace ts {
namespace {

constexpr const char* kOp = "_scaled_matmul";

int64_t columns(const Tensor& t) { return t.size(1) * values_in(t.dtype()); }

// A scale belongs to `block` rows and columns, the last ones to what is left.
void check_scale(const Tensor& t, const Tensor& scale, IntSpan block, const char* which) {
  TS_CHECK(block.size() == 2 && block[0] > 0 && block[1] > 0, kOp, ": expected blocks of two positive sizes for ",
           which, ", got ", block);
  const int64_t rows = (t.size(0) + block[0] - 1) / block[0], blocks = (columns(t) + block[1] - 1) / block[1];
  TS_CHECK(scale.ndim() == 2 && scale.size(0) == rows && scale.size(1) == blocks, kOp, ": expected scales of ", which,
           " of (", rows, ", ", blocks, ") for blocks of ", block, ", got ", scale.sizes());
  TS_CHECK(scale.dtype() == DType::Float32 || scale.dtype() == DType::Float8E8M0FNU ||
               scale.dtype() == DType::Float8E4M3FN,
           kOp, ": expected scales of ", which, " as float32, float8_e8m0fnu or float8_e4m3fn, got ", scale.dtype());
}

Tensor scaled_matmul_rule(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                          IntSpan block_a, IntSpan block_b, DType dtype) {
  for (const Tensor* t : {&a, &b})
    TS_CHECK(t->ndim() == 2 && (is_float8(t->dtype()) || is_packed(t->dtype())) && t->dtype() != DType::Float8E8M0FNU,
             kOp, ": expected matrices of float8 or float4_e2m1fn_x2, got ", t->dtype(), " of ", t->sizes());
  TS_CHECK(columns(a) == columns(b), kOp, ": expected rows of a and of b (which comes transposed) as long, got ",
           columns(a), " and ", columns(b));
  TS_CHECK(dtype == DType::Float32 || is_half(dtype), kOp, ": expected a result of float32, bfloat16 or float16, got ",
           dtype);
  check_scale(a, scale_a, block_a, "a");
  check_scale(b, scale_b, block_b, "b");
  int64_t sizes[] = {a.size(0), b.size(0)};
  return outline(sizes, dtype, a.device());
}

// The halves of each byte, e2m1: a sign, two bits of exponent, one of mantissa.
Tensor unpacked(const Tensor& t) {
  Tensor bytes = raw_cast(as_bytes(raw_contiguous(t), DType::UInt8), DType::Float32);
  Tensor high = ops::floor(ops::mul(bytes, Scalar(0.0625)));
  Tensor low = ops::sub(bytes, ops::mul(high, Scalar(16.0)));
  int64_t sizes[] = {t.size(0), columns(t)};
  std::vector<Tensor> parts{low, high};
  Tensor code = ops::reshape(ops::stack(parts, int64_t{-1}), IntSpan(sizes));
  Tensor sign = ops::floor(ops::mul(code, Scalar(0.125)));
  Tensor rest = ops::sub(code, ops::mul(sign, Scalar(8.0)));
  Tensor e = ops::floor(ops::mul(rest, Scalar(0.5)));
  Tensor m = ops::sub(rest, ops::mul(e, Scalar(2.0)));
  // 2^(e - 1) for 1, 2, 3; below that 1, with what leads taken off.
  Tensor power = ops::add(ops::mul(ops::mul(e, ops::sub(e, Scalar(1.0))), Scalar(0.5)), Scalar(1.0));
  Tensor leading = ops::mul(ops::add(ops::mul(m, Scalar(0.5)), Scalar(1.0)), power);
  Tensor size = ops::sub(leading, raw_cast(ops::eq(e, Scalar(0.0)), DType::Float32));
  return ops::mul(size, ops::add(ops::mul(sign, Scalar(-2.0)), Scalar(1.0)));
}

Tensor dequantized(const Tensor& t, const Tensor& scale, IntSpan block) {
  Tensor values = is_packed(t.dtype()) ? unpacked(t) : raw_cast(t, DType::Float32);
  const int64_t rows = scale.size(0), blocks = scale.size(1);
  int64_t apart[] = {rows, 1, blocks, 1}, wide[] = {rows, block[0], blocks, block[1]};
  int64_t whole[] = {rows * block[0], blocks * block[1]};
  Tensor each = ops::reshape(ops::expand(ops::reshape(raw_cast(scale, DType::Float32), IntSpan(apart)), IntSpan(wide)),
                             IntSpan(whole));
  each = ops::narrow(ops::narrow(each, int64_t{0}, int64_t{0}, t.size(0)), int64_t{1}, int64_t{0}, columns(t));
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
      .doc(
          "a (m, k) times b (n, k) transposed, of float8 or float4_e2m1fn_x2 (two values to an element of a row): each "
          "block of block_a rows and columns of a times its element of scale_a, and so for b. Accumulated in float32.");
}

} // namespace ts
