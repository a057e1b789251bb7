#include "graph/plan/branches.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <functional>
#include <tuple>

namespace ts::graph {
namespace {

// In launches of small kernels: what so many elements take, and what it costs to wait for another stream.
constexpr double kElements = 1 << 19, kWait = 0.5;

} // namespace

BranchFinder::Counts BranchFinder::through(uint32_t kernel) const {
  Counts counts = before_[kernel];
  counts[out_.pieces[kernel].stream] = kernel + 1;
  return counts;
}

void BranchFinder::add(std::span<const Range> ranges, int64_t work) {
  find_earlier(ranges);
  double start = 0;
  const size_t stream = choose(start);
  place(stream);
  end_.push_back(start + 1 + static_cast<double>(work) / kElements);
  note(ranges);
}

void BranchFinder::find_earlier(std::span<const Range> ranges) {
  earlier_.clear();
  for (const Range& r : ranges) {
    const auto found = spaces_.find(r.space);
    if (found == spaces_.end()) continue;
    auto look = [&](const std::vector<Use>& uses) {
      for (const Use& use : uses)
        if (use.low < r.high && r.low < use.high) earlier_.push_back(use.kernel);
    };
    look(found->second.writes);
    if (r.writes) look(found->second.reads);
  }
  std::ranges::sort(earlier_, std::greater{});
  earlier_.erase(std::ranges::unique(earlier_).begin(), earlier_.end());
}

// Who comes behind a write is behind all whom that was behind.
void BranchFinder::note(std::span<const Range> ranges) {
  const uint32_t kernel = size() - 1;
  for (const Range& r : ranges) {
    Space& space = spaces_[r.space];
    auto is_covered = [&](const Use& use) { return use.kernel != kernel && r.low <= use.low && use.high <= r.high; };
    if (r.writes) {
      std::erase_if(space.writes, is_covered);
      std::erase_if(space.reads, is_covered);
    }
    (r.writes ? space.writes : space.reads).push_back({kernel, r.low, r.high});
  }
}

// The stream where it may begin first; of equal ones the one that it goes on with, then the first.
size_t BranchFinder::choose(double& start) const {
  size_t best = 0;
  bool goes_on = false;
  for (size_t s = 0; s < Branches::kMost; ++s) {
    const uint32_t last = last_[s];
    double begin = last != kNobody ? end_[last] : s ? kWait : 0;
    for (uint32_t k : earlier_) begin = std::max(begin, end_[k] + (out_.pieces[k].stream == s ? 0 : kWait));
    const bool follows = last != kNobody && std::ranges::find(earlier_, last) != earlier_.end();
    if (s == 0 || begin < start || (begin == start && follows && !goes_on)) {
      best = s;
      start = begin;
      goes_on = follows;
    }
    if (last == kNobody && s) break; // further ones are as empty
  }
  return best;
}

// It waits for none that it is behind without.
void BranchFinder::place(size_t stream) {
  Counts counts = last_[stream] != kNobody ? through(last_[stream]) : met_;
  Branches::Piece piece;
  piece.stream = static_cast<uint8_t>(stream);
  for (uint32_t k : earlier_) {
    if (counts[out_.pieces[k].stream] > k) continue;
    piece.behind.push_back(k);
    out_.pieces[k].awaited = true;
    counts = most(counts, through(k));
  }
  last_[stream] = size();
  out_.streams = std::max(out_.streams, stream + 1);
  out_.pieces.push_back(std::move(piece));
  before_.push_back(counts);
}

void BranchFinder::meet() {
  spaces_.clear();
  last_.fill(kNobody);
  met_.fill(size());
}

bool is_within(const BranchFinder::Counts& a, const BranchFinder::Counts& b) {
  return std::ranges::equal(a, b, std::less_equal{});
}

BranchFinder::Counts least(const BranchFinder::Counts& a, const BranchFinder::Counts& b) {
  BranchFinder::Counts out;
  std::ranges::transform(a, b, out.begin(), [](uint32_t x, uint32_t y) { return std::min(x, y); });
  return out;
}

BranchFinder::Counts most(const BranchFinder::Counts& a, const BranchFinder::Counts& b) {
  BranchFinder::Counts out;
  std::ranges::transform(a, b, out.begin(), [](uint32_t x, uint32_t y) { return std::max(x, y); });
  return out;
}

void ranges_of(const Work& work, std::vector<BranchFinder::Range>& out) {
  out.clear();
  for (size_t k = 0; k < work.places.size(); ++k) {
    const Place& place = work.places[k];
    if (place.buffer == kNone) continue;
    BranchFinder::Range r{place.buffer, INT64_MIN, INT64_MAX, work.writes(k)};
    if (!work.is_part) {
      int64_t low = 0, high = static_cast<int64_t>(work.bytes);
      if (work.call) {
        const ts_tensor& t = work.tensor(k);
        const auto nd = static_cast<size_t>(t.ndim);
        std::tie(low, high) = byte_extent({t.sizes, nd}, {t.strides, nd}, item_size(static_cast<DType>(t.dtype)));
      }
      r.low = place.offset + low;
      r.high = place.offset + high;
    }
    out.push_back(r);
  }
}

} // namespace ts::graph
