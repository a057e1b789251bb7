// How the parts of a message become text.
#include "tensor/error.h"
#include <cstdio>

namespace ts {

void MessagePart::append_text(const MessagePart& part, std::string& out) { out.append(part.text_, part.size_); }
void MessagePart::append_char(const MessagePart& part, std::string& out) {
  out.push_back(static_cast<char>(part.integer_));
}
void MessagePart::append_signed(const MessagePart& part, std::string& out) { out += std::to_string(part.integer_); }
void MessagePart::append_unsigned(const MessagePart& part, std::string& out) {
  out += std::to_string(static_cast<uint64_t>(part.integer_));
}

void MessagePart::append_number(const MessagePart& part, std::string& out) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", part.number_);
  out += text;
}

void MessagePart::append_dims(const MessagePart& part, std::string& out) {
  out.push_back('[');
  for (size_t i = 0; i < part.size_; ++i) {
    if (i) out += ", ";
    out += std::to_string(part.dims_[i]);
  }
  out.push_back(']');
}

std::string join(std::initializer_list<MessagePart> parts) {
  std::string text;
  for (const MessagePart& part : parts) part.append(text);
  return text;
}

void fail(ErrorKind kind, std::initializer_list<MessagePart> parts) { throw Error(kind, join(parts)); }

} // namespace ts
