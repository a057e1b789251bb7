// Own matrix products, on one thread.
#ifndef TESSERACK_CPU_MATMUL_KERNELS_H
#define TESSERACK_CPU_MATMUL_KERNELS_H

#include "isa_pick.h"
#include "matmul.h"

namespace tesserack::cpu {

// c = a @ b (matmul/matmul_packed.isa.cpp), any strides, added to c if `accumulate`. dtype: bool, integers (which
// wrap), float32, float64.
TS_ISA_FUNCTION(void, packed_gemm, (const Gemm& gemm, bool accumulate));

// c = a @ b of float64 where c is a column or a row (matmul/gemv_f64.isa.cpp), added to c if `accumulate`. False unless
// what is multiplied lies in runs.
TS_ISA_FUNCTION(bool, gemv_f64, (const Gemm& gemm, bool accumulate));

// c = a @ b + addend of float32 (matmul/sgemm.isa.cpp), any strides of a and b. It takes products whose c and addend
// both have contiguous rows, or both contiguous columns; none at all without AVX2.
TS_ISA_FUNCTION(bool, tiled_gemm_takes, (const Gemm& gemm));
TS_ISA_FUNCTION(void, tiled_gemm, (const Gemm& gemm));
// Whether it does so by scalar products, which round otherwise than tiles do.
TS_ISA_FUNCTION(bool, gemm_by_dots, (const Gemm& gemm));

// The same with all of b packed beforehand, into so many elements (0: there is no such kernel); of c's columns a part
// may be taken that begins with a panel. c and addend have contiguous rows.
constexpr int64_t kGemmPanel = 32; // columns; of narrower panels a whole number
TS_ISA_FUNCTION(int64_t, gemm_panels, (int64_t n, int64_t k));
TS_ISA_FUNCTION(void, pack_gemm_panels, (const Matrix& b, int64_t n, int64_t k, float* to));
TS_ISA_FUNCTION(void, gemm_by_panels, (const Gemm& gemm, const float* panels));

// Between float16 or bfloat16 and float32, rows of `cols` elements: to (rows, cols) row-major, or from it.
TS_ISA_FUNCTION(void, widen_half, (int32_t dtype, int64_t rows, int64_t cols, const Matrix& from, float* to));
TS_ISA_FUNCTION(void, narrow_half, (int32_t dtype, int64_t rows, int64_t cols, const float* from, const Matrix& to));

// The scalar product of two runs of float16 or bfloat16.
TS_ISA_FUNCTION(float, dot_half, (int32_t dtype, int64_t n, const void* a, const void* b));

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_MATMUL_KERNELS_H
