// A program as data: values, nodes and scopes in flat arrays, named by 32-bit ids. No Python, no kernels.
//
// A node is a call of an operator, or arithmetic on sizes. A composite operator's node is followed by the nodes of the
// calls that it made, up to `end`: what a program called and what reached a card are two levels of one graph.
#pragma once
#include "dispatch/operator.h"
#include "runtime/generator.h"
#include "tensor/ref.h"
#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ts::graph {

using Id = uint32_t;
inline constexpr Id kNone = UINT32_MAX;

// What is computed from sizes, and from the one value of a tensor (Read); and what is asked of them. Comparisons tell
// whether one that the program made comes out as it did, Forward that an autograd.Function was written down without its
// gradient; they have no result.
enum class SizeOp : uint8_t {
  None,
  Size,
  Stride,
  Numel,
  Read,
  Add,
  Sub,
  Mul,
  FloorDiv,
  Mod,
  Neg,
  Min,
  Max,
  TrueDiv,
  Pow,
  Floor,
  Ceil,
  Trunc,
  Round,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  Forward
};
inline constexpr int kSizeOps = 26;
const char* name_of(SizeOp op); // "size.add"
SizeOp size_op_named(std::string_view name);
inline bool is_guard(SizeOp op) { return op >= SizeOp::Eq; }
inline bool is_rounding(SizeOp op) { return op >= SizeOp::Floor && op <= SizeOp::Round; }
// Without a guard's answer.
inline int arity(SizeOp op) {
  return op == SizeOp::Numel || op == SizeOp::Read || op == SizeOp::Neg || is_rounding(op) ? 1 : 2;
}

// An argument or a result: a constant, a value, or a list, whose elements stand elsewhere in `Graph::items`.
struct Item {
  Tag tag = Tag::None;
  bool is_value = false; // `at` is a value: of tag Tensor, Int, Float
  uint32_t len = 0;      // of lists: elements from items[at]; of Complex: two floats from there
  union {
    int64_t i = 0;
    double f;
    uint64_t at; // of Str: in strings; of Generator: in generators
  };
  static Item value(Tag tag, Id id) {
    Item item;
    item.tag = tag;
    item.is_value = true;
    item.at = id;
    return item;
  }
  static Item integer(int64_t i) {
    Item item;
    item.tag = Tag::Int;
    item.i = i;
    return item;
  }
  static Item real(double f) {
    Item item;
    item.tag = Tag::Float;
    item.f = f;
    return item;
  }
  static Item truth(bool b) {
    Item item = integer(b);
    item.tag = Tag::Bool;
    return item;
  }
  Id id() const { return static_cast<Id>(at); }
  bool is_number() const { return tag == Tag::Int || tag == Tag::Float; }
  double as_double() const { return tag == Tag::Float ? f : static_cast<double>(i); } // of a constant
  bool is_list() const { return tag == Tag::Ints || tag == Tag::Floats || tag == Tag::Tensors || tag == Tag::Complex; }
};

// As Python computes with ints and floats; a comparison gives the Int 0 or 1. ValueError for what Python refuses:
// division by zero, whole numbers of more than 64 bits.
Item compute(SizeOp op, const Item& a, const Item& b);
Item read_number(const Tensor& t); // of one element, whole or real

// A tensor, as it was when the program was written down, or a number that follows from sizes.
struct ValueInfo {
  Tag tag = Tag::Tensor; // or Int, Float
  DType dtype = DType::Undefined;
  uint8_t ndim = 0;
  bool requires_grad = false;
  Device device;
  uint32_t dims = 0;     // in Graph::dims: sizes, then strides
  Id producer = kNone;   // of inputs and captures: none
  Id alias = kNone;      // the first value that shares its memory, or itself
  Id same_as = kNone;    // what an operator made of others gave back, being nothing new
  uint32_t name = kNone; // in strings, of inputs and captures
  Item number;           // of tag Int, Float: what it was
};

struct Node {
  const Operator* op = nullptr; // NULL: arithmetic on sizes
  SizeOp size_op = SizeOp::None;
  bool no_grad = false;  // called where gradients were off, in a program that began where they were on
  bool backward = false; // called by the engine: its sizes are those of the run that was written down
  uint32_t args = 0, n_args = 0, results = 0, n_results = 0; // in items
  Id parent = kNone;                                         // the scope that it is a part of
  Id end = 0;                                                // of a scope: behind its last part; else behind itself
  uint32_t line = kNone;                                     // of the user's program, in strings
  uint32_t path = kNone;                                     // of the module that was running, in strings
};

struct Graph {
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::vector<Item> items;
  std::vector<int64_t> dims;
  std::vector<std::string> strings;
  std::vector<Id> inputs, captures, outputs;
  std::vector<Tensor> captured;           // one for each capture
  std::vector<bool> constant;             // of each: nobody changes it between runs
  std::vector<Ref<Generator>> generators; // kept alive: the program may have made its own

  std::span<const Item> args(const Node& n) const { return {items.data() + n.args, n.n_args}; }
  std::span<const Item> results(const Node& n) const { return {items.data() + n.results, n.n_results}; }
  std::span<const Item> elements(const Item& list) const { return {items.data() + list.at, list.len}; }
  IntSpan sizes(const ValueInfo& v) const { return {dims.data() + v.dims, v.ndim}; }
  IntSpan strides(const ValueInfo& v) const { return {dims.data() + v.dims + v.ndim, v.ndim}; }
  bool is_scope(Id n) const { return nodes[n].end > n + 1; }

  // In the order of their places; lists included.
  template <class F> void each_use(const Node& n, F visit) const { each(args(n), visit); }
  template <class F> void each_def(const Node& n, F visit) const { each(results(n), visit); }
  template <class F> void each(std::span<const Item> list, F visit) const {
    for (const Item& item : list) {
      if (item.is_value)
        visit(item.id());
      else if (item.is_list())
        each(elements(item), visit);
    }
  }

  uint32_t intern(std::string_view text); // its index in strings
  const std::string& text(uint32_t index) const { return strings[index]; }
  Id add_value(const Tensor& t, Id producer);
  Id add_number(const Item& number, Id producer);
  uint32_t add_items(std::span<const Item> list);
  uint64_t add_generator(Generator* g);                // its index in generators
  Item copy_item(const Graph& from, const Item& item); // list elements come along; values keep their ids

private:
  std::unordered_map<std::string, uint32_t> interned_;
};

// --- effects ---------------------------------------------------------------------------------------------------------
bool is_pure(const Graph& g, const Node& n); // gives the same for the same arguments, and does nothing else
bool is_random(const Node& n);
bool communicates(const Node& n);                    // every rank makes these calls, all of them, in one order
bool depends_on_data(const Graph& g, const Node& n); // sizes of its results follow from values
bool writes(const Graph& g, const Node& n);
// Values that the node writes.
std::vector<Id> written(const Graph& g, const Node& n);

// --- levels ----------------------------------------------------------------------------------------------------------
// Calls as the program made them. RuntimeError where a part of a scope is used outside of it, as by a backward pass.
Graph outer_level(const Graph& g);
// Calls as they reach cards; scopes in which values became numbers stay whole.
Graph leaf_level(const Graph& g);
// With the parts of calls of an operator in their place, an empty note in that of the calls.
Graph dissolved(const Graph& g, std::string_view op);
bool has_backward(const Graph& g);
// The graph with the chosen nodes alone and its values numbered anew; `same` leads from a value to the one that it is.
Graph rebuilt(const Graph& g, const std::vector<bool>& keep, const std::vector<Id>& same);

// Some of the calls, one after another, as a graph of their own, and which values of the whole it is given and gives.
struct Part {
  Graph graph;
  std::vector<Id> inputs, outputs;
};
Part part_of(const Graph& g, Id begin, Id end);

// A program that was written down within an autocast region does the same outside of one, once the casts of captured
// tensors that the region keeps are made: the graph with these first, and how many they are. -1 where it would not, or
// that is not sure: operators cast within themselves, are Python's, or write memory.
std::pair<Graph, int64_t> casts_first(const Graph& written_down);

// Without numbers that nothing is computed from: x.shape asks for every size.
void drop_unused_numbers(Graph& g);

// RuntimeError that says which node is wrong, and how: ids, order of definition, types as by the schema, scopes.
void verify(const Graph& g);

std::string to_text(const Graph& g);
// What to_text wrote; the captured tensors are the caller's. ValueError with the line of what is not understood.
Graph parse_text(std::string_view text, std::vector<Tensor> captured = {});

} // namespace ts::graph
