// What x[i, :, mask] refers to: positions along dims, and the shape of the result.
#pragma once
#include "ops/index/gather_scatter.h"
#include "tensor/geometry.h"
#include <vector>

namespace ts {

// What self[indices] means: positions for some of the dims, broadcast to one shape.
struct IndexPlan {
  Dims dims;              // indexed dims, ascending
  std::vector<Tensor> at; // per indexed dim: int64 positions from 0 on, of sizes `shape`
  Dims shape;
  bool adjacent = true; // the index dims replace the indexed ones in place, else they come first
  Dims result;
  bool checked = true; // the positions lie within their dims; else kernels tell, at the next wait
  int64_t count() const { return checked_numel(shape); }
  size_t first() const { return adjacent ? static_cast<size_t>(dims[0]) : 0; } // where `shape` starts in `result`
};

// Indices as positions: one entry per dim of self, undefined where the dim is not indexed.
struct Positions {
  std::vector<Tensor> at;
  std::vector<bool> inside; // known to lie within their dims
  void add(Tensor t, bool known_inside) {
    at.push_back(std::move(t));
    inside.push_back(known_inside);
  }
};

// Indices lie beside self or on the host, as PyTorch has it: from one card to another nothing is copied silently.
void check_index_device(const Tensor& self, const Tensor& index);
// A 0-d mask adds a dim to self; a mask of several dims, alone, merges those of self if a view can.
Positions normalized_indices(Tensor& self, TensorList indices);
// IndexError for a position outside its dim, which the host waits to know, unless the device is asynchronous.
IndexPlan make_index_plan(const Tensor& self, const Positions& positions);
// Waits to know, if that was left out.
void check_positions(const Tensor& self, IndexPlan& plan);
// The same without positions, from shapes alone: a mask counts as one position. Every check but that of bounds.
IndexPlan index_outline(const Tensor& self, TensorList indices);
// Strides of what is read by a plan: dims that are not indexed keep the order in which they lie in self's memory.
Dims read_strides(const Tensor& self, const IndexPlan& plan);
// The same plan with those dims brought into that order, in self too, so that the result is contiguous.
IndexPlan in_memory_order(Tensor& self, const IndexPlan& plan);
// Bytes are truth values here, as they were before there was a dtype of those.
inline bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }
bool has_mask(TensorList indices);

} // namespace ts
