// The communicator of ranks on one machine: collectives through shared memory.
//
// A collective goes in rounds. In a round each rank fills one of its two buffers, all meet, and each reads the others'
// buffers; since buffers take turns, who fills one again has met the others once more, so nobody reads it any longer.
// The first meeting also compares what each rank called: a mistake is an error on all of them.
#pragma once
#include "comm/mailbox.h"
#include "comm/reduction.h"
#include <memory>
#include <mutex>

namespace ts::comm {

// What a collective says of itself beside its data.
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

class LocalGroup {
public:
  LocalGroup(int descriptor, int rank, int ranks) : segment_(descriptor, rank, ranks), post_(segment_) {}

  int rank() const { return segment_.rank(); }
  int ranks() const { return segment_.ranks(); }

  void barrier(const Call& call);
  void broadcast(const Call& call, void* data, int64_t count);
  void all_reduce(const Call& call, const void* from, void* to, int64_t count);
  void reduce(const Call& call, const void* from, void* to, int64_t count); // `to` on the root alone
  void all_gather(const Call& call, const void* from, Parts to, Counts counts);
  void gather(const Call& call, const void* from, Parts to, Counts counts); // `to` on the root alone
  void scatter(const Call& call, ConstParts from, void* to, Counts counts); // `from` on the root alone
  void reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts);
  void all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten);
  void send(const Call& call, const void* data, int64_t count, int to, int64_t tag);
  int receive(const Call& call, void* data, int64_t count, int from, int64_t tag); // from -1: of any; returns who

  void abort(const std::string& reason) { segment_.abort(reason); }
  bool aborted() const { return segment_.aborted(); }

private:
  Patience begin(const Call& call, Counts counts);
  void meet(const Patience& patience); // the first barrier of a collective: compares signatures
  std::byte* mine();                   // this round's buffer
  const std::byte* theirs(int rank) { return segment_.slot(rank, static_cast<int>(round_ % 2)); }
  void reduce_rounds(const Call& call, const void* from, void* to, int64_t count, bool wanted);
  void gather_rounds(const Call& call, const void* from, Parts to, Counts counts, bool wanted);
  size_t chunk(DType t, int parts = 1) const {
    return kSlotBytes / static_cast<size_t>(parts) / 64 * 64 / static_cast<size_t>(item_size(t));
  }

  Segment segment_;
  Post post_;
  std::mutex mutex_;   // one collective at a time
  uint64_t round_ = 0; // counts buffers used
  bool met_ = false;   // in the collective at hand
};

} // namespace ts::comm
