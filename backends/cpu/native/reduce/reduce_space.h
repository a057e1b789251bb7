// Geometry shared by the reductions: kept and reduced dimensions of one input, and how the work is cut.
#ifndef TESSERACK_CPU_REDUCE_SPACE_H
#define TESSERACK_CPU_REDUCE_SPACE_H

#include "pointwise/geometry.h"
#include "pointwise/program.h"
#include "threads.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

class ReduceSpace {
public:
  // Splits in0 into its kept and its last `n_reduced` dimensions. `ordered`: the reduced order matters (positions).
  ReduceSpace(const backend::Call& call, int n_reduced, bool ordered);

  // The shorter in-stride lies in the kept dimensions: fold rows of columns instead of single runs.
  bool by_columns() const;

  Space kept;    // operand 0 the input, then the outputs
  Space reduced; // operand 0 the input
  int64_t n_kept = 1, n_reduced = 1;

  // Element offset of reduced index r.
  int64_t reduced_offset(int64_t r) const {
    if (reduced.nd == 2 && reduced.size[0] == 1) return r * reduced_operand_.stride[1];
    int64_t offset = 0;
    for (int d = reduced.nd - 1; d >= 0; --d) {
      offset += r % reduced.size[d] * reduced_operand_.stride[d];
      r /= reduced.size[d];
    }
    return offset;
  }
  int64_t run_size() const { return reduced.cols(); }
  int64_t run_stride() const { return reduced_operand_.stride[reduced.nd - 1]; }

  // Offset of operand k at kept index i (of the whole kept space, last dimension fastest).
  int64_t kept_offset(int k, int64_t i) const {
    if (kept.nd == 2 && kept.size[0] == 1) return i * kept_operands_[k].stride[1];
    int64_t offset = 0;
    for (int d = kept.nd - 1; d >= 0; --d) {
      offset += i % kept.size[d] * kept_operands_[k].stride[d];
      i /= kept.size[d];
    }
    return offset;
  }

private:
  static constexpr int kMaxOutputs = 2;
  Operand kept_operands_[1 + kMaxOutputs];
  Operand reduced_operand_;
  alignas(8) char scalar_[8];
};

// Into how many parts of the reduced range each unit is cut. Depends on sizes alone, never on the number of threads,
// so that results do not either.
inline int64_t count_splits(int64_t units, int64_t reduced, int64_t width) {
  constexpr int64_t kPart = 65536;
  if (units >= 16 || units * reduced * width < 2 * kPart) return 1;
  const int64_t wanted = ceil_div(reduced * width, kPart), limit = ceil_div(64, units);
  return wanted < limit ? wanted : limit;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_SPACE_H
