// Elements of few bits on the host, compiled once: tesserack/narrow.hpp says what they are.
#pragma once
#include "tensor/dtype.h"

namespace ts {

double narrow_value(DType t, uint8_t code);
uint8_t narrow_code(DType t, double value);

} // namespace ts
