// Operators and kernels that are registered while the program runs, in whatever language they are written.
#pragma once
#include "dispatch/operator.h"

namespace ts {

// An operator with a namespace, "acme::saxpy(...) -> ...", whose body is opaque unless composite. What the pointers
// refer to stays for the life of the process. ValueError for a malformed schema, RuntimeError if the name is taken.
struct CustomOperator {
  const char* schema;
  const char* doc;
  BodyFn body;
  void* extension;    // Operator::extension, for the body
  const char* origin; // who defines it
  bool composite = false;
};
inline constexpr size_t kMaxCustomArgs = 24;
const Operator& define_operator(const CustomOperator& custom);
bool is_custom(const Operator& op);

// A functionality key, "meta", or a backend, which is loaded now. ValueError for other names.
int kernel_key(const std::string& name);
// A kernel for one operator or, with NULL, for those without one of their own. An empty one: calls pass by the key.
// ValueError for a key that cannot have it, RuntimeError for an unknown operator.
void install_kernel(const char* op, const std::string& key, Kernel kernel);
// ValueError unless `neighbour` is a key and the name one of letters, digits and underscores that no device has.
void add_key(const std::string& name, const std::string& neighbour, bool before);
// Whether this thread's calls come to the key; returns how it was.
bool enable_key(const std::string& name, bool on);
// Whether they pass by it, even with tensors that have it; returns how it was.
bool exclude_key(const std::string& name, bool on);

} // namespace ts
