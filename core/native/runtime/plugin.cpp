#include "runtime/plugin.h"
#include <dlfcn.h>

namespace ts {
namespace {

// Closes the library unless it was kept: one that does not fit may be replaced by another file of the same name.
class Library {
public:
  explicit Library(const std::string& path) : path_(path) {
    check_library_file(path);
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    const char* why = dlerror();
    fail(ErrorKind::Runtime, "backend: cannot open ", path, ": ", why ? why : "unknown error");
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const ts_backend* table() {
    auto entry = reinterpret_cast<ts_backend_entry>(dlsym(handle_, TS_BACKEND_ENTRY_SYMBOL));
    TS_CHECK(entry, "backend: ", path_, " does not export ", TS_BACKEND_ENTRY_SYMBOL);
    const ts_backend* table = nullptr;
    int status = entry(host_table(), &table);
    if (status != TS_OK) {
      keep(); // its own code gave up, perhaps with threads of a driver running
      fail_status(status, path_, concat("backend: ", path_).c_str());
    }
    return table;
  }
  void keep() { handle_ = nullptr; }

private:
  const std::string& path_;
  void* handle_ = nullptr;
};

} // namespace

Backend& load_plugin(const std::string& path, const std::string& name, const std::string& owner) {
  Library library(path);
  const ts_backend* table = library.table();
  std::string source = owner.empty() ? path : concat(owner, " (", path, ")");
  check_backend_table(table, source);
  TS_CHECK(name.empty() || name == table->name, "backend: ", source, " calls itself '", table->name,
           "', but is announced as '", name, "'; report this to the authors of the package");
  Backend& b = register_backend(table, source);
  library.keep();
  return b;
}

Backend& load_backend(const std::string& path) { return load_plugin(path, "", ""); }

} // namespace ts
