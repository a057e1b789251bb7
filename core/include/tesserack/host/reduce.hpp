// reduce and scan: folding the last dimensions, all of it or step by step.
#ifndef TESSERACK_HOST_REDUCE_HPP
#define TESSERACK_HOST_REDUCE_HPP

#include <tesserack/host/tiles.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

template <typename T> bool is_nan(T x) { return x != x; }

// float32 sums are kept in float64, integer ones in 64 bits, whose low bits are those of any narrower result.
template <typename T> struct Wide { using type = std::conditional_t<std::is_floating_point_v<T>, double, T>; };

template <typename T> T start_of(int op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
  case TS_R_PROD:
  case TS_R_ALL: return T(1);
  case TS_R_MAX: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  case TS_R_MIN: return Limits::has_infinity ? Limits::infinity() : Limits::max();
  default: return T(0);
  }
}

template <typename T> T combine(int op, T old, T x) {
  switch (op) {
  case TS_R_SUM: return old + x;
  case TS_R_PROD: return old * x;
  case TS_R_MAX: return x > old || is_nan(x) ? x : old;
  case TS_R_MIN: return x < old || is_nan(x) ? x : old;
  case TS_R_ANY: return T(old != 0 || x != 0);
  default: return T(old != 0 && x != 0); // TS_R_ALL
  }
}

// Whether x takes the place of the best so far: first occurrence, NaN beats all.
template <typename T> bool beats(int op, T x, T best) {
  if (is_nan(best)) return false;
  return is_nan(x) || (op == TS_R_ARGMAX ? x > best : x < best);
}

// The reduced dimensions, which are the last ones: f is given what lies there in tiles, from `start` on.
class Reduced {
public:
  Reduced(const Tensor& in, int32_t kept)
      : in_(in), sizes_(in.sizes().subspan(kept)), strides_(in.strides().subspan(kept)) {}

  template <typename T, typename F> void each_tile(int64_t start, F&& f) const {
    T tile[kTile];
    const int last = static_cast<int>(sizes_.size()) - 1;
    const int64_t n = last < 0 ? 1 : sizes_.back(), step = last < 0 ? 0 : strides_.back();
    StridedRows<1> rows(sizes_, last, {strides_});
    for (int64_t r = 0; r < rows.count(); ++r, rows.next())
      for (int64_t begin = 0; begin < n; begin += kTile) {
        const int64_t count = std::min(kTile, n - begin);
        load(tile, in_, start + rows.offset(0) + begin * step, step, count);
        f(tile, count);
      }
  }

private:
  Tensor in_;
  std::span<const int64_t> sizes_, strides_;
};

template <typename T> void fold(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  const int op = call.opcode();
  StridedRows<2> kept(out.sizes(), -1, {in.strides(), out.strides()});
  const Reduced reduced(in, out.ndim());
  for (int64_t k = 0; k < kept.count(); ++k, kept.next()) {
    T total = start_of<T>(op);
    reduced.each_tile<T>(kept.offset(0), [&](const T* tile, int64_t n) {
      for (int64_t i = 0; i < n; ++i) total = combine(op, total, tile[i]);
    });
    store(out, kept.offset(1), 0, &total, 1);
  }
}

template <typename T> void find(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  StridedRows<2> kept(out.sizes(), -1, {in.strides(), out.strides()});
  const Reduced reduced(in, out.ndim());
  for (int64_t k = 0; k < kept.count(); ++k, kept.next()) {
    T best{};
    int64_t position = 0, place = 0;
    reduced.each_tile<T>(kept.offset(0), [&](const T* tile, int64_t n) {
      for (int64_t i = 0; i < n; ++i, ++place) {
        if (place != 0 && !beats(call.opcode(), tile[i], best)) continue;
        best = tile[i];
        position = place;
      }
    });
    out.data<int64_t>()[kept.offset(1)] = position;
  }
}

// Sums and products are computed in what the core asks for, all else in a type that holds every input.
inline int32_t arithmetic_of(const Call& call) {
  const bool adds = call.opcode() == TS_R_SUM || call.opcode() == TS_R_PROD;
  return natural_compute(adds ? call.compute_dtype() : call.in(0).dtype());
}

inline void reduce(const Call& call) {
  const int op = call.opcode();
  if (op < TS_R_SUM || op > TS_R_ALL) fail(TS_ERROR, "reduce: unknown opcode %d", op);
  with_compute(arithmetic_of(call), [&]<typename T>() {
    if (op == TS_R_ARGMAX || op == TS_R_ARGMIN)
      find<T>(call);
    else
      fold<typename Wide<T>::type>(call);
  });
}

// --- scan ----------------------------------------------------------------------------------------------------------

template <typename T> void accumulate(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  const int op = call.opcode(), last = in.ndim() - 1;
  const bool positions = call.n_outputs() == 2;
  const Tensor where = call.out(positions ? 1 : 0);
  const int64_t n = last < 0 ? 1 : in.size(last);
  const auto step = [&](const Tensor& t) { return last < 0 ? 0 : t.stride(last); };
  StridedRows<3> rows(in.sizes(), last, {in.strides(), out.strides(), where.strides()});
  T tile[kTile];
  for (int64_t r = 0; r < rows.count(); ++r, rows.next()) {
    T total = start_of<T>(op);
    int64_t position = 0;
    for (int64_t begin = 0; begin < n; begin += kTile) {
      const int64_t count = std::min(kTile, n - begin);
      load(tile, in, rows.offset(0) + begin * step(in), step(in), count);
      for (int64_t i = 0; i < count; ++i) {
        const T x = tile[i], next = combine(op, total, x);
        if (begin + i == 0 || is_nan(x) || (x == next && !is_nan(total))) position = begin + i; // the last occurrence
        tile[i] = total = next;
        if (positions) where.data<int64_t>()[rows.offset(2) + (begin + i) * step(where)] = position;
      }
      store(out, rows.offset(1) + begin * step(out), step(out), tile, count);
    }
  }
}

inline void scan(const Call& call) {
  if (call.opcode() < TS_R_SUM || call.opcode() > TS_R_MIN) fail(TS_ERROR, "scan: unknown opcode %d", call.opcode());
  with_compute(arithmetic_of(call), [&]<typename T>() { accumulate<typename Wide<T>::type>(call); });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_REDUCE_HPP
