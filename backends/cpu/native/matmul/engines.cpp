#include "engines.h"
#include "processor.h"
#include "threads.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace tesserack::cpu {
namespace {

// Sizes that behave alike: [16, 64), [64, 256), [256, 1024) and above.
constexpr int64_t kSizeFrom = 16;
constexpr int kSizes = 4, kLayouts = 4, kThreads = 2;

int size_class(int64_t size) { return size < 64 ? 0 : size < 256 ? 1 : size < 1024 ? 2 : 3; }

// Of operands: t means that columns are contiguous.
int layout_class(const Gemm& g) { return (g.a.col_stride == 1 ? 0 : 2) + (g.b.col_stride == 1 ? 0 : 1); }

constexpr std::array<const char*, 3> kEngineNames = {"own", "onednn", "openblas"};
constexpr std::array<const char*, kLayouts> kLayoutNames = {"nn", "nt", "tn", "tt"};

// The position of a name in a list, or -1.
template <size_t N> int find_name(const std::array<const char*, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<int>(i);
  return -1;
}

const ts_host* host = nullptr;

// What is kept under a key, or nothing.
std::string kept_text(const std::string& key) {
  if (host == nullptr || host->struct_size < offsetof(ts_host, cache_put) || host->cache_get == nullptr) return {};
  std::string text(size_t{1} << 14, '\0');
  size_t bytes = text.size();
  if (host->cache_get(key.data(), key.size(), text.data(), &bytes) != TS_OK || bytes > text.size()) return {};
  text.resize(bytes);
  return text;
}

class Engines {
public:
  Engines() {
    table_.fill(Engine::own);
    const char* const wanted = std::getenv("TESSERACK_CPU_PRODUCTS");
    if (wanted != nullptr && *wanted != '\0') {
      // Any other word: as if nothing had been measured.
      if (const int engine = find_name(kEngineNames, wanted); engine >= 0) table_.fill(static_cast<Engine>(engine));
      return;
    }
    read(kept_text(std::string("cpu products 1") + '\0' + processor_name()));
  }

  Engine of(const Gemm& g) const { return table_[index(layout_class(g), g.m, g.n, g.k, max_threads() > 1)]; }

private:
  std::array<Engine, kLayouts * kSizes * kSizes * kSizes * kThreads> table_;

  static size_t index(int layout, int64_t m, int64_t n, int64_t k, bool threads) {
    size_t at = static_cast<size_t>(layout);
    for (const int64_t size : {m, n, k}) at = at * kSizes + static_cast<size_t>(size_class(size));
    return at * kThreads + threads;
  }

  // Lines as "float32 nt 512 64 1536 2 openblas": a class is named by any sizes in it. Others are passed over.
  void read(const std::string& text) {
    for (const char* line = text.c_str(); *line != '\0';) {
      char layout[4], engine[12];
      long long m, n, k;
      int threads;
      if (std::sscanf(line, "float32 %3s %lld %lld %lld %d %11s", layout, &m, &n, &k, &threads, engine) == 6) {
        const int by = find_name(kEngineNames, engine), lies = find_name(kLayoutNames, layout);
        if (by >= 0 && lies >= 0) table_[index(lies, m, n, k, threads > 1)] = static_cast<Engine>(by);
      }
      line += std::strcspn(line, "\n");
      if (*line == '\n') ++line;
    }
  }
};

} // namespace

void keep_engines_at(const ts_host* kept_by) { host = kept_by; }

Engine engine_for(const Gemm& g) {
  if (g.m < kSizeFrom || g.n < kSizeFrom || g.k < kSizeFrom) return Engine::own;
  static const Engines engines;
  return engines.of(g);
}

} // namespace tesserack::cpu
