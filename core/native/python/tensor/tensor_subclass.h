// Instances of subclasses of Tensor, and values of tensors whose class, or a mode, answers for them.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"
#include "tensor/thread_state.h"

namespace ts::py {

// Whether calls with the tensor come to a __torch_dispatch__, by its class or by a mode of this thread.
inline bool comes_to_python(const Tensor& t) {
  const ThreadState& state = thread_state();
  return (t->keys | state.include) & ~state.exclude & key_bit(key::Python);
}
// Has calls with the tensor come to the class that it is made an instance of, if that takes them over.
void mark_for(PyTypeObject* cls, const Tensor& t);
// The only element as such a one gives it.
PyRef dispatched_item(const Tensor& t);

} // namespace ts::py
