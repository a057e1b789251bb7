// Tensors of storage dtypes carry a key of their own, whose kernel asks whether an operator computes with the dtype.
// All others never meet it.
#include "ops/common/storage_dtypes.h"
#include "ops/common/facts.h"
#include "tensor/thread_state.h"
#include <algorithm>
#include <string_view>

namespace ts {
namespace {

// What PyTorch computes on the cpu stands at the operators: facts.h. Views, answers, and operators made of others need
// not say so.
std::string_view facts_of(const std::string& base) {
  auto found = facts_by_name().find(base);
  return found == facts_by_name().end() ? std::string_view() : std::string_view(found->second);
}

bool refuses(const std::string& base, DType t) {
  if (says(facts_of(base), "stored:none") || base.starts_with("_linalg")) return true;
  if (is_packed(t)) return base == "isinf" || base == "isnan" || base == "isfinite";
  if (!is_narrow(t)) return false;
  if (base == "isinf") return t != DType::Float8E5M2; // which alone has infinities
  return base == "isclose" || base == "allclose";
}

bool computes(const Operator& op, DType t) {
  const Operator& functional = op.functional ? *op.functional : op;
  const std::string& base = functional.schema->base;
  if (refuses(base, t)) return false;
  // Part of an operator that was asked already, or a gradient of one; those of linalg are hidden from others alone.
  if (functional.hidden && !base.starts_with("linalg_")) return true;
  if (t == DType::Float8E8M0FNU && (base == "abs" || base == "absolute" || base.starts_with("index_put"))) return false;
  if (is_narrow(t) && base == "isfinite") return t == DType::Float8E5M2 || t == DType::Float8E8M0FNU;
  std::string_view said = facts_of(base);
  if (is_packed(t) && (functional.kind == OperatorKind::Pointwise)) return false;
  return says(said, "stored") || (t == DType::Complex32 && says(said, "stored:complex32"));
}

// Reductions and their like cast first to the dtype that they are given.
bool casts_first(const Frame& f) {
  return std::any_of(f.args, f.args + f.nargs,
                     [](const Value& v) { return v.tag == Tag::DType && !is_storage_dtype(static_cast<DType>(v.i)); });
}

DType storage_dtype(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && is_storage_dtype(v.tensor->dtype)) return v.tensor->dtype;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined() && is_storage_dtype(t.dtype())) return t.dtype();
  }
  return DType::Undefined;
}

// What an operator that computes with the dtype is made of is not asked again.
void ask(void*, const Operator& op, Frame& f, KeySet keys) {
  KeySet rest = keys & below(key::StorageDtype);
  DType t = storage_dtype(f);
  bool asks = op.kind == OperatorKind::Pointwise || op.kind == OperatorKind::Primitive ||
              op.kind == OperatorKind::DataDependent || refuses(op.schema->base, t);
  if (t == DType::Undefined || (!asks && !computes(op, t)) || casts_first(f)) return redispatch(op, f, rest);
  check_storage_dtype(op, t);
  ExcludeKeys inside(key_bit(key::StorageDtype));
  redispatch(op, f, rest);
}

struct Install {
  Install() { set_key_default(key::StorageDtype, {ask, nullptr, "tesserack"}); }
} install;

} // namespace

void check_storage_dtype(const Operator& op, DType t) {
  if (thread_state().exclude & key_bit(key::StorageDtype)) return;
  TS_CHECK_KIND(ErrorKind::NotImplemented, computes(op, t), op.name(), ": not implemented for dtype ", t,
                ", which is for storage; try ",
                is_packed(t)    ? ".view(uint8)"
                : is_complex(t) ? ".to(complex64)"
                                : ".to(float32)");
}

} // namespace ts
