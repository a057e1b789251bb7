#include "graph/plan/group.h"
#include "dispatch/launch.h"
#include "ops/pointwise/kernel_call.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace ts::graph {
namespace {

constexpr size_t kMostInputs = 12, kMostCode = 32;

bool is_truth(uint16_t op) { return op == TS_I_NOT || (op >= TS_I_EQ && op <= TS_I_GE); }
bool is_number(const ts_tensor& t) { return t.flags & TS_T_SCALAR; }

int64_t count(const Dims& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

bool same_place(const Place& a, const ts_tensor& x, const Dims& as, const Place& b, const ts_tensor& y,
                const Dims& bs) {
  return a == b && x.dtype == y.dtype && same(as, bs);
}

} // namespace

bool Group::takes(const Work& w) {
  if (!w.call || std::strcmp(w.call->op, kPointwise.name()) != 0 || !w.call->program) return false;
  const ts_call& c = *w.call;
  if (!is_floating(static_cast<DType>(c.compute_dtype)) || c.n_outputs < 1 || c.prologue || c.epilogue) return false;
  const ts_program& p = *c.program;
  if (p.n_instructions > static_cast<int32_t>(kMostCode) || c.n_inputs > static_cast<int32_t>(kMostInputs) ||
      p.n_inputs != c.n_inputs || p.n_outputs != c.n_outputs)
    return false;
  for (size_t k = 0; k < w.places.size(); ++k) {
    const ts_tensor& t = w.tensor(k);
    if ((t.flags & (TS_T_NONE | TS_T_MUTABLE)) || (!is_number(t) && w.places[k].buffer == kNone)) return false;
    if (!is_number(t) && (t.ndim != w.tensor(0).ndim || t.ndim < 1)) return false;
  }
  return true;
}

Group::Space Group::space_of(const Work& w) {
  Space s;
  const ts_tensor& out = w.tensor(0);
  s.sizes = Dims(IntSpan(out.sizes, static_cast<size_t>(out.ndim)));
  for (size_t k = 0; k < w.places.size(); ++k) {
    Operand o{w.places[k], w.tensor(k), {}};
    if (!is_number(o.tensor)) o.strides = Dims(IntSpan(o.tensor.strides, static_cast<size_t>(o.tensor.ndim)));
    s.operands.push_back(std::move(o));
  }
  return s;
}

// Operands of one dim, seen over the sizes of another space of as many elements.
bool Group::spread(std::vector<Operand*> operands, const Dims& from, const Dims& to) {
  if (same(from, to)) return true;
  if (from.size() != 1 || count(from) != count(to)) return false;
  for (const Operand* o : operands)
    if (!is_number(o->tensor) && o->strides[0] != 0 && o->strides[0] != 1) return false;
  for (Operand* o : operands) {
    if (is_number(o->tensor)) continue;
    const int64_t step = o->strides[0];
    o->strides.resize(to.size());
    int64_t stride = step;
    for (size_t d = to.size(); d-- > 0; stride *= to[d]) o->strides[d] = step ? stride : 0;
  }
  return true;
}

// Whether the call shares memory with what is here, and in a way that one loop keeps apart: the very same places.
bool Group::meets(const Space& s, int32_t n_outputs) const {
  bool shares = false;
  for (size_t k = 0; k < s.operands.size(); ++k) {
    const Operand& o = s.operands[k];
    if (is_number(o.tensor)) continue;
    const bool writes = k < static_cast<size_t>(n_outputs);
    auto at_once = [&](const Operand& other) {
      return same_place(o.place, o.tensor, o.strides, other.place, other.tensor, other.strides);
    };
    for (const Write& w : writes_) {
      if (w.to.place.buffer != o.place.buffer) continue;
      if (!at_once(w.to)) return false;
      shares = true;
    }
    for (const Operand& in : inputs_) {
      if (is_number(in.tensor) || in.place.buffer != o.place.buffer) continue;
      if (at_once(in))
        shares = true;
      else if (writes)
        return false;
    }
  }
  return shares;
}

bool Group::read(const Operand& o, Ref& out, Bound& bound) {
  if (!is_number(o.tensor))
    for (size_t k = writes_.size(); k-- > 0;) {
      const Write& w = writes_[k];
      if (w.to.place.buffer != o.place.buffer) continue;
      out = w.value;
      bound = {true, static_cast<uint16_t>(k)};
      return w.readable;
    }
  size_t at = 0;
  for (; at < inputs_.size(); ++at) {
    const Operand& in = inputs_[at];
    if (is_number(in.tensor) != is_number(o.tensor)) continue;
    if (is_number(o.tensor) ? in.tensor.dtype == o.tensor.dtype && in.tensor.scalar.i == o.tensor.scalar.i
                            : same_place(o.place, o.tensor, o.strides, in.place, in.tensor, in.strides))
      break;
  }
  if (at == inputs_.size()) inputs_.push_back(o);
  out = {From::Input, static_cast<uint16_t>(at)};
  bound = {false, static_cast<uint16_t>(at)};
  return true;
}

Group::Ref Group::constant(const ts_program& p, int32_t k) {
  const double value = p.constants[k];
  const int64_t whole = p.integers ? p.integers[k] : static_cast<int64_t>(value);
  size_t at = 0;
  while (at < constants_.size() &&
         !(std::bit_cast<uint64_t>(constants_[at]) == std::bit_cast<uint64_t>(value) && integers_[at] == whole))
    ++at;
  if (at == constants_.size()) {
    constants_.push_back(value);
    integers_.push_back(whole);
  }
  return {From::Constant, static_cast<uint16_t>(at)};
}

bool Group::append(const Work& w, const Space& s) {
  const ts_program& p = *w.call->program;
  const auto n_outputs = static_cast<size_t>(w.call->n_outputs);
  const auto compute = static_cast<DType>(w.call->compute_dtype);
  std::vector<Ref> registers;
  std::vector<Bound> bound(s.operands.size());
  for (size_t k = n_outputs; k < s.operands.size(); ++k)
    if (!read(s.operands[k], registers.emplace_back(), bound[k])) return false;
  for (int32_t k = 0; k < p.n_constants; ++k) registers.push_back(constant(p, k));
  auto at = [&](uint16_t r) { return r < registers.size() ? registers[r] : Ref{From::Input, 0}; };
  for (int32_t k = 0; k < p.n_instructions; ++k) {
    const ts_instruction& i = p.instructions[k];
    if (i.op >= TS_NUM_INSTRUCTIONS || std::max({i.a, i.b, i.c}) >= registers.size()) return false;
    code_.push_back({i.op, at(i.a), at(i.b), at(i.c)});
    registers.push_back({From::Instruction, static_cast<uint16_t>(code_.size() - 1)});
  }
  for (size_t k = 0; k < n_outputs; ++k) {
    if (p.outputs[k] >= registers.size()) return false;
    const Ref stored = registers[p.outputs[k]];
    if (stored.from != From::Instruction) return false;
    Write made{s.operands[k], stored, stored, false};
    const auto dtype = static_cast<DType>(made.to.tensor.dtype);
    made.readable = dtype == compute || (dtype == DType::Bool && is_truth(code_[stored.at].op));
    if (compute == DType::Float32 && is_half(dtype)) {
      const uint16_t round = dtype == DType::Float16 ? TS_I_ROUND_FLOAT16 : TS_I_ROUND_BFLOAT16;
      code_.push_back({round, stored, stored, stored});
      made.value = made.stored = {From::Instruction, static_cast<uint16_t>(code_.size() - 1)};
      made.readable = true;
    }
    for (Write& before : writes_) // parts of complex numbers share a buffer, and each is one of its own
      before.last = before.last && !same_place(before.to.place, before.to.tensor, before.to.strides, made.to.place,
                                               made.to.tensor, made.to.strides);
    bound[k] = {true, static_cast<uint16_t>(writes_.size())};
    writes_.push_back(std::move(made));
  }
  members_.push_back(&w);
  bound_.push_back(std::move(bound));
  return inputs_.size() <= kMostInputs && code_.size() <= kMostCode;
}

void Group::clear() { *this = Group(); }

void Group::start(const Work& w) {
  clear();
  Space s = space_of(w);
  sizes_ = s.sizes;
  if (!append(w, s)) clear();
}

bool Group::add(const Work& w) {
  const ts_call &first = *members_[0]->call, &c = *w.call;
  if (c.compute_dtype != first.compute_dtype || w.kernel.run != members_[0]->kernel.run) return false;
  Space s = space_of(w);
  Group grown = *this;
  std::vector<Operand*> ours, theirs;
  for (Operand& o : grown.inputs_) ours.push_back(&o);
  for (Write& o : grown.writes_) ours.push_back(&o.to);
  for (Operand& o : s.operands) theirs.push_back(&o);
  if (spread(theirs, s.sizes, sizes_))
    s.sizes = sizes_;
  else if (spread(ours, sizes_, s.sizes))
    grown.sizes_ = s.sizes;
  else
    return false;
  if (!grown.meets(s, c.n_outputs) || !grown.append(w, s)) return false;
  *this = std::move(grown);
  return true;
}

Work Group::joined(const std::function<bool(Id)>& needed) const {
  pointwise::Program p;
  std::vector<const Write*> stored;
  for (const Write& w : writes_)
    if (w.last && (&w == &writes_.back() || needed(w.to.place.buffer))) stored.push_back(&w);
  for (size_t k = 0; k < inputs_.size(); ++k) p.inputs.push_back(static_cast<int>(k));
  p.constants = constants_;
  p.integers = integers_;
  auto number = [&](const Ref& r) {
    const size_t base = r.from == From::Input      ? 0
                        : r.from == From::Constant ? inputs_.size()
                                                   : inputs_.size() + constants_.size();
    return static_cast<uint16_t>(base + r.at);
  };
  for (const Code& c : code_) p.instructions.push_back({c.op, number(c.a), number(c.b), number(c.c)});
  for (const Write* w : stored) p.outputs.push_back(number(w->stored));
  for (const Work* m : members_) p.text += (p.text.empty() ? "" : "; ") + std::string(m->call->program->text);
  pointwise::finish_program(p);

  Work out;
  out.node = node();
  out.kernel = members_[0]->kernel;
  out.work = count(sizes_);
  std::vector<ts_tensor> tensors;
  auto describe = [&](const Operand& o) {
    ts_tensor& t = tensors.emplace_back(o.tensor);
    out.places.push_back(o.place);
    if (is_number(t)) return;
    t.sizes = sizes_.data();
    t.strides = o.strides.data();
    t.ndim = static_cast<int32_t>(sizes_.size());
    t.numel = out.work;
    t.flags = geometry_is_contiguous(sizes_, o.strides) ? uint32_t{TS_T_CONTIGUOUS} : 0;
  };
  for (const Write* w : stored) describe(w->to);
  for (const Operand& o : inputs_) describe(o);
  ts_call call = *members_[0]->call;
  call.n_outputs = static_cast<int32_t>(stored.size());
  call.n_inputs = static_cast<int32_t>(inputs_.size());
  call.outputs = tensors.data();
  call.inputs = tensors.data() + stored.size();
  call.program = &p.c;
  const char* op = call.op;
  out.call.reset(copy_call(call));
  if (!out.call) throw std::bad_alloc();
  out.call->op = op;
  return out;
}

} // namespace ts::graph
