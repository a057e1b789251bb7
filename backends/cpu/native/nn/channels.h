// Tensors of shape (N, C, *), row-major or channels-last, as rows of one channel or rows of all channels.
#ifndef TESSERACK_CPU_CHANNELS_H
#define TESSERACK_CPU_CHANNELS_H

#include "copy/copy.h"
#include "rows.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

struct Channels {
  int64_t n = 1, c = 1, inner = 1;
  bool last = false; // channels-last

  int64_t per_channel() const { return n * inner; }
  int64_t total() const { return n * c * inner; }
};

// The strides of `t`'s sizes in a dense layout.
inline void dense_strides(const ts_tensor* t, bool channels_last, int64_t* strides) {
  int64_t step = 1;
  if (channels_last) {
    strides[1] = 1;
    step = t->sizes[1];
    for (int d = t->ndim - 1; d >= 2; --d) {
      strides[d] = step;
      step *= t->sizes[d];
    }
    strides[0] = step;
    return;
  }
  for (int d = t->ndim - 1; d >= 0; --d) {
    strides[d] = step;
    step *= t->sizes[d];
  }
}

inline bool has_layout(const ts_tensor* t, bool channels_last) {
  int64_t wanted[kMaxDims];
  dense_strides(t, channels_last, wanted);
  for (int d = 0; d < t->ndim; ++d)
    if (t->sizes[d] != 1 && t->strides[d] != wanted[d]) return false;
  return true;
}

inline Channels channels_of(const backend::Call& call, const ts_tensor* t) {
  require_dims(call.op(), t->ndim);
  if (t->ndim < 2)
    backend::fail(TS_ERROR, "%s: expected an input of shape (N, C, *), got %d dimensions", call.op(), t->ndim);
  Channels shape;
  shape.n = t->sizes[0];
  shape.c = t->sizes[1];
  for (int d = 2; d < t->ndim; ++d) shape.inner *= t->sizes[d];
  shape.last = !has_layout(t, false) && has_layout(t, true);
  return shape;
}

// A tensor in the layout of the others: itself, or a copy that lives as long as this. Writes back on request.
class Dense {
public:
  Dense(const ts_tensor* t, const Channels& shape, bool load) : view_(*t), original_(t) {
    if (has_layout(t, shape.last)) return;
    dense_strides(t, shape.last, strides_);
    copy_.reset(new Buffer<char>(t->numel * backend::dtype_size(t->dtype)));
    view_.handle = copy_->get();
    view_.byte_offset = 0;
    view_.strides = strides_;
    if (load) transfer(view_, *original_);
  }
  Dense(const Dense&) = delete;
  Dense& operator=(const Dense&) = delete;
  const ts_tensor* tensor() const { return &view_; }
  void write_back() const {
    if (copy_) transfer(*original_, view_);
  }

private:
  static void transfer(const ts_tensor& to, const ts_tensor& from) {
    Operand operands[2];
    set_operand(operands[0], &to);
    set_operand(operands[1], &from);
    Space space;
    space.operands = operands;
    space.n_operands = 2;
    space.nd = to.ndim;
    for (int d = 0; d < space.nd; ++d) space.size[d] = to.sizes[d];
    copy_space(space);
  }
  ts_tensor view_;
  const ts_tensor* original_;
  int64_t strides_[kMaxDims];
  std::unique_ptr<Buffer<char>> copy_;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_CHANNELS_H
