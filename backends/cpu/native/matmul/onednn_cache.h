// What the oneDNN wrappers share: engine, stream, a per-thread cache of primitives and of scratch memory.
#pragma once

#ifdef TESSERACK_CPU_ONEDNN

#include <cstdint>
#include <cstring>
#include <memory>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <type_traits>

#include "onednn.h"

namespace tesserack::cpu::onednn {

dnnl::engine& engine();
dnnl::stream& stream();

inline dnnl::memory::data_type data_type(Type type) {
  using Of = dnnl::memory::data_type;
  return type == Type::bf16 ? Of::bf16 : type == Type::f16 ? Of::f16 : Of::f32;
}

// Whether to run an implementation: none that is there for reference, and none that stands on the gemm of oneDNN 3.2
// ("x64:gemm:jit"; brgemm is another), whose stack pointer walks into heap memory, where a signal's frame then lands.
inline bool usable(const dnnl::primitive_desc_base& desc) {
  if (!desc) return false;
  const std::string_view name = desc.impl_info_str();
  const size_t gemm = name.find("gemm");
  return !name.starts_with("ref") && (gemm == name.npos || name.substr(0, gemm).ends_with("br"));
}

// At least `bytes`, aligned to 64, kept until the thread ends; slots are independent of each other.
void* scratch(ScratchSlot slot, size_t bytes);

// Makes OpenMP of the calling thread use n threads while oneDNN runs: the setting is per thread.
class ThreadCount {
public:
  explicit ThreadCount(int n) : before_(omp_get_max_threads()), changed_(n != before_) {
    if (changed_) omp_set_num_threads(n);
  }
  ~ThreadCount() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

private:
  int before_;
  bool changed_;
};

// A direct-mapped table from a problem, compared byte by byte, to its plan.
template <class Problem, class Plan, size_t Size> class PlanCache {
  static_assert(std::has_unique_object_representations_v<Problem>, "padding would take part in the comparison");

public:
  Plan& find(const Problem& problem) {
    Entry& entry = entries_[hash(problem) % Size];
    if (!entry.plan || std::memcmp(&entry.problem, &problem, sizeof(Problem)) != 0) {
      entry.plan.reset();
      entry.plan = std::make_unique<Plan>(problem);
      entry.problem = problem;
    }
    return *entry.plan;
  }

private:
  struct Entry {
    Problem problem;
    std::unique_ptr<Plan> plan;
  };
  Entry entries_[Size] = {};

  static uint64_t hash(const Problem& problem) {
    uint64_t words[sizeof(Problem) / 8], h = 0;
    static_assert(sizeof(Problem) % 8 == 0);
    std::memcpy(words, &problem, sizeof(Problem));
    for (uint64_t word : words) h = (h ^ word) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h >> 8;
  }
};

} // namespace tesserack::cpu::onednn

#endif
