#include "extend/boxed_call.h"
#include "autograd/meta.h"
#include "dispatch/tensor_descriptor.h"
#include "extend/custom.h"
#include "extend/pending_bits.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include <cstring>

using namespace ts;

namespace {

thread_local ts_boxed* t_innermost = nullptr;

// A kernel that comes back to itself without end would end the process.
constexpr int kMaxDepth = 1000;

// Fills what the caller's struct has room for.
template <class T> void fill(T* out, T value, const char* what) {
  TS_CHECK_VALUE(out, what, ": expected a place for the answer, got NULL");
  size_t room = out->struct_size;
  TS_CHECK_VALUE(room >= sizeof(size_t) + sizeof(void*), what, ": expected struct_size to be set before, got ", room);
  value.struct_size = std::min(room, sizeof(T));
  std::memcpy(static_cast<void*>(out), &value, value.struct_size);
}

template <class T> void check_out(T* out, const char* what) {
  TS_CHECK_VALUE(out, what, ": expected a place for the answer, got NULL");
}

std::string device_name(Device d) { return d.is_meta() ? "meta" : backend_of(d).name(); }

} // namespace

ts_boxed::ts_boxed(const Operator& op, Frame& frame, int key, KeySet rest, KeySet hidden)
    : op_(op), frame_(frame), key_(key), rest_(rest), hidden_(hidden), args_(static_cast<size_t>(frame.nargs)),
      outer_(t_innermost), depth_(outer_ ? outer_->depth_ + 1 : 1) {
  TS_CHECK(depth_ <= kMaxDepth, op.name(), ": kernels written in C call each other more than ", kMaxDepth, " deep");
  tensors_.reserve(8);
  for (int32_t k = 0; k < frame.nargs; ++k) {
    Argument& a = args_[static_cast<size_t>(k)];
    a.value = frame.args[k];
    a.first = static_cast<int64_t>(tensors_.size());
    if (a.value.tag == Tag::Tensor)
      add(a.value.as_tensor());
    else if (a.value.tag == Tag::Tensors)
      for (const Tensor& t : a.value.as_tensors()) add(t);
  }
  t_innermost = this;
}

ts_boxed::~ts_boxed() {
  if (token_) interpreter_hooks().resume(token_);
  t_innermost = outer_;
}

ts_boxed& ts_boxed::live(ts_boxed* call, bool interpreter_released) {
  ts_boxed* c = t_innermost;
  while (c && c != call) c = c->outer_;
  TS_CHECK_VALUE(c, "boxed call: expected a call whose kernel runs now in this thread");
  TS_CHECK_VALUE(interpreter_released || !c->released_, c->op_.name(),
                 ": the interpreter is released; call release_interpreter(call, 0) first");
  return *c;
}

bool ts_boxed::run(const CKernel& kernel) {
  Border border;
  int status = kernel.run(this, kernel.ctx);
  release_interpreter(false);
  if (status == TS_DECLINED) return false;
  if (status != TS_OK) border.check(status, concat(op_.name(), " (kernel of ", kernel.owner, ")"));
  check_results();
  hand_over();
  return true;
}

// --- tensors and their numbers -----------------------------------------------------------------------------------

int64_t ts_boxed::add(Tensor t) {
  tensors_.push_back({std::move(t), false, Tensor()});
  return static_cast<int64_t>(tensors_.size()) - 1;
}

const ts_boxed::Entry& ts_boxed::entry(int64_t number) const {
  TS_CHECK_INDEX(number >= 0 && number < static_cast<int64_t>(tensors_.size()), op_.name(),
                 ": expected the number of a tensor below ", tensors_.size(), ", got ", number);
  const Entry& e = tensors_[static_cast<size_t>(number)];
  TS_CHECK_INDEX(!e.dropped, op_.name(), ": tensor ", number, " was dropped");
  return e;
}
Tensor ts_boxed::tensor_at(int64_t number) const { return entry(number).tensor; }
const Tensor& ts_boxed::some_tensor_at(int64_t number) const {
  const Tensor& t = entry(number).tensor;
  TS_CHECK_VALUE(t.defined(), op_.name(), ": expected a tensor, tensor ", number, " is None");
  return t;
}

void ts_boxed::describe(int64_t number, ts_tensor* out) {
  const Tensor& t = memory_at(number);
  ts_tensor d{};
  if (t.defined())
    describe_impl(*t.impl(), d);
  else
    d.flags = TS_T_NONE;
  if (is_written(number)) d.flags |= TS_T_MUTABLE;
  if (t.defined() && t.pending()) d.handle = nullptr;
  fill(out, d, "tensor");
}

bool ts_boxed::is_written(int64_t number) const {
  for (size_t k = 0; k < args_.size(); ++k) {
    const Argument& a = args_[k];
    int64_t count = a.value.tag == Tag::Tensor ? 1 : a.value.tag == Tag::Tensors ? a.value.len : 0;
    if (op_.schema->args[k].type.mutated && number >= a.first && number < a.first + count) return true;
  }
  return false;
}

// Kernels in C know nothing of pending bits. What they write must be the memory itself, which they get below the keys
// that resolve it.
const Tensor& ts_boxed::memory_at(int64_t number) {
  entry(number);
  Entry& e = tensors_[static_cast<size_t>(number)];
  if (!e.tensor.defined() || !e.tensor.pending() || is_written(number)) return e.tensor;
  if (!e.plain.defined()) e.plain = materialized(e.tensor);
  return e.plain;
}

void ts_boxed::place(int64_t number, ts_place* out) {
  const Tensor& t = some_tensor_at(number);
  ts_place p{};
  Device d = t.device();
  p.backend = d.is_meta() ? "meta" : backend_of(d).name().c_str();
  p.stream = d.is_meta() ? nullptr : backend_of(d).stream(d.index);
  p.device_index = d.index;
  p.requires_grad = requires_grad(t);
  fill(out, p, "place");
}

void ts_boxed::data(int64_t number, void** out) {
  check_out(out, "data");
  *out = nullptr;
  some_tensor_at(number);
  const Tensor& t = memory_at(number);
  TS_CHECK(!t.pending(), op_.name(), ": tensor ", number, " is written, and its ",
           t.is_conj() ? "conjugation" : "negation", " is pending; redispatch, or give the backend a kernel");
  TS_CHECK(!t.device().is_meta() && backend_of(t.device()).host_memory(t.device().index), op_.name(), ": tensor ",
           number, " is on ", device_name(t.device()),
           ", whose memory the host cannot read; give the operator a kernel for it");
  *out = t.data();
}

void ts_boxed::empty(const int64_t* sizes, int32_t ndim, int32_t dtype, int64_t like, int64_t* number) {
  check_out(number, "empty");
  TS_CHECK_VALUE(ndim >= 0 && ndim <= TensorImpl::kMaxDims && (sizes || ndim == 0), op_.name(), ": expected 0 to ",
                 TensorImpl::kMaxDims, " sizes, got ", ndim);
  TS_CHECK_VALUE(dtype >= 0 && dtype < kNumDTypes, op_.name(), ": there is no dtype ", dtype);
  IntSpan shape(sizes, static_cast<size_t>(ndim));
  for (int64_t n : shape) TS_CHECK_VALUE(n >= 0, op_.name(), ": expected sizes that are not negative, got ", shape);
  *number = add(empty_tensor(shape, static_cast<DType>(dtype), some_tensor_at(like).device()));
}

void ts_boxed::list(const int64_t* numbers, int32_t n, ts_value* out) {
  check_out(out, "list");
  TS_CHECK_VALUE(n >= 0 && (numbers || n == 0), op_.name(), ": expected numbers of tensors, got ", n, " of them");
  std::vector<Tensor> items;
  for (int32_t k = 0; k < n; ++k) items.push_back(numbers[k] == -1 ? Tensor() : tensor_at(numbers[k]));
  *out = {TS_V_TENSORS, n, {static_cast<int64_t>(tensors_.size())}};
  for (Tensor& t : items) add(std::move(t));
}

void ts_boxed::drop(int64_t number) {
  entry(number);
  tensors_[static_cast<size_t>(number)] = {Tensor(), true, Tensor()};
}

// --- values ------------------------------------------------------------------------------------------------------

ts_value ts_boxed::to_c(const Value& v, int64_t& first, int32_t k) {
  if (v.tag == Tag::Generator) return {TS_V_GENERATOR, 0, {k}};
  if (v.tag != Tag::Tensor && v.tag != Tag::Tensors) return {static_cast<int32_t>(v.tag), v.len, {v.i}};
  bool list = v.tag == Tag::Tensors;
  if (first < 0) {
    first = static_cast<int64_t>(tensors_.size());
    if (list)
      for (const Tensor& t : v.as_tensors()) add(t);
    else
      add(v.as_tensor());
  }
  return {static_cast<int32_t>(v.tag), list ? v.len : 1, {first}};
}

void ts_boxed::info(ts_boxed_info* out) {
  if (schema_text_.empty()) {
    schema_text_ = to_string(*op_.schema);
    key_text_ = key_ < 0                    ? ""
                : key_ >= key::kBackendBits ? key_name(key_)
                : key_ == kMetaBackend      ? "meta"
                                            : backend_of({static_cast<int16_t>(key_), 0}).name();
  }
  fill(out,
       {0, op_.name().c_str(), schema_text_.c_str(), key_text_.c_str(), frame_.nargs, frame_.nrets,
        static_cast<int64_t>(tensors_.size())},
       "info");
}

void ts_boxed::argument(int32_t k, ts_value* out) {
  check_out(out, "argument");
  TS_CHECK_INDEX(k >= 0 && k < frame_.nargs, op_.name(), ": expected an argument below ", frame_.nargs, ", got ", k);
  Argument& a = args_[static_cast<size_t>(k)];
  *out = to_c(a.value, a.first, k);
}

void ts_boxed::set_argument(int32_t k, const ts_value* value) {
  check_out(value, "set_argument");
  TS_CHECK_INDEX(k >= 0 && k < frame_.nargs, op_.name(), ": expected an argument below ", frame_.nargs, ", got ", k);
  Argument fresh;
  fresh.value = from_c(op_.schema->args[static_cast<size_t>(k)].type, *value, argument_name(k), fresh.tensors);
  bool tensors = fresh.value.tag == Tag::Tensor || fresh.value.tag == Tag::Tensors;
  if (tensors) {
    fresh.first = value->as.i;
  } else if (fresh.value.tag != Tag::Generator) {
    fresh.owned = OwnedValues({&fresh.value, 1});
    fresh.value = fresh.owned[0];
  }
  args_[static_cast<size_t>(k)] = std::move(fresh);
}

std::string ts_boxed::argument_name(int32_t k) const {
  return concat(op_.name(), ": ", op_.schema->args[static_cast<size_t>(k)].name);
}

Value ts_boxed::from_c(const ArgType& type, const ts_value& v, const std::string& what, std::vector<Tensor>& keep) {
  auto expect = [&](bool fits) {
    TS_CHECK_VALUE(fits, what, " must be ", type.text(), ", not a value of tag ", v.tag);
  };
  if (v.tag == TS_V_NONE) {
    expect(type.optional);
    return {};
  }
  if (type.list) {
    expect(v.len >= 0 && (v.len == 0 || v.tag == TS_V_TENSORS || v.as.ptr));
    auto n = static_cast<size_t>(v.len);
    switch (type.kind) {
    case TypeKind::Tensor:
      expect(v.tag == TS_V_TENSORS);
      for (int64_t k = 0; k < v.len; ++k) {
        keep.push_back(tensor_at(v.as.i + k));
        TS_CHECK_VALUE(keep.back().defined() || type.optional_elements, what, "[", k, "] must be a Tensor, not None");
      }
      return TensorList(keep);
    case TypeKind::Int:
    case TypeKind::Bool: expect(v.tag == TS_V_INTS); return IntSpan(v.as.ints, n);
    default:
      expect(v.tag == TS_V_FLOATS && (type.kind == TypeKind::Float || type.kind == TypeKind::Scalar));
      return std::span<const double>(v.as.floats, n);
    }
  }
  bool number = v.tag == TS_V_INT || v.tag == TS_V_FLOAT || v.tag == TS_V_BOOL;
  Value plain;
  plain.tag = static_cast<Tag>(v.tag);
  plain.i = v.as.i;
  if (v.tag == TS_V_BOOL) plain.i = v.as.i != 0;
  switch (type.kind) {
  case TypeKind::Tensor:
  case TypeKind::Operand:
    if (type.kind == TypeKind::Operand && number) return plain;
    expect(v.tag == TS_V_TENSOR);
    keep.push_back(some_tensor_at(v.as.i));
    return keep.back();
  case TypeKind::Scalar: expect(number); return plain;
  case TypeKind::Float: expect(number); return plain.as_double();
  case TypeKind::Int: expect(v.tag == TS_V_INT); return plain;
  case TypeKind::MemoryFormat: expect(v.tag == TS_V_INT && v.as.i >= 0 && v.as.i <= 3); return plain;
  case TypeKind::Bool: expect(v.tag == TS_V_BOOL); return plain;
  case TypeKind::Str: expect(v.tag == TS_V_STR && v.as.str); return v.as.str;
  case TypeKind::DType: expect(v.tag == TS_V_DTYPE && v.as.i >= 0 && v.as.i < kNumDTypes); return plain;
  case TypeKind::Device: {
    expect(v.tag == TS_V_DEVICE);
    Device d = Device::unpack(v.as.i);
    TS_CHECK_VALUE(d.pack() == v.as.i, what, ": there is no device ", v.as.i);
    if (!d.is_meta()) backend_of(d).check_index(d.index);
    return d;
  }
  case TypeKind::Generator: {
    expect(v.tag == TS_V_GENERATOR && v.as.i >= 0 && v.as.i < frame_.nargs);
    const Value& from = args_[static_cast<size_t>(v.as.i)].value;
    expect(from.tag == Tag::Generator);
    return from;
  }
  }
  expect(false);
  return {};
}

// --- going on ----------------------------------------------------------------------------------------------------

void ts_boxed::redispatch() {
  TS_CHECK(key_ >= 0, op_.name(), ": there is no next key after the operator's own function");
  struct Restore {
    KeySet saved = thread_state().exclude;
    ~Restore() { thread_state().exclude = saved; }
  } restore;
  thread_state().exclude &= ~hidden_;
  SmallVector<Value, 12> values;
  for (const Argument& a : args_) values.push_back(a.value);
  below_.clear();
  for (int32_t k = 0; k < frame_.nrets; ++k) {
    below_[k] = Value();
    if (!slots_[k].set) slots_[k].first = -1;
  }
  Frame inner{values.data(), below_.data(), frame_.nargs, frame_.nrets};
  redispatched_ = false;
  ts::redispatch(op_, inner, rest_);
  redispatched_ = true;
}

void ts_boxed::invoke(const char* name, const ts_value* args, int32_t n_args, ts_value* results, int32_t n_results) {
  TS_CHECK_VALUE(name, "invoke: expected the name of an operator, got NULL");
  TS_CHECK_VALUE(n_args >= 0 && (args || n_args == 0) && n_results >= 0 && (results || n_results == 0),
                 "invoke: expected arguments and results, or none of them");
  const Operator& op = get_operator(name);
  const Schema& schema = *op.schema;
  size_t given = static_cast<size_t>(n_args);
  TS_CHECK_VALUE(given <= schema.args.size(), name, ": takes at most ", schema.args.size(), " arguments, got ", n_args);
  std::vector<Value> values(schema.args.size());
  std::vector<std::vector<Tensor>> keep(given);
  for (size_t k = 0; k < values.size(); ++k) {
    const ts::Argument& a = schema.args[k];
    TS_CHECK_VALUE(k < given || a.has_default, name, ": misses the argument ", a.name);
    values[k] = k < given ? from_c(a.type, args[k], concat(name, ": ", a.name), keep[k]) : a.default_value;
  }
  Results made;
  Frame inner{values.data(), made.data(), static_cast<int32_t>(values.size()),
              static_cast<int32_t>(schema.returns.size())};
  ts::call(op, inner);
  for (int32_t k = 0; k < n_results; ++k) {
    int64_t first = -1;
    results[k] = k < inner.nrets ? to_c(made[k], first, k) : ts_value{TS_V_NONE, 0, {0}};
  }
}

// --- results -----------------------------------------------------------------------------------------------------

void ts_boxed::result(int32_t k, ts_value* out) {
  check_out(out, "result");
  TS_CHECK_INDEX(k >= 0 && k < frame_.nrets, op_.name(), ": expected a result below ", frame_.nrets, ", got ", k);
  *out = to_c(slots_[k].set ? set_[k] : below_[k], slots_[k].first, k);
}

void ts_boxed::set_result(int32_t k, const ts_value* value) {
  check_out(value, "set_result");
  TS_CHECK_INDEX(k >= 0 && k < frame_.nrets, op_.name(), ": expected a result below ", frame_.nrets, ", got ", k);
  ArgType type = op_.schema->returns[static_cast<size_t>(k)];
  type.optional = true; // operators may give None for a tensor that was not asked for
  type.optional_elements = true;
  bool tensors = type.kind == TypeKind::Tensor;
  bool number = type.kind == TypeKind::Int || type.kind == TypeKind::Float || type.kind == TypeKind::Bool ||
                type.kind == TypeKind::Scalar;
  TS_CHECK_VALUE(tensors || (number && !type.list), op_.name(), ": a kernel in C gives tensors and numbers, not ",
                 type.text());
  std::vector<Tensor> keep;
  Value v = from_c(type, *value, concat(op_.name(), ": result ", k), keep);
  Frame into{nullptr, set_.data(), 0, frame_.nrets};
  if (set_[k].tag == Tag::Tensor)
    set_.take(k);
  else if (set_[k].tag == Tag::Tensors)
    set_.take_list(k);
  if (v.tag == Tag::Tensors)
    into.give(k, std::move(keep));
  else if (v.tag == Tag::Tensor)
    into.give(k, std::move(keep[0]));
  else
    set_[k] = v;
  slots_[k] = {true, tensors && !v.is_none() ? value->as.i : -1};
}

void ts_boxed::check_results() {
  for (int32_t k = 0; k < frame_.nrets; ++k) {
    TS_CHECK(slots_[k].set || redispatched_, op_.name(), ": the kernel gave no result ", k,
             "; it must call set_result or redispatch");
    // An operator's own results are fresh, unless its schema says otherwise.
    bool fresh = is_custom(op_) && key_ < key::kBackendBits && !op_.schema->returns[static_cast<size_t>(k)].alias;
    const Value& v = set_[k];
    if (!fresh || !slots_[k].set || v.tag != Tag::Tensor) continue;
    for (int32_t a = 0; a < frame_.nargs; ++a) {
      const Value& arg = frame_.args[a];
      bool same = arg.tag == Tag::Tensor && arg.tensor == v.tensor;
      if (arg.tag == Tag::Tensors)
        for (const Tensor& t : arg.as_tensors()) same = same || t.impl() == v.tensor;
      TS_CHECK(!same, op_.name(), ": the kernel returned one of its arguments; return a copy (invoke clone)");
    }
  }
}

// Results now belong to the caller.
void ts_boxed::hand_over() {
  for (int32_t k = 0; k < frame_.nrets; ++k) {
    Value& from = slots_[k].set ? set_[k] : below_[k];
    frame_.rets[k] = from;
    from = Value();
  }
}

void ts_boxed::release_interpreter(bool on) {
  if (on == released_) return;
  released_ = on;
  if (on && interpreter_hooks().suspend)
    token_ = interpreter_hooks().suspend();
  else if (void* token = std::exchange(token_, nullptr))
    interpreter_hooks().resume(token);
}
