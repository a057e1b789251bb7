#include "ops/common/narrow.h"
#include "tesserack/narrow.hpp"

namespace ts {

double narrow_value(DType t, uint8_t code) {
  return tesserack::backend::narrow_to_float(static_cast<int32_t>(t), code);
}

uint8_t narrow_code(DType t, double value) {
  return tesserack::backend::float_to_narrow(static_cast<int32_t>(t), static_cast<float>(value));
}

} // namespace ts
