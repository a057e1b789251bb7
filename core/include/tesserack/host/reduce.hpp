// reduce and scan: folding the last dimensions, all of it or step by step.
#ifndef TESSERACK_HOST_REDUCE_HPP
#define TESSERACK_HOST_REDUCE_HPP

#include <tesserack/backend.hpp>

#include <cstdint>

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

// The sizes and strides of the reduced dimensions, which are the last ones.
struct Reduced {
  std::span<const int64_t> sizes, strides;
  Reduced(const Tensor& in, int32_t kept) : sizes(in.sizes().subspan(kept)), strides(in.strides().subspan(kept)) {}
  StridedRows<1> rows() const { return {sizes, -1, {strides}}; }
};

template <typename In, typename T> void fold(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  const int op = call.opcode();
  Elements<In> from(in);
  StridedRows<2> kept(out.sizes(), -1, {in.strides(), out.strides()});
  const Reduced reduced(in, out.ndim());
  with_storage(out.dtype(), [&]<typename Out>() {
    Elements<Out> to(out);
    for (int64_t k = 0; k < kept.count(); ++k, kept.next()) {
      auto rows = reduced.rows();
      T total = start_of<T>(op);
      for (int64_t i = 0; i < rows.count(); ++i, rows.next())
        total = combine(op, total, convert<T>(from[kept.offset(0) + rows.offset(0)]));
      to[kept.offset(1)] = convert<Out>(total);
    }
  });
}

template <typename In, typename T> void find(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  Elements<In> from(in);
  Elements<int64_t> to(out);
  StridedRows<2> kept(out.sizes(), -1, {in.strides(), out.strides()});
  const Reduced reduced(in, out.ndim());
  for (int64_t k = 0; k < kept.count(); ++k, kept.next()) {
    auto rows = reduced.rows();
    T best = convert<T>(from[kept.offset(0)]);
    int64_t position = 0;
    for (int64_t i = 0; i < rows.count(); ++i, rows.next()) {
      const T x = convert<T>(from[kept.offset(0) + rows.offset(0)]);
      if (!beats(call.opcode(), x, best)) continue;
      best = x;
      position = i;
    }
    to[kept.offset(1)] = position;
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
  with_storage(call.in(0).dtype(), [&]<typename In>() {
    with_compute(arithmetic_of(call), [&]<typename T>() {
      if (op == TS_R_ARGMAX || op == TS_R_ARGMIN)
        find<In, T>(call);
      else
        fold<In, typename Wide<T>::type>(call);
    });
  });
}

// --- scan ----------------------------------------------------------------------------------------------------------

template <typename In, typename T> void accumulate(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  const int op = call.opcode(), last = in.ndim() - 1;
  const bool positions = call.n_outputs() == 2;
  const Tensor where = call.out(positions ? 1 : 0);
  const int64_t n = last < 0 ? 1 : in.size(last);
  const auto step = [&](const Tensor& t) { return last < 0 ? 0 : t.stride(last); };
  Elements<In> from(in);
  StridedRows<3> rows(in.sizes(), last, {in.strides(), out.strides(), where.strides()});
  with_storage(out.dtype(), [&]<typename Out>() {
    Elements<Out> to(out);
    for (int64_t r = 0; r < rows.count(); ++r, rows.next()) {
      T total = start_of<T>(op);
      int64_t position = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T x = convert<T>(from[rows.offset(0) + i * step(in)]);
        const T next = combine(op, total, x);
        if (i == 0 || is_nan(x) || (x == next && !is_nan(total))) position = i; // the last occurrence
        total = next;
        to[rows.offset(1) + i * step(out)] = convert<Out>(total);
        if (positions) where.data<int64_t>()[rows.offset(2) + i * step(where)] = position;
      }
    }
  });
}

inline void scan(const Call& call) {
  if (call.opcode() < TS_R_SUM || call.opcode() > TS_R_MIN) fail(TS_ERROR, "scan: unknown opcode %d", call.opcode());
  with_storage(call.in(0).dtype(), [&]<typename In>() {
    with_compute(arithmetic_of(call), [&]<typename T>() { accumulate<In, typename Wide<T>::type>(call); });
  });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_REDUCE_HPP
