// Random numbers that the calling thread draws, of any generator: vmap counts them, and refuses them where it was told.
#pragma once
#include <cstdint>

namespace ts {

uint64_t draws();               // how often it has drawn so far
bool refuse_draws(bool refuse); // whether drawing is an error from now on; returns how it was

} // namespace ts
