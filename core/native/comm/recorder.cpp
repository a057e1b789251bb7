#include "comm/recorder.h"
#include <ctime>

namespace ts::comm {
namespace {

double wall_clock() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

} // namespace

Recorder::Entry& Recorder::begin(bool message) {
  if (entries_.size() < kLength) entries_.emplace_back();
  Entry& e = entries_[begun_ % kLength];
  e.serial = begun_++;
  e.number = ++numbers_[message];
  e.message = message;
  e.state = State::Scheduled;
  e.called = wall_clock();
  e.error.clear();
  return e;
}

void Recorder::start(Entry& entry) {
  entry.state = State::Started;
  entry.started = wall_clock();
}

void Recorder::end(Entry& entry, bool failed) {
  entry.state = failed ? State::Failed : State::Completed;
  entry.ended = wall_clock();
}

Recorder::Entry* Recorder::find(uint64_t serial) {
  return serial < begun_ && begun_ - serial <= kLength ? &entries_[serial % kLength] : nullptr;
}

} // namespace ts::comm
