// Between typed C++ functions and uniform frames.
#pragma once
#include "dispatch/operator.h"
#include <array>
#include <tuple>

namespace ts {

// --- a frame's argument as a C++ type ---------------------------------------------------------------------------
template <class T> struct Unbox;
template <> struct Unbox<const Tensor&> {
  static const Tensor& get(const Value& v) {
    static constexpr Value none; // as a static Tensor would be, but for a guard and a destructor in every body
    return (v.tag == Tag::Tensor ? v : none).as_tensor();
  }
};
template <> struct Unbox<TensorList> {
  static TensorList get(const Value& v) { return v.tag == Tag::Tensors ? v.as_tensors() : TensorList(); }
};
template <> struct Unbox<IntSpan> {
  static IntSpan get(const Value& v) { return v.tag == Tag::Ints ? v.as_ints() : IntSpan(); }
};
template <> struct Unbox<std::optional<IntSpan>> {
  static std::optional<IntSpan> get(const Value& v) {
    return v.tag == Tag::Ints ? std::optional(v.as_ints()) : std::nullopt;
  }
};
template <> struct Unbox<std::span<const double>> {
  static std::span<const double> get(const Value& v) {
    return v.tag == Tag::Floats ? v.as_floats() : std::span<const double>();
  }
};
template <> struct Unbox<int64_t> {
  static int64_t get(const Value& v) { return v.i; }
};
template <> struct Unbox<double> {
  static double get(const Value& v) { return v.as_double(); }
};
template <> struct Unbox<bool> {
  static bool get(const Value& v) { return v.i != 0; }
};
template <> struct Unbox<Scalar> {
  static Scalar get(const Value& v) { return v.as_scalar(); }
};
template <> struct Unbox<DType> {
  static DType get(const Value& v) { return v.tag == Tag::DType ? static_cast<DType>(v.i) : DType::Undefined; }
};
template <> struct Unbox<Device> {
  static Device get(const Value& v) { return v.tag == Tag::Device ? Device::unpack(v.i) : Device(); }
};
template <> struct Unbox<MemoryFormat> {
  static MemoryFormat get(const Value& v) { return static_cast<MemoryFormat>(v.i); }
};
template <> struct Unbox<const char*> {
  static const char* get(const Value& v) { return v.tag == Tag::Str ? v.str : nullptr; }
};
template <> struct Unbox<Generator*> {
  static Generator* get(const Value& v) { return v.tag == Tag::Generator ? v.generator : nullptr; }
};
// A raw value: Operand arguments that may be a tensor or a number.
template <> struct Unbox<const Value&> {
  static const Value& get(const Value& v) { return v; }
};
template <class T> struct Unbox<std::optional<T>> {
  static std::optional<T> get(const Value& v) {
    return v.is_none() ? std::nullopt : std::optional<T>(Unbox<T>::get(v));
  }
};

// --- a C++ function as an operator body -------------------------------------------------------------------------
namespace detail {
template <class R> struct GiveResult {
  static void give(Frame& f, R&& r) { f.give(0, std::move(r)); }
};
template <> struct GiveResult<const Tensor&> {
  static void give(Frame& f, const Tensor& r) { f.give(0, r); }
};
template <class... R> struct GiveResult<std::tuple<R...>> {
  static void give(Frame& f, std::tuple<R...>&& r) {
    [&]<size_t... I>(std::index_sequence<I...>) { (f.give(static_cast<int>(I), std::move(std::get<I>(r))), ...); }
    (std::index_sequence_for<R...>());
  }
};

template <auto Fn, class Signature> struct Boxed;
template <auto Fn, class R, class... A> struct Boxed<Fn, R (*)(A...)> {
  static constexpr int arity = sizeof...(A);
  static void run(const Operator&, Frame& f) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      if constexpr (std::is_void_v<R>)
        Fn(Unbox<A>::get(f.args[I])...);
      else
        GiveResult<R>::give(f, Fn(Unbox<A>::get(f.args[I])...));
    }
    (std::index_sequence_for<A...>());
  }
};
} // namespace detail

template <auto Fn> struct Body : detail::Boxed<Fn, decltype(Fn)> {};

// --- a C++ function as the computation of a primitive: results first, then the arguments ---
namespace detail {
template <class Signature> struct Returns;
template <class R, class... A> struct Returns<R (*)(A...)> { static constexpr bool nothing = std::is_void_v<R>; };
template <auto Fn, size_t N, class Signature> struct Computed;
template <auto Fn, size_t N, class... A> struct Computed<Fn, N, void (*)(A...)> {
  static constexpr int arity = static_cast<int>(sizeof...(A) - N);
  template <size_t I> static const Value& slot(const Frame& f) {
    if constexpr (I < N)
      return f.rets[I];
    else
      return f.args[I - N];
  }
  static void run(const Operator&, Frame& f) {
    [&]<size_t... I>(std::index_sequence<I...>) { Fn(Unbox<A>::get(slot<I>(f))...); }
    (std::index_sequence_for<A...>());
  }
};
} // namespace detail

template <auto Fn, size_t N> struct Compute : detail::Computed<Fn, N, decltype(Fn)> {};

// --- calling an operator from C++ -------------------------------------------------------------------------------
// `inline const Op add("add");` then `add(a, b)`; missing trailing arguments take the schema's defaults.
class Op {
public:
  explicit constexpr Op(const char* name) : name_(name) {}
  const Operator& get() const {
    const Operator* op = op_.load(std::memory_order_acquire);
    if (!op) [[unlikely]]
      op_.store(op = &get_operator(name_), std::memory_order_release);
    return *op;
  }
  // One tensor result (or none: an undefined tensor).
  template <class... A> Tensor operator()(const A&... args) const { return one(Arguments<A...>{{Value(args)...}}); }
  // N tensor results: auto [values, indices] = topk.multi<2>(x, k, ...).
  template <int N, class... A> std::array<Tensor, N> multi(const A&... args) const {
    Results r;
    invoke(r, args...);
    std::array<Tensor, N> out;
    for (int k = 0; k < N; ++k) out[static_cast<size_t>(k)] = r.take(k);
    return out;
  }
  // A list result.
  template <class... A> std::vector<Tensor> list(const A&... args) const {
    Results r;
    invoke(r, args...);
    return r.take_list(0);
  }
  template <class... A> void invoke(Results& results, const A&... args) const {
    run(results.data(), Arguments<A...>{{Value(args)...}});
  }
  static constexpr int kMaxArgs = 20;

private:
  template <class... A> using Arguments = std::array<const Value, sizeof...(A)>;
  // Out of line: a call by name costs its site no more than its arguments.
  Tensor one(std::span<const Value> given) const;
  void run(Value* results, std::span<const Value> given) const;

  const char* name_;
  mutable std::atomic<const Operator*> op_{nullptr};
};

} // namespace ts
