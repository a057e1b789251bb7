#include "runtime/plugin.h"
#include "runtime/border.h"
#include <dlfcn.h>

namespace ts {
namespace {

// Closes the library unless it was kept: one that does not fit may be replaced by another file of the same name.
class Library {
public:
  Library(const std::string& path, const char* what) : path_(path), what_(what) {
    check_library_file(path, what);
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    const char* why = dlerror();
    fail(ErrorKind::Runtime, what, ": cannot open ", path, ": ", why ? why : "unknown error");
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // What the entry point gives; `Table` is ts_backend or ts_plugin.
  template <class Table> const Table* table(const char* symbol) {
    auto entry = reinterpret_cast<int (*)(const ts_host*, const Table**)>(dlsym(handle_, symbol));
    TS_CHECK(entry, what_, ": ", path_, " does not export ", symbol);
    check_built_for(reinterpret_cast<void*>(entry));
    const Table* table = nullptr;
    int status = entry(host_table(), &table);
    if (status != TS_OK) {
      keep(); // its own code gave up, perhaps with threads of a driver running
      fail_status(status, path_, concat(what_, ": ", path_).c_str());
    }
    return table;
  }
  void keep() { handle_ = nullptr; }

private:
  // By data, before any of its functions runs: what the two sides hand each other may differ. Headers before 2.0 put
  // none into a library; one that is found in another library, which this one is linked to, tells of that.
  void check_built_for(const void* entry) const {
    const auto* told = static_cast<const int32_t*>(dlsym(handle_, TS_ABI_SYMBOL));
    if (told && !same_file(told, entry)) told = nullptr;
    TS_CHECK(told, what_, ": ", path_, " was built for ABI 1.x, this core speaks ", TS_ABI_MAJOR, ".", TS_ABI_MINOR,
             "; install a matching version of the package (a library for this core exports ", TS_ABI_SYMBOL,
             ", which abi.h defines: its link must not hide it)");
    TS_CHECK(told[0] == TS_ABI_MAJOR, what_, ": ", path_, " was built for ABI ", told[0], ".", told[1],
             ", this core speaks ", TS_ABI_MAJOR, ".", TS_ABI_MINOR, "; install a matching version of the package");
  }
  static bool same_file(const void* a, const void* b) {
    Dl_info of_a{}, of_b{};
    return dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
  }

  const std::string& path_;
  const char* what_;
  void* handle_ = nullptr;
};

void check_plugin_table(const ts_plugin* t, const std::string& path) {
  TS_CHECK(t, "library: ", path, " gave no table");
  check_abi("library: " + path, t->struct_size, offsetof(ts_plugin, name), t->abi_major, t->abi_minor_needed);
  TS_CHECK(t->struct_size >= offsetof(ts_plugin, setup) + sizeof(void*) && t->setup, "library: ", path,
           " gave a table without setup");
  TS_CHECK(t->name && *t->name, "library: ", path, " has no name");
}

thread_local std::string t_in_setup;

class InSetup {
public:
  explicit InSetup(std::string name) : outer_(std::exchange(t_in_setup, std::move(name))) {}
  ~InSetup() { t_in_setup = std::move(outer_); }
  InSetup(const InSetup&) = delete;
  InSetup& operator=(const InSetup&) = delete;

private:
  std::string outer_;
};

} // namespace

void check_abi(const std::string& source, size_t size, size_t least, int major, int minor_needed) {
  TS_CHECK(size >= least, source, " gave a table of ", size, " bytes, too small to say its version");
  // Fields after the version may be anything in another major.
  TS_CHECK(major == TS_ABI_MAJOR, source, " was built for ABI ", major, ".x, this core speaks ", TS_ABI_MAJOR, ".",
           TS_ABI_MINOR, "; install a matching version of the package");
  TS_CHECK(minor_needed <= TS_ABI_MINOR, source, " needs ABI ", major, ".", minor_needed,
           " or later, this core speaks ", TS_ABI_MAJOR, ".", TS_ABI_MINOR, "; upgrade tesserack");
}

Backend& load_plugin(const std::string& path, const std::string& name, const std::string& owner) {
  Library library(path, "backend");
  InSetup registering(owner.empty() ? path : owner); // its entry point may bring operators too
  const auto* table = library.table<ts_backend>(TS_BACKEND_ENTRY_SYMBOL);
  std::string source = owner.empty() ? path : concat(owner, " (", path, ")");
  check_backend_table(table, source);
  TS_CHECK(name.empty() || name == table->name, "backend: ", source, " calls itself '", table->name,
           "', but is announced as '", name, "'; report this to the authors of the package");
  Backend& b = register_backend(table, source);
  library.keep();
  return b;
}

const std::string& library_in_setup() { return t_in_setup; }

void load_library(const std::string& path) {
  Library library(path, "library");
  const auto* table = library.table<ts_plugin>(TS_PLUGIN_ENTRY_SYMBOL);
  check_plugin_table(table, path);
  library.keep(); // what it registers cannot be taken back
  std::string name = table->version && *table->version ? concat(table->name, " ", table->version) : table->name;
  InSetup registering(name);
  Border border;
  border.check(table->setup(table->ctx, host_table()), concat("library: ", name, " (", path, ")"));
}

Backend& load_backend(const std::string& path) { return load_plugin(path, "", ""); }

} // namespace ts
