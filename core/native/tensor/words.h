// Texts of declarations, taken apart.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ts {

std::vector<std::string> words_of(std::string_view text);            // what white space parts
std::vector<std::string_view> split(std::string_view text, char at); // "a,b," is two parts, "" none

} // namespace ts
