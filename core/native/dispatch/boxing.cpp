// Calls of operators by name, from C++.
#include "dispatch/boxing.h"

namespace ts {

Tensor Op::one(std::span<const Value> given) const {
  if (get().schema->returns.size() > 1) [[unlikely]] {
    Results r;
    run(r.data(), given);
    return r.take(0);
  }
  Value result;
  run(&result, given);
  return result.tag == Tag::Tensor ? Tensor::adopt(result.tensor) : Tensor();
}

void Op::run(Value* results, std::span<const Value> given) const {
  const Operator& op = get();
  const std::vector<Argument>& arguments = op.schema->args;
  int32_t n = static_cast<int32_t>(arguments.size()), nrets = static_cast<int32_t>(op.schema->returns.size());
  if (arguments.size() <= given.size()) [[likely]] {
    Frame f{given.data(), results, n, nrets};
    return call(op, f);
  }
  union Slots { // only the first n come to life
    Value values[kMaxArgs];
    Slots() {}
    ~Slots() {}
  } slots;
  std::copy(given.begin(), given.end(), slots.values);
  for (size_t k = given.size(); k < arguments.size(); ++k) slots.values[k] = arguments[k].default_value;
  Frame f{slots.values, results, n, nrets};
  call(op, f);
}

} // namespace ts
