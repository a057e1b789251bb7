// How `reduce` walks its input for any fold, which it knows by a table: compiled once, not per fold and dtype.
#ifndef TESSERACK_CPU_REDUCE_WALK_H
#define TESSERACK_CPU_REDUCE_WALK_H

#include "copy/box.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

constexpr int64_t kParallelElements = 32768;
constexpr int64_t kColumns = 512; // that are folded side by side, at most
constexpr int64_t kLongRow = 512; // elements of a row from which two are folded abreast

// Room for one Wide of any fold; n of them hold n values one after another, at the width of the fold's Wide.
struct alignas(8) Cell {
  char bytes[8];
};
using AnyFn = void (*)();

// Folds of bytes take bytes of any dtype, which is looked at before.
inline bool folds_as_it_is(int32_t compute, int32_t dtype) {
  return dtype == compute || (compute == TS_UINT8 && backend::dtype_size(dtype) == 1);
}

// The elements that are folded.
struct Source {
  AnyFn load; // a LoadFn of the fold's compute type
  int64_t item;
  bool is_compute_type; // they need no conversion
  bool is_float;        // they are float32
};

struct FoldTable {
  int32_t dtype; // the compute type
  int64_t wide;  // bytes of a value of those that are held
  AnyFn (*loader)(int32_t dtype);
  AnyFn (*storer)(int32_t dtype);
  void (*start)(Cell* wide, int64_t n);
  void (*merge)(Cell* into, const Cell* from, int64_t n);
  void (*join)(Cell* into, const Cell* from, int64_t n); // n values into one
  // Fold each row of a box into its value, and each of up to kColumns columns.
  void (*rows)(Cell* wide, const Source& from, const char* at, const Box& box);
  void (*columns)(Cell* wide, const Source& from, const char* at, const Box& box);
  void (*store)(AnyFn to, char* at, const Cell* wide, const Box& box);
};

void reduce_walk(const backend::Call& call, int n_reduced_dims, const FoldTable& fold);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_REDUCE_WALK_H
