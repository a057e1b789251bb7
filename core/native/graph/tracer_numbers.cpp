// What a tracer writes down of numbers: those that follow from sizes and values, decisions on them, and notes.
#include "graph/tracer.h"

namespace ts::graph {

namespace {
const Item& number_of(const Graph& g, const Item& item) { return item.is_value ? g.values[item.id()].number : item; }
} // namespace

Id Tracer::arithmetic(SizeOp op, const Item& a, const Item& b) {
  Node n = blank();
  n.size_op = op;
  std::vector<Item> args = {a};
  if (arity(op) == 2) args.push_back(b);
  n.args = graph_.add_items(args);
  n.n_args = static_cast<uint32_t>(args.size());
  auto at = static_cast<Id>(graph_.nodes.size());
  n.end = at + 1;
  Item number;
  const ValueInfo* tensor = a.tag == Tag::Tensor ? &graph_.values[a.id()] : nullptr;
  if (op == SizeOp::Size) {
    number = Item::integer(graph_.sizes(*tensor)[static_cast<size_t>(b.i)]);
  } else if (op == SizeOp::Stride) {
    number = Item::integer(graph_.strides(*tensor)[static_cast<size_t>(b.i)]);
  } else if (op == SizeOp::Numel) {
    number = Item::integer(1);
    for (int64_t s : graph_.sizes(*tensor)) number.i *= s;
  } else if (op == SizeOp::Read) {
    number = b;
  } else {
    number = compute(op, number_of(graph_, a), arity(op) == 2 ? number_of(graph_, b) : Item());
  }
  Id v = graph_.add_number(number, at);
  seen_.resize(v + 1);
  Item result = Item::value(number.tag, v);
  n.results = graph_.add_items({&result, 1});
  n.n_results = 1;
  if (std::string line = around_.line(); !line.empty()) n.line = graph_.intern(line);
  graph_.nodes.push_back(n);
  return v;
}

Id Tracer::size_of(const Tensor& t, int64_t dim) {
  return arithmetic(SizeOp::Size, Item::value(Tag::Tensor, value_of(t)), Item::integer(dim));
}
Id Tracer::stride_of(const Tensor& t, int64_t dim) {
  return arithmetic(SizeOp::Stride, Item::value(Tag::Tensor, value_of(t)), Item::integer(dim));
}
Id Tracer::numel_of(const Tensor& t) {
  return arithmetic(SizeOp::Numel, Item::value(Tag::Tensor, value_of(t)), Item());
}

Id Tracer::read(const Tensor& t) {
  const bool of_program = known(*t.impl()) != kNone || (t->storage && at_.contains(t->storage));
  if (!of_program || lenient_) {
    host_read(t, "Python number");
    return kNone;
  }
  return arithmetic(SizeOp::Read, Item::value(Tag::Tensor, value_of(t)), read_number(t)); // what it is now
}

void Tracer::guard(SizeOp op, const Item& a, const Item& b, bool answer) {
  Node n = blank();
  n.size_op = op;
  Item args[3] = {a, b, Item::truth(answer)};
  n.args = graph_.add_items(args);
  n.n_args = 3;
  n.end = static_cast<Id>(graph_.nodes.size() + 1);
  if (std::string line = around_.line(); !line.empty()) n.line = graph_.intern(line);
  graph_.nodes.push_back(n);
}

void Tracer::forward_only(std::span<const Tensor> tensors) {
  std::vector<Item> args;
  for (const Tensor& t : tensors) args.push_back(Item::value(Tag::Tensor, value_of(t)));
  Node n = blank();
  n.size_op = SizeOp::Forward;
  n.args = graph_.add_items(args);
  n.n_args = static_cast<uint32_t>(args.size());
  n.end = static_cast<Id>(graph_.nodes.size() + 1);
  if (std::string line = around_.line(); !line.empty()) n.line = graph_.intern(line);
  graph_.nodes.push_back(n);
}

} // namespace ts::graph
