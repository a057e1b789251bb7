// Dtypes that are storage above all, complex32 and the floats of 8 bits: which operators compute with them.
#pragma once
#include "dispatch/operator.h"

namespace ts {

// NotImplementedError unless the operator computes with the dtype, or is part of one that does.
void check_storage_dtype(const Operator& op, DType t);
// The same for a dtype that is asked for, by operators that compute with none of them.
inline void refuse_storage_dtype(DType t, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_storage_dtype(t), op, ": not implemented for dtype ", t,
                ", which is for storage");
}

} // namespace ts
