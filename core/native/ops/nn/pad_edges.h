// How padding takes what lies inside.
#pragma once

namespace ts {

enum class PadMode { Reflect, Replicate, Circular };
PadMode pad_mode_of(const char* name); // NotImplemented for others

} // namespace ts
