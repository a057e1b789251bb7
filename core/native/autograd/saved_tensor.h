// A tensor kept for backward: version-checked, cycle-free for results, and passed through saved-tensor hooks.
#pragma once
#include "autograd/node.h"
#include <functional>
#include <memory>

namespace ts {

// What is kept in place of a tensor, and the interpreter's object that makes it a tensor again; each pack has a share
// of its own, so that a garbage collector can tell who holds what.
struct PackedTensor {
  std::shared_ptr<void> value, opener;
  Tensor (*unpack)(const PackedTensor&) = nullptr;
  bool objects = false;          // both are objects of the interpreter
  const Tensor* shown = nullptr; // else the tensor that `value` holds, if any
};
struct SavedTensorHooks {
  std::function<PackedTensor(const Tensor&)> pack;
  bool user = true;
};
// Thread-local stack; the innermost pair applies.
// RuntimeError while hooks are disabled, but for those that are `internal`.
void push_saved_tensor_hooks(SavedTensorHooks hooks, bool internal = false);
void pop_saved_tensor_hooks();
// Undoes, in its destructor or when asked, what was pushed and not popped since.
class KeepSavedTensorHooks {
public:
  KeepSavedTensorHooks() : depth_(thread_state().saved_tensor_hooks) {}
  ~KeepSavedTensorHooks() { restore(); }
  KeepSavedTensorHooks(const KeepSavedTensorHooks&) = delete;
  KeepSavedTensorHooks& operator=(const KeepSavedTensorHooks&) = delete;
  int depth() const { return depth_; }
  void restore() const {
    while (thread_state().saved_tensor_hooks > depth_) pop_saved_tensor_hooks();
  }

private:
  int depth_;
};
// While disabled, pushing hooks raises RuntimeError with this message (NULL: enabled). So does disabling where hooks
// are on already.
void disable_saved_tensor_hooks(const char* message);

// RuntimeError "Trying to backward through the graph a second time..." when `freed`.
void check_not_freed(bool freed);

class SavedTensor {
public:
  SavedTensor() = default;
  // is_result: the tensor is a result of the node that saves it, held without a reference cycle.
  SavedTensor(const Tensor& t, bool is_result, uint32_t output_nr = 0);
  bool defined() const { return data_.defined() || packed_; }
  // `owner` is the saving node: restores the history of its results. RuntimeError when freed or modified in place.
  Tensor unpack(Node* owner) const;
  void reset();
  // Packs what is kept so far. RuntimeError if it is freed, absent or packed already.
  void register_hooks(const SavedTensorHooks& hooks, Node* owner);
  const Tensor& data() const { return data_; }
  const PackedTensor* packed() const; // NULL unless hooks were at work
  bool released() const { return released_; }
  void visit_held(HeldVisitor& visitor) const;

private:
  struct Packed;
  void pack(const SavedTensorHooks& hooks, const Tensor& t);
  struct DeletePacked {
    void operator()(Packed* p) const;
  };
  Tensor data_;
  std::unique_ptr<Packed, DeletePacked> packed_; // what hooks made of the tensor, instead of data_
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  bool is_result_ = false, released_ = false, had_history_ = false;
};

} // namespace ts
