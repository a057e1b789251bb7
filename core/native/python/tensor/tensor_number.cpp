// Operators of the language: a + b, -a, a < b, a += b, bool(a), int(a).
#include "dispatch/boxing.h"
#include "dispatch/op_handles.h"
#include "extend/pending_bits.h"
#include "python/calls/operator_plan.h"
#include "python/calls/overrides.h"
#include "python/tensor/interop.h"
#include "python/tensor/tensor_slots.h"
#include "runtime/backend.h"
#include <algorithm>

namespace ts::py {
namespace {

// An operand of a language operator: a tensor, a number, or a NumPy array for which a tensor is made.
class Operand {
public:
  bool from(PyObject* o) {
    if (is_plain_tensor(o)) [[likely]] {
      value_ = Value(impl_of(o));
      return true;
    }
    if (is_tensor(o)) {
      value_ = Value(impl_of(o));
      return true;
    }
    if (as_any_number(o, value_, parts_)) return true;
    PyTypeObject* array = numpy_array_type();
    if (!array || !PyType_IsSubtype(Py_TYPE(o), array)) return false;
    array_ = from_array(o);
    value_ = Value(array_);
    return true;
  }
  const Value& value() const { return value_; }
  bool is_array() const { return array_.defined(); }
  DType dtype() const { return value_.tensor->dtype; } // of an operand that is no number
  void cast(DType dtype, const Tensor& from) {
    if (dtype == from.dtype()) return;
    array_ = ops::to_dtype(from, dtype);
    value_ = Value(array_);
  }
  const Tensor& array() const { return array_; }

private:
  Value value_;
  double parts_[2]; // of a complex number
  Tensor array_;
};

// NumPy's promotion: a floating dtype that has room for every integer of the other, and 0-d arrays count like others.
DType numpy_promotion(DType a, DType b) {
  DType common = promote_types(a, b), whole = is_integral(a, true) ? a : b;
  if (!is_integral(whole, true) || is_integral(common, true) || common == DType::BFloat16) return common;
  if (item_size(whole) >= 4) return is_complex(common) ? DType::Complex128 : DType::Float64;
  return item_size(whole) == 2 && common == DType::Float16 ? DType::Float32 : common;
}

// A tensor and an array meet in the dtype that NumPy would give, as in PyTorch, which leaves the operator to NumPy.
void promote_as_numpy(std::string_view op, PyObject* a, Operand& x, PyObject* b, Operand& y) {
  if (x.is_array() == y.is_array()) return;
  DType common = numpy_promotion(x.dtype(), y.dtype());
  if (op == "div" && x.is_array()) // as PyTorch's tensor.reciprocal() * array
    common = numpy_promotion(is_integral(y.dtype(), true) ? default_dtype() : y.dtype(), x.dtype());
  else if (op == "div" && is_integral(common, true))
    common = DType::Float64;
  x.cast(common, x.is_array() ? x.array() : tensor_of(a));
  y.cast(common, y.is_array() ? y.array() : tensor_of(b));
}

PyObject* not_implemented() { return Py_NewRef(Py_NotImplemented); }

// An array on the left of arithmetic is refused, as PyTorch refuses it: array + tensor is no tensor by accident. There
// it divides and compares; the order of a comparison cannot be told anyway, as Python may have swapped its sides.
bool is_array_first(std::string_view op, const Operand& x) {
  constexpr std::string_view kTaken[] = {"div", "eq", "ne", "lt", "le", "gt", "ge"};
  return x.is_array() && std::find(std::begin(kTaken), std::end(kTaken), op) == std::end(kTaken);
}

// An operator of two operands with the defaults of its further arguments (alpha) at hand.
class Binary {
public:
  explicit Binary(const char* name)
      : name_(name), op_(get_operator(name)), count_(static_cast<int32_t>(op_.schema->args.size())) {
    TS_CHECK(count_ <= kMost, "operator: '", name, "' has too many arguments for an operator of the language");
    for (int32_t k = 2; k < count_; ++k) rest_[k - 2] = op_.schema->args[static_cast<size_t>(k)].default_value;
  }
  const char* name() const { return name_; }
  bool is_in_place() const { return std::string_view(name_).ends_with('_'); }
  PyObject* call(const Value& a, const Value& b) const {
    Value values[kMost] = {a, b, rest_[0], rest_[1]};
    return invoke_single(op_, values, count_);
  }

private:
  static constexpr int kMost = 4;
  const char* name_;
  const Operator& op_;
  int32_t count_;
  Value rest_[kMost - 2];
};

PyObject* apply2(const Binary& op, PyObject* a, PyObject* b) {
  // Where no class knows it the language asks the other side; of a += b it would take that answer as the result.
  if (g_overrides_watched) [[unlikely]]
    if (PyObject* result = try_override_slot(op.name(), a, b, !op.is_in_place())) return result;
  if (is_plain_tensor(a) && is_plain_tensor(b)) [[likely]]
    return op.call(Value(impl_of(a)), Value(impl_of(b)));
  Operand x, y;
  if (!x.from(a) || !y.from(b)) {
    PyObject* result = try_override_slot(op.name(), a, b, !op.is_in_place());
    return result ? result : not_implemented();
  }
  if (is_array_first(op.name(), x)) return not_implemented();
  if (!op.is_in_place()) promote_as_numpy(op.name(), a, x, b, y);
  return op.call(x.value(), y.value());
}

PyObject* apply1(const Op& op, const char* name, PyObject* a) {
  if (g_overrides_watched) [[unlikely]]
    if (PyObject* result = try_override_slot(name, a, nullptr)) return result;
  Value value(impl_of(a));
  return invoke_operator(op.get(), &value, 1);
}

#define TS_BINARY(slot, name)                                                                                          \
  PyObject* slot(PyObject* a, PyObject* b) {                                                                           \
    return guarded([&] {                                                                                               \
      static const Binary op(name);                                                                                    \
      return apply2(op, a, b);                                                                                         \
    });                                                                                                                \
  }
#define TS_UNARY(slot, name)                                                                                           \
  PyObject* slot(PyObject* a) {                                                                                        \
    static const Op op(name);                                                                                          \
    return guarded([&] { return apply1(op, name, a); });                                                               \
  }

TS_BINARY(nb_add, "add")
TS_BINARY(nb_subtract, "sub")
TS_BINARY(nb_multiply, "mul")
TS_BINARY(nb_true_divide, "div")
TS_BINARY(nb_floor_divide, "floor_divide")
TS_BINARY(nb_remainder, "remainder")
TS_BINARY(power, "pow")
TS_BINARY(nb_and, "bitwise_and")
TS_BINARY(nb_or, "bitwise_or")
TS_BINARY(nb_xor, "bitwise_xor")
TS_BINARY(nb_lshift, "bitwise_left_shift")
TS_BINARY(nb_rshift, "bitwise_right_shift")
TS_BINARY(nb_inplace_add, "add_")
TS_BINARY(nb_inplace_subtract, "sub_")
TS_BINARY(nb_inplace_multiply, "mul_")
TS_BINARY(nb_inplace_true_divide, "div_")
TS_BINARY(nb_inplace_floor_divide, "floor_divide_")
TS_BINARY(nb_inplace_remainder, "remainder_")
TS_BINARY(inplace_power, "pow_")
TS_BINARY(nb_inplace_and, "bitwise_and_")
TS_BINARY(nb_inplace_or, "bitwise_or_")
TS_BINARY(nb_inplace_xor, "bitwise_xor_")
TS_BINARY(nb_inplace_lshift, "bitwise_left_shift_")
TS_BINARY(nb_inplace_rshift, "bitwise_right_shift_")
TS_BINARY(equal, "eq")
TS_BINARY(not_equal, "ne")
TS_BINARY(less, "lt")
TS_BINARY(less_equal, "le")
TS_BINARY(greater, "gt")
TS_BINARY(greater_equal, "ge")
TS_UNARY(nb_negative, "neg")
TS_UNARY(nb_absolute, "abs")

PyObject* nb_invert(PyObject* a) {
  static const Op op("bitwise_not");
  return guarded([&] {
    TS_CHECK_TYPE(is_integral(tensor_of(a).dtype(), true),
                  "~ (operator.invert) is only implemented on integer and Boolean-type tensors, got ",
                  tensor_of(a).dtype());
    return apply1(op, "bitwise_not", a);
  });
}

PyObject* nb_positive(PyObject* a) {
  return guarded([&] {
    TS_CHECK(!is_bool(tensor_of(a).dtype()), "The `+` operator, on a bool tensor is not supported.");
    return Py_NewRef(a);
  });
}

// Both sides must be tensors: numbers have no matrix product.
PyObject* nb_matrix_multiply(PyObject* a, PyObject* b) {
  static const Op op("matmul");
  return guarded([&] {
    if (g_overrides_watched) [[unlikely]]
      if (PyObject* result = try_override_slot("matmul", a, b, true)) return result;
    Operand x, y;
    if (!x.from(a) || !y.from(b) || x.value().is_number() || y.value().is_number() || x.is_array()) {
      PyObject* result = try_override_slot("matmul", a, b, true);
      return result ? result : not_implemented();
    }
    promote_as_numpy("matmul", a, x, b, y);
    Value values[2] = {x.value(), y.value()};
    return invoke_operator(op.get(), values, 2);
  });
}

PyObject* nb_power(PyObject* a, PyObject* b, PyObject* modulus) {
  return modulus == Py_None ? power(a, b) : not_implemented();
}
PyObject* nb_inplace_power(PyObject* a, PyObject* b, PyObject* modulus) {
  return modulus == Py_None ? inplace_power(a, b) : not_implemented();
}

PyObject* nb_divmod(PyObject* a, PyObject* b) {
  PyRef quotient = PyRef::steal(nb_floor_divide(a, b));
  if (!quotient || quotient.get() == Py_NotImplemented) return quotient.release();
  PyRef rest = PyRef::steal(nb_remainder(a, b));
  return rest ? PyTuple_Pack(2, quotient.get(), rest.get()) : nullptr;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  switch (op) {
  case Py_EQ: return equal(a, b);
  case Py_NE: return not_equal(a, b);
  case Py_LT: return less(a, b);
  case Py_LE: return less_equal(a, b);
  case Py_GT: return greater(a, b);
  default: return greater_equal(a, b);
  }
}

// --- one element as a Python number ------------------------------------------------------------------------------

// The upper half of uint64 does not fit a Value: it goes by way of a Python int.
bool is_lone_uint64(const Tensor& t) { return t.dtype() == DType::UInt64 && t.numel() == 1; }
PyRef uint64_item(const Tensor& t) {
  TS_CHECK(!t.device().is_meta(), "Tensor.item() cannot be called on meta tensors: they have no data");
  uint64_t element = 0;
  copy_bytes_to_host(&element, materialized(t), sizeof element);
  return checked(PyLong_FromUnsignedLongLong(element));
}

int nb_bool(PyObject* self) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    TS_CHECK(t.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
    TS_CHECK(t.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
    if (is_lone_uint64(t)) return PyObject_IsTrue(uint64_item(t).get());
    if (is_complex(t.dtype())) return PyObject_IsTrue(checked(PyObject_CallMethod(self, "item", nullptr)).get());
    Value v = item_value(t);
    return static_cast<int>(v.tag == Tag::Float ? v.f != 0.0 : v.i != 0);
  });
}

// A complex element passes for a real one where nothing is lost.
Value python_scalar(PyObject* self, const char* type) {
  const Tensor& t = tensor_of(self);
  TS_CHECK_VALUE(t.numel() == 1, "only one element tensors can be converted to Python scalars, got shape ", t.sizes());
  if (!is_complex(t.dtype())) return item_value(t);
  Py_complex c = PyComplex_AsCComplex(checked(PyObject_CallMethod(self, "item", nullptr)).get());
  TS_CHECK(c.imag == 0.0, "value cannot be converted to type ", type, " without overflow: expected no imaginary part, ",
           "got ", c.imag, "; take .real first");
  return Value(c.real);
}

PyObject* nb_int(PyObject* self) {
  return guarded([&] {
    if (is_lone_uint64(tensor_of(self))) return uint64_item(tensor_of(self)).release();
    Value v = python_scalar(self, "int64_t");
    return checked(v.tag == Tag::Float ? PyLong_FromDouble(v.f) : PyLong_FromLongLong(v.i)).release();
  });
}
PyObject* nb_float(PyObject* self) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    if (is_lone_uint64(t)) return checked(PyNumber_Float(uint64_item(t).get())).release();
    return checked(PyFloat_FromDouble(python_scalar(self, "double").as_double())).release();
  });
}
PyObject* nb_index(PyObject* self) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    TS_CHECK_TYPE(t.numel() == 1 && is_integral(t.dtype(), true),
                  "only integer tensors of a single element can be converted to an index, got ", t.dtype(), t.sizes());
    if (is_lone_uint64(t)) return uint64_item(t).release();
    return checked(PyLong_FromLongLong(item_value(t).i)).release();
  });
}

} // namespace

#define TS_SLOT(name)                                                                                                  \
  { Py_##name, reinterpret_cast<void*>(name) }
std::vector<PyType_Slot> number_slots() {
  return {TS_SLOT(nb_add),
          TS_SLOT(nb_subtract),
          TS_SLOT(nb_multiply),
          TS_SLOT(nb_true_divide),
          TS_SLOT(nb_floor_divide),
          TS_SLOT(nb_remainder),
          TS_SLOT(nb_divmod),
          TS_SLOT(nb_power),
          TS_SLOT(nb_matrix_multiply),
          TS_SLOT(nb_and),
          TS_SLOT(nb_or),
          TS_SLOT(nb_xor),
          TS_SLOT(nb_lshift),
          TS_SLOT(nb_rshift),
          TS_SLOT(nb_inplace_add),
          TS_SLOT(nb_inplace_subtract),
          TS_SLOT(nb_inplace_multiply),
          TS_SLOT(nb_inplace_true_divide),
          TS_SLOT(nb_inplace_floor_divide),
          TS_SLOT(nb_inplace_remainder),
          TS_SLOT(nb_inplace_power),
          TS_SLOT(nb_inplace_and),
          TS_SLOT(nb_inplace_or),
          TS_SLOT(nb_inplace_xor),
          TS_SLOT(nb_inplace_lshift),
          TS_SLOT(nb_inplace_rshift),
          TS_SLOT(nb_negative),
          TS_SLOT(nb_positive),
          TS_SLOT(nb_absolute),
          TS_SLOT(nb_invert),
          TS_SLOT(nb_bool),
          TS_SLOT(nb_int),
          TS_SLOT(nb_float),
          TS_SLOT(nb_index),
          {Py_tp_richcompare, reinterpret_cast<void*>(compare)}};
}
#undef TS_SLOT

} // namespace ts::py
