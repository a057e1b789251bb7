// SHA-256, of FIPS 180-4: names of kernels on disk, whether a file is whole, and the name of a pointwise program in the
// contract. Two texts of one name would run the wrong kernel in silence, by chance or by intent, so no shorter hash is
// taken; Python has this one, but an exported program runs without it, and no other library is linked.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ts {

using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::string_view data);
std::string hexadecimal(const Sha256& digest);

} // namespace ts
