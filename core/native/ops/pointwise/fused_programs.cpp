#include "ops/pointwise/fused_programs.h"
#include "ops/pointwise/expr.h"
#include <map>
#include <mutex>

namespace ts {

const ts_program* program_of(const char* expression) {
  static std::mutex mutex;
  static auto* programs = new std::map<std::string, std::unique_ptr<const pointwise::Program>>;
  std::lock_guard lock(mutex);
  auto& program = (*programs)[expression];
  if (!program) {
    const std::string x[] = {"x"};
    pointwise::Expr e = pointwise::parse(expression, x);
    program = pointwise::compile({&e, 1}, x, true);
  }
  return &program->c;
}

} // namespace ts
