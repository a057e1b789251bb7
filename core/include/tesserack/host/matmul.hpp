// matmul: batches of strided matrices, three loops. Override it first: most of a network's time is spent here.
#ifndef TESSERACK_HOST_MATMUL_HPP
#define TESSERACK_HOST_MATMUL_HPP

#include <tesserack/host/tiles.hpp>

#include <algorithm>
#include <vector>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

// One operand: its matrix dimensions are the last two.
struct Matrix {
  Tensor tensor;
  std::span<const int64_t> strides;
  int64_t row, column;
  explicit Matrix(const Tensor& t) : tensor(t), strides(strides_of(t)) {
    row = strides[static_cast<size_t>(t.is_scalar() ? 0 : t.ndim() - 2)];
    column = strides[static_cast<size_t>(t.is_scalar() ? 0 : t.ndim() - 1)];
  }
};

// A dense copy in the accumulation type: the inner loop then reads straight ahead.
template <typename Acc>
void pack(std::vector<Acc>& to, const Matrix& from, int64_t start, int64_t rows, int64_t columns) {
  to.resize(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    load(to.data() + i * columns, from.tensor, start + i * from.row, from.column, columns);
}

template <typename Acc> void multiply(const Call& call) {
  const Tensor out = call.out(0);
  const int32_t nd = out.ndim();
  const int64_t m = out.size(nd - 2), n = out.size(nd - 1), inner = call.in(0).size(nd - 1);
  const Matrix c(out), a(call.in(0)), b(call.in(1)), addend(call.has_in(2) ? call.in(2) : out);
  StridedRows<4> batches(out.sizes().first(nd - 2), -1, {c.strides, a.strides, b.strides, addend.strides});
  std::vector<Acc> left, right, row(static_cast<size_t>(n));
  for (int64_t batch = 0; batch < batches.count(); ++batch, batches.next()) {
    pack(left, a, batches.offset(1), m, inner);
    pack(right, b, batches.offset(2), inner, n);
    for (int64_t i = 0; i < m; ++i) {
      if (call.has_in(2))
        load(row.data(), addend.tensor, batches.offset(3) + i * addend.row, addend.column, n);
      else
        std::fill(row.begin(), row.end(), Acc(0));
      for (int64_t k = 0; k < inner; ++k) {
        const Acc x = left[static_cast<size_t>(i * inner + k)];
        const Acc* y = right.data() + k * n;
        for (int64_t j = 0; j < n; ++j) row[static_cast<size_t>(j)] += x * y[j];
      }
      store(c.tensor, batches.offset(0) + i * c.row, c.column, row.data(), n);
    }
    call.check_interrupt();
  }
}

inline void matmul(const Call& call) {
  with_compute(natural_compute(call.compute_dtype()), [&]<typename Acc>() { multiply<Acc>(call); });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_MATMUL_HPP
