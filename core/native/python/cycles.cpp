#include "python/cycles.h"
#include "autograd/meta.h"
#include "python/tensor/tensor_object.h"
#include <unordered_map>

namespace ts::py {
namespace {

int32_t count_of(const std::atomic<int32_t>& refs) { return refs.load(std::memory_order_acquire); }

// Goes along what nobody else holds, without recursion: chains may be of any length. What several hold is gone into
// when all of them were met.
class Walk final : public HeldVisitor {
public:
  // The contents of `root` are its own if all references to it, but for those of who asks, are met on the way.
  Walk(TensorImpl* root, int32_t asking) : root_(root), met_root_(asking) { tensors_.push_back(root); }
  explicit Walk(const Node& root) { nodes_.push_back(&root); }

  int run(visitproc visit, void* arg) {
    if (!owns_all()) return 0;
    for (void* o : objects_)
      if (int status = visit(static_cast<PyObject*>(o), arg)) return status;
    return 0;
  }

  bool owns_all() {
    while (!(nodes_.empty() && tensors_.empty())) {
      if (!tensors_.empty()) {
        TensorImpl* t = tensors_.back();
        tensors_.pop_back();
        look_into(t);
      } else {
        const Node* n = nodes_.back();
        nodes_.pop_back();
        look_into(*n);
      }
    }
    return !root_ || met_root_ == count_of(root_->refs);
  }

  void object(const std::shared_ptr<void>& o, long shares) override {
    if (o && o.use_count() == shares) borrowed(o.get());
  }
  void borrowed(void* o) override {
    if (o) objects_.push_back(o);
  }
  void tensor(const Tensor& t) override { tensor(t.impl()); }

private:
  void tensor(TensorImpl* t) {
    if (!t) return;
    if (t == root_) {
      ++met_root_;
      return;
    }
    auto* wrapper = static_cast<TensorObject*>(t->wrapper);
    if ((wrapper && !wrapper->owned_by_impl) || !met_all(t, t->refs)) return;
    borrowed(wrapper);
    tensors_.push_back(t);
  }
  void node(const Ref<Node>& n) {
    if (n && met_all(n.get(), n->refs)) nodes_.push_back(n.get());
  }
  bool met_all(const void* what, const std::atomic<int32_t>& refs) {
    int32_t count = count_of(refs);
    return count == 1 || ++met_[what] == count;
  }

  void look_into(TensorImpl* t) {
    tensor(t->base);
    const AutogradMeta* m = autograd_meta(t);
    if (!m) return;
    node(m->grad_fn);
    tensor(m->grad);
    if (m->leaf_hooks) each(*m->leaf_hooks);
  }
  void look_into(const Node& n) {
    if (n.hooks) each(*n.hooks);
    object(n.metadata, 1);
    node(n.parent);
    n.visit_held(*this);
    for (const Edge& e : n.edges()) node(e.node);
  }
  void each(const NodeHooks& hooks) {
    auto show = [this](const auto& list) {
      for (const auto& entry : list) object(entry.held, 2);
    };
    show(hooks.tensor);
    show(hooks.retain);
    show(hooks.pre);
    show(hooks.post);
    show(hooks.accumulated);
  }

  TensorImpl* root_ = nullptr;
  int32_t met_root_ = 0;
  std::unordered_map<const void*, int32_t> met_;
  std::vector<void*> objects_;
  std::vector<const Node*> nodes_;
  std::vector<TensorImpl*> tensors_;
};

} // namespace

int visit_tensor(TensorObject* o, visitproc visit, void* arg) {
  Walk walk(o->impl, o->owned_by_impl ? 0 : 1);
  if (o->owned_by_impl) walk.borrowed(o); // the tensor holds it, and itself
  return walk.run(visit, arg);
}

bool holds_itself(TensorImpl* t) { return Walk(t, 1).owns_all(); }

int visit_node(const Node& node, visitproc visit, void* arg) { return Walk(node).run(visit, arg); }

void clear_tensor(TensorImpl* t) {
  AutogradMeta* m = autograd_meta(t);
  if (!m) return;
  Ref<Node> history;
  history = std::move(m->grad_fn);
  Tensor grad = std::move(m->grad);
  auto leaf_hooks = std::move(m->leaf_hooks);
}

void clear_node(Node& node) {
  auto hooks = std::move(node.hooks);
  auto metadata = std::move(node.metadata);
  Ref<Node> parent = std::move(node.parent);
  std::vector<Edge> edges;
  for (Edge& e : node.edges()) edges.push_back(std::move(e));
  node.release_saved();
}

} // namespace ts::py
