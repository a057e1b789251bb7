// Views of the parts of a tensor: unbind, split, chunk, tensor_split and the h/v/d forms.
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

Tensor part(const Tensor& self, IntSpan sizes, IntSpan strides, int64_t offset) {
  Tensor t = make_view(self, sizes, strides, self->byte_offset + offset * self.item_size());
  t->flags |= TensorImpl::kViewMulti;
  return t;
}

std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  TS_CHECK_INDEX(self.ndim() > 0, "unbind: cannot be applied to a 0-dim tensor; dimension specified as ", dim,
                 " but tensor has no dimensions");
  int64_t d = wrap_dim(dim, self.ndim(), "unbind");
  Dims sizes(self.sizes()), strides(self.strides());
  int64_t n = sizes[d], step = strides[d];
  sizes.erase(sizes.begin() + d);
  strides.erase(strides.begin() + d);
  std::vector<Tensor> parts;
  parts.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) parts.push_back(part(self, sizes, strides, i * step));
  return parts;
}

std::vector<Tensor> cut(const Tensor& self, int64_t d, IntSpan lengths) {
  Dims sizes(self.sizes());
  std::vector<Tensor> parts;
  parts.reserve(lengths.size());
  int64_t at = 0;
  for (int64_t length : lengths) {
    sizes[d] = length;
    parts.push_back(part(self, sizes, self.strides(), at * self.strides()[d]));
    at += length;
  }
  return parts;
}

std::vector<Tensor> split_with_sizes(const Tensor& self, IntSpan lengths, int64_t dim) {
  TS_CHECK(self.ndim() > 0, "split_with_sizes: expects at least a 1-dimensional tensor");
  int64_t d = wrap_dim(dim, self.ndim(), "split_with_sizes"), total = 0;
  bool overflow = false;
  for (int64_t length : lengths) {
    TS_CHECK(length >= 0,
             "split_with_sizes: expects split_sizes have only non-negative entries, but got split_sizes=", lengths);
    overflow |= __builtin_add_overflow(total, length, &total);
  }
  TS_CHECK(!overflow && total == self.sizes()[d], "split_with_sizes: expects split_sizes to sum exactly to ",
           self.sizes()[d], " (input tensor's size at dimension ", d, "), but got split_sizes=", lengths);
  return cut(self, d, lengths);
}

Dims even_lengths(int64_t size, int64_t length, const char* op) {
  TS_CHECK(length >= 0, op, ": expects split_size be non-negative, but got split_size=", length);
  TS_CHECK(length > 0 || size == 0, op, ": split_size can only be 0 if dimension size is 0, but got dimension size of ",
           size);
  Dims lengths;
  for (int64_t at = 0; at < size; at += length) lengths.push_back(std::min(length, size - at));
  if (lengths.empty()) lengths.push_back(0);
  return lengths;
}

std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim) {
  TS_CHECK(self.ndim() > 0, "split: expects at least a 1-dimensional tensor");
  int64_t d = wrap_dim(dim, self.ndim(), "split");
  return cut(self, d,
             even_lengths(self.sizes()[d], std::min(split_size, std::max<int64_t>(self.sizes()[d], 1)), "split"));
}

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  TS_CHECK(self.ndim() > 0, "chunk: expects at least a 1-dimensional tensor");
  TS_CHECK(chunks > 0, "chunk: expects `chunks` to be greater than 0, got: ", chunks);
  int64_t d = wrap_dim(dim, self.ndim(), "chunk"), size = self.sizes()[d];
  if (size == 0) // all of them empty: as many as asked
    return ops::split_with_sizes.list(
        self, std::vector<int64_t>(static_cast<size_t>(std::min<int64_t>(chunks, 1 << 20)), 0), d);
  return ops::split.list(self, 1 + (size - 1) / chunks, d);
}

std::vector<Tensor> tensor_split_sections(const Tensor& self, int64_t sections, int64_t dim) {
  TS_CHECK(self.ndim() > 0, "tensor_split: expected at least a 1-dimensional tensor, but got a tensor with ",
           self.ndim(), " dims");
  TS_CHECK(sections > 0, "tensor_split: number of sections must be larger than 0, got ", sections);
  TS_CHECK(sections <= 1 << 24, "tensor_split: expected at most ", 1 << 24, " sections, got ", sections);
  int64_t d = wrap_dim(dim, self.ndim(), "tensor_split"), size = self.sizes()[d];
  std::vector<Tensor> parts; // slices, each of which may be written in place
  for (int64_t i = 0, start = 0; i < sections; ++i) {
    int64_t length = size / sections + (i < size % sections);
    parts.push_back(ops::slice(self, d, start, start + length, 1));
    start += length;
  }
  return parts;
}

std::vector<Tensor> tensor_split_indices(const Tensor& self, IntSpan indices, int64_t dim) {
  TS_CHECK(self.ndim() > 0, "tensor_split: expected at least a 1-dimensional tensor, but got a tensor with ",
           self.ndim(), " dims");
  int64_t d = wrap_dim(dim, self.ndim(), "tensor_split"), start = 0;
  std::vector<Tensor> parts;
  for (int64_t end : indices) {
    parts.push_back(ops::slice(self, d, start, end, 1));
    start = end;
  }
  parts.push_back(ops::slice(self, d, start, Value(), 1));
  return parts;
}

// A 0-d tensor says how many parts, a vector where to cut.
std::vector<Tensor> tensor_split_tensor(const Tensor& self, const Tensor& given, int64_t dim) {
  const char* op = "tensor_split";
  TS_CHECK(given.dtype() == DType::Int64, op, ": expected tensor_indices_or_sections to have dtype int64, got ",
           given.dtype());
  TS_CHECK(given.ndim() <= 1, op, ": expected tensor_indices_or_sections to have at most one dimension, got shape ",
           given.sizes());
  check_not_meta(given, op);
  if (given.ndim() == 0) return tensor_split_sections(self, host_number(given), dim);
  std::vector<int64_t> values;
  for (int64_t k = 0; k < given.numel(); ++k) values.push_back(host_number(ops::select(given, int64_t{0}, k)));
  return tensor_split_indices(self, IntSpan(values.data(), values.size()), dim);
}

const Op split_sections("tensor_split.sections"), split_indices("tensor_split.indices");

// hsplit, vsplit, dsplit: tensor_split along dimension 1 (0 for one-dimensional), 0 and 2.
int64_t letter_dim(const Tensor& self, char letter) {
  int64_t least = letter == 'h' ? 1 : letter == 'v' ? 2 : 3;
  TS_CHECK(self.ndim() >= least, letter, "split: requires a tensor with at least ", least,
           " dimension, but got a tensor with ", self.ndim(), " dimensions!");
  return letter == 'v' || self.ndim() == 1 ? 0 : letter == 'h' ? 1 : 2;
}
template <char letter> std::vector<Tensor> letter_sections(const Tensor& self, int64_t sections) {
  int64_t d = letter_dim(self, letter);
  TS_CHECK(sections > 0 && self.sizes()[d] % sections == 0, letter, "split: attempted to split along dimension ", d,
           ", but the size of the dimension ", self.sizes()[d], " is not divisible by the split_size ", sections, "!");
  return split_sections.list(self, sections, d);
}
template <char letter> std::vector<Tensor> letter_indices(const Tensor& self, IntSpan indices) {
  return split_indices.list(self, indices, letter_dim(self, letter));
}

void unbind_gradient(GradContext& c) {
  IntSpan sizes = c.sizes(0);
  int64_t d = wrap_dim(c.value<int64_t>(1), static_cast<int64_t>(sizes.size()), "unbind");
  if (sizes[d] == 0) return;
  std::vector<Tensor> grads;
  for (int k = 0; k < sizes[d]; ++k) grads.push_back(c.grad(k));
  c.set(0, ops::stack(grads, d));
}

void join_gradients(GradContext& c, size_t n, int64_t dim) {
  std::vector<Tensor> grads;
  for (size_t k = 0; k < n; ++k) grads.push_back(c.grad(static_cast<int>(k)));
  if (n > 0) c.set(0, ops::cat(grads, dim));
}

void split_gradient(GradContext& c) {
  IntSpan sizes = c.sizes(0);
  int64_t d = wrap_dim(c.value<int64_t>(2), static_cast<int64_t>(sizes.size()), "split");
  int64_t length = std::min(c.value<int64_t>(1), std::max<int64_t>(sizes[d], 1));
  join_gradients(c, even_lengths(sizes[d], length, "split").size(), d);
}

void split_sizes_gradient(GradContext& c) { join_gradients(c, c.value<IntSpan>(1).size(), c.value<int64_t>(2)); }

} // namespace

TS_OPERATORS(split) {
  def("unbind(Tensor(a) self, int dim=0) -> Tensor(a)[]")
      .body<unbind>()
      .view()
      .gradient(unbind_gradient)
      .doc("Views of all slices along `dim`, which disappears.");
  def("split(Tensor(a) self, int split_size, int dim=0) -> Tensor(a)[]")
      .body<split>()
      .view()
      .gradient(split_gradient)
      .doc("Views of consecutive parts of `split_size` positions along `dim`; the last may be smaller.");
  def("split.sizes(Tensor(a) self, int[] split_size, int dim=0) -> Tensor(a)[]")
      .body<split_with_sizes>()
      .view()
      .gradient(split_sizes_gradient)
      .node_name("SplitWithSizesBackward0")
      .doc("Views of consecutive parts of the given sizes along `dim`.");
  def("split_with_sizes(Tensor(a) self, int[] split_sizes, int dim=0) -> Tensor(a)[]")
      .body<split_with_sizes>()
      .view()
      .gradient(split_sizes_gradient)
      .doc("Views of consecutive parts of the given sizes along `dim`.");
  def("chunk(Tensor(a) self, int chunks, int dim=0) -> Tensor(a)[]")
      .body<chunk>()
      .doc("At most `chunks` views of equal size along `dim`; the last may be smaller.");
  // Before those of ints, for which a tensor of one element passes too.
  def("tensor_split.tensor_indices_or_sections(Tensor(a) self, Tensor tensor_indices_or_sections, int dim=0) -> "
      "Tensor(a)[]")
      .body<tensor_split_tensor>()
      .any_device()
      .doc("Views along `dim`: as many as a 0-d tensor says, or cut before each index in a vector.");
  def("tensor_split.sections(Tensor(a) self, int sections, int dim=0) -> Tensor(a)[]")
      .body<tensor_split_sections>()
      .doc("`sections` views along `dim` whose sizes differ by at most one.");
  def("tensor_split.indices(Tensor(a) self, int[] indices, int dim=0) -> Tensor(a)[]")
      .body<tensor_split_indices>()
      .doc("Views along `dim` cut before each of the indices.");
  def("hsplit.int(Tensor(a) self, int sections) -> Tensor(a)[]")
      .body<letter_sections<'h'>>()
      .doc("Equal views along dimension 1, or 0 of a one-dimensional tensor.");
  def("hsplit.array(Tensor(a) self, int[] indices) -> Tensor(a)[]")
      .body<letter_indices<'h'>>()
      .doc("Views along dimension 1, or 0 of a one-dimensional tensor, cut before each of the indices.");
  def("vsplit.int(Tensor(a) self, int sections) -> Tensor(a)[]")
      .body<letter_sections<'v'>>()
      .doc("Equal views along dimension 0.");
  def("vsplit.array(Tensor(a) self, int[] indices) -> Tensor(a)[]")
      .body<letter_indices<'v'>>()
      .doc("Views along dimension 0 cut before each of the indices.");
  def("dsplit.int(Tensor(a) self, int sections) -> Tensor(a)[]")
      .body<letter_sections<'d'>>()
      .doc("Equal views along dimension 2.");
  def("dsplit.array(Tensor(a) self, int[] indices) -> Tensor(a)[]")
      .body<letter_indices<'d'>>()
      .doc("Views along dimension 2 cut before each of the indices.");
}

} // namespace ts
