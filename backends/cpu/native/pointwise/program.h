// A pointwise program bound to operands of compute type T and run tile by tile in the L1 cache.
#ifndef TESSERACK_CPU_PROGRAM_H
#define TESSERACK_CPU_PROGRAM_H

#include "geometry.h"
#include "measured.h"
#include "ops.h"

#include <optional>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kTileBytes = 4096;
template <typename T> constexpr int64_t kTileElements = kTileBytes / static_cast<int64_t>(sizeof(T));

// The value of a TS_T_SCALAR operand, rounded through its own dtype.
template <typename T> T scalar_value(const ts_tensor* tensor) {
  return with_storage(tensor->dtype, [&]<typename S>() -> T {
    if (tensor->dtype >= TS_FLOAT16) return convert<T>(convert<S>(tensor->scalar.f));
    return convert<T>(convert<S>(tensor->scalar.i));
  });
}

template <typename T> class Program {
public:
  // Throws when an instruction is unknown, not defined for T, or names a register that is not there.
  // `program`: the call's, or what was made of it for the same operands.
  Program(const ts_call* call, const ts_program* program);
  void run();

private:
  enum Kind : uint8_t { kConstant, kUniform, kDirect, kStaged };
  enum Place : uint8_t { kInPlace, kPastCaches, kStored, kPaired, kPartner };
  struct Source {
    Kind kind;
    int operand; // in space_
    LoadFn<T> load;
    T value;
  };
  struct Sink {
    Place place;
    int reg;
    StoreFn<T> store;
  };
  struct Step {
    OpFn<T> run;
    uint16_t a, b, c;
    bool uniform;
    int slot; // tile that takes the result; -1: straight into output `sink`
    int sink;
  };

  int64_t tile_elements() const;
  void bind_operands();
  void classify();
  bool must_outlive_stores(int input) const;
  void compile();
  void assign_slots(const bool* uniform);
  bool lies_dense(int sink) const;
  bool lies_beside_next(int sink) const;
  bool may_write_in_place(int sink, int instruction) const;
  int last_use(int reg) const;
  bool is_one_loop_a_row() const;
  void run_rows(int64_t first, int64_t last) const;
  void run_range(int64_t first, int64_t last) const;
  int run_box(const BoxWalk& walk, T* workspace, T* values, const T** regs, const char** loaded) const;

  int first_step() const { return program_->n_inputs + program_->n_constants; }
  int n_registers() const { return first_step() + program_->n_instructions; }

  const ts_call* call_;
  const ts_program* program_;
  SmallArray<Operand, 5> operands_;
  SmallArray<Source, 8> sources_; // inputs and constants
  SmallArray<Sink, 4> sinks_;
  SmallArray<Step, 16> steps_;
  Space space_;
  Tiling tiling_;
  int n_slots_ = 0;
  int64_t weight_ = 1;
  std::optional<MeasuredPass> measured_;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_PROGRAM_H
