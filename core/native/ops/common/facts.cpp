#include "ops/common/facts.h"
#include "dispatch/operator.h"
#include "tensor/error.h"
#include <algorithm>

namespace ts {
namespace {

template <class F> void each_word(std::string_view words, F&& f) {
  while (!words.empty()) {
    size_t end = std::min(words.find(' '), words.size());
    if (end) f(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

bool is_policy(std::string_view name) {
  constexpr std::string_view kPolicies[] = {"-", "lower", "float32", "widest", "first", "exempt"};
  return std::ranges::find(kPolicies, name) != std::end(kPolicies);
}

bool known(std::string_view word) {
  constexpr std::string_view kWords[] = {"elementwise", "zero", "linear",       "stored", "stored:complex32",
                                         "stored:none", "leaf", "leaf:inplace", "cast"};
  constexpr std::string_view kAutocast = "autocast:";
  if (word.starts_with("alias:") || word.starts_with("kernel:")) return true;
  if (!word.starts_with(kAutocast)) return std::ranges::find(kWords, word) != std::end(kWords);
  word.remove_prefix(kAutocast.size());
  size_t slash = word.find('/');
  return is_policy(word.substr(0, slash)) && (slash == word.npos || is_policy(word.substr(slash + 1)));
}

using Facts = std::map<std::string, std::string, std::less<>>;
// As declared; not a static object, since declarations run as the library loads, in any order.
Facts& noted() {
  static auto* facts = new Facts;
  return *facts;
}

void add(Facts& facts, const std::string& op, std::string_view words) {
  each_word(words, [&](std::string_view word) {
    std::string& said = facts[op];
    if (!says(said, word)) said.append(said.empty() ? "" : " ").append(word);
  });
}

} // namespace

void note_facts(const std::string& op, std::string_view words) {
  each_word(words, [&](std::string_view word) {
    TS_CHECK(known(word), "operator: '", op, "' says ", word, ", which is no word of ops/common/facts.h");
  });
  add(noted(), op, words);
}

bool says(std::string_view words, std::string_view word) {
  bool found = false;
  each_word(words, [&](std::string_view w) { found |= w == word; });
  return found;
}

const std::map<std::string, std::string, std::less<>>& facts_by_name() {
  static const Facts all = [] {
    Facts facts = noted();
    for (const Operator* op : all_operators())
      if (op->variant == Variant::Functional && op->kind == OperatorKind::Pointwise)
        add(facts, op->schema->base, "elementwise");
    return facts;
  }();
  return all;
}

} // namespace ts
