// The streams on which a run's nodes are computed.
#pragma once
#include "runtime/backend.h"
#include "runtime/stream.h"
#include "tensor/tensor.h"
#include <algorithm>
#include <vector>

namespace ts {

// The memory of a tensor is used by work of these streams, too.
inline void note_use(const Tensor& t, const StreamChoice& streams) {
  if (!t.defined() || !t->storage || t.device().is_meta()) return;
  backend_of(t.device()).allocator(t.device().index).record_stream(*t->storage, handle_in(streams, t.device()));
}

// Nodes run on the streams of their forward. What one hands to another on other streams is waited for there, and in
// the end the caller's streams wait for all that were used.
class NodeStreams {
public:
  NodeStreams() : caller_(stream_choice()), current_(caller_) {}
  ~NodeStreams() {
    if (current_ != caller_) set_stream_choice(caller_);
  }
  NodeStreams(const NodeStreams&) = delete;
  NodeStreams& operator=(const NodeStreams&) = delete;

  void enter(const StreamChoice& streams) {
    if (streams == current_ || recorded_) [[likely]]
      return;
    set_stream_choice(streams);
    current_ = streams;
    if (streams != caller_ && std::find(used_.begin(), used_.end(), streams) == used_.end()) used_.push_back(streams);
  }
  // Of what is computed on the current ones.
  void hand_over(const Tensor& t, const StreamChoice& to) {
    if (to == current_ || !t.defined() || recorded_) [[likely]]
      return;
    order_streams(to, current_);
    note_use(t, to);
  }
  void hand_to_caller(const Tensor& t) {
    if (current_ != caller_) note_use(t, caller_);
  }
  void hand_from_caller(const Tensor& t, const StreamChoice& to) {
    enter(caller_);
    hand_over(t, to);
  }
  void join() {
    for (const StreamChoice& streams : used_) order_streams(caller_, streams);
    enter(caller_);
  }

private:
  StreamChoice caller_, current_;
  std::vector<StreamChoice> used_;
  const bool recorded_ = thread_state().capture; // then all that is recorded goes to the caller's streams
};

} // namespace ts
