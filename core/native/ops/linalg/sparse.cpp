// What sparse tensors need of the core: the answer of operators without a sparse form, and the product of a matrix in
// compressed rows with a dense one. The sparse forms themselves are written with dense operators, in the package.
#include "tensor/sparse.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

const TensorImpl* first_sparse(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && v.tensor->payload) return v.tensor;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined() && t->payload) return t.impl();
  }
  return nullptr;
}

// Operators come here that have no kernel at this key.
void refuse_sparse(void*, const Operator& op, Frame& f, KeySet keys) {
  const TensorImpl* sparse = first_sparse(f);
  if (!sparse) return redispatch(op, f, keys & below(key::Sparse));
  Tensor t = Tensor::share(const_cast<TensorImpl*>(sparse));
  fail(ErrorKind::NotImplemented, op.name(), ": expected strided tensors, as it has no form for the layout ",
       layout_name(layout_of(t)), ", got one of shape ", t.sizes(), "; try .to_dense()");
}

struct InstallRefusal {
  InstallRefusal() { set_key_default(key::Sparse, {refuse_sparse, nullptr, "tesserack"}); }
} install;

// --- the product of a matrix in compressed rows with a dense one ---------------------------------------------------

const Op repeat_rows("repeat_interleave.self_Tensor"), diff("diff"), argsort("argsort"),
    searchsorted("searchsorted.Tensor"), csr_mm_op("_csr_mm");

Tensor csr_mm_rule(const Tensor& crow, const Tensor& col, const Tensor& values, const Tensor& dense) {
  const char* op = "_csr_mm";
  TS_CHECK(crow.ndim() == 1 && crow.numel() > 0 && col.ndim() == 1, op, ": expected 1-D indices, got shapes ",
           crow.sizes(), " and ", col.sizes());
  TS_CHECK((crow.dtype() == DType::Int64 || crow.dtype() == DType::Int32) && crow.dtype() == col.dtype(), op,
           ": expected indices that are both int64 or both int32, got ", crow.dtype(), " and ", col.dtype());
  TS_CHECK(values.ndim() == 1 && values.numel() == col.numel(), op, ": expected one value for each column index, got ",
           values.sizes(), " for ", col.sizes());
  TS_CHECK(dense.ndim() == 2 && dense.dtype() == values.dtype(), op, ": expected a matrix of ", values.dtype(),
           ", got ", dense.dtype(), dense.sizes());
  return outline(Dims{crow.numel() - 1, dense.size(1)}, dense.dtype(), dense.device());
}

// The row of every element.
Tensor rows_of_elements(const Tensor& crow) {
  Tensor numbers = ops::arange(int64_t{0}, crow.numel() - 1, int64_t{1}, DType::Int64, crow.device());
  return repeat_rows(numbers, diff(crow));
}

Tensor csr_mm_parts(const Tensor& crow, const Tensor& col, const Tensor& values, const Tensor& dense) {
  DType wide = accumulate_type(dense);
  Tensor sums = filled(Dims{crow.numel() - 1, dense.size(1)}, 0, wide, dense.device());
  if (values.numel() == 0) return sums;
  Tensor row = rows_of_elements(crow);
  Tensor terms = ops::mul(as_dtype(ops::index_select(dense, int64_t{0}, col), wide),
                          ops::unsqueeze(as_dtype(values, wide), int64_t{1}));
  return ops::index_add(sums, int64_t{0}, row, terms);
}

constexpr int64_t kColumns[] = {1};

void csr_mm_gradient(GradContext& c) {
  const Tensor col = c.arg(1), values = c.arg(2), dense = c.arg(3);
  Tensor rows = ops::index_select(c.grad(), int64_t{0}, rows_of_elements(c.arg(0)));
  if (c.needs(2)) {
    Tensor columns = ops::index_select(dense, int64_t{0}, col);
    c.set(2, ops::sum_dim(ops::mul(rows, ops::conj_physical(columns)), IntSpan(kColumns)));
  }
  if (!c.needs(3)) return;
  // The transposed matrix, whose rows keep the order of elements: as the package's products with it, to the bit.
  Tensor order = argsort(col, int64_t{0}, false, true);
  Tensor row = ops::index_select(rows_of_elements(c.arg(0)), int64_t{0}, order);
  Tensor edges = ops::arange(int64_t{0}, dense.size(0) + 1, int64_t{1}, DType::Int64, col.device());
  Tensor heads = searchsorted(ops::index_select(as_dtype(col, DType::Int64), int64_t{0}, order), edges);
  Tensor turned = ops::index_select(ops::conj_physical(values), int64_t{0}, order);
  c.set(3, csr_mm_op(heads, row, turned, c.grad()));
}

} // namespace

TS_OPERATORS(sparse) {
  def("_csr_mm(Tensor crow, Tensor col, Tensor values, Tensor dense) -> Tensor")
      .rule<csr_mm_rule>()
      .kernel("csr_mm", "crow col values dense: contiguous")
      .work("values", "dense", 1)
      .decompose<csr_mm_parts>()
      .saves("crow col values dense")
      .gradient(csr_mm_gradient)
      .hidden()
      .doc("The product of a sparse matrix in compressed rows (crow (m + 1), col (nnz), values (nnz)) with dense "
           "(k, n): (m, n). IndexError for a column outside.");
}

} // namespace ts
