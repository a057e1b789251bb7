#include "ops/pointwise/expr.h"
#include "ops/pointwise/functions.h"
#include "tensor/error.h"
#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <locale>
#include <map>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace ts::pointwise {
namespace {

struct Info {
  uint16_t op;
  std::string_view name;
  int arity;
};
#define TS_INFO(code, name, operands) {TS_I_##code, #name, operands},
constexpr Info kInstructions[] = {TS_EACH_INSTRUCTION(TS_INFO)};
#undef TS_INFO
static_assert(std::size(kInstructions) == TS_NUM_INSTRUCTIONS);
static_assert(std::ranges::all_of(kInstructions, [](const Info& i) { return &i == kInstructions + i.op; }),
              "TS_EACH_INSTRUCTION is not in the order of the codes");

bool is_constant(const Expr& e) { return e && e->kind == ExprNode::Constant; }
bool is_constant(const Expr& e, double v) { return is_constant(e) && e->value == v; }

Expr make(uint16_t op, Expr a, Expr b, Expr c) {
  auto n = std::make_shared<ExprNode>();
  n->kind = ExprNode::Instruction;
  n->op = op;
  n->a = std::move(a);
  n->b = std::move(b);
  n->c = std::move(c);
  return n;
}

// Whether a double holds the constant as well as its integer does.
bool is_double(const Expr& e) { return e->integer == constant(e->value)->integer; }

Expr fold(uint16_t op, const Expr& a, const Expr& b) {
  if (!is_double(a) || !is_double(b)) return nullptr;
  double x = a->value, y = b->value;
  auto rounded = [](double v) { return std::fabs(v) > 0x1p53; }; // perhaps; of integers
  switch (op) {
  case TS_I_ADD: return rounded(x + y) ? nullptr : constant(x + y);
  case TS_I_SUB: return rounded(x - y) ? nullptr : constant(x - y);
  case TS_I_MUL: return rounded(x * y) ? nullptr : constant(x * y);
  case TS_I_POW: return constant(std::pow(x, y));
  default: return nullptr; // division is left to the compute dtype: integers truncate
  }
}

Expr simplify(uint16_t op, const Expr& a, const Expr& b) {
  if (is_constant(a) && is_constant(b))
    if (Expr folded = fold(op, a, b)) return folded;
  switch (op) {
  case TS_I_ADD:
    if (is_constant(a, 0)) return b;
    if (is_constant(b, 0)) return a;
    break;
  case TS_I_SUB:
    if (is_constant(b, 0)) return a;
    if (is_constant(a, 0)) return instruction(TS_I_NEG, b);
    break;
  case TS_I_MUL:
    if (is_constant(a, 0) || is_constant(b, 0)) return constant(0);
    if (is_constant(a, 1)) return b;
    if (is_constant(b, 1)) return a;
    if (is_constant(a, -1)) return instruction(TS_I_NEG, b);
    if (is_constant(b, -1)) return instruction(TS_I_NEG, a);
    break;
  case TS_I_DIV:
    if (is_constant(b, 1)) return a;
    if (is_constant(a, 0)) return a;
    break;
  case TS_I_POW:
    if (is_constant(b, 1)) return a;
    break;
  case TS_I_NEG:
    if (is_constant(a) && is_double(a)) return constant(-a->value);
    if (a->kind == ExprNode::Instruction && a->op == TS_I_NEG) return a->a;
    break;
  default: break;
  }
  return nullptr;
}

class Parser {
public:
  Parser(std::string_view text, std::span<const std::string> variables) : text_(text), variables_(variables) {}
  Expr parse() {
    Expr e = comparison();
    skip();
    if (at_ != text_.size()) error("an operator");
    return e;
  }

private:
  [[noreturn]] void error(std::string_view wanted) const {
    fail(ErrorKind::Value, "expression: expected ", wanted, " at '", text_.substr(at_), "' in '", text_, "'");
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  Expr comparison() {
    Expr left = sum();
    constexpr std::pair<std::string_view, uint16_t> kOps[] = {{"==", TS_I_EQ}, {"!=", TS_I_NE}, {"<=", TS_I_LE},
                                                              {">=", TS_I_GE}, {"<", TS_I_LT},  {">", TS_I_GT}};
    for (auto [token, op] : kOps)
      if (accept(token)) return instruction(op, left, sum());
    return left;
  }
  Expr sum() {
    Expr left = product();
    for (;;) {
      if (accept("+"))
        left = instruction(TS_I_ADD, left, product());
      else if (accept("-"))
        left = instruction(TS_I_SUB, left, product());
      else
        return left;
    }
  }
  Expr product() {
    Expr left = unary();
    for (;;) {
      if (accept("*"))
        left = instruction(TS_I_MUL, left, unary());
      else if (accept("/"))
        left = instruction(TS_I_DIV, left, unary());
      else
        return left;
    }
  }
  Expr unary() { return accept("-") ? instruction(TS_I_NEG, unary()) : primary(); }
  Expr primary() {
    skip();
    if (accept("(")) {
      Expr e = comparison();
      if (!accept(")")) error("')'");
      return e;
    }
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.'))
      return number();
    return name();
  }
  Expr number() {
    std::string rest(text_.substr(at_));
    size_t used = 0;
    double v = std::stod(rest, &used);
    at_ += used;
    std::string_view digits = std::string_view(rest).substr(0, used);
    int64_t whole = 0;
    auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (status == std::errc() && end == digits.data() + digits.size()) return constant(whole);
    return constant(v);
  }
  Expr name() {
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) error("a value");
    if (accept("(")) return application(word);
    for (size_t i = 0; i < variables_.size(); ++i)
      if (variables_[i] == word) return variable(static_cast<int>(i));
    if (word == "inf") return constant(INFINITY);
    at_ = start;
    error("a known name");
  }
  Expr application(std::string_view function) {
    int op = find_instruction(function);
    const NamedFunction* named = op < 0 ? find_function(function) : nullptr;
    if (op < 0 && !named) error(concat("a known function instead of ", function));
    std::vector<Expr> args;
    do args.push_back(comparison());
    while (accept(","));
    if (!accept(")")) error("')'");
    int arity = named ? named->arity : instruction_arity(static_cast<uint16_t>(op));
    if (static_cast<int>(args.size()) != arity) error(concat(arity, " arguments to ", function));
    if (named) return named->build(args);
    args.resize(3);
    return instruction(static_cast<uint16_t>(op), args[0], args[1], args[2]);
  }

  std::string_view text_;
  std::span<const std::string> variables_;
  size_t at_ = 0;
};

using Memo = std::unordered_map<const ExprNode*, Expr>;

template <class F> Expr rewrite(const Expr& e, F&& by, Memo& memo) {
  if (!e || e->kind == ExprNode::Constant) return e;
  if (e->kind == ExprNode::Variable) return by(e);
  auto it = memo.find(e.get());
  if (it != memo.end()) return it->second;
  return memo[e.get()] = instruction(e->op, rewrite(e->a, by, memo), rewrite(e->b, by, memo), rewrite(e->c, by, memo));
}

// Every node is looked up by what it is and by its parts, shared already.
class Sharer {
public:
  Expr run(const Expr& e) {
    if (!e) return e;
    if (auto known = memo_.find(e.get()); known != memo_.end()) return known->second;
    Expr a = run(e->a), b = run(e->b), c = run(e->c);
    Key key{e->kind, e->op, e->variable, std::bit_cast<uint64_t>(e->value), e->integer, a.get(), b.get(), c.get()};
    auto [it, fresh] = nodes_.try_emplace(key, e);
    if (fresh && (a != e->a || b != e->b || c != e->c)) it->second = make(e->op, a, b, c);
    return memo_[e.get()] = it->second;
  }

private:
  using Key = std::tuple<int, uint16_t, int, uint64_t, int64_t, const ExprNode*, const ExprNode*, const ExprNode*>;
  Memo memo_;
  std::map<Key, Expr> nodes_;
};

// Nodes of the expression written out as a tree, up to a limit.
class TreeSize {
public:
  static constexpr int64_t kLimit = 1000;
  int64_t of(const Expr& e) {
    if (!e) return 0;
    if (auto known = memo_.find(e.get()); known != memo_.end()) return known->second;
    int64_t size = std::min(kLimit, 1 + of(e->a) + of(e->b) + of(e->c));
    return memo_[e.get()] = size;
  }

private:
  std::unordered_map<const ExprNode*, int64_t> memo_;
};

class Writer {
public:
  Writer(std::span<const std::string> variables, bool names_parts) : variables_(variables), names_parts_(names_parts) {}
  std::string run(const Expr& e) {
    if (e->kind == ExprNode::Variable) return variables_[static_cast<size_t>(e->variable)];
    if (e->kind == ExprNode::Constant) {
      if (!is_double(e)) return std::to_string(e->integer);
      std::ostringstream out; // no locale of the program's, as printf; and to_chars of doubles is too new for wheels
      out.imbue(std::locale::classic());
      out.precision(17);
      out << e->value;
      return out.str();
    }
    if (auto known = names_.find(e.get()); known != names_.end()) return known->second;
    std::string text = std::string(instruction_name(e->op)) + "(" + run(e->a);
    if (e->b) text += ", " + run(e->b);
    if (e->c) text += ", " + run(e->c);
    text += ")";
    if (!names_parts_) return text;
    std::string name = "t" + std::to_string(names_.size());
    parts += name + " = " + text + "; ";
    return names_[e.get()] = name;
  }
  std::string parts;

private:
  std::span<const std::string> variables_;
  bool names_parts_;
  std::unordered_map<const ExprNode*, std::string> names_;
};

class Search {
public:
  explicit Search(int variable) : variable_(variable) {}
  bool run(const Expr& e) {
    if (!e || e->kind == ExprNode::Constant) return false;
    if (e->kind == ExprNode::Variable) return e->variable == variable_;
    return seen_.insert(e.get()).second && (run(e->a) || run(e->b) || run(e->c));
  }

private:
  int variable_;
  std::unordered_set<const ExprNode*> seen_;
};

} // namespace

Expr variable(int index) {
  auto n = std::make_shared<ExprNode>();
  n->kind = ExprNode::Variable;
  n->variable = index;
  return n;
}

Expr constant(double value) {
  auto n = std::make_shared<ExprNode>();
  n->kind = ExprNode::Constant;
  n->value = value;
  // As registers are converted: cut, and uint64 by its bits.
  if (value >= -0x1p63 && value < 0x1p63) n->integer = static_cast<int64_t>(value);
  if (value >= 0x1p63 && value < 0x1p64) n->integer = static_cast<int64_t>(static_cast<uint64_t>(value));
  return n;
}

Expr constant(int64_t value) {
  auto n = std::make_shared<ExprNode>();
  n->kind = ExprNode::Constant;
  n->value = static_cast<double>(value);
  n->integer = value;
  return n;
}

Expr exactly(uint16_t op, Expr a, Expr b, Expr c) { return make(op, std::move(a), std::move(b), std::move(c)); }

Expr instruction(uint16_t op, Expr a, Expr b, Expr c) {
  if (op == TS_I_SELECT && is_constant(a)) return a->value != 0 ? b : c;
  // Of a factor of one nothing is left but the sum.
  if (op == TS_I_FMA && is_constant(a, 1)) return instruction(TS_I_ADD, std::move(c), std::move(b));
  if (op == TS_I_FMA && is_constant(a, -1)) return instruction(TS_I_SUB, std::move(c), std::move(b));
  if (Expr simple = c ? nullptr : simplify(op, a, b)) return simple;
  return make(op, std::move(a), std::move(b), std::move(c));
}

int instruction_arity(uint16_t op) { return kInstructions[op].arity; }
std::string_view instruction_name(uint16_t op) { return kInstructions[op].name; }

int find_instruction(std::string_view name) {
  for (int i = 0; i < TS_NUM_INSTRUCTIONS; ++i)
    if (kInstructions[i].name == name) return i;
  return -1;
}

Expr parse(std::string_view text, std::span<const std::string> variables) { return Parser(text, variables).parse(); }

Expr substitute(const Expr& e, int index, const Expr& by) {
  Memo memo;
  return rewrite(
      e, [&](const Expr& v) { return v->variable == index ? by : v; }, memo);
}

Expr renumber(const Expr& e, std::span<const int> to) {
  Memo memo;
  return rewrite(
      e, [&](const Expr& v) { return variable(to[static_cast<size_t>(v->variable)]); }, memo);
}

Expr share_parts(const Expr& e) { return Sharer().run(e); }

bool uses(const Expr& e, int index) { return Search(index).run(e); }

std::string to_string(const Expr& e, std::span<const std::string> variables) {
  Writer writer(variables, TreeSize().of(e) == TreeSize::kLimit);
  std::string whole = writer.run(e);
  return writer.parts + whole;
}

} // namespace ts::pointwise
