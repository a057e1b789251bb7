// What a collective says of itself beside its data: for comparing it with what other ranks called, and for messages.
#pragma once
#include "comm/reduction.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

namespace ts::comm {

inline constexpr size_t kTextBytes = 240; // of what a rank tells others of a collective, with the closing zero

struct Call {
  const char* op; // "all_reduce"
  DType dtype;
  double timeout;    // seconds
  const char* where; // "train.py:12", or ""
  int root = 0;
  Reduction reduction = Reduction::Sum;
};

using Parts = std::span<void* const>;            // memory by rank
using ConstParts = std::span<const void* const>; // the same, read only
using Counts = std::span<const int64_t>;         // elements by rank

// How long to wait and for what else to look while waiting.
struct Patience {
  double seconds;
  std::string what; // "all_reduce #3 of float32[4]", for messages
};

inline const std::byte* advance(const void* p, size_t bytes) { return static_cast<const std::byte*>(p) + bytes; }
inline std::byte* advance(void* p, size_t bytes) { return static_cast<std::byte*>(p) + bytes; }
inline void move_bytes(void* to, const void* from, size_t bytes) {
  if (bytes && to != from) std::memmove(to, from, bytes);
}

double now(); // seconds of a clock that only goes forward

// ValueError unless the root is one of the ranks and counts are numbers of elements.
void check_call(const Call& call, Counts counts, int ranks);
void check_parts(const Call& call, size_t parts, Counts counts, int ranks, const char* what);
// Differs where operation, number, dtype, root, reduction or counts do.
uint64_t signature(const Call& call, uint64_t number, Counts counts);
// "all_reduce #3 of float32[4] at train.py:12, sum", into kTextBytes.
void describe(char* text, const Call& call, uint64_t number, Counts counts);
// The same of a send or receive; other: -1 for any.
Patience letter_patience(const Call& call, int64_t count, const char* direction, int other);
// "all_reduce ...: rank 1, rank 2 did not come within 3 s; rank 1 last began ...": of each, what it last began, or "".
std::string missing_text(const Patience& patience, std::span<const int> missing, const char* why, bool late,
                         const std::function<std::string(int)>& began);
// "ranks called different collectives: rank 0 all_reduce #3; rank 1 ..."
std::string mismatch_text(int ranks, const std::function<std::string(int)>& called);

} // namespace ts::comm
