// Fourier transforms of rows where a backend has the kernel; the package computes on the host otherwise.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "runtime/empty.h"

namespace ts {
namespace {

const char* const kName = "fft_rows";
enum Kind : int64_t { kComplex, kToHalf, kFromHalf };

// Complex numbers are pairs along the last dim; how long rows are is told by the roots (n, 2).
Tensor rule(const Tensor& self, const Tensor& roots, int64_t kind, bool, double) {
  check_same_dtype(self, roots, kName);
  TS_CHECK(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, kName,
           ": expected float32 or float64, got ", self.dtype());
  TS_CHECK(roots.ndim() == 2 && roots.size(0) > 0 && roots.size(1) == 2, kName, ": expected roots (n, 2), got ",
           roots.sizes());
  TS_CHECK(kind >= kComplex && kind <= kFromHalf, kName, ": unknown kind ", kind);
  int64_t n = roots.size(0), half = n / 2 + 1, given = kind == kFromHalf ? half : n, pairs = kind == kToHalf ? 0 : 1;
  TS_CHECK(self.ndim() > pairs && self.size(-1 - pairs) == given && (!pairs || self.size(-1) == 2), kName,
           ": expected rows of ", given, pairs ? " pairs" : " numbers", ", got ", self.sizes());
  Dims sizes(self.sizes());
  if (pairs) sizes.pop_back();
  sizes.back() = kind == kToHalf ? half : n;
  if (kind != kFromHalf) sizes.push_back(2);
  return outline(sizes, self.dtype(), self.device());
}
} // namespace

TS_OPERATORS(fft_rows) {
  def("_fft_rows(Tensor self, Tensor roots, int kind, bool inverse, float scale) -> Tensor")
      .rule<rule>()
      .kernel("fft_rows", "self roots: contiguous", "kind, inverse, scale")
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("Scaled transforms of rows of pairs (kind 0), of numbers to half a spectrum (1), and back (2), of n points "
           "without a prime factor above 13; roots: cos and -sin of 2 pi k / n.");
}

} // namespace ts
