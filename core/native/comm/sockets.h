// The communicator of ranks on several machines: collectives over TCP.
//
// Every rank is connected to every other. A collective begins with a greeting to all, which says what is called: it
// tells mistakes on every rank, and lets each know who is missing. Data follows it at once. Large sums go in blocks: of
// each, a rank gets its share from all, combines it in the order of ranks, and gives the result to all, while the
// shares of the next block are on their way.
#pragma once
#include "comm/group.h"
#include "comm/wires.h"
#include <mutex>

namespace ts::comm {

struct Greeting {
  uint64_t magic;
  uint64_t number;
  uint64_t signature;
  uint64_t given; // of all_to_all: elements for the rank that is greeted
  char text[kTextBytes];
};

class SocketGroup final : public Group {
public:
  // As Wires: three sockets for each rank.
  SocketGroup(std::vector<int> collectives, std::vector<int> letters, std::vector<int> news, int rank, int spins)
      : wires_(std::move(collectives), std::move(letters), std::move(news), rank, spins), post_(wires_),
        came_(static_cast<size_t>(wires_.ranks())) {}

  int rank() const override { return wires_.rank(); }
  int ranks() const override { return wires_.ranks(); }

  void settle(double timeout) override;
  void barrier(const Call& call) override;
  void broadcast(const Call& call, void* data, int64_t count) override;
  void all_reduce(const Call& call, const void* from, void* to, int64_t count) override;
  void reduce(const Call& call, const void* from, void* to, int64_t count) override;
  void all_gather(const Call& call, const void* from, Parts to, Counts counts) override;
  void gather(const Call& call, const void* from, Parts to, Counts counts) override;
  void scatter(const Call& call, ConstParts from, void* to, Counts counts) override;
  void reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts) override;
  void all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten) override;
  void send(const Call& call, const void* data, int64_t count, int to, int64_t tag) override;
  int receive(const Call& call, void* data, int64_t count, int from, int64_t tag) override;

  void abort(const std::string& reason) override { wires_.abort(reason); }
  bool aborted() const override { return wires_.aborted(); }

private:
  Patience begin(const Call& call, Counts counts);
  // Runs what the flows hold to its end; with marks, until that much has come. The greetings are compared first.
  void run(const Patience& patience, std::span<const size_t> marks = {});
  void greet(const Patience& patience);
  std::vector<size_t> marks() const; // what will have come from each when all that is asked for now has
  void compare(const Patience& patience);
  void reduce_directly(const Call& call, const void* from, void* to, int64_t count, bool everywhere);
  void reduce_in_blocks(const Call& call, const void* from, void* to, int64_t count, bool everywhere);
  void combine_share(const Call& call, const void* own, void* out, size_t count, const std::byte* others,
                     size_t stride);
  Flow& flow(size_t rank) { return flows_[rank]; }
  template <class F> void for_others(F&& f) {
    for (size_t k = 0; k < came_.size(); ++k)
      if (static_cast<int>(k) != rank()) f(k);
  }

  Wires wires_;
  Post post_;
  std::mutex mutex_; // one collective at a time
  uint64_t number_ = 0;
  bool greeted_ = false;              // in the collective at hand
  Counts gotten_;                     // of all_to_all: what each is to give
  std::vector<Flow> flows_;           // by rank
  std::vector<Greeting> came_, ours_; // by rank
  std::vector<std::byte> room_;       // others' shares, before they are combined
};

} // namespace ts::comm
