// Gradients of distances: for each row the sum over the others of what a pair's gradient says, lanes apart until the
// end.
#include "linalg/distances.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace distances {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr int64_t kFits = 1 << 16, kMostColumns = 1 << 12; // coordinates of other rows, and such rows, at once

template <class T> Vector<T> sign(Vector<T> x) {
  const Vector<T> one = Vector<T>{} + 1;
  return (x > 0 ? one : Vector<T>{}) - (x < 0 ? one : Vector<T>{});
}
// What is left of a difference: the pair's weight times it is the gradient.
template <class T> struct Sign {
  Vector<T> operator()(Vector<T> x, const T*) const { return sign<T>(x); }
};
template <class T> struct Itself {
  Vector<T> operator()(Vector<T> x, const T*) const { return x; }
};
template <class T> struct Largest {
  static Vector<T> is_it(Vector<T> x, const T* distance) {
    const Vector<T> far = load_vector<T>(distance), one = Vector<T>{} + 1;
    return (magnitude<T>(x) == far) | ((x != x) & (far != far)) ? one : Vector<T>{};
  }
  Vector<T> operator()(Vector<T> x, const T* distance) const { return sign<T>(x) * is_it(x, distance); }
};
template <class T> struct SignedPower {
  T exponent;
  Vector<T> operator()(Vector<T> x, const T*) const {
    const Vector<T> one = Vector<T>{} + 1, raised = power<T>(x == 0 ? one : magnitude<T>(x), exponent);
    return sign<T>(x) * (x == 0 ? Vector<T>{} : raised);
  }
};

// Gradients and distances of row i and others: pair (i, j) at i * row + j * column.
struct InMatrix {
  int64_t row, column;
  template <class T> void take(const T* from, int64_t i, int64_t first, int64_t count, T* to) const {
    from += i * row + first * column;
    for (int64_t j = 0; j < count; ++j) to[j] = from[j * column];
  }
};
// Of pairs (0, 1), (0, 2), ..., (1, 2), ...; a row and itself have none.
struct InTriangle {
  int64_t rows;
  int64_t begin(int64_t i) const { return i * (2 * rows - i - 1) / 2 - i - 1; } // of pairs (i, j), less j
  template <class T> void take(const T* from, int64_t i, int64_t first, int64_t count, T* to) const {
    const int64_t end = first + count, above = std::clamp(i, first, end);
    for (int64_t j = first; j < above; ++j) to[j - first] = from[begin(j) + i];
    if (i >= first && i < end) to[i - first] = T{0};
    for (int64_t j = std::max(first, i + 1); j < end; ++j) to[j - first] = from[begin(i) + j];
  }
};

template <class T, class Part, class Layout> class RowGradients {
public:
  RowGradients(const Part& part, const Layout& layout, double p, int64_t others, int64_t depth)
      : part_(part), layout_(layout), p_(p), others_(others), depth_(depth),
        columns_(std::min(std::max<int64_t>(1, std::min(kFits / depth, kMostColumns) / kWidth<T>),
                          ceil_div(others, kWidth<T>)) *
                 kWidth<T>),
        panel_(static_cast<size_t>(columns_ * depth)), weight_(static_cast<size_t>(columns_)),
        distance_(static_cast<size_t>(columns_)) {}

  void run(const T* a, const T* b, const T* grad, const T* distance, int64_t begin, int64_t end, T* out) {
    std::fill(out + begin * depth_, out + end * depth_, T{0});
    for (int64_t first = 0; first < others_; first += columns_) {
      const int64_t count = std::min(columns_, others_ - first), width = ceil_div(count, kWidth<T>) * kWidth<T>;
      pack(b + first * depth_, count, depth_, width, panel_.data());
      for (int64_t i = begin; i < end; ++i) {
        layout_.take(grad, i, first, count, weight_.data());
        layout_.take(distance, i, first, count, distance_.data());
        weigh(a + i * depth_, count, width);
        for (int64_t d = 0; d < depth_; ++d)
          out[i * depth_ + d] += product(a[i * depth_ + d], panel_.data() + d * width, width);
      }
    }
  }

private:
  Part part_;
  Layout layout_;
  double p_;
  int64_t others_, depth_, columns_;
  std::vector<T> panel_, weight_, distance_;

  void weigh(const T* row, int64_t count, int64_t width) {
    T* const weight = weight_.data();
    T* const distance = distance_.data();
    std::fill(weight + count, weight + width, T{0});
    std::fill(distance + count, distance + width, T{0});
    if (p_ == 1) return;
    if (std::isinf(p_)) return share(row, width);
    for (int64_t j = 0; p_ != 2 && j < width; j += kLanes<T>) {
      const Vector<T> raised = power<T>(load_vector<T>(distance + j), static_cast<T>(p_ - 1));
      const Vector<T> far = load_vector<T>(distance + j), divisor = far == 0 ? Vector<T>{} : raised;
      std::memcpy(distance + j, &divisor, sizeof divisor);
    }
    for (int64_t j = 0; j < width; ++j) weight[j] = distance[j] == 0 ? T{0} : weight[j] / distance[j];
  }

  // Coordinates that are the largest share the gradient.
  void share(const T* row, int64_t width) {
    for (int64_t j = 0; j < width; j += kLanes<T>) {
      Vector<T> count{};
      for (int64_t d = 0; d < depth_; ++d)
        count += Largest<T>::is_it(row[d] - load_vector<T>(panel_.data() + d * width + j), distance_.data() + j);
      const Vector<T> weight = count == 0 ? count : load_vector<T>(weight_.data() + j) / count;
      std::memcpy(weight_.data() + j, &weight, sizeof weight);
    }
  }

  T product(T x, const T* panel, int64_t width) const {
    Vector<T> sums[kVectors] = {};
    for (int64_t j = 0; j < width; j += kWidth<T>)
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) {
        const int64_t at = j + v * kLanes<T>;
        sums[v] += load_vector<T>(weight_.data() + at) * part_(x - load_vector<T>(panel + at), distance_.data() + at);
      }
    const Vector<T> all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    T sum = 0;
    for (int k = 0; k < kLanes<T>; ++k) sum += all[k];
    return sum;
  }
};

template <class T, class F> void switch_part(double p, const F& f) {
  if (p == 1) return f(Sign<T>{});
  if (p == 2) return f(Itself<T>{});
  if (std::isinf(p)) return f(Largest<T>{});
  f(SignedPower<T>{static_cast<T>(p - 1)});
}

// The gradient by a of distances that lie as `layout` says.
template <class T, class Layout>
void gradient(const Call& call, const Tensor& out, const Tensor& a, const Tensor& b, const Layout& layout) {
  const Tensor grad = call.in(0), distance = call.in(call.n_inputs() - 1);
  const int64_t rows = a.size(a.ndim() - 2), others = b.size(b.ndim() - 2), depth = a.size(a.ndim() - 1);
  const int64_t bands = ceil_div(rows, kRowsAtOnce);
  const int64_t work = std::max<int64_t>(1, std::min(rows, kRowsAtOnce) * others * depth);
  const double p = call.param(0).as_float();
  switch_part<T>(p, [&](const auto& part) {
    parallel_for(0, batches(out) * bands, std::max<int64_t>(1, kGrain / work), [&](int64_t job, int64_t last) {
      RowGradients<T, std::decay_t<decltype(part)>, Layout> gradients(part, layout, p, others, depth);
      for (; job < last; ++job) {
        const int64_t batch = job / bands, begin = job % bands * kRowsAtOnce, pair = batch * rows * others;
        gradients.run(a.data<T>() + matrix_offset(a, out, batch), b.data<T>() + matrix_offset(b, out, batch),
                      grad.data<T>() + pair, distance.data<T>() + pair, begin, std::min(rows, begin + kRowsAtOnce),
                      out.data<T>() + batch * rows * depth);
      }
    });
  });
}

// Inputs: gradient, (..., P, M), (..., R, M), distances; outputs: gradients of the two, with the gradient's leading
// dims, or without elements; parameter: p > 0.
int cdist_backward(const Call& call) {
  if (call.param(0).as_float() == 0) return TS_DECLINED;
  switch_type(call, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor a = call.in(1), b = call.in(2);
    const int64_t others = b.size(b.ndim() - 2);
    if (call.out(0).numel()) gradient<T>(call, call.out(0), a, b, InMatrix{others, 1});
    if (call.out(1).numel()) gradient<T>(call, call.out(1), b, a, InMatrix{1, others});
  });
  return TS_OK;
}

// Inputs: gradient of pairs, (N, M), distances; output: gradient of the matrix; parameter: p > 0.
int pdist_backward(const Call& call) {
  if (call.param(0).as_float() == 0) return TS_DECLINED;
  switch_type(call, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Tensor x = call.in(1);
    gradient<T>(call, call.out(0), x, x, InTriangle{x.size(0)});
  });
  return TS_OK;
}

} // namespace
} // namespace distances

TS_KERNEL_AS("cdist_backward", distances::cdist_backward, distances::kTypes, TS_L_CONTIGUOUS);
TS_KERNEL_AS("pdist_backward", distances::pdist_backward, distances::kTypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
