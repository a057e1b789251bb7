// The core of scatter, index_add_ and their kind.
#ifndef TESSERACK_CPU_SCATTER_H
#define TESSERACK_CPU_SCATTER_H

#include <cstdint>
#include <span>

namespace tesserack::cpu {

struct ScatterOperand {
  char* data;
  std::span<const int64_t> strides; // in elements, zero where broadcast
};

struct ScatterProblem {
  const char* op;
  int32_t combine; // TS_S_*
  int32_t dtype, index_dtype;
  int dim;
  int64_t limit;                  // size of the output along dim
  std::span<const int64_t> sizes; // of index and source
  ScatterOperand out, index, source;
};

// Elements meet in index order whatever the number of threads.
void scatter_into(const ScatterProblem& problem);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_SCATTER_H
