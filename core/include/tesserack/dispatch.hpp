// Header-only C++20 help for libraries of dispatch keys and operators, on top of ts_dispatch of abi.h.
//
//   void saxpy(Call& call) {
//     Tensor x = call.tensor(0), out = call.empty(x.sizes(), x.dtype(), x);
//     ...
//     call.give(0, out);
//   }
//   void setup() {
//     define("acme::saxpy(Tensor x, Tensor y, float a=1) -> Tensor", "a * x + y.");
//     kernel<saxpy>("acme::saxpy", "cpu");
//   }
//   TESSERACK_PLUGIN("acme-operators", "1.0", setup);
//
// What fails in the core is thrown on as Failed, and raised again as it was once the kernel has ended. A kernel throws
// backend::Error, best by fail(TS_VALUE_ERROR, "..."), for errors of its own; TS_DECLINED leaves the call to others.
#ifndef TESSERACK_DISPATCH_HPP
#define TESSERACK_DISPATCH_HPP

#include <tesserack/backend.hpp>

#include <initializer_list>
#include <utility>

#pragma GCC visibility push(hidden)
namespace tesserack::dispatch {

using backend::dtype_of;
using backend::Error;
using backend::fail;

// A function of the core gave back a status; its message is set.
struct Failed {
  int status;
};
inline void check(int status) {
  if (status != TS_OK) throw Failed{status};
}

inline const ts_host*& host() {
  static const ts_host* table = nullptr;
  return table;
}
inline const ts_dispatch& core() { return *host()->dispatch; }

// Runs f for the core: what it throws becomes a status.
template <typename F> int guarded(F&& f) noexcept {
  try {
    f();
    return TS_OK;
  } catch (const Failed& failed) {
    return failed.status;
  } catch (const Error& error) {
    return error.status() == TS_DECLINED ? TS_DECLINED : backend::report(host(), error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return backend::report(host(), TS_OUT_OF_MEMORY, "out of host memory for a kernel's workspace");
  } catch (const std::exception& error) {
    return backend::report(host(), TS_ERROR, error.what());
  } catch (...) {
    return backend::report(host(), TS_ERROR, "unknown C++ exception in a kernel");
  }
}

// A tensor of a call, by its number there; valid as long as the call.
class Tensor {
public:
  Tensor(ts_boxed* call, int64_t number) : call_(call), number_(number) {
    t_.struct_size = sizeof t_;
    check(core().tensor(call, number, &t_));
  }
  int64_t number() const { return number_; }
  bool is_none() const { return (t_.flags & TS_T_NONE) != 0; }
  bool is_contiguous() const { return (t_.flags & TS_T_CONTIGUOUS) != 0; }
  int32_t dtype() const { return t_.dtype; }
  int64_t numel() const { return t_.numel; }
  std::span<const int64_t> sizes() const { return {t_.sizes, static_cast<size_t>(t_.ndim)}; }
  std::span<const int64_t> strides() const { return {t_.strides, static_cast<size_t>(t_.ndim)}; }
  // The first element. An error on a device that the host cannot read, and for another dtype than T's.
  template <typename T> T* data() const {
    if (dtype() != dtype_of<T>())
      fail(TS_ERROR, "data: expected a tensor of %s, got %s", backend::dtype_name(dtype_of<T>()),
           backend::dtype_name(dtype()));
    void* first = nullptr;
    check(core().data(call_, number_, &first));
    return static_cast<T*>(first);
  }

private:
  ts_boxed* call_;
  int64_t number_;
  ts_tensor t_{};
};

// An argument for invoke, or a result. Lists are the caller's.
struct Value : ts_value {
  Value() : ts_value{TS_V_NONE, 0, {0}} {}
  Value(const ts_value& v) : ts_value(v) {}
  Value(const Tensor& t) : ts_value{TS_V_TENSOR, 1, {t.number()}} {}
  Value(int64_t i) : ts_value{TS_V_INT, 0, {i}} {}
  Value(int i) : Value(int64_t{i}) {}
  Value(bool b) : ts_value{TS_V_BOOL, 0, {b}} {}
  Value(double f) : ts_value{TS_V_FLOAT, 0, {0}} { as.f = f; }
  Value(const char* s) : ts_value{TS_V_STR, 0, {0}} { as.str = s; }
  Value(std::span<const int64_t> v) : ts_value{TS_V_INTS, static_cast<int32_t>(v.size()), {0}} { as.ints = v.data(); }
};

// The call that a kernel serves.
class Call {
public:
  explicit Call(ts_boxed* call) : call_(call) {
    info_.struct_size = sizeof info_;
    check(core().info(call, &info_));
  }
  ts_boxed* raw() const { return call_; }
  const char* op() const { return info_.op; }
  int32_t n_args() const { return info_.n_args; }
  int32_t n_results() const { return info_.n_results; }
  Value arg(int32_t k) const {
    Value v;
    check(core().argument(call_, k, &v));
    return v;
  }
  Tensor tensor(int32_t k) const { return as_tensor(arg(k)); }
  double number(int32_t k) const {
    Value v = arg(k);
    if (v.tag != TS_V_FLOAT && v.tag != TS_V_INT && v.tag != TS_V_BOOL)
      fail(TS_ERROR, "%s: expected a number as argument %d, got a value of tag %d", op(), k, v.tag);
    return v.tag == TS_V_FLOAT ? v.as.f : static_cast<double>(v.as.i);
  }
  Value result(int32_t k) const {
    Value v;
    check(core().result(call_, k, &v));
    return v;
  }
  // A tensor value, or the first of a list.
  Tensor as_tensor(const Value& v) const {
    if (v.tag != TS_V_TENSOR && (v.tag != TS_V_TENSORS || v.len == 0))
      fail(TS_ERROR, "%s: expected a tensor, got a value of tag %d", op(), v.tag);
    return Tensor(call_, v.as.i);
  }
  void redispatch() const { check(core().redispatch(call_)); }
  void set_arg(int32_t k, const Value& v) const { check(core().set_argument(call_, k, &v)); }
  void give(int32_t k, const Value& v) const { check(core().set_result(call_, k, &v)); }
  Tensor empty(std::span<const int64_t> sizes, int32_t dtype, const Tensor& like) const {
    int64_t number = 0;
    check(core().empty(call_, sizes.data(), static_cast<int32_t>(sizes.size()), dtype, like.number(), &number));
    return Tensor(call_, number);
  }
  // The first result of another operator.
  Value invoke(const char* op, std::initializer_list<Value> args) const {
    ts_value values[24], first;
    if (args.size() > 24) fail(TS_ERROR, "invoke: at most 24 arguments, got %zu", args.size());
    int32_t n = 0;
    for (const Value& v : args) values[n++] = v;
    check(core().invoke(call_, op, values, n, &first, 1));
    return first;
  }

private:
  ts_boxed* call_;
  ts_boxed_info info_{};
};

// While it lives, other threads of the interpreter run, and nothing of the call may be asked.
class Released {
public:
  explicit Released(const Call& call) : call_(call.raw()) { check(core().release_interpreter(call_, 1)); }
  ~Released() { core().release_interpreter(call_, 0); }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

private:
  ts_boxed* call_;
};

template <void (*Function)(Call&)> int run(ts_boxed* raw, void*) {
  return guarded([&] {
    Call call(raw);
    Function(call);
  });
}

// --- in setup ------------------------------------------------------------------------------------------------------

inline void register_key(const char* name, const char* neighbour, bool before) {
  check(core().register_key(name, neighbour, before));
}
template <void (*Function)(Call&)> void kernel(const char* op, const char* key) {
  check(core().set_kernel(op, key, run<Function>, nullptr, nullptr));
}
template <void (*Function)(Call&)> void fallback(const char* key) { kernel<Function>(nullptr, key); }
inline void define(const char* schema, const char* doc, ts_boxed_fn function = nullptr, uint32_t flags = 0) {
  ts_operator op{};
  op.struct_size = sizeof op;
  op.schema = schema, op.doc = doc, op.run = function, op.flags = flags;
  check(core().define_operator(&op));
}
// With a function for every backend that has no kernel of its own.
template <void (*Function)(Call&)> void define(const char* schema, const char* doc, uint32_t flags = 0) {
  define(schema, doc, run<Function>, flags);
}

template <void (*Setup)()> int set_up(void*, const ts_host* given) {
  host() = given;
  return guarded(Setup);
}

} // namespace tesserack::dispatch
#pragma GCC visibility pop

// The entry point of a library; `setup` is a function void(). Give string literals.
#define TESSERACK_PLUGIN(name, version, setup)                                                                         \
  extern "C" __attribute__((visibility("default"))) int tesserack_plugin(const ts_host*, const ts_plugin** out) {      \
    static const ts_plugin plugin = {                                                                                  \
        sizeof(ts_plugin), TS_ABI_MAJOR, 0, name, version, nullptr, ::tesserack::dispatch::set_up<setup>};             \
    *out = &plugin;                                                                                                    \
    return TS_OK;                                                                                                      \
  }                                                                                                                    \
  static_assert(true)

#endif // TESSERACK_DISPATCH_HPP
