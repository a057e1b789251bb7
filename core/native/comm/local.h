// The communicator of ranks on one machine: collectives through shared memory.
//
// A collective goes in rounds. In a round each rank fills one of its two buffers, all meet, and each reads the others'
// buffers; since buffers take turns, who fills one again has met the others once more, so nobody reads it any longer.
// The first meeting also compares what each rank called: a mistake is an error on all of them.
#pragma once
#include "comm/group.h"
#include "comm/mailbox.h"
#include "comm/window.h"
#include <memory>
#include <mutex>

namespace ts::comm {

class LocalGroup final : public Group {
public:
  LocalGroup(int descriptor, int rank, int ranks)
      : segment_(descriptor, rank, ranks), boxes_(segment_), post_(boxes_), windows_(descriptor) {}

  int rank() const override { return segment_.rank(); }
  int ranks() const override { return segment_.ranks(); }

  void settle(double timeout) override;
  void barrier(const Call& call) override;
  void broadcast(const Call& call, void* data, int64_t count) override;
  void all_reduce(const Call& call, const void* from, void* to, int64_t count) override;
  // all_reduce of tensors that lie apart, as of one that holds them all: other ranks may hold such a one.
  void all_reduce_parts(const Call& call, Parts parts, Counts counts);
  // Memory of which each rank gets as much: an all_reduce of what lies at one in it on every rank copies nothing.
  std::shared_ptr<Window> window(const Call& call, int64_t bytes);
  void reduce(const Call& call, const void* from, void* to, int64_t count) override;
  void all_gather(const Call& call, const void* from, Parts to, Counts counts) override;
  void gather(const Call& call, const void* from, Parts to, Counts counts) override;
  void scatter(const Call& call, ConstParts from, void* to, Counts counts) override;
  void reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts) override;
  void all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten) override;
  void send(const Call& call, const void* data, int64_t count, int to, int64_t tag) override;
  int receive(const Call& call, void* data, int64_t count, int from, int64_t tag) override;

  void leave() { segment_.leave(); }
  void abort(const std::string& reason) override { segment_.abort(reason); }
  bool aborted() const override { return segment_.aborted(); }

private:
  Patience begin(const Call& call, Counts counts);
  void meet(const Patience& patience); // the first barrier of a collective: compares signatures
  std::byte* mine();                   // this round's buffer
  const std::byte* theirs(int rank) { return segment_.slot(rank, static_cast<int>(round_ % 2)); }
  class Pieces;
  void reduce_rounds(const Call& call, const Pieces& from, const Pieces& to, bool wanted);
  void reduce_few(const Call& call, const Pieces& from, const Pieces& to, bool wanted, const Patience& patience);
  void tell(const Window* window, const std::byte* data); // where this rank's tensor lies
  enum class Windowed { None, Some, All };
  Windowed windowed(); // how many ranks have told that their tensor lies in the same window
  void reduce_there(const Call& call, const Window& window, size_t total, const Patience& patience);
  void reduce_whole(const Call& call, const void* from, void* to, int64_t count, bool wanted);
  void gather_rounds(const Call& call, const void* from, Parts to, Counts counts, bool wanted);
  size_t chunk(DType t, int parts = 1) const {
    return kSlotBytes / static_cast<size_t>(parts) / 64 * 64 / static_cast<size_t>(item_size(t));
  }

  Segment segment_;
  Mailboxes boxes_;
  Post post_;
  Windows windows_;
  std::mutex mutex_;   // one collective at a time
  uint64_t round_ = 0; // counts buffers used
  bool met_ = false;   // in the collective at hand
};

} // namespace ts::comm
