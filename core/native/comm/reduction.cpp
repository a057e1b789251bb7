#pragma GCC optimize("O3") // loops over elements, nothing else
#include "comm/reduction.h"
#include "tensor/error.h"
#include "tesserack/elements.hpp"
#include <algorithm>
#include <complex>
#include <cstring>

namespace ts::comm {
namespace {

namespace el = tesserack::backend;

constexpr size_t kReductionBlock = 1024; // elements of the running result, in the first cache
constexpr size_t kStep = 16;             // of what loops go by: none of them has a rest

// Integers come as unsigned ones, and wrap, as sums within a tensor do.
template <class T, class F> T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<(sizeof(T) < sizeof(int)), unsigned, T>;
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
struct Second {
  template <class T> static T of(T, T b) { return b; }
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

// What is in memory, in what is computed with.
float wide(el::Half x) { return el::half_to_float(x); }
float wide(el::BFloat16 x) { return el::bfloat16_to_float(x); }

template <class F, class T, class S = T> void step(void* held, const void* next, size_t count) {
  T* __restrict to = static_cast<T*>(held);
  const S* __restrict from = static_cast<const S*>(next);
  if constexpr (std::is_same_v<S, T>) {
    for (size_t k = 0; k < (count & ~(kStep - 1)); ++k) to[k] = F::of(to[k], from[k]);
  } else {
    for (size_t k = 0; k < count; k += kStep) {
      T part[kStep];
      for (size_t i = 0; i < kStep; ++i) part[i] = wide(from[k + i]);
      for (size_t i = 0; i < kStep; ++i) to[k + i] = F::of(to[k + i], part[i]);
    }
  }
}
template <class T> void divide(void* held, size_t count, double by) {
  T* to = static_cast<T*>(held);
  for (size_t k = 0; k < (count & ~(kStep - 1)); ++k) to[k] /= static_cast<decltype(std::real(T()))>(by);
}
template <class H, H (*f)(float)> void store(void* to, const void* from, size_t count) {
  for (size_t k = 0; k < count; ++k) static_cast<H*>(to)[k] = f(static_cast<const float*>(from)[k]);
}

// What is to be done by steps, and with what there is in the end.
struct Work {
  size_t item; // bytes of an element in memory
  void (*step)(void* held, const void* next, size_t count) = nullptr;
  void (*divide)(void* held, size_t count, double by) = nullptr;
  void (*load)(void* held, const void* first, size_t count) = nullptr; // where it is computed with other elements
  void (*store)(void* to, const void* held, size_t count) = nullptr;
};

void fold(const Work& w, void* out, std::span<const void* const> sources, size_t count) {
  alignas(64) std::byte held[kReductionBlock * sizeof(std::complex<double>)],
      rest[kStep * sizeof(std::complex<double>)];
  for (size_t begin = 0, n; begin < count; begin += n) {
    n = std::min(kReductionBlock, count - begin);
    if (n > kStep) n -= n % kStep;
    const size_t steps = n < kStep ? kStep : n;
    if (n < kStep) std::memset(rest, 0, sizeof rest);
    auto part = [&](const void* source) -> const void* {
      const void* there = static_cast<const std::byte*>(source) + begin * w.item;
      return n < kStep ? std::memcpy(rest, there, n * w.item) : there;
    };
    w.load ? w.load(held, part(sources[0]), steps)
           : static_cast<void>(std::memcpy(held, part(sources[0]), steps * w.item));
    for (const void* source : sources.subspan(1)) w.step(held, part(source), steps);
    if (w.divide) w.divide(held, steps, static_cast<double>(sources.size()));
    std::byte* to = static_cast<std::byte*>(out) + begin * w.item;
    w.store ? w.store(to, held, n) : static_cast<void>(std::memcpy(to, held, n * w.item));
  }
}

template <class T> Work work(Reduction r) {
  Work w{sizeof(T)};
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    w.step = r == Reduction::Sum       ? step<Sum, U>
             : r == Reduction::Product ? step<Product, U>
             : r == Reduction::And     ? step<And, U>
             : r == Reduction::Or      ? step<Or, U>
             : r == Reduction::Xor     ? step<Xor, U>
             : r == Reduction::Minimum ? step<Minimum, T>
                                       : step<Maximum, T>;
  } else {
    w.step = r == Reduction::Product ? step<Product, T> : step<Sum, T>;
    if (r == Reduction::Average) w.divide = divide<T>;
    if constexpr (std::is_floating_point_v<T>)
      if (r == Reduction::Minimum || r == Reduction::Maximum)
        w.step = r == Reduction::Minimum ? step<Minimum, T> : step<Maximum, T>;
  }
  return w;
}

template <class H, H (*narrow)(float)> Work work_of_halves(Reduction r) {
  Work w = work<float>(r);
  w.item = sizeof(H);
  w.step = r == Reduction::Product   ? step<Product, float, H>
           : r == Reduction::Minimum ? step<Minimum, float, H>
           : r == Reduction::Maximum ? step<Maximum, float, H>
                                     : step<Sum, float, H>;
  w.load = step<Second, float, H>;
  w.store = store<H, narrow>;
  return w;
}

// Truth values stay 0 and 1: a sum is any, a product all.
Work work_of_bool(Reduction r) {
  const bool any = r == Reduction::Sum || r == Reduction::Maximum || r == Reduction::Or;
  return work<uint8_t>(r == Reduction::Xor ? r : any ? Reduction::Or : Reduction::And);
}

Work work_of(DType t, Reduction r) {
  switch (t) {
  case DType::Bool: return work_of_bool(r);
  case DType::UInt8: return work<uint8_t>(r);
  case DType::UInt16: return work<uint16_t>(r);
  case DType::UInt32: return work<uint32_t>(r);
  case DType::UInt64: return work<uint64_t>(r);
  case DType::Int8: return work<int8_t>(r);
  case DType::Int16: return work<int16_t>(r);
  case DType::Int32: return work<int32_t>(r);
  case DType::Int64: return work<int64_t>(r);
  case DType::Float16: return work_of_halves<el::Half, el::float_to_half>(r);
  case DType::BFloat16: return work_of_halves<el::BFloat16, el::float_to_bfloat16>(r);
  case DType::Float32: return work<float>(r);
  case DType::Float64: return work<double>(r);
  case DType::Complex64: return work<std::complex<float>>(r);
  case DType::Complex128: return work<std::complex<double>>(r);
  default: fail(ErrorKind::Type, "local: cannot combine elements of dtype ", t);
  }
}

// Where the dtype is this one, the sum of two of it.
template <class T>
bool added(void* out, std::span<const void* const> sources, size_t count, DType t, DType of, Reduction r) {
  if (t != of || sources.size() != 2 || (r != Reduction::Sum && r != Reduction::Average)) return false;
  add_pair(static_cast<T*>(out), static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]), count,
           r == Reduction::Average ? T(0.5) : T(1)); // half of a sum is what it is divided by two
  return true;
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
  if (added<float>(out, sources, count, t, DType::Float32, r) ||
      added<double>(out, sources, count, t, DType::Float64, r))
    return;
  fold(work_of(t, r), out, sources, count);
}

} // namespace ts::comm
