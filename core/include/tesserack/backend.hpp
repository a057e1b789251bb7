// Header-only C++20 helper for writing a backend against abi.h: typed views of a call, a guard that turns
// exceptions into a status and a message, and a registration table from operator name to kernel.
//
//   int relu_like(const tesserack::backend::Call& call) { ...; return TS_OK; }
//   TS_KERNEL("relu_like", relu_like);
//
// With it come elements.hpp (C++ types of dtypes, conversions), strided.hpp (walking tensors in host memory) and
// table.hpp (the table of a backend made from a class with its runtime functions, and the entry point), with slots.hpp
// for the optional ones.
//
// A library that compiles one source for several instruction sets defines TESSERACK_VARIANT (a namespace name) and
// TESSERACK_VARIANT_LEVEL (higher wins) per copy, so that no inline function is shared between the copies.
#ifndef TESSERACK_BACKEND_HPP
#define TESSERACK_BACKEND_HPP

#include <tesserack/abi.h>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <type_traits>

#ifndef TESSERACK_VARIANT
#define TESSERACK_VARIANT generic
#define TESSERACK_VARIANT_LEVEL 0
#endif

// Hidden however the library is compiled: otherwise the linker would make one list of the kernels of all backends.
#pragma GCC visibility push(hidden)
namespace tesserack::backend {

// One kernel of the table. Constant-initialised; TS_KERNEL links it into the list when the library loads.
struct Registration {
  const char* name;
  ts_kernel_fn run;
  uint64_t dtypes;
  uint32_t layouts;
  int level;
  Registration* next;
  uint32_t flags = 0; // TS_K_*
  int (*prepare)(const ts_call* call, ts_step* out) = nullptr;
};

// Head of the list, and its only writer. Not inlined: a copy for a newer processor must not run at load.
__attribute__((noinline)) inline Registration*& registrations() {
  static Registration* head = nullptr;
  return head;
}
__attribute__((noinline)) inline bool enroll(Registration* entry) {
  entry->next = registrations();
  registrations() = entry;
  return true;
}

// The kernel registered under `name` with the highest level not above `max_level`, or nullptr.
inline const Registration* find_kernel(const char* name, int max_level) {
  const Registration* best = nullptr;
  for (const Registration* entry = registrations(); entry != nullptr; entry = entry->next)
    if (entry->level <= max_level && std::strcmp(entry->name, name) == 0 && (!best || entry->level > best->level))
      best = entry;
  return best;
}

inline namespace TESSERACK_VARIANT {

// Thrown by kernels; `status` is what the callback returns.
class Error : public std::exception {
public:
  Error(int status, std::string message) : status_(status), message_(std::move(message)) {}
  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

private:
  int status_;
  std::string message_;
};

// Throws Error with a printf-formatted message.
[[noreturn]] __attribute__((noinline, cold, format(printf, 2, 3))) inline void fail(int status, const char* format,
                                                                                    ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw Error(status, text);
}

inline const char* dtype_name(int32_t dtype) {
#define TS_DTYPE_NAME(code, name, bytes, values, kind) #name,
  constexpr const char* names[TS_NUM_DTYPES] = {TS_EACH_DTYPE(TS_DTYPE_NAME)};
#undef TS_DTYPE_NAME
  return dtype >= 0 && dtype < TS_NUM_DTYPES ? names[dtype] : "unknown";
}

// Bytes of one element; 0 for a dtype this header does not know.
inline int64_t dtype_size(int32_t dtype) {
#define TS_DTYPE_SIZE(code, name, bytes, values, kind) bytes,
  constexpr int8_t sizes[TS_NUM_DTYPES] = {TS_EACH_DTYPE(TS_DTYPE_SIZE)};
#undef TS_DTYPE_SIZE
  return dtype >= 0 && dtype < TS_NUM_DTYPES ? sizes[dtype] : 0;
}
// Values in an element, in equal parts from the lowest bits on: of more than one, elements are moved, never converted.
inline int64_t values_in(int32_t dtype) {
#define TS_DTYPE_VALUES(code, name, bytes, values, kind) values,
  constexpr int8_t counts[TS_NUM_DTYPES] = {TS_EACH_DTYPE(TS_DTYPE_VALUES)};
#undef TS_DTYPE_VALUES
  return dtype >= 0 && dtype < TS_NUM_DTYPES ? counts[dtype] : 1;
}
// 'b', 'u', 'i', 'f' or 'c', as TS_EACH_DTYPE says.
inline char dtype_kind(int32_t dtype) {
#define TS_DTYPE_KIND(code, name, bytes, values, kind) kind,
  constexpr char kinds[TS_NUM_DTYPES] = {TS_EACH_DTYPE(TS_DTYPE_KIND)};
#undef TS_DTYPE_KIND
  return dtype >= 0 && dtype < TS_NUM_DTYPES ? kinds[dtype] : '?';
}
inline bool is_packed(int32_t dtype) { return values_in(dtype) > 1; }
// A value of a few bits to a byte: see narrow.hpp.
inline bool is_narrow(int32_t dtype) { return dtype >= TS_FLOAT8_E4M3FN && dtype < TS_NUM_DTYPES && !is_packed(dtype); }
inline bool is_floating(int32_t dtype) { return dtype_kind(dtype) == 'f'; }
inline bool is_complex(int32_t dtype) { return dtype >= TS_COMPLEX64 && dtype <= TS_COMPLEX32; }
inline bool is_integral(int32_t dtype) { return dtype >= TS_BOOL && dtype <= TS_INT64; }

// A borrowed tensor of a call.
class Tensor {
public:
  explicit Tensor(const ts_tensor* tensor) : t_(tensor) {}
  bool is_none() const { return (t_->flags & TS_T_NONE) != 0; }
  bool is_scalar() const { return (t_->flags & TS_T_SCALAR) != 0; }
  bool is_contiguous() const { return (t_->flags & TS_T_CONTIGUOUS) != 0; }
  int32_t dtype() const { return t_->dtype; }
  int32_t ndim() const { return t_->ndim; }
  int64_t numel() const { return t_->numel; }
  int64_t size(int32_t dim) const { return t_->sizes[dim]; }
  int64_t stride(int32_t dim) const { return t_->strides[dim]; }
  std::span<const int64_t> sizes() const { return {t_->sizes, static_cast<size_t>(t_->ndim)}; }
  std::span<const int64_t> strides() const { return {t_->strides, static_cast<size_t>(t_->ndim)}; }
  int64_t item_size() const { return dtype_size(t_->dtype); }
  const ts_tensor* raw() const { return t_; }
  double scalar() const { return is_floating(t_->dtype) ? t_->scalar.f : static_cast<double>(t_->scalar.i); }

  // First element, for backends whose handles are host addresses.
  char* bytes() const { return static_cast<char*>(t_->handle) + t_->byte_offset; }
  template <typename T> T* data() const { return reinterpret_cast<T*>(bytes()); }

private:
  const ts_tensor* t_;
};

// A non-tensor argument; a wrong tag is a RuntimeError, not a wrong number.
class Value {
public:
  Value(const ts_value* value, const char* op, int index) : v_(value), op_(op), index_(index) {}
  bool is_none() const { return v_->tag == TS_V_NONE; }
  int32_t tag() const { return v_->tag; }
  int32_t length() const { return v_->len; }
  int64_t as_int() const {
    if (v_->tag == TS_V_FLOAT) return static_cast<int64_t>(v_->as.f);
    expect(v_->tag == TS_V_INT || v_->tag == TS_V_BOOL || v_->tag == TS_V_DTYPE, "an int");
    return v_->as.i;
  }
  int64_t as_int_or(int64_t fallback) const { return is_none() ? fallback : as_int(); }
  double as_float() const {
    if (v_->tag == TS_V_INT || v_->tag == TS_V_BOOL) return static_cast<double>(v_->as.i);
    expect(v_->tag == TS_V_FLOAT, "a float");
    return v_->as.f;
  }
  bool as_bool() const { return as_int() != 0; }
  std::span<const int64_t> as_ints() const {
    expect(v_->tag == TS_V_INTS, "a list of ints");
    return {v_->as.ints, static_cast<size_t>(v_->len)};
  }
  std::span<const double> as_floats() const {
    expect(v_->tag == TS_V_FLOATS, "a list of floats");
    return {v_->as.floats, static_cast<size_t>(v_->len)};
  }
  // TENSORS: index of the first in Call::in.
  int32_t first_tensor() const {
    expect(v_->tag == TS_V_TENSORS, "a list of tensors");
    return static_cast<int32_t>(v_->as.i);
  }
  const ts_value* raw() const { return v_; }

private:
  void expect(bool ok, const char* what) const {
    if (!ok) fail(TS_ERROR, "%s: parameter %d must be %s, got tag %d", op_, index_, what, v_->tag);
  }
  const ts_value* v_;
  const char* op_;
  int index_;
};

// A borrowed kernel call. Indexing past what the core passed is a RuntimeError.
class Call {
public:
  explicit Call(const ts_call* call) : c_(call) {}
  const ts_call* raw() const { return c_; }
  const char* op() const { return c_->op ? c_->op : "kernel"; }
  int32_t opcode() const { return c_->opcode; }
  int32_t compute_dtype() const { return c_->compute_dtype; }
  int32_t n_outputs() const { return c_->n_outputs; }
  int32_t n_inputs() const { return c_->n_inputs; }
  int32_t n_params() const { return c_->n_params; }
  bool deterministic() const { return flags() & TS_C_DETERMINISTIC; }
  bool reduced_products() const { return flags() & (TS_C_MATH_HIGH | TS_C_MATH_MEDIUM); } // of float32
  const ts_program* prologue() const { return knows(offsetof(ts_call, prologue)) ? c_->prologue : nullptr; }
  const ts_program* epilogue() const { return knows(offsetof(ts_call, epilogue)) ? c_->epilogue : nullptr; }
  Tensor out(int32_t k) const {
    check(k, c_->n_outputs, "output");
    return Tensor(TS_OUT(c_, k));
  }
  Tensor in(int32_t k) const {
    check(k, c_->n_inputs, "input");
    return Tensor(TS_IN(c_, k));
  }
  // Whether optional input k is present.
  bool has_in(int32_t k) const { return k < c_->n_inputs && (TS_IN(c_, k)->flags & TS_T_NONE) == 0; }
  Value param(int32_t k) const {
    check(k, c_->n_params, "parameter");
    return Value(c_->params + k, op(), k);
  }
  // Throws when the user asked to stop. Cheap enough for once per block of work, from the calling thread.
  void check_interrupt() const {
    if (c_->host && c_->host->interrupted && c_->host->interrupted()) throw Error(TS_INTERRUPTED, "interrupted");
  }

private:
  bool knows(size_t offset) const { return c_->struct_size > offset; } // a core may be older than this header
  uint32_t flags() const { return knows(offsetof(ts_call, flags)) ? c_->flags : 0; }
  void check(int32_t k, int32_t count, const char* what) const {
    if (k < 0 || k >= count) fail(TS_ERROR, "%s: expected a %s %d, got only %d", op(), what, k, count);
  }
  const ts_call* c_;
};

// Reports through the host and gives the status back.
__attribute__((noinline, cold)) inline int report(const ts_host* host, int status, const char* message) {
  if (host && host->set_error) host->set_error(message);
  return status;
}

// A ts_kernel_fn around a function `int (const Call&)` or `void (const Call&)`.
template <auto Function> int guarded(const ts_call* raw) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(Function(Call(raw)))>) {
      Function(Call(raw));
      return TS_OK;
    } else {
      return Function(Call(raw));
    }
  } catch (const Error& error) {
    return report(raw->host, error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return report(raw->host, TS_OUT_OF_MEMORY, "out of host memory for a kernel's workspace");
  } catch (const std::exception& error) {
    return report(raw->host, TS_ERROR, error.what());
  } catch (...) {
    return report(raw->host, TS_ERROR, "unknown C++ exception in a kernel");
  }
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#define TS_KERNEL_JOIN_(a, b) a##b
#define TS_KERNEL_JOIN(a, b) TS_KERNEL_JOIN_(a, b)

// Registers `function` (int or void, const Call&) under `name`; `dtypes` and `layouts` as in ts_kernel.
#define TS_KERNEL_AS(name, function, dtypes, layouts)                                                                  \
  namespace {                                                                                                          \
  constinit ::tesserack::backend::Registration TS_KERNEL_JOIN(ts_kernel_entry_, __LINE__) = {                          \
      name, &::tesserack::backend::guarded<function>, dtypes, layouts, TESSERACK_VARIANT_LEVEL, nullptr};              \
  [[maybe_unused]] const bool TS_KERNEL_JOIN(ts_kernel_enrolled_, __LINE__) =                                          \
      ::tesserack::backend::enroll(&TS_KERNEL_JOIN(ts_kernel_entry_, __LINE__));                                       \
  }                                                                                                                    \
  static_assert(true)

// With flags (TS_K_*) and what prepares a call to be run again and again, a function as ts_kernel.prepare or nullptr.
#define TS_KERNEL_WITH(name, function, dtypes, layouts, flags, prepare)                                                \
  namespace {                                                                                                          \
  constinit ::tesserack::backend::Registration TS_KERNEL_JOIN(ts_kernel_entry_, __LINE__) = {                          \
      name,   &::tesserack::backend::guarded<function>, dtypes, layouts, TESSERACK_VARIANT_LEVEL, nullptr, flags,      \
      prepare};                                                                                                        \
  [[maybe_unused]] const bool TS_KERNEL_JOIN(ts_kernel_enrolled_, __LINE__) =                                          \
      ::tesserack::backend::enroll(&TS_KERNEL_JOIN(ts_kernel_entry_, __LINE__));                                       \
  }                                                                                                                    \
  static_assert(true)

#define TS_KERNEL(name, function) TS_KERNEL_AS(name, function, 0, TS_L_STRIDED)

#include <tesserack/elements.hpp>
#include <tesserack/strided.hpp>
#include <tesserack/table.hpp>

#endif // TESSERACK_BACKEND_HPP
