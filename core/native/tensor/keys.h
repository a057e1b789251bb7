// Dispatch keys: a 64-bit set. Low bits are backends, high bits functionality in order of priority.
#pragma once
#include "tensor/device.h"
#include <bit>
#include <cstdint>

namespace ts {

using KeySet = uint64_t;

// Gaps are left for keys that plugins register "before" or "after" one of these.
namespace key {
inline constexpr int kBackendBits = kMaxBackends;
inline constexpr int Leaf = 27;      // calls are written down by graph/tracer.h as they reach a backend
inline constexpr int Python = 28;    // the tensor's class, or a mode, has a __torch_dispatch__
inline constexpr int Conjugate = 29; // the tensor's values are the conjugates of what is in memory
inline constexpr int Negative = 30;  // they are its negatives
inline constexpr int StorageDtype =
    31; // its dtype is one that most operators refuse, see ops/common/storage_dtypes.cpp
inline constexpr int Autograd = 34;
inline constexpr int Tracer = 35; // calls are written down by graph/tracer.h as the program makes them
inline constexpr int Sparse = 40; // tensors that are made of parts, whatever their layout
inline constexpr int Batching = 41;
inline constexpr int Autocast = 47;
inline constexpr int Profiler = 52;
inline constexpr int UserMode = 60;
} // namespace key

inline constexpr KeySet key_bit(int key) { return KeySet{1} << key; }
inline constexpr KeySet backend_bits() { return key_bit(key::kBackendBits) - 1; }
inline constexpr KeySet below(int key) { return key_bit(key) - 1; }
// What a tensor says of its memory by a key. Views carry it on; kernels never see it (ops/common/pending_bits.cpp).
inline constexpr KeySet pending_bits() { return key_bit(key::Conjugate) | key_bit(key::Negative); }
// What follows from a tensor's data, and not from what is done with it.
inline constexpr KeySet data_bits() {
  return backend_bits() | pending_bits() | key_bit(key::Sparse) | key_bit(key::StorageDtype);
}
inline int highest_key(KeySet keys) { return 63 - std::countl_zero(keys); }

} // namespace ts
