// Several elementwise results in one launch.
#pragma once
#include "ops/pointwise/expr.h"
#include "tensor/tensor.h"
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace ts {

// A pointwise program with several results, each an expression over `variables` (space-separated). A line
// "name=expression" is no result but a name for those after it.
class Fused {
public:
  Fused(const char* variables, std::initializer_list<const char*> lines) : variables_(variables), lines_(lines) {}
  Fused(const char* variables, std::vector<const char*> lines) : variables_(variables), lines_(std::move(lines)) {}
  // Computes all results; operands are of one size, undefined ones count as zero. `numbers` are the variables after
  // them.
  void run(std::span<const Tensor> outputs, std::span<const Tensor> inputs, std::span<const double> numbers = {}) const;
  void run(std::initializer_list<Tensor> outputs, std::initializer_list<Tensor> inputs) const {
    run({outputs.begin(), outputs.size()}, std::span<const Tensor>{inputs.begin(), inputs.size()});
  }

private:
  const char* variables_;
  std::vector<const char*> lines_;
  mutable std::once_flag compiled_;
  mutable std::unique_ptr<const pointwise::Program> program_;
};

} // namespace ts
