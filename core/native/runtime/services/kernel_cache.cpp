#include "runtime/services/kernel_cache.h"
#include "runtime/backend.h"
#include "runtime/services/sha256.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ts {
namespace {

std::string_view bytes_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string path_of(const std::string& folder, const std::string& name) { return folder + "/" + name; }

// All of its parts that are not there. Without std::filesystem, which libstdc++ of manylinux_2_28 does not have.
void make_folders(const std::string& folder) {
  for (size_t end = folder.find('/', 1); end != std::string::npos; end = folder.find('/', end + 1))
    mkdir(folder.substr(0, end).c_str(), 0777);
  mkdir(folder.c_str(), 0777);
}

// A status and a message for whatever is thrown.
template <class F> int told(F&& f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return TS_ERROR;
  }
}

} // namespace

std::string kernel_cache_folder() {
  if (const char* chosen = std::getenv("TESSERACK_KERNEL_CACHE")) return chosen;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return concat(cache, "/tesserack/kernels");
  const char* home = std::getenv("HOME");
  return home && *home ? concat(home, "/.cache/tesserack/kernels") : std::string();
}

std::string kernel_cache_name(std::string_view key) { return hexadecimal(sha256(key)).substr(0, 40); }

std::optional<std::string> read_kept_kernel(const std::string& folder, const std::string& name) {
  if (folder.empty()) return {};
  std::FILE* file = std::fopen(path_of(folder, name).c_str(), "rbe");
  if (!file) return {};
  std::string data;
  char part[1 << 16];
  while (size_t n = std::fread(part, 1, sizeof part, file)) data.append(part, n);
  const bool failed = std::ferror(file);
  std::fclose(file);
  if (failed || data.size() < sizeof(Sha256)) return {};
  std::string_view contents = std::string_view(data).substr(sizeof(Sha256));
  if (data.compare(0, sizeof(Sha256), bytes_of(sha256(contents))) != 0) return {};
  return std::string(contents);
}

bool keep_kernel(const std::string& folder, const std::string& name, std::string_view data) {
  if (folder.empty()) return false;
  make_folders(folder);
  std::string draft = path_of(folder, ".draft-XXXXXX");
  int fd = mkostemp(draft.data(), O_CLOEXEC);
  if (fd < 0) return false;
  std::FILE* file = fdopen(fd, "wb");
  if (!file) {
    close(fd);
    std::remove(draft.c_str());
    return false;
  }
  const Sha256 sum = sha256(data);
  bool written = std::fwrite(sum.data(), 1, sum.size(), file) == sum.size() &&
                 std::fwrite(data.data(), 1, data.size(), file) == data.size();
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(draft.c_str(), path_of(folder, name).c_str()) == 0) return true;
  std::remove(draft.c_str());
  return false;
}

int cache_get_hook(const void* key, size_t key_bytes, void* out, size_t* bytes) {
  return told([&]() -> int {
    TS_CHECK_VALUE(key && key_bytes && bytes && (out || *bytes == 0),
                   "cache_get: expected a key, and where the bytes and their number go");
    auto kept = read_kept_kernel(kernel_cache_folder(), kernel_cache_name({static_cast<const char*>(key), key_bytes}));
    if (!kept) return TS_DECLINED;
    if (kept->size() <= *bytes) std::memcpy(out, kept->data(), kept->size());
    *bytes = kept->size();
    return TS_OK;
  });
}

int cache_put_hook(const void* key, size_t key_bytes, const void* data, size_t bytes) {
  return told([&]() -> int {
    TS_CHECK_VALUE(key && key_bytes && data, "cache_put: expected a key, and the bytes to keep");
    std::string name = kernel_cache_name({static_cast<const char*>(key), key_bytes});
    return keep_kernel(kernel_cache_folder(), name, {static_cast<const char*>(data), bytes}) ? TS_OK : TS_DECLINED;
  });
}

} // namespace ts
