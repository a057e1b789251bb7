#include "comm/local.h"
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace ts::comm {
namespace {

// Few bytes are combined by every rank, which saves a meeting.
constexpr size_t kSmallBytes = 8192;
// What is combined and then written elsewhere, while it is in the first cache.
constexpr size_t kHotBytes = 8192;

// Elements of each rank's share of some, in whole lines of the cache.
size_t share_of(size_t n, size_t ranks, size_t item) {
  const size_t line = 64 / std::min<size_t>(item, 64);
  return ((n + ranks - 1) / ranks + line - 1) / line * line;
}

} // namespace

std::byte* LocalGroup::mine() { return segment_.slot(rank(), static_cast<int>(round_ % 2)); }

Patience LocalGroup::begin(const Call& call, Counts counts) {
  check_call(call, counts, ranks());
  segment_.check();
  RankState& state = segment_.state(rank());
  const uint64_t number = state.sequence.load(std::memory_order_relaxed) + 1;
  char* text = state.text[number % 2];
  describe(text, call, number, counts);
  state.signature[number % 2].store(signature(call, number, counts), std::memory_order_release);
  state.sequence.store(number, std::memory_order_release);
  met_ = false;
  return {call.timeout, text};
}

void LocalGroup::meet(const Patience& patience) {
  segment_.barrier(patience);
  if (met_) return;
  met_ = true;
  const uint64_t number = segment_.state(rank()).sequence.load(std::memory_order_relaxed);
  const uint64_t mine = segment_.state(rank()).signature[number % 2].load(std::memory_order_relaxed);
  for (int other = 0; other < ranks(); ++other) {
    RankState& s = segment_.state(other);
    if (s.signature[number % 2].load(std::memory_order_acquire) == mine) continue;
    const auto called = [&](int k) { return std::string(segment_.state(k).text[number % 2]); };
    segment_.abort(mismatch_text(ranks(), called));
    fail(ErrorKind::Runtime, segment_.reason());
  }
}

void LocalGroup::settle(double timeout) { segment_.barrier({timeout, "init"}); }

void LocalGroup::barrier(const Call& call) {
  std::lock_guard lock(mutex_);
  meet(begin(call, {}));
}

void LocalGroup::broadcast(const Call& call, void* data, int64_t count) {
  std::lock_guard lock(mutex_);
  Patience patience = begin(call, {&count, 1});
  const size_t item = static_cast<size_t>(item_size(call.dtype)), total = static_cast<size_t>(count) * item;
  size_t done = 0;
  do {
    const size_t n = std::min(kSlotBytes, total - done);
    if (rank() == call.root) move_bytes(mine(), advance(data, done), n);
    meet(patience);
    if (rank() != call.root) move_bytes(advance(data, done), theirs(call.root), n);
    done += n;
    ++round_;
  } while (done < total);
}

// Elements that lie in one place or in several, as if they were in one.
class LocalGroup::Pieces {
public:
  Pieces(Parts parts, Counts counts, size_t item) : parts_(parts), counts_(counts), item_(item) {}
  size_t total() const { return static_cast<size_t>(std::accumulate(counts_.begin(), counts_.end(), int64_t{0})); }
  // Where an element is, if all are in one place.
  std::byte* alone(size_t element) const { return parts_.size() == 1 ? advance(parts_[0], element * item_) : nullptr; }
  void read(std::byte* to, size_t from, size_t n) const {
    walk(from, n, [&](std::byte* piece, size_t bytes) { move_bytes(std::exchange(to, to + bytes), piece, bytes); });
  }
  void write(const std::byte* from, size_t at, size_t n) const {
    walk(at, n, [&](std::byte* piece, size_t bytes) { move_bytes(piece, std::exchange(from, from + bytes), bytes); });
  }

private:
  template <class F> void walk(size_t from, size_t n, F&& f) const {
    for (size_t k = 0; k < parts_.size() && n; ++k) {
      const size_t count = static_cast<size_t>(counts_[k]);
      if (from < count) {
        const size_t some = std::min(n, count - from);
        f(advance(parts_[k], from * item_), some * item_);
        n -= some;
        from = 0;
      } else {
        from -= count;
      }
    }
  }
  Parts parts_;
  Counts counts_;
  size_t item_;
};

// Each rank combines all of the few elements, which saves a meeting.
void LocalGroup::reduce_few(const Call& call, const Pieces& from, const Pieces& to, bool wanted,
                            const Patience& patience) {
  const size_t total = from.total();
  const void* sources[kMaxRanks];
  from.read(mine(), 0, total);
  meet(patience);
  for (int k = 0; k < ranks(); ++k) sources[k] = theirs(k);
  std::byte joined[kSmallBytes];
  std::byte* out = to.alone(0) ? to.alone(0) : joined;
  if (wanted) combine(out, {sources, static_cast<size_t>(ranks())}, total, call.dtype, call.reduction);
  if (wanted && out == joined) to.write(joined, 0, total);
  ++round_;
}

LocalGroup::Windowed LocalGroup::windowed() {
  const size_t parity = segment_.state(rank()).sequence.load(std::memory_order_relaxed) % 2;
  const auto told = [&](int k) { return segment_.state(k).window[parity].load(std::memory_order_acquire); };
  bool some = false, all = true;
  for (int k = 0; k < ranks(); ++k) {
    some |= told(k) != 0;
    all &= told(k) != 0 && told(k) == told(0);
  }
  return all ? Windowed::All : some ? Windowed::Some : Windowed::None;
}

// Each rank combines a share of all ranks' memory and writes it to all of it, piece by piece while it is in the cache.
void LocalGroup::reduce_there(const Call& call, const Window& window, size_t total, const Patience& patience) {
  const size_t item = static_cast<size_t>(item_size(call.dtype)), size = static_cast<size_t>(ranks());
  const size_t me = static_cast<size_t>(rank()), share = share_of(total, size, item),
               last = std::min(total, (me + 1) * share);
  const size_t parity = segment_.state(rank()).sequence.load(std::memory_order_relaxed) % 2;
  std::byte* at[kMaxRanks];
  const void* sources[kMaxRanks];
  for (size_t k = 0; k < size; ++k)
    at[k] = window.of(static_cast<int>(k)) +
            segment_.state(static_cast<int>(k)).offset[parity].load(std::memory_order_relaxed);
  for (size_t done = std::min(total, me * share), n; done < last; done += n) {
    n = std::min(kHotBytes / item, last - done);
    for (size_t k = 0; k < size; ++k) sources[k] = at[k] + done * item;
    combine(at[me] + done * item, {sources, size}, n, call.dtype, call.reduction);
    for (size_t k = 0; k < size; ++k)
      if (k != me) move_bytes(at[k] + done * item, at[me] + done * item, n * item);
  }
  segment_.barrier(patience);
}

void LocalGroup::reduce_rounds(const Call& call, const Pieces& from, const Pieces& to, bool wanted) {
  check_reduction(call.op, call.reduction, call.dtype);
  const size_t item = static_cast<size_t>(item_size(call.dtype)), total = from.total();
  const int64_t count = static_cast<int64_t>(total);
  Patience patience = begin(call, {&count, 1});
  if (total * item <= kSmallBytes) return reduce_few(call, from, to, wanted, patience);
  if (ranks() == 1) { // of one there is nothing to combine
    meet(patience);
    return from.alone(0) ? to.write(from.alone(0), 0, total) : void();
  }
  const size_t size = static_cast<size_t>(ranks()), me = static_cast<size_t>(rank());
  const std::shared_ptr<Window> window =
      from.alone(0) && from.alone(0) == to.alone(0) ? windows_.find(to.alone(0), total * item) : nullptr;
  tell(window.get(), to.alone(0));
  const void* sources[kMaxRanks];
  size_t done = 0;
  do {
    // Each rank combines a share, whole lines of the cache, in its own buffer; nobody else reads its elements of it.
    const size_t n = std::min(chunk(call.dtype), total - done), share = share_of(n, size, item);
    auto begin_of = [&](size_t k) { return std::min(n, k * share); };
    const size_t first = begin_of(me), last = begin_of(me + 1);
    const std::byte* own = from.alone(done + first);
    const auto fill = [&] {
      from.read(mine(), done, own ? first : n);
      if (own) from.read(mine() + last * item, done + last, n - last);
    };
    const bool later = window && !met_; // nothing is copied before it is known whether it has to be
    if (!later) fill();
    meet(patience);
    if (const Windowed those = done ? Windowed::None : windowed(); those != Windowed::None) {
      if (those == Windowed::All) return reduce_there(call, *window, total, patience);
      if (later) fill();
      segment_.barrier(patience);
    }
    for (size_t at = first, some; at < last; at += some) { // what is wanted of it leaves the cache with it
      some = std::min(kHotBytes / item, last - at);
      for (size_t k = 0; k < size; ++k) sources[k] = theirs(static_cast<int>(k)) + at * item;
      if (own) sources[me] = own + (at - first) * item;
      combine(mine() + at * item, {sources, size}, some, call.dtype, call.reduction);
      if (wanted) to.write(mine() + at * item, done + at, some);
    }
    segment_.barrier(patience);
    for (size_t k = 0; wanted && k < size; ++k)
      if (k != me)
        to.write(theirs(static_cast<int>(k)) + begin_of(k) * item, done + begin_of(k), begin_of(k + 1) - begin_of(k));
    done += n;
    ++round_;
  } while (done < total);
}

void LocalGroup::tell(const Window* window, const std::byte* data) {
  RankState& state = segment_.state(rank());
  const size_t parity = state.sequence.load(std::memory_order_relaxed) % 2;
  state.window[parity].store(window ? window->number() : 0, std::memory_order_relaxed);
  if (window) state.offset[parity].store(static_cast<uint64_t>(data - window->own()), std::memory_order_relaxed);
}

std::shared_ptr<Window> LocalGroup::window(const Call& call, int64_t bytes) {
  std::lock_guard lock(mutex_);
  meet(begin(call, {&bytes, 1}));
  return windows_.make(Segment::bytes_for(ranks()), static_cast<size_t>(bytes), rank(), ranks());
}

void LocalGroup::reduce_whole(const Call& call, const void* from, void* to, int64_t count, bool wanted) {
  TS_CHECK_VALUE(count >= 0, call.op, ": expected numbers of elements, got ", count);
  const size_t item = static_cast<size_t>(item_size(call.dtype));
  void* const given = const_cast<void*>(from); // read only
  std::lock_guard lock(mutex_);
  reduce_rounds(call, Pieces({&given, 1}, {&count, 1}, item), Pieces({&to, 1}, {&count, 1}, item), wanted);
}

void LocalGroup::all_reduce(const Call& call, const void* from, void* to, int64_t count) {
  reduce_whole(call, from, to, count, true);
}

void LocalGroup::all_reduce_parts(const Call& call, Parts parts, Counts counts) {
  check_call(call, counts, ranks());
  TS_CHECK_VALUE(parts.size() == counts.size(), call.op, ": expected as many counts as parts");
  const Pieces pieces(parts, counts, static_cast<size_t>(item_size(call.dtype)));
  std::lock_guard lock(mutex_);
  reduce_rounds(call, pieces, pieces, true);
}

void LocalGroup::reduce(const Call& call, const void* from, void* to, int64_t count) {
  reduce_whole(call, from, to, count, rank() == call.root);
}

void LocalGroup::gather_rounds(const Call& call, const void* from, Parts to, Counts counts, bool wanted) {
  if (wanted) check_parts(call, to.size(), counts, ranks(), "memory");
  Patience patience = begin(call, counts);
  const size_t item = static_cast<size_t>(item_size(call.dtype)), step = chunk(call.dtype);
  const size_t most = static_cast<size_t>(*std::ranges::max_element(counts));
  auto part = [&](size_t k, size_t done) {
    const size_t n = static_cast<size_t>(counts[k]);
    return done < n ? std::min(step, n - done) * item : 0;
  };
  size_t done = 0;
  do {
    move_bytes(mine(), advance(from, done * item), part(static_cast<size_t>(rank()), done));
    meet(patience);
    for (size_t k = 0; wanted && k < to.size(); ++k)
      move_bytes(advance(to[k], done * item), theirs(static_cast<int>(k)), part(k, done));
    done += step;
    ++round_;
  } while (done < most);
}

void LocalGroup::all_gather(const Call& call, const void* from, Parts to, Counts counts) {
  std::lock_guard lock(mutex_);
  gather_rounds(call, from, to, counts, true);
}

void LocalGroup::gather(const Call& call, const void* from, Parts to, Counts counts) {
  std::lock_guard lock(mutex_);
  gather_rounds(call, from, to, counts, rank() == call.root);
}

void LocalGroup::scatter(const Call& call, ConstParts from, void* to, Counts counts) {
  std::lock_guard lock(mutex_);
  const bool root = rank() == call.root;
  if (root) check_parts(call, from.size(), counts, ranks(), "memory");
  Patience patience = begin(call, counts);
  const size_t item = static_cast<size_t>(item_size(call.dtype)), step = chunk(call.dtype, ranks());
  const size_t most = static_cast<size_t>(*std::ranges::max_element(counts));
  auto part = [&](size_t k, size_t done) {
    const size_t n = static_cast<size_t>(counts[k]);
    return done < n ? std::min(step, n - done) * item : 0;
  };
  size_t done = 0;
  do {
    for (size_t k = 0; root && k < from.size(); ++k)
      move_bytes(mine() + k * step * item, advance(from[k], done * item), part(k, done));
    meet(patience);
    const size_t me = static_cast<size_t>(rank());
    move_bytes(advance(to, done * item), theirs(call.root) + me * step * item, part(me, done));
    done += step;
    ++round_;
  } while (done < most);
}

void LocalGroup::reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts) {
  std::lock_guard lock(mutex_);
  check_reduction(call.op, call.reduction, call.dtype);
  check_parts(call, from.size(), counts, ranks(), "memory");
  Patience patience = begin(call, counts);
  const size_t item = static_cast<size_t>(item_size(call.dtype)), step = chunk(call.dtype, ranks());
  const size_t most = static_cast<size_t>(*std::ranges::max_element(counts)), me = static_cast<size_t>(rank());
  auto part = [&](size_t k, size_t done) {
    const size_t n = static_cast<size_t>(counts[k]);
    return done < n ? std::min(step, n - done) : 0;
  };
  std::vector<const void*> sources(from.size());
  size_t done = 0;
  do {
    for (size_t k = 0; k < from.size(); ++k)
      move_bytes(mine() + k * step * item, advance(from[k], done * item), part(k, done) * item);
    meet(patience);
    for (size_t k = 0; k < sources.size(); ++k) sources[k] = theirs(static_cast<int>(k)) + me * step * item;
    if (size_t n = part(me, done)) combine(advance(to, done * item), sources, n, call.dtype, call.reduction);
    done += step;
    ++round_;
  } while (done < most);
}

void LocalGroup::all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten) {
  std::lock_guard lock(mutex_);
  check_parts(call, from.size(), given, ranks(), "memory to give");
  check_parts(call, to.size(), gotten, ranks(), "memory to get");
  for (int64_t n : gotten) TS_CHECK_VALUE(n >= 0, call.op, ": expected numbers of elements, got ", n);
  Patience patience = begin(call, {});
  const size_t size = from.size(), me = static_cast<size_t>(rank());
  // First what each gives to each: it decides how many rounds there are.
  for (int64_t n : given) TS_CHECK_VALUE(n >= 0, call.op, ": expected numbers of elements, got ", n);
  std::memcpy(mine(), given.data(), size * sizeof(int64_t));
  meet(patience);
  int64_t most = 0;
  std::string wrong;
  for (size_t giver = 0; giver < size; ++giver) {
    int64_t row[kMaxRanks];
    std::memcpy(row, theirs(static_cast<int>(giver)), size * sizeof(int64_t));
    for (size_t k = 0; k < size; ++k) most = std::max(most, row[k]);
    if (row[me] != gotten[giver])
      wrong = "rank " + std::to_string(giver) + " gives " + std::to_string(row[me]) + " elements to rank " +
              std::to_string(me) + ", which expects " + std::to_string(gotten[giver]);
  }
  ++round_;
  if (!wrong.empty()) {
    segment_.abort(patience.what + ": " + wrong);
    segment_.check();
  }
  const size_t item = static_cast<size_t>(item_size(call.dtype)), step = chunk(call.dtype, ranks());
  auto part = [&](Counts counts, size_t k, size_t done) {
    const size_t n = static_cast<size_t>(counts[k]);
    return done < n ? std::min(step, n - done) * item : 0;
  };
  for (size_t done = 0; done < static_cast<size_t>(most); done += step, ++round_) {
    for (size_t k = 0; k < size; ++k)
      move_bytes(mine() + k * step * item, advance(from[k], done * item), part(given, k, done));
    segment_.barrier(patience);
    for (size_t k = 0; k < size; ++k)
      move_bytes(advance(to[k], done * item), theirs(static_cast<int>(k)) + me * step * item, part(gotten, k, done));
  }
}

void LocalGroup::send(const Call& call, const void* data, int64_t count, int to, int64_t tag) {
  post_.send(call, data, count, to, tag);
}

int LocalGroup::receive(const Call& call, void* data, int64_t count, int from, int64_t tag) {
  return post_.receive(call, data, count, from, tag);
}

} // namespace ts::comm
