#include "ops/common/declare.h"
#include "dispatch/kernel_signatures.h"
#include "dispatch/primitive.h"
#include "ops/common/facts.h"
#include "ops/common/kernel_call.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/common/variants.h"
#include "ops/pointwise/info.h"
#include "tensor/words.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

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

bool any_complex(const Frame& f, int32_t n) {
  for (int32_t k = 0; k < n; ++k)
    if (f.args[k].tag == Tag::Tensor && is_complex(f.args[k].tensor->dtype)) return true;
  return false;
}

void delete_info(PointwiseInfo* info) { delete info; }

} // namespace

namespace {

// The form takes tensors where the operator takes numbers as well.
void call_with_tensors(const Operator& form, Frame& f) {
  std::vector<Value> args(f.args, f.args + f.nargs);
  std::vector<Tensor> made(args.size());
  for (size_t k = 0; k < args.size(); ++k) {
    if (!args[k].is_number() || form.schema->args[k].type.kind != TypeKind::Tensor) continue;
    const Value& tensor = *std::find_if(args.begin(), args.end(), [](const Value& v) { return v.tag == Tag::Tensor; });
    made[k] = filled({}, args[k].as_scalar(), result_type(std::span<const Value>(f.args, args.size())),
                     tensor.as_tensor().device());
    args[k] = Value(made[k]);
  }
  Frame inner{args.data(), f.rets, f.nargs, f.nrets};
  call(form, inner);
}

} // namespace

bool run_complex_form(const Operator& op, Frame& f) {
  const PointwiseInfo& info = *op.pointwise;
  if (!info.complex_form_name || !any_complex(f, f.nargs - (op.variant == Variant::Out))) return false;
  if (op.variant == Variant::Functional)
    call_with_tensors(get_operator(info.complex_form_name), f);
  else
    (op.variant == Variant::Inplace ? run_inplace_form : run_out_form)(op, f);
  return true;
}

namespace {

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
  op->effects = functional.effects;
  if (!functional.python_name.empty()) op->python_name = functional.python_name + (inplace ? "_" : "");
  if (pointwise) {
    op->body = run_pointwise;
    op->kind = OperatorKind::Pointwise;
    op->table.set(key::Autograd, {pointwise_autograd, nullptr, op->origin});
  } else {
    op->body = body ? body : inplace ? run_inplace_form : run_out_form;
    op->recorded_body = body ? nullptr : inplace ? record_inplace_form : record_out_form;
  }
  return register_operator(std::move(op));
}

} // namespace

// The arguments that results look at: these carry their pending bits on.
static uint64_t viewed_arguments(const Operator& op) {
  uint64_t viewed = op.kind == OperatorKind::View ? 1 : 0;
  for (size_t k = 0; k < op.schema->args.size(); ++k) {
    const ArgType& type = op.schema->args[k].type;
    if (type.alias && !type.mutated) viewed |= uint64_t{1} << k;
  }
  return viewed;
}

Def::Def(const char* schema)
    : op_(std::make_unique<Operator>()), pointwise_(nullptr, delete_info),
      spec_(nullptr, [](KernelSpec* spec) { delete spec; }) {
  op_->schema = parse_schema(schema);
}

Def::~Def() noexcept(false) {
  if (op_ && std::uncaught_exceptions() == 0) finish();
}

const Operator& Def::finish() {
  const PointwiseInfo* info = nullptr;
  if (pointwise_) {
    finish_pointwise(*op_, *pointwise_);
    op_->pointwise = info = pointwise_.release(); // lives as long as the operator: for ever
  }
  if (op_->compute || op_->make)
    finish_primitive();
  else if (!info)
    finish_body();
  op_->keeps_bits |= viewed_arguments(*op_);
  if (!facts_.empty()) note_facts(op_->schema->base, facts_);
  Operator& op = register_operator(std::move(op_));
  if (inplace_) op.inplace = &register_variant(op, Variant::Inplace, info, inplace_body_);
  if (out_) op.out = &register_variant(op, Variant::Out, info, nullptr);
  return op;
}

Def& Def::pointwise(const char* expression) {
  std::vector<std::string> names;
  for (const Argument& a : op_->schema->args) names.push_back(a.name);
  return pointwise(ts::pointwise::parse(expression, names));
}

Def& Def::pointwise(ts::pointwise::Expr expression) {
  pointwise_.reset(new PointwiseInfo);
  for (const Argument& a : op_->schema->args) pointwise_->variables.push_back(a.name);
  pointwise_->variables.push_back("result");
  pointwise_->variables.push_back("grad");
  pointwise_->derivatives.resize(op_->schema->args.size());
  pointwise_->expr = std::move(expression);
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

Def& Def::round_numbers() {
  pointwise_->round_numbers = true;
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

Def& Def::floating_one_of(const char* a, const char* b) {
  pointwise_->floating_one_of = {op_->schema->find(a), op_->schema->find(b)};
  return *this;
}

Def& Def::no_complex() {
  pointwise_->no_complex = true;
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

Def& Def::single(const char* arg) {
  pointwise_->single_arg = op_->schema->find(arg);
  return *this;
}

Def& Def::conjugated(uint64_t args, bool result) {
  pointwise_->conjugate = args;
  pointwise_->conjugate_result = result;
  return *this;
}

Def& Def::complex_form(const char* op) {
  pointwise_->complex_form_name = op;
  return *this;
}

Def& Def::boxed(BodyFn fn, int arity) {
  TS_CHECK(arity < 0 || arity == static_cast<int>(op_->schema->args.size()), "operator: the body of '", op_->name(),
           "' takes ", arity, " arguments, its schema has ", op_->schema->args.size());
  op_->body = fn;
  return *this;
}

Def& Def::boxed_rule(BodyFn fn, int arity) {
  TS_CHECK(arity == static_cast<int>(op_->schema->args.size()), "operator: the rule of '", op_->name(), "' takes ",
           arity, " arguments, its schema has ", op_->schema->args.size());
  op_->rule = fn;
  return *this;
}

Def& Def::boxed_compute(BodyFn fn, int arity, size_t results, const char* why) {
  const Schema& s = *op_->schema;
  auto fresh = std::ranges::count_if(s.returns, [](const ArgType& r) { return !r.alias; });
  TS_CHECK(arity == static_cast<int>(s.args.size()) && static_cast<int64_t>(results) == fresh,
           "operator: the computation of '", op_->name(), "' takes ", results, " results and ", arity,
           " arguments, its schema has ", fresh, " and ", s.args.size());
  op_->compute = fn;
  op_->why_code = why;
  return *this;
}

Def& Def::kernel(const char* name, const char* operands, const char* parameters) {
  spec_.reset(parse_kernel_spec(*op_->schema, name, operands, parameters).release());
  op_->compute = compute_by_kernel; // finish() knows
  return *this;
}

Def& Def::heavy() {
  spec_->work = Work::Always;
  return *this;
}

Def& Def::work(const char* arg, const char* other, int dim) {
  spec_->work = Work::Product;
  spec_->work_of = static_cast<int8_t>(op_->schema->find(arg));
  spec_->work_arg = static_cast<int8_t>(op_->schema->find(other));
  spec_->work_dim = static_cast<int8_t>(dim);
  return *this;
}

Def& Def::boxed_decompose(BodyFn fills, BodyFn parts, int arity, size_t results) {
  const Schema& s = *op_->schema;
  auto fresh = std::ranges::count_if(s.returns, [](const ArgType& r) { return !r.alias; });
  TS_CHECK(arity == static_cast<int>(s.args.size()) && (parts || static_cast<int64_t>(results) == fresh),
           "operator: the decomposition of '", op_->name(), "' takes ", results, " results and ", arity,
           " arguments, its schema has ", fresh, " and ", s.args.size());
  op_->parts = parts;
  op_->decompose = parts ? fill_from_parts : fills;
  if (!op_->compute) op_->compute = op_->decompose;
  return *this;
}

Def& Def::boxed_make(BodyFn fn, int arity) {
  TS_CHECK(arity == static_cast<int>(op_->schema->args.size()), "operator: what makes the results of '", op_->name(),
           "' takes ", arity, " arguments, its schema has ", op_->schema->args.size());
  op_->make = fn;
  return data_dependent();
}

void Def::finish_primitive() {
  const Schema& s = *op_->schema;
  if (spec_) {
    note_kernel(*spec_);
    op_->compute = spec_->plain() && s.args.size() <= kPlainArguments ? compute_by_plain_kernel : compute_by_kernel;
  }
  op_->kernel = spec_.release(); // for ever, as the operator
  TS_CHECK(op_->rule && !op_->body && !(op_->compute && op_->make), "operator: '", op_->name(),
           "' has a computation: it needs a rule, and no body");
  TS_CHECK(!op_->why_code || (!spec_ && !op_->decompose), "operator: '", op_->name(),
           "' is computed by code: it has no kernel and no decomposition besides");
  auto is_tensor = [](const Argument& a) { return a.type.kind == TypeKind::Tensor; };
  TS_CHECK(op_->gradient || !op_->differentiable || std::ranges::none_of(s.args, is_tensor), "operator: '", op_->name(),
           "' is a primitive: it needs a gradient, or to be not_differentiable");
  bool writer = std::ranges::all_of(s.returns, [](const ArgType& r) { return r.alias != 0; });
  op_->body = op_->make ? run_maker : writer ? run_writer : run_primitive;
  op_->kind = op_->make ? OperatorKind::DataDependent : OperatorKind::Primitive;
}

// Views, answers and composites.
void Def::finish_body() {
  const Schema& s = *op_->schema;
  TS_CHECK(op_->body, "operator: '", op_->name(), "' is declared without a body");
  if (op_->kind == OperatorKind::View) return;
  if (answer_) {
    auto holds_tensors = [](const ArgType& r) { return r.kind == TypeKind::Tensor; };
    TS_CHECK(std::ranges::none_of(s.returns, holds_tensors), "operator: '", op_->name(),
             "' answers the host: it returns no tensors");
    op_->kind = OperatorKind::Answer;
    op_->differentiable = false;
    return;
  }
  TS_CHECK(!own_gradient_, "operator: '", op_->name(),
           "' has a gradient of its own: it needs a rule and a computation instead of a body");
  TS_CHECK(!op_->gradient || op_->rule, "operator: '", op_->name(), "' may be replaced: it needs a rule");
}

Def& Def::reuses_self() {
  op_->reuses_self = true;
  return *this;
}
Def& Def::random() {
  op_->effects.random = true;
  return *this;
}
Def& Def::writes_where(const char* argument) {
  const int at = op_->schema->find(argument);
  TS_CHECK(at >= 0, op_->schema->name, ": writes_where names '", argument, "', which is no argument");
  op_->effects.writes_where = static_cast<int8_t>(at);
  return *this;
}
Def& Def::reads_host() {
  op_->effects.reads_host = true;
  return *this;
}
Def& Def::data_dependent() {
  op_->effects.data_dependent = op_->effects.reads_host = true;
  return *this;
}

Def& Def::gradient_if_replaced(GradFn fn) {
  op_->gradient = fn;
  return *this;
}

Def& Def::gradient(GradFn fn) {
  op_->gradient = fn;
  own_gradient_ = true;
  return *this;
}

Def& Def::saves(const char* names) {
  for (const std::string& word : words_of(names)) {
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
  return *this;
}
Def& Def::view() {
  op_->view = true;
  return untracked_view();
}
Def& Def::untracked_view() {
  op_->kind = OperatorKind::View;
  return *this;
}
Def& Def::keeps_bits() {
  op_->keeps_bits = ~uint64_t{0};
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
Def& Def::out(unsigned rules) {
  out_ = true;
  op_->out_rules = rules;
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

Def& Def::facts(const char* words) {
  facts_ += (facts_.empty() ? "" : " ") + std::string(words);
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
