#include "autograd/node.h"
#include "runtime/stream.h"

namespace ts {

// Out of line: most nodes are made on no stream of their own.
[[gnu::noinline]] static void take_streams(Node& node) { node.streams = stream_choice(); }

Node::Node() : forward_only(thread_state().hidden_no_grad), sequence(++thread_state().sequence) {
  if (thread_state().on_stream) [[unlikely]]
    take_streams(*this);
}

void Node::resize_edges(size_t n) {
  if (n > 2) more_edges = std::make_unique<Edge[]>(n);
  n_edges = static_cast<uint32_t>(n);
}

uint64_t next_hook_id() {
  static std::atomic<uint64_t> next{0};
  return ++next;
}

void HookPlace::remove() const {
  auto place = hooks.lock();
  if (!place) return;
  // The first list that has it is the last that is looked at: what a callable's end runs may end the hooks as well.
  auto take = [this](auto& list) {
    auto at = std::ranges::find(list, id, [](const auto& entry) { return entry.id; });
    if (at == list.end()) return false;
    auto gone = std::move(*at);
    list.erase(at);
    return true;
  };
  NodeHooks& h = **place;
  (void)(take(h.tensor) || take(h.pre) || take(h.post) || take(h.accumulated));
}

// Deleting a node drops its edges and saved tensors, which may drop further nodes: these queue up here instead of
// nesting, so that a chain of any length needs constant stack.
void Node::destroy(Node* n) {
  ThreadState& tls = thread_state();
  n->unlink();
  n->next_dying = static_cast<Node*>(tls.dying_nodes);
  tls.dying_nodes = n;
  if (tls.destroying) return;
  tls.destroying = true;
  while (auto* dying = static_cast<Node*>(tls.dying_nodes)) {
    tls.dying_nodes = dying->next_dying;
    delete dying;
  }
  tls.destroying = false;
}

} // namespace ts
