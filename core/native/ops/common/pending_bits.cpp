// What operators do at the keys Conjugate and Negative, below autograd and above every backend: arguments with a bit
// are made into plain memory, so that no kernel meets one; what is written is brought back. Views take them as they
// are.
#include "ops/common/pending_bits.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "dispatch/primitive.h"
#include "extend/pending_bits.h"
#include "ops/common/check.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <deque>

namespace ts {
namespace {

// Whether a mode or a class sees what is below: it has to see where plain values come from, too.
bool is_seen(KeySet rest) { return rest & key_bit(key::Python); }

// An operator of two tensors, or of one and a format, for the keys that are left.
Tensor call_below(const Operator& op, const Tensor& self, const Value& other, KeySet rest) {
  std::vector<Value> args{self, other};
  for (size_t k = args.size(); k < op.schema->args.size(); ++k) args.push_back(op.schema->args[k].default_value);
  Results results;
  Frame inner{args.data(), results.data(), static_cast<int32_t>(args.size()), 1};
  redispatch(op, inner, rest);
  return results.data()[0].as_tensor();
}

// The arguments of a call as its kernel is to get them.
class PlainCall {
public:
  PlainCall(const Operator& op, const Frame& f, KeySet rest) : op_(op), rest_(rest), values_(f.args, f.args + f.nargs) {
    for (size_t k = 0; k < values_.size(); ++k) {
      if (op.keeps_bits >> k & 1) continue;
      bool written = op.schema->args[k].type.mutated;
      Value& v = values_[k];
      if (v.tag == Tag::Tensor && v.as_tensor().pending())
        v = plain(v.as_tensor(), written);
      else if (v.tag == Tag::Tensors)
        v = plain_list(v.as_tensors(), written);
    }
  }

  void run(Frame& f) {
    Frame inner{values_.data(), f.rets, f.nargs, f.nrets};
    redispatch(op_, inner, rest_);
    for (const Copy& c : copies_)
      if (c.written) bring_back(c);
    for (int32_t k = 0; k < f.nrets; ++k) give_originals(f, k);
  }

private:
  struct Copy {
    Tensor original, values;
    bool written;
  };

  // An operator that is differentiated through its parts reads the values by a step that is recorded.
  bool records(const Tensor& t) const { return op_.traced() && is_recorded(t); }

  Tensor values_of(const Tensor& t) const {
    if (records(t)) return ops::clone(t);
    return is_seen(rest_) ? call_below(ops::clone.get(), t, Value(), rest_) : materialized(t);
  }

  const Tensor& plain(const Tensor& t, bool written) {
    auto known = std::ranges::find_if(copies_, [&](const Copy& c) { return c.original.is(t); });
    if (known == copies_.end()) {
      copies_.push_back({t, values_of(t), written});
      return copies_.back().values;
    }
    known->written |= written;
    return known->values;
  }

  Value plain_list(TensorList list, bool written) {
    if (std::ranges::none_of(list, [](const Tensor& t) { return t.defined() && t.pending(); })) return list;
    std::vector<Tensor>& made = lists_.emplace_back(list.begin(), list.end());
    for (Tensor& t : made)
      if (t.defined() && t.pending()) t = plain(Tensor(t), written);
    return made;
  }

  void bring_back(const Copy& c) const {
    if (records(c.original) || records(c.values)) {
      ops::copy_(c.original, c.values);
      return;
    }
    resize_output(c.original, c.values.sizes(), op_.name().c_str(), true); // out= may have been of another size
    if (is_seen(rest_))
      call_below(ops::copy_.get(), c.original, c.values, rest_);
    else if (c.original.numel())
      write_values(c.original, c.values);
  }

  // What the operator returns is what it was given.
  void give_originals(Frame& f, int32_t k) {
    auto original = [&](const Tensor& t) {
      auto at = std::ranges::find_if(copies_, [&](const Copy& c) { return c.written && c.values.is(t); });
      return at == copies_.end() ? Tensor() : at->original;
    };
    Value& v = f.rets[k];
    if (v.tag == Tag::Tensor) {
      Tensor given = original(v.as_tensor());
      if (!given.defined()) return;
      Tensor::adopt(v.tensor);
      f.give(k, std::move(given));
    } else if (v.tag == Tag::Tensors) {
      for (int32_t j = 0; j < v.len; ++j)
        if (v.tensors[j].defined())
          if (Tensor given = original(v.tensors[j]); given.defined()) const_cast<Tensor&>(v.tensors[j]) = given;
    }
  }

  const Operator& op_;
  KeySet rest_;
  std::vector<Value> values_;
  std::deque<Copy> copies_; // values_ point into these
  std::deque<std::vector<Tensor>> lists_;
};

void run_plain(void*, const Operator& op, Frame& f, KeySet keys) {
  KeySet rest = keys & below(key::Conjugate);
  if (op.keeps_bits == ~uint64_t{0}) return redispatch(op, f, rest);
  PlainCall(op, f, rest).run(f);
}

void copy_plainly(const Operator& op, const Frame& f, const Tensor& to, const Tensor& from, KeySet rest) {
  Value args[] = {to, from, f.args[2]};
  Results results;
  Frame inner{args, results.data(), 3, 1};
  redispatch(op, inner, rest);
}

// copy_ takes one pass where it can: memory as it is between tensors of the same bits, else into the target itself.
void copy_pending(void*, const Operator& op, Frame& f, KeySet keys) {
  KeySet rest = keys & below(key::Conjugate);
  const Tensor &self = f.args[0].as_tensor(), &src = f.args[1].as_tensor();
  if (self.is(src)) return f.give(0, self);
  if (is_seen(rest)) return redispatch(op, f, rest);
  bool same_bits = self.pending() == src.pending() && self.dtype() == src.dtype();
  if (same_bits || !self.pending()) {
    copy_plainly(op, f, physical(self), same_bits ? physical(src) : materialized(src), rest);
  } else {
    Tensor values = empty_like_tensor(self, self.dtype());
    copy_plainly(op, f, values, materialized(src), rest);
    if (self.numel()) {
      check_inplace(self, "copy_");
      write_values(self, values);
    }
  }
  f.give(0, self);
}

// A copy is where a pending conjugation or negation is carried out, laid out as the operator says.
void clone_pending(void*, const Operator& op, Frame& f, KeySet keys) {
  if (KeySet rest = keys & below(key::Conjugate); is_seen(rest)) return redispatch(op, f, rest);
  const Tensor& self = f.args[0].as_tensor();
  op.rule(op, f);
  if (allocate_results(op, f)) read_values(self, f.rets[0].as_tensor());
}

struct InstallKernels {
  InstallKernels() {
    for (int key : {key::Conjugate, key::Negative}) set_key_default(key, {run_plain, nullptr, "tesserack"});
  }
} install;

} // namespace

void install_copies_of_pending() {
  for (int key : {key::Conjugate, key::Negative}) {
    mutable_operator(ops::copy_.get()).table.set(key, {copy_pending, nullptr, "tesserack"});
    mutable_operator(ops::clone.get()).table.set(key, {clone_pending, nullptr, "tesserack"});
  }
}

} // namespace ts
