// Which dtypes a device computes with, as its properties say: where the core chooses one itself, it chooses among them.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// Called when a device is opened; a bit per dtype, 0: all that are not complex.
void note_computed_dtypes(Device device, uint64_t dtypes);
// Of dtypes below complex64. True of devices that were not opened, of the meta device too.
bool computes_with(Device device, DType t);

// What halves are added up in: float32, and on a device that has none, halves.
inline DType accumulate_type(DType t, Device device) {
  const DType wide = accumulate_type(t);
  return wide == t || computes_with(device, wide) ? wide : t;
}
inline DType accumulate_type(const Tensor& t) { return accumulate_type(t.dtype(), t.device()); }

} // namespace ts
