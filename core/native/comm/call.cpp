#include "comm/call.h"
#include "tensor/error.h"
#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

namespace ts::comm {
namespace {

uint64_t mixed(uint64_t h, uint64_t v) { // a step of splitmix64
  h += 0x9e3779b97f4a7c15u + v;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

// Text of a limited length, with a closing zero: written for every collective, so by hand.
class Text {
public:
  explicit Text(char* text) : at_(text), end_(text + kTextBytes - 1) {}
  ~Text() { *at_ = 0; }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  Text& operator<<(std::string_view part) {
    const size_t n = std::min(part.size(), static_cast<size_t>(end_ - at_));
    std::memcpy(at_, part.data(), n);
    at_ += n;
    return *this;
  }
  template <std::integral T> Text& operator<<(T number) {
    char digits[24];
    return *this << std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  size_t size_since(const char* mark) const { return static_cast<size_t>(at_ - mark); }
  const char* mark() const { return at_; }

private:
  char *at_, *end_;
};

} // namespace

double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void check_call(const Call& call, Counts counts, int ranks) {
  TS_CHECK_VALUE(call.root >= 0 && call.root < ranks, call.op, ": expected a root among ", ranks, " ranks, got ",
                 call.root);
  for (int64_t n : counts) TS_CHECK_VALUE(n >= 0, call.op, ": expected numbers of elements, got ", n);
}

void check_parts(const Call& call, size_t parts, Counts counts, int ranks, const char* what) {
  TS_CHECK_VALUE(parts == static_cast<size_t>(ranks) && counts.size() == static_cast<size_t>(ranks), call.op,
                 ": expected ", what, " for each of ", ranks, " ranks, got ", static_cast<int64_t>(parts));
}

uint64_t signature(const Call& call, uint64_t number, Counts counts) {
  uint64_t s = mixed(number, static_cast<uint64_t>(static_cast<int64_t>(call.dtype) + 1));
  for (const char* c = call.op; *c; ++c) s = mixed(s, static_cast<uint64_t>(*c));
  s = mixed(mixed(s, static_cast<uint64_t>(call.root)), static_cast<uint64_t>(call.reduction));
  for (int64_t n : counts) s = mixed(s, static_cast<uint64_t>(n));
  return s;
}

void describe(char* to, const Call& call, uint64_t number, Counts counts) {
  const std::string_view where = call.where, op = call.op;
  Text text(to);
  text << op << " #" << number;
  if (call.dtype != DType::Undefined) {
    text << " of " << name(call.dtype) << "[";
    const char* first = text.mark();
    for (size_t k = 0; k < counts.size(); ++k) {
      if (text.size_since(first) >= 60) {
        text << ", ...";
        break;
      }
      if (k) text << ", ";
      text << counts[k];
    }
    text << "]";
  }
  if (!where.empty()) text << " at " << where;
  if (call.dtype != DType::Undefined && op.find("reduce") != op.npos) text << ", " << name(call.reduction);
}

Patience letter_patience(const Call& call, int64_t count, const char* direction, int other) {
  return {call.timeout, std::string(call.op) + " of " + std::string(name(call.dtype)) + "[" + std::to_string(count) +
                            "] " + direction + (other < 0 ? " any rank" : " rank " + std::to_string(other)) +
                            (*call.where ? std::string(" at ") + call.where : std::string())};
}

std::string missing_text(const Patience& patience, std::span<const int> missing, const char* why, bool late,
                         const std::function<std::string(int)>& began) {
  std::string text = patience.what + ": ";
  for (size_t k = 0; k < missing.size(); ++k) text += (k ? ", rank " : "rank ") + std::to_string(missing[k]);
  text += std::string(" ") + why;
  if (late) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3g", patience.seconds);
    text += std::string(" within ") + seconds + " s";
  }
  for (int other : missing) {
    const std::string last = began(other);
    text += "; rank " + std::to_string(other) + (last.empty() ? " began nothing" : " last began " + last);
  }
  return text;
}

std::string mismatch_text(int ranks, const std::function<std::string(int)>& called) {
  std::string text = "ranks called different collectives: ";
  for (int k = 0; k < ranks; ++k) text += (k ? "; rank " : "rank ") + std::to_string(k) + " " + called(k);
  return text;
}

} // namespace ts::comm
