// How operators are declared. One statement per operator, in the file of its family:
//
//   TS_OPERATORS(activations) {
//     def("silu(Tensor self) -> Tensor")
//         .pointwise("self * sigmoid(self)").promote(Promote::Float).inplace().out()
//         .doc("Sigmoid linear unit, x * sigmoid(x), elementwise.");
//     def("softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor")
//         .rule<softmax_rule>()       // Tensor softmax_rule(const Tensor& self, int64_t dim, DType dtype)
//         .kernel("softmax", "self: contiguous result", "dim wrapped self")
//         .decompose<softmax_parts>() // Tensor softmax_parts(const Tensor& self, int64_t dim, DType dtype)
//         .saves("result")
//         .gradient([](GradContext& c) { c.set(0, ops::softmax_backward(c.grad(), c.result(), c.value<int64_t>(1))); })
//         .out()
//         .doc("...");
//     def("softmin(Tensor self, int dim) -> Tensor").body<softmin>().doc("...");
//   }
//
// The kinds; registration refuses what is none of them:
// - A *pointwise* operator is an expression; its kernel, dtype rule and gradient follow from it.
// - A *primitive* has a rule, and a kernel, a decomposition, or both. The rule takes the arguments and returns
//   outline(sizes, dtype, device) for each result (runtime/empty.h; a tuple for several); every check and every error
//   is there, and it touches no data. The kernel is data: its name, how each operand must lie, and its parameters by
//   name. The decomposition is what the operator is made of where a card has no such kernel. What no data can say is a
//   .computation<g>(why): it takes the results, which exist exactly as outlined and have elements, then the arguments,
//   launches kernels and calls operators. The core owns the memory: a fresh block, the out= tensor, the in-place
//   target. A primitive that writes arguments and returns them (`-> Tensor(a!)`, `-> ()`) has a rule that returns
//   nothing and a computation without results. On the meta device only rules run.
// - A *data-dependent* primitive (nonzero, unique) has results whose sizes follow from values. Its rule outlines them
//   as small as they can be, so dtypes, devices and numbers of dims are known; .make<fn>() returns the real ones.
//   NotImplementedError on the meta device. Where only some calls depend on data, a composite chooses.
// - A *view* has a body that shows argument 0's memory in another geometry, and launches nothing: .view(), or
//   .untracked_view() where autograd is not to know of the sharing (detach).
// - An *answer* is no tensor but a number or a truth for the host: .answer<fn>(). Where it reads the device it says
//   .reads_host().
// - A *composite* has a body made of other operators, and is differentiated by tracing through it; one that is
//   not_differentiable runs its parts below autograd. It may give a rule besides, so that a backend that replaces it
//   need not trace it, and then .gradient_if_replaced.
// No rule, computation or body asks which dispatch keys are on, whether gradients are recorded, or whether a card's
// work is: what runs is the same under a recorder. A composite that is made of something else where its gradient is
// recorded says .when_recorded<fn>(); random numbers' places go to kernels by Launch::random (tools/layers.py looks).
#pragma once
#include "autograd/gradient.h"
#include "dispatch/boxing.h"
#include "dispatch/operator.h"
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace ts::pointwise {
struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;
} // namespace ts::pointwise

namespace ts {

// How a pointwise operator's result dtype follows from its operands.
enum class Promote : uint8_t {
  Arith,   // the promoted dtype: add, mul, maximum
  Float,   // the promoted dtype, integers becoming the default float dtype: exp, div
  Compare, // operands promoted among themselves, the result is bool: eq, lt, isnan
  Integer, // promoted, must not be floating: bitwise
  Number,  // the promoted dtype, bool becoming int64: square
  Keep,    // the first tensor's dtype whatever the others are: masked_fill
  Same,    // the one dtype that all tensors are of: heaviside
};

class Def {
public:
  explicit Def(const char* schema);
  Def(Def&&) = default;
  ~Def() noexcept(false); // registers the operator and its variants

  // Pointwise: an expression over argument names with + - * / and comparisons, and functions named as the scalar
  // instructions of abi.h in lower case (exp, select(c, a, b), max, floordiv, ...), trigamma, zeta. Tensor, Operand and
  // Scalar arguments may appear. See ops/pointwise/expr.h.
  Def& pointwise(const char* expression);
  Def& pointwise(ts::pointwise::Expr expression); // variable k is argument k
  Def& promote(Promote rule);
  // Better conditioned or cheaper derivatives than symbolic ones; may use grad, result and argument names.
  Def& derivative(const char* arg, const char* expression);
  Def& round_numbers();                               // compares with numbers rounded to a half dtype (hardshrink)
  Def& no_bool();                                     // RuntimeError for bool operands (sub, neg)
  Def& no_integer();                                  // RuntimeError unless floating (after promotion)
  Def& floating_one_of(const char* a, const char* b); // RuntimeError where both arguments are integers
  Def& no_complex();             // NotImplementedError for complex operands (a law of real numbers alone)
  Def& truncate_numbers();       // Scalars lose their fraction beside integers, where they would be refused
  Def& boolean(const char* arg); // the argument must be a bool tensor, and takes no part in promotion
  Def& single(const char* arg);  // a number, or a tensor without dims
  // Of complex operands: the function is conj(expression(conj(a), b, ...)), by bits of arguments.
  Def& conjugated(uint64_t args, bool result);
  Def& complex_form(const char* op); // the operator that runs where an operand is complex: abs is not holomorphic

  template <auto Fn> Def& body() { return boxed(&Body<Fn>::run, Body<Fn>::arity); }
  Def& boxed(BodyFn fn, int arity = -1);
  // Of a composite: the body where an argument requires gradients and they are recorded. Chosen at the autograd key.
  template <auto Fn> Def& when_recorded() {
    op_->recorded_body = &Body<Fn>::run;
    return *this;
  }
  // Of a primitive; N results are new tensors.
  template <auto Fn> Def& rule() { return boxed_rule(&Body<Fn>::run, Body<Fn>::arity); }
  // The kernel that fills them, how each operand must lie and in which dtype, and its parameters by name:
  // dispatch/kernel_spec.h has the words. Without a decomposition, the cpu's kernel serves cards that have none.
  Def& kernel(const char* name, const char* operands, const char* parameters = "");
  Def& heavy();                                           // worth releasing the interpreter, whatever the sizes
  Def& work(const char* arg, const char* other, int dim); // elements of one argument times a size of another
  // What it is made of where a card has no such kernel, or declines: a function of the arguments that returns the
  // results, made of other operators; or one that fills N results, as a computation does.
  template <auto Fn, size_t N = 1> Def& decompose() {
    if constexpr (detail::Returns<decltype(Fn)>::nothing)
      return boxed_decompose(&Compute<Fn, N>::run, nullptr, Compute<Fn, N>::arity, N);
    else
      return boxed_decompose(nullptr, &Body<Fn>::run, Body<Fn>::arity, 0);
  }
  // Of a primitive that is no kernel's data: code, and why.
  template <auto Fn, size_t N = 1> Def& computation(const char* why) {
    return boxed_compute(&Compute<Fn, N>::run, Compute<Fn, N>::arity, N, why);
  }
  // Of a data-dependent primitive, instead of a computation: returns the results.
  template <auto Fn> Def& make() { return boxed_make(&Body<Fn>::run, Body<Fn>::arity); }
  template <auto Fn> Def& answer() {
    answer_ = true;
    return boxed(&Body<Fn>::run, Body<Fn>::arity);
  }
  Def& reuses_self(); // compute may be given argument 0 itself as the result: in-place forms need no copy
  // Effects that the schema does not tell (what is written, a Generator argument), those of a composite's parts
  // included.
  Def& random(); // may draw random numbers
  // What the schema says is written, is written where this argument is true, and then no result follows from what was
  // there before: statistics.
  Def& writes_where(const char* argument);
  Def& reads_host();             // may wait for values of tensors
  Def& data_dependent();         // of composites: sizes of results follow from values, which are read on the host
  Def& gradient(GradFn fn);      // .saves names the tensors it reads: argument names, "result" or "result1"
  Def& saves(const char* names); // space-separated
  // Of a composite with a rule: used on backends that have a kernel of their own for all of it.
  Def& gradient_if_replaced(GradFn fn);
  // grad_fn's name, where PyTorch's is not the operator's with "Backward0" after it.
  Def& node_name(const char* name);
  Def& node_name(NodeNameFn name);
  Def& not_differentiable();
  Def& view(); // results alias argument 0; made with make_view
  Def& untracked_view();
  // Takes every tensor with a conjugation or negation pending, as views take the tensor they look at.
  Def& keeps_bits();
  Def& any_device(); // tensor arguments may be on different devices

  Def& inplace(BodyFn fn = nullptr); // also declare name_(Tensor(a!) self, ...)
  // The same with a body of its own; without, an operator made of others is computed, then copied.
  template <auto Fn> Def& inplace() { return inplace(&Body<Fn>::run); }
  Def& out(unsigned rules = 0); // also declare the out= form; rules: OutRule
  Def& function_only();
  Def& method_only();
  Def& hidden();                      // no public name: reached from C++ and by tesserack.ops.<name>
  Def& in(const char* ns);            // also public in a namespace: "nn.functional", "special"
  Def& python_name(const char* name); // when it differs from the schema's
  Def& doc(const char* text);
  // What is true of all overloads of the name, said at one of them: words of ops/common/facts.h, more with each call.
  Def& facts(const char* words);
  const Operator& finish(); // registers now; the destructor then does nothing

private:
  Def& boxed_rule(BodyFn fn, int arity);
  Def& boxed_compute(BodyFn fn, int arity, size_t results, const char* why);
  Def& boxed_decompose(BodyFn fills, BodyFn parts, int arity, size_t results);
  Def& boxed_make(BodyFn fn, int arity);
  void finish_primitive();
  void finish_body();

  std::unique_ptr<Operator> op_;
  std::unique_ptr<PointwiseInfo, void (*)(PointwiseInfo*)> pointwise_;
  std::unique_ptr<KernelSpec, void (*)(KernelSpec*)> spec_;
  std::string facts_;
  bool inplace_ = false, out_ = false, answer_ = false, own_gradient_ = false;
  BodyFn inplace_body_ = nullptr;
};

inline Def def(const char* schema) { return Def(schema); }

// Runs once when the library loads.
#define TS_OPERATORS(family)                                                                                           \
  static void declare_##family();                                                                                      \
  static const ::ts::detail::Registrar registrar_##family(declare_##family, __FILE__);                                 \
  static void declare_##family()

namespace detail {
struct Registrar {
  Registrar(void (*declare)(), const char* file);
};
} // namespace detail

} // namespace ts
