// Errors of the core. Each kind maps to the Python exception class PyTorch raises in the same case.
#pragma once
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ts {

enum class ErrorKind {
  Runtime,
  Value,
  Type,
  Index,
  NotImplemented,
  OutOfMemory,
  BackendUnavailable,
  Interrupted,
  Python
};

class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

private:
  ErrorKind kind_;
};

namespace detail {
template <class T> void append(std::ostringstream& out, const T& part) { out << part; }
inline void append(std::ostringstream& out, std::span<const int64_t> dims) {
  out << '[';
  for (size_t i = 0; i < dims.size(); ++i) out << (i ? ", " : "") << dims[i];
  out << ']';
}
} // namespace detail

// Concatenates its parts; spans of integers print as [2, 3].
template <class... Parts> std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (detail::append(out, parts), ...);
  return out.str();
}

template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

} // namespace ts

// TS_CHECK(condition, "op: expected ..., got ", x): RuntimeError. The others raise the class they name.
#define TS_CHECK_KIND(kind, condition, ...)                                                                            \
  do {                                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                                     \
      ::ts::fail(kind, __VA_ARGS__);                                                                                   \
  } while (0)
#define TS_CHECK(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Runtime, condition, __VA_ARGS__)
#define TS_CHECK_VALUE(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Value, condition, __VA_ARGS__)
#define TS_CHECK_TYPE(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Type, condition, __VA_ARGS__)
#define TS_CHECK_INDEX(condition, ...) TS_CHECK_KIND(::ts::ErrorKind::Index, condition, __VA_ARGS__)
