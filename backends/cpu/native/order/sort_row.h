// Stable sort of one row through unsigned keys whose order is the order of the values, NaN last.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace tesserack::cpu {

// The key of integers (and bool): flip the sign bit.
template <class T> auto sort_key(T value) {
  using Key = std::make_unsigned_t<T>;
  const Key bits = static_cast<Key>(value);
  return std::is_signed_v<T> ? static_cast<Key>(bits ^ (Key{1} << (8 * sizeof(Key) - 1))) : bits;
}

// The key of an IEEE number given by its bits: all NaN alike and greatest, both zeros alike.
template <class Key> Key float_sort_key(Key bits, Key infinity) {
  constexpr Key sign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  const Key magnitude = static_cast<Key>(bits & static_cast<Key>(~sign));
  if (magnitude > infinity) return static_cast<Key>(~Key{0});
  if (magnitude == 0) return sign;
  return static_cast<Key>((bits & sign) ? ~bits : bits | sign);
}
inline uint32_t sort_key(float value) { return float_sort_key(std::bit_cast<uint32_t>(value), 0x7F800000u); }
inline uint64_t sort_key(double value) {
  return float_sort_key(std::bit_cast<uint64_t>(value), uint64_t{0x7FF0000000000000u});
}

// A key of up to 32 bits above its position: distinct, so that any sort of them is stable.
struct PackedItem {
  uint64_t bits;
  PackedItem() = default;
  PackedItem(uint64_t key, int64_t position) : bits(key << 32 | static_cast<uint64_t>(position)) {}
  uint64_t key() const { return bits >> 32; }
  int64_t position() const { return static_cast<int64_t>(bits & 0xFFFFFFFFu); }
  bool operator<(const PackedItem& other) const { return bits < other.bits; }
};

struct WideItem {
  uint64_t bits;
  int64_t index;
  WideItem() = default;
  WideItem(uint64_t key, int64_t position) : bits(key), index(position) {}
  uint64_t key() const { return bits; }
  int64_t position() const { return index; }
  bool operator<(const WideItem& other) const { return bits != other.bits ? bits < other.bits : index < other.index; }
};

// Least significant digit first, a byte at a time; passes whose byte is the same everywhere are skipped.
template <class Item> void radix_sort(std::vector<Item>& items, std::vector<Item>& spare, int key_bytes) {
  const size_t n = items.size();
  std::vector<size_t> counts(static_cast<size_t>(key_bytes) * 256, 0);
  for (const Item& item : items) {
    for (int byte = 0; byte < key_bytes; ++byte)
      ++counts[static_cast<size_t>(byte) * 256 + (item.key() >> (8 * byte) & 255)];
  }
  spare.resize(n);
  for (int byte = 0; byte < key_bytes; ++byte) {
    size_t* count = &counts[static_cast<size_t>(byte) * 256];
    if (count[items[0].key() >> (8 * byte) & 255] == n) continue;
    size_t start = 0;
    for (int digit = 0; digit < 256; ++digit) start += std::exchange(count[digit], start);
    for (const Item& item : items) spare[count[item.key() >> (8 * byte) & 255]++] = item;
    items.swap(spare);
  }
}

constexpr size_t kRadixFrom = 600; // items; below, std::sort is faster (measured: crossover 300 to 1,000)

template <class Item> void sort_items(std::vector<Item>& items, std::vector<Item>& spare, int key_bytes) {
  if (items.size() < kRadixFrom) {
    std::sort(items.begin(), items.end());
  } else {
    radix_sort(items, spare, key_bytes);
  }
}

} // namespace tesserack::cpu
