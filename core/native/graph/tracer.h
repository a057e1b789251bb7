// Writes a program down while it runs. Two dispatch keys see its calls: `Tracer`, right above autograd, as the program
// (or the engine of backward passes) makes them, and `Leaf`, below autograd, as they reach a card. So forward,
// backward(), optimizers and hooks are one stream, and the parts of a composite operator stand within its scope.
//
// A tensor is known by a number it carries (TensorImpl::traced) or, where autograd or `.data` made another of it, by
// memory and geometry. One that is not known is a capture: it was there before, or was made of data of the host.
#pragma once
#include "graph/graph.h"
#include "runtime/new_storage.h"
#include <functional>
#include <memory>

namespace ts::graph {

// What the language above tells and hears.
struct Surroundings {
  std::function<std::string()> line;                    // of the user's program that runs now: "model.py:12", or ""
  std::function<void(const std::string& text)> warning; // with the line where the program stands
  std::function<bool(const Tensor&)> reading{};         // a value becomes a number: whether runs are compared by it
};

class Tracer {
public:
  // What cannot be written down is an error in the program; or, if `lenient`, ends the writing, and the program runs
  // on. Such a one does not take tensors that no operator has made of others, unless `whole`: it sees all that does.
  explicit Tracer(Surroundings around, bool lenient = false, bool whole = false);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  static Tracer* current();                             // of this thread, while it writes down what runs; NULL else
  bool takes_views() const { return takes_views_; }     // that no operator has made
  const std::string& failed() const { return failed_; } // why a lenient one has ended; ""

  // Before begin(), or of what is not the program's. A tensor given twice is one input twice.
  void add_input(const Tensor& t, std::string_view name);
  void begin(); // RuntimeError where this thread writes down already
  // What the program gave.
  Graph end(std::span<const Tensor> outputs);
  void cancel() noexcept; // after an error in the program

  // --- of sizes ---
  Id size_of(const Tensor& t, int64_t dim);
  Id stride_of(const Tensor& t, int64_t dim);
  Id numel_of(const Tensor& t);
  // The number that a tensor of the program holds, which every run reads; kNone of other tensors, and for a lenient
  // one.
  Id read(const Tensor& t);
  // Arithmetic of two numbers, at least one of them a value.
  Id arithmetic(SizeOp op, const Item& a, const Item& b);
  void guard(SizeOp op, const Item& a, const Item& b, bool answer);
  // That a function with a gradient of its own, which the graph does not hold, is given these.
  void forward_only(std::span<const Tensor> tensors);
  // That the number at this place, an argument of the next call, is the value.
  void link(const void* place, const Item& number, Id value);

  void enter_module(std::string_view path);
  void leave_module();
  bool holds(const Storage* s) const { return at_.contains(const_cast<Storage*>(s)); }
  size_t num_calls() const { return graph_.nodes.size(); } // so far
  uint32_t serial() const { return serial_; }              // of this tracer in the process
  const Item& number(Id v) const { return graph_.values[v].number; }
  void note_leaf() { makes_leaves_ = true; }
  bool makes_leaves() const { return makes_leaves_; } // that require gradients, of which the graph does not know
  void warn(const std::string& text) { around_.warning(text); }
  // Values of a tensor that the program knows become numbers of the host: a warning.
  void host_read(const Tensor& t, const char* what);

  // --- of the keys' kernels ---
  void run_scope(const Operator& op, Frame& f, KeySet keys);
  void run_leaf(const Operator& op, Frame& f, KeySet keys);
  void kernel_seen(const ts_call& call);
  void draw_seen();

private:
  struct Seen { // where the tensor of a value lies
    Storage* storage = nullptr;
    int64_t offset = 0;
    KeySet pending = 0;
  };
  struct Link {
    const void* place;
    Item number;
    Id value;
    bool used;
    bool is(const Item& n) const; // as an argument: whole numbers may stand where fractions are asked for
  };
  Id known(const TensorImpl& t) const; // by its number; kNone
  Id in_memory(const Tensor& t);       // by memory and geometry, or as a view of what is known there
  Id capture(const Tensor& t);
  Id value_of(const Tensor& t);
  Id new_value(const Tensor& t, Id producer);
  void mark(const Tensor& t, Id v);
  Id call_here(const Operator& op, std::span<const Item> args, const Tensor& result); // a leaf of our own
  void run_whole(const Operator& op, Frame& f, KeySet keys, bool linked);
  Item item_of(const ts::Value& v, bool linked);
  Item number_item(const Item& number, const void* place, bool linked);
  void find_places(const Frame& f);
  Item result_item(const ts::Value& v, Id node, Id first_own);
  Id result_value(const Tensor& t, Id node, Id first_own);
  Id open(const Operator& op, const Frame& f, bool linked);
  void close(Id node, const Frame& f, Id first_own);
  void collapse(Id node);
  void let_go() noexcept; // of memory
  bool in_other_region() const;
  void check_region(Id node) const;
  template <class F> bool attempt(F write); // false where a lenient one ends
  Node blank() const;
  bool same_geometry(const ValueInfo& v, const Tensor& t) const;
  void sweep();

  Surroundings around_;
  uint32_t serial_;
  Graph graph_;
  std::vector<Seen> seen_; // of each value
  std::unordered_map<uint32_t, Id> numbers_;
  std::unordered_map<Storage*, std::vector<Id>> at_;
  std::unordered_map<const void*, Storage*> handles_;
  std::vector<Link> links_;
  std::vector<Id> scopes_;
  std::vector<std::string> modules_;
  std::unique_ptr<WatchStorage> made_;
  std::string regions_; // of autocast, where the program begins
  KeySet include_before_ = 0;
  bool grad_before_ = true, running_ = false, makes_leaves_ = false;
  size_t next_sweep_ = 256;
  bool lenient_ = false, takes_views_ = true;
  std::string failed_;
};

} // namespace ts::graph
