#include "dispatch/kernel_signatures.h"
#include "tensor/words.h"
#include <map>

namespace ts {
namespace {

// As in declarations: a word after the name says that it changes.
struct Called {
  const char *kernel, *parameters;
};
constexpr Called kCalled[] = {
    // entry points, see abi.h
    {"copy_cast", ""},
    {"fill", "value changes"},
    {"iota", "start changes, step changes"},
    {"pointwise", ""},
    {"reduce", "reduced_dims"},
    {"scan", ""},
    {"matmul", ""},
    {"gather", "dim"},
    {"scatter", "dim"},
    {"sort", "descending"},
    {"random_bits", "seed changes, offset changes"},
    // of computations
    {"rand_fill", "seed changes, offset changes"},
    {"randn_fill", "seed changes, offset changes"},
    {"randint_fill", "seed changes, offset changes, span, low"},
    {"native_dropout", "p, seed changes, offset changes"},
};

std::map<std::string, KernelSignature>& signatures() {
  static auto* all = [] {
    auto* made = new std::map<std::string, KernelSignature>;
    for (const Called& c : kCalled) {
      KernelSignature& s = (*made)[c.kernel];
      for (std::string_view item : split(c.parameters, ',')) {
        const std::vector<std::string> words = words_of(item); // the name, and perhaps "changes"
        const int at = static_cast<int>(s.parameters.size());
        if (words.size() > 1) s.changing.push_back(at);
        if (words[0] == "seed") s.seed = at;
        s.parameters.push_back(words[0]);
      }
    }
    return made;
  }();
  return *all;
}

} // namespace

const KernelSignature* kernel_signature(const std::string& name) {
  auto found = signatures().find(name);
  return found == signatures().end() ? nullptr : &found->second;
}

void note_kernel(const KernelSpec& spec) {
  KernelSignature s;
  for (const KernelOperand& o : spec.operands)
    if (o.list) s.parameters.push_back(o.name);
  for (const KernelParameter& p : spec.parameters) s.parameters.push_back(p.name);
  s.changing = spec.changing();
  signatures()[spec.id.name()] = std::move(s);
}

} // namespace ts
