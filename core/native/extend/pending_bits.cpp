#include "extend/pending_bits.h"
#include "dispatch/operator.h"
#include "runtime/empty.h"

namespace ts {
namespace {

// One pass by the backend's kernel of "op.out": no mode watches it, as it is part of another operator.
void run_into(const char* name, const Tensor& out, const Tensor& in) {
  const Operator& op = get_operator(name);
  Value args[] = {in, out};
  Results results;
  Frame f{args, results.data(), 2, 1};
  redispatch(op, f, out->keys & backend_bits());
}

// out = in with what is pending done; neither has bits.
void apply(KeySet bits, const Tensor& out, const Tensor& in) {
  bool conjugates = bits & key_bit(key::Conjugate);
  if (conjugates) run_into("conj_physical.out", out, in);
  if (bits & key_bit(key::Negative)) run_into("neg.out", out, conjugates ? out : in);
}

} // namespace

Tensor physical(const Tensor& t) {
  Tensor bare = shallow_copy(t);
  bare->keys &= ~pending_bits();
  return bare;
}

void read_values(const Tensor& t, const Tensor& out) { apply(t.pending(), out, physical(t)); }

Tensor materialized(const Tensor& t) {
  if (!t.pending()) return t;
  Tensor out = empty_like_tensor(t, t.dtype());
  read_values(t, out);
  return out;
}

void write_values(const Tensor& t, const Tensor& values) { apply(t.pending(), physical(t), values); }

} // namespace ts
