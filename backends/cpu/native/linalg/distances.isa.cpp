// cdist and pdist: norms of the differences of rows, of which those of all pairs never stand in memory.
#include "linalg/distances.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace distances {
namespace {

constexpr int64_t kDepth = 256;      // coordinates that are added up before they join the sum
constexpr int64_t kRowsAtOnce = 256; // of one panel's rows

template <class T> struct Count {
  Vector<T> step(Vector<T> sum, Vector<T> x) const { return sum + (x != 0 ? Vector<T>{} + 1 : Vector<T>{}); }
};
template <class T> struct Sum {
  Vector<T> step(Vector<T> sum, Vector<T> x) const { return sum + magnitude<T>(x); }
};
template <class T> struct Squares {
  Vector<T> step(Vector<T> sum, Vector<T> x) const { return sum + x * x; }
};
template <class T> struct Most {
  Vector<T> step(Vector<T> most, Vector<T> x) const { return extreme<true>(most, magnitude<T>(x)); }
};
template <class T> struct Powers {
  T p;
  Vector<T> step(Vector<T> sum, Vector<T> x) const { return sum + power<T>(magnitude<T>(x), p); }
};

// Of differences whose powers over- or underflow: those over the greatest, once more.
template <class T> T scaled_norm(const T* row, const T* panel, int64_t width, int64_t depth, double p) {
  T most = 0, sum = 0;
  for (int64_t d = 0; d < depth; ++d) most = std::max(most, std::abs(row[d] - panel[d * width]));
  const T unit = most > 0 && most < std::numeric_limits<T>::infinity() ? most : T{1};
  for (int64_t d = 0; d < depth; ++d) {
    const T x = std::abs(row[d] - panel[d * width]) / unit;
    sum += p == 2 ? x * x : std::pow(x, static_cast<T>(p));
  }
  return (p == 2 ? std::sqrt(sum) : std::pow(sum, static_cast<T>(1 / p))) * unit;
}

template <class T, class Rule> class Norms {
public:
  Norms(const Rule& rule, double p, int64_t depth)
      : rule_(rule), p_(p), depth_(depth),
        least_(static_cast<T>(std::pow(std::is_same_v<T, double> ? 0x1p-1022 / 0x1p-52 : 0x1p-126 / 0x1p-23, 1 / p))) {}

  // store(i, norms) for rows [begin, end) of a and `count` rows of b, at most kWidth.
  template <class Store>
  void block(const T* a, int64_t begin, int64_t end, const T* b, int64_t count, std::vector<T>& panel,
             const Store& store) const {
    const int64_t vectors = ceil_div(count, int64_t{kLanes<T>});
    if (vectors > 2) return rows<4>(a, begin, end, b, count, panel, store);
    vectors == 2 ? rows<2>(a, begin, end, b, count, panel, store) : rows<1>(a, begin, end, b, count, panel, store);
  }

private:
  Rule rule_;
  double p_;
  int64_t depth_;
  T least_; // the least norm whose powers have lost nothing to denormals

  template <int N, class Store>
  void rows(const T* a, int64_t begin, int64_t end, const T* b, int64_t count, std::vector<T>& panel,
            const Store& store) const {
    constexpr int64_t width = N * kLanes<T>;
    panel.resize(static_cast<size_t>(width * depth_));
    pack(b, count, depth_, width, panel.data());
    for (int64_t i = begin; i < end; ++i) {
      alignas(64) T norms[width];
      sum<N>(a + i * depth_, panel.data(), norms);
      finish(a + i * depth_, panel.data(), width, norms);
      store(i, norms);
    }
  }

  template <int N> void sum(const T* row, const T* panel, T* norms) const {
    Vector<T> sums[N] = {};
    for (int64_t first = 0; first < depth_; first += kDepth) {
      Vector<T> part[N] = {};
      const int64_t end = std::min(depth_, first + kDepth);
      for (int64_t d = first; d < end; ++d)
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v)
          part[v] = rule_.step(part[v], row[d] - load_vector<T>(panel + (d * N + v) * kLanes<T>));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sums[v] = std::isinf(p_) ? extreme<true>(sums[v], part[v]) : sums[v] + part[v];
    }
    std::memcpy(norms, sums, sizeof sums);
  }

  void finish(const T* row, const T* panel, int64_t width, T* norms) const {
    if (p_ == 0 || p_ == 1 || std::isinf(p_)) return;
    if (p_ == 2)
      for (int64_t j = 0; j < width; ++j) norms[j] = std::sqrt(norms[j]);
    else
      for (int64_t j = 0; j < width; j += kLanes<T>) raise(norms + j, static_cast<T>(1 / p_));
    if (p_ < 1) return;
    int unsure = 0;
    for (int64_t j = 0; j < width; ++j)
      unsure |= (norms[j] < least_) | (norms[j] == std::numeric_limits<T>::infinity());
    for (int64_t j = 0; unsure && j < width; ++j)
      if (norms[j] < least_ || norms[j] == std::numeric_limits<T>::infinity())
        norms[j] = scaled_norm(row, panel + j, width, depth_, p_);
  }
};

template <class T, class F> void switch_norm(double p, int64_t depth, const F& f) {
  if (p == 0) return f(Norms<T, Count<T>>({}, p, depth));
  if (p == 1) return f(Norms<T, Sum<T>>({}, p, depth));
  if (p == 2) return f(Norms<T, Squares<T>>({}, p, depth));
  if (std::isinf(p)) return f(Norms<T, Most<T>>({}, p, depth));
  f(Norms<T, Powers<T>>({static_cast<T>(p)}, p, depth));
}

// Inputs: (..., P, M) and (..., R, M); parameter: p.
template <class T> void all_pairs(const Call& call) {
  const Tensor out = call.out(0), a = call.in(0), b = call.in(1);
  const int64_t rows = a.size(a.ndim() - 2), others = b.size(b.ndim() - 2), depth = a.size(a.ndim() - 1);
  const int64_t bands = ceil_div(rows, kRowsAtOnce), blocks = ceil_div(others, kWidth<T>);
  const int64_t work = std::max<int64_t>(1, std::min(rows, kRowsAtOnce) * std::min(others, kWidth<T>) * depth);
  switch_norm<T>(call.param(0).as_float(), depth, [&](const auto& norms) {
    parallel_for(0, batches(out) * blocks * bands, std::max<int64_t>(1, kGrain / work), [&](int64_t job, int64_t last) {
      std::vector<T> panel;
      for (; job < last; ++job) {
        const int64_t batch = job / (blocks * bands), first = job / bands % blocks * kWidth<T>;
        const int64_t begin = job % bands * kRowsAtOnce, count = std::min(kWidth<T>, others - first);
        T* const to = out.data<T>() + batch * rows * others + first;
        norms.block(a.data<T>() + matrix_offset(a, out, batch), begin, std::min(rows, begin + kRowsAtOnce),
                    b.data<T>() + matrix_offset(b, out, batch) + first * depth, count, panel,
                    [&](int64_t i, const T* found) { std::copy_n(found, count, to + i * others); });
      }
    });
  });
}

// Input: (N, M); output: of pairs (0, 1), (0, 2), ..., (1, 2), ...; parameter: p.
template <class T> void pairs(const Call& call) {
  const Tensor x = call.in(0);
  const int64_t rows = x.size(0), depth = x.size(1), bands = ceil_div(rows, kRowsAtOnce);
  const int64_t jobs = ceil_div(rows, kWidth<T>) * bands, work = std::min(rows, kRowsAtOnce) * kWidth<T> * depth / 2;
  const T* const data = x.data<T>();
  T* const out = call.out(0).data<T>();
  switch_norm<T>(call.param(0).as_float(), depth, [&](const auto& norms) {
    parallel_for(0, jobs, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)), [&](int64_t next, int64_t last) {
      std::vector<T> panel;
      for (; next < last; ++next) {
        const int64_t job = next % 2 ? jobs - 1 - next / 2 : next / 2; // long and short ones by turns
        const int64_t first = job / bands * kWidth<T>, end = std::min(rows, first + kWidth<T>);
        const int64_t begin = job % bands * kRowsAtOnce, stop = std::min(end - 1, begin + kRowsAtOnce);
        if (begin >= stop) continue;
        norms.block(data, begin, stop, data + first * depth, end - first, panel, [&](int64_t i, const T* found) {
          const int64_t from = std::max(first, i + 1);
          std::copy_n(found + from - first, end - from, out + i * (2 * rows - i - 1) / 2 + from - i - 1);
        });
      }
    });
  });
}

void cdist(const Call& call) {
  switch_type(call, [&](auto tag) { all_pairs<typename decltype(tag)::type>(call); });
}
void pdist(const Call& call) {
  switch_type(call, [&](auto tag) { pairs<typename decltype(tag)::type>(call); });
}

} // namespace
} // namespace distances

TS_KERNEL_AS("cdist", distances::cdist, distances::kTypes, TS_L_CONTIGUOUS);
TS_KERNEL_AS("pdist", distances::pdist, distances::kTypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
