// Pointwise parts of reductions and products, for kernels that take them (TS_K_PROLOGUE, TS_K_EPILOGUE).
#pragma once
#include "ops/reduce/reduce_arrange.h"

namespace ts {

// The program of an expression of x, such as "x * x"; compiled once for each text.
const ts_program* program_of(const char* expression);
// out = reduction of the program of self, a real tensor; out is of the dtype to compute in. False where the backend's
// reduce takes no prologue: then nothing was done.
bool reduce_program_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims, const ts_program* prologue);
// out (M, N) = the program of a @ b + add. False where the backend's matmul takes no epilogue.
bool multiply_program_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& add,
                           const ts_program* epilogue);

} // namespace ts
