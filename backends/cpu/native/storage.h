// The element types and conversions of the public header, under their short names.
#ifndef TESSERACK_CPU_STORAGE_H
#define TESSERACK_CPU_STORAGE_H

#include <tesserack/backend.hpp>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

using backend::BFloat16;
using backend::Bool;
using backend::Half;

using backend::bfloat16_to_float;
using backend::convert;
using backend::dtype_of;
using backend::float_to_any_int;
using backend::float_to_bfloat16;
using backend::float_to_half;
using backend::float_to_int;
using backend::half_to_float;
using backend::natural_compute;
using backend::with_compute;
using backend::with_storage;

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_STORAGE_H
