#include "ops/declare.h"
#include "autograd/meta.h"
#include "autograd/record.h"
#include "autograd/view_history.h"
#include "ops/api.h"
#include "ops/check.h"
#include "ops/pointwise/info.h"
#include "ops/promotion.h"
#include <cstdio>
#include <cstring>
#include <sstream>

namespace ts {
namespace {

std::string schema_of_variant(const Schema& s, const std::string& suffix, bool inplace) {
  std::string text = s.base + (inplace ? "_" : "") + (s.overload.empty() && inplace ? "" : ".");
  text += inplace ? s.overload : s.overload.empty() ? suffix : s.overload + "_" + suffix;
  text += "(";
  bool keyword = false;
  for (size_t k = 0; k < s.args.size(); ++k) {
    const Argument& a = s.args[k];
    if (k) text += ", ";
    if (a.keyword_only && !keyword) text += "*, ", keyword = true;
    text += (inplace && k == 0 ? std::string("Tensor(a!)") : a.type.text()) + " " + a.name;
    if (a.has_default) text += "=" + a.default_text;
  }
  if (inplace) return text + ") -> Tensor(a!)";
  text += std::string(s.args.empty() ? "" : ", ") + (keyword ? "" : "*, ");
  return text + (s.returns.size() > 1 ? "Tensor(a!)[] out) -> (" : "Tensor(a!) out) -> ");
}

std::string out_schema(const Schema& s) {
  std::string text = schema_of_variant(s, "out", false);
  if (s.returns.size() == 1) return text + "Tensor(a!)";
  for (size_t k = 0; k < s.returns.size(); ++k)
    text +=
        (k ? ", Tensor " : "Tensor ") + (s.return_names[k].empty() ? "result" + std::to_string(k) : s.return_names[k]);
  return text + ")";
}

bool any_requires_grad(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k)
    if (f.args[k].tag == Tag::Tensor && requires_grad(f.args[k].tensor)) return true;
  return false;
}

// The in-place form of an operator without one of its own: compute, then copy into self.
void inplace_by_copy(const Operator& op, Frame& f) {
  const Tensor& self = f.args[0].as_tensor();
  std::vector<Value> args(f.args, f.args + f.nargs);
  Tensor before;
  if (grad_enabled() && any_requires_grad(f)) {
    check_inplace_history(op, self);
    // By way of the base: a view may reach outside the view it was made of.
    if (self->base && requires_grad(self)) refresh_view_history(self);
    // Gradients may need the values that are about to go.
    before = ops::clone(self);
    for (Value& v : args)
      if (v.tag == Tag::Tensor && v.tensor == self.impl()) v = before;
  }
  Results r;
  Frame inner{args.data(), r.data(), f.nargs, 1};
  call(*op.functional, inner);
  Tensor result = r.take(0);
  TS_CHECK(same(result.sizes(), self.sizes()), op.name(), ": result shape ", result.sizes(),
           " doesn't match the shape of the tensor modified in place, ", self.sizes());
  TS_CHECK(can_cast(result.dtype(), self.dtype()), op.name(), ": result type ", result.dtype(),
           " can't be cast to the desired output type ", self.dtype());
  ops::copy_(self, result);
  f.give(0, self);
}

void write_output(const Operator& op, const Tensor& out, const Tensor& result) {
  TS_CHECK(can_cast(result.dtype(), out.dtype()), op.name(), ": result type ", result.dtype(),
           " can't be cast to the desired output type ", out.dtype());
  TS_CHECK(result.device() == out.device(), op.name(),
           ": expected out on the device of the result, got out on another device");
  resize_output(out, result.sizes(), op.name().c_str());
  ops::copy_(out, result);
}

// A factory makes what `out` holds, where the call does not say.
void default_to_out(const Schema& functional, std::vector<Value>& args, const Tensor& out) {
  for (const Value& v : args)
    if (v.tag == Tag::Tensor || v.tag == Tag::Tensors) return;
  auto fill = [&](const char* name, Value v) {
    int k = functional.find(name);
    if (k >= 0 && args[static_cast<size_t>(k)].is_none()) args[static_cast<size_t>(k)] = v;
  };
  int k = functional.find("dtype");
  TS_CHECK(k < 0 || args[static_cast<size_t>(k)].is_none() ||
               Unbox<DType>::get(args[static_cast<size_t>(k)]) == out.dtype(),
           functional.base, ": dtype ", Unbox<DType>::get(args[static_cast<size_t>(k)]),
           " does not match dtype of out parameter (", out.dtype(), ")");
  fill("dtype", out.dtype());
  fill("device", out.device());
}

void out_by_copy(const Operator& op, Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k)
    if (f.args[k].tag == Tag::Tensor && requires_grad(f.args[k].tensor) && grad_enabled()) refuse_out_gradient(op);
  size_t n = op.schema->returns.size();
  Results r;
  std::vector<Value> args(f.args, f.args + f.nargs - 1);
  if (n == 1) default_to_out(*op.functional->schema, args, f.args[f.nargs - 1].as_tensor());
  Frame inner{args.data(), r.data(), f.nargs - 1, static_cast<int32_t>(n)};
  ExcludeKeys no_grad(key_bit(key::Autograd));
  call(*op.functional, inner);
  const Value& out = f.args[f.nargs - 1];
  if (n == 1) {
    write_output(op, out.as_tensor(), r.take(0));
    f.give(0, out.as_tensor());
    return;
  }
  TS_CHECK_TYPE(out.tag == Tag::Tensors && out.len == static_cast<int32_t>(n), op.name(), ": expected out= a tuple of ",
                n, " tensors");
  for (size_t k = 0; k < n; ++k) {
    write_output(op, out.as_tensors()[k], r.take(static_cast<int>(k)));
    f.give(static_cast<int>(k), out.as_tensors()[k]);
  }
}

void delete_info(PointwiseInfo* info) { delete info; }

// `body` of an in-place form that has one of its own, else NULL.
Operator& register_variant(const Operator& functional, Variant variant, const PointwiseInfo* pointwise, BodyFn body) {
  bool inplace = variant == Variant::Inplace;
  auto op = std::make_unique<Operator>();
  op->schema = parse_schema(inplace ? schema_of_variant(*functional.schema, "", true) : out_schema(*functional.schema));
  op->variant = variant;
  op->functional = &functional;
  op->pointwise = pointwise;
  op->any_device = true;
  op->doc = inplace ? "In-place version of " + functional.schema->base + "." : functional.doc;
  op->is_function = functional.is_function;
  op->is_method = inplace;
  op->hidden = functional.hidden;
  op->origin = functional.origin;
  op->differentiable = functional.differentiable;
  if (!functional.python_name.empty()) op->python_name = functional.python_name + (inplace ? "_" : "");
  if (pointwise) {
    op->body = run_pointwise;
    op->composite = false;
    op->table[key::Autograd] = {pointwise_autograd, nullptr, op->origin};
  } else {
    op->body = body ? body : inplace ? inplace_by_copy : out_by_copy;
  }
  return register_operator(std::move(op));
}

} // namespace

Def::Def(const char* schema) : op_(std::make_unique<Operator>()), pointwise_(nullptr, delete_info) {
  op_->schema = parse_schema(schema);
}

Def::~Def() noexcept(false) {
  if (op_) finish();
}

const Operator& Def::finish() {
  const PointwiseInfo* info = nullptr;
  if (pointwise_) {
    finish_pointwise(*op_, *pointwise_);
    op_->pointwise = info = pointwise_.release(); // lives as long as the operator: for ever
  }
  TS_CHECK(op_->body, "operator: '", op_->name(), "' is declared without a body");
  Operator& op = register_operator(std::move(op_));
  if (inplace_) op.inplace = &register_variant(op, Variant::Inplace, info, inplace_body_);
  if (out_) op.out = &register_variant(op, Variant::Out, info, nullptr);
  return op;
}

Def& Def::pointwise(const char* expression) {
  pointwise_.reset(new PointwiseInfo);
  for (const Argument& a : op_->schema->args) pointwise_->variables.push_back(a.name);
  pointwise_->variables.push_back("result");
  pointwise_->variables.push_back("grad");
  pointwise_->derivatives.resize(op_->schema->args.size());
  pointwise_->expr =
      ts::pointwise::parse(expression, std::span(pointwise_->variables.data(), op_->schema->args.size()));
  return *this;
}

Def& Def::promote(Promote rule) {
  pointwise_->promote = rule;
  if (rule == Promote::Compare || rule == Promote::Integer) op_->differentiable = false;
  return *this;
}

Def& Def::derivative(const char* arg, const char* expression) {
  int k = op_->schema->find(arg);
  TS_CHECK(k >= 0, "operator: '", op_->name(), "' has no argument ", arg);
  pointwise_->derivatives[static_cast<size_t>(k)] = ts::pointwise::parse(expression, pointwise_->variables);
  return *this;
}

Def& Def::no_bool() {
  pointwise_->no_bool = true;
  return *this;
}
Def& Def::no_integer() {
  pointwise_->no_integer = true;
  return *this;
}

Def& Def::truncate_numbers() {
  pointwise_->truncate_numbers = true;
  return *this;
}

Def& Def::boolean(const char* arg) {
  pointwise_->boolean_arg = op_->schema->find(arg);
  return *this;
}

Def& Def::boxed(BodyFn fn, int arity) {
  TS_CHECK(arity < 0 || arity == static_cast<int>(op_->schema->args.size()), "operator: the body of '", op_->name(),
           "' takes ", arity, " arguments, its schema has ", op_->schema->args.size());
  op_->body = fn;
  return *this;
}

Def& Def::gradient(GradFn fn) {
  op_->gradient = fn;
  op_->composite = false;
  return *this;
}

Def& Def::saves(const char* names) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    int k = op_->schema->find(word);
    if (k >= 0) {
      op_->save_args |= uint64_t{1} << k;
      continue;
    }
    TS_CHECK(word.starts_with("result"), "operator: '", op_->name(), "' has nothing named ", word, " to save");
    op_->save_results |= uint64_t{1} << (word.size() > 6 ? std::stoi(word.substr(6)) : 0);
  }
  return *this;
}

Def& Def::node_name(const char* name) {
  op_->node_name = name;
  return *this;
}
Def& Def::node_name(NodeNameFn name) {
  op_->node_name_of = name;
  return *this;
}

Def& Def::not_differentiable() {
  op_->differentiable = false;
  op_->composite = false;
  return *this;
}
Def& Def::view() {
  op_->view = true;
  return *this;
}
Def& Def::any_device() {
  op_->any_device = true;
  return *this;
}
Def& Def::inplace(BodyFn fn) {
  inplace_ = true;
  inplace_body_ = fn;
  return *this;
}
Def& Def::out() {
  out_ = true;
  return *this;
}
Def& Def::function_only() {
  op_->is_method = false;
  return *this;
}
Def& Def::method_only() {
  op_->is_function = false;
  return *this;
}
Def& Def::hidden() {
  op_->hidden = true;
  return *this;
}
Def& Def::in(const char* ns) {
  op_->namespaces.emplace_back(ns);
  return *this;
}
Def& Def::python_name(const char* name) {
  op_->python_name = name;
  return *this;
}
Def& Def::doc(const char* text) {
  op_->doc = text;
  return *this;
}

detail::Registrar::Registrar(void (*declare)(), const char* file) {
  try {
    declare();
  } catch (const std::exception& e) {
    // A declaration is wrong: no operator may be silently missing.
    std::fprintf(stderr, "tesserack: %s: %s\n", file, e.what()); // streams may not be there yet
    std::abort();
  }
}

} // namespace ts
