// Rows of float32 or float64 arithmetic over tensors stored in any floating dtype: what softmax and the normalisations
// share. A row already in the arithmetic type is used where it lies.
#ifndef TESSERACK_CPU_ROWS_H
#define TESSERACK_CPU_ROWS_H

#include "copy/stream.h"
#include "math/math_f32.h"
#include "pointwise/geometry.h"
#include "reduce/fold.h"

#include <cstdlib>
#include <memory>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Uninitialised and aligned; a count of 0 allocates nothing.
template <typename T> class Buffer {
public:
  explicit Buffer(int64_t count) : data_(nullptr, std::free) {
    if (count == 0) return;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64)));
    if (!data_) throw std::bad_alloc();
  }
  T* get() const { return data_.get(); }
  T& operator[](int64_t i) const { return data_.get()[i]; }

private:
  std::unique_ptr<T, void (*)(void*)> data_;
};

// Elements base[0, stride, 2 * stride, ...] of a tensor as T.
template <typename T> class RowReader {
public:
  explicit RowReader(const ts_tensor* t)
      : base_(static_cast<const char*>(t->handle) + t->byte_offset), item_(backend::dtype_size(t->dtype)),
        dense_(t->dtype == dtype_of<T>()), load_(loader<T>(t->dtype)) {}
  const T* read(int64_t offset, int64_t n, int64_t stride, T* scratch) const {
    const char* at = base_ + offset * item_;
    if (dense_ && stride == 1) return reinterpret_cast<const T*>(at);
    load_(scratch, at, Box{1, n, 0, stride});
    return scratch;
  }
  // Rows x cols elements, dense in scratch.
  void read_box(int64_t offset, const Box& box, T* scratch) const { load_(scratch, base_ + offset * item_, box); }
  bool in_place(int64_t stride) const { return dense_ && stride == 1; }

private:
  const char* base_;
  int64_t item_;
  bool dense_;
  LoadFn<T> load_;
};

template <typename T> class RowWriter {
public:
  explicit RowWriter(const ts_tensor* t)
      : base_(static_cast<char*>(t->handle) + t->byte_offset), item_(backend::dtype_size(t->dtype)),
        dense_(t->dtype == dtype_of<T>()), store_(storer<T>(t->dtype)) {}
  // Where to compute the row: in place, or in scratch to be handed to write().
  T* target(int64_t offset, int64_t stride, T* scratch) const {
    return dense_ && stride == 1 ? reinterpret_cast<T*>(base_ + offset * item_) : scratch;
  }
  void write(int64_t offset, int64_t n, int64_t stride, const T* row) const {
    char* at = base_ + offset * item_;
    if (reinterpret_cast<const T*>(at) != row) store_(at, row, Box{1, n, 0, stride});
  }
  void write_box(int64_t offset, const Box& box, const T* rows) const { store_(base_ + offset * item_, rows, box); }
  bool in_place(int64_t stride) const { return dense_ && stride == 1; }

private:
  char* base_;
  int64_t item_;
  bool dense_;
  StoreFn<T> store_;
};

// A whole one-dimensional parameter as T, or a constant when it is absent.
template <typename T> class Parameter {
public:
  Parameter(const backend::Call& call, int index, int64_t n, T absent) {
    present_ = call.has_in(index);
    if (present_) {
      const ts_tensor* t = call.in(index).raw();
      if (t->numel != n)
        backend::fail(TS_ERROR, "%s: expected input %d to have %lld elements, got %lld", call.op(), index,
                      static_cast<long long>(n), static_cast<long long>(t->numel));
      const RowReader<T> reader(t);
      if (!reader.in_place(1)) copy_.reset(new Buffer<T>(n));
      data_ = reader.read(0, n, 1, copy_ ? copy_->get() : nullptr);
    } else {
      copy_.reset(new Buffer<T>(n));
      for (int64_t i = 0; i < n; ++i) (*copy_)[i] = absent;
      data_ = copy_->get();
    }
  }
  bool present() const { return present_; }
  const T* data() const { return data_; }
  T operator[](int64_t i) const { return data_[i]; }

private:
  bool present_ = false;
  std::unique_ptr<Buffer<T>> copy_;
  const T* data_ = nullptr;
};

// float64 for float64, float32 for the rest: f.template operator()<T>().
template <typename F> inline void with_row_type(const backend::Call& call, int32_t dtype, F&& f) {
  if (!backend::is_floating(dtype))
    backend::fail(TS_ERROR, "%s: expected a floating dtype, got %s", call.op(), backend::dtype_name(dtype));
  if (dtype == TS_FLOAT64)
    f.template operator()<double>();
  else
    f.template operator()<float>();
}

// Sums term(i) over [0, n): vector_term(i) yields the terms of one vector, scalar_term(i) one. Partial sums of kRun
// elements are carried in float64.
template <typename T, typename VectorTerm, typename ScalarTerm>
inline double sum_terms(int64_t n, VectorTerm&& vector_term, ScalarTerm&& scalar_term, const Soon<T>& soon = {}) {
  constexpr int lanes = kLanes<T>;
  double total = 0.0;
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t last = n - first < kRun ? n : first + kRun;
    Vector<T> a{}, b{};
    int64_t i = first;
    for (; i + 2 * lanes <= last; i += 2 * lanes) {
      soon.ask(i, 2 * lanes);
      a += vector_term(i);
      b += vector_term(i + lanes);
    }
    T rest = T(0);
    for (; i < last; ++i) rest += scalar_term(i);
    total += static_cast<double>(sum_lanes<T>(a + b)) + static_cast<double>(rest);
  }
  return total;
}

template <typename T> inline double dot(const T* x, const T* y, int64_t n) {
  return sum_terms<T>(
      n, [=](int64_t i) { return load_vector(x + i) * load_vector(y + i); }, [=](int64_t i) { return x[i] * y[i]; });
}

template <typename T> inline double squared_deviation(const T* x, T mean, int64_t n, const Soon<T>& soon) {
  return sum_terms<T>(
      n,
      [=](int64_t i) {
        const Vector<T> d = load_vector(x + i) - mean;
        return d * d;
      },
      [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); }, soon);
}

// Count, mean and sum of squared deviations; parts merge by Chan, Golub & LeVeque's formula.
struct Moments {
  double count = 0.0, mean = 0.0, deviation = 0.0;
  void merge(const Moments& other) {
    if (other.count == 0.0) return;
    const double total = count + other.count, delta = other.mean - mean;
    deviation += other.deviation + delta * delta * (count * other.count / total);
    mean += delta * (other.count / total);
    count = total;
  }
};

// Of contiguous elements, each part of kRun read twice while it is in the L1 cache.
template <typename T> inline Moments moments_of(const T* x, int64_t n, const Soon<T>& soon = {}) {
  Moments all;
  for (int64_t i = 0; i < n; i += kRun) {
    const int64_t part = n - i < kRun ? n - i : kRun;
    Moments m;
    m.count = static_cast<double>(part);
    m.mean = static_cast<double>(fold_run<SumFold<T>>(x + i, part)) / m.count;
    const T centre = static_cast<T>(m.mean);
    const double shift = m.mean - static_cast<double>(centre);
    m.deviation = squared_deviation(x + i, centre, part, soon.from(i)) - m.count * shift * shift;
    m.deviation = m.deviation < 0.0 ? 0.0 : m.deviation; // rounding; a NaN stays
    all.merge(m);
  }
  return all;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ROWS_H
