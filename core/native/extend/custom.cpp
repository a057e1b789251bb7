#include "extend/custom.h"
#include "autograd/gradient.h"
#include "runtime/backend.h"
#include <cctype>

namespace ts {
namespace {

[[noreturn]] void no_gradient(GradContext& c) {
  fail(ErrorKind::Runtime, c.op().name(),
       ": backward through an operator without a gradient; give it one with register_autograd");
}

void check_schema(const Schema& s) {
  TS_CHECK_VALUE(s.base.find("::") != std::string::npos, "custom operator: expected a name like 'mylib::myop', got '",
                 s.base, "'");
  TS_CHECK_VALUE(s.args.size() <= kMaxCustomArgs && s.returns.size() <= Results::kMax, "custom operator: at most ",
                 kMaxCustomArgs, " arguments and ", Results::kMax, " results, got ", s.args.size(), " and ",
                 s.returns.size());
  for (size_t k = 0; k < s.args.size(); ++k)
    TS_CHECK_VALUE(s.find(s.args[k].name) == static_cast<int>(k), s.name, ": two arguments are called ",
                   s.args[k].name);
}

bool is_identifier(const std::string& name) {
  bool valid = !name.empty() && name.size() < 64 && !std::isdigit(static_cast<unsigned char>(name[0]));
  for (char c : name) valid = valid && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
  return valid;
}

// In the order calls consider them.
std::string known_keys() {
  std::string names;
  for (int k = Operator::kKeys - 1; k >= key::kBackendBits; --k) {
    std::string name = key_name(k);
    if (find_key(name) == k) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

int known_key(const std::string& name, const char* what) {
  int key = find_key(name);
  TS_CHECK_VALUE(key >= 0, what, ": no key named '", name, "'; there are ", known_keys());
  return key;
}

} // namespace

const Operator& define_operator(const CustomOperator& custom) {
  auto op = std::make_unique<Operator>();
  op->schema = parse_schema(custom.schema);
  check_schema(*op->schema);
  op->body = custom.body;
  op->extension = custom.extension;
  op->origin = custom.origin;
  op->doc = custom.doc;
  op->kind = custom.composite ? OperatorKind::Composite : OperatorKind::Opaque;
  op->gradient = no_gradient;
  op->is_method = op->is_function = false;
  op->any_device = custom.composite; // its parts check
  return register_operator(std::move(op));
}

bool is_custom(const Operator& op) { return op.extension != nullptr; }

int kernel_key(const std::string& name) {
  int key = find_key(name);
  if (key >= 0) return key;
  if (name == "meta") return kMetaBackend;
  // Devices have names in lower case; asking for one that is not there would say what to install.
  bool device = std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::isupper(c); });
  if (const Backend* b = device ? load_by_name(name) : nullptr) return b->id();
  fail(ErrorKind::Value, "dispatch: no key or backend named '", name, "'; keys are ", known_keys());
}

void install_kernel(const char* op, const std::string& key, Kernel kernel) {
  int k = kernel_key(key);
  bool of_backend = k < key::kBackendBits;
  TS_CHECK_VALUE(!of_backend || op, "dispatch: '", key, "' is a backend, which has no fallback; name an operator");
  TS_CHECK_VALUE(!of_backend || kernel.fn, "dispatch: calls of ", op, " cannot pass by the backend '", key,
                 "'; expected a kernel");
  if (op)
    mutable_operator(get_operator(op)).table.set(k, kernel);
  else
    set_key_default(k, kernel);
}

void add_key(const std::string& name, const std::string& neighbour, bool before) {
  int next_to = known_key(neighbour, "register_key");
  TS_CHECK_VALUE(is_identifier(name), "register_key: expected a name of letters, digits and underscores, got '", name,
                 "'");
  TS_CHECK_VALUE(name != "meta" && !find_backend(name), "register_key: '", name, "' is the name of a device");
  register_key(name, next_to, before);
}

namespace {
bool switch_key(KeySet& keys, const std::string& name, bool on, const char* what) {
  KeySet bit = key_bit(known_key(name, what));
  bool was = keys & bit;
  keys = on ? keys | bit : keys & ~bit;
  return was;
}
} // namespace

bool enable_key(const std::string& name, bool on) { return switch_key(thread_state().include, name, on, "enable_key"); }
bool exclude_key(const std::string& name, bool on) {
  return switch_key(thread_state().exclude, name, on, "exclude_key");
}

} // namespace ts
