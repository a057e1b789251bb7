#include "ops/index/index_plan.h"
#include "dispatch/op_handles.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include <algorithm>

namespace ts {
namespace {

const Op wrap_index("_wrap_index"), index_outside("_index_outside");

// The same elements with dims [dim, dim + n) as one, if a view can show them so.
bool merge_dims(Tensor& self, int64_t dim, int64_t n) {
  Dims merged(self.sizes().first(static_cast<size_t>(dim)));
  merged.push_back(checked_numel(self.sizes().subspan(static_cast<size_t>(dim), static_cast<size_t>(n))));
  for (int64_t d = dim + n; d < self.ndim(); ++d) merged.push_back(self.sizes()[d]);
  std::optional<Dims> strides = view_strides(self.sizes(), self.strides(), merged);
  if (strides) self = alias(self, merged, *strides, self->byte_offset);
  return strides.has_value();
}

void check_index_tensor(const Tensor& t) {
  TS_CHECK_INDEX(is_mask(t) || t.dtype() == DType::Int64 || t.dtype() == DType::Int32,
                 "tensors used as indices must be long, int, byte or bool tensors, got ", t.dtype());
}
void check_mask(IntSpan sizes, const Tensor& mask, size_t dim) {
  for (size_t k = 0; k < mask.sizes().size(); ++k)
    TS_CHECK_INDEX(dim + k < sizes.size() && mask.sizes()[k] == sizes[dim + k], "The shape of the mask ", mask.sizes(),
                   " at index ", k, " does not match the shape of the indexed tensor ", sizes, " at index ", dim + k);
}
void check_count(size_t indices, size_t ndim) {
  TS_CHECK_INDEX(indices <= ndim, "too many indices for tensor of dimension ", ndim, " (got ", indices, ")");
}

// A mask of k dims stands for k position tensors, or for one over the k dims together.
void expand_mask(Tensor& self, const Tensor& mask, bool alone, Positions& out) {
  int64_t dim = static_cast<int64_t>(out.at.size());
  if (mask.dtype() == DType::UInt8) warn("indexing with dtype uint8 is deprecated, please use a dtype bool instead.");
  check_mask(self.sizes(), mask, out.at.size());
  if (mask.ndim() == 1 || (alone && merge_dims(self, dim, mask.ndim()))) return out.add(nonzero_flat(mask), true);
  Tensor found = ops::nonzero(mask);
  for (int64_t k = 0; k < mask.ndim(); ++k) out.add(ops::select(found, 1, k), true);
}

Tensor with_new_dim(const Tensor& self, int64_t at) {
  Dims sizes(self.sizes()), strides(self.strides());
  TS_CHECK_INDEX(at <= self.ndim(), "too many indices for tensor of dimension ", self.ndim());
  sizes.insert(sizes.begin() + at, 1);
  strides.insert(strides.begin() + at, 1);
  return alias(self, sizes, strides, self->byte_offset);
}

Dims broadcast_shape(const std::vector<Tensor>& at) {
  Dims shape;
  for (const Tensor& t : at) {
    try {
      if (t.defined()) shape = broadcast_sizes(shape, t.sizes(), "index");
    } catch (const Error&) {
      std::string shapes;
      for (const Tensor& each : at)
        if (each.defined()) shapes += (shapes.empty() ? "" : ", ") + concat(each.sizes());
      fail(ErrorKind::Index, "shape mismatch: indexing tensors could not be broadcast together with shapes ", shapes);
    }
  }
  return shape;
}

// Finds the offending position on the host, for the message alone.
[[noreturn]] void fail_outside(const Tensor& at, int64_t dim, int64_t size) {
  Tensor flat = raw_contiguous(at);
  std::vector<int64_t> host(static_cast<size_t>(flat.numel()));
  copy_bytes_to_host(host.data(), flat, host.size() * sizeof(int64_t));
  for (int64_t v : host)
    TS_CHECK_INDEX(v >= 0 && v < size, "index ", v < 0 ? v - size : v, " is out of bounds for dimension ", dim,
                   " with size ", size);
  fail(ErrorKind::Index, "index is out of bounds for dimension ", dim, " with size ", size);
}

void check_position(const Tensor& at, int64_t dim, int64_t size) {
  if (raw_truth(ops::any(index_outside(at, Scalar(size))))) fail_outside(at, dim, size);
}

} // namespace

void check_index_device(const Tensor& self, const Tensor& index) {
  Device at = index.device();
  TS_CHECK(at == self.device() || at.is_meta() || backend_of(at).host_memory(at.index),
           "index: indices should be either on cpu or on the same device as the indexed tensor (", self.device(),
           "), got ", at, "; move them with .to('", self.device(), "')");
}

Positions normalized_indices(Tensor& self, TensorList indices) {
  Positions out;
  bool alone = std::ranges::count_if(indices, [](const Tensor& t) { return t.defined(); }) == 1;
  for (const Tensor& given : indices) {
    if (!given.defined()) {
      out.add({}, true);
      continue;
    }
    check_index_device(self, given);
    Tensor t = transfer(given, self.device());
    check_index_tensor(t);
    if (is_mask(t) && t.ndim() == 0) {
      self = with_new_dim(self, static_cast<int64_t>(out.at.size()));
      out.add(nonzero_flat(raw_1d(t)), true);
    } else if (is_mask(t))
      expand_mask(self, t, alone, out);
    else
      out.add(raw_cast(t, DType::Int64), false);
  }
  check_count(out.at.size(), self.sizes().size());
  return out;
}

// All of a plan but positions.
static IndexPlan plan_of(IntSpan sizes, const Positions& positions) {
  IndexPlan p;
  const std::vector<Tensor>& at = positions.at;
  p.shape = broadcast_shape(at);
  int64_t n = p.count();
  for (size_t d = 0; d < at.size(); ++d) {
    if (!at[d].defined()) continue;
    int64_t dim = static_cast<int64_t>(d);
    TS_CHECK_INDEX(sizes[d] > 0 || n == 0 || positions.inside[d], "index is out of bounds for dimension ", dim,
                   " with size 0");
    p.adjacent &= p.dims.empty() || p.dims.back() == dim - 1;
    p.dims.push_back(dim);
  }
  TS_CHECK_INDEX(!p.dims.empty(), "index: expected at least one index tensor");
  auto put_shape = [&] {
    for (int64_t s : p.shape) p.result.push_back(s);
  };
  if (!p.adjacent) put_shape();
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    bool indexed = next < p.dims.size() && p.dims[next] == static_cast<int64_t>(d);
    if (!indexed)
      p.result.push_back(sizes[d]);
    else if (next++ == 0 && p.adjacent)
      put_shape();
  }
  return p;
}

IndexPlan make_index_plan(const Tensor& self, const Positions& positions) {
  IndexPlan p = plan_of(self.sizes(), positions);
  bool wait = !backend_of(self.device()).is_async(self.device().index) || checked_mode.load(std::memory_order_relaxed);
  for (int64_t dim : p.dims) {
    size_t d = static_cast<size_t>(dim);
    const Tensor& at = positions.at[d];
    int64_t size = self.sizes()[d];
    bool check = at.numel() && !positions.inside[d];
    Tensor wrapped = check ? wrap_index(at, Scalar(size)) : at;
    if (check && wait)
      check_position(wrapped, dim, size);
    else
      p.checked = p.checked && !check;
    p.at.push_back(raw_expand(wrapped, p.shape, "index"));
  }
  return p;
}

void check_positions(const Tensor& self, IndexPlan& p) {
  for (size_t k = 0; !p.checked && k < p.dims.size(); ++k)
    check_position(p.at[k], p.dims[k], self.sizes()[static_cast<size_t>(p.dims[k])]);
  p.checked = true;
}

IndexPlan index_outline(const Tensor& self, TensorList indices) {
  Dims sizes(self.sizes());
  Positions found;
  Tensor one = outline(Dims{1}, DType::Int64, self.device());
  for (const Tensor& t : indices) {
    if (!t.defined()) {
      found.add({}, true);
      continue;
    }
    check_index_tensor(t);
    if (!is_mask(t)) {
      found.add(t, false);
    } else if (t.ndim() == 0) {
      check_count(found.at.size(), sizes.size());
      sizes.insert(sizes.begin() + static_cast<int64_t>(found.at.size()), 1);
      found.add(one, true);
    } else {
      check_mask(sizes, t, found.at.size());
      for (int64_t k = 0; k < t.ndim(); ++k) found.add(one, true);
    }
  }
  check_count(found.at.size(), sizes.size());
  return plan_of(sizes, found);
}

bool has_mask(TensorList indices) {
  return std::ranges::any_of(indices, [](const Tensor& t) { return t.defined() && is_mask(t); });
}

} // namespace ts
