#include "comm/post.h"
#include "tensor/error.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace ts::comm {
namespace {

void check_fits(const Envelope& came, const Envelope& expected, int from, const Patience& patience) {
  TS_CHECK(came.bytes == expected.bytes && came.dtype == expected.dtype, patience.what, ": expected ",
           static_cast<int64_t>(expected.bytes), " bytes of ", static_cast<DType>(expected.dtype), " from rank ", from,
           ", got ", static_cast<int64_t>(came.bytes), " bytes of ", static_cast<DType>(came.dtype));
}

Envelope envelope_of(const Call& call, int64_t count, int64_t tag) {
  return {static_cast<uint64_t>(count * item_size(call.dtype)), tag, static_cast<int32_t>(call.dtype), 0};
}

} // namespace

void Post::send(const Call& call, const void* data, int64_t count, int to, int64_t tag) {
  TS_CHECK_VALUE(to >= 0 && to < channel_.ranks() && to != channel_.rank(), call.op, ": expected another rank below ",
                 channel_.ranks(), ", got ", to);
  const Patience patience = letter_patience(call, count, "to", to);
  const Envelope envelope = envelope_of(call, count, tag);
  channel_.check();
  channel_.write(to, &envelope, sizeof envelope, patience);
  channel_.write(to, data, envelope.bytes, patience);
}

int Post::receive(const Call& call, void* data, int64_t count, int from, int64_t tag) {
  TS_CHECK_VALUE(from >= -1 && from < channel_.ranks() && from != channel_.rank(), call.op,
                 ": expected another rank below ", channel_.ranks(), ", or -1 for any, got ", from);
  const Patience patience = letter_patience(call, count, "from", from);
  const Envelope expected = envelope_of(call, count, tag);
  if (from < 0) return receive_from_any(data, expected, patience);
  receive_from(data, expected, from, patience);
  return from;
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

void Post::receive_from(void* data, const Envelope& expected, int from, const Patience& patience) {
  channel_.check();
  while (!take_early(data, expected, from, patience)) {
    Envelope came{};
    channel_.read(from, &came, sizeof came, patience);
    if (came.tag == expected.tag && came.bytes == expected.bytes && came.dtype == expected.dtype)
      return channel_.read(from, data, came.bytes, patience);
    Letter letter{came, std::vector<std::byte>(came.bytes)};
    channel_.read(from, letter.content.data(), came.bytes, patience);
    early_[static_cast<size_t>(from)].push_back(std::move(letter));
  }
}

int Post::receive_from_any(void* data, const Envelope& expected, const Patience& patience) {
  const double began = now();
  std::vector<int> others;
  for (int k = 0; k < channel_.ranks(); ++k)
    if (k != channel_.rank()) others.push_back(k);
  TS_CHECK(!others.empty(), patience.what, ": expected other ranks to receive from, got a group of one");
  for (int turn = 0;; ++turn) {
    for (int from : others) {
      if (take_early(data, expected, from, patience)) return from;
      if (!channel_.pending(from)) continue;
      receive_from(data, expected, from, patience);
      return from;
    }
    if (turn > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (turn % 256 == 255) channel_.look_around(others, patience, began);
  }
}

} // namespace ts::comm
