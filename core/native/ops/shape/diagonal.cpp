// Matrices made from diagonals and blocks: diag, diag_embed, diagflat, fill_diagonal_, block_diag.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

const Op diagonal_back("diagonal_backward");

// Putting a diagonal into zeros is what the gradient of taking it does.
Tensor diag_embed(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  int64_t ndim = self.ndim() + 1;
  int64_t a = wrap_dim(dim1, ndim, "diag_embed"), b = wrap_dim(dim2, ndim, "diag_embed");
  TS_CHECK(a != b, "diag_embed: diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  TS_CHECK(self.ndim() > 0, "diag_embed: expected a tensor with at least one dimension");
  int64_t shift = offset, length;
  TS_CHECK((offset >= 0 || !__builtin_sub_overflow(int64_t{0}, offset, &shift)) &&
               !__builtin_add_overflow(self.size(-1), shift, &length),
           "diag_embed: offset ", offset, " is too large");
  Dims sizes(self.sizes().first(static_cast<size_t>(self.ndim() - 1)));
  for (int64_t d : {std::min(a, b), std::max(a, b)}) sizes.insert(sizes.begin() + d, length);
  checked_numel(sizes);
  return diagonal_back(self, sizes, offset, a, b);
}

Tensor diag(const Tensor& self, int64_t diagonal) {
  TS_CHECK(self.ndim() == 1 || self.ndim() == 2, "diag: Supports 1D or 2D tensors. Got ", self.ndim(), "D");
  return self.ndim() == 1 ? diag_embed(self, diagonal, 0, 1) : ops::clone(ops::diagonal(self, diagonal));
}

Tensor diagflat(const Tensor& self, int64_t offset) { return diag_embed(ops::reshape(self, Dims{-1}), offset, 0, 1); }

Tensor fill_diagonal_(const Tensor& self, Scalar value, bool wrap) {
  TS_CHECK(self.ndim() >= 2, "fill_diagonal_: dimensions must larger than 1, got sizes ", self.sizes());
  for (int64_t size : self.sizes())
    TS_CHECK(self.ndim() == 2 || size == self.sizes()[0],
             "fill_diagonal_: all dimensions of input must be of equal length, got sizes ", self.sizes());
  Tensor line = ops::diagonal(self);
  while (line.ndim() > 1) line = ops::diagonal(line, 0, 0, -1);
  ops::fill_(line, value);
  // A tall matrix's diagonal goes on after a free row, as NumPy has it.
  int64_t rows = self.sizes()[0], period = self.sizes()[1] + 1;
  for (int64_t row = period; wrap && self.ndim() == 2 && row < rows; row += period)
    ops::fill_(ops::diagonal(ops::slice(self, int64_t{0}, row, rows, int64_t{1})), value);
  return self;
}

// Numbers are blocks of one element, vectors blocks of one row.
Tensor as_block(const Tensor& t) {
  TS_CHECK(t.ndim() <= 2, "block_diag: Input tensors must have 2 or fewer dimensions, got sizes ", t.sizes());
  return t.ndim() == 2 ? t : ops::reshape(t, Dims{1, t.numel()});
}

Tensor block_diag(TensorList tensors) {
  if (tensors.empty()) return ops::empty(Dims{1, 0});
  std::vector<Tensor> rows;
  int64_t width = 0, before = 0;
  for (const Tensor& t : tensors) rows.push_back(as_block(t));
  for (const Tensor& t : rows) width += t.sizes()[1];
  for (Tensor& t : rows) {
    int64_t height = t.sizes()[0], after = width - before - t.sizes()[1];
    auto zeros = [&](int64_t columns) { return ops::zeros(Dims{height, columns}, t.dtype(), t.device()); };
    Tensor parts[] = {zeros(before), t, zeros(after)};
    before += t.sizes()[1];
    t = ops::cat(TensorList(parts), 1);
  }
  return ops::cat(rows, 0);
}

} // namespace

TS_OPERATORS(diagonal) {
  def("diag(Tensor self, int diagonal=0) -> Tensor")
      .facts("stored")
      .body<diag>()
      .out(kSameDtype)
      .doc("A matrix with a vector on the given diagonal, or a copy of a matrix's diagonal.");
  def("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
      .facts("leaf stored")
      .body<diag_embed>()
      .doc("Zeros with the last dimension of self on the diagonals of the planes dim1, dim2 of the result.");
  def("diagflat(Tensor self, int offset=0) -> Tensor")
      .body<diagflat>()
      .doc("A matrix with all elements of self on the given diagonal.");
  def("fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)")
      .facts("stored")
      .body<fill_diagonal_>()
      .method_only()
      .doc("Fills the main diagonal; with `wrap` that of a tall matrix starts again after every period.");
  def("block_diag(Tensor[] tensors) -> Tensor")
      .facts("leaf stored")
      .body<block_diag>()
      .function_only()
      .doc("Matrices one after another along the diagonal of a matrix of zeros.");
}

} // namespace ts
