#include "dispatch/describe.h"
#include "runtime/backend.h"

namespace ts {
namespace {

[[noreturn, gnu::cold, gnu::noinline]] void mismatch(const Operator& op, Device a, Device b) {
  fail(ErrorKind::Runtime, op.name(), ": ", devices_differ(a, b));
}

} // namespace

std::string devices_differ(Device a, Device b) {
  auto on_card = [](Device d) { return !d.is_meta() && !backend_of(d).host_memory(d.index); };
  bool to_b = a.is_meta() || (!b.is_meta() && (on_card(b) || !on_card(a)));
  return concat("Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
                "; move one with .to('", to_b ? b : a, "')");
}

void check_same_device(const Operator& op, const Frame& f) {
  Device first;
  auto visit = [&](const TensorImpl* t) {
    if (!t || t->has(TensorImpl::kNumber)) return;
    if (!first.defined())
      first = t->device;
    else if (!(t->device == first)) [[unlikely]]
      mismatch(op, first, t->device);
  };
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor)
      visit(v.tensor);
    else if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors()) visit(t.impl());
  }
}

std::string describe(const Tensor& t) { return t.defined() ? concat(t.dtype(), t.sizes()) : "None"; }

std::string describe(const Value& v) {
  switch (v.tag) {
  case Tag::None: return "None";
  case Tag::Tensor: return describe(v.as_tensor());
  case Tag::Int: return std::to_string(v.i);
  case Tag::Float: return concat(v.f);
  case Tag::Bool: return v.i ? "True" : "False";
  case Tag::Str: return concat('\'', v.str, '\'');
  case Tag::Ints: return concat(v.as_ints());
  case Tag::Floats: return concat("list of ", v.len, " floats");
  case Tag::DType: return std::string(name(static_cast<DType>(v.i)));
  case Tag::Device: return to_string(Device::unpack(v.i));
  case Tag::Tensors: {
    std::string out = "[";
    for (const Tensor& t : v.as_tensors()) out += (out.size() > 1 ? ", " : "") + describe(t);
    return out + "]";
  }
  case Tag::Generator: return "Generator";
  case Tag::Complex: return "complex";
  }
  return "?";
}

std::string describe_args(const Operator& op, const Frame& f) {
  std::string out;
  for (int32_t k = 0; k < f.nargs; ++k) {
    out += (k ? ", " : "") + op.schema->args[static_cast<size_t>(k)].name + "=" + describe(f.args[k]);
  }
  return out;
}

} // namespace ts
