#include "autograd/record.h"
#include "autograd/declared.h"
#include "autograd/forward_level.h"
#include "autograd/gradient.h"
#include "autograd/saved_tensor.h"
#include "dispatch/op_handles.h"
#include "tensor/inline_array.h"

namespace ts {
namespace {

// A tensor argument (or element of a list argument) as the gradient sees it.
struct Slot {
  ResultMeta meta;
  SavedTensor saved;
  int32_t edge = -1; // -1: nobody wants its gradient
};

struct OpNode final : DeclaredNode {
  const Operator* forward = nullptr;
  OwnedValues values; // arguments that are not tensors
  InlineArray<Slot, 2> slots;
  SmallVector<int32_t, 12> first_slot; // per argument; the next entry ends it
  InlineArray<ResultMeta, 1> metas;
  InlineArray<SavedTensor, 1> results;

  std::string name() const override;
  size_t num_results() const override { return metas.size(); }
  const ResultMeta& result_meta(size_t k) const override { return metas[k]; }

  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override;
  void release_saved() override {
    if (saves_constants) return;
    for (Slot& s : slots) s.saved.reset();
    for (SavedTensor& r : results) r.reset();
  }
  std::vector<SavedPart> saved_parts() override;
  void visit_held(HeldVisitor& visitor) const override {
    for (const Slot& s : slots) s.saved.visit_held(visitor);
    for (const SavedTensor& r : results) r.visit_held(visitor);
  }
  const Slot& slot(int k, int j) const { return slots[static_cast<size_t>(first_slot[static_cast<size_t>(k)] + j)]; }
};

// What the operator's gradient sees of a node in one run.
class Evaluation final : public GradContext {
public:
  Evaluation(OpNode& node, std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted)
      : node_(node), grads_(grads), out_(out), wanted_(wanted) {}

  const Operator& op() const override { return *node_.forward; }
  const Tensor& grad(int k) override {
    Tensor& g = grads_[static_cast<size_t>(k)];
    if (g.defined()) return g;
    if (materialized_.empty()) materialized_.resize(node_.metas.size());
    Tensor& z = materialized_[static_cast<size_t>(k)];
    if (!z.defined()) {
      static const Op zeros("zeros");
      const ResultMeta& m = node_.metas[static_cast<size_t>(k)];
      z = zeros(m.sizes, m.dtype, m.device);
    }
    return z;
  }
  bool has_grad(int k) const override { return grads_[static_cast<size_t>(k)].defined(); }
  Tensor arg(int k) override { return arg(k, 0); }
  Tensor arg(int k, int j) override { return count(k) ? node_.slot(k, j).saved.unpack(&node_) : Tensor(); }
  Tensor result(int k) override { return node_.results[static_cast<size_t>(k)].unpack(&node_); }
  const Value& value(int k) const override { return node_.values[static_cast<size_t>(k)]; }
  bool needs(int k) const override {
    for (int j = 0; j < count(k); ++j)
      if (needs(k, j)) return true;
    return false;
  }
  bool needs(int k, int j) const override {
    return j < count(k) && node_.slot(k, j).edge >= 0 && is_wanted(wanted_, static_cast<size_t>(node_.slot(k, j).edge));
  }
  int count(int k) const override {
    return node_.first_slot[static_cast<size_t>(k) + 1] - node_.first_slot[static_cast<size_t>(k)];
  }
  IntSpan sizes(int k, int j) const override { return node_.slot(k, j).meta.sizes; }
  DType dtype(int k, int j) const override { return node_.slot(k, j).meta.dtype; }
  Device device(int k, int j) const override { return node_.slot(k, j).meta.device; }
  void set(int k, Tensor g) override { set(k, 0, std::move(g)); }
  void set(int k, int j, Tensor g) override {
    if (!needs(k, j)) return;
    Tensor& out = out_[static_cast<size_t>(node_.slot(k, j).edge)];
    out = out.defined() ? ops::add(out, g) : std::move(g);
  }

private:
  OpNode& node_;
  std::span<Tensor> grads_, out_;
  EdgeMask wanted_;
  std::vector<Tensor> materialized_; // zeros for results without a gradient
};

std::string OpNode::name() const {
  if (!forward->node_name_of) return backward_name(*forward);
  return forward->node_name_of(Evaluation(const_cast<OpNode&>(*this), {}, {}, ~EdgeMask{0}));
}

std::vector<SavedPart> OpNode::saved_parts() {
  std::vector<SavedPart> parts;
  const Schema& schema = *forward->schema;
  for (size_t k = 0; k < schema.args.size(); ++k) {
    const Argument& arg = schema.args[k];
    size_t first = static_cast<size_t>(first_slot[k]), count = static_cast<size_t>(first_slot[k + 1]) - first;
    if (forward->save_args >> k & 1) {
      auto unpack = [this, first, count](size_t j) { return count ? slots[first + j].saved.unpack(this) : Tensor(); };
      auto raw = [this, first, count](size_t j) { return count ? &slots[first + j].saved : nullptr; };
      parts.push_back(
          {.name = arg.name, .tensor = unpack, .raw = raw, .count = arg.type.list ? count : 1, .list = arg.type.list});
    } else if (!count && arg.type.kind != TypeKind::Tensor) {
      parts.push_back({.name = arg.name, .value = &values[k], .type = &arg.type});
    }
    if (count == 1 && !arg.type.list)
      parts.push_back(
          {.name = arg.name + (arg.type.optional ? "_sym_sizes_opt" : "_sym_sizes"), .sizes = slots[first].meta.sizes});
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (!(forward->save_results >> r & 1)) continue;
    bool named = r < schema.return_names.size() && !schema.return_names[r].empty();
    std::string name = results.size() == 1 ? "result" : named ? schema.return_names[r] : concat("result", r);
    parts.push_back({.name = name,
                     .tensor = [this, r](size_t) { return results[r].unpack(this); },
                     .raw = [this, r](size_t) { return &results[r]; }});
  }
  return parts;
}

void OpNode::backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) {
  bool any = false;
  for (const Tensor& g : grads) any |= g.defined();
  if (!any || !forward->gradient) return;
  Evaluation context(*this, grads, out, wanted);
  forward->gradient(context);
}

template <class F> void each_tensor(const Frame& f, F visit) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      visit(k, v.as_tensor());
    else if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) visit(k, t);
  }
}

inline bool wants_gradient(const Tensor& t) { return requires_grad(t) && is_differentiable(t.dtype()); }

inline bool any_wants_gradient(const Frame& f) {
  bool any = false;
  each_tensor(f, [&](int32_t, const Tensor& t) { any = any || wants_gradient(t); });
  return any;
}

// The node with edges and saved arguments; before the kernel, which may overwrite argument 0.
Ref<OpNode> prepare(const Operator& op, const Frame& f, bool overwrites) {
  auto node = Ref<OpNode>::adopt(new OpNode);
  node->forward = &op;
  node->values = OwnedValues({f.args, static_cast<size_t>(f.nargs)});
  size_t total = 0, edges = 0;
  each_tensor(f, [&](int32_t, const Tensor& t) {
    ++total;
    edges += wants_gradient(t);
  });
  node->slots.resize(total);
  node->resize_edges(edges);
  size_t at = 0, edge = 0;
  for (int32_t k = 0; k < f.nargs; ++k) {
    node->first_slot.push_back(static_cast<int32_t>(at));
    bool save = op.save_args >> k & 1;
    auto fill = [&](const Tensor& t) {
      Slot& s = node->slots[at++];
      if (!t.defined()) return;
      s.meta = {Dims(t.sizes()), t.dtype(), t.device()};
      if (wants_gradient(t)) {
        s.edge = static_cast<int32_t>(edge);
        node->edges()[edge++] = overwrites && k == 0 ? inplace_edge(t) : gradient_edge(t);
      }
      if (!save) return;
      if (overwrites && k == 0) {
        s.saved = SavedTensor(ops::clone(t), false); // recorded: its history matters to second derivatives
      } else {
        s.saved = SavedTensor(t, false);
      }
    };
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      fill(v.as_tensor());
    else if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) fill(t);
  }
  node->first_slot.push_back(static_cast<int32_t>(at));
  return node;
}

void attach(const Operator& op, Frame& f, Ref<OpNode> node, bool inplace) {
  static const Tensor none;
  auto visit_results = [&](auto visit) {
    uint32_t nr = 0;
    for (int32_t r = 0; r < f.nrets; ++r) {
      const Value& v = f.rets[r];
      if (v.tag == Tag::Tensors)
        for (const Tensor& t : v.as_tensors()) visit(r, nr++, t);
      else
        visit(r, nr++, v.tag == Tag::Tensor ? v.as_tensor() : none);
    }
  };
  size_t n = 0;
  visit_results([&](int32_t, uint32_t, const Tensor&) { ++n; });
  node->metas.resize(n);
  if (op.save_results) node->results.resize(n);
  visit_results([&](int32_t, uint32_t nr, const Tensor& t) {
    if (t.defined()) node->metas[nr] = {Dims(t.sizes()), t.dtype(), t.device()};
  });
  OpNode& recorded = *node;
  visit_results([&](int32_t r, uint32_t nr, const Tensor& t) {
    if (!t.defined()) return;
    if (inplace && r == 0)
      record_inplace(t, node);
    else if (is_differentiable(t.dtype())) {
      set_history(t, nr + 1 == n ? std::move(node) : node, nr);
      if (op.view) {
        // Made below autograd, not under no_grad, unless what it looks at was.
        const Value& source = f.args[0];
        const bool no_grad = source.tag == Tag::Tensor && source.as_tensor()->has(TensorImpl::kViewNoGrad);
        if (!no_grad) t->flags = static_cast<uint8_t>(t->flags & ~TensorImpl::kViewNoGrad);
        t->view_version = t.version();
      }
    }
    if (op.save_results >> r & 1) recorded.results[nr] = SavedTensor(t, true, nr);
  });
}

// Steps of optimizers write lists of tensors and record nothing: for them a history may not matter.
void check_written_lists(const Operator& op, const Frame& f) {
  if (!op.effects.mutates) return;
  for (int32_t k = 0; k < f.nargs; ++k) {
    if (f.args[k].tag != Tag::Tensors || !op.schema->args[static_cast<size_t>(k)].type.mutated) continue;
    for (const Tensor& t : f.args[k].as_tensors()) {
      if (!wants_gradient(t) || hidden_no_grad()) continue;
      check_inplace_history(op, t);
      fail(ErrorKind::Runtime, op.name(), ": is not differentiable, and ", op.schema->args[static_cast<size_t>(k)].name,
           " have a history; call it under no_grad() or detach() them");
    }
  }
}

struct InstallKernel {
  InstallKernel() { set_key_default(key::Autograd, {autograd_kernel, nullptr, "tesserack"}); }
} install_record;

} // namespace

std::string backward_name(const Operator& op) {
  if (!op.node_name.empty()) return op.node_name;
  std::string out;
  bool upper = true;
  for (char c : op.schema->base) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = false;
  }
  return out + "Backward0";
}

void refuse_out_gradient(const Operator& op) {
  fail(ErrorKind::Runtime, op.schema->base,
       "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
       "requires grad.");
}

void autograd_kernel(void*, const Operator& op, Frame& f, KeySet keys) {
  KeySet rest = keys & below(key::Autograd);
  if (op.traced() && !(op.gradient && (op.overridden & keys))) {
    check_written_lists(op, f);
    if (!op.recorded_body || !any_wants_gradient(f)) return redispatch(op, f, rest);
    op.recorded_body(op, f);
    if (op.effects.mutates) count_writes(op, f);
    return;
  }
  const bool inplace = (op.effects.mutates & 1) && f.args[0].tag == Tag::Tensor;
  bool needed = any_wants_gradient(f);
  if (needed) check_written_lists(op, f);
  if (needed && op.view && f.args[0].as_tensor()->has(TensorImpl::kInference)) needed = false;
  if (inplace) {
    const Tensor& self = f.args[0].as_tensor();
    if (needed && is_unrecorded_write(self)) needed = false;
    if (self->has(TensorImpl::kInference) || needed) check_inplace_history(op, self);
    needed = needed && is_differentiable(self.dtype());
  }
  if (!needed || (!op.differentiable && !inplace)) {
    if (!needed) return redispatch(op, f, rest);
    ExcludeKeys below_autograd(key_bit(key::Autograd));
    return redispatch(op, f, rest);
  }
  Ref<OpNode> node = prepare(op, f, inplace);
  {
    ExcludeKeys below_autograd(key_bit(key::Autograd));
    redispatch(op, f, rest);
  }
  attach(op, f, std::move(node), inplace);
}

bool GradContext::is_recorded() { return grad_enabled(); }

} // namespace ts
