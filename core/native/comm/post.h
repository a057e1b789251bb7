// Messages between two ranks, over whatever carries bytes from one to the other in order.
#pragma once
#include "comm/call.h"
#include <cstddef>
#include <deque>
#include <vector>

namespace ts::comm {

// Bytes between ranks, a stream for each ordered pair. Waits end as collectives' do.
class Channel {
public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void write(int to, const void* data, size_t bytes, const Patience& patience) = 0;
  virtual void read(int from, void* data, size_t bytes, const Patience& patience) = 0;
  virtual bool pending(int from) = 0; // whether a read would find something
  virtual void check() = 0;           // throws if the group was aborted
  virtual void look_around(std::span<const int> missing, const Patience& patience, double began) = 0;
};

struct Envelope {
  uint64_t bytes;
  int64_t tag;
  int32_t dtype;
  int32_t reserved;
};

// One rank's end of the streams. A send and a receive may be under way at once, in two threads; two sends to the same
// rank may not.
class Post {
public:
  explicit Post(Channel& channel) : channel_(channel), early_(static_cast<size_t>(channel.ranks())) {}
  void send(const Call& call, const void* data, int64_t count, int to, int64_t tag);
  // The next message of that tag (from -1: of any rank), and who it is from; what comes before it is kept for later.
  // RuntimeError where it is of another size or dtype: then the message is still taken, so that the next is a message
  // again.
  int receive(const Call& call, void* data, int64_t count, int from, int64_t tag);

private:
  struct Letter {
    Envelope envelope;
    std::vector<std::byte> content;
  };
  void receive_from(void* data, const Envelope& expected, int from, const Patience& patience);
  int receive_from_any(void* data, const Envelope& expected, const Patience& patience);
  bool take_early(void* data, const Envelope& expected, int from, const Patience& patience);

  Channel& channel_;
  std::vector<std::deque<Letter>> early_; // by sender: came before what was asked for
};

} // namespace ts::comm
