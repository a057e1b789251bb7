// Lists of gradients as one vector: its parts' norms, and all of it times a number.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/optim/optim_lists.h"
#include "runtime/backend.h"
#include "runtime/empty.h"

namespace ts {
namespace {

using namespace optim;

void check_alike(const char* op, TensorList tensors) {
  TS_CHECK(!tensors.empty(), op, ": expected tensors, got none");
  check_params(op, tensors);
  for (const Tensor& t : tensors)
    TS_CHECK(t.dtype() == tensors[0].dtype(), op, ": expected tensors of one dtype, got ", tensors[0].dtype(), " and ",
             t.dtype());
}

Tensor norms_rule(TensorList tensors) {
  check_alike("_list_norms", tensors);
  const int64_t n = static_cast<int64_t>(tensors.size());
  return outline({&n, 1}, tensors[0].dtype(), tensors[0].device());
}

Tensor norms_parts(TensorList tensors) {
  static const Op norm("linalg_vector_norm");
  std::vector<Tensor> norms;
  for (const Tensor& t : tensors) norms.push_back(norm(t));
  return ops::stack(norms, 0);
}

void scale_rule(TensorList tensors, const Tensor& factor) {
  const char* op = "_list_scale_";
  check_alike(op, tensors);
  TS_CHECK(!factor.ndim() && factor.dtype() == tensors[0].dtype() && factor.device() == tensors[0].device(), op,
           ": expected a factor of no dims and of the tensors' dtype and device, got ", factor.dtype(), " ",
           factor.sizes(), " on ", to_string(factor.device()));
  written(op, tensors);
}

void scale_parts(TensorList tensors, const Tensor& factor) {
  static const Op mul("mul_");
  for (const Tensor& t : tensors) mul(t, factor);
}

} // namespace

TS_OPERATORS(clip) {
  def("_list_norms(Tensor[] tensors) -> Tensor")
      .rule<norms_rule>()
      .kernel("list_norms", "tensors: contiguous", "")
      .decompose<norms_parts>()
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("The 2-norms of tensors of one dtype, as a vector.");
  def("_list_scale_(Tensor(a!)[] tensors, Tensor factor) -> ()")
      .rule<scale_rule>()
      .kernel("list_scale_", "tensors factor: contiguous", "")
      .decompose<scale_parts, 0>()
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("Multiplies tensors of one dtype by a number of theirs, in place.");
}

} // namespace ts
