// What newer versions of the C and C++ libraries brought, for libraries that are to load where those are old: linked
// into each of ours, and seen by none but it.
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <locale.h>
#include <new>
#include <string>

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {

// glibc 2.32: whether the process never had a second thread. Counters are then counted with atomics always.
HIDDEN char __libc_single_threaded = 0;

// glibc 2.33: before, the header named the version of the structure.
int __fxstat(int version, int file, struct stat* found);
HIDDEN int fstat(int file, struct stat* found) {
#if defined(__x86_64__)
  return __fxstat(1, file, found);
#else
  return __fxstat(0, file, found);
#endif
}

// libstdc++ 11: what copies and ends an exception_ptr; done by the functions that were there before. They are looked up
// in the library: under their names a library of ours may have copies, which call what is defined here.
static void* of_library(const char* name) {
  void* library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) std::abort(); // what throws has linked it
  return found;
}

HIDDEN void add_reference(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void add_reference(void* pointer) {
  using Copy = void (*)(void* fresh, const void* other);
  static const Copy copy = reinterpret_cast<Copy>(of_library("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_"));
  void* kept_for_ever = nullptr;
  copy(&kept_for_ever, pointer);
}

HIDDEN void release(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void release(void* pointer) {
  using End = void (*)(void* pointer);
  static const End end = reinterpret_cast<End>(of_library("_ZNSt15__exception_ptr13exception_ptrD1Ev"));
  end(pointer);
  *static_cast<void**>(pointer) = nullptr;
}

} // extern "C"

namespace {

// The fewest digits that give the number back, as d.ddde+xx; returns how many.
int shortest(double value, char (&text)[40]) {
  for (int digits = 1;; ++digits) {
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    if (digits == 17 || std::strtod(text, nullptr) == value) return digits;
  }
}

std::to_chars_result put(const char* text, std::size_t size, char* first, char* last) {
  if (static_cast<std::size_t>(last - first) < size) return {last, std::errc::value_too_large};
  std::memcpy(first, text, size);
  return {first + size, std::errc{}};
}

// What from_chars takes: no blanks, no plus, no hexadecimal digits.
std::size_t span_of_number(const char* first, const char* last) {
  const char* at = first;
  while (at < last && std::strchr("+-.0123456789eEinfatyINFATY", *at) && *at) ++at;
  return static_cast<std::size_t>(at - first);
}

} // namespace

// By their names in the library: of namespace std all that is declared is visible.
using std::chars_format, std::errc, std::from_chars_result, std::string, std::to_chars_result;

// libstdc++ 11
[[noreturn]] HIDDEN void throw_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void throw_length() { throw std::bad_array_new_length(); }

// libstdc++ 11: the shorter of 1234.5 and 1.2345e+03, the first where they are equally long.
HIDDEN to_chars_result put_double(char* first, char* last, double value) noexcept __asm__("_ZSt8to_charsPcS_d");
to_chars_result put_double(char* first, char* last, double value) noexcept {
  if (!std::isfinite(value) || value == 0) {
    const char* word = std::isnan(value) ? "nan" : std::isinf(value) ? "inf" : "0";
    string text = std::signbit(value) ? string("-") + word : word;
    return put(text.data(), text.size(), first, last);
  }
  char science[40], plain[400];
  const int digits = shortest(value, science);
  const int exponent = std::atoi(strchr(science, 'e') + 1);
  const int after = digits - 1 - exponent;
  const int size = std::snprintf(plain, sizeof plain, "%.*f", after > 0 ? after : 0, value);
  const bool is_plain = static_cast<std::size_t>(size) <= strlen(science);
  char* chosen = is_plain ? plain : science;
  for (char* at = chosen; *at; ++at) {
    if (*at == ',') *at = '.'; // of the user's language
  }
  return put(chosen, strlen(chosen), first, last);
}

// libstdc++ 11
HIDDEN from_chars_result take_double(const char* first, const char* last, double& value, chars_format) noexcept
    __asm__("_ZSt10from_charsPKcS0_RdSt12chars_format");
from_chars_result take_double(const char* first, const char* last, double& value, chars_format) noexcept {
  const string text(first, span_of_number(first, last));
  if (text.empty() || text[0] == '+') return {first, errc::invalid_argument};
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  char* end = nullptr;
  const double found = strtod_l(text.c_str(), &end, plain);
  if (end == text.c_str()) return {first, errc::invalid_argument};
  if (std::isinf(found) && text.find_first_of("iI") == string::npos)
    return {first + (end - text.c_str()), errc::result_out_of_range};
  value = found;
  return {first + (end - text.c_str()), errc{}};
}
