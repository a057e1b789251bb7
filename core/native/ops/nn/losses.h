// What losses share.
#pragma once
#include "tensor/error.h"
#include <cmath>
#include <cstring>

namespace ts {

enum Reduction : int64_t { kReduceNone = 0, kReduceMean = 1, kReduceSum = 2 };

// ValueError unless one of 'none', 'mean', 'sum'.
inline int64_t reduction_of(const char* op, const char* name) {
  if (std::strcmp(name, "mean") == 0) return kReduceMean;
  if (std::strcmp(name, "sum") == 0) return kReduceSum;
  TS_CHECK_VALUE(std::strcmp(name, "none") == 0, op, ": ", name,
                 " is not a valid value for reduction; expected 'none', 'mean' or 'sum'");
  return kReduceNone;
}

} // namespace ts
