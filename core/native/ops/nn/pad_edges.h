// What padding is asked for, and how it takes what lies inside.
#pragma once
#include "tensor/tensor.h"
#include <vector>

namespace ts {

enum class PadMode { Reflect, Replicate, Circular };
PadMode pad_mode_of(const char* name); // NotImplemented for others

// pad counts from the last dimension: (left, right) of the last, then of the one before, ...
struct Pads {
  int64_t dim, left, right;
};
std::vector<Pads> parse_pads(IntSpan sizes, IntSpan pad, const char* op);
int64_t padded_size(int64_t size, const Pads& p, const char* op, IntSpan sizes, IntSpan pad);
// Whether there is enough inside.
void check_pads(IntSpan sizes, IntSpan pad, PadMode mode, const char* op);

} // namespace ts
