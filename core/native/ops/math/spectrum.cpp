// The half of a spectrum of real numbers that follows from the other half.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kSpectrumCode = "tells the kernel the mirrored dims as bits";

const KernelId kMirror("mirror_spectrum");
const Op conjugated("conj_physical"), rolled("roll");

void mirror_rule(const Tensor& self, IntSpan dims, bool) {
  const char* op = "_mirror_spectrum_";
  TS_CHECK(is_complex(self.dtype()) && !dims.empty(), op, ": expected complex numbers and dims, got ", self.dtype(),
           " and ", dims);
  wrap_dims(dims, self.ndim(), op);
  check_inplace(self, op);
}

// Bit d: dimension d runs backwards from its element 0, which stays.
int64_t mirrored_bits(const Dims& dims) {
  int64_t bits = 0;
  for (int64_t d : dims) bits |= int64_t{1} << d;
  return bits;
}

void mirror(const Tensor& self, IntSpan given, bool conjugate) {
  const Dims dims = wrap_dims(given, self.ndim(), "_mirror_spectrum_");
  const int64_t half = dims.back(), n = self.size(half);
  if (n < 3 || self.numel() == 0) return;
  if (self.is_contiguous() && Launch(kMirror, self.device())
                                  .out(self)
                                  .param(half)
                                  .param(mirrored_bits(dims))
                                  .param(conjugate)
                                  .work(self.numel())
                                  .run())
    return;
  Tensor known = ops::flip(ops::slice(self, half, int64_t{1}, (n + 1) / 2, int64_t{1}), dims);
  const Dims others(IntSpan(dims).first(dims.size() - 1));
  if (!others.empty()) known = rolled(known, Dims(others.size(), 1), others);
  raw_copy(ops::slice(self, half, n / 2 + 1, n, int64_t{1}), conjugate ? conjugated(known) : known);
}

} // namespace

TS_OPERATORS(spectrum) {
  def("_mirror_spectrum_(Tensor(a!) self, int[] dims, bool conjugate) -> Tensor(a!)")
      .facts("kernel:mirror_spectrum")
      .rule<mirror_rule>()
      .computation<mirror, 0>(kSpectrumCode)
      .not_differentiable()
      .hidden()
      .doc("Fills the second half of the last of dims with the first half at minus the frequencies, conjugated where "
           "told.");
}

} // namespace ts
