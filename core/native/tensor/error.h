// Errors of the core. Each kind maps to the Python exception class PyTorch raises in the same case.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ts {

enum class ErrorKind {
  Runtime,
  Value,
  Type,
  Index,
  NotImplemented,
  OutOfMemory,
  DeviceLost,
  BackendUnavailable,
  Interrupted,
  Python,
  LinAlg // of a matrix: singular, not positive-definite, or an iteration on it did not converge
};

class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

private:
  ErrorKind kind_;
};

// One part of a message, borrowed: text, a number, a span of integers (printed as [2, 3]), or what has an
// append_to(std::string&, const T&). A check stores three words per part; all else is code that checks share.
class MessagePart {
public:
  MessagePart(const char* text) : MessagePart(std::string_view(text ? text : "")) {}
  MessagePart(const std::string& text) : MessagePart(std::string_view(text)) {}
  MessagePart(std::string_view text) : text_(text.data()), size_(text.size()), append_(append_text) {}
  MessagePart(char c) : integer_(c), append_(append_char) {}
  MessagePart(std::signed_integral auto v) : integer_(v), append_(append_signed) {}
  MessagePart(std::unsigned_integral auto v) : integer_(static_cast<int64_t>(v)), append_(append_unsigned) {}
  MessagePart(double v) : number_(v), append_(append_number) {}
  MessagePart(std::span<const int64_t> dims) : dims_(dims.data()), size_(dims.size()), append_(append_dims) {}
  template <class T>
  requires requires(std::string& out, const T& v) { append_to(out, v); }
  MessagePart(const T& v)
      : object_(&v), append_([](const MessagePart& part, std::string& out) {
          append_to(out, *static_cast<const T*>(part.object_));
        }) {}

  void append(std::string& out) const { append_(*this, out); }

private:
  static void append_text(const MessagePart& part, std::string& out);
  static void append_char(const MessagePart& part, std::string& out);
  static void append_signed(const MessagePart& part, std::string& out);
  static void append_unsigned(const MessagePart& part, std::string& out);
  static void append_number(const MessagePart& part, std::string& out);
  static void append_dims(const MessagePart& part, std::string& out);

  union {
    const char* text_;
    int64_t integer_;
    double number_;
    const int64_t* dims_;
    const void* object_;
  };
  size_t size_ = 0;
  void (*append_)(const MessagePart& part, std::string& out);
};

std::string join(std::initializer_list<MessagePart> parts);
[[noreturn, gnu::cold]] void fail(ErrorKind kind, std::initializer_list<MessagePart> parts);

template <class... Parts> std::string concat(const Parts&... parts) { return join({MessagePart(parts)...}); }
template <class... Parts> [[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  fail(kind, {MessagePart(parts)...});
}

} // namespace ts

// TS_CHECK(condition, "op: expected ..., got ", x): RuntimeError. The others raise the class they name.
#define TS_CHECK_KIND(kind, condition, ...)                                                                            \
  do {                                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                                     \
      ::ts::fail(kind, {__VA_ARGS__});                                                                                 \
  } while (0)
#define TS_CHECK(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Runtime, condition, __VA_ARGS__)
#define TS_CHECK_VALUE(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Value, condition, __VA_ARGS__)
#define TS_CHECK_TYPE(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Type, condition, __VA_ARGS__)
#define TS_CHECK_INDEX(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Index, condition, __VA_ARGS__)
