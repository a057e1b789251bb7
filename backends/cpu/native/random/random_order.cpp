// The order of random keys, which randperm is made of. Every pass but the last moves words of a key's upper bits and
// its position into buckets by the next bits; the last puts the words of a bucket in order
// (random/random_order.isa.cpp).
#include "isa_pick.h"
#include "threads.h"

#include <tesserack/backend.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tesserack::cpu {

TS_ISA_FUNCTION(bool, positions_in_order, (uint64_t * words, int64_t count, int shift, uint64_t positions));

namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kMostWords = 2048;     // of positions_in_order
constexpr int64_t kBucket = 1024;        // words that a bucket is to hold at most, so that few hold over kMostWords
constexpr int kMostBits = 10;            // of a pass: so many places to write at are at hand
constexpr int64_t kPartOfKeys = 1 << 15; // worth a thread

int bits_for(int64_t count) {
  int bits = 0;
  while (bits < kMostBits && (kBucket << bits) < count) ++bits;
  return bits;
}

class RandomOrder {
public:
  RandomOrder(const uint64_t* keys, int64_t n) : keys_(keys) {
    while ((int64_t{1} << position_bits_) < n) ++position_bits_;
  }
  int position_bits() const { return position_bits_; }
  uint64_t word(int64_t i) const { return (keys_[i] & ~position_mask()) | static_cast<uint64_t>(i); }

  // Words that agree above the bit `shift`, which is none of the position's, become positions in order.
  void finish(uint64_t* words, int64_t count, int shift, std::vector<uint64_t>& space) const {
    if (count <= kMostWords && pick_positions_in_order()(words, count, shift, position_mask())) return;
    const int bits = bits_for(count);
    if (count > kMostWords && shift - bits >= position_bits_) return split(words, count, shift - bits, bits, space);
    std::sort(words, words + count, [&](uint64_t a, uint64_t b) { return less(a, b); });
    for (int64_t i = 0; i < count; ++i) words[i] &= position_mask();
  }

private:
  uint64_t position_mask() const { return (uint64_t{1} << position_bits_) - 1; }

  // Keys that agree in their upper bits are told apart by the whole, equal ones by where they stand.
  bool less(uint64_t a, uint64_t b) const {
    if ((a & ~position_mask()) != (b & ~position_mask())) return a < b;
    const uint64_t i = a & position_mask(), j = b & position_mask();
    return keys_[i] >> 1 != keys_[j] >> 1 ? keys_[i] >> 1 < keys_[j] >> 1 : i < j;
  }

  // Into buckets by the `bits` bits at `shift`.
  void split(uint64_t* words, int64_t count, int shift, int bits, std::vector<uint64_t>& space) const {
    std::array<int64_t, (1 << kMostBits) + 1> next{};
    const auto bucket = [&](uint64_t word) { return (word >> shift) & ((uint64_t{1} << bits) - 1); };
    for (int64_t i = 0; i < count; ++i) ++next[bucket(words[i]) + 1];
    for (size_t b = 1; b < next.size(); ++b) next[b] += next[b - 1];
    space.assign(words, words + count);
    for (const uint64_t word : space) words[next[bucket(word)]++] = word;
    int64_t begin = 0; // next[b] is now where bucket b ends
    for (int64_t b = 0; b < int64_t{1} << bits; ++b) {
      const int64_t end = next[static_cast<size_t>(b)];
      finish(words + begin, end - begin, shift, space);
      begin = end;
    }
  }

  const uint64_t* keys_;
  int position_bits_ = 1;
};

// The first pass: threads take parts of the keys, and have places of their own in every bucket.
class Buckets {
public:
  Buckets(const RandomOrder& order, const uint64_t* keys, int64_t n)
      : order_(order), keys_(keys), n_(n), bits_(bits_for(n)),
        parts_(std::clamp<int64_t>(n / kPartOfKeys, 1, max_threads())), part_((n + parts_ - 1) / parts_),
        next_(static_cast<size_t>(parts_ << bits_), 0) {}

  int64_t count() const { return int64_t{1} << bits_; }
  int shift() const { return 64 - bits_; }

  // Where every bucket begins, and the end.
  std::vector<int64_t> fill(uint64_t* words) {
    each_key([](int64_t, int64_t& place) { ++place; });
    std::vector<int64_t> starts;
    int64_t before = 0;
    for (int64_t b = 0; b < count(); ++b) {
      starts.push_back(before);
      for (int64_t p = 0; p < parts_; ++p)
        before += std::exchange(next_[static_cast<size_t>((p << bits_) + b)], before);
    }
    starts.push_back(before);
    each_key([&](int64_t i, int64_t& place) { words[place++] = order_.word(i); });
    return starts;
  }

private:
  template <class F> void each_key(const F& body) {
    parallel_for(0, parts_, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        int64_t* const places = next_.data() + (p << bits_);
        const int64_t end = std::min(n_, (p + 1) * part_);
        // A shift by 64 has no meaning: without buckets all bits are dropped in two steps.
        for (int64_t i = p * part_; i < end; ++i) body(i, places[keys_[i] >> 1 >> (63 - bits_)]);
      }
    });
  }

  const RandomOrder& order_;
  const uint64_t* keys_;
  int64_t n_;
  int bits_;
  int64_t parts_, part_;
  std::vector<int64_t> next_;
};

// inputs: uint64 keys, evenly distributed; outputs: the int64 positions that sort keys / 2, equal ones as they come
int random_order(const Call& call) {
  const uint64_t* const keys = call.in(0).data<uint64_t>();
  const int64_t n = call.in(0).numel();
  if (n == 0) return TS_OK;
  const RandomOrder order(keys, n);
  if (order.position_bits() > 32) return TS_DECLINED;
  uint64_t* const words = call.out(0).data<uint64_t>();
  Buckets buckets(order, keys, n);
  const std::vector<int64_t> starts = buckets.fill(words);
  const int64_t grain = std::max<int64_t>(1, 16384 * buckets.count() / n);
  parallel_for(0, buckets.count(), grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> space;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = starts[static_cast<size_t>(b)], last = starts[static_cast<size_t>(b) + 1];
      order.finish(words + first, last - first, buckets.shift(), space);
    }
  });
  return TS_OK;
}

} // namespace

TS_KERNEL_AS("random_order", random_order, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
