// Writing by index: scatter, scatter_add and their in-place forms.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/index/gather_scatter.h"

namespace ts {

namespace {

// Why what is declared here is computed by code.
const char* const kScatterCode = "sees index and source in geometries that the entry point scatter takes";
const KernelId kScatter("scatter"), kIndexAdd("index_add_");
} // namespace

void scatter_into(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& src, int opcode) {
  Tensor to = raw_1d(out), at = raw_1d(index), from = raw_1d(src);
  if (at.numel() == 0) return;
  TS_CHECK_INDEX(to.sizes()[dim] > 0, "scatter: index is out of bounds for dimension ", dim, " with size 0");
  for (int64_t d = 0; d < at.ndim(); ++d) {
    int64_t n = at.sizes()[d];
    if (d != dim && to.sizes()[d] != n) to = raw_narrow(to, d, 0, n);
    if (from.sizes()[d] != n) from = raw_narrow(from, d, 0, n);
  }
  if (combine_wide(to, dim, at, from, opcode) || add_by_parts(to, dim, at, from, opcode)) return;
  Launch launch(kScatter, out.device());
  launch.out(to).in(at).in(from).opcode(opcode).param(dim);
  bool by_parts = is_complex(out.dtype()) && (opcode == TS_S_SET || opcode == TS_S_ADD);
  if (!by_parts) return launch.run_required();
  if (!launch.run()) scatter_into(raw_parts(to), dim, raw_index_of_parts(at), raw_parts(from), opcode);
}

void scatter_slices(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& src, int opcode) {
  Tensor to = raw_1d(out), from = raw_1d(src);
  if (from.numel() == 0) return;
  if (to.sizes()[dim] > 0 &&
      (combine_wide(to, dim, raw_1d(index), from, opcode) || add_by_parts(to, dim, raw_1d(index), from, opcode)))
    return;
  bool dense = to.is_contiguous() && from.is_contiguous() && index.is_contiguous();
  if (opcode == TS_S_ADD && dense && to.sizes()[dim] > 0 &&
      Launch(kIndexAdd, out.device()).in_mutable(to).in(raw_1d(index)).in(from).param(dim).run())
    return;
  Dims shape(from.sizes().size(), 1);
  shape[dim] = index.numel();
  scatter_into(to, dim, raw_expand(raw_view(index, shape), from.sizes(), "scatter"), from, opcode);
}

namespace {

Tensor number(const Tensor& self, Scalar v, IntSpan sizes, const char* op) {
  return raw_expand(filled({}, convert_scalar(v, self.dtype(), op), self.dtype(), self.device()), sizes, op);
}

// --- scatter ---
int64_t check_scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor* src, const char* op) {
  if (index.numel()) check_index_dtype(index, op);
  check_same_device(self, index, op);
  int64_t d = wrap_dim(dim, self.ndim(), op);
  if (src) {
    check_same_device(self, *src, op);
    check_same_dtype(self, *src, op);
  }
  if (index.numel() == 0) return d;
  int64_t ndim = std::max<int64_t>(self.ndim(), 1);
  TS_CHECK(std::max<int64_t>(index.ndim(), 1) == ndim, op,
           ": Index tensor must have the same number of dimensions as self tensor, got ", index.sizes(), " and ",
           self.sizes());
  TS_CHECK(!src || std::max<int64_t>(src->ndim(), 1) == ndim, op,
           ": Index tensor must have the same number of dimensions as src tensor, got ", index.sizes(), " and ",
           src->sizes());
  const auto extent = [](const Tensor& t, int64_t k) { return t.ndim() ? t.sizes()[k] : 1; };
  for (int64_t k = 0; k < ndim; ++k) {
    const int64_t n = extent(index, k);
    TS_CHECK(k == d || n <= extent(self, k), op, ": Expected index ", index.sizes(), " to be no larger than self ",
             self.sizes(), " apart from dimension ", d);
    TS_CHECK(!src || n <= extent(*src, k), op, ": Expected index ", index.sizes(),
             " to be no larger in any dimension than src ", src->sizes());
  }
  check_room(self, d, index.numel(), op);
  return d;
}

// Written over a copy of self, or in place over self itself.
Tensor outline_of(const Tensor& self) { return outline(self.sizes(), self.dtype(), self.device()); }
const char* name_of(int opcode) { return opcode == TS_S_ADD ? "scatter_add" : "scatter"; }

template <int opcode> Tensor scatter_src_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  check_scatter(self, dim, index, &src, name_of(opcode));
  return outline_of(self);
}
template <int opcode>
void scatter_src(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  if (!out.is(self)) raw_copy(out, self);
  scatter_into(out, wrap_dim(dim, self.ndim(), "scatter"), apart_from(index, out), apart_from(src, out), opcode);
}
template <int opcode> void scatter_src_rule_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  check_inplace(self, "scatter_");
  check_no_overlap(self, index, "scatter_");
  check_no_overlap(self, src, "scatter_");
  check_scatter(self, dim, index, &src, name_of(opcode));
}
template <int opcode> void scatter_src_(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  scatter_src<opcode>(self, self, dim, index, src);
}

Tensor scatter_value_rule(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  check_scatter(self, dim, index, nullptr, "scatter");
  convert_scalar(value, self.dtype(), "scatter");
  return outline_of(self);
}
void scatter_value(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  if (!out.is(self)) raw_copy(out, self);
  scatter_into(out, wrap_dim(dim, self.ndim(), "scatter"), apart_from(index, out),
               number(self, value, index.sizes(), "scatter"), TS_S_SET);
}
void scatter_value_rule_(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  check_inplace(self, "scatter_");
  check_no_overlap(self, index, "scatter_");
  scatter_value_rule(self, dim, index, value);
}
void scatter_value_(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  scatter_value(self, self, dim, index, value);
}

const Op scatter_value_op("scatter.value"), pad_constant("constant_pad_nd");

// A gradient of index's shape as one of src's: zero where src was not read.
Tensor grown(const Tensor& g, IntSpan sizes) {
  if (same(g.sizes(), sizes)) return g;
  // No index, of any number of dims: the sum of nothing is a zero that stays in the graph.
  if (g.numel() == 0) return ops::expand(ops::sum(g), sizes);
  Dims pads;
  for (size_t d = sizes.size(); d-- > 0;) {
    pads.push_back(0);
    pads.push_back(sizes[d] - g.sizes()[d]);
  }
  return pad_constant(g, pads);
}

void scatter_src_gradient(GradContext& c) {
  int64_t dim = c.value<int64_t>(1);
  if (c.needs(0)) c.set(0, scatter_value_op(c.grad(), dim, c.arg(2), Scalar(0)));
  if (c.needs(3)) c.set(3, grown(ops::gather(c.grad(), dim, c.arg(2)), c.sizes(3)));
}
void scatter_value_gradient(GradContext& c) {
  c.set(0, scatter_value_op(c.grad(), c.value<int64_t>(1), c.arg(2), Scalar(0)));
}
void scatter_add_gradient(GradContext& c) {
  c.set(0, c.grad());
  if (c.needs(3)) c.set(3, grown(ops::gather(c.grad(), c.value<int64_t>(1), c.arg(2)), c.sizes(3)));
}

} // namespace

TS_OPERATORS(scatter) {
  def("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .facts("leaf stored:none")
      .rule<scatter_src_rule<TS_S_SET>>()
      .computation<scatter_src<TS_S_SET>>(kScatterCode)
      .reuses_self()
      .saves("index")
      .gradient(scatter_src_gradient)
      .out(kSameDtype)
      .doc("self with the elements of src written at index along `dim`. Among duplicate positions any one wins.");
  def("scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)")
      .rule<scatter_src_rule_<TS_S_SET>>()
      .computation<scatter_src_<TS_S_SET>, 0>(kScatterCode)
      .saves("index")
      .gradient(scatter_src_gradient)
      .method_only()
      .doc("In-place version of scatter.");
  def("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .rule<scatter_value_rule>()
      .computation<scatter_value>(kScatterCode)
      .reuses_self()
      .saves("index")
      .gradient(scatter_value_gradient)
      .out(kSameDtype)
      .doc("self with value written at index along `dim`.");
  def("scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)")
      .rule<scatter_value_rule_>()
      .computation<scatter_value_, 0>(kScatterCode)
      .saves("index")
      .gradient(scatter_value_gradient)
      .method_only()
      .doc("In-place version of scatter.");
  def("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .facts("autocast:-/widest")
      .rule<scatter_src_rule<TS_S_ADD>>()
      .computation<scatter_src<TS_S_ADD>>(kScatterCode)
      .reuses_self()
      .saves("index")
      .gradient(scatter_add_gradient)
      .out()
      .doc("self with the elements of src added at index along `dim`; duplicates add up.");
  def("scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)")
      .rule<scatter_src_rule_<TS_S_ADD>>()
      .computation<scatter_src_<TS_S_ADD>, 0>(kScatterCode)
      .saves("index")
      .gradient(scatter_add_gradient)
      .method_only()
      .doc("In-place version of scatter_add.");
}

} // namespace ts
