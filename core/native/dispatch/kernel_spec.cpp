#include "dispatch/kernel_spec.h"
#include "tensor/words.h"
#include <algorithm>

namespace ts {

std::atomic<bool> kernels_withheld{false};

namespace {

bool kernel_spec_is_number(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

struct KernelSpecParser {
  const Schema& schema;
  KernelSpec& spec;

  int8_t argument(const std::string& name) const {
    int k = schema.find(name);
    TS_CHECK_VALUE(k >= 0, "kernel of ", schema.name, ": there is no argument ", name);
    return static_cast<int8_t>(k);
  }
  [[noreturn]] void refuse(const std::string& word) const {
    fail(ErrorKind::Value, "kernel of ", schema.name, ": '", word, "' is not understood");
  }

  // What follows the names.
  KernelOperand manner(const std::vector<std::string>& words, bool& leads) const {
    KernelOperand o;
    for (size_t k = 0; k < words.size(); ++k) {
      const std::string& word = words[k];
      if (word == "any")
        o.lie = Lie::Any;
      else if (word == "contiguous")
        o.lie = Lie::Contiguous;
      else if (word == "layout")
        o.lie = Lie::Layout;
      else if (word == "leads")
        leads = true;
      else if (word == "only")
        o.only = true;
      else if (word == "empty")
        o.empty = true;
      else if (word == "result")
        o.as = AsDType::Result;
      else if (word == "accumulate")
        o.as = AsDType::Accumulate;
      else if (word == "parameter")
        o.as = AsDType::Parameter;
      else if (word == "if" && k + 1 < words.size())
        o.written_if = argument(words[++k]);
      else if (DType t = dtype_from_name(word); t != DType::Undefined)
        o.as = AsDType::Fixed, o.dtype = t;
      else
        refuse(word);
    }
    return o;
  }

  void operands(std::string_view text) const {
    for (std::string_view group : split(text, ';')) {
      size_t colon = group.find(':');
      if (colon == std::string_view::npos) refuse(std::string(group));
      bool leads = false;
      KernelOperand common = manner(words_of(group.substr(colon + 1)), leads);
      for (const std::string& name : words_of(group.substr(0, colon))) {
        KernelOperand& o = spec.operands.emplace_back(common);
        o.name = name;
        o.arg = argument(name);
        const ArgType& type = schema.args[static_cast<size_t>(o.arg)].type;
        if (type.kind != TypeKind::Tensor) refuse(name);
        o.list = type.list;
        o.written = type.mutated;
        if (leads) spec.leads |= uint64_t{1} << o.arg;
      }
    }
  }

  void parameter(const std::vector<std::string>& words) const {
    KernelParameter& p = spec.parameters.emplace_back();
    p.name = words.at(0);
    if (kernel_spec_is_number(p.name)) {
      p.from = ParameterFrom::Number;
      p.number = std::stoll(p.name);
    } else {
      p.arg = argument(p.name);
    }
    for (size_t k = 1; k < words.size(); ++k) {
      const std::string& word = words[k];
      const bool more = k + 1 < words.size();
      if (word == "changes") {
        p.changes = true;
      } else if (word == "or" && more) {
        p.other = argument(words[++k]);
      } else if (word == "wrapped" && more) {
        p.from = ParameterFrom::Wrapped;
        ++k;
        p.of = words[k] == "result" ? kFirstResult : argument(words[k]);
      } else if (word == "each" && more && kernel_spec_is_number(words[k + 1])) {
        p.from = ParameterFrom::EachOf;
        p.number = std::stoll(words[++k]);
      } else if (word == "each" && more) {
        p.from = ParameterFrom::EachDim;
        p.of = argument(words[++k]);
      } else {
        refuse(word);
      }
    }
  }
};

} // namespace

std::unique_ptr<KernelSpec> parse_kernel_spec(const Schema& schema, const char* kernel, std::string_view operands,
                                              std::string_view parameters) {
  auto spec = std::make_unique<KernelSpec>(kernel);
  KernelSpecParser parser{schema, *spec};
  parser.operands(operands);
  for (std::string_view item : split(parameters, ',')) parser.parameter(words_of(item));
  spec->results = static_cast<int>(std::ranges::count_if(schema.returns, [](const ArgType& r) { return !r.alias; }));
  return spec;
}

bool KernelSpec::plain() const {
  auto reads = [](const KernelOperand& o) { return !o.list && !o.written && o.lie != Lie::Layout; };
  auto as_is = [](const KernelParameter& p) {
    return (p.from == ParameterFrom::Argument && p.other < 0) || p.from == ParameterFrom::Wrapped;
  };
  return results > 0 && work == Work::Largest && !leads && std::ranges::all_of(operands, reads) &&
         std::ranges::all_of(parameters, as_is);
}

std::vector<int> KernelSpec::changing() const {
  int at = static_cast<int>(std::ranges::count_if(operands, &KernelOperand::list));
  std::vector<int> found;
  for (const KernelParameter& p : parameters) {
    if (p.changes) found.push_back(at);
    ++at;
  }
  return found;
}

std::string to_string(const KernelOperand& o, const Schema& schema) {
  static constexpr const char* kLies[] = {"any", "contiguous", "layout"};
  static constexpr const char* kDTypes[] = {"", " result", " accumulate", " parameter", ""};
  std::string text = kLies[static_cast<size_t>(o.lie)];
  text += o.as == AsDType::Fixed ? " " + std::string(name(o.dtype)) : kDTypes[static_cast<size_t>(o.as)];
  if (o.only) text += " only";
  if (o.empty) text += " empty";
  if (o.written) text += " written";
  if (o.written_if >= 0) text += " if " + schema.args[static_cast<size_t>(o.written_if)].name;
  return text;
}

std::string to_string(const KernelParameter& p, const Schema& schema) {
  auto named = [&](int8_t arg) { return schema.args[static_cast<size_t>(arg)].name; };
  std::string text = p.name;
  if (p.other >= 0) text += " or " + named(p.other);
  if (p.from == ParameterFrom::Wrapped) text += " wrapped " + (p.of == kFirstResult ? "result" : named(p.of));
  if (p.from == ParameterFrom::EachDim) text += " each " + named(p.of);
  if (p.from == ParameterFrom::EachOf) text += " each " + std::to_string(p.number);
  if (p.changes) text += " changes";
  return text;
}

} // namespace ts
