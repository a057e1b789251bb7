// Which kernel computes a primitive, and with what: data, which the core runs (ops/common/kernel_call.cpp) and which
// recorders, exporters, tests and `explain` read. Written in a declaration as
//
//   .kernel("softmax", "self: contiguous result", "dim wrapped self")
//
// - Outputs are the new results, in order.
// - Operands are arguments in the order the kernel has them, in groups: names, a colon, how they lie (any, contiguous,
//   or layout: contiguous, or with the channels innermost where an argument that `leads` is), and of which dtype, if
//   not their own: result (of the first result, or of the first operand where there is none), accumulate (in which
//   numbers of that are added up), parameter (that, where it is so already; else result), or a dtype's name. `only`:
//   the kernel is not asked where the operand is not so already. `empty`: it may have no elements. A written argument
//   is written by the kernel; `if NAME`: where that argument is true. A list of tensors is an operand each, and a
//   parameter that says where they stand.
// - Parameters are arguments by name, in the kernel's order: `NAME or OTHER`: the other, where the first is None or an
//   empty list. `wrapped NAME`: a dim from 0 on, of as many as that tensor, or the first `result`, has. `each NAME`,
//   `each 2`: a list of one number stands for one of each spatial dim of that tensor (or sizes), or for two. A number
//   is itself. `changes`: it differs from call to call in what is otherwise the same call, as steps and rates do.
//
// A kernel is not asked where a single operand has no elements, or a wrapped dim no dims to count: such calls take
// the decomposition, as those take for which a card has no kernel, or declines. Without a decomposition, results are
// zeros there, and the cpu's kernel serves cards that have none.
#pragma once
#include "dispatch/schema.h"
#include "runtime/backend.h"
#include <array>
#include <atomic>

namespace ts {

enum class Lie : uint8_t { Any, Contiguous, Layout };
enum class AsDType : uint8_t { Own, Result, Accumulate, Parameter, Fixed };

struct KernelOperand {
  std::string name;
  int8_t arg = -1;
  Lie lie = Lie::Any;
  AsDType as = AsDType::Own;
  DType dtype = DType::Undefined; // of Fixed
  bool only = false;              // not asked where it is not so already
  bool empty = false;             // may be without elements
  bool list = false, written = false;
  int8_t written_if = -1; // the argument that says whether
};

enum class ParameterFrom : uint8_t { Argument, Wrapped, EachDim, EachOf, Number };

constexpr int8_t kFirstResult = -2;

struct KernelParameter {
  std::string name; // of the argument; of a number its digits
  ParameterFrom from = ParameterFrom::Argument;
  int8_t arg = -1, other = -1, of = -1; // `or OTHER`, `wrapped OF`
  int64_t number = 0;                   // of EachOf and Number
  bool changes = false;
};

// How much work a call is: whether the interpreter is released around it.
enum class Work : uint8_t { Largest, Always, Product }; // of the largest operand; elements of one times a size

constexpr size_t kPlainArguments = 8; // of operators with plain kernels

struct KernelSpec {
  explicit KernelSpec(const char* name) : id(name) {}
  KernelId id;
  std::vector<KernelOperand> operands;
  std::vector<KernelParameter> parameters;
  uint64_t leads = 0; // bit per argument that decides the layout
  Work work = Work::Largest;
  int8_t work_of = -1, work_arg = -1, work_dim = 0;
  int results = 0;
  // Nothing but single operands that are read, and numbers as they are.
  bool plain() const;

  // The numbers, among the call's parameters, of those that change.
  std::vector<int> changing() const;
};

// ValueError naming the text that is not understood.
std::unique_ptr<KernelSpec> parse_kernel_spec(const Schema& schema, const char* kernel, std::string_view operands,
                                              std::string_view parameters);
std::string to_string(const KernelOperand& operand, const Schema& schema); // "contiguous result", as written
std::string to_string(const KernelParameter& parameter, const Schema& schema);

// Kernels with a decomposition count as missing while it is set: for tests of decompositions.
extern std::atomic<bool> kernels_withheld;

} // namespace ts
