// oneDNN behind plain pointers: the rest of the backend sees no type of it. Every call says how many threads it may
// use, because oneDNN bakes the number into a primitive (and a forked child must never ask for more than one).
#pragma once

#include <cstdint>
#include <tesserack/backend.hpp>

namespace tesserack::cpu::onednn {

// Whether this library was built with oneDNN.
bool is_built_in();

enum class Type : int32_t { f32, bf16, f16 };

// C of type `result` = A @ B (+ bias). Row-major C with unit column stride; strides in elements.
struct MatmulProblem {
  Type type, result;
  int32_t threads, row_bias; // bias of n elements, of the type of the operands
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row;
};

// False when oneDNN has no implementation for the problem on this processor (or was not built in).
bool matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c);

enum ScratchSlot { kScratchpad, kSource, kWeights, kDestination, kScratchSlots };

// Scratch memory of one call of a kernel. Large pieces are the core's: the tensors of what runs next take their place.
class CallScratch {
public:
  explicit CallScratch(const backend::Call& call) : call_(call) {}
  void* at(ScratchSlot slot, size_t bytes); // what a slot held before may be gone

private:
  struct Piece {
    void* data = nullptr;
    size_t bytes = 0;
  };
  backend::Call call_;
  Piece pieces_[kScratchSlots];
};

enum class Conv : int32_t { forward, backward_input, backward_weight };

// Up to three spatial dimensions; sizes of the forward convolution whatever the direction.
struct ConvProblem {
  Conv kind;
  Type type;
  int32_t threads;
  int32_t spatial;
  int32_t channels_last; // of input, output and their gradients
  int32_t bias;          // forward only
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

// The tensors of the forward convolution; the one being computed is written. Weight is row-major.
bool convolution(const ConvProblem& problem, CallScratch& scratch, const void* input, const void* weight,
                 const void* bias, const void* output);

} // namespace tesserack::cpu::onednn
