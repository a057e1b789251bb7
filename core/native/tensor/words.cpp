#include "tensor/words.h"
#include <algorithm>

namespace ts {

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kSpace); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return words;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

} // namespace ts
