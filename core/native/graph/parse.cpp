// Reads what to_text writes. What is read is checked as what a tracer made is.
#include "graph/graph.h"
#include "runtime/backend.h"
#include <charconv>

namespace ts::graph {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':'; }

class Parser {
public:
  Parser(std::string_view text, Graph& g) : text_(text), g_(g) {}

  void run() {
    expect("graph");
    declare(g_.inputs);
    if (accept("captures")) declare(g_.captures);
    expect("{");
    statements(kNone);
    expect("return");
    expect("(");
    while (!accept(")")) {
      g_.outputs.push_back(value_id());
      accept(",");
    }
    expect("}");
    skip_space();
    if (at_ != text_.size()) wrong("the end");
    settle();
  }

private:
  [[noreturn]] void wrong(std::string_view expected) const {
    size_t line = 1, start = 0;
    for (size_t k = 0; k < at_; ++k)
      if (text_[k] == '\n') ++line, start = k + 1;
    std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_).substr(0, 30);
    fail(ErrorKind::Value, "graph: line ", line, ", column ", at_ - start + 1, ": expected ", expected, ", got '", rest,
         "'");
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    if (std::isalnum(static_cast<unsigned char>(token.back())) && at_ + token.size() < text_.size() &&
        is_word(text_[at_ + token.size()]) && text_[at_ + token.size()] != ':')
      return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) wrong(token);
  }
  std::string_view word(std::string_view what) {
    skip_space();
    size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) wrong(what);
    return text_.substr(start, at_ - start);
  }
  std::string quoted() {
    expect("\"");
    std::string out;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        out += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        out += text_[at_];
      }
    }
    expect("\"");
    return out;
  }
  int64_t integer() {
    skip_space();
    int64_t out = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc()) wrong("a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return out;
  }

  Id value_id() {
    expect("%");
    int64_t id = integer();
    // Every value is named in the text: a number beyond its length is none.
    if (id < 0 || id >= static_cast<int64_t>(text_.size())) wrong("the number of a value");
    while (g_.values.size() <= static_cast<size_t>(id)) {
      ValueInfo v;
      v.alias = static_cast<Id>(g_.values.size());
      g_.values.push_back(v);
      typed_.push_back(false);
    }
    return static_cast<Id>(id);
  }

  std::vector<int64_t> dims() {
    std::vector<int64_t> out;
    expect("[");
    while (!accept("]")) {
      out.push_back(integer());
      accept(",");
    }
    if (out.size() > UINT8_MAX) wrong("fewer dims");
    return out;
  }

  void type(Id id) {
    ValueInfo v = g_.values[id];
    typed_[id] = true;
    if (accept("int")) {
      v.tag = Tag::Int;
      v.number = Item::integer(integer());
      g_.values[id] = v;
      return;
    }
    if (accept("float")) {
      v.tag = Tag::Float;
      v.number = Item::real(real());
      g_.values[id] = v;
      return;
    }
    v.dtype = dtype_from_name(word("a dtype"));
    if (v.dtype == DType::Undefined) wrong("a dtype before this");
    std::vector<int64_t> sizes = dims(), strides(sizes.size());
    int64_t dense = 1;
    for (size_t k = sizes.size(); k-- > 0;) {
      strides[k] = dense;
      if (__builtin_mul_overflow(dense, sizes[k], &dense)) wrong("sizes whose product fits in 64 bits, before this");
    }
    if (accept("strides")) strides = dims();
    if (strides.size() != sizes.size()) wrong("as many strides as sizes, before this");
    v.device = parse_device(std::string(word("a device")));
    v.requires_grad = accept("grad");
    if (accept("&")) v.alias = static_cast<Id>(integer());
    skip_space();
    if (text_.substr(at_, 2) == "=%") {
      ++at_;
      v.same_as = value_id();
    }
    v.ndim = static_cast<uint8_t>(sizes.size());
    v.dims = static_cast<uint32_t>(g_.dims.size());
    g_.dims.insert(g_.dims.end(), sizes.begin(), sizes.end());
    g_.dims.insert(g_.dims.end(), strides.begin(), strides.end());
    g_.values[id] = v;
  }

  void declare(std::vector<Id>& list) {
    expect("(");
    while (!accept(")")) {
      Id id = value_id();
      list.push_back(id);
      skip_space();
      if (at_ < text_.size() && text_[at_] == '"') {
        g_.values[id].name = g_.intern(quoted());
      } else if (at_ < text_.size() && text_[at_] != ':' && text_[at_] != ',' && text_[at_] != ')') {
        std::string_view name = word("a name");
        if (name.ends_with(':')) name.remove_suffix(1), --at_;
        g_.values[id].name = g_.intern(name);
      }
      if (accept(":")) type(id);
      bool constant = accept("const");
      if (&list == &g_.captures) g_.constant.push_back(constant);
      accept(",");
    }
  }

  // --- arguments ---
  Item list_of(const ArgType* t) {
    Item out;
    out.tag = !t || t->kind == TypeKind::Tensor ? Tag::Tensors
              : t->kind == TypeKind::Int || t->kind == TypeKind::Bool || t->kind == TypeKind::MemoryFormat
                  ? Tag::Ints
                  : Tag::Floats;
    std::vector<Item> elements;
    while (!accept("]")) {
      elements.push_back(item(t));
      accept(",");
    }
    out.len = static_cast<uint32_t>(elements.size());
    out.at = g_.add_items(elements);
    return out;
  }

  double real() {
    skip_space();
    if (accept("nan") || accept("-nan")) return __builtin_nan("");
    if (accept("inf")) return __builtin_inf();
    if (accept("-inf")) return -__builtin_inf();
    double out = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc()) wrong("a number");
    at_ = static_cast<size_t>(end - text_.data());
    return out;
  }

  Item number() {
    size_t end = at_ + (text_[at_] == '-');
    while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end]))) ++end;
    bool is_real =
        end < text_.size() && (text_[end] == '.' || text_[end] == 'e' || text_[end] == 'i' || text_[end] == 'n');
    if (!is_real) return Item::integer(integer());
    Item out;
    out.tag = Tag::Float;
    out.f = real();
    return out;
  }

  Item complex() {
    std::vector<Item> parts(2);
    for (Item& part : parts) {
      part.tag = Tag::Float;
      part.f = real();
      accept(",");
    }
    expect(")");
    Item out;
    out.tag = Tag::Complex;
    out.len = 2;
    out.at = g_.add_items(parts);
    return out;
  }

  Item named() {
    Item out;
    if (accept("None")) return out;
    if (accept("True")) return Item::truth(true);
    if (accept("False")) return Item::truth(false);
    if (accept("complex(")) return complex();
    if (accept("device(")) {
      out.tag = Tag::Device;
      out.i = parse_device(std::string(word("a device"))).pack();
      expect(")");
      return out;
    }
    if (accept("generator(")) {
      int64_t k = integer();
      expect(")");
      fail(ErrorKind::Value, "graph: generator ", k, " is an object of the process that the text was written in");
    }
    out.tag = Tag::DType;
    DType t = dtype_from_name(word("an argument"));
    if (t == DType::Undefined) wrong("an argument before this");
    out.i = static_cast<int64_t>(t);
    return out;
  }

  Item item(const ArgType* t) {
    skip_space();
    if (at_ >= text_.size()) wrong("an argument");
    char c = text_[at_];
    if (c == '%') {
      Id id = value_id();
      return Item::value(g_.values[id].tag, id);
    }
    if (accept("[")) return list_of(t);
    if (c == '"') {
      Item out;
      out.tag = Tag::Str;
      out.at = g_.intern(quoted());
      return out;
    }
    bool real_word = text_.substr(at_, 3) == "nan" || text_.substr(at_, 3) == "inf";
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) || real_word) {
      if (!real_word) return number();
      Item out;
      out.tag = Tag::Float;
      out.f = real();
      return out;
    }
    return named();
  }

  // --- nodes ---
  Item result() {
    if (accept("None")) return {};
    skip_space();
    if (at_ < text_.size() && text_[at_] != '%') return item(nullptr); // an answer
    Id id = value_id();
    expect(":");
    type(id);
    return Item::value(g_.values[id].tag, id);
  }

  std::vector<Item> results() {
    std::vector<Item> out;
    do {
      if (!accept("[")) {
        out.push_back(result());
        continue;
      }
      std::vector<Item> elements;
      while (!accept("]")) {
        elements.push_back(result());
        accept(",");
      }
      Item list;
      list.tag = Tag::Tensors;
      list.len = static_cast<uint32_t>(elements.size());
      list.at = g_.add_items(elements);
      out.push_back(list);
    } while (accept(","));
    expect("=");
    return out;
  }

  bool defines() const { // before the line's end: " = "
    size_t end = std::min(text_.find('\n', at_), text_.size());
    size_t equals = text_.substr(at_, end - at_).find(" = ");
    size_t call = text_.substr(at_, end - at_).find('(');
    return equals != std::string_view::npos && equals < call;
  }

  void statements(Id parent) {
    while (true) {
      skip_space();
      if (at_ >= text_.size()) wrong(parent == kNone ? "return" : "}");
      if (parent == kNone && text_.substr(at_, 8) == "return (") return;
      if (parent != kNone && accept("}")) return;
      if (++depth_ > 200) wrong("fewer scopes within scopes");
      statement(parent);
      --depth_;
    }
  }

  void statement(Id parent) {
    Node n;
    n.parent = parent;
    std::vector<Item> made, args;
    if (defines()) made = results();
    std::string_view name = word("an operator");
    n.size_op = size_op_named(name);
    if (n.size_op == SizeOp::None) n.op = find_operator(name);
    if (!n.op && n.size_op == SizeOp::None)
      fail(ErrorKind::Value, "graph: there is no operator '", name, "' in this process");
    expect("(");
    while (!accept(")")) {
      const auto* arguments = n.op ? &n.op->schema->args : nullptr;
      const Argument* a = arguments && args.size() < arguments->size() ? &(*arguments)[args.size()] : nullptr;
      if (a && a->keyword_only) {
        expect(a->name);
        expect("=");
      }
      args.push_back(item(a ? &a->type : nullptr));
      accept(",");
    }
    n.no_grad = accept("!no_grad");
    n.backward = accept("!backward");
    if (accept("@")) n.path = g_.intern(quoted());
    bool opens = accept("{");
    n.line = comment();
    n.args = g_.add_items(args);
    n.n_args = static_cast<uint32_t>(args.size());
    n.results = g_.add_items(made);
    n.n_results = static_cast<uint32_t>(made.size());
    auto at = static_cast<Id>(g_.nodes.size());
    g_.nodes.push_back(n);
    if (opens) statements(at);
    g_.nodes[at].end = static_cast<Id>(g_.nodes.size());
  }

  uint32_t comment() {
    size_t k = at_;
    while (k < text_.size() && text_[k] == ' ') ++k;
    if (k >= text_.size() || text_[k] != '#') return kNone;
    size_t start = std::min(k + 2, text_.size()), end = std::min(text_.find('\n', k), text_.size());
    at_ = end;
    return g_.intern(text_.substr(start, end > start ? end - start : 0));
  }

  void settle() {
    for (Id n = static_cast<Id>(g_.nodes.size()); n-- > 0;) // parts stand behind their scopes
      g_.each_def(g_.nodes[n], [&](Id v) {
        if (g_.values[v].producer == kNone) g_.values[v].producer = n;
      });
    for (Id v = 0; v < g_.values.size(); ++v)
      if (g_.values[v].alias >= g_.values.size())
        fail(ErrorKind::Value, "graph: %", v, " shares the memory of a value that is not there");
  }

  std::string_view text_;
  Graph& g_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<bool> typed_;
};

} // namespace

Graph parse_text(std::string_view text, std::vector<Tensor> captured) {
  Graph g;
  Parser(text, g).run();
  g.captured = std::move(captured);
  verify(g);
  return g;
}

} // namespace ts::graph
