// What every graph keeps to, whoever made it. Passes and files are checked by it.
#include "graph/graph.h"
#include <algorithm>

namespace ts::graph {
namespace {

class Check {
public:
  explicit Check(const Graph& g) : g_(g), defined_(g.values.size()) {}

  void run() {
    check_values();
    TS_CHECK(g_.captures.size() == g_.captured.size() && g_.captures.size() == g_.constant.size(),
             "graph: expected a tensor for each of ", g_.captures.size(), " captures, got ", g_.captured.size());
    for (Id v : g_.inputs) define_external(v, "an input");
    for (Id v : g_.captures) define_external(v, "a capture");
    for (Id n = 0; n < g_.nodes.size(); ++n) check_node(n);
    for (Id v : g_.outputs) TS_CHECK(v < defined_.size() && defined_[v], "graph: an output, %", v, ", is not defined");
  }

private:
  void check_values() const {
    for (Id v = 0; v < g_.values.size(); ++v) {
      const ValueInfo& info = g_.values[v];
      TS_CHECK(info.tag == Tag::Tensor || (info.tag == info.number.tag && info.number.is_number()), "graph: %", v,
               " is neither a tensor nor a number");
      TS_CHECK(uint64_t{info.dims} + 2 * info.ndim <= g_.dims.size(), "graph: %", v, " has no sizes");
      TS_CHECK(info.alias < g_.values.size(), "graph: %", v, " shares the memory of no value");
      TS_CHECK(info.name == kNone || info.name < g_.strings.size(), "graph: %", v, " has no such name");
    }
  }

  void define_external(Id v, const char* what) {
    TS_CHECK(v < g_.values.size() && g_.values[v].tag == Tag::Tensor, "graph: ", what, ", %", v, ", is no tensor");
    defined_[v] = true;
  }

  std::string where(Id n) const {
    const Node& node = g_.nodes[n];
    std::string out = concat("graph: node ", n, ", ", node.op ? node.op->name() : std::string(name_of(node.size_op)));
    if (node.line < g_.strings.size()) out += concat(" (", g_.strings[node.line], ")");
    return out;
  }

  void check_range(Id n, uint64_t at, uint64_t count, const char* what) const {
    TS_CHECK(at + count <= g_.items.size(), where(n), ": its ", what, " lie beyond what there is");
  }

  void check_item(Id n, const Item& item, bool use, int depth = 0) {
    if (item.is_value) {
      TS_CHECK(item.at < g_.values.size(), where(n), ": there is no %", item.at);
      TS_CHECK(g_.values[item.id()].tag == item.tag, where(n), ": %", item.at, " is of another type");
      TS_CHECK(!use || defined_[item.id()], where(n), ": %", item.at, " is used before it is defined");
      return;
    }
    TS_CHECK(item.tag != Tag::Tensor, where(n), ": a tensor is written as a constant");
    TS_CHECK(item.tag != Tag::Str || item.at < g_.strings.size(), where(n), ": there is no such text");
    TS_CHECK(item.tag != Tag::Generator || item.at < g_.generators.size(), where(n), ": there is no such generator");
    if (!item.is_list()) return;
    TS_CHECK(depth == 0, where(n), ": a list within a list");
    check_range(n, item.at, item.len, "elements");
    for (const Item& element : g_.elements(item)) check_item(n, element, use, depth + 1);
  }

  bool fits_list(const ArgType& type, const Item& item) const {
    bool tensors = type.kind == TypeKind::Tensor, whole = type.kind == TypeKind::Int || type.kind == TypeKind::Bool;
    if (item.tag != (tensors ? Tag::Tensors : whole ? Tag::Ints : Tag::Floats)) return false;
    return std::ranges::all_of(g_.elements(item), [&](const Item& e) {
      if (tensors) return e.tag == Tag::Tensor || e.tag == Tag::None;
      return whole ? e.tag == Tag::Int : e.is_number();
    });
  }

  bool fits(const ArgType& type, const Item& item) const {
    if (item.tag == Tag::None) return type.optional || type.kind == TypeKind::Tensor;
    if (type.list) return fits_list(type, item);
    bool number = item.tag == Tag::Int || item.tag == Tag::Float || item.tag == Tag::Bool || item.tag == Tag::Complex;
    switch (type.kind) {
    case TypeKind::Tensor: return item.tag == Tag::Tensor;
    case TypeKind::Operand: return item.tag == Tag::Tensor || number;
    case TypeKind::Scalar: return number;
    case TypeKind::Int:
    case TypeKind::MemoryFormat: return item.tag == Tag::Int;
    case TypeKind::Float: return item.tag == Tag::Float || item.tag == Tag::Int;
    case TypeKind::Bool: return item.tag == Tag::Bool || item.tag == Tag::Int;
    case TypeKind::Str: return item.tag == Tag::Str;
    case TypeKind::DType: return item.tag == Tag::DType;
    case TypeKind::Device: return item.tag == Tag::Device;
    case TypeKind::Generator: return item.tag == Tag::Generator;
    }
    return false;
  }

  void check_call(Id n, const Node& node) {
    const Schema& s = *node.op->schema;
    TS_CHECK(node.n_args == s.args.size(), where(n), ": expected ", s.args.size(), " arguments, got ", node.n_args);
    TS_CHECK(node.n_results == s.returns.size(), where(n), ": expected ", s.returns.size(), " results, got ",
             node.n_results);
    for (size_t k = 0; k < s.args.size(); ++k)
      TS_CHECK(fits(s.args[k].type, g_.args(node)[k]), where(n), ": the argument ", s.args[k].name, " is no ",
               s.args[k].type.text());
    for (size_t k = 0; k < s.returns.size(); ++k)
      TS_CHECK(fits(s.returns[k], g_.results(node)[k]), where(n), ": result ", k, " is no ", s.returns[k].text());
  }

  void check_arithmetic(Id n, const Node& node) const {
    if (node.size_op == SizeOp::Forward) {
      for (const Item& item : g_.args(node)) TS_CHECK(item.tag == Tag::Tensor, where(n), ": expected tensors");
      TS_CHECK(node.n_results == 0, where(n), ": it has no results");
      return;
    }
    bool guards = is_guard(node.size_op);
    TS_CHECK(node.size_op != SizeOp::None, where(n), ": neither an operator nor arithmetic");
    TS_CHECK(node.n_args == static_cast<uint32_t>(arity(node.size_op) + guards) && node.n_results == !guards, where(n),
             ": expected other arguments or results");
    const bool reads = node.size_op == SizeOp::Read;
    bool of_tensor =
        reads || node.size_op == SizeOp::Size || node.size_op == SizeOp::Stride || node.size_op == SizeOp::Numel;
    for (uint32_t k = 0; k < node.n_args; ++k) {
      const Item& a = g_.args(node)[k];
      bool fits = of_tensor          ? a.tag == (k == 0 ? Tag::Tensor : Tag::Int)
                  : guards && k == 2 ? a.tag == Tag::Bool
                                     : a.is_number();
      TS_CHECK(fits, where(n), ": argument ", k, " is of the wrong type");
    }
    for (const Item& r : g_.results(node))
      TS_CHECK(r.is_value && (of_tensor && !reads ? r.tag == Tag::Int : r.is_number()), where(n),
               ": its result is no number");
    if (node.size_op == SizeOp::Size || node.size_op == SizeOp::Stride) {
      const Item* a = g_.args(node).data();
      TS_CHECK(!a[1].is_value && a[1].i >= 0 && a[1].i < g_.values[a[0].id()].ndim, where(n), ": there is no dim ",
               a[1].i);
    }
  }

  void check_node(Id n) {
    const Node& node = g_.nodes[n];
    check_range(n, node.args, node.n_args, "arguments");
    check_range(n, node.results, node.n_results, "results");
    TS_CHECK(node.line == kNone || node.line < g_.strings.size(), where(n), ": there is no such line");
    TS_CHECK(node.path == kNone || node.path < g_.strings.size(), where(n), ": there is no such module");
    TS_CHECK(node.end > n && node.end <= g_.nodes.size(), where(n), ": its parts end at ", node.end);
    if (node.parent != kNone)
      TS_CHECK(node.parent < n && node.end <= g_.nodes[node.parent].end, where(n), ": it stands outside of its scope");
    while (!open_.empty() && g_.nodes[open_.back()].end <= n) close();
    TS_CHECK(node.parent == (open_.empty() ? kNone : open_.back()), where(n), ": it stands in another scope");
    for (const Item& item : g_.args(node)) check_item(n, item, true);
    for (const Item& item : g_.results(node)) check_item(n, item, false);
    node.op ? check_call(n, node) : check_arithmetic(n, node);
    if (g_.is_scope(n))
      open_.push_back(n); // its results come from its parts
    else
      define(node);
    while (!open_.empty() && g_.nodes[open_.back()].end <= n + 1) close();
  }

  void define(const Node& node) {
    g_.each_def(node, [&](Id v) { defined_[v] = true; });
  }
  void close() {
    define(g_.nodes[open_.back()]);
    open_.pop_back();
  }

  const Graph& g_;
  std::vector<bool> defined_;
  std::vector<Id> open_;
};

} // namespace

void verify(const Graph& g) { Check(g).run(); }

} // namespace ts::graph
