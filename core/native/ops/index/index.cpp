// Advanced indexing by tensors, read and write: x[i, :, mask] and x[i, :, mask] = values.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/index/index_plan.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kIndexCode = "follows an index plan made for the call";

const Op join_index("_join_index");

// Adjacent indexed dims seen as one, with one-dimensional positions along it.
struct Merged {
  Tensor self;
  int64_t dim;
  Tensor at;
};

std::optional<Merged> merge(const Tensor& self, const IndexPlan& p) {
  if (!p.adjacent) return std::nullopt;
  size_t first = static_cast<size_t>(p.dims[0]), k = p.dims.size();
  Dims sizes;
  int64_t merged = 1;
  for (size_t d = 0; d < self.sizes().size(); ++d) {
    bool inside = d >= first && d < first + k;
    if (inside) merged *= self.sizes()[d];
    if (!inside)
      sizes.push_back(self.sizes()[d]);
    else if (d + 1 == first + k)
      sizes.push_back(merged);
  }
  std::optional<Dims> strides = view_strides(self.sizes(), self.strides(), sizes);
  if (!strides) return std::nullopt;
  Tensor at = p.at[0];
  for (size_t j = 1; j < k; ++j) at = join_index(at, p.at[j], Scalar(self.sizes()[first + j]));
  return Merged{alias(self, sizes, *strides, self->byte_offset), static_cast<int64_t>(first),
                raw_view(at, Dims{p.count()})};
}

// Indexed dims that lie apart, brought to the front, where the result has them too: whole slices are then picked.
std::optional<Merged> merge_in_front(const Tensor& self, const IndexPlan& p) {
  IndexPlan front = p;
  Tensor x = self;
  for (size_t k = 0; k < p.dims.size(); ++k) {
    for (int64_t d = p.dims[k]; d > static_cast<int64_t>(k); --d) x = raw_transpose(x, d - 1, d);
    front.dims[k] = static_cast<int64_t>(k);
  }
  front.adjacent = true;
  return merge(raw_contiguous(x), front);
}

// Any strides: self's memory as one row, and the place in it of every element of the result.
struct Row {
  Tensor row, at;
};

Row as_row(const Tensor& self, IndexPlan& p) {
  check_positions(self, p); // places in memory would not tell
  auto [low, high] = byte_extent(self.sizes(), self.strides(), 1);
  int64_t n = high - low, one = 1;
  Tensor at = filled(p.result, Scalar(-low), DType::Int64, self.device());
  auto add_shaped = [&](const Tensor& t, size_t start, IntSpan sizes, int64_t stride) {
    Dims shape(p.result.size(), 1);
    std::copy(sizes.begin(), sizes.end(), shape.begin() + start);
    at = ops::add(at, ops::mul(raw_view(t, shape), Scalar(stride)));
  };
  size_t next = 0, place = p.adjacent ? 0 : p.shape.size();
  for (int64_t d = 0; d < self.ndim(); ++d) {
    int64_t size = self.sizes()[d], stride = self.strides()[d];
    if (next < p.dims.size() && p.dims[next] == d) {
      add_shaped(p.at[next], p.first(), p.shape, stride);
      if (next++ == 0 && p.adjacent) place += p.shape.size();
    } else {
      add_shaped(counting(size, self.device()), place++, IntSpan(&size, 1), stride);
    }
  }
  return {alias(self, IntSpan(&n, 1), IntSpan(&one, 1), self->byte_offset + low * self.item_size()),
          raw_view(at, Dims{at.numel()})};
}

// Into a contiguous tensor of the result's sizes.
void read_dense(const Tensor& out, const Tensor& self, IndexPlan p) {
  auto into = [&](const Tensor& from, int64_t dim, const Tensor& at) {
    Dims sizes(from.sizes());
    sizes[dim] = at.numel();
    select_into(alias(out, sizes, contiguous_strides(sizes), out->byte_offset), from, dim, at);
  };
  if (std::optional<Merged> m = merge(self, p)) return into(m->self, m->dim, m->at);
  if (!p.adjacent && self.numel() <= out.numel()) {
    check_positions(self, p); // joined positions would not tell
    if (std::optional<Merged> m = merge_in_front(self, p)) return into(m->self, m->dim, m->at);
  }
  Row r = as_row(self, p);
  into(r.row, 0, r.at);
}

// Into a tensor that lies as read_strides says.
void read(const Tensor& out, const Tensor& self, const IndexPlan& p) {
  if (out.is_contiguous()) return read_dense(out, self, p);
  Tensor ordered = self;
  read_dense(out, ordered, in_memory_order(ordered, p));
}

void check_values(const Tensor& values, IntSpan result) {
  IntSpan sizes = values.sizes();
  while (sizes.size() > result.size() && sizes[0] == 1) sizes = sizes.subspan(1);
  bool fits = sizes.size() <= result.size();
  for (size_t d = 1; fits && d <= sizes.size(); ++d) {
    int64_t have = sizes[sizes.size() - d];
    fits = have == 1 || have == result[result.size() - d];
  }
  TS_CHECK(fits, "shape mismatch: value tensor of shape ", values.sizes(),
           " cannot be broadcast to indexing result of shape ", result);
}

void write(const Tensor& self, IndexPlan p, const Tensor& values, bool accumulate) {
  check_values(values, p.result);
  Tensor from = values;
  while (from.ndim() > static_cast<int64_t>(p.result.size()) && from.sizes()[0] == 1)
    from = raw_view(from, from.sizes().subspan(1));
  from = raw_expand(from, p.result, "index_put_");
  if (from.numel() == 0) return;
  int opcode = accumulate ? TS_S_ADD : TS_S_SET;
  if (std::optional<Merged> m = merge(self, p)) {
    Dims sizes(m->self.sizes());
    sizes[m->dim] = m->at.numel();
    scatter_slices(m->self, m->dim, m->at, raw_view(from, sizes), opcode);
    return;
  }
  Row r = as_row(self, p);
  scatter_into(r.row, 0, r.at, raw_view(from, Dims{from.numel()}), opcode);
}

// --- reading
Tensor index_positions_rule(const Tensor& self, TensorList indices) {
  IndexPlan p = index_outline(self, indices);
  return outline_strided(p.result, read_strides(self, p), self.dtype(), self.device());
}
void index_positions(const Tensor& out, const Tensor& self, TensorList indices) {
  Tensor x = self;
  read(out, self, make_index_plan(x, normalized_indices(x, indices)));
}

// How many positions masks stand for, their values tell.
Tensor index_masks_rule(const Tensor& self, TensorList indices) {
  IndexPlan p = index_outline(self, indices);
  for (size_t d = 0; d < p.shape.size(); ++d) p.result[p.first() + d] = 0;
  return outline(p.result, self.dtype(), self.device());
}
Tensor index_masks(const Tensor& self, TensorList indices) {
  Tensor x = self;
  IndexPlan p = make_index_plan(x, normalized_indices(x, indices));
  Tensor out = empty_strided_tensor(p.result, read_strides(x, p), self.dtype(), self.device());
  if (out.numel()) read(out, x, p);
  return out;
}

Tensor index(const Tensor& self, TensorList indices) {
  static const Op by_positions("_index_positions"), by_masks("_index_masks");
  return (has_mask(indices) ? by_masks : by_positions)(self, indices);
}

// --- writing
// x[mask] = number needs no positions.
bool fills_mask(const Tensor& self, TensorList indices, const Tensor& value, bool accumulate) {
  if (accumulate || value.numel() != 1 || indices.empty() || !indices[0].defined() || !is_mask(indices[0]))
    return false;
  for (const Tensor& t : indices.subspan(1))
    if (t.defined()) return false;
  const Tensor& mask = indices[0];
  return mask.ndim() <= self.ndim() && mask.ndim() > 0 && same(mask.sizes(), self.sizes().first(mask.sizes().size())) &&
         !is_expanded(self.sizes(), self.strides());
}
// One value by a mask of bytes is masked_fill's, which refuses those.
void check_fills_bools(const Tensor& self, TensorList indices, const Tensor& value, bool accumulate) {
  TS_CHECK(!fills_mask(self, indices, value, accumulate) || is_bool(indices[0].dtype()),
           "index_put_: one value is written by boolean masks alone, got mask with dtype ", indices[0].dtype(),
           "; try .bool()");
}
bool fill_masked(const Tensor& self, TensorList indices, const Tensor& value, bool accumulate) {
  if (!fills_mask(self, indices, value, accumulate)) return false;
  if (self.numel() == 0) return true;
  const Tensor& mask = indices[0];
  Dims shape(mask.sizes());
  shape.resize(self.sizes().size(), 1);
  check_index_device(self, mask);
  Tensor chosen = ops::where(raw_view(transfer(mask, self.device()), shape), raw_view(value, {}), self);
  raw_copy(self, chosen);
  return true;
}

void check_put(const Tensor& self, TensorList indices, const Tensor& values) {
  TS_CHECK(values.dtype() == self.dtype(), "Index put requires the source and destination dtypes match, got ",
           self.dtype(), " for the destination and ", values.dtype(), " for the source.");
  TS_CHECK(values.device() == self.device() || values.ndim() == 0,
           "index_put_: expected values on the device of self, ", to_string(self.device()), ", got ",
           to_string(values.device()));
  IndexPlan p = index_outline(self, indices);
  if (!has_mask(indices)) check_values(values, p.result);
}
void put_into(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  Tensor from = apart_from(transfer(values, self.device()), self);
  std::vector<Tensor> apart;
  for (const Tensor& t : indices) apart.push_back(t.defined() ? apart_from(t, self) : t);
  if (fill_masked(self, apart, from, accumulate)) return;
  Tensor x = self;
  IndexPlan p = make_index_plan(x, normalized_indices(x, apart));
  write(x, p, from, accumulate);
}

void index_put_rule_(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  check_filled(self, "index_put_");
  check_put(self, indices, values);
  check_fills_bools(self, indices, values, accumulate);
  if (fills_mask(self, indices, values, accumulate)) return;
  check_no_overlap(self, values, "index_put_");
  for (const Tensor& t : indices)
    if (t.defined()) check_no_overlap(self, t, "index_put_");
}
void index_put_(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  put_into(self, indices, values, accumulate);
}

Tensor index_put_rule(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  check_put(self, indices, values);
  check_fills_bools(self, indices, values, accumulate);
  return outline_like(self, self.dtype());
}
void index_put(const Tensor& out, const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  raw_copy(out, self);
  put_into(out, indices, values, accumulate);
}

// By positions in the flattened tensor.
Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  if (!accumulate) alert_not_deterministic("put_");
  check_long_index(index, "put_");
  check_same_dtype(self, source, "put_");
  TS_CHECK_INDEX(index.numel() == source.numel(),
                 "put_: Expected source and index to have the same number of elements, but got source.numel() = ",
                 source.numel(), ", index.numel() = ", index.numel());
  TS_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "put_: index is out of bounds for an empty tensor");
  Tensor flat = ops::reshape(self, Dims{-1}), at = ops::reshape(index, Dims{-1});
  Tensor written = ops::index_put(flat, TensorList(&at, 1), ops::reshape(source, Dims{-1}), accumulate);
  return ops::reshape(written, self.sizes());
}

Tensor put_inplace(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_inplace(self, "put_");
  check_no_overlap(self, index, "put_");
  check_no_overlap(self, source, "put_");
  ops::copy_(self, put(self, index, source, accumulate));
  self->undo_bump(); // the caller counts the write
  return self;
}

std::vector<Tensor> saved_indices(GradContext& c) {
  std::vector<Tensor> indices;
  for (int j = 0; j < c.count(1); ++j) indices.push_back(c.arg(1, j));
  return indices;
}

void index_gradient(GradContext& c) {
  Tensor zeros = ops::zeros(c.sizes(0), c.grad().dtype(), c.grad().device());
  c.set(0, ops::index_put(zeros, saved_indices(c), c.grad(), true));
}

void index_put_gradient(GradContext& c) {
  std::vector<Tensor> indices = saved_indices(c);
  if (c.needs(0)) {
    Tensor zero = ops::zeros(IntSpan(), c.grad().dtype(), c.grad().device());
    c.set(0, c.value<bool>(3) ? c.grad() : ops::index_put(c.grad(), indices, zero, false));
  }
  if (!c.needs(2)) return;
  Tensor g = ops::index(c.grad(), indices);
  IntSpan sizes = c.sizes(2);
  while (sizes.size() > static_cast<size_t>(g.ndim()) && sizes[0] == 1) sizes = sizes.subspan(1);
  c.set(2, ops::to_device(ops::reshape(ops::sum_to_size(g, sizes), c.sizes(2)), c.device(2)));
}

} // namespace

TS_OPERATORS(index) {
  def("index(Tensor self, Tensor?[] indices) -> Tensor")
      .facts("leaf stored")
      .body<index>()
      .data_dependent()
      .any_device()
      .hidden()
      .doc("self[indices] by the rules of NumPy: position tensors broadcast together, masks stand for their nonzero "
           "positions, None keeps a dimension. IndexError outside a dimension.");
  def("_index_positions(Tensor self, Tensor?[] indices) -> Tensor")
      .rule<index_positions_rule>()
      .computation<index_positions>(kIndexCode)
      .reads_host()
      .node_name("IndexBackward0")
      .saves("indices")
      .gradient(index_gradient)
      .any_device()
      .hidden()
      .doc("index by positions.");
  def("_index_masks(Tensor self, Tensor?[] indices) -> Tensor")
      .rule<index_masks_rule>()
      .make<index_masks>()
      .node_name("IndexBackward0")
      .saves("indices")
      .gradient(index_gradient)
      .any_device()
      .hidden()
      .doc("index by masks, and positions beside them.");
  def("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
      .facts("stored autocast:-/widest")
      .rule<index_put_rule>()
      .computation<index_put>(kIndexCode)
      .reads_host()
      .saves("indices")
      .gradient(index_put_gradient)
      .any_device()
      .doc("self with values, broadcast to the shape of self[indices], written or added there. With accumulate, "
           "duplicate positions add up; otherwise any one wins.");
  def("index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)")
      .facts("stored")
      .rule<index_put_rule_>()
      .computation<index_put_, 0>(kIndexCode)
      .reads_host()
      .saves("indices")
      .gradient(index_put_gradient)
      .any_device()
      .method_only()
      .doc("In-place version of index_put.");
  def("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor")
      .facts("leaf stored:none")
      .body<put>()
      .inplace<put_inplace>()
      .doc("self with the elements of source written, or added, at positions in its flattened elements.");
  def("_wrap_index(Tensor self, Scalar size) -> Tensor")
      .pointwise("select(self < 0, self + size, self)")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("Positions with negative ones counted from the end.");
  def("_join_index(Tensor self, Tensor next, Scalar size) -> Tensor")
      .pointwise("select(max(self < 0, max(next < 0, next >= size)), -1, self * size + next)")
      .promote(Promote::Keep)
      .not_differentiable()
      .hidden()
      .doc("Positions along two adjacent dims as one, the second of `size`; -1 where one lies outside.");
  def("_index_outside(Tensor self, Scalar size) -> Tensor")
      .pointwise("max(self < 0, self >= size)")
      .promote(Promote::Compare)
      .not_differentiable()
      .hidden()
      .doc("Whether each position lies outside [0, size).");
}

} // namespace ts
