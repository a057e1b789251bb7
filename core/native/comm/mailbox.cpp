#include "comm/mailbox.h"
#include "tensor/dtype.h"
#include <algorithm>
#include <cstring>
#include <thread>

namespace ts::comm {
namespace {

void check_fits(const Envelope& came, const Envelope& expected, int from, const Patience& patience) {
  TS_CHECK(came.bytes == expected.bytes && came.dtype == expected.dtype, patience.what, ": expected ",
           static_cast<int64_t>(expected.bytes), " bytes of ", static_cast<DType>(expected.dtype), " from rank ", from,
           ", got ", static_cast<int64_t>(came.bytes), " bytes of ", static_cast<DType>(came.dtype));
}

} // namespace

void Post::write(int to, const void* data, size_t bytes, const Patience& patience) {
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

void Post::read(int from, void* data, size_t bytes, const Patience& patience) {
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

void Post::send(const void* data, const Envelope& envelope, int to, const Patience& patience) {
  segment_.check();
  write(to, &envelope, sizeof envelope, patience);
  write(to, data, envelope.bytes, patience);
}

bool Post::take_early(void* data, const Envelope& expected, int from, const Patience& patience) {
  auto& letters = early_[static_cast<size_t>(from)];
  auto found = std::ranges::find_if(letters, [&](const Letter& l) { return l.envelope.tag == expected.tag; });
  if (found == letters.end()) return false;
  Letter letter = std::move(*found);
  letters.erase(found);
  check_fits(letter.envelope, expected, from, patience);
  if (expected.bytes) std::memcpy(data, letter.content.data(), expected.bytes);
  return true;
}

void Post::receive(void* data, const Envelope& expected, int from, const Patience& patience) {
  segment_.check();
  while (!take_early(data, expected, from, patience)) {
    Envelope came{};
    read(from, &came, sizeof came, patience);
    if (came.tag == expected.tag && came.bytes == expected.bytes && came.dtype == expected.dtype)
      return read(from, data, came.bytes, patience);
    Letter letter{came, std::vector<std::byte>(came.bytes)};
    read(from, letter.content.data(), came.bytes, patience);
    early_[static_cast<size_t>(from)].push_back(std::move(letter));
  }
}

int Post::receive_from_any(void* data, const Envelope& expected, const Patience& patience) {
  const double began = now();
  std::vector<int> others;
  for (int k = 0; k < segment_.ranks(); ++k)
    if (k != segment_.rank()) others.push_back(k);
  TS_CHECK(!others.empty(), patience.what, ": expected other ranks to receive from, got a group of one");
  for (int turn = 0;; ++turn) {
    for (int from : others) {
      Mailbox& m = box(from, segment_.rank());
      if (take_early(data, expected, from, patience)) return from;
      if (m.written.load(std::memory_order_acquire) == m.taken.load(std::memory_order_relaxed)) continue;
      receive(data, expected, from, patience);
      return from;
    }
    if (turn > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (turn % 256 == 255) segment_.look_around(others, patience, began);
  }
}

} // namespace ts::comm
