// The entry points matmul and linear: batches, folding and the additive third input.
#include "dtype_switch.h"
#include "matmul.h"
#include "strided_rows.h"
#include "threads.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kAnyDtype = (uint64_t{1} << TS_NUM_DTYPES) - 1;
constexpr int64_t kBatchGrain = 65536; // multiply-adds worth a thread

Matrix matrix_of(const Tensor& tensor) {
  return {tensor.bytes(), tensor.stride(tensor.ndim() - 2), tensor.stride(tensor.ndim() - 1)};
}

// Of what broadcasts to `ndim` dims, along one of those.
int64_t stride_along(const Tensor& tensor, int dim, int ndim) {
  const int own = dim - (ndim - tensor.ndim());
  return own < 0 || tensor.size(own) == 1 ? 0 : tensor.stride(own);
}

// A product and its batch dimensions with the strides of a, b, c and addend along each.
struct Batched {
  Gemm gemm{};
  std::vector<int64_t> sizes;
  std::array<std::vector<int64_t>, 4> strides;

  Batched(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* addend) {
    const int ndim = out.ndim();
    if (ndim < 2 || a.ndim() != ndim || b.ndim() != ndim || (addend && addend->ndim() > ndim)) {
      backend::fail(TS_ERROR, "matmul: expected operands of one rank, at least 2, got %d and %d for an output of %d",
                    a.ndim(), b.ndim(), ndim);
    }
    const Matrix added =
        addend ? Matrix{addend->bytes(), stride_along(*addend, ndim - 2, ndim), stride_along(*addend, ndim - 1, ndim)}
               : Matrix{};
    gemm = {out.dtype(),  out.size(ndim - 2), out.size(ndim - 1), a.size(ndim - 1),
            matrix_of(a), matrix_of(b),       matrix_of(out),     added};
    for (int d = 0; d < ndim - 2; ++d) {
      if (out.size(d) == 1) continue;
      sizes.push_back(out.size(d));
      strides[0].push_back(a.stride(d));
      strides[1].push_back(b.stride(d));
      strides[2].push_back(out.stride(d));
      strides[3].push_back(addend ? stride_along(*addend, d, ndim) : 0);
    }
  }

  // Batches that share b and follow each other as rows of a and c are more rows of one product.
  void fold_into_rows() {
    while (!sizes.empty() && strides[1].back() == 0 && follows(0, gemm.a) && follows(2, gemm.c) &&
           (gemm.addend.data == nullptr || follows(3, gemm.addend))) {
      if (gemm.m == 1) {
        gemm.a.row_stride = strides[0].back();
        gemm.c.row_stride = strides[2].back();
        gemm.addend.row_stride = strides[3].back();
      }
      gemm.m *= sizes.back();
      sizes.pop_back();
      for (auto& list : strides) list.pop_back();
    }
  }

private:
  bool follows(size_t operand, const Matrix& matrix) const {
    return gemm.m == 1 || strides[operand].back() == gemm.m * matrix.row_stride;
  }
};

template <class Run> void each_batch(const Batched& batched, int64_t begin, int64_t end, const Run& run) {
  StridedRows<4> rows(batched.sizes, -1,
                      {batched.strides[0], batched.strides[1], batched.strides[2], batched.strides[3]});
  const int64_t item = backend::dtype_size(batched.gemm.dtype);
  rows.seek(begin);
  for (int64_t i = begin; i < end; ++i, rows.next()) {
    Gemm gemm = batched.gemm;
    gemm.a.data += rows.offset(0) * item;
    gemm.b.data += rows.offset(1) * item;
    gemm.c.data += rows.offset(2) * item;
    if (gemm.addend.data != nullptr) gemm.addend.data += rows.offset(3) * item;
    run(gemm);
  }
}

// A small matrix and a vector, as in a batch of thousands: what prepares a larger product takes longer than this one.
constexpr int64_t kTinyWork = 64; // multiply-adds
bool is_tiny(const Gemm& g) {
  return (g.m == 1 || g.n == 1) && g.m * g.n * g.k <= kTinyWork && (g.dtype == TS_FLOAT32 || g.dtype == TS_FLOAT64);
}
void run_small_half(const Gemm& g) {
  if (!multiply_small_half(with_usual_strides(g))) run_gemm(g);
}
template <class T> void multiply_tiny(const Gemm& g) {
  const T *a = reinterpret_cast<const T*>(g.a.data), *b = reinterpret_cast<const T*>(g.b.data),
          *addend = reinterpret_cast<const T*>(g.addend.data);
  T* c = reinterpret_cast<T*>(g.c.data);
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      T sum = addend ? addend[i * g.addend.row_stride + j * g.addend.col_stride] : T{0};
      for (int64_t p = 0; p < g.k; ++p)
        sum += a[i * g.a.row_stride + p * g.a.col_stride] * b[p * g.b.row_stride + j * g.b.col_stride];
      c[i * g.c.row_stride + j * g.c.col_stride] = sum;
    }
}

// In parts after which the user may have enough.
void run_patiently(const Call& call, const Gemm& g) {
  const int64_t rows = std::max<int64_t>(1, kPatience / std::max<int64_t>(1, g.n * g.k));
  if (rows >= g.m) return run_gemm(g);
  for (int64_t i = 0; i < g.m; i += rows) {
    call.check_interrupt();
    run_gemm(rows_of(g, i, std::min(i + rows, g.m)));
  }
}

void matmul(const Call& call) {
  const bool added = call.has_in(2);
  const Tensor addend = call.in(added ? 2 : 0);
  Batched batched(call.out(0), call.in(0), call.in(1), added ? &addend : nullptr);
  if (!batched.sizes.empty()) batched.fold_into_rows();
  if (batched.sizes.empty()) return run_patiently(call, batched.gemm);
  int64_t count = 1;
  for (int64_t size : batched.sizes) count *= size;
  const int64_t work = std::max<int64_t>(1, batched.gemm.m * batched.gemm.n * std::max<int64_t>(1, batched.gemm.k));
  const int64_t threads = max_threads(), at_once = kPatience / work * threads;
  // Few or very large products share threads inside each; others are dealt out whole.
  if (count < threads || at_once == 0) {
    return each_batch(batched, 0, count, [&](const Gemm& gemm) {
      call.check_interrupt();
      run_patiently(call, gemm);
    });
  }
  const int64_t grain = std::max<int64_t>(1, kBatchGrain / work);
  for (int64_t i = 0; i < count; i += at_once) {
    if (at_once < count) call.check_interrupt();
    parallel_for(i, std::min(i + at_once, count), grain, [&](int64_t begin, int64_t end) {
      const int32_t dtype = batched.gemm.dtype;
      if (dtype == TS_FLOAT16 || dtype == TS_BFLOAT16) return each_batch(batched, begin, end, run_small_half);
      if (!is_tiny(batched.gemm)) return each_batch(batched, begin, end, run_gemm);
      batched.gemm.dtype == TS_FLOAT32 ? each_batch(batched, begin, end, multiply_tiny<float>)
                                       : each_batch(batched, begin, end, multiply_tiny<double>);
    });
  }
}

// addmm and baddbmm of half types, rounded once: the core blends others in a pass over the product.
int blended_product(const Call& call) {
  const Tensor out = call.out(0), self = call.in(0);
  const float beta = static_cast<float>(call.param(0).as_float()), alpha = static_cast<float>(call.param(1).as_float());
  Batched batched(out, call.in(1), call.in(2), &self);
  if ((beta == 1 && alpha == 1) || batched.gemm.k == 0 || out.numel() == 0) return TS_DECLINED;
  int64_t count = 1;
  for (int64_t size : batched.sizes) count *= size;
  each_batch(batched, 0, count, [&](const Gemm& gemm) {
    call.check_interrupt();
    multiply_half(with_usual_strides(gemm), beta, alpha);
  });
  return TS_OK;
}

int linear(const Call& call) {
  const Tensor out = call.out(0), input = call.in(0), weight = call.in(1);
  if (!input.is_contiguous() || weight.ndim() != 2) return TS_DECLINED;
  const int64_t n = weight.size(0), k = weight.size(1), m = n == 0 ? 0 : out.numel() / n;
  Gemm gemm{out.dtype(),         m, n, k, {input.bytes(), k, 1}, {weight.bytes(), weight.stride(1), weight.stride(0)},
            {out.bytes(), n, 1}, {}};
  if (call.has_in(2)) gemm.addend = {call.in(2).bytes(), 0, call.in(2).stride(0)};
  if (!run_gemm_keeping(gemm)) run_patiently(call, gemm);
  return TS_OK;
}

} // namespace

// complex32 is for storage: the core takes products of it by parts.
TS_KERNEL_AS("matmul", matmul, kAnyDtype & ~(uint64_t{1} << TS_COMPLEX32), TS_L_STRIDED);
constexpr uint64_t kHalfTypes = uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16;
TS_KERNEL_AS("addmm", blended_product, kHalfTypes, TS_L_STRIDED);
TS_KERNEL_AS("baddbmm", blended_product, kHalfTypes, TS_L_STRIDED);
TS_KERNEL_AS("linear", linear, kAnyDtype, TS_L_STRIDED);

} // namespace tesserack::cpu
