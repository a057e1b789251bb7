// Messages through shared memory: a ring of bytes for each ordered pair of ranks.
#pragma once
#include "comm/post.h"
#include "comm/segment.h"

namespace ts::comm {

inline constexpr size_t kRingBytes = 64 * 1024;

struct Mailbox {
  alignas(64) std::atomic<uint32_t> written; // bytes ever, modulo 2^32; by the sender
  std::atomic<uint32_t> written_sleepers;
  alignas(64) std::atomic<uint32_t> taken; // by the receiver
  std::atomic<uint32_t> taken_sleepers;
  alignas(64) std::byte ring[kRingBytes];
};

class Mailboxes final : public Channel {
public:
  explicit Mailboxes(Segment& segment) : segment_(segment) {}
  int rank() const override { return segment_.rank(); }
  int ranks() const override { return segment_.ranks(); }
  void write(int to, const void* data, size_t bytes, const Patience& patience) override;
  void read(int from, void* data, size_t bytes, const Patience& patience) override;
  bool pending(int from) override;
  void check() override { segment_.check(); }
  void look_around(std::span<const int> missing, const Patience& patience, double began) override {
    segment_.check();
    segment_.look_around(missing, patience, began, [] { return true; });
  }

private:
  Mailbox& box(int from, int to) { return *reinterpret_cast<Mailbox*>(segment_.mailbox(from, to)); }

  Segment& segment_;
};

} // namespace ts::comm
