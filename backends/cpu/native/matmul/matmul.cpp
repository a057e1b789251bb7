// run_gemm: which library or kernel multiplies, and on how many threads.
#include "matmul.h"
#include "blas.h"
#include "engines.h"
#include "index/gather_index.h"
#include "kept.h"
#include "matmul_kernels.h"
#include "multiply_onednn.h"
#include "threads.h"

#include <algorithm>
#include <array>
#include <complex>
#include <vector>

namespace tesserack::cpu {

TS_ISA_FUNCTION(Fingerprint, fingerprint, (const void* data, int64_t bytes)); // fingerprint.isa.cpp

namespace {

bool same_matrix(const Matrix& a, const Matrix& b) {
  return a.data == b.data && a.row_stride == b.row_stride && a.col_stride == b.col_stride;
}

Matrix shifted(const Matrix& matrix, int64_t row, int64_t col, int64_t item) {
  if (matrix.data == nullptr) return matrix;
  return {matrix.data + (row * matrix.row_stride + col * matrix.col_stride) * item, matrix.row_stride,
          matrix.col_stride};
}

// c = addend, or zeros.
void fill_with_addend(const Gemm& g) {
  const int64_t item = backend::dtype_size(g.dtype);
  switch_word("matmul", item, [&](auto tag) {
    using Word = typename decltype(tag)::type;
    for (int64_t i = 0; i < g.m; ++i) {
      Word* to = reinterpret_cast<Word*>(shifted(g.c, i, 0, item).data);
      const Word* from = reinterpret_cast<const Word*>(shifted(g.addend, i, 0, item).data);
      for (int64_t j = 0; j < g.n; ++j) to[j * g.c.col_stride] = from ? from[j * g.addend.col_stride] : Word{};
    }
  });
}

template <class T> void multiply_plainly(const Gemm& g) {
  const T *a = reinterpret_cast<const T*>(g.a.data), *b = reinterpret_cast<const T*>(g.b.data);
  T* c = reinterpret_cast<T*>(g.c.data);
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      T sum{};
      for (int64_t p = 0; p < g.k; ++p)
        sum += a[i * g.a.row_stride + p * g.a.col_stride] * b[p * g.b.row_stride + j * g.b.col_stride];
      c[i * g.c.row_stride + j * g.c.col_stride] += sum;
    }
  }
}

template <class T> std::vector<T> in_rows(const Matrix& matrix, int64_t rows, int64_t cols) {
  std::vector<T> dense(static_cast<size_t>(rows * cols));
  const T* const from = reinterpret_cast<const T*>(matrix.data);
  T* to = dense.data();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) *to++ = from[i * matrix.row_stride + j * matrix.col_stride];
  return dense;
}

// Of complex numbers that do not lie as the library reads them: by copies that do, where that pays.
template <class T> void multiply_complex(const Gemm& g, bool accumulate) {
  constexpr int64_t kCopiedFrom = 1 << 12; // multiply-adds
  if (g.m * g.n * g.k >= kCopiedFrom && blas::has_library()) {
    std::vector<T> a = in_rows<T>(g.a, g.m, g.k), b = in_rows<T>(g.b, g.k, g.n), c(static_cast<size_t>(g.m * g.n));
    const auto rows = [](std::vector<T>& of, int64_t cols) {
      return Matrix{reinterpret_cast<char*>(of.data()), cols, 1};
    };
    if (blas::gemm({g.dtype, g.m, g.n, g.k, rows(a, g.k), rows(b, g.n), rows(c, g.n), {}}, false)) {
      T* const to = reinterpret_cast<T*>(g.c.data);
      for (int64_t i = 0; i < g.m; ++i)
        for (int64_t j = 0; j < g.n; ++j) {
          T& at = to[i * g.c.row_stride + j * g.c.col_stride];
          const T product = c[static_cast<size_t>(i * g.n + j)];
          at = accumulate ? at + product : product;
        }
      return;
    }
  }
  if (!accumulate) {
    Gemm zeros = g;
    zeros.addend = {};
    fill_with_addend(zeros);
  }
  multiply_plainly<T>(g);
}

// c = a @ b (+ c) on this thread.
void multiply_here(const Gemm& g, bool accumulate) {
  if (pick_gemv_f64()(g, accumulate) || blas::gemm(g, accumulate)) return;
  if (!backend::is_complex(g.dtype)) return pick_packed_gemm()(g, accumulate);
  g.dtype == TS_COMPLEX64 ? multiply_complex<std::complex<float>>(g, accumulate)
                          : multiply_complex<std::complex<double>>(g, accumulate);
}

// Threads with rows of their own would each pack all of b.
bool shares_rows(const Gemm& g) { return g.m >= g.n && (g.n < 512 || g.m > 4 * g.n); }

// Calls body(part) with rows or columns of c shared among threads, if the work is worth them.
template <class Body> void share(const Gemm& g, const Body& body) {
  if (g.m * g.n * g.k < kThreadsFrom) return body(g);
  const int64_t item = backend::dtype_size(g.dtype);
  const bool by_rows = shares_rows(g);
  const int64_t extent = by_rows ? g.m : g.n, other = by_rows ? g.n : g.m;
  const int64_t grain = std::max<int64_t>(8, kThreadsFrom / 2 / std::max<int64_t>(1, other * g.k));
  parallel_for(0, extent, grain, [&](int64_t begin, int64_t end) {
    if (by_rows) return body(rows_of(g, begin, end));
    Gemm part = g;
    part.n = end - begin;
    part.c = shifted(g.c, 0, begin, item);
    part.addend = shifted(g.addend, 0, begin, item);
    part.b = shifted(g.b, 0, begin, item);
    body(part);
  });
}

// float32 in one pass, the addend included.
bool multiply_tiled(const Gemm& g) {
  if (!pick_tiled_gemm_takes()(g)) return false;
  share(g, pick_tiled_gemm());
  return true;
}

// Whether that, or a thread's part of it, may be made of scalar products.
bool may_be_dots(const Gemm& g) {
  const auto by_dots = pick_gemm_by_dots();
  if (by_dots(g) || g.m * g.n * g.k < kThreadsFrom) return by_dots(g);
  Gemm least = g;
  int64_t& extent = shares_rows(g) ? least.m : least.n;
  extent = std::max<int64_t>(1, extent / max_threads());
  return by_dots(least);
}

// c^T = b^T @ a^T (+ c^T): whose rows are contiguous where c's columns are.
Gemm transposed(const Gemm& g) {
  const auto flip = [](const Matrix& m) { return Matrix{m.data, m.col_stride, m.row_stride}; };
  return {g.dtype, g.n, g.m, g.k, flip(g.b), flip(g.a), flip(g.c), flip(g.addend)};
}

void multiply_shared(const Gemm& g) {
  const bool has_addend = g.addend.data != nullptr;
  if (has_addend && !same_matrix(g.addend, g.c)) fill_with_addend(g);
  share(g, [has_addend](const Gemm& part) { multiply_here(part, has_addend); });
}

// float32 by a library, where it takes the product.
bool multiply_by(Engine engine, const Gemm& gemm) {
  const Gemm g = gemm.c.col_stride == 1 ? gemm : transposed(gemm);
  if (engine == Engine::onednn) return multiply_onednn(g, onednn::Type::f32);
  if (engine != Engine::openblas || !blas::takes(g)) return false;
  multiply_shared(g);
  return true;
}

// Strides of dimensions of size 1 mean nothing: make them such that a library takes the matrix.
void normalise(Matrix& matrix, int64_t rows, int64_t cols) {
  if (cols == 1) matrix.col_stride = matrix.row_stride == 1 || rows == 1 ? rows : 1;
  if (rows == 1) matrix.row_stride = matrix.col_stride == 1 || cols == 1 ? cols : 1;
  if (rows == 1 && cols == 1) matrix.row_stride = matrix.col_stride = 1;
}

} // namespace

Gemm rows_of(const Gemm& g, int64_t begin, int64_t end) {
  const int64_t item = backend::dtype_size(g.dtype);
  Gemm part = g;
  part.m = end - begin;
  part.a = shifted(g.a, begin, 0, item);
  part.c = shifted(g.c, begin, 0, item);
  part.addend = shifted(g.addend, begin, 0, item);
  return part;
}

Gemm with_usual_strides(const Gemm& gemm) {
  Gemm g = gemm;
  normalise(g.a, g.m, g.k);
  normalise(g.b, g.k, g.n);
  // A unit stride along the columns of c is what libraries ask for.
  if (g.n == 1) g.c.col_stride = 1;
  if (g.m == 1) g.c.row_stride = g.n;
  return g;
}

void run_gemm(const Gemm& gemm) {
  const Gemm g = with_usual_strides(gemm);
  if (g.k == 0) return fill_with_addend(g);
  if (g.dtype == TS_BFLOAT16 || g.dtype == TS_FLOAT16) return multiply_half(g);
  if (g.dtype == TS_FLOAT32 && (multiply_by(engine_for(g), g) || multiply_tiled(g))) return;
  multiply_shared(g);
}

bool run_gemm_keeping(const Gemm& g) {
  // With fewer rows b is read as it lies, with more packing is little of the work.
  constexpr int64_t kRowsFrom = 49, kRowsUpTo = 256, kElementsFrom = 1 << 12;
  static Patience patience;
  constexpr int64_t kElementsUpTo = 1 << 24;
  const bool dense = g.b.row_stride == 1 && g.b.col_stride == g.k;
  if (g.dtype != TS_FLOAT32 || g.m < kRowsFrom || g.m > kRowsUpTo || g.n * g.k < kElementsFrom || !dense) return false;
  if (g.n * g.k > kElementsUpTo || g.m * g.n * g.k > kPatience) return false;
  if (g.a.col_stride != 1 || g.c.col_stride != 1 || (g.addend.data && g.addend.col_stride != 1)) return false;
  // The first use and those of what is kept then have the same bits.
  if (engine_for(g) != Engine::own || may_be_dots(g)) return false;
  const int64_t elements = pick_gemm_panels()(g.n, g.k);
  if (elements == 0 || !patience.lasts()) return false;
  const int64_t purpose[] = {kGemmPanel, active_isa(), g.n, g.k};
  const Fingerprint of = pick_fingerprint()(g.b.data, g.n * g.k * int64_t{sizeof(float)});
  const std::shared_ptr<void> kept =
      kept_weight(g.b.data, of, purpose, sizeof purpose, static_cast<size_t>(elements) * sizeof(float),
                  [&](void* to) { pick_pack_gemm_panels()(g.b, g.n, g.k, static_cast<float*>(to)); });
  patience.tell(kept != nullptr);
  if (!kept) return false;
  const float* const panels = static_cast<const float*>(kept.get());
  const int64_t work = g.m * g.n * g.k, item = sizeof(float);
  if (g.m >= g.n) {
    parallel_for(0, g.m, std::max<int64_t>(14, g.m * kThreadsFrom / 2 / work),
                 [&](int64_t begin, int64_t end) { pick_gemm_by_panels()(rows_of(g, begin, end), panels); });
    return true;
  }
  const int64_t count = (g.n + kGemmPanel - 1) / kGemmPanel;
  parallel_for(0, count, std::max<int64_t>(1, count * kThreadsFrom / 2 / work), [&](int64_t begin, int64_t end) {
    Gemm part = g;
    const int64_t first = begin * kGemmPanel;
    part.n = std::min(g.n, end * kGemmPanel) - first;
    part.c = shifted(g.c, 0, first, item);
    part.addend = shifted(g.addend, 0, first, item);
    pick_gemm_by_panels()(part, panels + first * g.k);
  });
  return true;
}

} // namespace tesserack::cpu
