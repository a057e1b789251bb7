#include "autograd/view_history.h"
#include "autograd/declared.h"
#include "autograd/engine.h"
#include "autograd/forward_level.h"
#include "autograd/record.h"
#include "dispatch/op_handles.h"
#include "runtime/interpreter.h"
#include "tensor/geometry.h"
#include <algorithm>

namespace ts {
namespace {

// Complex elements counted as pairs of real ones.
void split_parts(Dims& sizes, Dims& strides) {
  for (int64_t& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
}
Tensor split(const Tensor& t, bool parts) {
  static const Op resolve_conj("resolve_conj");
  return parts ? ops::view_as_real(resolve_conj(t)) : t;
}
Tensor joined(const Tensor& t, bool parts) { return parts ? ops::view_as_complex(ops::contiguous(t)) : t; }

// The gradient of the memory for that of the values, and the other way round, where some of it is pending: both steps
// are their own inverses.
Tensor across(Tensor grad, KeySet pending) {
  if (pending & key_bit(key::Conjugate)) grad = ops::conj(grad);
  return pending & key_bit(key::Negative) ? ops::neg(grad) : grad;
}

// How a view lies in its base. Where one is complex and the other real, both are counted in real elements.
struct ViewGeometry {
  Dims base_sizes, base_strides, sizes, strides;
  ResultMeta base_meta, meta;
  bool base_parts, parts;
  KeySet base_pending, pending;
  int64_t offset; // elements from the base's first
  ViewGeometry(const Tensor& base, const Tensor& view)
      : base_sizes(base.sizes()), base_strides(base.strides()), sizes(view.sizes()),
        strides(view.strides()), base_meta{base_sizes, base.dtype(), base.device()}, meta{sizes, view.dtype(),
                                                                                          view.device()},
        base_parts(is_complex(base.dtype()) && !is_complex(view.dtype())),
        parts(is_complex(view.dtype()) && !is_complex(base.dtype())), base_pending(base.pending()),
        pending(view.pending()),
        offset((view->byte_offset - base->byte_offset) / std::min(view.item_size(), base.item_size())) {
    if (base_parts) split_parts(base_sizes, base_strides);
    if (parts) split_parts(sizes, strides);
  }
  // Gradients of the memory, by real elements where the two differ; and back.
  Tensor of_base(const Tensor& grad) const { return split(across(grad, base_pending), base_parts); }
  Tensor of_view(const Tensor& grad) const { return split(across(grad, pending), parts); }
  Tensor to_base(const Tensor& grad) const { return across(joined(grad, base_parts), base_pending); }
  Tensor to_view(const Tensor& grad) const { return across(joined(grad, parts), pending); }
};

// Whether strides can tell a view's place in its base.
bool comparable(DType base, DType view) { return real_type(base) == real_type(view); }

// result = view of base: gradient goes into the view's place.
struct AsStridedNode final : DeclaredNode {
  ViewGeometry geometry;
  AsStridedNode(const Tensor& base, const Tensor& view) : geometry(base, view) {
    resize_edges(1);
    edges()[0] = gradient_edge(base);
    forward_only = is_forward_only(base);
  }
  std::string name() const override { return "AsStridedBackward0"; }
  const ResultMeta& result_meta(size_t) const override { return geometry.meta; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask) override {
    if (!grads[0].defined() || !edges()[0].node) return; // a base detached since has no gradient
    static const Op scatter("as_strided_scatter_add");
    out[0] = geometry.to_base(scatter(geometry.of_view(grads[0]), geometry.base_sizes, geometry.base_strides,
                                      geometry.sizes, geometry.strides, geometry.offset));
  }
};

// A write to what other gradients go through does not stop them.
bool value_only_forward(const Tensor& t, const Node& write) {
  return write.forward_only && (!requires_grad(t) || is_forward_only(t));
}

// New base = old base with the view's place replaced by the view's new value (edge 1).
struct CopySlices final : DeclaredNode {
  ViewGeometry geometry;
  bool repeated; // which of several writes to one place counts, gradients cannot tell
  CopySlices(const Tensor& base, const Tensor& view, Edge value)
      : geometry(base, view), repeated(is_expanded(view.sizes(), view.strides())) {
    resize_edges(2);
    edges()[0] = gradient_edge(base);
    forward_only = value_only_forward(base, *this);
    edges()[1] = std::move(value);
  }
  std::string name() const override { return "CopySlices"; }
  const ResultMeta& result_meta(size_t) const override { return geometry.base_meta; }
  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override {
    if (!grads[0].defined()) return;
    TS_CHECK(!repeated, "unsupported operation: more than one element of the written-to tensor refers to a single "
                        "memory location. Please clone() the tensor before performing the operation.");
    static const Op take("as_strided_take"), clear("as_strided_clear");
    const ViewGeometry& g = geometry;
    Tensor grad = g.of_base(grads[0]);
    if (edges()[0].node && is_wanted(wanted, 0))
      out[0] = g.to_base(clear(grad, g.base_strides, g.sizes, g.strides, g.offset));
    if (is_wanted(wanted, 1)) out[1] = g.to_view(take(grad, g.base_strides, g.sizes, g.strides, g.offset));
  }
};

} // namespace

bool view_is_stale(const Tensor& view) {
  if (view->view_version == view.version()) return false;
  const AutogradMeta* m = autograd_meta(view.impl());
  return (m && m->grad_fn) || requires_grad(view->base);
}

void refresh_view_history(const Tensor& view) {
  TS_CHECK(!view->has(TensorImpl::kViewMulti),
           "A view is the output of a function that returns multiple views, and its base or another view of its base "
           "has been modified inplace. Such functions do not allow the output views to be modified inplace. You should "
           "replace the inplace operation by an out-of-place one.");
  TS_CHECK(!view->has(TensorImpl::kViewNoGrad),
           "A view was created in no_grad mode, or by forward of a custom Function, and its base or another view of "
           "its base has been modified inplace with grad mode enabled. "
           "Given that this use case is ambiguous and error-prone, it is "
           "forbidden. You can clarify your code by moving both the view and "
           "the inplace either both inside the no_grad block (if you don't want "
           "the inplace to be tracked) or both outside (if you want "
           "the inplace to be tracked).");
  Tensor base = Tensor::share(view->base);
  view->view_version = view.version();
  if (!comparable(base.dtype(), view.dtype())) return; // its place in the base cannot be told by strides
  set_grad_fn(view.impl(), Ref<Node>::adopt(new AsStridedNode(base, view)), 0);
}

bool is_view_of_leaf(const Tensor& t) {
  // A base that needs no gradient itself, and has no history, has views that do only where these are made leaves.
  return t->base && requires_grad(t) && is_leaf(Tensor::share(t->base));
}

void record_inplace(const Tensor& t, const Ref<Node>& node, uint32_t result) {
  node->forward_only = value_only_forward(t, *node);
  if (!t->base) {
    set_history(t, node, result);
    return;
  }
  Tensor base = Tensor::share(t->base);
  TS_CHECK(comparable(base.dtype(), t.dtype()),
           "in-place: a view with another dtype than its base cannot be modified under autograd");
  auto slices = Ref<Node>::adopt(new CopySlices(base, t, {node, result}));
  set_history(base, slices, 0);
  refresh_view_history(t);
}

Edge inplace_edge(const Tensor& t) {
  if (!t->base || !comparable(t->base->dtype, t.dtype())) return gradient_edge(t);
  Tensor base = Tensor::share(t->base);
  return {Ref<Node>::adopt(new AsStridedNode(base, t)), 0};
}

void check_written_view(const Tensor& t) {
  if (!t->base) return;
  TS_CHECK(!is_view_of_leaf(t), "a view of a leaf Variable that requires grad is being used in an in-place operation.");
  TS_CHECK(!t->has(TensorImpl::kViewMulti), "Output 0 of ", grad_fn(t) ? grad_fn(t)->name() : "a view operator",
           " is a view and is being modified inplace. This view is the output of a function that returns multiple "
           "views. Such functions do not "
           "allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place "
           "one.");
  TS_CHECK(!t->has(TensorImpl::kViewNoGrad),
           "A view was created in no_grad mode, or by forward of a custom Function, and is being modified inplace with "
           "grad mode enabled. Given that this use case is "
           "ambiguous and error-prone, it is forbidden. You can clarify your code by "
           "moving both the view and the inplace either both inside the "
           "no_grad block (if you don't want the inplace to be tracked) or both "
           "outside (if you want the inplace to be tracked).");
}

void check_inplace_history(const Operator& op, const Tensor& t) {
  bool inference = t->has(TensorImpl::kInference);
  TS_CHECK(!inference || thread_state().inference, op.name(),
           ": Inplace update to inference tensor outside InferenceMode is not allowed. "
           "You can make a clone to get a normal tensor before doing inplace update.");
  if (!requires_grad(t)) {
    TS_CHECK(!t->has(TensorImpl::kViewMulti) || !t->base,
             "Output of a multi-view operator is being modified inplace under autograd");
    return;
  }
  TS_CHECK(!t->has(TensorImpl::kRequiresGrad) || grad_fn(t),
           "a leaf Variable that requires grad is being used in an in-place operation.");
  check_written_view(t);
}

void note_location(Node& node) {
  auto calls = interpreter_hooks().calls;
  node.location = std::make_unique<std::string>(calls ? calls() : "");
  if (const Node* running = current_node()) node.parent = Ref<Node>::share(const_cast<Node*>(running));
}

std::weak_ptr<char> liveness_token(AutogradMeta& meta) {
  if (!meta.alive) meta.alive = std::make_shared<char>();
  return meta.alive;
}

// What came last first where what is there is sparse, as PyTorch has the order of a sparse sum's elements.
Tensor accumulate_grads(const Tensor& a, const Tensor& b) { return a->payload ? ops::add(b, a) : ops::add(a, b); }

bool is_laid_out_for(const Tensor& grad, const Tensor& variable) {
  if (!is_dense(variable.sizes(), variable.strides())) return grad.is_contiguous();
  if (!same(grad.sizes(), variable.sizes())) return false;
  for (size_t d = 0; d < grad.sizes().size(); ++d)
    if (grad.sizes()[d] != 1 && grad.strides()[d] != variable.strides()[d]) return false;
  return true;
}

} // namespace ts
