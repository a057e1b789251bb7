// Kernel calls of backends written in Python. The function gets the outputs, the inputs and the parameters, in this
// order, and by keyword those fields of the call that its signature names.
#include "ops/pointwise/expr.h"
#include "python/calls/operand_object.h"
#include "python/devices/python_backend.h"
#include "python/types.h"
#include "runtime/backend.h"
#include "tensor/small_vector.h"
#include <unordered_map>

namespace ts::py {
namespace {

enum class Field : uint8_t {
  Op,
  Opcode,
  ComputeDtype,
  Program,
  Stream,
  Device,
  Prologue,
  Epilogue,
  Deterministic,
  Precision,
  Number,
  Outputs,
  Inputs,
  Params
};
constexpr const char* kFields[] = {"op",     "opcode",   "compute_dtype", "program",       "stream",
                                   "device", "prologue", "epilogue",      "deterministic", "precision",
                                   "number", "outputs",  "inputs",        "params"};
constexpr const char* kReductions[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};
constexpr const char* kScatters[] = {"set", "add", "prod", "max", "min"};

struct PythonKernel {
  explicit PythonKernel(KernelOwner& o) : owner(&o), plans(o.counters.traffic) {}
  PyRef function, predicate, names; // names: of the keyword arguments
  std::vector<Field> fields;
  bool spread[3] = {true, true, true}; // outputs, inputs, params
  uint64_t changing = 0;               // parameters that a plan patches in
  KernelOwner* owner;
  LaunchPlanCache plans;
};

PyTypeObject* ProgramType = nullptr;

// --- programs ----------------------------------------------------------------------------------------------------

PyRef instruction_tuple(const ts_instruction& i) {
  std::string_view name = pointwise::instruction_name(i.op);
  int arity = pointwise::instruction_arity(i.op);
  PyRef tuple = checked(PyTuple_New(1 + arity));
  PyRef text = checked(PyUnicode_InternFromString(std::string(name).c_str()));
  PyTuple_SET_ITEM(tuple.get(), 0, text.release());
  const uint16_t operands[] = {i.a, i.b, i.c};
  for (int k = 0; k < arity; ++k) PyTuple_SET_ITEM(tuple.get(), k + 1, checked(PyLong_FromLong(operands[k])).release());
  return tuple;
}

template <class F> PyRef tuple_of(int32_t n, F&& item) {
  PyRef tuple = checked(PyTuple_New(n));
  for (int32_t k = 0; k < n; ++k) PyTuple_SET_ITEM(tuple.get(), k, item(k).release());
  return tuple;
}

PyRef make_program(const ts_program& p) {
  PyRef program = checked(PyStructSequence_New(ProgramType));
  auto set = [&](int k, PyRef value) { PyStructSequence_SetItem(program.get(), k, value.release()); };
  set(0, checked(PyLong_FromUnsignedLongLong(p.id)));
  set(1, checked(PyLong_FromLong(p.n_inputs)));
  set(2, tuple_of(p.n_constants, [&](int32_t k) { return checked(PyFloat_FromDouble(p.constants[k])); }));
  set(3, tuple_of(p.n_instructions, [&](int32_t k) { return instruction_tuple(p.instructions[k]); }));
  set(4, tuple_of(p.n_outputs, [&](int32_t k) { return checked(PyLong_FromLong(p.outputs[k])); }));
  set(5, to_python(std::string(p.text ? p.text : "")));
  set(6, tuple_of(p.n_constants, [&](int32_t k) {
        return checked(PyLong_FromLongLong(p.integers ? p.integers[k] : static_cast<int64_t>(p.constants[k])));
      }));
  char hash[33];
  std::snprintf(hash, sizeof hash, "%016llx%016llx", static_cast<unsigned long long>(p.hash[0]),
                static_cast<unsigned long long>(p.hash[1]));
  set(7, to_python(std::string(hash)));
  return program;
}

// Programs are few and live as long as the process.
PyObject* program_object(const ts_program* p) {
  static auto* made = new std::unordered_map<uint64_t, PyObject*>;
  if (!p) return none();
  PyObject*& known = (*made)[p->id];
  if (!known) known = make_program(*p).release();
  return Py_NewRef(known);
}

// --- arguments ---------------------------------------------------------------------------------------------------

class Arguments {
public:
  ~Arguments() {
    for (PyObject* o : objects_) Py_XDECREF(o);
  }
  void add(PyObject* owned) { objects_.push_back(owned); }
  PyObject** data() { return objects_.data(); }
  size_t size() const { return objects_.size(); }

private:
  SmallVector<PyObject*, 24> objects_;
};

PyObject* param_object(const KernelOwner& owner, const ts_call& call, const ts_value& v) {
  switch (v.tag) {
  case TS_V_INT: return checked(PyLong_FromLongLong(v.as.i)).release();
  case TS_V_FLOAT: return checked(PyFloat_FromDouble(v.as.f)).release();
  case TS_V_BOOL: return PyBool_FromLong(v.as.i != 0);
  case TS_V_STR: return to_python(std::string(v.as.str)).release();
  case TS_V_INTS:
    return tuple_of(v.len, [&](int32_t k) { return checked(PyLong_FromLongLong(v.as.ints[k])); }).release();
  case TS_V_FLOATS:
    return tuple_of(v.len, [&](int32_t k) { return checked(PyFloat_FromDouble(v.as.floats[k])); }).release();
  case TS_V_TENSORS:
    return tuple_of(v.len, [&](int32_t k) { return PyRef::steal(operand_object(owner, *TS_IN(&call, v.as.i + k))); })
        .release();
  case TS_V_DTYPE: return Py_NewRef(dtype_object(static_cast<DType>(v.as.i)));
  case TS_V_DEVICE: return device_object(Device::unpack(v.as.i));
  case TS_V_COMPLEX: return checked(PyComplex_FromDoubles(v.as.floats[0], v.as.floats[1])).release();
  default: return none();
  }
}

// Inputs that belong to a list argument reach the function inside that list.
bool in_list(const ts_call& call, int32_t input) {
  for (int32_t k = 0; k < call.n_params; ++k) {
    const ts_value& v = call.params[k];
    if (v.tag == TS_V_TENSORS && input >= v.as.i && input < v.as.i + v.len) return true;
  }
  return false;
}

PyObject* opcode_object(const ts_call& call) {
  std::string_view op = call.op;
  bool scatter = op == "scatter";
  bool named = scatter || op == "reduce" || op == "scan";
  size_t count = scatter ? std::size(kScatters) : std::size(kReductions);
  if (!named || static_cast<size_t>(call.opcode) >= count) return checked(PyLong_FromLong(call.opcode)).release();
  return checked(PyUnicode_InternFromString((scatter ? kScatters : kReductions)[call.opcode])).release();
}

PyObject* field_object(const KernelOwner& owner, const ts_call& call, Field field) {
  switch (field) {
  case Field::Op: return checked(PyUnicode_InternFromString(call.op)).release();
  case Field::Opcode: return opcode_object(call);
  case Field::ComputeDtype:
    return call.compute_dtype < 0 ? none() : Py_NewRef(dtype_object(static_cast<DType>(call.compute_dtype)));
  case Field::Program: return program_object(call.program);
  case Field::Prologue: return program_object(call.prologue);
  case Field::Epilogue: return program_object(call.epilogue);
  case Field::Deterministic: return PyBool_FromLong(call.flags & TS_C_DETERMINISTIC);
  case Field::Precision:
    return checked(PyUnicode_InternFromString(call.flags & TS_C_MATH_MEDIUM ? "medium"
                                              : call.flags & TS_C_MATH_HIGH ? "high"
                                                                            : "highest"))
        .release();
  case Field::Number: return checked(PyLong_FromUnsignedLongLong(call.number)).release();
  case Field::Stream: return handle_ref(owner, call.stream).release();
  case Field::Device: return checked(PyLong_FromLong(call.device_index)).release();
  case Field::Outputs:
    return tuple_of(call.n_outputs, [&](int32_t k) { return PyRef::steal(operand_object(owner, *TS_OUT(&call, k))); })
        .release();
  case Field::Inputs:
    return tuple_of(call.n_inputs, [&](int32_t k) { return PyRef::steal(operand_object(owner, *TS_IN(&call, k))); })
        .release();
  case Field::Params:
    return tuple_of(call.n_params, [&](int32_t k) { return PyRef::steal(param_object(owner, call, call.params[k])); })
        .release();
  }
  return none();
}

bool declines(const PythonKernel& kernel, Arguments& arguments, size_t positional) {
  if (!kernel.predicate) return false;
  PyRef answer = checked(PyObject_Vectorcall(kernel.predicate.get(), arguments.data(), positional, kernel.names.get()));
  int truth = PyObject_IsTrue(answer.get());
  checked_status(truth);
  return truth == 0;
}

// `plan`: what the function returned instead of computing.
int enter_python(const PythonKernel& kernel, const ts_call& call, std::shared_ptr<const LaunchPlan>& plan) {
  const KernelOwner& owner = *kernel.owner;
  Arguments arguments;
  if (kernel.spread[0])
    for (int32_t k = 0; k < call.n_outputs; ++k) arguments.add(operand_object(owner, *TS_OUT(&call, k)));
  if (kernel.spread[1])
    for (int32_t k = 0; k < call.n_inputs; ++k)
      if (!in_list(call, k)) arguments.add(operand_object(owner, *TS_IN(&call, k)));
  if (kernel.spread[2])
    for (int32_t k = 0; k < call.n_params; ++k) arguments.add(param_object(owner, call, call.params[k]));
  size_t positional = arguments.size();
  for (Field field : kernel.fields) arguments.add(field_object(owner, call, field));
  if (declines(kernel, arguments, positional)) return TS_DECLINED;
  PyRef result = checked(PyObject_Vectorcall(kernel.function.get(), arguments.data(), positional, kernel.names.get()));
  if (result.get() == Py_None) return TS_OK;
  if (result.get() == Py_NotImplemented) return TS_DECLINED;
  TS_CHECK_TYPE(is_plan(result.get()), "the kernel returned ", type_name(result.get()),
                "; kernels fill their outputs and return None, a LaunchPlan, or NotImplemented to decline");
  plan = read_plan(result.get(), call, kernel.changing, owner);
  return TS_OK;
}

void count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

int run_kernel(const ts_call* call) {
  auto& kernel = *static_cast<PythonKernel*>(call->kernel_ctx);
  LaunchCounters& counters = kernel.owner->counters;
  LaunchSignature signature;
  int status = TS_OK;
  if (kernel.owner->raw_handles) {
    const auto* memory = static_cast<const CallMemory*>(call->core); // none of a copied call
    signature.sign(*call, kernel.changing, memory ? memory->backend.epoch(call->device_index) : 0);
    if (kernel.plans.run(signature, *call, status)) return status;
  }
  count(counters.kernels);
  std::shared_ptr<const LaunchPlan> plan;
  status = callback([&] {
    int entered = enter_python(kernel, *call, plan);
    if (plan) {
      kernel.plans.insert(signature, plan);
      count(counters.plans);
    }
    return entered;
  });
  return plan ? plan->run(*call) : status;
}

Field field_named(const std::string& name) {
  for (size_t k = 0; k < std::size(kFields); ++k)
    if (name == kFields[k]) return static_cast<Field>(k);
  fail(ErrorKind::Type, "kernel: no field of a call is named '", name,
       "'; keyword-only parameters may be op, opcode, compute_dtype, program, stream, device, prologue, epilogue, "
       "deterministic, precision, number, outputs, inputs, params");
}

} // namespace

void fill_kernel(PyObject* record, KernelOwner& owner, ts_kernel* out) {
  PyObject *function, *predicate, *names;
  unsigned long long changing = 0;
  unsigned long long dtypes = 0;
  unsigned int layouts = 0, flags = 0;
  if (!PyArg_ParseTuple(record, "OOO!KIKI:kernel", &function, &predicate, &PyTuple_Type, &names, &dtypes, &layouts,
                        &changing, &flags))
    throw_python();
  auto kernel = std::make_unique<PythonKernel>(owner);
  kernel->changing = changing;
  kernel->function = PyRef::borrow(function);
  if (predicate != Py_None) kernel->predicate = PyRef::borrow(predicate);
  if (PyTuple_GET_SIZE(names)) kernel->names = PyRef::borrow(names);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); ++k) {
    Field field = field_named(to_utf8(PyTuple_GET_ITEM(names, k)));
    if (field >= Field::Outputs) kernel->spread[static_cast<int>(field) - static_cast<int>(Field::Outputs)] = false;
    kernel->fields.push_back(field);
  }
  out->run = run_kernel;
  out->dtypes = dtypes;
  out->layouts = layouts;
  out->flags = flags;
  out->ctx = kernel.release(); // whose end is drop_kernel
}

void drop_kernel(const ts_kernel& kernel) { delete static_cast<PythonKernel*>(kernel.ctx); }
PyObject* function_of(const ts_kernel& kernel) { return static_cast<PythonKernel*>(kernel.ctx)->function.get(); }

PyRef call_object(const KernelOwner& owner, const ts_call& call) {
  constexpr Field kParts[] = {Field::Opcode,   Field::ComputeDtype,  Field::Program,   Field::Prologue,
                              Field::Epilogue, Field::Deterministic, Field::Precision, Field::Inputs};
  constexpr auto n = static_cast<int32_t>(std::size(kParts));
  PyRef params = tuple_of(call.n_params, [&](int32_t k) {
    const ts_value& v = call.params[k];
    if (v.tag != TS_V_TENSORS) return PyRef::steal(param_object(owner, call, v));
    return checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "LL",
                                         static_cast<long long>(v.as.i), static_cast<long long>(v.as.i + v.len)));
  });
  return tuple_of(
      n + 1, [&](int32_t k) { return k < n ? PyRef::steal(field_object(owner, call, kParts[k])) : std::move(params); });
}

void init_python_kernel(PyObject* module) {
  static PyStructSequence_Field fields[] = {
      {"id", "Equal for equal programs: the key for caches of compiled kernels."},
      {"n_inputs", "Registers 0 to n_inputs - 1 hold the inputs."},
      {"constants", "The registers after the inputs."},
      {"instructions", "(name, register, ...) each; every one fills the next register."},
      {"outputs", "The register stored to each output."},
      {"text", "The expression."},
      {"integers", "The constants for registers of integers, exact where a float is not."},
      {"hash", "As id, but the same in every process: 32 hexadecimal digits."},
      {nullptr, nullptr}};
  static PyStructSequence_Desc desc = {"tesserack.backends.Program", "A pointwise program.", fields, 8};
  PyRef type = checked(reinterpret_cast<PyObject*>(PyStructSequence_NewType(&desc)));
  ProgramType = reinterpret_cast<PyTypeObject*>(type.get());
  add_object(module, "_Program", type.release());
}

} // namespace ts::py
