// One element of a tensor in host memory, as a number and back.
#pragma once
#include "dispatch/value.h"
#include "python/common.h"

namespace ts::py {

// Int, Float or Bool; TypeError for complex dtypes (use item_object).
Value load_item(DType t, const void* at);
// As a Python object; complex numbers too.
PyObject* item_object(DType t, const void* at);
// Writes a Python number as dtype t. False if `o` is not a number; throws when it does not fit.
bool store_item(DType t, void* at, PyObject* o);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
inline float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t float_to_bfloat(float value);

} // namespace ts::py
