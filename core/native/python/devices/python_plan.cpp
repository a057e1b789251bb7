// Launch plans that kernels in Python return, read once into their native form.
#include "python/devices/python_backend.h"
#include <cstring>

namespace ts::py {
namespace {

// The classes of tesserack.backends._plan.
struct PlanTypes {
  PyRef plan, launch, buffer, block, patch;
};
const PlanTypes& plan_types() {
  static const auto* types = [] {
    PyRef module = checked(PyImport_ImportModule("tesserack.backends._plan"));
    auto get = [&](const char* name) { return checked(PyObject_GetAttrString(module.get(), name)); };
    return new PlanTypes{get("LaunchPlan"), get("Launch"), get("Buffer"), get("Block"), get("Patch")};
  }();
  return *types;
}

bool is_a(PyObject* o, const PyRef& type) {
  int truth = PyObject_IsInstance(o, type.get());
  checked_status(truth);
  return truth;
}

// Reads the parts of one plan; `path` says which, for messages.
class PlanReader {
public:
  PlanReader(const ts_call& call, uint64_t changing) : call_(call), changing_(changing) {}

  std::shared_ptr<LaunchPlan> read(PyObject* result) {
    auto plan = std::make_shared<LaunchPlan>();
    plan_ = plan.get();
    PyObject* launches = PyTuple_GET_ITEM(result, 0);
    plan->workspace = static_cast<size_t>(whole(PyTuple_GET_ITEM(result, 1), "LaunchPlan.workspace", INT64_MAX));
    plan->declines = launches == Py_None;
    if (!plan->declines) read_launches(launches);
    return plan;
  }

private:
  void read_launches(PyObject* given) {
    PyRef list = sequence(given, "LaunchPlan.launches");
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(list.get()); ++k) {
      path_ = concat("LaunchPlan.launches[", k, "]");
      PyObject* launch = PySequence_Fast_GET_ITEM(list.get(), k);
      TS_CHECK_TYPE(is_a(launch, plan_types().launch), path_, ": expected a Launch, got ", type_name(launch));
      read_launch(launch);
    }
  }

  void read_launch(PyObject* launch) {
    PlannedLaunch l{};
    l.entry = reinterpret_cast<ts_launch_fn>(address(PyTuple_GET_ITEM(launch, 0), ".entry"));
    TS_CHECK_VALUE(l.entry, path_, ".entry: expected the address of a ts_launch_fn, got 0");
    l.kernel = address(PyTuple_GET_ITEM(launch, 1), ".kernel");
    uint64_t groups[3], group_size[3];
    read_three(PyTuple_GET_ITEM(launch, 2), ".groups", UINT64_MAX >> 1, groups);
    read_three(PyTuple_GET_ITEM(launch, 3), ".group_size", UINT32_MAX, group_size);
    for (int k = 0; k < 3; ++k) {
      l.groups[k] = groups[k];
      l.group_size[k] = static_cast<uint32_t>(group_size[k]);
    }
    l.shared_bytes =
        static_cast<uint32_t>(whole(PyTuple_GET_ITEM(launch, 5), concat(path_, ".shared_bytes"), UINT32_MAX));
    l.first_argument = static_cast<uint32_t>(plan_->arguments.size());
    PyRef arguments = sequence(PyTuple_GET_ITEM(launch, 4), concat(path_, ".arguments"));
    std::string launch_path = path_;
    l.n_arguments = static_cast<uint32_t>(PySequence_Fast_GET_SIZE(arguments.get()));
    for (uint32_t k = 0; k < l.n_arguments; ++k) {
      path_ = concat(launch_path, ".arguments[", k, "]");
      read_argument(PySequence_Fast_GET_ITEM(arguments.get(), k));
    }
    plan_->launches.push_back(l);
  }

  void read_argument(PyObject* o) {
    if (is_a(o, plan_types().buffer)) {
      int64_t index = signed_number(PyTuple_GET_ITEM(o, 0), concat(path_, ".operand"));
      if (index == LaunchArgument::kWorkspace)
        TS_CHECK_VALUE(plan_->workspace, path_, ": a plan without workspace names it as an argument");
      else
        check_operand(index, false);
      plan_->arguments.push_back({static_cast<int32_t>(index), 0, 0});
      return;
    }
    TS_CHECK_TYPE(is_a(o, plan_types().block), path_, ": expected a Buffer or a Block, got ", type_name(o));
    read_block(o);
  }

  void read_block(PyObject* o) {
    char* data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(o, 0), &data, &size) < 0) throw_python();
    size_t at = (plan_->bytes.size() + 15) / 16 * 16;
    TS_CHECK_VALUE(at + static_cast<size_t>(size) < UINT32_MAX, path_, ": too many bytes");
    plan_->bytes.resize(at);
    plan_->bytes.insert(plan_->bytes.end(), data, data + size);
    plan_->arguments.push_back({LaunchArgument::kBytes, static_cast<uint32_t>(at), static_cast<uint32_t>(size)});
    PyRef patches = sequence(PyTuple_GET_ITEM(o, 1), concat(path_, ".patches"));
    std::string block_path = path_;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(patches.get()); ++k) {
      path_ = concat(block_path, ".patches[", k, "]");
      read_patch(PySequence_Fast_GET_ITEM(patches.get(), k), at, static_cast<uint64_t>(size));
    }
  }

  void read_patch(PyObject* o, size_t block, uint64_t size) {
    TS_CHECK_TYPE(is_a(o, plan_types().patch), path_, ": expected a Patch, got ", type_name(o));
    std::string kind = to_utf8(PyTuple_GET_ITEM(o, 1)), format = to_utf8(PyTuple_GET_ITEM(o, 3));
    static constexpr std::string_view kFormats = "bBhHiIqQfd";
    static constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    size_t known = format.size() == 1 ? kFormats.find(format[0]) : std::string_view::npos;
    TS_CHECK_VALUE(known != std::string_view::npos, path_, ".format: expected one of b B h H i I q Q f d, got '",
                   format, "'");
    uint64_t position = whole(PyTuple_GET_ITEM(o, 0), concat(path_, ".position"), UINT32_MAX);
    TS_CHECK_VALUE(position + kSizes[known] <= size, path_, ": ends at byte ", position + kSizes[known],
                   " of a block of ", size);
    int64_t index = signed_number(PyTuple_GET_ITEM(o, 2), concat(path_, ".source"));
    plan_->patches.push_back({patch_kind(kind, index, format[0]), format[0], static_cast<int32_t>(index),
                              static_cast<uint32_t>(block + position)});
  }

  LaunchPatch::Kind patch_kind(const std::string& kind, int64_t index, char format) {
    if (kind == "param") {
      bool number = index >= 0 && index < call_.n_params && index < 64;
      if (number) {
        int tag = call_.params[index].tag;
        number = (changing_ >> index & 1) && (tag == TS_V_INT || tag == TS_V_FLOAT || tag == TS_V_BOOL);
      }
      TS_CHECK_VALUE(number, path_, ": parameter ", index,
                     " is not a number that the kernel's registration names as changing");
      return LaunchPatch::Param;
    }
    TS_CHECK_VALUE(kind == "offset" || kind == "scalar", path_, ".kind: expected 'offset', 'scalar' or 'param', got '",
                   kind, "'");
    check_operand(index, kind == "scalar");
    TS_CHECK_VALUE(kind == "scalar" || (format != 'f' && format != 'd'), path_,
                   ".format: an offset is an integer, got '", format, "'");
    return kind == "scalar" ? LaunchPatch::Number : LaunchPatch::Offset;
  }

  void check_operand(int64_t index, bool number) {
    TS_CHECK_VALUE(index >= 0 && index < call_.n_outputs + call_.n_inputs, path_, ": the call has ",
                   call_.n_outputs + call_.n_inputs, " operands, got ", index);
    auto k = static_cast<int32_t>(index);
    const ts_tensor& t = k < call_.n_outputs ? *TS_OUT(&call_, k) : *TS_IN(&call_, k - call_.n_outputs);
    bool is_number = t.flags & TS_T_SCALAR;
    TS_CHECK_VALUE(is_number == number && !(t.flags & TS_T_NONE), path_, ": operand ", index, " is ",
                   t.flags & TS_T_NONE ? "absent"
                   : is_number         ? "a number without storage: patch it in as 'scalar'"
                                       : "a tensor, not a number");
  }

  PyRef sequence(PyObject* o, const std::string& what) {
    TS_CHECK_TYPE(PyTuple_Check(o) || PyList_Check(o), what, ": expected a tuple or list, got ", type_name(o));
    return checked(PySequence_Fast(o, ""));
  }

  int64_t signed_number(PyObject* o, const std::string& what) {
    TS_CHECK_TYPE(PyLong_Check(o), what, ": expected an int, got ", type_name(o));
    int64_t v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred()) throw_python();
    return v;
  }

  uint64_t whole(PyObject* o, const std::string& what, uint64_t largest) {
    int64_t v = signed_number(o, what);
    TS_CHECK_VALUE(v >= 0 && static_cast<uint64_t>(v) <= largest, what, ": expected 0 to ", largest, ", got ", v);
    return static_cast<uint64_t>(v);
  }

  void* address(PyObject* o, const char* field) {
    TS_CHECK_TYPE(PyLong_Check(o), path_, field, ": expected an address as an int, got ", type_name(o));
    void* p = PyLong_AsVoidPtr(o);
    if (PyErr_Occurred()) throw_python();
    return p;
  }

  void read_three(PyObject* o, const char* field, uint64_t largest, uint64_t* out) {
    std::string what = concat(path_, field);
    PyRef list = sequence(o, what);
    TS_CHECK_VALUE(PySequence_Fast_GET_SIZE(list.get()) == 3, what, ": expected three numbers, got ",
                   PySequence_Fast_GET_SIZE(list.get()));
    for (int k = 0; k < 3; ++k) {
      out[k] = whole(PySequence_Fast_GET_ITEM(list.get(), k), what, largest);
      TS_CHECK_VALUE(out[k] > 0, what, ": expected positive numbers, got 0");
    }
  }

  const ts_call& call_;
  uint64_t changing_;
  LaunchPlan* plan_ = nullptr;
  std::string path_;
};

} // namespace

bool is_plan(PyObject* result) { return is_a(result, plan_types().plan); }

std::shared_ptr<const LaunchPlan> read_plan(PyObject* result, const ts_call& call, uint64_t changing,
                                            const KernelOwner& owner) {
  TS_CHECK_TYPE(owner.raw_handles, "the kernel returned a LaunchPlan, whose launches take raw handles: set ",
                "raw_handles = True on the backend '", owner.name, "' and let its slots return ints");
  std::shared_ptr<LaunchPlan> plan = PlanReader(call, changing).read(result);
  plan->backend = find_backend(owner.name);
  plan->keep = hold(result);
  return plan;
}

} // namespace ts::py
