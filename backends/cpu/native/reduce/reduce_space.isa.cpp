#include "reduce_space.h"

#include <cstdlib>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

ReduceSpace::ReduceSpace(const backend::Call& call, int n_reduced_dims, bool ordered) {
  const ts_tensor* in = call.in(0).raw();
  const int n_kept_dims = in->ndim - n_reduced_dims;
  require_dims(call.op(), in->ndim);
  if (n_reduced_dims < 0 || n_kept_dims < 0)
    backend::fail(TS_ERROR, "%s: expected 0 to %d reduced dimensions, got %d", call.op(), in->ndim, n_reduced_dims);
  if (call.n_outputs() > kMaxOutputs)
    backend::fail(TS_ERROR, "%s: expected at most %d outputs, got %d", call.op(), kMaxOutputs, call.n_outputs());
  Operand& input = kept_operands_[0];
  set_operand(input, in);
  if ((in->flags & TS_T_SCALAR) != 0) {
    if (backend::is_floating(in->dtype))
      storer<double>(in->dtype)(scalar_, &in->scalar.f, Box{1, 1, 0, 0});
    else
      storer<int64_t>(in->dtype)(scalar_, &in->scalar.i, Box{1, 1, 0, 0});
    input.base = scalar_;
  }
  reduced_operand_.base = input.base;
  reduced_operand_.item = input.item;
  reduced_operand_.dtype = input.dtype;
  for (int d = 0; d < n_reduced_dims; ++d) {
    reduced.size[d] = in->sizes[n_kept_dims + d];
    reduced_operand_.stride[d] = input.stride[n_kept_dims + d];
    n_reduced *= reduced.size[d];
  }
  reduced.nd = n_reduced_dims;
  reduced.operands = &reduced_operand_;
  reduced.n_operands = 1;
  for (int d = 0; d < n_kept_dims; ++d) {
    kept.size[d] = in->sizes[d];
    n_kept *= kept.size[d];
  }
  for (int k = 0; k < call.n_outputs(); ++k) {
    const ts_tensor* out = call.out(k).raw();
    if (out->numel != n_kept || out->ndim < n_kept_dims)
      backend::fail(TS_ERROR, "%s: expected an output of %lld elements, got %lld", call.op(),
                    static_cast<long long>(n_kept), static_cast<long long>(out->numel));
    set_operand(kept_operands_[1 + k], out);
  }
  kept.nd = n_kept_dims;
  kept.operands = kept_operands_;
  kept.n_operands = 1 + call.n_outputs();
  normalise(kept);
  normalise(reduced, !ordered);
}

bool ReduceSpace::by_columns() const {
  const int64_t across = std::llabs(kept_operands_[0].stride[kept.nd - 1]), along = std::llabs(run_stride());
  return kept.cols() > 1 && across != 0 && (across < along || along == 0 || n_reduced == 1);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
