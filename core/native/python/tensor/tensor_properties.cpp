// a.shape, a.dtype, a.grad and the other attributes of tensors.
#include "autograd/keep_saved.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "graph/tracer.h"
#include "python/autograd/node_object.h"
#include "python/calls/parse.h"
#include "python/graph/traced_size.h"
#include "python/tensor/tensor_object.h"
#include "python/tensor/tensor_slots.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "runtime/warn_once.h"
#include "tensor/sparse.h"

namespace ts::py {
namespace {

#define TS_GETTER(name, expression)                                                                                    \
  PyObject* name(PyObject* self, void*) {                                                                              \
    return guarded([&]() -> PyObject* {                                                                                \
      const Tensor& t = tensor_of(self);                                                                               \
      (void)t;                                                                                                         \
      return expression;                                                                                               \
    });                                                                                                                \
  }

TS_GETTER(get_shape, traced_int ? traced_size_object(t) : size_object(t.sizes()))
TS_GETTER(get_dtype, Py_NewRef(dtype_object(t.dtype())))
TS_GETTER(get_device, device_object(t.device()))
TS_GETTER(get_layout, Py_NewRef(layout_object(layout_of(t))))
TS_GETTER(get_is_sparse, PyBool_FromLong(layout_of(t) == Layout::SparseCoo))
TS_GETTER(get_is_sparse_csr, PyBool_FromLong(layout_of(t) == Layout::SparseCsr))
TS_GETTER(get_ndim, PyLong_FromLongLong(t.ndim()))
TS_GETTER(get_itemsize, PyLong_FromLongLong(t.item_size()))
int64_t bytes_of(const Tensor& t) {
  TS_CHECK(!t->payload,
           "nbytes is not defined for sparse tensors. Add up the nbytes of indices and values, or multiply "
           "numel by element_size for the size of the equivalent dense tensor.");
  return t.nbytes();
}
TS_GETTER(get_nbytes, PyLong_FromLongLong(bytes_of(t)))
// Asking a non-leaf is mostly a mistake: nothing is ever stored there.
Tensor grad_or_warning(const Tensor& t) {
  Tensor grad = grad_of(t);
  if (!grad.defined() && !is_leaf(t) && !t->has(TensorImpl::kRetainGrad)) [[unlikely]]
    warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
         "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
         "Tensor, use .retain_grad() on the non-leaf Tensor.");
  return grad;
}
TS_GETTER(get_grad, wrap(grad_or_warning(t)))
TS_GETTER(get_grad_fn, node_object(grad_fn(t)))
TS_GETTER(get_requires_grad, PyBool_FromLong(requires_grad(t)))
TS_GETTER(get_is_leaf, PyBool_FromLong(is_leaf(t)))
TS_GETTER(get_retains_grad, PyBool_FromLong(t->has(TensorImpl::kRetainGrad)))
TS_GETTER(get_output_nr, PyLong_FromUnsignedLong(autograd_meta(t.impl()) ? autograd_meta(t.impl())->output_nr : 0))
uint32_t tracked_version(const Tensor& t) {
  TS_CHECK(!t->has(TensorImpl::kInference), "Inference tensors do not track version counter.");
  return t.version();
}
TS_GETTER(get_version, PyLong_FromUnsignedLong(tracked_version(t)))
TS_GETTER(get_cdata, PyLong_FromVoidPtr(t.impl()))
TS_GETTER(get_base, wrap(Tensor::share(t->base)))
TS_GETTER(get_is_meta, PyBool_FromLong(t.device().is_meta()))
TS_GETTER(get_false, Py_NewRef(Py_False))
TS_GETTER(get_real, is_complex(t.dtype()) ? wrap(ops::real(t)) : Py_NewRef(self))
TS_GETTER(get_imag, wrap(ops::imag(t)))
const Op kData("_data");

// What has no memory has its class make one of its kind; a graph that takes no other views has an operator for it.
Tensor data_of(const Tensor& t) {
  if (traced_int || t->keys & key_bit(key::Python)) return ops::detach(t);
  if (const graph::Tracer* tracer = graph::Tracer::current(); tracer && !tracer->takes_views()) [[unlikely]]
    return kData(t);
  return shallow_copy(t, true);
}
TS_GETTER(get_data, wrap(data_of(t)))

Tensor reversed_dims(const Tensor& t) {
  Dims order(static_cast<size_t>(t.ndim()));
  for (size_t k = 0; k < order.size(); ++k) order[k] = t.ndim() - 1 - static_cast<int64_t>(k);
  return ops::permute(t, order);
}
Tensor reversed_with_warning(const Tensor& t) {
  static std::atomic<bool> warned{false}, warned_of_none{false};
  if (t.ndim() == 0)
    warn_once(warned_of_none, "Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.");
  else if (t.ndim() != 2)
    warn_once(warned, "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and "
                      "it will throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
                      "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.");
  return reversed_dims(t);
}
Tensor matrix_transpose(const Tensor& t, const char* name) {
  if (t.ndim() == 0) return t; // as PyTorch has it
  TS_CHECK(t.ndim() >= 2, "tensor.", name, " is only supported on matrices or batches of matrices. Got ", t.ndim(),
           "-D tensor.");
  return ops::transpose(t, -2, -1);
}
const Op matrix_H("matrix_H");
TS_GETTER(get_T, wrap(reversed_with_warning(t)))
TS_GETTER(get_mT, wrap(matrix_transpose(t, "mT")))
TS_GETTER(get_mH, wrap(ops::conj(matrix_transpose(t, "mH"))))
TS_GETTER(get_H, wrap(matrix_H(t)))
#undef TS_GETTER

int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    bool clear = !value || value == Py_None;
    if (!clear && !is_tensor(value)) raise(PyExc_TypeError, "grad: expected a Tensor or None, got " + type_name(value));
    TS_CHECK(clear || value != self, "can't assign a Tensor as its own grad");
    set_grad_of(tensor_of(self), clear ? Tensor() : tensor_of(value));
    return 0;
  });
}

// x.real = y and x.imag = y write through the view.
template <const Op& Part> int set_part(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    if (!value) raise(PyExc_TypeError, "a part of a tensor cannot be deleted");
    Tensor part = Part(tensor_of(self));
    Value number;
    if (as_number(value, number))
      ops::fill_(part, number.as_scalar());
    else
      ops::copy_(part, expect_tensor(value, "real, imag"));
    return 0;
  });
}

int set_requires_grad_property(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    if (!value) raise(PyExc_RuntimeError, "requires_grad must be a bool: it cannot be deleted");
    if (!PyBool_Check(value)) raise(PyExc_RuntimeError, "requires_grad must be a bool, got " + type_name(value));
    if (has_taker()) {
      PyRef given = checked(PyTuple_Pack(1, value)), found;
      if (is_taken("requires_grad_", self, given.get(), nullptr, found)) return found ? 0 : -1;
    }
    set_requires_grad(tensor_of(self), value == Py_True);
    return 0;
  });
}

int set_data_property(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    if (!value) raise(PyExc_RuntimeError, "data cannot be deleted; delete the tensor instead");
    const Tensor &target = tensor_of(self), &source = expect_tensor(value, "data");
    TS_CHECK(!target->payload == !source->payload || target->numel == 0 || source->numel == 0,
             "data: incompatible tensor type: expected a layout like that of the tensor; try load it into a new one");
    check_write(target, "data");
    set_data(target, source);
    return 0;
  });
}

} // namespace

std::vector<PyGetSetDef> tensor_properties() {
  return {
      {"shape", get_shape, nullptr, "The size of every dimension, a Size.", nullptr},
      {"dtype", get_dtype, nullptr, "The element type.", nullptr},
      {"device", get_device, nullptr, "Where the elements are.", nullptr},
      {"layout", get_layout, nullptr, "How the elements are stored: tesserack.strided, sparse_coo, sparse_csr, ...",
       nullptr},
      {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
      {"itemsize", get_itemsize, nullptr, "Bytes per element.", nullptr},
      {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
      {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
      {"grad_fn", get_grad_fn, nullptr, "The node that computed this tensor; None for leaves.", nullptr},
      {"requires_grad", get_requires_grad, set_requires_grad_property, "Whether gradients are recorded for it.",
       nullptr},
      {"is_leaf", get_is_leaf, nullptr, "Whether it was created by the user rather than computed.", nullptr},
      {"retains_grad", get_retains_grad, nullptr, "Whether this non-leaf keeps its gradient.", nullptr},
      {"output_nr", get_output_nr, nullptr, "Which result of grad_fn it is.", nullptr},
      {"_version", get_version, nullptr, "How often its memory was modified in place.", nullptr},
      {"_cdata", get_cdata, nullptr, "The address of what the core knows of it.", nullptr},
      {"_base", get_base, nullptr, "The tensor this one is a view of, or None.", nullptr},
      {"data", get_data, set_data_property,
       "The same memory without history; assigning replaces memory, shape and dtype.", nullptr},
      {"is_meta", get_is_meta, nullptr, "Whether it has shape and dtype but no data.", nullptr},
      {"is_sparse", get_is_sparse, nullptr, "Whether the layout is sparse_coo.", nullptr},
      {"is_sparse_csr", get_is_sparse_csr, nullptr, "Whether the layout is sparse_csr.", nullptr},
      {"is_quantized", get_false, nullptr, "Always False.", nullptr},
      {"is_nested", get_false, nullptr, "Whether it is a tensor of tesserack.nested.", nullptr},
      {"real", get_real, set_part<ops::real>, "The real part, a view; the tensor itself, of real dtypes.", nullptr},
      {"imag", get_imag, set_part<ops::imag>, "The imaginary part, a view, of complex dtypes.", nullptr},
      {"T", get_T, nullptr, "A view with the dimensions in reverse order.", nullptr},
      {"mT", get_mT, nullptr, "A view with the last two dimensions exchanged.", nullptr},
      {"H", get_H, nullptr, "The adjoint of a matrix.", nullptr},
      {"mH", get_mH, nullptr, "The adjoints of the matrices in the last two dimensions.", nullptr},
  };
}

} // namespace ts::py
