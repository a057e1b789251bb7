// SHA-256, of FIPS 180-4.
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
