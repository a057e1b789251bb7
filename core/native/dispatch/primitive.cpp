#include "dispatch/primitive.h"
#include "dispatch/describe.h"
#include "runtime/empty.h"
#include <algorithm>

namespace ts {
namespace {

// The device of what is written; undefined for no tensors.
Device written_device(const Operator& op, const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    if (!(op.effects.mutates >> k & 1)) continue;
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor) return v.tensor->device;
    if (v.tag != Tag::Tensors) continue;
    for (const Tensor& t : v.as_tensors())
      if (t.defined()) return t.device();
  }
  return {};
}

} // namespace

void drop_results(Frame& f) {
  for (int32_t k = 0; k < f.nrets; ++k)
    if (f.rets[k].tag == Tag::Tensor) {
      Tensor::adopt(f.rets[k].tensor);
      f.rets[k] = Value();
    }
}

namespace {

inline bool allocate(const Operator& op, Frame& f) {
  bool work = false;
  for (int32_t k = 0; k < f.nrets; ++k) {
    if (f.rets[k].tag != Tag::Tensor) continue;
    TensorImpl& t = *f.rets[k].tensor;
    if (t.device.is_meta()) return false;
    give_memory(t);
    work |= t.numel > 0;
  }
  return work || op.effects.mutates;
}

// The results have their dtypes: what a computation calls for them is not cast in the caller's autocast region.
inline void run_uncast(BodyFn body, const Operator& op, Frame& f) {
  if (!(thread_state().include & key_bit(key::Autocast))) [[likely]]
    return body(op, f);
  ExcludeKeys off(key_bit(key::Autocast));
  body(op, f);
}

} // namespace

bool allocate_results(const Operator& op, Frame& f) {
  try {
    return allocate(op, f);
  } catch (...) {
    drop_results(f);
    throw;
  }
}

void compute_results(const Operator& op, Frame& f) {
  try {
    run_uncast(op.compute, op, f);
  } catch (...) {
    drop_results(f);
    throw;
  }
}

void run_primitive(const Operator& op, Frame& f) {
  op.rule(op, f);
  try {
    if (allocate(op, f)) run_uncast(op.compute, op, f);
  } catch (...) {
    drop_results(f);
    throw;
  }
}

void run_primitive_kernel(void*, const Operator& op, Frame& f, KeySet) {
  if (!op.any_device) check_same_device(op, f);
  run_primitive(op, f);
}

void run_maker(const Operator& op, Frame& f) {
  op.rule(op, f);
  bool no_data = std::any_of(f.rets, f.rets + f.nrets,
                             [](const Value& v) { return v.tag == Tag::Tensor && v.tensor->device.is_meta(); });
  drop_results(f);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !no_data, op.name(),
                ": sizes of the result follow from values, which tensors on the meta device do not have");
  run_uncast(op.make, op, f);
}

// The arguments that it writes, as its results.
static void give_written(const Operator& op, Frame& f) {
  const Schema& s = *op.schema;
  for (size_t r = 0; r < s.returns.size(); ++r)
    for (size_t k = 0; k < s.args.size(); ++k)
      if (s.args[k].type.alias == s.returns[r].alias) {
        f.give(static_cast<int>(r), f.args[k].as_tensor());
        break;
      }
}

void run_writer(const Operator& op, Frame& f) {
  op.rule(op, f);
  Device device = written_device(op, f);
  if (device.defined() && !device.is_meta()) run_uncast(op.compute, op, f);
  give_written(op, f);
}

bool run_decomposition(const Operator& op, Frame& f) {
  if (!op.decompose) return false;
  op.rule(op, f);
  try {
    for (int32_t k = 0; k < f.nrets; ++k)
      if (f.rets[k].tag == Tag::Tensor && !f.rets[k].tensor->device.is_meta()) give_memory(*f.rets[k].tensor);
    run_uncast(op.decompose, op, f);
  } catch (...) {
    drop_results(f);
    throw;
  }
  if (op.body == run_writer) give_written(op, f);
  return true;
}

} // namespace ts
