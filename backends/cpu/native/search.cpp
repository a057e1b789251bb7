// searchsorted, counts, gcd and the order of random keys: what would take many passes as operators.
#include "dtype_switch.h"
#include "gather_index.h"
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

template <class T> void search_rows(const Call& call, bool right) {
  const Tensor keys = call.in(0), wanted = call.in(1);
  const int64_t n = keys.size(keys.ndim() - 1);
  const int64_t per_row = keys.ndim() == 1 ? wanted.numel() : wanted.size(wanted.ndim() - 1);
  const T *sorted = keys.data<T>(), *values = wanted.data<T>();
  int64_t* const found = call.out(0).data<int64_t>();
  parallel_for(0, wanted.numel(), 2048, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t row = i / per_row, count = std::min({int64_t{kSearches}, end - i, (row + 1) * per_row - i});
      (right ? find<true, T> : find<false, T>)(sorted + row * n, n, values + i, count, found + i);
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
  if (bins > 4096 || n > UINT32_MAX) { // rows of counters would be larger than what they save
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

// --- the order of random keys ----------------------------------------------------------------------------------------

// A key's upper bits above its position, in one word: keys that agree in them are put in order by the whole.
struct RandomOrder {
  const uint64_t* keys;
  int64_t n;
  int position_bits;
  uint64_t position_mask() const { return (uint64_t{1} << position_bits) - 1; }
  uint64_t item(int64_t i) const { return (keys[i] & ~position_mask()) | static_cast<uint64_t>(i); }
  bool less(uint64_t a, uint64_t b) const {
    if ((a & ~position_mask()) != (b & ~position_mask())) return a < b;
    const uint64_t i = a & position_mask(), j = b & position_mask();
    return keys[i] >> 1 != keys[j] >> 1 ? keys[i] >> 1 < keys[j] >> 1 : i < j;
  }
};

constexpr int64_t kPartOfKeys = 1 << 15;                    // worth a thread
constexpr int kBucketBits = 9, kBuckets = 1 << kBucketBits; // of the first pass; a bucket's items then stay at hand

// Items of one bucket, spread evenly by the next bits, then put in order where they crowd.
void order_bucket(const RandomOrder& order, uint64_t* items, int64_t count, int shift, std::vector<uint64_t>& space) {
  int bits = 1;
  while (bits < 12 && (int64_t{1} << bits) < count) ++bits;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint32_t start[4097];
  std::fill_n(start, mask + 2, 0u);
  for (int64_t i = 0; i < count; ++i) ++start[(items[i] >> (shift - bits) & mask) + 1];
  for (uint64_t d = 0; d < mask; ++d) start[d + 1] += start[d];
  space.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) space[start[items[i] >> (shift - bits) & mask]++] = items[i];
  // By insertion: few are out of order. Keys that agree in the upper bits are left to a second look, which is rare.
  bool agree = false;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t item = space[static_cast<size_t>(i)];
    int64_t j = i;
    for (; j > 0 && item < items[j - 1]; --j) items[j] = items[j - 1];
    items[j] = item;
    agree |= j > 0 && (items[j - 1] ^ item) <= order.position_mask();
    agree |= j < i && (items[j + 1] ^ item) <= order.position_mask();
  }
  if (agree) std::sort(items, items + count, [&](uint64_t a, uint64_t b) { return order.less(a, b); });
}

// inputs: uint64 keys, evenly distributed; outputs: the int64 positions that sort keys / 2, equal ones as they come
int random_order(const Call& call) {
  const Tensor keys = call.in(0), out = call.out(0);
  const int64_t n = keys.numel();
  if (n == 0) return TS_OK;
  RandomOrder order{keys.data<uint64_t>(), n, 1};
  while ((int64_t{1} << order.position_bits) < n) ++order.position_bits;
  if (order.position_bits > 32) return TS_DECLINED;
  const int shift = 64 - kBucketBits;
  // Threads take parts of the keys, and have places of their own in every bucket.
  const int64_t parts = std::clamp<int64_t>(n / kPartOfKeys, 1, max_threads()), part = (n + parts - 1) / parts;
  std::vector<int64_t> next(static_cast<size_t>(parts * kBuckets), 0), start(kBuckets + 1, 0);
  const auto each_key = [&](int64_t first, int64_t last, const auto& body) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t i = p * part; i < std::min(n, (p + 1) * part); ++i)
        body(i, next[static_cast<size_t>(p * kBuckets) + (order.keys[i] >> shift)]);
  };
  parallel_for(0, parts, 1,
               [&](int64_t first, int64_t last) { each_key(first, last, [](int64_t, int64_t& place) { ++place; }); });
  for (int64_t b = 0, before = 0; b < kBuckets; ++b) {
    start[static_cast<size_t>(b)] = before;
    for (int64_t p = 0; p < parts; ++p) {
      int64_t& place = next[static_cast<size_t>(p * kBuckets + b)];
      before += std::exchange(place, before);
    }
    start[static_cast<size_t>(b) + 1] = before;
  }
  uint64_t* const items = out.data<uint64_t>();
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    each_key(first, last, [&](int64_t i, int64_t& place) { items[place++] = order.item(i); });
  });
  parallel_for(0, kBuckets, std::max<int64_t>(1, 16384 * kBuckets / n), [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> space;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = start[static_cast<size_t>(b)], count = start[static_cast<size_t>(b) + 1] - first;
      order_bucket(order, items + first, count, shift, space);
      for (int64_t i = first; i < first + count; ++i) items[i] &= order.position_mask();
    }
  });
  return TS_OK;
}

} // namespace

TS_KERNEL_AS("searchsorted", searchsorted, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("count_integers", count_integers, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("gcd", gcd, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("random_order", random_order, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
