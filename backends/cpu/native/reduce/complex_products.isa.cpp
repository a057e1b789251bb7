// Products of complex numbers, which come as pairs of real ones: of all along a dim, and running ones.
#include "dtype_switch.h"
#include "math/math_f64.h"
#include "reduce/fold.h"
#include "threads.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;

constexpr int64_t kGrain = 8192;  // products worth a thread
constexpr int64_t kColumns = 512; // whose running products stay in the first cache
constexpr int64_t kRows = 4;      // rows side by side

// How numbers lie: (outer, n, inner) pairs.
struct Shape {
  int64_t outer, n, inner;

  explicit Shape(const Call& call) : n(call.param(0).as_int()), inner(call.param(1).as_int()) {
    const int64_t pairs = call.in(0).numel() / 2;
    if (n < 1 || inner < 1 || pairs % (n * inner) != 0)
      backend::fail(TS_ERROR, "%s: expected (outer, %lld, %lld) pairs, got %lld of them", call.op(),
                    static_cast<long long>(n), static_cast<long long>(inner), static_cast<long long>(pairs));
    outer = pairs / (n * inner);
  }
};

template <class T> inline void multiply(T& re, T& im, T by_re, T by_im) {
  const T next = re * by_re - im * by_im;
  im = re * by_im + im * by_re;
  re = next;
}

// Registers of real and of imaginary parts, from the pairs in two: of each half of 16 bytes of both.
template <class T> struct Parts {
  static constexpr int64_t kLanes = kVectorBytes / int64_t{sizeof(T)};
  typedef T Register __attribute__((vector_size(kVectorBytes)));
  typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Index __attribute__((vector_size(kVectorBytes)));
  Register re, im;

  TS_INLINE explicit Parts(const T* pairs) {
    constexpr int64_t each = 16 / int64_t{sizeof(T)};
    Register first, second;
    std::memcpy(&first, pairs, sizeof first), std::memcpy(&second, pairs + kLanes, sizeof second);
    Index even;
    for (int64_t k = 0; k < kLanes; ++k) {
      const int64_t half = k / each * each, within = 2 * (k % each);
      even[k] = half + (within < each ? within : within - each + kLanes);
    }
    re = __builtin_shuffle(first, second, even), im = __builtin_shuffle(first, second, even + 1);
  }
};

// The product of n numbers that lie in one run: some registers of products side by side, since each waits for the one
// before it.
template <class T> void product_of_run(const T* from, int64_t n, T* to) {
  constexpr int64_t kRegisters = 4, kLanes = Parts<T>::kLanes, kTogether = kRegisters * kLanes;
  T re[kTogether], im[kTogether];
  const int64_t whole = n / kTogether * kTogether;
  if (whole > 0) {
    Parts<T> all[kRegisters] = {Parts<T>(from), Parts<T>(from + 2 * kLanes), Parts<T>(from + 4 * kLanes),
                                Parts<T>(from + 6 * kLanes)};
    for (int64_t i = kTogether; i < whole; i += kTogether)
#pragma GCC unroll 4
      for (int64_t k = 0; k < kRegisters; ++k) {
        const Parts<T> by(from + 2 * (i + k * kLanes));
        const auto next = all[k].re * by.re - all[k].im * by.im;
        all[k].im = all[k].re * by.im + all[k].im * by.re;
        all[k].re = next;
      }
    for (int64_t k = 0; k < kRegisters; ++k) {
      std::memcpy(re + k * kLanes, &all[k].re, sizeof all[k].re);
      std::memcpy(im + k * kLanes, &all[k].im, sizeof all[k].im);
    }
  }
  // What had no factor takes no part: 1 times an infinity is no number.
  int64_t count = whole > 0 ? kTogether : 0;
  for (int64_t i = whole; i < n; ++i) {
    const int64_t k = i - whole;
    if (k < count)
      multiply(re[k], im[k], from[2 * i], from[2 * i + 1]);
    else
      re[k] = from[2 * i], im[k] = from[2 * i + 1];
  }
  count = std::min(n, kTogether);
  for (; count > 1; count = (count + 1) / 2)
    for (int64_t k = 0, half = (count + 1) / 2; k + half < count; ++k)
      multiply(re[k], im[k], re[k + half], im[k + half]);
  to[0] = re[0], to[1] = im[0];
}

// Running products, or the last alone, of `cols` columns whose numbers lie `inner` apart.
template <bool Running, class T>
void products_of_columns(const T* from, T* to, int64_t n, int64_t inner, int64_t cols) {
  T re[kColumns], im[kColumns];
  for (int64_t j = 0; j < cols; ++j) re[j] = from[2 * j], im[j] = from[2 * j + 1];
  for (int64_t i = 0; i < n; ++i) {
    const T* const line = from + 2 * i * inner;
#pragma GCC ivdep
    for (int64_t j = 0; i > 0 && j < cols; ++j) multiply(re[j], im[j], line[2 * j], line[2 * j + 1]);
    if (!Running && i + 1 < n) continue;
    T* const out = to + (Running ? 2 * i * inner : 0);
#pragma GCC ivdep
    for (int64_t j = 0; j < cols; ++j) out[2 * j] = re[j], out[2 * j + 1] = im[j];
  }
}

template <bool Running, class T> void by_columns(const Shape& s, const T* from, T* to) {
  const int64_t blocks = (s.inner + kColumns - 1) / kColumns, out_step = Running ? s.n * s.inner : s.inner;
  parallel_for(0, s.outer * blocks, std::max<int64_t>(1, kGrain / (s.n * std::min(s.inner, kColumns))),
               [&](int64_t begin, int64_t end) {
                 for (int64_t b = begin; b < end; ++b) {
                   const int64_t o = b / blocks, j = b % blocks * kColumns;
                   products_of_columns<Running>(from + 2 * (o * s.n * s.inner + j), to + 2 * (o * out_step + j), s.n,
                                                s.inner, std::min(kColumns, s.inner - j));
                 }
               });
}

template <int Rows, class T> void running_rows(const T* from, T* to, int64_t n) {
  T re[Rows], im[Rows];
  for (int r = 0; r < Rows; ++r) {
    const int64_t at = 2 * r * n;
    to[at] = re[r] = from[at], to[at + 1] = im[r] = from[at + 1];
  }
  for (int64_t i = 1; i < n; ++i)
    for (int r = 0; r < Rows; ++r) {
      const int64_t at = 2 * (r * n + i);
      multiply(re[r], im[r], from[at], from[at + 1]);
      to[at] = re[r], to[at + 1] = im[r];
    }
}

// inputs: pairs; params: n, inner; outputs: the products along n
void complex_product(const Call& call) {
  const Shape s(call);
  switch_float(call.op(), call.in(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const T* const from = call.in(0).data<T>();
      T* const to = call.out(0).data<T>();
      if (s.inner > 1) return by_columns<false>(s, from, to);
      parallel_for(0, s.outer, std::max<int64_t>(1, kGrain / s.n), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) product_of_run(from + 2 * o * s.n, s.n, to + 2 * o);
      });
    }
  });
}

// inputs: pairs; params: n, inner; outputs: the running products along n
void complex_running_product(const Call& call) {
  const Shape s(call);
  switch_float(call.op(), call.in(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const T* const from = call.in(0).data<T>();
      T* const to = call.out(0).data<T>();
      if (s.inner > 1) return by_columns<true>(s, from, to);
      parallel_for(0, s.outer, std::max<int64_t>(kRows, kGrain / s.n), [&](int64_t begin, int64_t end) {
        int64_t o = begin;
        for (; o + kRows <= end; o += kRows) running_rows<kRows>(from + 2 * o * s.n, to + 2 * o * s.n, s.n);
        for (; o < end; ++o) running_rows<1>(from + 2 * o * s.n, to + 2 * o * s.n, s.n);
      });
    }
  });
}

constexpr uint64_t kDtypes = uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;

} // namespace

TS_KERNEL_AS("complex_product", complex_product, kDtypes, TS_L_CONTIGUOUS);
TS_KERNEL_AS("complex_running_product", complex_running_product, kDtypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
