// A graph whose run autograd records, for tensors of certain kinds: two halves, each a graph of the calls that reach a
// card and so with plans of its own, and one node on the tape between them.
//
// Both come from one run that is written down to the end of its backward pass. What the second half needs of the first
// is kept by the node, as operators' nodes keep it. What arrives at each tensor given goes there one by one, so that
// gradients are summed by the engine in the order in which it sums those of single operators.
#pragma once
#include "graph/executor.h"
#include "tensor/geometry.h"

namespace ts {
struct Node;
}

namespace ts::graph {

// What a backward pass brought and what it was for.
struct Asked {
  struct Grad {
    bool arrives = false;
    Dims sizes, strides;
    friend bool operator==(const Grad& a, const Grad& b) {
      return a.arrives == b.arrives && same(a.sizes, b.sizes) && same(a.strides, b.strides);
    }
  };
  static Grad grad_like(const Tensor& g); // one that is not defined does not arrive
  static bool is_plain(const Tensor& g);  // a dense tensor and nothing else
  std::vector<Grad> grads;                // by output of the graph
  std::vector<bool> wanted;               // by tensor given: whether its gradient was, if it has one
};

struct Joint {
  // Something of the first half that the second is given.
  struct Kept {
    enum class From : uint8_t { Given, Output, Extra } from;
    uint32_t at; // among tensors given, outputs, what the first half gives besides
  };
  std::shared_ptr<const Executor> forward, backward;
  std::vector<bool> recorded; // by output: whether it has a gradient
  Asked asked;                // what `backward` is for
  bool wants_all = true;
  std::vector<Kept> kept;         // backward takes gradients that arrive, then these
  std::vector<uint32_t> edges;    // of the node: each a tensor given
  std::vector<uint32_t> places;   // of what backward gives: edges
  std::vector<uint32_t> twin;     // by tensor given: the first that is the same tensor
  std::vector<uint32_t> written;  // tensors given that forward writes
  std::vector<bool> renewed;      // by tensor given: written, and nothing that comes out follows from what it held
  std::vector<Generator*> random; // that it draws from
  std::vector<Tensor> constants;  // that both halves have after their captures
  size_t n_outputs = 0;
};

// A run of the graph by its halves: the outputs, with their history.
class Region;
std::vector<Tensor> run_joint(const Executor& whole, std::shared_ptr<const Joint> joint,
                              const std::shared_ptr<Region>& region, std::span<const Tensor> inputs,
                              std::span<const Tensor> captures);
// A run as plain autograd records it, which is written down with a backward pass of the kind. `why`: why there is none.
std::vector<Tensor> record_joint(const Executor& whole, const Asked* asked, std::span<const Tensor> inputs,
                                 std::span<const Tensor> captures, const std::function<void(Id)>& on_guard,
                                 std::shared_ptr<const Joint>& joint, std::string& why);
// Sets the halves of a joint from what was written down: inputs are tensors given, then gradients that arrive; outputs
// are the graph's, then what arrives at tensors given, `arrivals` of them in order. RuntimeError where it has none.
void split_joint(Joint& joint, const Graph& written_down, std::span<const uint32_t> arrivals, size_t n_inputs,
                 size_t n_captures);

} // namespace ts::graph
