// native_layer_norm and its gradient, over contiguous rows of the normalised dimensions.
#include "rows.h"
#include "threads.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 16384;
constexpr int64_t kRowsOfPart = 8; // at least, in the gradient: sums of fewer cost as much as the rows

int64_t row_size(const backend::Call& call, int param) {
  int64_t n = 1;
  for (const int64_t size : call.param(param).as_ints()) n *= size;
  if (n <= 0 || call.in(0).numel() % n != 0)
    backend::fail(TS_ERROR, "%s: normalized_shape of %lld elements does not divide an input of %lld", call.op(),
                  static_cast<long long>(n), static_cast<long long>(call.in(0).numel()));
  return n;
}

template <typename T>
void normalise_row(const T* x, T mean, T rstd, const Parameter<T>& weight, const Parameter<T>& bias, int64_t n, T* y) {
  const T *w = weight.data(), *b = bias.data();
  if (weight.present() || bias.present()) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = fused((x[i] - mean) * rstd, w[i], b[i]);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
  }
}

// inputs: input, weight?, bias?; params: normalized_shape, eps; outputs: out, mean, rstd
template <typename T> void forward_as(const backend::Call& call) {
  const int64_t n = row_size(call, 0), rows = call.in(0).numel() / n;
  const double eps = call.param(1).as_float();
  const RowReader<T> input(call.in(0).raw());
  const Parameter<T> weight(call, 1, n, T(1)), bias(call, 2, n, T(0));
  const RowWriter<T> out(call.out(0).raw()), mean_out(call.out(1).raw()), rstd_out(call.out(2).raw());
  parallel_for(0, rows, kParallelElements / n + 1, [&](int64_t first, int64_t last) {
    const bool direct = input.in_place(1) && out.in_place(1);
    const Buffer<T> scratch(direct ? 0 : 2 * n);
    for (int64_t r = first; r < last; ++r) {
      const T* x = input.read(r * n, n, 1, scratch.get());
      T* y = out.target(r * n, 1, direct ? nullptr : scratch.get() + n);
      const Moments m = moments_of(x, n, direct ? Soon<T>{x + n, y} : Soon<T>{});
      const T mean = static_cast<T>(m.mean), rstd = static_cast<T>(1.0 / std::sqrt(m.deviation / m.count + eps));
      normalise_row(x, mean, rstd, weight, bias, n, y);
      out.write(r * n, n, 1, y);
      mean_out.write(r, 1, 1, &mean);
      rstd_out.write(r, 1, 1, &rstd);
    }
  });
}

void forward(const backend::Call& call) {
  with_row_type(call, call.in(0).dtype(), [&]<typename T>() { forward_as<T>(call); });
}

// dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)) with gw = grad * weight; adds grad * xhat and grad to dw, db.
template <typename T>
void backward_row(const T* g, const T* x, const T* w, T mean, T rstd, int64_t n, T* dx, T* dw, T* db) {
  constexpr int lanes = kLanes<T>;
  double sum_gw = 0.0, sum_gx = 0.0; // of gw, of gw * (x - mean)
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t last = n - first < kRun ? n : first + kRun;
    Vector<T> a{}, b{}, c{}, d{};
    int64_t i = first;
    for (; i + 2 * lanes <= last; i += 2 * lanes) {
      const Vector<T> u = load_vector(g + i) * load_vector(w + i);
      const Vector<T> v = load_vector(g + i + lanes) * load_vector(w + i + lanes);
      a += u;
      b += v;
      c += u * (load_vector(x + i) - mean);
      d += v * (load_vector(x + i + lanes) - mean);
    }
    T rest_gw = T(0), rest_gx = T(0);
    for (; i < last; ++i) {
      rest_gw += g[i] * w[i];
      rest_gx += g[i] * w[i] * (x[i] - mean);
    }
    sum_gw += static_cast<double>(sum_lanes<T>(a + b)) + static_cast<double>(rest_gw);
    sum_gx += static_cast<double>(sum_lanes<T>(c + d)) + static_cast<double>(rest_gx);
  }
  const T offset = static_cast<T>(sum_gw / static_cast<double>(n));
  const T slope = static_cast<T>(sum_gx / static_cast<double>(n)) * rstd;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T xhat = (x[i] - mean) * rstd, grad = g[i];
    dx[i] = rstd * (grad * w[i] - offset - xhat * slope);
    dw[i] = fused(grad, xhat, dw[i]);
    db[i] += grad;
  }
}

// inputs: grad, input, mean, rstd, weight?; params: normalized_shape; outputs: d input, d weight, d bias
template <typename T> void backward_as(const backend::Call& call) {
  const int64_t n = row_size(call, 0), rows = call.in(1).numel() / n;
  const RowReader<T> grad(call.in(0).raw()), input(call.in(1).raw()), means(call.in(2).raw()), rstds(call.in(3).raw());
  const Parameter<T> weight(call, 4, n, T(1));
  const RowWriter<T> dx_out(call.out(0).raw()), dw_out(call.out(1).raw()), db_out(call.out(2).raw());
  // Cut by sizes alone, so that the sums over rows do not depend on the number of threads.
  const int64_t parts = rows * n < 2 * kParallelElements ? 1 : std::clamp<int64_t>(rows / kRowsOfPart, 1, 16);
  std::vector<double> sums(static_cast<size_t>(2 * parts * n), 0.0);
  parallel_for(0, parts, 1, [&](int64_t first_part, int64_t last_part) {
    const Buffer<T> scratch(5 * n);
    T *g_space = scratch.get(), *x_space = g_space + n, *dx_space = x_space + n, *dw = dx_space + n, *db = dw + n;
    for (int64_t p = first_part; p < last_part; ++p) {
      double *wide_w = &sums[static_cast<size_t>(2 * p * n)], *wide_b = wide_w + n;
      constexpr int64_t kFlush = 32;
      const int64_t end = rows * (p + 1) / parts;
      for (int64_t r = rows * p / parts; r < end;) {
        const int64_t stop = r + kFlush < end ? r + kFlush : end;
        for (int64_t i = 0; i < n; ++i) dw[i] = db[i] = T(0);
        for (; r < stop; ++r) {
          T mean_space, rstd_space;
          const T mean = *means.read(r, 1, 1, &mean_space), rstd = *rstds.read(r, 1, 1, &rstd_space);
          const T *g = grad.read(r * n, n, 1, g_space), *x = input.read(r * n, n, 1, x_space);
          T* dx = dx_out.target(r * n, 1, dx_space);
          backward_row(g, x, weight.data(), mean, rstd, n, dx, dw, db);
          dx_out.write(r * n, n, 1, dx);
        }
        for (int64_t i = 0; i < n; ++i) {
          wide_w[i] += static_cast<double>(dw[i]);
          wide_b[i] += static_cast<double>(db[i]);
        }
      }
    }
  });
  Buffer<T> total(2 * n);
  for (int64_t i = 0; i < n; ++i) {
    double w = 0.0, b = 0.0;
    for (int64_t p = 0; p < parts; ++p) {
      w += sums[static_cast<size_t>(2 * p * n + i)];
      b += sums[static_cast<size_t>(2 * p * n + n + i)];
    }
    total[i] = static_cast<T>(w);
    total[n + i] = static_cast<T>(b);
  }
  dw_out.write(0, n, 1, total.get());
  db_out.write(0, n, 1, total.get() + n);
}

void backward(const backend::Call& call) {
  with_row_type(call, call.in(1).dtype(), [&]<typename T>() { backward_as<T>(call); });
}

} // namespace

TS_KERNEL_AS("native_layer_norm", forward, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("native_layer_norm_backward", backward, 0, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
