// The second half of a spectrum of real numbers: the first half at minus the frequencies, in one pass.
#include "threads.h"

#include <algorithm>
#include <tesserack/table.hpp>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;
using backend::Tensor;

// A complex number by its parts as bits: conjugating turns over the sign of the second.
struct Double {
  uint64_t real, imag;
};
constexpr uint64_t kSign = uint64_t{1} << 63;
inline uint64_t flipped(uint64_t c, uint64_t sign) { return c ^ sign; } // complex64, little-endian
inline Double flipped(Double c, uint64_t sign) { return {c.real, c.imag ^ sign}; }

template <class T> struct Mirror {
  T* data;
  std::span<const int64_t> sizes;
  int32_t half;
  int64_t mirrored;
  uint64_t sign;

  bool runs_back(int32_t d) const { return mirrored >> d & 1; }
  int32_t last() const { return static_cast<int32_t>(sizes.size()) - 1; }

  // The row's source; -1 for one that is known.
  int64_t source(int64_t row) const {
    int64_t from = 0, step = 1;
    for (int32_t d = last() - 1; d >= 0; --d) {
      const int64_t n = sizes[d], i = row % n;
      if (d == half && i <= n / 2) return -1;
      from += step * (runs_back(d) && i ? n - i : i);
      step *= n;
      row /= n;
    }
    return from;
  }

  void fill(T* to, const T* from) const {
    const int64_t n = sizes[last()];
    if (!runs_back(last())) {
      for (int64_t i = 0; i < n; ++i) to[i] = flipped(from[i], sign);
      return;
    }
    int64_t i = half == last() ? n / 2 + 1 : 1;
    if (i == 1) to[0] = flipped(from[0], sign);
    for (; i < n; ++i) to[i] = flipped(from[n - i], sign);
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t n = sizes[last()];
    for (int64_t row = begin; row < end; ++row)
      if (const int64_t from = source(row); from >= 0) fill(data + row * n, data + from * n);
  }
};

template <class T> void mirror_as(const Call& call, uint64_t sign) {
  const Tensor out = call.out(0);
  const Mirror<T> mirror{out.data<T>(), out.sizes(), static_cast<int32_t>(call.param(0).as_int()),
                         call.param(1).as_int(), call.param(2).as_bool() ? sign : 0};
  const int64_t n = out.sizes().back();
  parallel_for(0, out.numel() / n, std::max<int64_t>(1, 16384 / n),
               [&](int64_t begin, int64_t end) { mirror.run(begin, end); });
}

void mirror_spectrum(const Call& call) {
  if (call.out(0).dtype() == TS_COMPLEX64)
    mirror_as<uint64_t>(call, kSign);
  else
    mirror_as<Double>(call, kSign);
}

constexpr uint64_t kDtypes = (uint64_t{1} << TS_COMPLEX64) | (uint64_t{1} << TS_COMPLEX128);

} // namespace

TS_KERNEL_AS("mirror_spectrum", mirror_spectrum, kDtypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
