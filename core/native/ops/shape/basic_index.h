// The encoding of basic indices: four numbers per item.
#pragma once
#include <cstdint>

namespace ts::basic_index_item {

inline constexpr int64_t kSelect = 0;  // index, 0, 0
inline constexpr int64_t kSlice = 1;   // start, length, step
inline constexpr int64_t kNewAxis = 2; // 0, 0, 0

} // namespace ts::basic_index_item
