// softmax, log_softmax and their gradients along any dimension of a contiguous tensor.
#include "math/exp_sum.h"
#include "threads.h"

#include <cmath>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 8192;

template <bool Log, typename T> void forward_row(const T* x, int64_t n, T* y) {
  const T largest = static_cast<T>(fold_long<MaxFold<T>>(x, n));
  if constexpr (Log) {
    constexpr int64_t kPart = 1024;
    alignas(64) T scratch[kPart];
    double total = 0.0;
    for (int64_t i = 0; i < n; i += kPart)
      total += exp_and_sum(x + i, largest, n - i < kPart ? n - i : kPart, scratch, {x + n + i, y + i});
    const T log_sum = static_cast<T>(std::log(total));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - largest) - log_sum;
  } else {
    const T scale = static_cast<T>(1.0 / exp_and_sum(x, largest, n, y, {x + n, y + n}));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

template <bool Log, typename T> void backward_row(const T* g, const T* y, int64_t n, T* dx) {
  if constexpr (Log) {
    const T sum = static_cast<T>(fold_long<SumFold<T>>(g, n));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = g[i] - exp_of(y[i]) * sum;
  } else {
    const T sum = static_cast<T>(dot(g, y, n));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (g[i] - sum);
  }
}

struct Extent {
  int64_t outer = 1, size = 1, inner = 1;
};
Extent extent_of(const backend::Call& call, int dim_param) {
  const backend::Tensor in = call.in(0);
  const int64_t dim = call.param(dim_param).as_int();
  Extent e;
  if (in.ndim() == 0) return e;
  if (dim < 0 || dim >= in.ndim())
    backend::fail(TS_INDEX_ERROR, "%s: expected a dimension in [0, %d), got %lld", call.op(), in.ndim(),
                  static_cast<long long>(dim));
  for (int d = 0; d < in.ndim(); ++d) (d < dim ? e.outer : d == dim ? e.size : e.inner) *= in.size(d);
  return e;
}

constexpr int64_t kMaxWidth = 512;
constexpr int64_t kNarrow = 8; // fewer interleaved rows than this are transposed into dense ones

// Runs `row(inputs, output)` over every row of `size` elements; up to kNarrow interleaved rows are brought in together.
template <typename T, int Inputs, typename F> void for_rows(const backend::Call& call, const Extent& e, F&& row) {
  const RowReader<T> readers[2] = {RowReader<T>(call.in(0).raw()), RowReader<T>(call.in(Inputs - 1).raw())};
  const RowWriter<T> writer(call.out(0).raw());
  parallel_for(0, e.outer, kParallelElements / (e.size * e.inner) + 1, [&](int64_t first, int64_t last) {
    const int64_t block = e.size * e.inner;
    const Box box{e.inner, e.size, 1, e.inner};
    const bool direct = e.inner == 1 && readers[0].in_place(1) && readers[1].in_place(1) && writer.in_place(1);
    const Buffer<T> scratch(direct ? 0 : (Inputs + 1) * block);
    T* out_space = direct ? nullptr : scratch.get() + Inputs * block;
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t offset = unit * block;
      const T* in[2];
      for (int k = 0; k < Inputs; ++k) {
        T* space = direct ? nullptr : scratch.get() + k * block;
        in[k] = e.inner == 1 ? readers[k].read(offset, e.size, 1, space) : space;
        if (e.inner != 1) readers[k].read_box(offset, box, space);
      }
      T* out = e.inner == 1 ? writer.target(offset, 1, out_space) : out_space;
      for (int64_t r = 0; r < e.inner; ++r) row(in[0] + r * e.size, in[Inputs - 1] + r * e.size, out + r * e.size);
      if (e.inner == 1)
        writer.write(offset, e.size, 1, out);
      else
        writer.write_box(offset, box, out);
    }
  });
}

// Many interleaved rows: blocks of columns, each folded down its rows while it is in the L2 cache. `block(inputs, n,
// width)` works on dense n x width arrays and leaves its result in the first.
template <typename T, int Inputs, typename F> void for_columns(const backend::Call& call, const Extent& e, F&& block) {
  constexpr int64_t kBlockElements = 65536;
  const RowReader<T> readers[2] = {RowReader<T>(call.in(0).raw()), RowReader<T>(call.in(Inputs - 1).raw())};
  const RowWriter<T> writer(call.out(0).raw());
  int64_t width = kBlockElements / e.size / 16 * 16;
  width = width < 16 ? 16 : width > kMaxWidth ? kMaxWidth : width;
  const int64_t blocks = ceil_div(e.inner, width);
  parallel_for(0, e.outer * blocks, kParallelElements / (e.size * width) + 1, [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(Inputs * e.size * width);
    T* space[2] = {scratch.get(), scratch.get() + (Inputs - 1) * e.size * width};
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t at = unit % blocks * width, left = e.inner - at, n = left < width ? left : width;
      const int64_t offset = unit / blocks * e.size * e.inner + at;
      const Box box{e.size, n, e.inner, 1};
      for (int k = 0; k < Inputs; ++k) readers[k].read_box(offset, box, space[k]);
      block(space[0], space[1], e.size, n);
      writer.write_box(offset, box, space[0]);
    }
  });
}

template <bool Log, typename T> void forward_columns(T* x, int64_t n, int64_t width) {
  alignas(64) T largest[kMaxWidth], sum[kMaxWidth], scratch[kMaxWidth];
  for (int64_t j = 0; j < width; ++j) {
    largest[j] = MaxFold<T>::start();
    sum[j] = T(0);
  }
  fold_rows<MaxFold<T>>(largest, x, width, n, width);
  for (int64_t r = 0; r < n; ++r) {
    T *row = x + r * width, *to = Log ? scratch : row;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) to[j] = exp_of(row[j] - largest[j]);
    for (int64_t j = 0; j < width; ++j) sum[j] += to[j];
  }
  for (int64_t j = 0; j < width; ++j) sum[j] = Log ? std::log(sum[j]) : T(1) / sum[j];
  for (int64_t r = 0; r < n; ++r) {
    T* row = x + r * width;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) row[j] = Log ? (row[j] - largest[j]) - sum[j] : row[j] * sum[j];
  }
}

template <bool Log, typename T> void backward_columns(T* g, const T* y, int64_t n, int64_t width) {
  alignas(64) T sum[kMaxWidth];
  for (int64_t j = 0; j < width; ++j) sum[j] = T(0);
  for (int64_t i = 0; i < n * width; i += width)
    for (int64_t j = 0; j < width; ++j) sum[j] += Log ? g[i + j] : g[i + j] * y[i + j];
  for (int64_t i = 0; i < n * width; i += width) {
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j)
      g[i + j] = Log ? g[i + j] - exp_of(y[i + j]) * sum[j] : y[i + j] * (g[i + j] - sum[j]);
  }
}

template <bool Log> void forward(const backend::Call& call) {
  const Extent e = extent_of(call, 0);
  with_row_type(call, call.in(0).dtype(), [&]<typename T>() {
    if (e.inner >= kNarrow)
      return for_columns<T, 1>(call, e,
                               [](T* x, const T*, int64_t n, int64_t width) { forward_columns<Log>(x, n, width); });
    for_rows<T, 1>(call, e, [&](const T* x, const T*, T* y) { forward_row<Log>(x, e.size, y); });
  });
}

template <bool Log> void backward(const backend::Call& call) {
  const Extent e = extent_of(call, 0);
  with_row_type(call, call.in(1).dtype(), [&]<typename T>() {
    if (e.inner >= kNarrow)
      return for_columns<T, 2>(
          call, e, [](T* g, const T* y, int64_t n, int64_t width) { backward_columns<Log>(g, y, n, width); });
    for_rows<T, 2>(call, e, [&](const T* g, const T* y, T* dx) { backward_row<Log>(g, y, e.size, dx); });
  });
}

} // namespace

TS_KERNEL_AS("softmax", forward<false>, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("log_softmax", forward<true>, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("softmax_backward", backward<false>, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("log_softmax_backward", backward<true>, 0, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
