// Views made of other views: flatten, movedim, atleast_nd, meshgrid and their like.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"
#include <bitset>
#include <cstring>

namespace ts {
namespace {

Tensor flatten(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  int64_t start = wrap_dim(start_dim, self.ndim(), "flatten"), end = wrap_dim(end_dim, self.ndim(), "flatten");
  TS_CHECK(start <= end, "flatten: has invalid args: start_dim cannot come after end_dim, got ", start_dim, " and ",
           end_dim);
  if (self.ndim() == 0) return ops::reshape(self, Dims{1});
  if (start == end) return self;
  Dims sizes;
  int64_t merged = 1;
  for (int64_t d = 0; d < self.ndim(); ++d) {
    if (d >= start && d <= end) merged *= self.sizes()[d];
    if (d < start || d > end)
      sizes.push_back(self.sizes()[d]);
    else if (d == end)
      sizes.push_back(merged);
  }
  return ops::reshape(self, sizes);
}

Tensor ravel(const Tensor& self) { return ops::contiguous(ops::reshape(self, Dims{-1})); }

Tensor unflatten(const Tensor& self, int64_t dim, IntSpan sizes) {
  int64_t d = wrap_dim(dim, self.ndim(), "unflatten");
  TS_CHECK(!sizes.empty(), "unflatten: sizes must be non-empty");
  TS_CHECK(self.ndim() > 0, "unflatten: expected a tensor with at least one dimension");
  Dims part = infer_size(sizes, self.sizes()[d], "unflatten"), all(self.sizes().first(static_cast<size_t>(d)));
  for (int64_t s : part) all.push_back(s);
  for (int64_t s : self.sizes().subspan(static_cast<size_t>(d) + 1)) all.push_back(s);
  return ops::view(self, all);
}

Tensor movedim(const Tensor& self, IntSpan source, IntSpan destination) {
  TS_CHECK(source.size() == destination.size(), "movedim: Invalid source or destination dims: source (", source,
           " dims) should contain the same number of dims as destination (", destination, " dims)");
  if (source.empty() || self.ndim() == 0) return ops::permute(self, wrap_dims({}, self.ndim(), "movedim"));
  Dims from = wrap_dims(source, self.ndim(), "movedim"), to = wrap_dims(destination, self.ndim(), "movedim");
  Dims order(static_cast<size_t>(self.ndim()), -1);
  std::bitset<UINT8_MAX + 1> used;
  for (size_t i = 0; i < from.size(); ++i) {
    order[to[i]] = from[i];
    used.set(static_cast<size_t>(from[i]));
  }
  int64_t next = 0;
  for (int64_t& d : order) {
    if (d >= 0) continue;
    while (used[static_cast<size_t>(next)]) ++next;
    d = next++;
  }
  return ops::permute(self, order);
}
Tensor movedim_int(const Tensor& self, int64_t source, int64_t destination) {
  return movedim(self, IntSpan(&source, 1), IntSpan(&destination, 1));
}

Tensor numpy_T(const Tensor& self) {
  Dims order;
  for (int64_t d = self.ndim(); d-- > 0;) order.push_back(d);
  return ops::permute(self, order);
}
Tensor mT(const Tensor& self) {
  if (self.ndim() == 0) return self; // as PyTorch has it
  TS_CHECK(self.ndim() >= 2, "mT: only supported on matrices or batches of matrices, got a ", self.ndim(), "-D tensor");
  return ops::transpose(self, -2, -1);
}

Tensor atleast_1d(const Tensor& self) { return self.ndim() == 0 ? ops::reshape(self, Dims{1}) : self; }
Tensor atleast_2d(const Tensor& self) {
  if (self.ndim() == 0) return ops::reshape(self, Dims{1, 1});
  return self.ndim() == 1 ? ops::unsqueeze(self, 0) : self;
}
Tensor atleast_3d(const Tensor& self) {
  if (self.ndim() == 0) return ops::reshape(self, Dims{1, 1, 1});
  if (self.ndim() == 1) return ops::unsqueeze(ops::unsqueeze(self, 0), -1);
  return self.ndim() == 2 ? ops::unsqueeze(self, -1) : self;
}
template <Tensor (*F)(const Tensor&)> std::vector<Tensor> each(TensorList tensors) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(F(t));
  return out;
}

std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  Dims sizes;
  for (const Tensor& t : tensors) sizes = broadcast_sizes(sizes, t.sizes(), "broadcast_tensors");
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(same(t.sizes(), sizes) ? t : ops::expand(t, sizes));
  return out;
}

std::vector<Tensor> meshgrid(TensorList tensors, const char* indexing) {
  TS_CHECK(!tensors.empty(), "meshgrid: expects a non-empty TensorList");
  static std::atomic<bool> warned{false};
  if (!indexing)
    warn_once(warned, "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.");
  bool xy = indexing && std::strcmp(indexing, "xy") == 0;
  TS_CHECK(xy || !indexing || std::strcmp(indexing, "ij") == 0,
           "meshgrid: indexing must be one of \"xy\" or \"ij\", but received: ", indexing);
  std::vector<Tensor> list(tensors.begin(), tensors.end());
  xy = xy && list.size() >= 2;
  if (xy) std::swap(list[0], list[1]);
  Dims sizes;
  for (const Tensor& t : list) {
    TS_CHECK(t.ndim() <= 1, "meshgrid: Expected 0D or 1D tensor in the tensor list but got sizes ", t.sizes());
    TS_CHECK(t.dtype() == list[0].dtype(), "meshgrid: expects all tensors to have the same dtype");
    TS_CHECK(t.device() == list[0].device(), "meshgrid: expects all tensors to have the same device");
    sizes.push_back(t.numel());
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < list.size(); ++i) {
    Dims shape(sizes.size(), 1);
    shape[i] = sizes[i];
    out.push_back(ops::expand(ops::reshape(list[i], shape), sizes));
  }
  if (!xy) return out;
  std::swap(out[0], out[1]);
  return out;
}

} // namespace

TS_OPERATORS(view_more) {
  def("flatten(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)")
      .body<flatten>()
      .doc("Dimensions start_dim to end_dim merged into one: a view when strides allow it, else a copy.");
  def("ravel(Tensor(a) self) -> Tensor(a)").body<ravel>().doc("All elements in row-major order, one-dimensional.");
  def("unflatten(Tensor(a) self, int dim, int[] sizes) -> Tensor(a)")
      .body<unflatten>()
      .doc("Dimension `dim` split into `sizes`, one of which may be -1.");
  for (const char* base : {"movedim", "moveaxis"}) {
    def(concat(base, ".int(Tensor(a) self, int source, int destination) -> Tensor(a)").c_str())
        .body<movedim_int>()
        .doc("A view with dimension `source` moved to position `destination`.");
    def(concat(base, ".intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)").c_str())
        .body<movedim>()
        .doc("A view with the dimensions `source` moved to the positions `destination`, the others in order.");
  }
  def("numpy_T(Tensor(a) self) -> Tensor(a)")
      .body<numpy_T>()
      .hidden()
      .doc("A view with all dimensions reversed: Tensor.T.");
  def("mT(Tensor(a) self) -> Tensor(a)")
      .body<mT>()
      .hidden()
      .doc("A view with the last two dimensions exchanged: Tensor.mT.");
  def("atleast_1d(Tensor(a) self) -> Tensor(a)")
      .body<atleast_1d>()
      .function_only()
      .doc("A view with at least one dimension.");
  def("atleast_1d.Sequence(Tensor(a)[] tensors) -> Tensor(a)[]")
      .body<each<atleast_1d>>()
      .function_only()
      .doc("Views with at least one dimension.");
  def("atleast_2d(Tensor(a) self) -> Tensor(a)")
      .body<atleast_2d>()
      .function_only()
      .doc("A view with at least two dimensions.");
  def("atleast_2d.Sequence(Tensor(a)[] tensors) -> Tensor(a)[]")
      .body<each<atleast_2d>>()
      .function_only()
      .doc("Views with at least two dimensions.");
  def("atleast_3d(Tensor(a) self) -> Tensor(a)")
      .body<atleast_3d>()
      .function_only()
      .doc("A view with at least three dimensions.");
  def("atleast_3d.Sequence(Tensor(a)[] tensors) -> Tensor(a)[]")
      .body<each<atleast_3d>>()
      .function_only()
      .doc("Views with at least three dimensions.");
  def("broadcast_tensors(Tensor(a)[] tensors) -> Tensor(a)[]")
      .body<broadcast_tensors>()
      .function_only()
      .doc("Views of all tensors at their common broadcast shape.");
  def("meshgrid(Tensor(a)[] tensors, *, str? indexing=None) -> Tensor(a)[]")
      .body<meshgrid>()
      .function_only()
      .doc("Coordinate grids of one-dimensional tensors; indexing 'ij' (matrix order, as without it) or 'xy' "
           "(Cartesian).");
}

} // namespace ts
