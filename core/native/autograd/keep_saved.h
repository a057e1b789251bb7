// Saved tensors that may be written to: while a thread watches writes, what is kept here and about to change is copied
// first.
#pragma once
#include "autograd/saved_tensor.h"

namespace ts {

struct KeptTensor {
  Tensor tensor;
  uint32_t version;
  bool copied = false;
};

// Keeps a tensor as it is now. RuntimeError from `kept_value` if it was written to while nobody watched.
std::shared_ptr<KeptTensor> keep_tensor(const Tensor& t);
Tensor kept_value(const KeptTensor& kept);

// Of this thread; calls nest.
void watch_writes(bool on);
// Until popped, writing to memory that is older than this call and not that of `own` is a RuntimeError: a function
// under a transform must not change what it captured.
void push_write_guard(TensorList own, std::string message);
void pop_write_guard();
// RuntimeError where `t` must not be given other contents so; `what` changes it.
void check_write(const Tensor& t, const char* what);
// Whether a function runs that is guarded so.
bool writes_are_guarded();
// Saved-tensor hooks that keep so, and watching, until popped: for forward mode, whose derivatives are of what was
// computed, whatever becomes of the operands. They do not mind that hooks are disabled.
void push_keeping_hooks();
void pop_keeping_hooks();

} // namespace ts
