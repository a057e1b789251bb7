// Views and in-place changes: which grad_fn a view has after its base, or another view of it, was written.
#pragma once
#include "autograd/meta.h"
#include <memory>

namespace ts {

bool view_is_stale(const Tensor& view); // the base's history changed since the view's grad_fn was made
void refresh_view_history(const Tensor& view);
void note_location(Node& node); // anomaly mode: the user's forward line
std::weak_ptr<char> liveness_token(AutogradMeta& meta);
Tensor accumulate_grads(const Tensor& a, const Tensor& b);
// With the variable's strides if those are dense, else contiguous: what .grad has, as programs view it.
bool is_laid_out_as(const Tensor& grad, const Tensor& variable);

} // namespace ts
