#include "ops/pointwise/layout.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include "tensor/inline_array.h"
#include <algorithm>
#include <optional>

namespace ts {
namespace {

// Whether dim a of the result lies further in than dim b: the first operand that has a step along both decides.
int compare_dims(std::span<const Dims> strides, IntSpan sizes, int64_t a, int64_t b) {
  for (const Dims& s : strides) {
    if (s[a] == 0 || s[b] == 0) continue;
    if (s[a] != s[b]) return s[a] < s[b] ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

Merged merge(IntSpan sizes, IntSpan out_strides, std::span<const Dims> operand_strides) {
  Merged m;
  Dims order = memory_order(sizes, out_strides);
  size_t n_ops = operand_strides.size() + 1;
  auto stride = [&](size_t operand, int64_t dim) {
    return operand == 0 ? out_strides[dim] : operand_strides[operand - 1][static_cast<size_t>(dim)];
  };
  Dims kept; // representative (innermost) dim of each merged run
  for (int64_t d : order) {
    if (sizes[d] == 1) continue;
    bool joins = !kept.empty();
    for (size_t o = 0; joins && o < n_ops; ++o) joins = stride(o, kept.back()) == stride(o, d) * sizes[d];
    if (joins) {
      m.sizes.back() *= sizes[d];
      kept.back() = d;
    } else {
      m.sizes.push_back(sizes[d]);
      kept.push_back(d);
    }
  }
  if (kept.empty()) m.sizes.push_back(1);
  for (size_t o = 0; o < n_ops; ++o) {
    if (kept.empty()) m.strides.push_back(1);
    for (int64_t d : kept) m.strides.push_back(stride(o, d));
  }
  return m;
}

} // namespace

namespace {

// Those of a result that keeps its operands' order of dims, dense; none for a contiguous one.
std::optional<Dims> result_strides(const PointwisePlan& plan, const char* op) {
  InlineArray<Dims, kUsualOperands> strides;
  strides.resize(plan.operands.size());
  size_t n = 0;
  for (const PointwiseOperand& o : plan.operands) {
    if (!o.tensor) continue;
    if (n == 0 && o.tensor->has(TensorImpl::kContiguous) && same(o.tensor->sizes(), plan.sizes)) break;
    strides[n++] = expand_strides(o.tensor->sizes(), o.tensor->strides(), plan.sizes, op);
  }
  if (n == 0 || plan.sizes.size() < 2) return std::nullopt;
  Dims order(plan.sizes.size()); // innermost first
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  for (size_t i = 1; i < order.size(); ++i) {
    for (size_t at = i, j = i; j-- > 0;) {
      int c = compare_dims({strides.begin(), n}, plan.sizes, order[j], order[at]);
      if (c < 0) break;
      if (c > 0) {
        std::swap(order[j], order[at]);
        at = j;
      }
    }
  }
  Dims laid(plan.sizes.size());
  int64_t step = 1;
  for (int64_t d : order) {
    laid[d] = step;
    TS_CHECK(!__builtin_mul_overflow(step, std::max<int64_t>(1, plan.sizes[d]), &step), op, ": shape ",
             IntSpan(plan.sizes), " has more elements than fit in 64 bits");
  }
  return laid;
}

} // namespace

Tensor allocate_result(const PointwisePlan& plan, const char* op) {
  std::optional<Dims> laid = result_strides(plan, op);
  return laid ? empty_strided_tensor(plan.sizes, *laid, plan.result, plan.device)
              : empty_tensor(plan.sizes, plan.result, plan.device);
}

void lay_as_result(const Tensor& out, const PointwisePlan& plan, const char* op) {
  if (std::optional<Dims> laid = result_strides(plan, op)) out.impl()->set_geometry(plan.sizes, *laid);
}

Merged merge_dims(const Operator& op, const PointwisePlan& plan, const Tensor& out) {
  InlineArray<Dims, kUsualOperands> strides;
  strides.resize(plan.operands.size());
  for (size_t k = 0; k < plan.operands.size(); ++k) {
    const PointwiseOperand& o = plan.operands[k];
    strides[k] = o.tensor ? expand_strides(o.tensor->sizes(), o.tensor->strides(), plan.sizes, op.name().c_str())
                          : Dims(plan.sizes.size(), 0);
  }
  return merge(plan.sizes, out.strides(), {strides.begin(), strides.size()});
}

} // namespace ts
