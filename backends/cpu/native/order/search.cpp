// searchsorted, counts and gcd: what would take many passes as operators.
#include "dtype_switch.h"
#include "index/gather_index.h"
#include "threads.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

// --- searchsorted --------------------------------------------------------------------------------------------------

template <class T> auto comparable(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return load(value);
  else
    return value;
}

// Searches that wait for memory side by side: each halves its range without a branch.
constexpr int kSearches = 16;
constexpr int64_t kSteps = 4; // from one value to the next, beyond which halving is no slower

// How many of n sorted elements come before each value: those less than it, or with `right` not greater. Comparisons
// are negated so that a NaN comes after all.
template <bool Right, class T> void find(const T* sorted, int64_t n, const T* values, int64_t count, int64_t* found) {
  using Number = decltype(comparable(T{}));
  Number value[kSearches];
  const T* base[kSearches];
  for (int64_t j = 0; j < kSearches; ++j) {
    value[j] = comparable(values[std::min(j, count - 1)]);
    base[j] = sorted;
  }
  const auto before = [&](int64_t j, int64_t at) {
    const Number element = comparable(base[j][at]);
    return static_cast<int64_t>(Right ? !(element > value[j]) : !(element >= value[j]));
  };
  int64_t length = n;
  while (length > 1) {
    const int64_t half = length / 2;
#pragma GCC unroll 16
    for (int64_t j = 0; j < kSearches; ++j) base[j] += half & -before(j, half - 1);
    length -= half;
  }
  for (int64_t j = 0; j < count; ++j) found[j] = base[j] - sorted + before(j, 0);
}

// The same of values that ascend, from `at`, what was found for the one before them, step by step. False, with nothing
// of use in `found`, where a value is less than that, or too many steps away.
template <bool Right, class T>
bool follow(const T* sorted, int64_t n, const T* values, int64_t count, int64_t at, int64_t* found) {
  int64_t left = kSteps * count;
  for (int64_t j = 0; j < count; ++j) {
    const auto value = comparable(values[j]);
    const auto before = [&](int64_t k) {
      const auto element = comparable(sorted[k]);
      return Right ? !(element > value) : !(element >= value);
    };
    if (at > 0 && !before(at - 1)) return false;
    for (; at < n && before(at); ++at)
      if (--left < 0) return false;
    found[j] = at;
  }
  return true;
}

// Values of one row of keys, or of the only one. Where those of a group ascend slowly, the next ones may as well.
template <bool Right, class T>
void search_row(const T* sorted, int64_t n, const T* values, int64_t count, int64_t* found) {
  bool follows = false;
  for (int64_t i = 0; i < count; i += kSearches) {
    const int64_t group = std::min<int64_t>(kSearches, count - i);
    if (!follows || !follow<Right>(sorted, n, values + i, group, found[i - 1], found + i))
      find<Right>(sorted, n, values + i, group, found + i);
    follows = std::is_sorted(found + i, found + i + group) && found[i + group - 1] - found[i] <= kSteps * group;
  }
}

template <class T> void search_rows(const Call& call, bool right) {
  const Tensor keys = call.in(0), wanted = call.in(1);
  const int64_t n = keys.size(keys.ndim() - 1);
  const int64_t per_row = keys.ndim() == 1 ? wanted.numel() : wanted.size(wanted.ndim() - 1);
  const T *sorted = keys.data<T>(), *values = wanted.data<T>();
  int64_t* const found = call.out(0).data<int64_t>();
  parallel_for(0, wanted.numel(), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t row = i / per_row, count = std::min(end - i, (row + 1) * per_row - i);
      (right ? search_row<true, T> : search_row<false, T>)(sorted + row * n, n, values + i, count, found + i);
      i += count;
    }
  });
}

// inputs: sorted (..., n) or (n), values (..., m) of its dtype; params: right; outputs: int64 positions
void searchsorted(const Call& call) {
  const bool right = call.param(0).as_bool();
  switch_real("searchsorted", call.in(0).dtype(),
              [&](auto tag) { search_rows<typename decltype(tag)::type>(call, right); });
}

// --- counts --------------------------------------------------------------------------------------------------------

// Adds how often each of 0, 1, ... size - 1, a power of two, occurs among n numbers to four rows of counters: equal
// neighbours would wait for each other's sum. False where a number is outside.
bool count_into(uint32_t* rows, int64_t size, const int64_t* at, int64_t n) {
  constexpr int64_t kBlock = 1024; // checked at once, by all their bits together
  uint32_t *const a = rows, *const b = a + size, *const c = b + size, *const d = c + size;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t end = std::min(start + kBlock, n);
    uint64_t bits = 0;
    for (int64_t i = start; i < end; ++i) bits |= static_cast<uint64_t>(at[i]);
    if (bits >= static_cast<uint64_t>(size)) return false;
    int64_t i = start;
    for (; i + 4 <= end; i += 4) ++a[at[i]], ++b[at[i + 1]], ++c[at[i + 2]], ++d[at[i + 3]];
    for (; i < end; ++i) ++a[at[i]];
  }
  return true;
}

// inputs: int64 numbers; outputs: int64, how often each of 0, 1, ... occurs. It declines numbers that are no bin.
int count_integers(const Call& call) {
  const Tensor in = call.in(0), out = call.out(0);
  const int64_t *const at = in.data<int64_t>(), n = in.numel(), bins = out.numel();
  int64_t* const counts = out.data<int64_t>();
  std::fill_n(counts, bins, int64_t{0});
  // Rows of counters are cleared and added up: not where they are larger than what they save.
  if (bins > 4096 || n < 8 * bins || n > UINT32_MAX) {
    for (int64_t i = 0; i < n; ++i) {
      if (static_cast<uint64_t>(at[i]) >= static_cast<uint64_t>(bins)) return TS_DECLINED;
      ++counts[at[i]];
    }
    return TS_OK;
  }
  const int64_t size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bins, int64_t{1}))));
  std::atomic<bool> outside{false};
  std::mutex adding;
  parallel_for(0, n, 1 << 16, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> rows(static_cast<size_t>(4 * size), 0);
    bool fits = count_into(rows.data(), size, at + begin, end - begin);
    std::lock_guard hold(adding);
    for (int64_t k = 0; k < 4 * size; ++k) {
      const uint32_t found = rows[static_cast<size_t>(k)];
      if (k % size < bins)
        counts[k % size] += found;
      else
        fits = fits && found == 0;
    }
    if (!fits) outside.store(true, std::memory_order_relaxed);
  });
  return outside.load(std::memory_order_relaxed) ? TS_DECLINED : TS_OK;
}

// --- gcd -----------------------------------------------------------------------------------------------------------

// Stein's algorithm: shifts and subtractions in place of divisions, without a branch but the loop's.
template <class U> U common_divisor(U a, U b) {
  if (a == 0 || b == 0) return a | b;
  const int shift = __builtin_ctzll(a | b);
  a = static_cast<U>(a >> __builtin_ctzll(a));
  b = static_cast<U>(b >> __builtin_ctzll(b));
  while (a != b) {
    const U less = a < b ? a : b, apart = static_cast<U>(a < b ? b - a : a - b);
    b = static_cast<U>(apart >> __builtin_ctzll(apart));
    a = less;
  }
  return static_cast<U>(a << shift);
}

template <class T> void share_gcd(const Call& call) {
  using U = std::make_unsigned_t<T>;
  const T *a = call.in(0).data<T>(), *b = call.in(1).data<T>();
  T* const to = call.out(0).data<T>();
  const auto magnitude = [](T x) { return x < 0 ? static_cast<U>(U{0} - static_cast<U>(x)) : static_cast<U>(x); };
  parallel_for(0, call.out(0).numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(common_divisor(magnitude(a[i]), magnitude(b[i])));
  });
}

// inputs: two tensors of one integer dtype and size; outputs: their common divisors
void gcd(const Call& call) {
  const Tensor out = call.out(0);
  switch_real("gcd", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) share_gcd<T>(call);
  });
}

} // namespace

TS_KERNEL_AS("searchsorted", searchsorted, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("count_integers", count_integers, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("gcd", gcd, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
