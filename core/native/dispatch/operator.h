// An operator: its schema, its kernels by key, and what its declaration says. Declared through ops/common/declare.h.
#pragma once
#include "dispatch/schema.h"
#include "tensor/keys.h"
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ts {

struct Operator;
struct GradContext;   // autograd/gradient.h
struct PointwiseInfo; // ops/pointwise/info.h
struct KernelSpec;    // dispatch/kernel_spec.h

// `keys` are those still to be considered, this kernel's key included.
using KernelFn = void (*)(void* ctx, const Operator& op, Frame& frame, KeySet keys);
using BodyFn = void (*)(const Operator& op, Frame& frame);
using GradFn = void (*)(GradContext&);
using NodeNameFn = std::string (*)(const GradContext&);

struct Kernel {
  KernelFn fn = nullptr;
  void* ctx = nullptr;
  const char* owner = nullptr; // who registered it, for dispatch.table
};

// An operator's kernels by key. What is replaced stays: another thread may be about to run it.
class KernelTable {
public:
  // NULL where there is none.
  const Kernel* find(int key) const { return slots_[key].load(std::memory_order_acquire); }
  void set(int key, const Kernel& kernel); // one without a function empties the place
  void set_kept(int key, const Kernel* kernel) { slots_[key].store(kernel, std::memory_order_release); }

private:
  std::atomic<const Kernel*> slots_[64]{};
};
const Kernel* keep_kernel(const Kernel& kernel); // for ever; equal ones are kept once

enum class Variant : uint8_t { Functional, Inplace, Out };

// What a call does besides computing its results from its arguments, parts of composites included: all that capture,
// fusion and planning rely on.
struct Effects {
  uint64_t mutates = 0;        // bit per argument that is written, from the schema
  int8_t writes_where = -1;    // the argument that says whether they are: statistics, in training, which then read none
  bool random = false;         // may draw from a generator
  bool reads_host = false;     // may wait for values of tensors
  bool data_dependent = false; // sizes of results follow from values: no rule tells them without the data
  bool communicates = false;   // other ranks make the call too, in the same order: never left out, doubled or moved
};

// What ops/common/declare.h says of each. Opaque: registered at run time, with a kernel that nothing is known of.
enum class OperatorKind : uint8_t { Composite, Pointwise, Primitive, DataDependent, View, Answer, Opaque };

// What out= of an operator asks of the tensors it is given, where it is not that a result can be cast to their dtype.
enum OutRule : uint8_t {
  kCasts = 1,          // of several results, too: else those are of the outs' dtypes
  kSameDtype = 2,      // out is of the dtype of the result
  kSameOrByte = 4,     // that, or uint8
  kLikeFirst = 8,      // out is of the dtype of the first operand
  kApart = 16,         // out lies nowhere where an operand lies
  kComputesInOut = 32, // the computation is in the dtype of out
  kDtypeIsType = 64,   // a dtype that the result cannot be cast to is a TypeError
  kAnyDtype = 128,     // out is of any dtype, also of one that the result cannot be cast to
};

struct Operator {
  static constexpr int kKeys = 64;

  KernelTable table;
  std::unique_ptr<Schema> schema;
  BodyFn body = nullptr; // of a composite what it is made of; of a primitive what runs it (dispatch/primitive.h)
  BodyFn recorded_body = nullptr; // of one made of others: instead, where its gradient is recorded
  BodyFn rule = nullptr;          // arguments to outlines of the results; every check and error
  BodyFn compute = nullptr;       // fills results that exist
  BodyFn make = nullptr;          // of a data-dependent primitive instead: returns results within the outlines
  // How results are computed, as data; a primitive has a kernel or says why it is code.
  const KernelSpec* kernel = nullptr; // which kernel computes them, and with what
  BodyFn decompose = nullptr;         // fills results by other operators, where the kernel is missing or declines
  BodyFn parts = nullptr;             // the same as an operator's body, where it can be: returns the results
  const char* why_code = nullptr;     // without a kernel: why the computation cannot be data
  GradFn gradient = nullptr;
  const PointwiseInfo* pointwise = nullptr;
  const Operator* functional = nullptr; // of in-place and out variants: the operator they vary
  const Operator* inplace = nullptr;    // of a functional operator: its variants, if any
  const Operator* out = nullptr;
  Effects effects;
  std::atomic<KeySet> overridden{0}; // backends with a kernel of their own for the whole operator
  Variant variant = Variant::Functional;
  OperatorKind kind = OperatorKind::Composite;
  bool differentiable = true;        // false: results never require gradients (comparisons, argmax)
  bool view = false;                 // results alias the first argument
  bool reuses_self = false;          // compute may be given argument 0 itself as result 0
  bool any_device = false;           // tensors may live on different devices (copies, indexing), or there is but one
  bool is_function = true;           // tesserack.name
  bool is_method = true;             // Tensor.name
  bool hidden = false;               // internal: no public name
  unsigned out_rules = 0;            // of a functional operator: OutRule
  uint64_t keeps_bits = 0;           // bit per argument taken with a conjugation or negation pending
  uint64_t save_args = 0;            // bit per argument whose tensor the gradient reads
  uint64_t save_results = 0;         // bit per result it reads
  std::string node_name;             // of grad_fn; empty: from the schema, "MulBackward0"
  NodeNameFn node_name_of = nullptr; // where it depends on the call
  std::string doc;
  std::string python_name;             // defaults to schema->base
  std::vector<std::string> namespaces; // extra public places: "nn.functional", "special"
  void* extension = nullptr;           // of operators registered at run time
  const char* origin = "tesserack";

  const std::string& name() const { return schema->name; }
  bool composite() const { return kind == OperatorKind::Composite; }
  // Differentiated by tracing through its body, unless a backend replaces it and a gradient is declared for that.
  bool traced() const { return composite() && (differentiable || variant != Variant::Functional); }
};

// Key set of a call: tensors' keys, thread-local include and exclude applied.
inline KeySet call_keys(const Frame& f) {
  KeySet keys = 0;
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      keys |= v.tensor->keys;
    else if (v.tag == Tag::Tensors) {
      for (const Tensor& t : v.as_tensors())
        if (t.defined()) keys |= t->keys;
    }
  }
  const ThreadState& tls = thread_state();
  return (keys | tls.include) & ~tls.exclude;
}

// Runs the kernel of the highest key among `keys`; operators without tensor arguments run their body.
inline void redispatch(const Operator& op, Frame& f, KeySet keys) {
  while (keys) {
    if (const Kernel* kernel = op.table.find(highest_key(keys))) [[likely]]
      return kernel->fn(kernel->ctx, op, f, keys);
    keys &= ~key_bit(highest_key(keys));
  }
  op.body(op, f);
}
inline void call(const Operator& op, Frame& f) { redispatch(op, f, call_keys(f)); }

// --- registry ---------------------------------------------------------------------------------------------------
// Adds an operator; RuntimeError if the name is taken. The registry owns it for the life of the process.
Operator& register_operator(std::unique_ptr<Operator> op);
// Frees the name of one that a program has made. Graphs and functions that hold the operator go on calling it.
void forget_operator(std::string_view name);
const Operator* find_operator(std::string_view name); // "sum.dim", or NULL
const Operator& get_operator(std::string_view name);  // RuntimeError with near names
std::vector<const Operator*> all_operators();         // in order of declaration
std::vector<const Operator*> overloads(std::string_view base);
Operator& mutable_operator(const Operator& op); // to add kernels

// What kernels at a backend's key do around their work: tensors share the device, and versions of what is written
// count.
void check_backend_call(const Operator& op, const Frame& f);
bool writes(const Operator& op, const Frame& f); // whether this call does, by Effects::mutates and writes_where
void count_writes(const Operator& op, const Frame& f);
bool runs_body(const Operator& op, int key); // the key, a backend's, holds nothing but the operator's body

// Kernel used by every operator that has none of its own for `key`; also applied to operators declared later.
void set_key_default(int key, Kernel kernel);
// A functionality key for a plugin, next to an existing one. RuntimeError when the range is full or the name taken.
int register_key(const std::string& name, int next_to, bool before);
int find_key(const std::string& name); // -1 if unknown
std::string key_name(int key);

// --- thread-local modes -----------------------------------------------------------------------------------------
class ExcludeKeys {
public:
  explicit ExcludeKeys(KeySet keys) : state_(thread_state()), saved_(state_.exclude) { state_.exclude |= keys; }
  ~ExcludeKeys() { state_.exclude = saved_; }
  ExcludeKeys(const ExcludeKeys&) = delete;
  ExcludeKeys& operator=(const ExcludeKeys&) = delete;

private:
  ThreadState& state_;
  KeySet saved_;
};
// These are not included, whoever has included them.
class WithoutKeys {
public:
  explicit WithoutKeys(KeySet keys) : state_(thread_state()), saved_(state_.include) { state_.include &= ~keys; }
  ~WithoutKeys() { state_.include = saved_; }
  WithoutKeys(const WithoutKeys&) = delete;
  WithoutKeys& operator=(const WithoutKeys&) = delete;

private:
  ThreadState& state_;
  KeySet saved_;
};
class IncludeKeys {
public:
  explicit IncludeKeys(KeySet keys) : state_(thread_state()), saved_(state_.include) { state_.include |= keys; }
  ~IncludeKeys() { state_.include = saved_; }
  IncludeKeys(const IncludeKeys&) = delete;
  IncludeKeys& operator=(const IncludeKeys&) = delete;

private:
  ThreadState& state_;
  KeySet saved_;
};

inline bool grad_enabled() { return !(thread_state().exclude & key_bit(key::Autograd)); }
inline void set_grad_enabled(bool on) {
  KeySet& exclude = thread_state().exclude;
  exclude = on ? exclude & ~key_bit(key::Autograd) : exclude | key_bit(key::Autograd);
}
class GradMode {
public:
  explicit GradMode(bool on) : saved_(thread_state().exclude) { set_grad_enabled(on); }
  ~GradMode() { thread_state().exclude = saved_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

private:
  KeySet saved_;
};

} // namespace ts
