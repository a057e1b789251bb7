// Elements of several ranks into one, in the order of ranks: the same bits wherever it is done.
#pragma once
#include "tensor/dtype.h"
#include <cstddef>
#include <span>

namespace ts::comm {

enum class Reduction : int { Sum, Average, Product, Minimum, Maximum, And, Or, Xor };

const char* name(Reduction r); // "sum"
bool has_meaning(Reduction r, DType t);
// NotImplementedError of what has no meaning: bits of floats, an order of complex numbers, an average of integers.
void check_reduction(const char* op, Reduction r, DType t);
// out[i] = sources[0][i] ∘ sources[1][i] ∘ ...; out may be one of the sources. Halves are added up in float32.
void combine(void* out, std::span<const void* const> sources, size_t count, DType t, Reduction r);

} // namespace ts::comm
