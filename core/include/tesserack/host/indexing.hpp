// gather, scatter, sort: moving elements to and from computed places.
#ifndef TESSERACK_HOST_INDEXING_HPP
#define TESSERACK_HOST_INDEXING_HPP

#include <tesserack/backend.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

// f.operator()<Index>() for the two dtypes an index may have.
template <typename F> void with_index(int32_t dtype, F&& f) {
  if (dtype == TS_INT64) return f.template operator()<int64_t>();
  if (dtype == TS_INT32) return f.template operator()<int32_t>();
  fail(TS_ERROR, "expected an index of dtype int64 or int32, got %s", dtype_name(dtype));
}

// Where dimension `dim` of a tensor leads: its size and stride, and the strides of all others.
struct Indexed {
  std::vector<int64_t> others;
  int64_t size = 1, stride = 0;
  const char* op;
  Indexed(const Tensor& t, int64_t dim, const char* name) : others(t.strides().begin(), t.strides().end()), op(name) {
    if (t.ndim() == 0) return;
    size = t.size(static_cast<int>(dim));
    stride = others[static_cast<size_t>(dim)];
    others[static_cast<size_t>(dim)] = 0;
  }
  int64_t at(int64_t index) const {
    if (index < 0 || index >= size)
      fail(TS_INDEX_ERROR, "%s: index %lld is out of bounds for a dimension of size %lld", op,
           static_cast<long long>(index), static_cast<long long>(size));
    return index * stride;
  }
};

inline void gather(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0), index = call.in(1);
  const Indexed source(in, call.param(0).as_int(), "gather");
  with_storage(out.dtype(), [&]<typename T>() {
    with_index(index.dtype(), [&]<typename Index>() {
      Elements<T> to(out), from(in);
      Elements<Index> where(index);
      StridedRows<3> rows(out.sizes(), -1, {out.strides(), source.others, index.strides()});
      for (int64_t i = 0; i < rows.count(); ++i, rows.next())
        to[rows.offset(0)] = from[rows.offset(1) + source.at(where[rows.offset(2)])];
    });
  });
}

// Halves are combined as floats.
template <typename T> auto widened(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return convert<float>(x);
  else if constexpr (std::is_same_v<T, Bool>)
    return convert<int32_t>(x);
  else
    return x;
}

template <typename T> T scattered(int op, T old, T x) {
  const auto a = widened(old), b = widened(x);
  using W = std::remove_const_t<decltype(a)>;
  switch (op) {
  case TS_S_SET: return x;
  case TS_S_ADD: return convert<T>(static_cast<W>(a + b));
  case TS_S_PROD: return convert<T>(static_cast<W>(a * b));
  case TS_S_MAX: return b > a || b != b ? x : old;
  case TS_S_MIN: return b < a || b != b ? x : old;
  default: fail(TS_ERROR, "scatter: unknown opcode %d", op);
  }
}

inline void scatter(const Call& call) {
  const Tensor out = call.out(0), index = call.in(0), source = call.in(1);
  const Indexed target(out, call.param(0).as_int(), "scatter");
  with_storage(out.dtype(), [&]<typename T>() {
    with_index(index.dtype(), [&]<typename Index>() {
      Elements<T> to(out), from(source);
      Elements<Index> where(index);
      StridedRows<3> rows(index.sizes(), -1, {target.others, index.strides(), from.strides()});
      for (int64_t i = 0; i < rows.count(); ++i, rows.next()) {
        T& place = to[rows.offset(0) + target.at(where[rows.offset(1)])];
        place = scattered(call.opcode(), place, from[rows.offset(2)]);
      }
    });
  });
}

// NaN sorts as greatest.
template <typename T> bool less(T a, T b) {
  const auto x = widened(a), y = widened(b);
  return x < y || (y != y && x == x);
}

inline void sort(const Call& call) {
  const Tensor in = call.in(0), values = call.out(0), positions = call.out(1);
  const bool descending = call.param(0).as_bool();
  const int last = in.ndim() - 1;
  const int64_t n = last < 0 ? 1 : in.size(last);
  const auto step = [&](const Tensor& t) { return last < 0 ? 0 : t.stride(last); };
  with_storage(in.dtype(), [&]<typename T>() {
    StridedRows<3> rows(in.sizes(), last, {in.strides(), values.strides(), positions.strides()});
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows.count(); ++r, rows.next()) {
      const T* row = in.data<T>() + rows.offset(0);
      const auto at = [&](int64_t i) { return row[i * step(in)]; };
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t i, int64_t j) { return descending ? less(at(j), at(i)) : less(at(i), at(j)); });
      for (int64_t i = 0; i < n; ++i) {
        const int64_t position = order[static_cast<size_t>(i)];
        values.data<T>()[rows.offset(1) + i * step(values)] = at(position);
        positions.data<int64_t>()[rows.offset(2) + i * step(positions)] = position;
      }
    }
  });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_INDEXING_HPP
