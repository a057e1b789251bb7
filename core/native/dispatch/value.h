// The uniform argument: 16 bytes, borrowed. Laid out as ts_value, so that kernels receive it unchanged.
#pragma once
#include "tensor/tensor.h"
#include <optional>
#include <string>
#include <vector>

namespace ts {

struct Generator;

enum class Tag : int32_t {
  None = TS_V_NONE,
  Tensor = TS_V_TENSOR,
  Int = TS_V_INT,
  Float = TS_V_FLOAT,
  Bool = TS_V_BOOL,
  Str = TS_V_STR,
  Ints = TS_V_INTS,
  Floats = TS_V_FLOATS,
  Tensors = TS_V_TENSORS,
  DType = TS_V_DTYPE,
  Device = TS_V_DEVICE,
  Complex = TS_V_COMPLEX,
  Generator = 100, // core only from here on; never reaches a kernel
};

// A number as it came: kept exact until a dtype is chosen.
struct Scalar {
  Tag tag = Tag::Int; // Int, Float, Bool or Complex
  union {
    int64_t i = 0;
    double f;
    double parts[2]; // of a complex number
  };
  Scalar() = default;
  Scalar(int v) : i(v) {}
  Scalar(int64_t v) : i(v) {}
  Scalar(double v) : tag(Tag::Float), f(v) {}
  Scalar(bool v) : tag(Tag::Bool), i(v) {}
  Scalar(double re, double im) : tag(Tag::Complex), parts{re, im} {}
  bool is_float() const { return tag == Tag::Float; }
  bool is_complex() const { return tag == Tag::Complex; }
  double to_double() const { // TypeError of a complex number
    if (is_complex()) refuse_complex();
    return real();
  }
  double real() const { return is_float() || is_complex() ? f : static_cast<double>(i); }
  bool is(double v) const { return real() == v && imag() == 0; }
  Scalar conj() const { return is_complex() ? Scalar(parts[0], -parts[1]) : *this; }
  double imag() const { return is_complex() ? parts[1] : 0; }
  int64_t to_int() const; // RuntimeError if a float without an exact integer value in range
  DType dtype() const {
    if (is_complex()) return complex_type(default_dtype());
    return tag == Tag::Float ? default_dtype() : tag == Tag::Bool ? DType::Bool : DType::Int64;
  }
  [[noreturn]] static void refuse_complex();
};

struct Value {
  Tag tag = Tag::None;
  int32_t len = 0;
  union {
    int64_t i = 0;
    double f;
    TensorImpl* tensor;
    const int64_t* ints;
    const double* floats;
    const Tensor* tensors;
    const char* str;
    Generator* generator;
  };

  Value() = default;
  Value(std::nullopt_t) {}
  Value(const Tensor& t) : tag(t.defined() ? Tag::Tensor : Tag::None), tensor(t.impl()) {}
  Value(TensorImpl* t) : tag(t ? Tag::Tensor : Tag::None), tensor(t) {}
  Value(int v) : tag(Tag::Int), i(v) {}
  Value(int64_t v) : tag(Tag::Int), i(v) {}
  Value(double v) : tag(Tag::Float), f(v) {}
  Value(bool v) : tag(Tag::Bool), i(v) {}
  Value(const Scalar& s) : tag(s.tag), i(s.i) { // a complex one is borrowed
    if (s.is_complex()) len = 2, floats = s.parts;
  }
  Value(DType t) : tag(t == DType::Undefined ? Tag::None : Tag::DType), i(static_cast<int64_t>(t)) {}
  Value(Device d) : tag(d.defined() ? Tag::Device : Tag::None), i(d.pack()) {}
  Value(MemoryFormat m) : tag(Tag::Int), i(static_cast<int64_t>(m)) {}
  Value(IntSpan v) : tag(Tag::Ints), len(static_cast<int32_t>(v.size())), ints(v.data()) {}
  Value(const Dims& v) : Value(v.span()) {}
  Value(const std::vector<int64_t>& v) : Value(IntSpan(v)) {}
  Value(std::span<const double> v) : tag(Tag::Floats), len(static_cast<int32_t>(v.size())), floats(v.data()) {}
  Value(TensorList v) : tag(Tag::Tensors), len(static_cast<int32_t>(v.size())), tensors(v.data()) {}
  Value(const std::vector<Tensor>& v) : Value(TensorList(v)) {}
  Value(const char* s) : tag(Tag::Str), str(s) {}
  Value(const std::string& s) : Value(s.c_str()) {}
  Value(Generator* g) : tag(g ? Tag::Generator : Tag::None), generator(g) {}
  template <class T> Value(const std::optional<T>& v) : Value(v ? Value(*v) : Value()) {}

  bool is_none() const { return tag == Tag::None; }
  bool is_number() const { return tag == Tag::Int || tag == Tag::Float || tag == Tag::Bool || tag == Tag::Complex; }
  // A Tensor handle in place: the payload is exactly one.
  const Tensor& as_tensor() const { return *reinterpret_cast<const Tensor*>(&tensor); }
  TensorList as_tensors() const { return {tensors, static_cast<size_t>(len)}; }
  IntSpan as_ints() const { return {ints, static_cast<size_t>(len)}; }
  std::span<const double> as_floats() const { return {floats, static_cast<size_t>(len)}; }
  Scalar as_scalar() const {
    if (tag == Tag::Complex) return Scalar(floats[0], floats[1]);
    Scalar s;
    s.tag = tag;
    s.i = i;
    return s;
  }
  double as_double() const { // TypeError of a complex number
    if (tag == Tag::Complex) Scalar::refuse_complex();
    return tag == Tag::Float ? f : static_cast<double>(i);
  }
};
static_assert(sizeof(Value) == 16 && sizeof(ts_value) == 16);

// Arguments in, results out. Arguments are borrowed; results are owned by the frame's caller, see Results.
struct Frame {
  const Value* args;
  Value* rets;
  int32_t nargs;
  int32_t nrets;
  const Value& arg(int k) const { return args[k]; }
  void give(int k, Tensor t) {
    bool some = t.defined();
    rets[k].tag = some ? Tag::Tensor : Tag::None;
    rets[k].tensor = t.detach_ref();
  }
  void give(int k, std::vector<Tensor>&& list);
  void give(int k, int64_t v) { rets[k] = Value(v); }
  void give(int k, double v) { rets[k] = Value(v); }
  void give(int k, bool v) { rets[k] = Value(v); }
  void give(int k, const Scalar& v); // not a complex one, which would need memory of its own
};

// Owns up to kMax results and frees what is not taken.
class Results {
public:
  static constexpr int kMax = 8;
  Results() = default;
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() { clear(); }
  Value* data() { return values_; }
  Value& operator[](int k) { return values_[k]; }
  Tensor take(int k) {
    Value& v = values_[k];
    if (v.tag != Tag::Tensor) return {};
    v.tag = Tag::None;
    return Tensor::adopt(v.tensor);
  }
  std::vector<Tensor> take_list(int k);
  void clear();

private:
  Value values_[kMax];
};

// Copies of arguments that outlive the call (autograd nodes, captured graphs). Tensors are not kept: a slot of
// tensor tag becomes None, to be restored by whoever saved the tensor.
class OwnedValues {
public:
  OwnedValues() = default;
  explicit OwnedValues(std::span<const Value> args);
  OwnedValues(OwnedValues&&) = default;
  OwnedValues& operator=(OwnedValues&&) = default;
  const Value& operator[](size_t k) const { return k < count_ ? values_[k] : none(); }
  size_t size() const { return count_; }
  std::span<const Value> span() const { return {values_.get(), count_}; }

private:
  std::unique_ptr<Value[]> values_;
  std::unique_ptr<char[]> bytes_; // lists and strings
  size_t count_ = 0;
  static const Value& none() {
    static const Value v;
    return v;
  }
};

} // namespace ts
