// What operators over lists of parameters share.
#pragma once
#include "dispatch/boxing.h"
#include "tensor/tensor.h"
#include <vector>

namespace ts::optim {

// RuntimeError unless all are floating tensors of one device.
void check_params(const char* op, TensorList params);
// State beside the parameters: as many, of the same shapes, dtypes and devices. RuntimeError names what differs.
void check_state(const char* op, const char* name, TensorList params, TensorList state);
// RuntimeError where one may not be written in place.
void written(const char* op, TensorList list);

// Contiguous stand-ins for a list of tensors; written ones are copied back.
class Contiguous {
public:
  explicit Contiguous(TensorList given);
  TensorList list() const { return copied_ ? TensorList(own_) : given_; }
  void write_back() const;

private:
  TensorList given_;
  std::vector<Tensor> own_;
  bool copied_ = false;
};

} // namespace ts::optim
