#include "autograd/anomaly.h"
#include "dispatch/op_handles.h"
#include "runtime/interpreter.h"

namespace ts {
namespace {

thread_local bool t_checks_nan = true;

// A warning; where warnings are errors, a line of the log: the error that it tells of is the one to raise.
void announce(const std::string& message) {
  try {
    warn(message);
  } catch (...) {
    const InterpreterHooks& hooks = interpreter_hooks();
    std::string text;
    if (hooks.take_exception) hooks.take_exception(text);
    if (hooks.log) hooks.log(2, message.c_str());
  }
}

} // namespace

bool anomaly_checks_nan() { return t_checks_nan; }
void set_anomaly_checks_nan(bool on) { t_checks_nan = on; }

void check_no_nan(const Node& node, std::span<Tensor> out) {
  ExcludeKeys off(key_bit(key::Autograd));
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined() || !(is_floating(out[i].dtype()) || is_complex(out[i].dtype()))) continue;
    Results r;
    ops::local_scalar.invoke(r, ops::any(ops::isnan(out[i])));
    TS_CHECK(r[0].i == 0, "Function '", node.name(), "' returned nan values in its ", i, "th output.");
  }
}

void warn_of_forward(const Node& failed) {
  constexpr const char* unknown = "No forward pass information available. Enable detect anomaly during forward pass "
                                  "for more information.";
  auto told = [](const Node& n, const char* text) { return n.location ? concat(text, ":\n", *n.location) : unknown; };
  announce(concat("Error detected in ", failed.name(), ". ",
                  told(failed, "Traceback of forward call that caused the error")));
  for (const Node* n = failed.parent.get(); n; n = n->parent.get())
    announce(concat("Previous calculation was induced by ", n->name(), ". ",
                    told(*n, "Traceback of forward call that induced the previous calculation")));
}

} // namespace ts
