#include "dispatch/schema.h"
#include "runtime/backend.h"
#include <cctype>
#include <charconv>
#include <mutex>

namespace ts {
namespace {

struct KindName {
  std::string_view name;
  TypeKind kind;
};
constexpr KindName kKinds[] = {{"Tensor", TypeKind::Tensor},
                               {"Operand", TypeKind::Operand},
                               {"Scalar", TypeKind::Scalar},
                               {"int", TypeKind::Int},
                               {"float", TypeKind::Float},
                               {"bool", TypeKind::Bool},
                               {"str", TypeKind::Str},
                               {"ScalarType", TypeKind::DType},
                               {"Device", TypeKind::Device},
                               {"Generator", TypeKind::Generator},
                               {"MemoryFormat", TypeKind::MemoryFormat}};

class SchemaParser {
public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  std::unique_ptr<Schema> parse() {
    auto s = std::make_unique<Schema>();
    schema_ = s.get();
    s->text = std::string(text_);
    s->base = word();
    if (accept(':')) { // a namespace, of operators that are not built in
      expect(':');
      s->base += "::" + word();
    }
    if (accept('.')) s->overload = word();
    s->name = s->overload.empty() ? s->base : s->base + "." + s->overload;
    expect('(');
    arguments();
    expect('-');
    expect('>');
    returns();
    skip();
    if (at_ != text_.size()) error("the end");
    return s;
  }

private:
  [[noreturn]] void error(std::string_view wanted) const {
    fail(ErrorKind::Value, "schema: expected ", wanted, " at '", text_.substr(std::min(at_, text_.size())), "' in '",
         text_, "'");
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) error(std::string("'") + c + "'");
  }
  std::string word() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == start) error("a name");
    return std::string(text_.substr(start, at_ - start));
  }

  ArgType type() {
    ArgType t;
    std::string name = word();
    bool found = false;
    for (const KindName& k : kKinds)
      if (k.name == name) t.kind = k.kind, found = true;
    if (!found) error("a type instead of " + name);
    if (accept('(')) {
      t.alias = word()[0];
      t.mutated = accept('!');
      expect(')');
    }
    bool question = accept('?');
    if (accept('[')) {
      t.list = true;
      t.optional_elements = question;
      question = false;
      if (!accept(']')) {
        t.repeat = std::stoi(word());
        expect(']');
      }
      question = accept('?');
    }
    t.optional = question;
    return t;
  }

  void arguments() {
    bool keyword_only = false;
    if (accept(')')) return;
    do {
      if (accept('*')) {
        keyword_only = true;
        continue;
      }
      Argument a;
      a.type = type();
      a.name = word();
      a.keyword_only = keyword_only;
      if (accept('=')) default_of(a);
      schema_->args.push_back(std::move(a));
    } while (accept(','));
    expect(')');
  }

  void default_of(Argument& a) {
    a.has_default = true;
    skip();
    size_t start = at_;
    int depth = 0;
    char quoted = 0;
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == quoted)
        quoted = 0;
      else if (!quoted && (c == '\'' || c == '"'))
        quoted = c;
      if (!quoted && depth == 0 && (c == ',' || c == ')')) break;
      depth += (c == '[') - (c == ']');
      ++at_;
    }
    a.default_text = std::string(text_.substr(start, at_ - start));
    while (!a.default_text.empty() && a.default_text.back() == ' ') a.default_text.pop_back();
    a.default_value = value_of(a);
  }

  Value value_of(Argument& a) {
    const std::string& t = a.default_text;
    if (t == "None") return {};
    if (t == "True" || t == "False") return Value(t == "True");
    if (a.type.kind == TypeKind::DType) return Value(dtype_from_name(t));
    if (t.empty()) error("a default");
    if (t[0] == '\'' || t[0] == '"') {
      if (t.size() < 2 || t.back() != t[0]) error("a closing quote");
      return Value(interned(t.substr(1, t.size() - 2)));
    }
    if (a.type.kind == TypeKind::Device) return Value(parse_device(t));
    if (t[0] == '[') return list_of(t);
    bool integral = t.find_first_of(".einf") == std::string::npos;
    if (a.type.list) {
      schema_->int_storage.emplace_back(std::max(a.type.repeat, 1), std::stoll(t));
      return Value(IntSpan(schema_->int_storage.back()));
    }
    if (integral && a.type.kind != TypeKind::Float) return Value(static_cast<int64_t>(std::stoll(t)));
    return Value(std::stod(t));
  }

  Value list_of(const std::string& t) {
    std::vector<int64_t> items;
    for (size_t i = 1; i + 1 < t.size();) {
      size_t end = t.find_first_of(",]", i);
      items.push_back(std::stoll(t.substr(i, end - i)));
      i = end + 1;
    }
    schema_->int_storage.push_back(std::move(items));
    return Value(IntSpan(schema_->int_storage.back()));
  }

  static const char* interned(const std::string& s) {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<std::string>> pool;
    std::lock_guard lock(mutex);
    for (auto& p : pool)
      if (*p == s) return p->c_str();
    pool.push_back(std::make_unique<std::string>(s));
    return pool.back()->c_str();
  }

  void returns() {
    if (accept('(')) {
      if (accept(')')) return;
      do one_return();
      while (accept(','));
      expect(')');
      return;
    }
    skip();
    std::string_view rest = text_.substr(at_);
    if (rest == "None" || rest == "NoneType") // as "()"
      at_ = text_.size();
    else
      one_return();
  }

  void one_return() {
    schema_->returns.push_back(type());
    skip();
    bool named = at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_');
    schema_->return_names.push_back(named ? word() : std::string());
  }

  std::string_view text_;
  size_t at_ = 0;
  Schema* schema_ = nullptr;
};

} // namespace

std::string ArgType::text() const {
  std::string out;
  for (const KindName& k : kKinds)
    if (k.kind == kind) out = k.name;
  if (alias) out += std::string("(") + alias + (mutated ? "!" : "") + ")";
  if (list) out += std::string(optional_elements ? "?" : "") + "[" + (repeat ? std::to_string(repeat) : "") + "]";
  return optional ? out + "?" : out;
}

int Schema::find(std::string_view arg) const {
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == arg) return static_cast<int>(i);
  return -1;
}

bool Schema::mutates() const {
  return std::any_of(args.begin(), args.end(), [](const Argument& a) { return a.type.mutated; });
}

std::unique_ptr<Schema> parse_schema(std::string_view text) {
  try {
    return SchemaParser(text).parse();
  } catch (const std::logic_error&) { // of std::stoi and its like
    fail(ErrorKind::Value, "schema: expected numbers that fit where numbers stand in '", text, "'");
  }
}

std::string to_string(const Schema& s) {
  std::string out = s.name + "(";
  bool keyword = false, first = true;
  for (const Argument& a : s.args) {
    if (!first) out += ", ";
    first = false;
    if (a.keyword_only && !keyword) out += "*, ", keyword = true;
    out += a.type.text() + " " + a.name;
    if (a.has_default) out += "=" + a.default_text;
  }
  out += ") -> ";
  if (s.returns.size() != 1) out += "(";
  for (size_t i = 0; i < s.returns.size(); ++i) {
    out += (i ? ", " : "") + s.returns[i].text();
    if (!s.return_names[i].empty()) out += " " + s.return_names[i];
  }
  return s.returns.size() != 1 ? out + ")" : out;
}

} // namespace ts
