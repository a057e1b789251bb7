// A graph as text, one line for each node, which parse_text reads back:
//
//   graph(%0 x: float32[2, 3] cpu) captures(%1 weight: float32[4, 3] cpu grad) {
//     %2: float32[2, 4] cpu = linear(%0, %1, None)  # model.py:12
//     return (%2)
//   }
//
// A tensor that is not contiguous shows its strides, one that shares another's memory the first that has it: &1. The
// parts of a composite operator stand in braces behind it.
#include "graph/graph.h"
#include "runtime/backend.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace ts::graph {
namespace {

std::string number_text(double d) {
  if (std::isnan(d)) return std::signbit(d) ? "-nan" : "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, d).ptr;
  std::string out(buffer, end);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

// Names of modules may hold what words do not: blanks, hyphens.
std::string as_word(std::string_view s) {
  bool plain =
      !s.empty() && std::ranges::all_of(s, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
  return plain ? std::string(s) : quoted(s);
}

class Printer {
public:
  explicit Printer(const Graph& g) : g_(g) {}

  std::string run() {
    out_ = "graph(";
    declare(g_.inputs, false);
    out_ += ')';
    if (!g_.captures.empty()) {
      out_ += " captures(";
      declare(g_.captures, true);
      out_ += ')';
    }
    out_ += " {\n";
    for (Id n = 0; n < g_.nodes.size();) n = node(n, 1);
    out_ += "  return (";
    for (size_t k = 0; k < g_.outputs.size(); ++k) out_ += concat(k ? ", %" : "%", g_.outputs[k]);
    out_ += ")\n}\n";
    return std::move(out_);
  }

private:
  void declare(const std::vector<Id>& list, bool captures) {
    std::vector<bool> shown(g_.values.size());
    for (size_t k = 0; k < list.size(); ++k) {
      if (k) out_ += ", ";
      out_ += concat('%', list[k]);
      if (shown[list[k]]) continue; // the same tensor given twice
      shown[list[k]] = true;
      if (uint32_t name = g_.values[list[k]].name; name != kNone) out_ += ' ' + as_word(g_.strings[name]);
      out_ += ": " + type(list[k]);
      if (captures && g_.constant[k]) out_ += " const";
    }
  }

  std::string type(Id id) const {
    const ValueInfo& v = g_.values[id];
    if (v.tag == Tag::Int) return concat("int ", v.number.i);
    if (v.tag == Tag::Float) return "float " + number_text(v.number.f);
    std::string out = concat(name(v.dtype), g_.sizes(v));
    int64_t dense = 1;
    bool contiguous = true;
    IntSpan sizes = g_.sizes(v), strides = g_.strides(v);
    for (size_t k = v.ndim; k-- > 0; dense *= sizes[k]) contiguous = contiguous && strides[k] == dense;
    if (!contiguous) out += concat(" strides", strides);
    out += concat(' ', to_string(v.device));
    if (v.requires_grad) out += " grad";
    if (v.alias != id) out += concat(" &", v.alias);
    return out;
  }

  std::string item(const Item& i, const ArgType* t) const {
    if (i.is_value) return concat('%', i.at);
    switch (i.tag) {
    case Tag::None: return "None";
    case Tag::Int: return concat(i.i);
    case Tag::Bool: return i.i ? "True" : "False";
    case Tag::Float: return number_text(i.f);
    case Tag::Str: return quoted(g_.strings[i.at]);
    case Tag::DType: return std::string(name(static_cast<DType>(i.i)));
    case Tag::Device: return "device(" + to_string(Device::unpack(i.i)) + ')';
    case Tag::Generator: return concat("generator(", i.at, ')');
    case Tag::Complex:
      return "complex(" + number_text(g_.items[i.at].f) + ", " + number_text(g_.items[i.at + 1].f) + ')';
    default: break;
    }
    std::string out = "[";
    for (uint32_t k = 0; k < i.len; ++k) out += (k ? ", " : "") + item(g_.items[i.at + k], t);
    return out + ']';
  }

  std::string definitions(const Node& n) const {
    std::string out;
    for (uint32_t k = 0; k < n.n_results; ++k) {
      const Item& r = g_.results(n)[k];
      if (k) out += ", ";
      if (!r.is_value && r.tag != Tag::Tensors) {
        out += item(r, nullptr);
        continue;
      }
      if (r.tag == Tag::Tensors) out += '[';
      uint32_t j = 0;
      auto one = [&](const Item& e) {
        if (j++) out += ", ";
        out += e.is_value ? concat('%', e.at, ": ") + type(e.id()) : std::string("None");
        if (e.is_value && g_.values[e.id()].same_as != kNone) out += concat(" =%", g_.values[e.id()].same_as);
      };
      if (r.tag == Tag::Tensors) {
        for (const Item& e : g_.elements(r)) one(e);
        out += ']';
      } else {
        one(r);
      }
    }
    return out.empty() ? out : out + " = ";
  }

  Id node(Id at, int depth) {
    const Node& n = g_.nodes[at];
    std::string indent(static_cast<size_t>(2 * depth), ' ');
    out_ += indent + definitions(n) + (n.op ? n.op->name() : std::string(name_of(n.size_op))) + '(';
    for (uint32_t k = 0; k < n.n_args; ++k) {
      const Argument* a = n.op && k < n.op->schema->args.size() ? &n.op->schema->args[k] : nullptr;
      if (k) out_ += ", ";
      if (a && a->keyword_only) out_ += a->name + '=';
      out_ += item(g_.args(n)[k], a ? &a->type : nullptr);
    }
    out_ += ')';
    if (n.no_grad) out_ += " !no_grad";
    if (n.backward) out_ += " !backward";
    if (n.path != kNone) out_ += " @" + quoted(g_.strings[n.path]);
    if (g_.is_scope(at)) out_ += " {";
    if (n.line != kNone) out_ += "  # " + g_.strings[n.line];
    out_ += '\n';
    Id next = at + 1;
    if (!g_.is_scope(at)) return next;
    while (next < n.end) next = node(next, depth + 1);
    out_ += indent + "}\n";
    return next;
  }

  const Graph& g_;
  std::string out_;
};

} // namespace

std::string to_text(const Graph& g) { return Printer(g).run(); }

} // namespace ts::graph
