#include "python/tensor/items.h"
#include "ops/common/narrow.h"
#include "python/calls/parse.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ts::py {

// IEEE 754 binary16 by way of binary32 arithmetic, which rounds to nearest even.
float half_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Reading the bits as a float gives the value scaled by 2^-112, subnormals included.
  float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

uint16_t float_to_half(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00; // rounds past the largest finite value
  if (magnitude < 0x1p-14f) {
    // Subnormal: adding 2^-1 aligns the unit in the last place with 2^-24.
    uint32_t rounded = std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    return static_cast<uint16_t>(sign | rounded);
  }
  uint32_t m = std::bit_cast<uint32_t>(magnitude);
  m += 0xfff + (m >> 13 & 1);
  return static_cast<uint16_t>(sign | (m - (112u << 23)) >> 13);
}

uint16_t float_to_bfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace {

template <class T> T load(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
template <class T> void store(void* at, T v) { std::memcpy(at, &v, sizeof v); }

// Floats are cut off as in C, but must fit.
template <class T> void store_integer(void* at, const Value& v, DType t) {
  constexpr auto low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  if (v.tag == Tag::Float) {
    double d = std::trunc(v.f);
    bool fits = d >= static_cast<double>(low) && d < std::ldexp(1.0, std::numeric_limits<T>::digits);
    TS_CHECK(fits, "value cannot be converted to type ", t, " without overflow");
    store(at, static_cast<T>(d));
    return;
  }
  // Unsigned types take negative numbers of their width modulo 2^n, as PyTorch does.
  bool fits = std::is_unsigned_v<T> ? v.i >= -static_cast<int64_t>(high / 2) - 1 || sizeof(T) == 8
                                    : v.i >= static_cast<int64_t>(low);
  if constexpr (sizeof(T) < 8) fits = fits && v.i <= static_cast<int64_t>(high);
  TS_CHECK(fits, "value cannot be converted to type ", t, " without overflow");
  store(at, static_cast<T>(v.i));
}

bool is_long(PyObject* o) { return PyLong_Check(o) && !PyBool_Check(o); }
// Integers beyond 64 bits are fine for floating dtypes.
double double_of_long(PyObject* o) {
  double d = PyLong_AsDouble(o);
  if (d == -1.0 && PyErr_Occurred()) throw_python();
  return d;
}

bool store_complex(DType t, void* at, PyObject* o) {
  Py_complex c;
  Value v;
  if (PyComplex_Check(o))
    c = PyComplex_AsCComplex(o);
  else if (is_long(o))
    c = {double_of_long(o), 0.0};
  else if (as_number(o, v))
    c = {v.as_double(), 0.0};
  else if (PyObject_HasAttrString(o, "__complex__")) // NumPy's complex64, which is no Python number
    c = PyComplex_AsCComplex(o);
  else
    return false;
  if (t == DType::Complex128) {
    store(at, c.real);
    store(static_cast<char*>(at) + 8, c.imag);
  } else if (t == DType::Complex32) {
    store(at, float_to_half(static_cast<float>(c.real)));
    store(static_cast<char*>(at) + 2, float_to_half(static_cast<float>(c.imag)));
  } else {
    store(at, static_cast<float>(c.real));
    store(static_cast<char*>(at) + 4, static_cast<float>(c.imag));
  }
  return true;
}

bool store_uint64(void* at, PyObject* o) {
  if (!PyLong_Check(o)) return false;
  uint64_t u = PyLong_AsUnsignedLongLong(o);
  if (u == static_cast<uint64_t>(-1) && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  store(at, u);
  return true;
}

} // namespace

Value load_item(DType t, const void* at) {
  switch (t) {
  case DType::Bool: return Value(load<uint8_t>(at) != 0);
  case DType::UInt8: return Value(static_cast<int64_t>(load<uint8_t>(at)));
  case DType::UInt16: return Value(static_cast<int64_t>(load<uint16_t>(at)));
  case DType::UInt32: return Value(static_cast<int64_t>(load<uint32_t>(at)));
  case DType::UInt64: {
    uint64_t u = load<uint64_t>(at);
    TS_CHECK_VALUE(u <= static_cast<uint64_t>(INT64_MAX), "uint64 value ", u,
                   " does not fit in a 64-bit signed number");
    return Value(static_cast<int64_t>(u));
  }
  case DType::Int8: return Value(static_cast<int64_t>(load<int8_t>(at)));
  case DType::Int16: return Value(static_cast<int64_t>(load<int16_t>(at)));
  case DType::Int32: return Value(static_cast<int64_t>(load<int32_t>(at)));
  case DType::Int64: return Value(load<int64_t>(at));
  case DType::Float16: return Value(static_cast<double>(half_to_float(load<uint16_t>(at))));
  case DType::BFloat16: return Value(static_cast<double>(bfloat_to_float(load<uint16_t>(at))));
  case DType::Float32: return Value(static_cast<double>(load<float>(at)));
  case DType::Float64: return Value(load<double>(at));
  default:
    if (is_narrow(t)) {
      const double value = narrow_value(t, load<uint8_t>(at));
      return is_floating(t) ? Value(value) : Value(static_cast<int64_t>(value));
    }
    fail(ErrorKind::Type, "a ", t, " value cannot be used as a real number");
  }
}

PyObject* item_object(DType t, const void* at) {
  if (t == DType::Complex64)
    return PyComplex_FromDoubles(load<float>(at), load<float>(static_cast<const char*>(at) + 4));
  if (t == DType::Complex128)
    return PyComplex_FromDoubles(load<double>(at), load<double>(static_cast<const char*>(at) + 8));
  if (t == DType::Complex32)
    return PyComplex_FromDoubles(half_to_float(load<uint16_t>(at)),
                                 half_to_float(load<uint16_t>(static_cast<const char*>(at) + 2)));
  if (t == DType::UInt64) return PyLong_FromUnsignedLongLong(load<uint64_t>(at));
  Value v = load_item(t, at);
  if (v.tag == Tag::Float) return PyFloat_FromDouble(v.f);
  return v.tag == Tag::Bool ? PyBool_FromLong(static_cast<long>(v.i)) : PyLong_FromLongLong(v.i);
}

bool store_item(DType t, void* at, PyObject* o) {
  if (is_complex(t)) return store_complex(t, at, o);
  if (t == DType::UInt64 && store_uint64(at, o)) return true;
  Value v;
  if (t == DType::Bool && (PyLong_Check(o) || PyComplex_Check(o))) {
    int truth = PyObject_IsTrue(o); // of any size
    if (truth < 0) throw_python();
    v = Value(truth != 0);
  } else if (t >= DType::Float16 && is_long(o)) {
    v = Value(double_of_long(o));
  } else if (!as_number(o, v)) {
    return false;
  }
  switch (t) {
  case DType::Bool: store(at, static_cast<uint8_t>(v.tag == Tag::Float ? v.f != 0 : v.i != 0)); break;
  case DType::UInt8: store_integer<uint8_t>(at, v, t); break;
  case DType::UInt16: store_integer<uint16_t>(at, v, t); break;
  case DType::UInt32: store_integer<uint32_t>(at, v, t); break;
  case DType::UInt64: store_integer<uint64_t>(at, v, t); break;
  case DType::Int8: store_integer<int8_t>(at, v, t); break;
  case DType::Int16: store_integer<int16_t>(at, v, t); break;
  case DType::Int32: store_integer<int32_t>(at, v, t); break;
  case DType::Int64: store_integer<int64_t>(at, v, t); break;
  case DType::Float16: store(at, float_to_half(static_cast<float>(v.as_double()))); break;
  case DType::BFloat16: store(at, float_to_bfloat(static_cast<float>(v.as_double()))); break;
  case DType::Float32: store(at, static_cast<float>(v.as_double())); break;
  case DType::Float64: store(at, v.as_double()); break;
  default:
    TS_CHECK_TYPE(!is_packed(t), "an element of ", t, " holds ", values_in(t),
                  " values, got one; try .view() of uint8");
    store(at, narrow_code(t, v.as_double()));
  }
  return true;
}

} // namespace ts::py
