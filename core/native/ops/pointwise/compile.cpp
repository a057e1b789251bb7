// Expressions to register programs, with common subexpressions computed once.
#include "ops/pointwise/expr.h"
#include "runtime/services/sha256.h"
#include "tensor/error.h"
#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace ts::pointwise {
namespace {

bool same_constant(const Program& p, size_t k, const ExprNode& e) {
  return std::bit_cast<uint64_t>(p.constants[k]) == std::bit_cast<uint64_t>(e.value) && p.integers[k] == e.integer;
}

void collect(const Expr& e, Program& p, std::unordered_set<const ExprNode*>& seen) {
  if (!e || !seen.insert(e.get()).second) return;
  if (e->kind == ExprNode::Variable) {
    if (std::find(p.inputs.begin(), p.inputs.end(), e->variable) == p.inputs.end()) p.inputs.push_back(e->variable);
  } else if (e->kind == ExprNode::Constant) {
    for (size_t k = 0; k < p.constants.size(); ++k)
      if (same_constant(p, k, *e)) return;
    p.constants.push_back(e->value);
    p.integers.push_back(e->integer);
  } else {
    for (const Expr& child : {e->a, e->b, e->c}) collect(child, p, seen);
  }
}

class Compiler {
public:
  explicit Compiler(Program& p) : p_(p) {}
  uint16_t emit(const Expr& e) {
    if (e->kind == ExprNode::Variable) return position(p_.inputs, e->variable);
    if (e->kind == ExprNode::Constant) {
      for (size_t i = 0; i < p_.constants.size(); ++i)
        if (same_constant(p_, i, *e)) return static_cast<uint16_t>(p_.inputs.size() + i);
    }
    if (auto known = done_.find(e.get()); known != done_.end()) return known->second;
    uint16_t a = emit(e->a), b = e->b ? emit(e->b) : uint16_t{0}, c = e->c ? emit(e->c) : uint16_t{0};
    auto [it, fresh] = seen_.try_emplace({e->op, a, b, c}, 0);
    if (fresh) {
      p_.instructions.push_back({e->op, a, b, c});
      size_t reg = p_.inputs.size() + p_.constants.size() + p_.instructions.size() - 1;
      TS_CHECK(reg < 0xffff, "expression: too long");
      it->second = static_cast<uint16_t>(reg);
    }
    return done_[e.get()] = it->second;
  }

private:
  static uint16_t position(const std::vector<int>& list, int item) {
    return static_cast<uint16_t>(std::find(list.begin(), list.end(), item) - list.begin());
  }
  Program& p_;
  std::unordered_map<const ExprNode*, uint16_t> done_;
  std::map<std::tuple<uint16_t, uint16_t, uint16_t, uint16_t>, uint16_t> seen_;
};

// Equal programs have one number: kernels compiled for one serve the other.
uint64_t program_id(const Program& p) {
  static std::mutex mutex;
  static std::map<std::vector<uint64_t>, uint64_t> ids;
  std::vector<uint64_t> key = {p.inputs.size(), p.constants.size(), p.outputs.size()};
  for (double v : p.constants) key.push_back(std::bit_cast<uint64_t>(v));
  for (int64_t v : p.integers) key.push_back(static_cast<uint64_t>(v));
  for (uint16_t reg : p.outputs) key.push_back(reg);
  for (const ts_instruction& i : p.instructions)
    key.push_back(uint64_t{i.op} << 48 | uint64_t{i.a} << 32 | uint64_t{i.b} << 16 | i.c);
  std::lock_guard lock(mutex);
  return ids.try_emplace(std::move(key), ids.size() + 1).first->second;
}

// Written out number by number, so that every machine and every version of the core agrees.
void hash_program(ts_program& c) {
  std::string text;
  auto put = [&](uint64_t v) {
    for (int k = 0; k < 8; ++k) text += static_cast<char>(v >> 8 * k);
  };
  for (int32_t n : {c.n_inputs, c.n_constants, c.n_instructions, c.n_outputs}) put(static_cast<uint64_t>(n));
  for (int32_t k = 0; k < c.n_constants; ++k) {
    put(std::bit_cast<uint64_t>(c.constants[k]));
    put(static_cast<uint64_t>(c.integers[k]));
  }
  for (int32_t k = 0; k < c.n_instructions; ++k) {
    const ts_instruction& i = c.instructions[k];
    put(uint64_t{i.op} << 48 | uint64_t{i.a} << 32 | uint64_t{i.b} << 16 | i.c);
  }
  for (int32_t k = 0; k < c.n_outputs; ++k) put(c.outputs[k]);
  const Sha256 digest = sha256(text);
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < 8; ++k) c.hash[half] |= uint64_t{digest[static_cast<size_t>(8 * half + k)]} << 8 * k;
}

} // namespace

std::unique_ptr<const Program> compile(std::span<const Expr> outputs, std::span<const std::string> variables,
                                       bool all) {
  auto p = std::make_unique<Program>();
  std::unordered_set<const ExprNode*> seen;
  for (size_t k = 0; all && k < variables.size(); ++k) p->inputs.push_back(static_cast<int>(k));
  for (const Expr& e : outputs) collect(e, *p, seen);
  std::sort(p->inputs.begin(), p->inputs.end());
  Compiler compiler(*p);
  for (const Expr& e : outputs) {
    uint16_t reg = compiler.emit(e);
    // An output that is an input or constant is stored through a copy.
    if (reg < p->inputs.size() + p->constants.size()) {
      p->instructions.push_back({TS_I_COPY, reg, 0, 0});
      reg = static_cast<uint16_t>(p->inputs.size() + p->constants.size() + p->instructions.size() - 1);
    }
    p->outputs.push_back(reg);
    p->text += (p->text.empty() ? "" : "; ") + to_string(e, variables);
  }
  finish_program(*p);
  return p;
}

void finish_program(Program& p) {
  p.c = {sizeof(ts_program),
         program_id(p),
         static_cast<int32_t>(p.inputs.size()),
         static_cast<int32_t>(p.constants.size()),
         static_cast<int32_t>(p.instructions.size()),
         static_cast<int32_t>(p.outputs.size()),
         p.constants.data(),
         p.instructions.data(),
         p.outputs.data(),
         p.text.c_str(),
         p.integers.data(),
         {0, 0}};
  hash_program(p.c);
}

} // namespace ts::pointwise
