#pragma GCC optimize("O3") // loops over elements, nothing else
#include "comm/reduction.h"
#include "tensor/error.h"
#include "tesserack/elements.hpp"
#include <algorithm>
#include <complex>

namespace ts::comm {
namespace {

namespace el = tesserack::backend;

constexpr size_t kBlock = 1024; // elements of the running result, in the first cache

template <class T> struct Wide {
  using type = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};
template <> struct Wide<el::Half> {
  using type = float;
  static float load(el::Half x) { return el::half_to_float(x); }
  static el::Half store(float x) { return el::float_to_half(x); }
};
template <> struct Wide<el::BFloat16> {
  using type = float;
  static float load(el::BFloat16 x) { return el::bfloat16_to_float(x); }
  static el::BFloat16 store(float x) { return el::float_to_bfloat16(x); }
};

template <class T> inline constexpr bool is_complex_v = false;
template <class T> inline constexpr bool is_complex_v<std::complex<T>> = true;

// Integers wrap, as sums within a tensor do.
template <class T, class F> T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<(sizeof(T) < sizeof(int)), unsigned, std::make_unsigned_t<T>>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}
struct Sum {
  template <class T> static T of(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Product {
  template <class T> static T of(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN of either wins, as in amin and amax.
struct Minimum {
  template <class T> static T of(T a, T b) { return b < a || b != b ? b : a; }
};
struct Maximum {
  template <class T> static T of(T a, T b) { return a < b || b != b ? b : a; }
};
struct And {
  template <class T> static T of(T a, T b) { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> static T of(T a, T b) { return static_cast<T>(a | b); }
};
struct Xor {
  template <class T> static T of(T a, T b) { return static_cast<T>(a ^ b); }
};

// What nothing is held for: the sum of two of the dtype that is added in, by far the commonest. `out` may be one of
// them.
template <class T> void add_pair(T* out, const T* a, const T* b, size_t count, T factor) {
#pragma GCC ivdep
  for (size_t k = 0; k < count; ++k) out[k] = (a[k] + b[k]) * factor;
}

template <class F, class T> void fold(void* out, std::span<const void* const> sources, size_t count, double divide_by) {
  using W = typename Wide<T>::type;
  if constexpr (std::is_same_v<F, Sum> && std::is_floating_point_v<T>)
    if (sources.size() == 2) // half of a sum is what it is divided by two
      return add_pair(static_cast<T*>(out), static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]), count,
                      static_cast<T>(1 / divide_by));
  W held[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (size_t k = 0; k < n; ++k) held[k] = Wide<T>::load(first[k]);
    for (const void* source : sources.subspan(1)) {
      const T* next = static_cast<const T*>(source) + begin;
      for (size_t k = 0; k < n; ++k) held[k] = F::of(held[k], Wide<T>::load(next[k]));
    }
    if constexpr (!std::is_integral_v<W>)
      if (divide_by != 1)
        for (size_t k = 0; k < n; ++k) held[k] /= static_cast<decltype(std::real(W()))>(divide_by);
    T* to = static_cast<T*>(out) + begin;
    for (size_t k = 0; k < n; ++k) to[k] = Wide<T>::store(held[k]);
  }
}

template <class T> void fold_as(Reduction r, void* out, std::span<const void* const> sources, size_t count) {
  using W = typename Wide<T>::type;
  if (r == Reduction::Sum) return fold<Sum, T>(out, sources, count, 1);
  if (r == Reduction::Average) return fold<Sum, T>(out, sources, count, static_cast<double>(sources.size()));
  if (r == Reduction::Product) return fold<Product, T>(out, sources, count, 1);
  if constexpr (!is_complex_v<W>) {
    if (r == Reduction::Minimum) return fold<Minimum, T>(out, sources, count, 1);
    if (r == Reduction::Maximum) return fold<Maximum, T>(out, sources, count, 1);
  }
  if constexpr (std::is_integral_v<W>) {
    if (r == Reduction::And) return fold<And, T>(out, sources, count, 1);
    if (r == Reduction::Or) return fold<Or, T>(out, sources, count, 1);
    if (r == Reduction::Xor) return fold<Xor, T>(out, sources, count, 1);
  }
}

// Truth values stay 0 and 1: a sum is any, a product all.
void fold_bool(Reduction r, void* out, std::span<const void* const> sources, size_t count) {
  const bool any = r == Reduction::Sum || r == Reduction::Maximum || r == Reduction::Or;
  if (r == Reduction::Xor) return fold<Xor, uint8_t>(out, sources, count, 1);
  any ? fold<Or, uint8_t>(out, sources, count, 1) : fold<And, uint8_t>(out, sources, count, 1);
}

bool is_of_bits(Reduction r) { return r == Reduction::And || r == Reduction::Or || r == Reduction::Xor; }
bool is_of_order(Reduction r) { return r == Reduction::Minimum || r == Reduction::Maximum; }

} // namespace

const char* name(Reduction r) {
  static constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  return kNames[static_cast<int>(r)];
}

bool has_meaning(Reduction r, DType t) {
  if (is_storage_dtype(t)) return false;
  if (is_of_bits(r)) return is_integral(t, true);
  if (is_of_order(r)) return !is_complex(t);
  return r != Reduction::Average || is_floating(t) || is_complex(t);
}

void check_reduction(const char* op, Reduction r, DType t) {
  TS_CHECK_TYPE(!is_storage_dtype(t), op, ": expected elements of a dtype that can be added, got ", t,
                "; try a view of another dtype, or .to()");
  TS_CHECK(has_meaning(r, t), op, ": ", name(r), " has no meaning for ", t, "; expected ",
           is_of_bits(r)    ? "integers or bool"
           : is_of_order(r) ? "real numbers"
                            : "floating or complex numbers, or ReduceOp.SUM and a division");
}

void combine(void* out, std::span<const void* const> sources, size_t count, DType t, Reduction r) {
  switch (t) {
  case DType::Bool: return fold_bool(r, out, sources, count);
  case DType::UInt8: return fold_as<uint8_t>(r, out, sources, count);
  case DType::UInt16: return fold_as<uint16_t>(r, out, sources, count);
  case DType::UInt32: return fold_as<uint32_t>(r, out, sources, count);
  case DType::UInt64: return fold_as<uint64_t>(r, out, sources, count);
  case DType::Int8: return fold_as<int8_t>(r, out, sources, count);
  case DType::Int16: return fold_as<int16_t>(r, out, sources, count);
  case DType::Int32: return fold_as<int32_t>(r, out, sources, count);
  case DType::Int64: return fold_as<int64_t>(r, out, sources, count);
  case DType::Float16: return fold_as<el::Half>(r, out, sources, count);
  case DType::BFloat16: return fold_as<el::BFloat16>(r, out, sources, count);
  case DType::Float32: return fold_as<float>(r, out, sources, count);
  case DType::Float64: return fold_as<double>(r, out, sources, count);
  case DType::Complex64: return fold_as<std::complex<float>>(r, out, sources, count);
  case DType::Complex128: return fold_as<std::complex<double>>(r, out, sources, count);
  default: fail(ErrorKind::Type, "local: cannot combine elements of dtype ", t);
  }
}

} // namespace ts::comm
