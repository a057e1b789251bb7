#include "comm/wires.h"
#include "runtime/interpreter.h"
#include "tensor/error.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ts::comm {
namespace {

constexpr int kSliceMilliseconds = 50; // how often a sleeper looks at the time, and for Ctrl-C
constexpr int kNewsMilliseconds = 200; // how long the reason of one that left may take to come
constexpr size_t kAtOnce = 1 << 20;    // bytes given before what has come is taken
constexpr size_t kNewsBytes = 4096;
constexpr size_t kVectors = 8;

bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

} // namespace

Wires::Wires(std::vector<int> collectives, std::vector<int> letters, std::vector<int> news, int rank, int spins)
    : collectives_(std::move(collectives)), letters_(std::move(letters)), news_(std::move(news)), rank_(rank),
      spins_(spins) {
  const size_t n = collectives_.size();
  TS_CHECK_VALUE(n >= 1 && letters_.size() == n && news_.size() == n && rank >= 0 && static_cast<size_t>(rank) < n,
                 "tcp: expected three sockets for each rank, and a rank below their number, got ", n, ", ",
                 letters_.size(), ", ", news_.size(), " and rank ", rank);
  heard_.resize(n);
  began_.resize(n);
  silent_.assign(n, false);
  for (const auto* sockets : {&collectives_, &letters_, &news_})
    for (int k = 0; k < ranks(); ++k) {
      if (k == rank_) continue;
      const int socket = (*sockets)[static_cast<size_t>(k)], flags = fcntl(socket, F_GETFL);
      TS_CHECK(flags >= 0 && fcntl(socket, F_SETFL, flags | O_NONBLOCK) == 0, "tcp: expected a connection to rank ", k,
               ", got ", std::strerror(errno));
    }
}

Wires::~Wires() {
  for (const auto* sockets : {&collectives_, &letters_, &news_})
    for (int socket : *sockets)
      if (socket >= 0) ::close(socket);
}

bool Wires::push(int peer, Flow& flow, const Patience& patience) {
  size_t moved = 0;
  while (!flow.given() && moved < kAtOnce) {
    iovec vectors[kVectors];
    size_t count = 0;
    for (size_t k = flow.next_out_; k < flow.out_.size() && count < kVectors; ++k)
      vectors[count++] = {flow.out_[k].at, std::min(flow.out_[k].bytes, kAtOnce)};
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = count;
    const ssize_t done = sendmsg(collectives_[static_cast<size_t>(peer)], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && again(errno)) break;
    if (done < 0) gone(peer, patience);
    moved += static_cast<size_t>(done);
    for (size_t left = static_cast<size_t>(done); left;) {
      Flow::Piece& piece = flow.out_[flow.next_out_];
      const size_t n = std::min(left, piece.bytes);
      piece.at += n;
      piece.bytes -= n;
      left -= n;
      if (!piece.bytes) ++flow.next_out_;
    }
  }
  return moved;
}

bool Wires::pull(int peer, Flow& flow, const Patience& patience) {
  if (flow.gotten()) return false;
  iovec vectors[kVectors];
  size_t count = 0;
  for (size_t k = flow.next_in_; k < flow.in_.size() && count < kVectors; ++k)
    vectors[count++] = {flow.in_[k].at, flow.in_[k].bytes};
  const ssize_t done = readv(collectives_[static_cast<size_t>(peer)], vectors, static_cast<int>(count));
  if (done < 0 && again(errno)) return false;
  if (done <= 0) gone(peer, patience);
  flow.received_ += static_cast<size_t>(done);
  for (size_t left = static_cast<size_t>(done); left;) {
    Flow::Piece& piece = flow.in_[flow.next_in_];
    const size_t n = std::min(left, piece.bytes);
    piece.at += n;
    piece.bytes -= n;
    left -= n;
    if (!piece.bytes) ++flow.next_in_;
  }
  return true;
}

void Wires::run(std::vector<Flow>& flows, std::span<const size_t> marks, const Patience& patience) {
  Wait wait{now()};
  std::vector<int> missing;
  std::vector<pollfd> asked;
  for (int idle = 0;;) {
    bool moved = false;
    missing.clear();
    for (int k = 0; k < ranks(); ++k) {
      if (k == rank_) continue;
      Flow& flow = flows[static_cast<size_t>(k)];
      if (push(k, flow, patience)) moved = true;
      if (pull(k, flow, patience)) moved = true;
      if (marks.empty() ? !flow.given() || !flow.gotten() : flow.received() < marks[static_cast<size_t>(k)])
        missing.push_back(k);
    }
    if (missing.empty()) return;
    if (moved || ++idle < spins_) {
      if (moved) idle = 0;
      continue;
    }
    asked.clear();
    for (int k = 0; k < ranks(); ++k) {
      if (k == rank_) continue;
      const Flow& flow = flows[static_cast<size_t>(k)];
      const int events = (flow.gotten() ? 0 : POLLIN) | (flow.given() ? 0 : POLLOUT);
      if (events) asked.push_back({collectives_[static_cast<size_t>(k)], static_cast<short>(events), 0});
    }
    sleep(asked, missing, patience, wait);
  }
}

void Wires::sleep(std::vector<pollfd>& asked, std::span<const int> missing, const Patience& patience, Wait& wait) {
  const size_t own = asked.size();
  {
    std::lock_guard lock(mutex_);
    for (size_t k = 0; k < news_.size(); ++k)
      if (static_cast<int>(k) != rank_ && !silent_[k]) asked.push_back({news_[k], POLLIN, 0});
  }
  poll(asked.data(), asked.size(), kSliceMilliseconds);
  const bool ready = std::any_of(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(own),
                                 [](const pollfd& p) { return p.revents != 0; });
  if (ready) return;
  read_news();
  if (!aborted()) return look_around(missing, patience, wait.began);
  // Who gave up may have done so after what is waited for here, which may have come since the sockets were asked.
  if (wait.over) fail_aborted();
  wait.over = true;
}

void Wires::look_around(std::span<const int> missing, const Patience& patience, double began) {
  check();
  if (interpreter_hooks().interrupted && interpreter_hooks().interrupted()) {
    abort(patience.what + ": rank " + std::to_string(rank_) + " was interrupted");
    fail(ErrorKind::Interrupted, patience.what, ": interrupted");
  }
  for (int k : missing) { // closed, and nothing left in it to read
    char byte;
    const int socket = letters_[static_cast<size_t>(k)];
    const ssize_t there = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (there == 0 || (there < 0 && !again(errno))) {
      const ssize_t data = recv(collectives_[static_cast<size_t>(k)], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (data == 0 || (data < 0 && !again(errno))) gone(k, patience);
    }
  }
  if (now() - began <= patience.seconds) return;
  abort(told(missing, patience, "did not come", true));
  check();
}

void Wires::write(int to, const void* data, size_t bytes, const Patience& patience) {
  const int socket = letters_[static_cast<size_t>(to)];
  auto* from = static_cast<const std::byte*>(data);
  Wait wait{now()};
  std::vector<pollfd> asked;
  while (bytes) {
    const ssize_t done = ::send(socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && !again(errno)) gone(to, patience);
    if (done < 0) {
      asked.assign(1, {socket, POLLOUT, 0});
      sleep(asked, {&to, 1}, patience, wait);
      continue;
    }
    from += done;
    bytes -= static_cast<size_t>(done);
  }
}

void Wires::read(int from, void* data, size_t bytes, const Patience& patience) {
  const int socket = letters_[static_cast<size_t>(from)];
  auto* to = static_cast<std::byte*>(data);
  Wait wait{now()};
  std::vector<pollfd> asked;
  while (bytes) {
    const ssize_t done = ::recv(socket, to, bytes, MSG_DONTWAIT);
    if (done == 0 || (done < 0 && !again(errno))) gone(from, patience);
    if (done < 0) {
      asked.assign(1, {socket, POLLIN, 0});
      sleep(asked, {&from, 1}, patience, wait);
      continue;
    }
    to += done;
    bytes -= static_cast<size_t>(done);
  }
}

bool Wires::pending(int from) {
  char byte;
  return recv(letters_[static_cast<size_t>(from)], &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

// Its own reason may be on its way: it is better than what is seen here.
void Wires::gone(int peer, const Patience& patience) {
  bool listening;
  {
    std::lock_guard lock(mutex_);
    listening = !silent_[static_cast<size_t>(peer)];
  }
  if (listening && !aborted()) {
    pollfd asked{news_[static_cast<size_t>(peer)], POLLIN, 0};
    poll(&asked, 1, kNewsMilliseconds);
  }
  read_news();
  if (!aborted()) abort(told({&peer, 1}, patience, "has ended: its connection is closed", false));
  fail_aborted();
}

void Wires::check() {
  if (!aborted()) read_news();
  if (aborted()) fail_aborted();
}

void Wires::fail_aborted() {
  std::string reason;
  {
    std::lock_guard lock(mutex_);
    reason = reason_;
  }
  fail(ErrorKind::Runtime, reason);
}

void Wires::set_aborted(const std::string& reason) {
  if (aborted_.load(std::memory_order_relaxed)) return;
  reason_ = reason;
  aborted_.store(true, std::memory_order_release);
}

void Wires::abort(const std::string& reason) {
  std::string said = reason.substr(0, kNewsBytes - 1);
  {
    std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    set_aborted(said);
  }
  said.push_back('\0'); // ends it
  for (int k = 0; k < ranks(); ++k)
    if (k != rank_) ::send(news_[static_cast<size_t>(k)], said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Wires::read_news() {
  std::lock_guard lock(mutex_);
  char buffer[kNewsBytes];
  for (size_t k = 0; k < news_.size(); ++k) {
    if (static_cast<int>(k) == rank_ || silent_[k]) continue;
    const ssize_t there = recv(news_[k], buffer, sizeof buffer, MSG_DONTWAIT);
    if (there < 0 && again(errno)) continue;
    if (there <= 0 || heard_[k].size() > kNewsBytes) {
      silent_[k] = true;
      continue;
    }
    heard_[k].append(buffer, static_cast<size_t>(there));
    if (const size_t end = heard_[k].find('\0'); end != std::string::npos) set_aborted(heard_[k].substr(0, end));
  }
}

void Wires::began(int rank, const char* text) {
  std::lock_guard lock(mutex_);
  began_[static_cast<size_t>(rank)] = text;
}

std::string Wires::told(std::span<const int> missing, const Patience& patience, const char* why, bool late) {
  std::vector<std::string> began;
  {
    std::lock_guard lock(mutex_);
    began = began_;
  }
  return missing_text(patience, missing, why, late, [&](int k) { return began[static_cast<size_t>(k)]; });
}

} // namespace ts::comm
