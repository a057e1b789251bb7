#include "ops/linalg/lapack.h"
#include "ops/common/arguments.h"
#include "ops/common/copy.h"
#include "runtime/recording_state.h"
#include "tensor/geometry.h"
#include <limits>

namespace ts::lapack {

void check_matrix(const Tensor& a, const char* op, const char* name) {
  TS_CHECK(a.ndim() >= 2, op, ": The input tensor ", name, " must have at least 2 dimensions, got sizes ", a.sizes());
}

void check_square(const Tensor& a, const char* op, const char* name) {
  check_matrix(a, op, name);
  TS_CHECK(rows(a) == cols(a), op, ": ", name, " must be batches of square matrices, but they are ", rows(a), " by ",
           cols(a), " matrices");
}

void check_floating(const Tensor& a, const char* op) {
  TS_CHECK(is_differentiable(a.dtype()), op, ": Expected a floating point or complex tensor as input. Got ", a.dtype());
  TS_CHECK(!is_half(a.dtype()), op, ": Low precision dtypes not supported. Got ", a.dtype(), "; try .float()");
}

void check_same(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.dtype() == b.dtype(), op, ": Expected A and B to have the same dtype, but found A of type ", a.dtype(),
           " and B of type ", b.dtype(), " instead");
  check_same_device(a, b, op);
}

Dims with_batch(IntSpan batch, std::initializer_list<int64_t> sizes) {
  Dims all(batch);
  for (int64_t size : sizes) all.push_back(size);
  return all;
}

Tensor columns(IntSpan batch, int64_t rows, int64_t cols, DType dtype, Device device) {
  return empty_tensor(with_batch(batch, {cols, rows}), dtype, device);
}

Tensor outline_columns(IntSpan batch, int64_t rows, int64_t cols, DType dtype, Device device) {
  Dims sizes = with_batch(batch, {cols, rows}), strides = contiguous_strides(sizes);
  size_t last = sizes.size() - 1;
  std::swap(sizes[last], sizes[last - 1]), std::swap(strides[last], strides[last - 1]);
  return outline_strided(sizes, strides, dtype, device);
}
void copy_broadcast(const Tensor& out, const Tensor& a) { raw_copy(out, raw_expand(a, out.sizes(), "linalg")); }

Tensor contiguous_rows(const Tensor& a, IntSpan sizes) {
  return copy_as(
      std::equal(sizes.begin(), sizes.end(), a.sizes().begin(), a.sizes().end()) ? a : raw_expand(a, sizes, "linalg"),
      a.dtype(), MemoryFormat::Contiguous);
}

Tensor columns_of(const Tensor& a) { return columns_of(a, batch_of(a)); }
Tensor columns_of(const Tensor& a, IntSpan batch) {
  return contiguous_rows(raw_transpose(a, a.ndim() - 2, a.ndim() - 1), with_batch(batch, {cols(a), rows(a)}));
}

Tensor zeros_int32(IntSpan sizes, Device device) { return filled(sizes, Scalar(0), DType::Int32, device); }

void check_info(const Tensor& info, const char* op, const std::function<std::string(int32_t)>& says) {
  if (info.device().is_meta() || info.numel() == 0) return;
  if (!info->storage || !info->storage->handle) return; // a class answers for it, which has no values
  note_hidden_dependence();
  Tensor here = info.data() ? info : transfer(info, parse_device("cpu"));
  const auto* values = static_cast<const int32_t*>(here.data());
  for (int64_t k = 0; k < here.numel(); ++k) {
    if (values[k] == 0) continue;
    std::string element = info.ndim() ? concat("(Batch element ", k, "): ") : std::string();
    fail(ErrorKind::LinAlg, op, ": ", element, says(values[k]));
  }
}

std::string singular_matrix(const char* what, int32_t info) {
  return concat("The diagonal element ", info, " is zero, ", what,
                " could not be completed because the input matrix is singular.");
}
std::string not_definite(int32_t info) {
  return concat("The factorization could not be completed because the input is not positive-definite (the leading "
                "minor of order ",
                info, " is not positive-definite).");
}

Tensor transposed(const Tensor& a) { return ops::transpose(a, int64_t{-2}, int64_t{-1}); }
Tensor adjoint(const Tensor& a) { return conjugate(transposed(a)); }
Tensor lower(const Tensor& a, int64_t diagonal) {
  static const Op tril("tril");
  return tril(a, diagonal);
}
Tensor upper(const Tensor& a, int64_t diagonal) {
  static const Op triu("triu");
  return triu(a, diagonal);
}
Tensor diagonal_of(const Tensor& a) { return ops::diagonal(a, int64_t{0}, int64_t{-2}, int64_t{-1}); }
Tensor diagonal_matrix(const Tensor& d) {
  static const Op embed("diag_embed");
  return embed(d);
}
Tensor eye(int64_t rows, int64_t cols, const Tensor& like) {
  Tensor out = filled(Dims{rows, cols}, Scalar(0), like.dtype(), like.device());
  int64_t least[] = {std::min(rows, cols)}, step[] = {cols + 1};
  if (out.numel()) raw_fill(alias(out, least, step, 0), Scalar(1));
  return out;
}
Tensor identity(int64_t n, const Tensor& like) { return eye(n, n, like); }
Tensor identities(IntSpan batch, int64_t n, const Tensor& like) {
  return contiguous_rows(identity(n, like), with_batch(batch, {n, n}));
}
Tensor real_part(const Tensor& a) {
  static const Op real("real");
  return is_complex(a.dtype()) ? real(a) : a;
}

double epsilon(DType t) {
  return real_dtype(t) == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                         : double{std::numeric_limits<float>::epsilon()};
}

} // namespace ts::lapack
