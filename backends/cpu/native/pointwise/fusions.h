// Two or three instructions that the machine does in one loop, found in any program: a tile is then read and written
// once for all of them. Nothing is rounded less or otherwise than by the instructions apart.
#ifndef TESSERACK_CPU_FUSIONS_H
#define TESSERACK_CPU_FUSIONS_H

#include "ops.h"

#include <algorithm>
#include <array>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int kMostNodes = 5;
constexpr int kInf = 64, kMinusInf = 65; // registers that hold these constants

// A tree: nodes in the order of their registers, the last is the root. Registers 0 to 2 stand for any operands.
struct Fusion {
  int op, n_nodes;
  std::array<ts_instruction, kMostNodes> nodes;
};

// Larger trees come before those within them.
constexpr Fusion kFusions[] = {
    {kLeakyRelu, 3, {{{TS_I_GT, 0, 1, 0}, {TS_I_MUL, 0, 2, 0}, {TS_I_SELECT, 3, 0, 4}}}},
    {kHuber, 3, {{{TS_I_MUL, 2, 0, 0}, {TS_I_SUB, 1, 3, 0}, {TS_I_MUL, 0, 4, 0}}}},
    {kLerp, 3, {{{TS_I_SUB, 1, 0, 0}, {TS_I_MUL, 2, 3, 0}, {TS_I_ADD, 0, 4, 0}}}},
    {kClamp, 2, {{{TS_I_MAX, 0, 1, 0}, {TS_I_MIN, 3, 2, 0}}}},
    {kAddProduct, 2, {{{TS_I_MUL, 1, 2, 0}, {TS_I_ADD, 0, 3, 0}}}},
    {kAddProduct, 2, {{{TS_I_MUL, 1, 2, 0}, {TS_I_ADD, 3, 0, 0}}}},
    {kSubProduct, 2, {{{TS_I_MUL, 1, 2, 0}, {TS_I_SUB, 0, 3, 0}}}},
    {kMulSum, 2, {{{TS_I_ADD, 1, 2, 0}, {TS_I_MUL, 0, 3, 0}}}},
    {kMulSum, 2, {{{TS_I_ADD, 1, 2, 0}, {TS_I_MUL, 3, 0, 0}}}},
    {kMulDifference, 2, {{{TS_I_SUB, 1, 2, 0}, {TS_I_MUL, 0, 3, 0}}}},
    {kMulDifference, 2, {{{TS_I_SUB, 1, 2, 0}, {TS_I_MUL, 3, 0, 0}}}},
    {kMulProduct, 2, {{{TS_I_MUL, 1, 2, 0}, {TS_I_MUL, 0, 3, 0}}}},
    {kMulProduct, 2, {{{TS_I_MUL, 1, 2, 0}, {TS_I_MUL, 3, 0, 0}}}},
    {kAddQuotient, 2, {{{TS_I_DIV, 1, 2, 0}, {TS_I_ADD, 0, 3, 0}}}},
    {kNumberWithin,
     5,
     {{{TS_I_NE, 0, 0, 0}, {TS_I_NEG, 2, 0, 0}, {TS_I_MAX, 0, 4, 0}, {TS_I_MIN, 5, 2, 0}, {TS_I_SELECT, 3, 1, 6}}}},
    {kReplaceInf,
     4,
     {{{TS_I_EQ, 0, kInf, 0}, {TS_I_EQ, 0, kMinusInf, 0}, {TS_I_SELECT, 4, 2, 0}, {TS_I_SELECT, 3, 1, 5}}}},
    {kNumberOr, 2, {{{TS_I_NE, 0, 0, 0}, {TS_I_SELECT, 3, 1, 2}}}},
    {kIfLess, 2, {{{TS_I_LT, 0, 1, 0}, {TS_I_MUL, 2, 3, 0}}}},
    {kIfLess, 2, {{{TS_I_LT, 0, 1, 0}, {TS_I_MUL, 3, 2, 0}}}},
    {kSelfIfAbove, 2, {{{TS_I_GT, 0, 1, 0}, {TS_I_SELECT, 3, 0, 2}}}},
    {kLimitIfAtMost, 2, {{{TS_I_LE, 0, 1, 0}, {TS_I_SELECT, 3, 1, 2}}}},
    {kBeyond, 3, {{{TS_I_LT, 0, 1, 0}, {TS_I_GT, 0, 2, 0}, {TS_I_MAX, 3, 4, 0}}}},
    {kOutside, 3, {{{TS_I_LE, 0, 1, 0}, {TS_I_GE, 0, 2, 0}, {TS_I_MAX, 3, 4, 0}}}},
};

// Every tree names three operands, and each node but the root is read by a later one.
constexpr bool well_formed(const Fusion& fusion) {
  unsigned read = 0;
  const auto take = [&](int reg, int end) {
    if (reg >= kInf) return true;
    read |= 1U << reg;
    return reg < end;
  };
  for (int k = 0; k < fusion.n_nodes; ++k) {
    const ts_instruction& in = fusion.nodes[static_cast<size_t>(k)];
    const int count = arity(in.op), end = 3 + k;
    if (!take(in.a, end) || (count > 1 && !take(in.b, end)) || (count > 2 && !take(in.c, end))) return false;
  }
  return read == (1U << (2 + fusion.n_nodes)) - 1;
}
static_assert(std::ranges::all_of(kFusions, well_formed));

// Rewrites a program; holds what its result points to.
class Fuser {
public:
  static constexpr int kLongest = 32; // instructions; a longer program stays as it is

  // The program in fewer instructions, or itself.
  const ts_program* fuse(const ts_program* p) {
    if (p->n_instructions < 2 || p->n_instructions > kLongest || p->n_outputs > kLongest) return p;
    source_ = p;
    first_ = p->n_inputs + p->n_constants;
    if (!count_uses()) return p;
    int fused = 0;
    for (int i = p->n_instructions - 1; i >= 0; --i) {
      if (uses_[i] == 0) continue;
      for (const Fusion& fusion : kFusions)
        if (take(fusion, i)) {
          ++fused;
          break;
        }
    }
    return fused > 0 ? renumbered() : p;
  }

private:
  // False for a program that reads what is not there: it stays as it is, to be refused.
  bool count_uses() {
    uses_.fill(0);
    for (int i = 0; i < source_->n_instructions; ++i) {
      const ts_instruction& in = instructions_[i] = source_->instructions[i];
      if (in.op >= TS_NUM_INSTRUCTIONS) return false;
      const int count = arity(in.op), end = first_ + i;
      if (!use(in.a, end) || (count > 1 && !use(in.b, end)) || (count > 2 && !use(in.c, end))) return false;
    }
    for (int k = 0; k < source_->n_outputs; ++k)
      if (!use(source_->outputs[k], first_ + source_->n_instructions)) return false;
    return true;
  }
  bool use(int reg, int end) {
    if (reg >= end) return false;
    if (reg >= first_) ++uses_[reg - first_];
    return true;
  }

  // Binds node `node` of the tree to instruction `i`, and with it all below.
  bool match(const Fusion& fusion, int node, int i) {
    const ts_instruction &wanted = fusion.nodes[static_cast<size_t>(node)], &in = instructions_[i];
    if (in.op != wanted.op || (node != fusion.n_nodes - 1 && uses_[i] != 1)) return false;
    inner_[node] = i;
    const int count = arity(in.op);
    return bind(fusion, wanted.a, in.a) && (count < 2 || bind(fusion, wanted.b, in.b)) &&
           (count < 3 || bind(fusion, wanted.c, in.c));
  }
  bool bind(const Fusion& fusion, int wanted, int reg) {
    if (wanted >= kInf) {
      const double inf = std::numeric_limits<double>::infinity();
      return reg >= source_->n_inputs && reg < first_ &&
             source_->constants[reg - source_->n_inputs] == (wanted == kInf ? inf : -inf);
    }
    if (wanted >= 3) return reg >= first_ && match(fusion, wanted - 3, reg - first_);
    if (leaves_[wanted] < 0) leaves_[wanted] = reg;
    return leaves_[wanted] == reg;
  }

  bool take(const Fusion& fusion, int i) {
    leaves_.fill(-1);
    if (!match(fusion, fusion.n_nodes - 1, i)) return false;
    const auto leaf = [&](size_t k) { return static_cast<uint16_t>(leaves_[k]); };
    instructions_[i] = {static_cast<uint16_t>(fusion.op), leaf(0), leaf(1), leaf(2)};
    for (int node = 0; node < fusion.n_nodes - 1; ++node) uses_[inner_[node]] = 0;
    return true;
  }

  const ts_program* renumbered() {
    std::array<int, kLongest> moved;
    int n = 0;
    const auto now = [&](int reg) { return static_cast<uint16_t>(reg < first_ ? reg : first_ + moved[reg - first_]); };
    for (int i = 0; i < source_->n_instructions; ++i) {
      if (uses_[i] == 0) continue;
      const ts_instruction in = instructions_[i];
      const int count = arity(in.op);
      moved[i] = n;
      instructions_[n++] = {in.op, now(in.a), count > 1 ? now(in.b) : in.b, count > 2 ? now(in.c) : in.c};
    }
    for (int k = 0; k < source_->n_outputs; ++k) outputs_[k] = now(source_->outputs[k]);
    program_ = *source_;
    program_.n_instructions = n;
    program_.instructions = instructions_.data();
    program_.outputs = outputs_.data();
    return &program_;
  }

  const ts_program* source_ = nullptr;
  int first_ = 0;
  std::array<int, kLongest> uses_;
  std::array<ts_instruction, kLongest> instructions_;
  std::array<uint16_t, kLongest> outputs_;
  std::array<int, 3> leaves_;
  std::array<int, kMostNodes> inner_;
  ts_program program_;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_FUSIONS_H
