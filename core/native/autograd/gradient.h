// What an operator's gradient sees: incoming gradients, saved tensors, the call's other arguments.
#pragma once
#include "dispatch/boxing.h"

namespace ts {

// Gradients are written with operators, so that they can be differentiated again. `k` counts the schema's arguments
// (or results), `j` the elements of a list argument.
struct GradContext {
  virtual ~GradContext() = default;
  virtual const Operator& op() const = 0;
  virtual const Tensor& grad(int k = 0) = 0; // of result k; zeros of its shape when nothing arrived
  virtual bool has_grad(int k) const = 0;
  virtual Tensor arg(int k) = 0; // must be named in .saves(); undefined if it was absent
  virtual Tensor arg(int k, int j) = 0;
  virtual Tensor result(int k = 0) = 0;        // must be named in .saves()
  virtual const Value& value(int k) const = 0; // any argument that is not a tensor
  template <class T> T value(int k) const { return Unbox<T>::get(value(k)); }
  virtual bool needs(int k) const = 0; // whether anybody wants the gradient of argument k
  virtual bool needs(int k, int j) const = 0;
  virtual int count(int k) const = 0; // length of list argument k
  // Geometry of arguments is always known, saved or not.
  virtual IntSpan sizes(int k, int j = 0) const = 0;
  virtual DType dtype(int k, int j = 0) const = 0;
  virtual Device device(int k, int j = 0) const = 0;
  // The gradient of argument k, of its shape and dtype. Setting an unneeded one is allowed and ignored.
  virtual void set(int k, Tensor grad) = 0;
  virtual void set(int k, int j, Tensor grad) = 0;
  // Whether what is computed here is recorded in its turn: create_graph.
  static bool is_recorded();
};

} // namespace ts
