// OpenBLAS behind one overload per type. One thread always: threads come from OpenMP, so that there is one pool.
#ifndef TESSERACK_CPU_BLAS_H
#define TESSERACK_CPU_BLAS_H

#include "matmul.h"

namespace tesserack::cpu::blas {

// c = a @ b, added to c if `accumulate`. float32, float64, complex64, complex128. False when a stride, a size or
// the dtype is not one that BLAS takes.
bool gemm(const Gemm& gemm, bool accumulate);
bool takes(const Gemm& gemm);
// Whether there is a library at all.
bool has_library();

} // namespace tesserack::cpu::blas

#endif // TESSERACK_CPU_BLAS_H
