// Puts random words in order: spread over small groups by their value, eight groups sorted at a time, a group to each
// lane of the registers.
#include "storage.h"

#include <algorithm>
#include <cstring>

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

bool positions_in_order(uint64_t* words, int64_t count, int shift, uint64_t positions);

namespace {

constexpr int kSlots = 8, kLanes = 8;    // of a group; groups side by side
constexpr int64_t kMostWords = 2048;     // of a call; see random_order.cpp
constexpr double kWordsOfGroup = 3.5;    // with 1.2 % of the groups over kSlots, the quickest of 2 to 4
constexpr int64_t kMostGroups = 592;     // kMostWords / kWordsOfGroup, in whole blocks
constexpr uint64_t kNone = ~uint64_t{0}; // in an empty slot: comes last

using Lanes = uint64_t __attribute__((vector_size(64)));

// The words of every group, slot by slot: the same slot of kLanes groups is one load.
struct Groups {
  alignas(64) uint64_t slots[kSlots * kMostGroups];
  uint16_t taken[kMostGroups];
  uint64_t left_over[kMostWords]; // by groups that are full
  int64_t groups, left = 0;
  int shift;

  // The bits under `shift`, in proportion.
  int64_t group_of(uint64_t word) const {
    const uint64_t fraction = (shift >= 32 ? word >> (shift - 32) : word << (32 - shift)) & 0xffffffffu;
    return static_cast<int64_t>((fraction * static_cast<uint64_t>(groups)) >> 32);
  }

  Groups(const uint64_t* words, int64_t count, int shift) : shift(shift) {
    const int64_t blocks = static_cast<int64_t>(static_cast<double>(count) / kWordsOfGroup) / kLanes + 1;
    groups = blocks * kLanes;
    std::fill_n(slots, kSlots * groups, kNone);
    std::fill_n(taken, groups, uint16_t{0});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t group = group_of(words[i]);
      const int slot = taken[group]++;
      if (slot < kSlots)
        slots[slot * groups + group] = words[i];
      else
        left_over[left++] = words[i];
    }
  }

  // Appends what a full group left over, and sorts it all.
  uint64_t* finish_full(int64_t group, uint64_t* to) const {
    uint64_t* end = to + kSlots;
    for (int64_t i = 0; i < left; ++i)
      if (group_of(left_over[i]) == group) *end++ = left_over[i];
    std::sort(to, end);
    return end;
  }
};

inline void exchange(Lanes& a, Lanes& b) {
  const Lanes low = a < b ? a : b, high = a < b ? b : a;
  a = low;
  b = high;
}

// Batcher's network for eight: nineteen exchanges.
inline void sort_slots(Lanes (&v)[kSlots]) {
  constexpr int pairs[][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}, {0, 1}, {2, 3},
                              {4, 5}, {6, 7}, {2, 4}, {3, 5}, {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
#pragma GCC unroll 19
  for (const auto& pair : pairs) exchange(v[pair[0]], v[pair[1]]);
}

// From slots of groups to groups of slots.
inline void transpose(Lanes (&v)[kSlots]) {
  Lanes t[kSlots];
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int k = i; k < i + 2; ++k) {
      v[k] = __builtin_shufflevector(t[k], t[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      v[k + 2] = __builtin_shufflevector(t[k], t[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int k = 0; k < 4; ++k) {
    t[k] = __builtin_shufflevector(v[k], v[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[k + 4] = __builtin_shufflevector(v[k], v[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  std::copy_n(t, kSlots, v);
}

} // namespace

// `count` <= kMostWords words that agree above the bit `shift` are put in order, best if spread evenly below it, and
// become their positions (the lower bits that the mask holds). False, and as they were, if two agree in all others.
bool positions_in_order(uint64_t* words, int64_t count, int shift, uint64_t positions) {
  const Groups from(words, count, shift);
  uint64_t sorted[kMostWords + kSlots]; // a group is written whole, its empty slots under the next one
  uint64_t* to = sorted;
  for (int64_t group = 0; group < from.groups; group += kLanes) {
    Lanes v[kSlots];
    for (int slot = 0; slot < kSlots; ++slot)
      std::memcpy(&v[slot], from.slots + slot * from.groups + group, sizeof v[0]);
    sort_slots(v);
    transpose(v);
    for (int lane = 0; lane < kLanes; ++lane) {
      std::memcpy(to, &v[lane], sizeof v[0]);
      const int taken = from.taken[group + lane];
      to = taken > kSlots ? from.finish_full(group + lane, to) : to + taken;
    }
  }
  uint64_t agree = 0;
  for (int64_t i = 0; i + 1 < count; ++i) agree |= static_cast<uint64_t>((sorted[i] ^ sorted[i + 1]) <= positions);
  if (agree) return false;
  for (int64_t i = 0; i < count; ++i) words[i] = sorted[i] & positions;
  return true;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
