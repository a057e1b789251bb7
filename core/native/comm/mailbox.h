// Messages between two ranks: a ring of bytes for each ordered pair.
#pragma once
#include "comm/segment.h"
#include <deque>
#include <vector>

namespace ts::comm {

inline constexpr size_t kRingBytes = 64 * 1024;

struct Mailbox {
  alignas(64) std::atomic<uint32_t> written; // bytes ever, modulo 2^32; by the sender
  std::atomic<uint32_t> written_sleepers;
  alignas(64) std::atomic<uint32_t> taken; // by the receiver
  std::atomic<uint32_t> taken_sleepers;
  alignas(64) std::byte ring[kRingBytes];
};

struct Envelope {
  uint64_t bytes;
  int64_t tag;
  int32_t dtype;
  int32_t reserved;
};

// One rank's end of its mailboxes. A send and a receive may be under way at once, in two threads; two sends to the same
// rank may not.
class Post {
public:
  explicit Post(Segment& segment) : segment_(segment), early_(static_cast<size_t>(segment.ranks())) {}
  void send(const void* data, const Envelope& envelope, int to, const Patience& patience);
  // The next message of that tag; what comes before it is kept for later. RuntimeError where it is of another size or
  // dtype: then the message is still taken, so that the next is a message again.
  void receive(void* data, const Envelope& expected, int from, const Patience& patience);
  int receive_from_any(void* data, const Envelope& expected, const Patience& patience); // from whom

private:
  struct Letter {
    Envelope envelope;
    std::vector<std::byte> content;
  };
  Mailbox& box(int from, int to) { return *reinterpret_cast<Mailbox*>(segment_.mailbox(from, to)); }
  void write(int to, const void* data, size_t bytes, const Patience& patience);
  void read(int from, void* data, size_t bytes, const Patience& patience);
  bool take_early(void* data, const Envelope& expected, int from, const Patience& patience);

  Segment& segment_;
  std::vector<std::deque<Letter>> early_; // by sender: came before what was asked for
};

} // namespace ts::comm
