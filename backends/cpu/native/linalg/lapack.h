// What the LAPACK kernels share. Matrices lie column by column: an operand is a contiguous tensor (batch..., columns,
// rows), and a vector of each matrix one of (batch..., length). Factors overwrite the outputs that hold the matrices.
#ifndef TESSERACK_CPU_LAPACK_H
#define TESSERACK_CPU_LAPACK_H

#include <tesserack/backend.hpp>

#include "threads.h"

#include <complex>
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

namespace tesserack::cpu::lapack {

using backend::Call;
using backend::Tensor;

template <class T> struct RealOf { using type = T; };
template <class T> struct RealOf<std::complex<T>> { using type = T; };
template <class T> using Real = typename RealOf<T>::type;
template <class T> constexpr bool is_complex = !std::is_same_v<T, Real<T>>;

template <class T> constexpr int32_t dtype_code() {
  constexpr bool single = std::is_same_v<Real<T>, float>;
  return is_complex<T> ? (single ? TS_COMPLEX64 : TS_COMPLEX128) : (single ? TS_FLOAT32 : TS_FLOAT64);
}
template <> constexpr int32_t dtype_code<int32_t>() { return TS_INT32; }

constexpr uint64_t kDtypes = uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64 | uint64_t{1} << TS_COMPLEX64 |
                             uint64_t{1} << TS_COMPLEX128 | uint64_t{1} << TS_INT32;

// The routines of one element type.
template <class T> struct Routines;
#define TESSERACK_LAPACK_ROUTINES(T, letter, orthogonal, transposed)                                                   \
  template <> struct Routines<T> {                                                                                     \
    static constexpr auto getrf = scipy_LAPACKE_##letter##getrf_work;                                                  \
    static constexpr auto getrs = scipy_LAPACKE_##letter##getrs_work;                                                  \
    static constexpr auto potrf = scipy_LAPACKE_##letter##potrf_work;                                                  \
    static constexpr auto potrs = scipy_LAPACKE_##letter##potrs_work;                                                  \
    static constexpr auto trtri = scipy_LAPACKE_##letter##trtri_work;                                                  \
    static constexpr auto lauum = scipy_LAPACKE_##letter##lauum_work;                                                  \
    static constexpr auto sytrf = scipy_LAPACKE_##letter##sytrf_work;                                                  \
    static constexpr auto sytrs = scipy_LAPACKE_##letter##sytrs_work;                                                  \
    static constexpr auto geqrf = scipy_LAPACKE_##letter##geqrf_work;                                                  \
    static constexpr auto geqrt = scipy_LAPACKE_##letter##geqrt_work;                                                  \
    static constexpr auto larft = scipy_LAPACKE_##letter##larft_work;                                                  \
    static constexpr auto larfb = scipy_LAPACKE_##letter##larfb_work;                                                  \
    static constexpr auto orgqr = scipy_LAPACKE_##orthogonal##gqr_work;                                                \
    static constexpr auto ormqr = scipy_LAPACKE_##orthogonal##mqr_work;                                                \
    static constexpr auto gesdd = scipy_LAPACKE_##letter##gesdd_work;                                                  \
    static constexpr auto geev = scipy_LAPACKE_##letter##geev_work;                                                    \
    static constexpr auto gels = scipy_LAPACKE_##letter##gels_work;                                                    \
    static constexpr auto gelsd = scipy_LAPACKE_##letter##gelsd_work;                                                  \
    static constexpr auto gelss = scipy_LAPACKE_##letter##gelss_work;                                                  \
    static constexpr auto gelsy = scipy_LAPACKE_##letter##gelsy_work;                                                  \
    static constexpr auto laswp = scipy_LAPACKE_##letter##laswp_work;                                                  \
    static constexpr auto gemm = scipy_cblas_##letter##gemm;                                                           \
    static constexpr auto trsm = scipy_cblas_##letter##trsm;                                                           \
    static constexpr auto trmm = scipy_cblas_##letter##trmm;                                                           \
    static constexpr char kAdjoint = transposed;                                                                       \
  }
TESSERACK_LAPACK_ROUTINES(float, s, sor, 'T');
TESSERACK_LAPACK_ROUTINES(double, d, dor, 'T');
TESSERACK_LAPACK_ROUTINES(std::complex<float>, c, cun, 'C');
TESSERACK_LAPACK_ROUTINES(std::complex<double>, z, zun, 'C');
#undef TESSERACK_LAPACK_ROUTINES

inline void expect(const Call& call, bool ok, const char* what) {
  if (!ok) backend::fail(TS_ERROR, "%s: expected %s", call.op(), what);
}

// A contiguous batch of blocks of `size` elements.
template <class T> class Blocks {
public:
  Blocks(const Call& call, const Tensor& tensor, int64_t count, int64_t size) : size_(size) {
    if (tensor.is_none()) return;
    expect(call, tensor.dtype() == dtype_code<T>() && tensor.is_contiguous() && tensor.numel() == count * size,
           "contiguous operands of fitting sizes and dtypes");
    data_ = tensor.data<T>();
  }
  T* operator[](int64_t k) const { return data_ ? data_ + k * size_ : nullptr; }

private:
  T* data_ = nullptr;
  int64_t size_;
};

// A batch of matrices.
template <class T> class Matrices : public Blocks<T> {
public:
  Matrices(const Call& call, const Tensor& tensor) : Matrices(call, tensor, count_of(call, tensor)) {}
  int64_t count() const { return count_; }
  lapack_int rows() const { return rows_; }
  lapack_int cols() const { return cols_; }
  lapack_int leading() const { return std::max<lapack_int>(1, rows_); }

private:
  Matrices(const Call& call, const Tensor& tensor, int64_t count)
      : Blocks<T>(call, tensor, count, tensor.size(tensor.ndim() - 1) * tensor.size(tensor.ndim() - 2)), count_(count),
        rows_(static_cast<lapack_int>(tensor.size(tensor.ndim() - 1))),
        cols_(static_cast<lapack_int>(tensor.size(tensor.ndim() - 2))) {}

  static int64_t count_of(const Call& call, const Tensor& tensor) {
    expect(call, !tensor.is_none() && tensor.ndim() >= 2 && tensor.numel() > 0, "a matrix with elements");
    const int64_t rows = tensor.size(tensor.ndim() - 1), cols = tensor.size(tensor.ndim() - 2);
    constexpr int64_t kMost = std::numeric_limits<lapack_int>::max();
    expect(call, rows <= kMost && cols <= kMost && rows * cols <= kMost, "matrices of fewer than 2^31 elements");
    return tensor.numel() / (rows * cols);
  }

  int64_t count_;
  lapack_int rows_, cols_;
};

// Elements for a routine that says how many it wants when asked with length -1.
template <class T> class Work {
public:
  // `ask(work, length)` calls the routine.
  template <class Ask> explicit Work(const Ask& ask) {
    T wanted[2] = {};
    ask(wanted, lapack_int{-1});
    // A float may have lost the last digits of a large number.
    const double length = std::real(wanted[0]) * (1 + 2 * double{std::numeric_limits<Real<T>>::epsilon()});
    elements_.resize(static_cast<size_t>(std::max(1.0, length + 1)));
  }
  T* data() { return elements_.data(); }
  lapack_int length() const { return static_cast<lapack_int>(elements_.size()); }

private:
  std::vector<T> elements_;
};

// OpenBLAS's own threads, for one large matrix; everything else has one thread for each matrix.
class OwnThreads {
public:
  explicit OwnThreads(bool wanted) : count_(wanted ? max_threads() : 1) {
    if (count_ > 1) scipy_openblas_set_num_threads(count_);
  }
  ~OwnThreads() {
    if (count_ > 1) scipy_openblas_set_num_threads(1);
  }
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

private:
  int count_;
};

// work(first, last) over the matrices of a batch, each of about `operations` floating-point operations.
template <class F> void for_batch(int64_t count, double operations, const F& work) {
  constexpr double kWorthAThread = 1e5, kWorthMore = 2e7;
  OwnThreads threads(count == 1 && operations > kWorthMore);
  const double grain = std::max(1.0, kWorthAThread / std::max(operations, 1.0));
  parallel_for(0, count, static_cast<int64_t>(std::min(grain, 1e9)), work);
}

// f<T>(call) for the element type of the call's first output.
#define TESSERACK_LAPACK_KERNEL(name, function)                                                                        \
  static void function##_any(const Call& call) {                                                                       \
    switch (call.out(0).dtype()) {                                                                                     \
    case TS_FLOAT32: return function<float>(call);                                                                     \
    case TS_FLOAT64: return function<double>(call);                                                                    \
    case TS_COMPLEX64: return function<std::complex<float>>(call);                                                     \
    case TS_COMPLEX128: return function<std::complex<double>>(call);                                                   \
    default: expect(call, false, "a matrix of float32, float64, complex64 or complex128");                             \
    }                                                                                                                  \
  }                                                                                                                    \
  TS_KERNEL_AS(name, function##_any, kDtypes, TS_L_CONTIGUOUS)

} // namespace tesserack::cpu::lapack

#endif // TESSERACK_CPU_LAPACK_H
