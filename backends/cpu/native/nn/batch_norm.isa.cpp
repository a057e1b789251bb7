// native_batch_norm and its gradient, row-major and channels-last. Sums over a channel are carried in float64 and cut
// by sizes alone.
#include "channels.h"
#include "threads.h"

#include <cmath>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kParallelElements = 16384;
constexpr int64_t kRowBlock = 32; // channels-last rows folded in T before they move to float64
constexpr int64_t kShortRow = 32; // elements of one channel, below which samples are read whole

int64_t grain(int64_t work) { return kParallelElements / (work + 1) + 1; }
int64_t row_parts(const Channels& shape) {
  const int64_t blocks = shape.per_channel() / kRowBlock;
  return shape.total() < 2 * kParallelElements || blocks < 2 ? 1 : blocks < 16 ? blocks : 16;
}

// Samples whose rows of one channel are short are seen as rows of columns, `inner` side by side for each channel.
Channels columns_of(const Channels& s) {
  const bool is_short = s.inner == 1 || (s.inner < kShortRow && s.n >= 4);
  return s.last || !is_short ? s : Channels{s.n, s.c * s.inner, 1, true};
}

// A number for each channel as one for each column.
template <typename T> class Spread {
public:
  Spread(const T* values, const Channels& s, const Channels& columns)
      : space_(columns.c == s.c ? 0 : columns.c), values_(columns.c == s.c ? values : space_.get()) {
    if (columns.c == s.c) return;
    T* to = space_.get();
    for (int64_t c = 0; c < s.c; ++c, to += s.inner) std::fill_n(to, s.inner, values[c]);
  }
  const T* get() const { return values_; }

private:
  Buffer<T> space_;
  const T* values_;
};

template <typename T>
void moments_row_major(const Channels& s, const RowReader<T>& input, std::vector<Moments>& found) {
  parallel_for(0, s.c, grain(s.per_channel()), [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(input.in_place(1) ? 0 : s.inner);
    for (int64_t c = first; c < last; ++c)
      for (int64_t n = 0; n < s.n; ++n)
        found[static_cast<size_t>(c)].merge(
            moments_of(input.read((n * s.c + c) * s.inner, s.inner, 1, scratch.get()), s.inner));
  });
}

// Each block of rows stays in cache for its two passes: column means, then squared deviations from them.
template <typename T> void block_moments(const T* const* rows, int64_t count, int64_t c, T* mean, T* deviation) {
  for (int64_t j = 0; j < c; ++j) mean[j] = deviation[j] = T(0);
  for (int64_t r = 0; r < count; ++r) {
    const T* x = rows[r];
#pragma GCC ivdep
    for (int64_t j = 0; j < c; ++j) mean[j] += x[j];
  }
  const T scale = T(1) / static_cast<T>(count);
  for (int64_t j = 0; j < c; ++j) mean[j] *= scale;
  for (int64_t r = 0; r < count; ++r) {
    const T* x = rows[r];
#pragma GCC ivdep
    for (int64_t j = 0; j < c; ++j) {
      const T d = x[j] - mean[j];
      deviation[j] = fused(d, d, deviation[j]);
    }
  }
}

template <typename T>
void moments_channels_last(const Channels& s, const RowReader<T>& input, std::vector<Moments>& found) {
  const int64_t rows = s.per_channel(), parts = row_parts(s);
  std::vector<Moments> partial(static_cast<size_t>(parts * s.c));
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    const Buffer<T> scratch((kRowBlock + 2) * s.c);
    T *mean = scratch.get() + kRowBlock * s.c, *deviation = mean + s.c;
    for (int64_t p = first; p < last; ++p) {
      const int64_t end = rows * (p + 1) / parts;
      for (int64_t r = rows * p / parts; r < end;) {
        const int64_t count = end - r < kRowBlock ? end - r : kRowBlock;
        const T* block[kRowBlock];
        for (int64_t i = 0; i < count; ++i) block[i] = input.read((r + i) * s.c, s.c, 1, scratch.get() + i * s.c);
        block_moments(block, count, s.c, mean, deviation);
        for (int64_t j = 0; j < s.c; ++j)
          partial[static_cast<size_t>(p * s.c + j)].merge(
              {static_cast<double>(count), static_cast<double>(mean[j]), static_cast<double>(deviation[j])});
        r += count;
      }
    }
  });
  for (int64_t p = 0; p < parts; ++p)
    for (int64_t j = 0; j < s.c; ++j) found[static_cast<size_t>(j)].merge(partial[static_cast<size_t>(p * s.c + j)]);
}

template <typename T>
void moments_of_columns(const Channels& s, const Channels& columns, const RowReader<T>& input,
                        std::vector<Moments>& found) {
  if (columns.c == s.c) return moments_channels_last(columns, input, found);
  std::vector<Moments> each(static_cast<size_t>(columns.c));
  moments_channels_last(columns, input, each);
  for (int64_t j = 0; j < columns.c; ++j) found[static_cast<size_t>(j / s.inner)].merge(each[static_cast<size_t>(j)]);
}

// y = (x - mean) * scale + shift, channel by channel
template <typename T>
void apply(const Channels& s, const RowReader<T>& input, const RowWriter<T>& out, const T* mean, const T* scale,
           const T* shift) {
  const int64_t rows = s.last ? s.per_channel() : s.n * s.c, size = s.last ? s.c : s.inner;
  parallel_for(0, rows, grain(size), [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(2 * size);
    for (int64_t r = first; r < last; ++r) {
      const T* x = input.read(r * size, size, 1, scratch.get());
      T* y = out.target(r * size, 1, scratch.get() + size);
      if (s.last) {
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) y[j] = fused(x[j] - mean[j], scale[j], shift[j]);
      } else {
        const T m = mean[r % s.c], a = scale[r % s.c], b = shift[r % s.c];
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) y[j] = fused(x[j] - m, a, b);
      }
      out.write(r * size, size, 1, y);
    }
  });
}

// running = (1 - momentum) * running + momentum * now
template <typename T>
void update_running(const backend::Call& call, int index, double momentum, const std::vector<double>& now) {
  if (!call.has_in(index)) return;
  const int64_t c = static_cast<int64_t>(now.size());
  const Parameter<T> before(call, index, c, T(0));
  std::vector<T> after(now.size());
  for (int64_t j = 0; j < c; ++j)
    after[static_cast<size_t>(j)] =
        static_cast<T>((1.0 - momentum) * static_cast<double>(before[j]) + momentum * now[static_cast<size_t>(j)]);
  RowWriter<T>(call.in(index).raw()).write(0, c, 1, after.data());
}

// inputs: input, weight?, bias?, running_mean?, running_var?; params: training, momentum, eps;
// outputs: out, save_mean, save_rstd
template <typename T> void forward_as(const backend::Call& call) {
  const Channels s = channels_of(call, call.in(0).raw());
  const bool training = call.param(0).as_bool();
  const double momentum = call.param(1).as_float(), eps = call.param(2).as_float();
  const Dense in(call.in(0).raw(), s, true), result(call.out(0).raw(), s, false);
  const RowReader<T> input(in.tensor());
  const Parameter<T> weight(call, 1, s.c, T(1)), bias(call, 2, s.c, T(0));
  const Channels columns = columns_of(s);
  const Buffer<T> space(3 * s.c);
  T *mean = space.get(), *rstd = mean + s.c, *scale = rstd + s.c;
  if (training) {
    std::vector<Moments> found(static_cast<size_t>(s.c));
    if (columns.last)
      moments_of_columns(s, columns, input, found);
    else
      moments_row_major(s, input, found);
    std::vector<double> means(found.size()), variances(found.size());
    const double count = static_cast<double>(s.per_channel());
    for (size_t j = 0; j < found.size(); ++j) {
      means[j] = found[j].mean;
      variances[j] = found[j].deviation / (count - 1.0); // unbiased, as torch keeps it
      mean[j] = static_cast<T>(found[j].mean);
      rstd[j] = static_cast<T>(1.0 / std::sqrt(found[j].deviation / count + eps));
    }
    update_running<T>(call, 3, momentum, means);
    update_running<T>(call, 4, momentum, variances);
  } else {
    if (!call.has_in(3) || !call.has_in(4))
      backend::fail(TS_ERROR, "native_batch_norm: expected running_mean and running_var when not training, got none");
    const Parameter<T> running_mean(call, 3, s.c, T(0)), running_var(call, 4, s.c, T(1));
    for (int64_t j = 0; j < s.c; ++j) {
      mean[j] = running_mean[j];
      rstd[j] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(running_var[j]) + eps));
    }
  }
  for (int64_t j = 0; j < s.c; ++j) scale[j] = rstd[j] * weight[j];
  const Spread<T> means(mean, s, columns), scales(scale, s, columns), shifts(bias.data(), s, columns);
  apply(columns, input, RowWriter<T>(result.tensor()), means.get(), scales.get(), shifts.get());
  result.write_back();
  RowWriter<T>(call.out(1).raw()).write(0, s.c, 1, mean);
  RowWriter<T>(call.out(2).raw()).write(0, s.c, 1, rstd);
}

void forward(const backend::Call& call) {
  with_row_type(call, call.in(0).dtype(), [&]<typename T>() { forward_as<T>(call); });
}

struct GradSums {
  std::vector<double> g, gx; // sum of grad, of grad * xhat, per channel
};

template <typename T>
GradSums sums_row_major(const Channels& s, const RowReader<T>& grad, const RowReader<T>& input, const T* mean,
                        const T* rstd) {
  GradSums sums{std::vector<double>(static_cast<size_t>(s.c)), std::vector<double>(static_cast<size_t>(s.c))};
  parallel_for(0, s.c, grain(s.per_channel()), [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(2 * s.inner);
    for (int64_t c = first; c < last; ++c) {
      double total_g = 0.0, total_gx = 0.0;
      for (int64_t n = 0; n < s.n; ++n) {
        const int64_t at = (n * s.c + c) * s.inner;
        const T *g = grad.read(at, s.inner, 1, scratch.get()), *x = input.read(at, s.inner, 1, scratch.get() + s.inner);
        const T m = mean[c];
        total_g += static_cast<double>(fold_long<SumFold<T>>(g, s.inner));
        total_gx += sum_terms<T>(
            s.inner, [=](int64_t i) { return load_vector(g + i) * (load_vector(x + i) - m); },
            [=](int64_t i) { return g[i] * (x[i] - m); });
      }
      sums.g[static_cast<size_t>(c)] = total_g;
      sums.gx[static_cast<size_t>(c)] = total_gx * static_cast<double>(rstd[c]);
    }
  });
  return sums;
}

template <typename T>
GradSums sums_channels_last(const Channels& s, const RowReader<T>& grad, const RowReader<T>& input, const T* mean,
                            const T* rstd) {
  const int64_t rows = s.per_channel(), parts = row_parts(s);
  std::vector<double> partial(static_cast<size_t>(2 * parts * s.c), 0.0);
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(4 * s.c);
    T *g_sum = scratch.get() + 2 * s.c, *gx_sum = g_sum + s.c;
    for (int64_t p = first; p < last; ++p) {
      const int64_t end = rows * (p + 1) / parts;
      for (int64_t r = rows * p / parts; r < end;) {
        const int64_t stop = r + kRowBlock < end ? r + kRowBlock : end;
        for (int64_t j = 0; j < s.c; ++j) g_sum[j] = gx_sum[j] = T(0);
        for (; r < stop; ++r) {
          const T *g = grad.read(r * s.c, s.c, 1, scratch.get()), *x = input.read(r * s.c, s.c, 1, scratch.get() + s.c);
#pragma GCC ivdep
          for (int64_t j = 0; j < s.c; ++j) {
            g_sum[j] += g[j];
            gx_sum[j] = fused(g[j], x[j] - mean[j], gx_sum[j]);
          }
        }
        for (int64_t j = 0; j < s.c; ++j) {
          partial[static_cast<size_t>(2 * p * s.c + j)] += static_cast<double>(g_sum[j]);
          partial[static_cast<size_t>((2 * p + 1) * s.c + j)] += static_cast<double>(gx_sum[j]);
        }
      }
    }
  });
  GradSums sums{std::vector<double>(static_cast<size_t>(s.c)), std::vector<double>(static_cast<size_t>(s.c))};
  for (int64_t p = 0; p < parts; ++p)
    for (int64_t j = 0; j < s.c; ++j) {
      sums.g[static_cast<size_t>(j)] += partial[static_cast<size_t>(2 * p * s.c + j)];
      sums.gx[static_cast<size_t>(j)] +=
          partial[static_cast<size_t>((2 * p + 1) * s.c + j)] * static_cast<double>(rstd[j]);
    }
  return sums;
}

template <typename T>
GradSums sums_of_columns(const Channels& s, const Channels& columns, const RowReader<T>& grad,
                         const RowReader<T>& input, const T* mean, const T* rstd) {
  const Spread<T> means(mean, s, columns), rstds(rstd, s, columns);
  GradSums each = sums_channels_last(columns, grad, input, means.get(), rstds.get());
  if (columns.c == s.c) return each;
  GradSums sums{std::vector<double>(static_cast<size_t>(s.c)), std::vector<double>(static_cast<size_t>(s.c))};
  for (int64_t j = 0; j < columns.c; ++j) {
    sums.g[static_cast<size_t>(j / s.inner)] += each.g[static_cast<size_t>(j)];
    sums.gx[static_cast<size_t>(j / s.inner)] += each.gx[static_cast<size_t>(j)];
  }
  return sums;
}

// dx = scale * (g - offset - (x - mean) * slope), channel by channel
template <typename T>
void apply_backward(const Channels& s, const RowReader<T>& grad, const RowReader<T>& input, const RowWriter<T>& out,
                    const T* mean, const T* scale, const T* offset, const T* slope) {
  const int64_t rows = s.last ? s.per_channel() : s.n * s.c, size = s.last ? s.c : s.inner;
  parallel_for(0, rows, grain(size), [&](int64_t first, int64_t last) {
    const Buffer<T> scratch(3 * size);
    for (int64_t r = first; r < last; ++r) {
      const T *g = grad.read(r * size, size, 1, scratch.get()),
              *x = input.read(r * size, size, 1, scratch.get() + size);
      T* y = out.target(r * size, 1, scratch.get() + 2 * size);
      if (s.last) {
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) y[j] = scale[j] * (g[j] - offset[j] - (x[j] - mean[j]) * slope[j]);
      } else {
        const int64_t c = r % s.c;
        const T m = mean[c], a = scale[c], b = offset[c], k = slope[c];
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) y[j] = a * (g[j] - b - (x[j] - m) * k);
      }
      out.write(r * size, size, 1, y);
    }
  });
}

// inputs: grad, input, weight?, save_mean, save_rstd; params: training; outputs: d input, d weight, d bias
template <typename T> void backward_as(const backend::Call& call) {
  const Channels s = channels_of(call, call.in(1).raw());
  const bool training = call.param(0).as_bool();
  const Dense g(call.in(0).raw(), s, true), x(call.in(1).raw(), s, true), result(call.out(0).raw(), s, false);
  const RowReader<T> grad(g.tensor()), input(x.tensor());
  const Parameter<T> weight(call, 2, s.c, T(1)), mean(call, 3, s.c, T(0)), rstd(call, 4, s.c, T(1));
  const Channels columns = columns_of(s);
  const GradSums sums = columns.last ? sums_of_columns(s, columns, grad, input, mean.data(), rstd.data())
                                     : sums_row_major(s, grad, input, mean.data(), rstd.data());
  const Buffer<T> space(5 * s.c);
  T *scale = space.get(), *offset = scale + s.c, *slope = offset + s.c, *dw = slope + s.c, *db = dw + s.c;
  const double count = static_cast<double>(s.per_channel());
  for (int64_t j = 0; j < s.c; ++j) {
    const double sum_g = sums.g[static_cast<size_t>(j)], sum_gx = sums.gx[static_cast<size_t>(j)];
    scale[j] = weight[j] * rstd[j];
    offset[j] = training ? static_cast<T>(sum_g / count) : T(0);
    slope[j] = training ? static_cast<T>(sum_gx / count * static_cast<double>(rstd[j])) : T(0);
    dw[j] = static_cast<T>(sum_gx);
    db[j] = static_cast<T>(sum_g);
  }
  const Spread<T> means(mean.data(), s, columns), scales(scale, s, columns), offsets(offset, s, columns),
      slopes(slope, s, columns);
  apply_backward(columns, grad, input, RowWriter<T>(result.tensor()), means.get(), scales.get(), offsets.get(),
                 slopes.get());
  result.write_back();
  RowWriter<T>(call.out(1).raw()).write(0, s.c, 1, dw);
  RowWriter<T>(call.out(2).raw()).write(0, s.c, 1, db);
}

void backward(const backend::Call& call) {
  with_row_type(call, call.in(1).dtype(), [&]<typename T>() { backward_as<T>(call); });
}

} // namespace

TS_KERNEL_AS("native_batch_norm", forward, 0, TS_L_CHANNELS_LAST);
TS_KERNEL_AS("native_batch_norm_backward", backward, 0, TS_L_CHANNELS_LAST);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
