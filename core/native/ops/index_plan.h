// What x[i, :, mask] refers to: positions along dims, and the shape of the result.
#pragma once
#include "ops/gather_scatter.h"
#include "tensor/geometry.h"
#include <vector>

namespace ts {

// What self[indices] means: positions for some of the dims, broadcast to one shape.
struct IndexPlan {
  Dims dims;              // indexed dims, ascending
  std::vector<Tensor> at; // per indexed dim: int64 positions, not negative, of sizes `shape`
  Dims shape;
  bool adjacent = true; // the index dims replace the indexed ones in place, else they come first
  Dims result;
  int64_t count() const { return checked_numel(shape); }
  size_t first() const { return adjacent ? static_cast<size_t>(dims[0]) : 0; } // where `shape` starts in `result`
};

// One entry per dim of self, undefined where the dim is not indexed. A 0-d mask adds a dim, so self may grow.
std::vector<Tensor> normalized_indices(Tensor& self, TensorList indices);
// IndexError for a position outside its dim; waits for the device to know.
IndexPlan make_index_plan(const Tensor& self, const std::vector<Tensor>& at);

} // namespace ts
