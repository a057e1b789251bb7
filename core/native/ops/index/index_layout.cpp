// How the result of a read by indices lies in memory: as PyTorch's, which steps through self as that lies.
#include "ops/index/index_plan.h"

namespace ts {
namespace {

// Dims of self that are not indexed, ascending, but for those of one element, which lie anywhere.
Dims kept_dims(const Tensor& self, const IndexPlan& p) {
  Dims kept;
  size_t next = 0;
  for (int64_t d = 0; d < self.ndim(); ++d) {
    if (next < p.dims.size() && p.dims[next] == d)
      ++next;
    else if (self.sizes()[static_cast<size_t>(d)] != 1)
      kept.push_back(d);
  }
  return kept;
}

// The same dims by the order in memory, the outermost first. The indexed ones stay where they are between them.
Dims by_memory(const Tensor& self, const Dims& kept) {
  Dims sizes, strides, order;
  for (int64_t d : kept) {
    sizes.push_back(self.sizes()[static_cast<size_t>(d)]);
    strides.push_back(self.strides()[static_cast<size_t>(d)]);
  }
  for (int64_t k : memory_order(sizes, dense_strides(sizes, strides))) order.push_back(kept[static_cast<size_t>(k)]);
  return order;
}

// Where a dim of self that is not indexed stands in the result.
size_t place(const IndexPlan& p, int64_t dim) {
  size_t before = 0, d = static_cast<size_t>(dim);
  for (int64_t indexed : p.dims) before += indexed < dim;
  bool shape_first = !p.adjacent || before > 0;
  return d - before + (shape_first ? p.shape.size() : 0);
}

} // namespace

IndexPlan in_memory_order(Tensor& self, const IndexPlan& plan) {
  IndexPlan p = plan;
  Dims kept = kept_dims(self, p), order = by_memory(self, kept);
  if (same(kept, order)) return p;
  Dims sizes(self.sizes()), strides(self.strides());
  for (size_t k = 0; k < kept.size(); ++k) {
    size_t to = static_cast<size_t>(kept[k]), from = static_cast<size_t>(order[k]);
    sizes[to] = self.sizes()[from];
    strides[to] = self.strides()[from];
    p.result[place(p, kept[k])] = sizes[to];
  }
  self = alias(self, sizes, strides, self->byte_offset);
  return p;
}

Dims read_strides(const Tensor& self, const IndexPlan& plan) {
  if (self.is_contiguous()) return contiguous_strides(plan.result);
  Dims kept = kept_dims(self, plan), order = by_memory(self, kept);
  Tensor ordered = self;
  Dims dense = contiguous_strides(in_memory_order(ordered, plan).result), strides = dense;
  for (size_t k = 0; k < kept.size(); ++k) strides[place(plan, order[k])] = dense[place(plan, kept[k])];
  return strides;
}

} // namespace ts
