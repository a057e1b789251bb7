// Runs gradients from roots back to leaves: iterative, in reverse order of recording, freeing as it goes.
#pragma once
#include "autograd/node.h"

namespace ts {

struct BackwardOptions {
  bool retain_graph = false; // keep saved tensors
  bool create_graph = false; // record the gradients' own computation
  bool allow_unused = false;
  bool forward = false;   // for tangents: what was made under no_grad counts
  bool accumulate = true; // into .grad of leaves; false: return the gradients of `inputs`
  // Instead of that: what arrives at inputs, one by one in the order of arrival, with the input's number; then a
  // tensor that is not defined, where what takes gradients of the input would run. Nothing goes on from there, and no
  // hooks of theirs run.
  std::vector<std::pair<size_t, Tensor>>* arrivals = nullptr;
};

// grads: one per root; undefined means ones for a single-element root (RuntimeError otherwise).
// With accumulate and inputs given, only these leaves accumulate. Returns one tensor per input when not accumulating.
std::vector<Tensor> run_backward(TensorList roots, TensorList grads, TensorList inputs, const BackwardOptions& options);

bool in_backward(); // this thread is inside run_backward
// Runs once at the end of the current backward. RuntimeError outside one.
void queue_callback(std::function<void()> callback);
// Of the innermost run of this thread: -1 outside of one.
int64_t current_run();
// It is part of that run; RuntimeError outside of one, and of a leaf whose gradient is only caught if asked for
// `alone`.
bool will_run(const Node* node, bool alone = false);
bool run_keeps_graph();     // it was asked to retain what is saved
bool run_has_inputs();      // it was asked for gradients of certain tensors, not for .grad of all leaves
const Node* current_node(); // being evaluated by this thread; NULL outside

} // namespace ts
