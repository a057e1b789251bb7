// What a compiled function's call runs: graphs, with calls of Python between them where some stand whole.
#pragma once
#include "graph/executor.h"
#include "python/common.h"
#include <span>

namespace ts::py_runtime {

using SharedGraph = std::shared_ptr<const graph::Executor>;

// What a function returns, of its graphs' results: a tensor, or tuples, lists and dicts.
struct Shape {
  enum class Kind : uint8_t { Output, Input, Number, Value, Tuple, List, Dict } kind = Kind::Value;
  uint32_t at = 0;            // Output, Input, Number
  ts::py::PyRef object;       // Value; of a Dict a tuple of its keys
  std::vector<Shape> parts{}; // of the others
};

class Program : public std::enable_shared_from_this<Program> {
public:
  struct Step {
    SharedGraph graph;                        // or
    ts::py::PyRef call;                       // given tensors, it returns a list of such
    bool outside = false;                     // of autocast regions
    std::vector<uint32_t> given, gives, done; // values, and which are not needed any more
  };
  std::vector<Step> steps;
  std::vector<uint32_t> inputs, outputs; // values
  std::vector<std::pair<uint32_t, Tensor>> held;
  size_t n_values = 0;
  SharedGraph in_order; // what runs instead where hooks would see that gradients come in another order than Python's
  bool has_shape = false;
  Shape shape;

  struct Check { // of a result: its sizes, and what it holds
    size_t at;
    bool reads; // what it holds, too
    std::vector<int64_t> sizes;
    std::string bytes;
    bool operator==(const Check& o) const { return sizes == o.sizes && bytes == o.bytes; }
  };
  std::vector<Check> checks;
  SharedGraph first_read;     // computes the first of these alone, of the program's inputs
  mutable uint32_t quiet = 0; // how often that was as here since it was otherwise

  void finish(); // once all of it is there
  void run(std::span<const Tensor> in, std::vector<Tensor>& out) const;
  // Whether it may be the graph of values that the last run of this thread met where it was of others.
  bool may_be_meant() const;
  // Whether to compute the first read before a run is worth it, as values were others lately; and what it is then.
  bool asks_first() const { return first_read && quiet < 64; }
  Check read_first(std::span<const Tensor> in) const;
  // A new reference, or an error. Results are taken from `out`.
  PyObject* result(std::span<PyObject* const> in, std::vector<Tensor>& out) const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

private:
  void run_any(std::span<const Tensor> in, std::vector<Tensor>& out) const;
  void run_steps(std::span<const Tensor> in, std::vector<Tensor>& out) const;
  const graph::Executor* only_ = nullptr; // its inputs and outputs are the program's
};

std::string bytes_of(const Tensor& contiguous);

// Whether gradients of a captured tensor are told to somebody, who sees in which order they come.
bool is_hooked(const graph::Executor& graph);

} // namespace ts::py_runtime
