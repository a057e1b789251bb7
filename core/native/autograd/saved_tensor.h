// A tensor kept for backward: version-checked, cycle-free for results, and passed through saved-tensor hooks.
#pragma once
#include "autograd/node.h"
#include <functional>
#include <memory>

namespace ts {

struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};
// Thread-local stack; the innermost pair applies.
void push_saved_tensor_hooks(SavedTensorHooks hooks);
void pop_saved_tensor_hooks();
// While disabled, saving a tensor raises RuntimeError with this message (NULL: enabled).
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

private:
  struct Packed;
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
