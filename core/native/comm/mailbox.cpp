#include "comm/mailbox.h"
#include <algorithm>
#include <cstring>

namespace ts::comm {

void Mailboxes::write(int to, const void* data, size_t bytes, const Patience& patience) {
  Mailbox& m = box(segment_.rank(), to);
  auto* from = static_cast<const std::byte*>(data);
  const double began = now();
  while (bytes) {
    const uint32_t written = m.written.load(std::memory_order_relaxed);
    const uint32_t taken = m.taken.load(std::memory_order_acquire);
    const size_t room = kRingBytes - static_cast<uint32_t>(written - taken), at = written % kRingBytes;
    if (!room) {
      segment_.await(m.taken, m.taken_sleepers, taken, {&to, 1}, patience, began);
      continue;
    }
    const size_t n = std::min({bytes, room, kRingBytes - at});
    std::memcpy(m.ring + at, from, n);
    m.written.store(written + static_cast<uint32_t>(n), std::memory_order_seq_cst);
    Segment::wake(m.written, m.written_sleepers);
    from += n;
    bytes -= n;
  }
}

void Mailboxes::read(int from, void* data, size_t bytes, const Patience& patience) {
  Mailbox& m = box(from, segment_.rank());
  auto* to = static_cast<std::byte*>(data);
  const double began = now();
  while (bytes) {
    const uint32_t taken = m.taken.load(std::memory_order_relaxed);
    const uint32_t written = m.written.load(std::memory_order_acquire);
    const size_t there = static_cast<uint32_t>(written - taken), at = taken % kRingBytes;
    if (!there) {
      segment_.await(m.written, m.written_sleepers, written, {&from, 1}, patience, began);
      continue;
    }
    TS_CHECK(there <= kRingBytes, patience.what, ": the mailbox of rank ", from, " is damaged");
    const size_t n = std::min({bytes, there, kRingBytes - at});
    std::memcpy(to, m.ring + at, n);
    m.taken.store(taken + static_cast<uint32_t>(n), std::memory_order_seq_cst);
    Segment::wake(m.taken, m.taken_sleepers);
    to += n;
    bytes -= n;
  }
}

bool Mailboxes::pending(int from) {
  Mailbox& m = box(from, segment_.rank());
  return m.written.load(std::memory_order_acquire) != m.taken.load(std::memory_order_relaxed);
}

} // namespace ts::comm
