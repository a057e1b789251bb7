// In-place forms of views: the tensor itself takes the view's shape. Its data stays where it is.
#include "autograd/meta.h"
#include "autograd/record.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"

namespace ts {
namespace {

// Self becomes `view`, a view of itself: geometry, and history where that is recorded.
template <bool recorded> Tensor become(const Tensor& self, const Tensor& view, const char* op) {
  TS_CHECK(!self->has(TensorImpl::kInference) || thread_state().inference, op,
           ": Inplace update to inference tensor outside InferenceMode is not allowed. "
           "You can make a clone to get a normal tensor first");
  if (recorded) {
    TS_CHECK(self->base || !is_leaf(self), op,
             ": a leaf Variable that requires grad is being used in an in-place operation.");
    check_written_view(self);
    set_history(self, grad_fn(view), autograd_meta(view.impl())->output_nr);
    self->view_version = self.version() + 1; // the history is that of after this operator, which counts as a write
  }
  self->set_geometry(view.sizes(), view.strides());
  self->byte_offset = view->byte_offset;
  return self;
}

const Op t_op("t"), view_inplace_squeeze_all("squeeze"), view_inplace_squeeze_dim("squeeze.dim");

template <bool recorded> Tensor t_(const Tensor& self) { return become<recorded>(self, t_op(self), "t_"); }
template <bool recorded> Tensor transpose_(const Tensor& self, int64_t dim0, int64_t dim1) {
  return become<recorded>(self, ops::transpose(self, dim0, dim1), "transpose_");
}
template <bool recorded> Tensor unsqueeze_(const Tensor& self, int64_t dim) {
  return become<recorded>(self, ops::unsqueeze(self, dim), "unsqueeze_");
}
template <bool recorded> Tensor squeeze_(const Tensor& self) {
  return become<recorded>(self, view_inplace_squeeze_all(self), "squeeze_");
}
template <bool recorded> Tensor squeeze_dim_(const Tensor& self, int64_t dim) {
  return become<recorded>(self, view_inplace_squeeze_dim(self, dim), "squeeze_");
}
template <bool recorded> Tensor squeeze_dims_(const Tensor& self, IntSpan dims) {
  return become<recorded>(self, ops::squeeze(self, dims), "squeeze_");
}
template <bool recorded>
Tensor as_strided_(const Tensor& self, IntSpan size, IntSpan stride, std::optional<int64_t> offset) {
  return become<recorded>(self, ops::as_strided(self, size, stride, offset), "as_strided_");
}

} // namespace

TS_OPERATORS(view_inplace) {
  def("t_(Tensor(a!) self) -> Tensor(a!)")
      .body<t_<false>>()
      .when_recorded<t_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of t.");
  for (const char* schema : {"transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)",
                             "swapaxes_(Tensor(a!) self, int axis0, int axis1) -> Tensor(a!)",
                             "swapdims_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)"})
    def(schema).body<transpose_<false>>().when_recorded<transpose_<true>>().keeps_bits().method_only().doc(
        "In-place version of transpose.");
  def("unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)")
      .body<unsqueeze_<false>>()
      .when_recorded<unsqueeze_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of unsqueeze.");
  def("squeeze_(Tensor(a!) self) -> Tensor(a!)")
      .body<squeeze_<false>>()
      .when_recorded<squeeze_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of squeeze.");
  def("squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)")
      .body<squeeze_dim_<false>>()
      .when_recorded<squeeze_dim_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of squeeze.");
  def("squeeze_.dims(Tensor(a!) self, int[] dim) -> Tensor(a!)")
      .body<squeeze_dims_<false>>()
      .when_recorded<squeeze_dims_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of squeeze.");
  def("as_strided_(Tensor(a!) self, int[] size, int[] stride, int? storage_offset=None) -> Tensor(a!)")
      .body<as_strided_<false>>()
      .when_recorded<as_strided_<true>>()
      .keeps_bits()
      .method_only()
      .doc("In-place version of as_strided.");
}

} // namespace ts
