// Instances of subclasses of Tensor, and values of tensors whose class, or a mode, answers for them.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"
#include "tensor/thread_state.h"

namespace ts::py {

// Whether no memory of the tensor's own holds its only element: it is sparse, or calls with it come to a
// __torch_dispatch__, by its class or by a mode of this thread.
inline bool item_comes_from_python(const Tensor& t) {
  const ThreadState& state = thread_state();
  return t->payload || ((t->keys | state.include) & ~state.exclude & key_bit(key::Python));
}
// Has calls with the tensor come to the class that it is made an instance of, if that takes them over.
void mark_for(PyTypeObject* cls, const Tensor& t);
// The only element as such a one gives it.
PyRef dispatched_item(const Tensor& t);

} // namespace ts::py
