#include "autograd/traced.h"
#include "autograd/engine.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"

namespace ts {

void trace_gradient(GradContext& c, BodyFn parts) {
  const Schema& s = *c.op().schema;
  bool create_graph = GradContext::is_recorded();
  GradMode record(true);
  std::vector<Tensor> arguments(s.args.size()), wanted;
  std::vector<Value> values(s.args.size());
  std::vector<int> places;
  for (size_t k = 0; k < s.args.size(); ++k) {
    int at = static_cast<int>(k);
    if (s.args[k].type.kind != TypeKind::Tensor) {
      values[k] = c.value(at);
      continue;
    }
    Tensor t = c.arg(at);
    if (t.defined() && c.needs(at)) {
      // A point of its own in the graph: one argument may have been computed from another.
      t = create_graph ? ops::view(t, t.sizes()) : detach(t);
      if (!create_graph) set_requires_grad(t, true);
      wanted.push_back(t);
      places.push_back(at);
    }
    arguments[k] = t;
    values[k] = arguments[k];
  }
  Results results;
  Frame f{values.data(), results.data(), static_cast<int32_t>(values.size()), static_cast<int32_t>(s.returns.size())};
  parts(c.op(), f);
  std::vector<Tensor> roots, grads;
  for (int r = 0; r < f.nrets; ++r) {
    Tensor result = results.take(r);
    if (!c.has_grad(r) || !requires_grad(result)) continue;
    roots.push_back(result);
    grads.push_back(c.grad(r));
  }
  if (roots.empty()) return;
  BackwardOptions options;
  options.create_graph = options.retain_graph = create_graph;
  options.allow_unused = true;
  options.accumulate = false;
  std::vector<Tensor> found = run_backward(roots, grads, wanted, options);
  for (size_t k = 0; k < found.size(); ++k)
    if (found[k].defined()) c.set(places[k], found[k]);
}

} // namespace ts
