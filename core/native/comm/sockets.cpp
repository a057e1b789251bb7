#include "comm/sockets.h"
#include "tensor/error.h"
#include <algorithm>
#include <cstring>
#include <deque>

namespace ts::comm {
namespace {

constexpr uint64_t kSocketsMagic = 0x7e55e7ac00000001u; // differs where byte orders do
// Each rank gives all it has to each: one trip instead of two, where that many bytes of others are combined by all.
constexpr size_t kDirectBytes = 64 * 1024;
constexpr size_t kSocketsBlock = 256 * 1024; // bytes of one rank's share of a block
constexpr size_t kAhead = 8;                 // blocks under way: ranks need not keep step

size_t bytes_of(DType t, int64_t count) { return static_cast<size_t>(count) * static_cast<size_t>(item_size(t)); }

// Equal shares of a block, by rank: the last ones may be smaller or empty.
struct Shares {
  size_t begin, share, end;
  size_t at(size_t k) const { return std::min(end, begin + k * share); }
  size_t count(size_t k) const { return at(k + 1) - at(k); }
};

} // namespace

Patience SocketGroup::begin(const Call& call, Counts counts) {
  check_call(call, counts, ranks());
  wires_.check();
  flows_.assign(came_.size(), {});
  greeted_ = false;
  gotten_ = {};
  Greeting greeting{kSocketsMagic, ++number_, signature(call, number_, counts), 0, {}};
  describe(greeting.text, call, number_, counts);
  wires_.began(rank(), greeting.text);
  ours_.assign(came_.size(), greeting);
  for_others([&](size_t k) {
    flow(k).give(&ours_[k], sizeof(Greeting));
    flow(k).get(&came_[k], sizeof(Greeting));
  });
  return {call.timeout, greeting.text};
}

void SocketGroup::greet(const Patience& patience) {
  greeted_ = true;
  wires_.run(flows_, std::vector<size_t>(came_.size(), sizeof(Greeting)), patience);
  compare(patience);
}

void SocketGroup::compare(const Patience& patience) {
  const auto me = static_cast<size_t>(rank());
  bool alike = true;
  for_others([&](size_t k) {
    Greeting& g = came_[k];
    g.text[kTextBytes - 1] = 0;
    wires_.began(static_cast<int>(k), g.text);
    if (g.magic != kSocketsMagic) {
      wires_.abort(patience.what + ": expected a greeting of rank " + std::to_string(k) +
                   ", got other bytes; try one build of tesserack and one kind of processor on all machines");
      wires_.check();
    }
    alike = alike && g.signature == ours_[me].signature;
  });
  if (!alike) {
    wires_.abort(mismatch_text(ranks(), [&](int k) {
      return std::string(k == rank() ? ours_[me].text : came_[static_cast<size_t>(k)].text);
    }));
    wires_.check();
  }
  if (gotten_.empty()) return;
  for_others([&](size_t k) {
    if (came_[k].given == static_cast<uint64_t>(gotten_[k])) return;
    wires_.abort(patience.what + ": rank " + std::to_string(k) + " gives " + std::to_string(came_[k].given) +
                 " elements to rank " + std::to_string(rank()) + ", which expects " + std::to_string(gotten_[k]));
    wires_.check();
  });
}

void SocketGroup::run(const Patience& patience, std::span<const size_t> marks) {
  if (!greeted_) greet(patience);
  wires_.run(flows_, marks, patience);
}

std::vector<size_t> SocketGroup::marks() const {
  std::vector<size_t> found(flows_.size());
  for (size_t k = 0; k < found.size(); ++k) found[k] = flows_[k].asked();
  return found;
}

void SocketGroup::settle(double timeout) {
  barrier({"init", DType::Undefined, timeout, ""});
  number_ = 0;
}

void SocketGroup::barrier(const Call& call) {
  std::lock_guard lock(mutex_);
  run(begin(call, {}));
}

// The root gives each rank a share of a block, which gives it to the others; the root's own share goes to all.
void SocketGroup::broadcast(const Call& call, void* data, int64_t count) {
  std::lock_guard lock(mutex_);
  const Patience patience = begin(call, {&count, 1});
  const auto me = static_cast<size_t>(rank()), root = static_cast<size_t>(call.root), size = came_.size();
  const size_t total = bytes_of(call.dtype, count);
  auto give = [&](size_t to, const Shares& s, size_t k) { flow(to).give(advance(data, s.at(k)), s.count(k)); };
  auto get = [&](size_t from, const Shares& s, size_t k) { flow(from).get(advance(data, s.at(k)), s.count(k)); };
  if (size <= 2 || total <= kDirectBytes) {
    const Shares all{0, total, total};
    if (me == root) for_others([&](size_t k) { give(k, all, 0); });
    if (me != root) get(root, all, 0);
    return run(patience);
  }
  // What has come of a block is passed on while the next one comes.
  std::vector<size_t> come;
  Shares before{0, 0, 0};
  for (size_t done = 0; done < total || before.share;) {
    const size_t bytes = std::min(kSocketsBlock * size, total - done);
    const Shares block{done, (bytes + size - 1) / size, done + bytes};
    for_others([&](size_t k) {
      if (me == root) give(k, block, k), give(k, block, root);
      if (k == root) get(root, block, me), get(root, block, root);
    });
    const std::vector<size_t> next = marks();
    if (me != root && before.share) {
      run(patience, come);
      for_others([&](size_t k) {
        if (k != root) give(k, before, me), get(k, before, k);
      });
    }
    come = next;
    before = block;
    done += bytes;
  }
  run(patience);
}

void SocketGroup::reduce_directly(const Call& call, const void* from, void* to, int64_t count, bool everywhere) {
  const Patience patience = begin(call, {&count, 1});
  const bool wanted = everywhere || rank() == call.root;
  const size_t bytes = bytes_of(call.dtype, count);
  if (wanted) room_.resize(std::max(room_.size(), bytes * came_.size()));
  for_others([&](size_t k) {
    if (everywhere || static_cast<int>(k) == call.root) flow(k).give(from, bytes);
    if (wanted) flow(k).get(room_.data() + k * bytes, bytes);
  });
  run(patience);
  if (wanted) combine_share(call, from, to, static_cast<size_t>(count), room_.data(), bytes);
}

void SocketGroup::combine_share(const Call& call, const void* own, void* out, size_t count, const std::byte* others,
                                size_t stride) {
  if (!count) return;
  std::vector<const void*> sources(came_.size());
  for (size_t k = 0; k < sources.size(); ++k) sources[k] = static_cast<int>(k) == rank() ? own : others + k * stride;
  combine(out, sources, count, call.dtype, call.reduction);
}

// While a block is combined the next ones are on their way; results go between them.
void SocketGroup::reduce_in_blocks(const Call& call, const void* from, void* to, int64_t count, bool everywhere) {
  const Patience patience = begin(call, {&count, 1});
  const auto me = static_cast<size_t>(rank()), root = static_cast<size_t>(call.root), size = came_.size();
  const auto item = static_cast<size_t>(item_size(call.dtype)), total = static_cast<size_t>(count);
  const size_t step = kSocketsBlock / item * size, blocks = (total + step - 1) / step;
  room_.resize(std::max(room_.size(), kAhead * kSocketsBlock * size));
  const bool wanted = everywhere || me == root;
  std::vector<std::byte> shares; // of one that wants no result: what it has combined for the root
  if (!wanted) shares.resize(blocks * kSocketsBlock);
  auto block = [&](size_t b) {
    const size_t begin = b * step, end = std::min(total, begin + step);
    return Shares{begin, (end - begin + size - 1) / size, end};
  };
  auto room = [&](size_t b, size_t k) { return room_.data() + (b % kAhead * size + k) * kSocketsBlock; };
  auto ask = [&](size_t b) {
    for_others([&](size_t k) {
      flow(k).give(advance(from, block(b).at(k) * item), block(b).count(k) * item);
      flow(k).get(room(b, k), block(b).count(me) * item);
    });
    return marks();
  };
  std::deque<std::vector<size_t>> come; // marks of the blocks that are under way
  for (size_t b = 0; b < std::min(blocks, kAhead); ++b) come.push_back(ask(b));
  for (size_t b = 0; b < blocks; ++b) {
    run(patience, come.front());
    come.pop_front();
    const Shares s = block(b);
    std::byte* result = wanted ? advance(to, s.at(me) * item) : shares.data() + b * kSocketsBlock;
    combine_share(call, advance(from, s.at(me) * item), result, s.count(me), room(b, 0), kSocketsBlock);
    for_others([&](size_t k) {
      if (everywhere || k == root) flow(k).give(result, s.count(me) * item);
      if (wanted) flow(k).get(advance(to, s.at(k) * item), s.count(k) * item);
    });
    if (b + kAhead < blocks) come.push_back(ask(b + kAhead));
  }
  run(patience);
}

void SocketGroup::all_reduce(const Call& call, const void* from, void* to, int64_t count) {
  std::lock_guard lock(mutex_);
  check_reduction(call.op, call.reduction, call.dtype);
  check_call(call, {&count, 1}, ranks());
  if (bytes_of(call.dtype, count) * (came_.size() - 1) <= kDirectBytes)
    return reduce_directly(call, from, to, count, true);
  reduce_in_blocks(call, from, to, count, true);
}

void SocketGroup::reduce(const Call& call, const void* from, void* to, int64_t count) {
  std::lock_guard lock(mutex_);
  check_reduction(call.op, call.reduction, call.dtype);
  check_call(call, {&count, 1}, ranks());
  if (bytes_of(call.dtype, count) * (came_.size() - 1) <= kDirectBytes)
    return reduce_directly(call, from, to, count, false);
  reduce_in_blocks(call, from, to, count, false);
}

void SocketGroup::all_gather(const Call& call, const void* from, Parts to, Counts counts) {
  std::lock_guard lock(mutex_);
  check_parts(call, to.size(), counts, ranks(), "memory");
  const Patience patience = begin(call, counts);
  const auto me = static_cast<size_t>(rank());
  for_others([&](size_t k) {
    flow(k).give(from, bytes_of(call.dtype, counts[me]));
    flow(k).get(to[k], bytes_of(call.dtype, counts[k]));
  });
  run(patience);
  move_bytes(to[me], from, bytes_of(call.dtype, counts[me]));
}

void SocketGroup::gather(const Call& call, const void* from, Parts to, Counts counts) {
  std::lock_guard lock(mutex_);
  const auto me = static_cast<size_t>(rank()), root = static_cast<size_t>(call.root);
  check_parts(call, me == root ? to.size() : came_.size(), counts, ranks(), "memory");
  const Patience patience = begin(call, counts);
  for_others([&](size_t k) {
    if (k == root) flow(k).give(from, bytes_of(call.dtype, counts[me]));
    if (me == root) flow(k).get(to[k], bytes_of(call.dtype, counts[k]));
  });
  run(patience);
  if (me == root) move_bytes(to[me], from, bytes_of(call.dtype, counts[me]));
}

void SocketGroup::scatter(const Call& call, ConstParts from, void* to, Counts counts) {
  std::lock_guard lock(mutex_);
  const auto me = static_cast<size_t>(rank()), root = static_cast<size_t>(call.root);
  check_parts(call, me == root ? from.size() : came_.size(), counts, ranks(), "memory");
  const Patience patience = begin(call, counts);
  for_others([&](size_t k) {
    if (me == root) flow(k).give(from[k], bytes_of(call.dtype, counts[k]));
    if (k == root) flow(k).get(to, bytes_of(call.dtype, counts[me]));
  });
  run(patience);
  if (me == root) move_bytes(to, from[me], bytes_of(call.dtype, counts[me]));
}

void SocketGroup::reduce_scatter(const Call& call, ConstParts from, void* to, Counts counts) {
  std::lock_guard lock(mutex_);
  check_reduction(call.op, call.reduction, call.dtype);
  check_parts(call, from.size(), counts, ranks(), "memory");
  const Patience patience = begin(call, counts);
  const auto me = static_cast<size_t>(rank());
  const auto item = static_cast<size_t>(item_size(call.dtype)), step = kSocketsBlock / item;
  room_.resize(std::max(room_.size(), kAhead * kSocketsBlock * came_.size()));
  auto part = [&](size_t k, size_t done) {
    const auto n = static_cast<size_t>(counts[k]);
    return done < n ? std::min(step, n - done) : 0;
  };
  auto room = [&](size_t done, size_t k) {
    return room_.data() + (done / step % kAhead * came_.size() + k) * kSocketsBlock;
  };
  auto ask = [&](size_t done) {
    for_others([&](size_t k) {
      flow(k).give(advance(from[k], done * item), part(k, done) * item);
      flow(k).get(room(done, k), part(me, done) * item);
    });
    return marks();
  };
  const auto most = static_cast<size_t>(*std::ranges::max_element(counts));
  std::deque<std::vector<size_t>> come;
  for (size_t b = 0; b < kAhead; ++b) come.push_back(ask(b * step)); // beyond the end: nothing
  for (size_t done = 0; done < most; done += step) {
    run(patience, come.front());
    come.pop_front();
    const size_t n = part(me, done);
    combine_share(call, advance(from[me], done * item), advance(to, done * item), n, room(done, 0), kSocketsBlock);
    come.push_back(ask(done + kAhead * step));
  }
  run(patience);
}

void SocketGroup::all_to_all(const Call& call, ConstParts from, Counts given, Parts to, Counts gotten) {
  std::lock_guard lock(mutex_);
  check_parts(call, from.size(), given, ranks(), "memory to give");
  check_parts(call, to.size(), gotten, ranks(), "memory to get");
  check_call(call, given, ranks());
  check_call(call, gotten, ranks());
  const auto me = static_cast<size_t>(rank());
  TS_CHECK_VALUE(given[me] == gotten[me], call.op, ": rank ", rank(), " gives itself ", given[me],
                 " elements and expects ", gotten[me]);
  const Patience patience = begin(call, {});
  gotten_ = gotten;
  for_others([&](size_t k) {
    ours_[k].given = static_cast<uint64_t>(given[k]);
    flow(k).give(from[k], bytes_of(call.dtype, given[k]));
    flow(k).get(to[k], bytes_of(call.dtype, gotten[k]));
  });
  run(patience);
  gotten_ = {};
  move_bytes(to[me], from[me], bytes_of(call.dtype, given[me]));
}

void SocketGroup::send(const Call& call, const void* data, int64_t count, int to, int64_t tag) {
  post_.send(call, data, count, to, tag);
}

int SocketGroup::receive(const Call& call, void* data, int64_t count, int from, int64_t tag) {
  return post_.receive(call, data, count, from, tag);
}

} // namespace ts::comm
