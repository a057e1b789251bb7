// The parameters of kernels by name: of those that declarations name, from there; of those that the core's code calls,
// from a table here. For who records, repeats or writes down calls of kernels.
#pragma once
#include "dispatch/kernel_spec.h"

namespace ts {

struct KernelSignature {
  std::vector<std::string> parameters; // in the kernel's order, lists of tensors among them
  std::vector<int> changing;           // which of them differ from call to call in what is otherwise the same call
  int seed = -1;                       // the key of random numbers, with the position after it; -1: it draws none
};

// NULL for kernels that nothing is known of: those that replace whole operators have the operators' arguments.
const KernelSignature* kernel_signature(const std::string& name);
void note_kernel(const KernelSpec& spec); // of a declaration

} // namespace ts
