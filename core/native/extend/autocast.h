// Automatic mixed precision: at its key, operators cast their arguments to the dtype they compute best or safely in.
#pragma once
#include "dispatch/operator.h"

namespace ts {

enum class AutocastPolicy : uint8_t {
  None,    // arguments as they are; what the operator calls may cast
  Lower,   // to the dtype of the region
  Float32, // to float32
  Widest,  // to the widest floating dtype among the arguments
  First,   // to the dtype of the region where the first tensor has it, else as they are
  Exempt   // as they are, also in what the operator calls
};

// What all overloads named `base` do, on backends in host memory and on others. RuntimeError for unknown names.
void set_autocast_policy(const std::string& base, AutocastPolicy host, AutocastPolicy device);

// The calling thread's region for tensors of one backend, by name: backends need not be loaded. Undefined: none.
void set_autocast_dtype(const std::string& backend, DType dtype);
// Casts of parameters are kept while a region with `keep` lasts; this drops them.
void clear_autocast_cache();
// What an operator is given in the place of a tensor: the cast that is kept of a parameter, or one of now.
Tensor autocast_cast(const Tensor& t, DType to);
// The regions of this thread, in bytes that are equal only where casts are.
void describe_autocast(std::string& out);
uint64_t autocast_asked();      // how many calls of operators with a rule this thread has made where the key is
std::string autocast_regions(); // without whether casts are kept; "" where there are none
void keep_autocast_casts(bool keep);

} // namespace ts
