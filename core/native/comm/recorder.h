// What a rank last did in a group: a ring of its operations. Read and written under the interpreter's lock.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ts::comm {

class Recorder {
public:
  static constexpr size_t kLength = 512; // operations that are kept
  enum class State : uint8_t { Scheduled, Started, Completed, Failed };
  struct Entry {
    uint64_t serial = 0, number = 0; // of all operations, and of those of this kind
    bool message = false;
    State state = State::Scheduled;
    double called = 0, started = 0, ended = 0; // seconds since 1970
    std::string op, of, where, error;
  };

  Entry& begin(bool message); // the texts of an older one are to be written over
  void start(Entry& entry);
  void end(Entry& entry, bool failed);
  Entry* find(uint64_t serial);               // NULL where newer ones have taken its place
  template <class F> void each(F&& f) const { // oldest first
    for (uint64_t s = begun_ < kLength ? 0 : begun_ - kLength; s < begun_; ++s) f(entries_[s % kLength]);
  }

private:
  std::vector<Entry> entries_;
  uint64_t begun_ = 0, numbers_[2] = {};
};

} // namespace ts::comm
