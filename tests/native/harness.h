// A minimal test harness: TEST(name) { CHECK(condition); } in any file, one main in main.cpp.
#pragma once
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace harness {

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
struct Add {
  Add(const char* name, void (*run)()) { cases().push_back({name, run}); }
};
[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}
// The message of the error f raises; empty when it raises none.
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

} // namespace harness

#define TEST(name)                                                                                                     \
  static void name();                                                                                                  \
  static const harness::Add add_##name(#name, name);                                                                   \
  static void name()
#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) harness::fail(__FILE__, __LINE__, #condition);                                                   \
  } while (0)
#define CHECK_CLOSE(a, b, tolerance)                                                                                   \
  do {                                                                                                                 \
    double x_ = (a), y_ = (b);                                                                                         \
    if (!(std::abs(x_ - y_) <= (tolerance)))                                                                           \
      harness::fail(__FILE__, __LINE__, #a " = " + std::to_string(x_) + ", expected " + std::to_string(y_));           \
  } while (0)
#define CHECK_ERROR(expression, part)                                                                                  \
  do {                                                                                                                 \
    std::string m_ = harness::error_of([&] { expression; });                                                           \
    if (m_.find(part) == std::string::npos)                                                                            \
      harness::fail(__FILE__, __LINE__, "error '" + m_ + "' lacks '" + part + "'");                                    \
  } while (0)
