#include "onednn.h"

#ifdef TESSERACK_CPU_ONEDNN

#include <cstdlib>
#include <new>

#include "onednn_cache.h"

namespace tesserack::cpu::onednn {

bool is_built_in() { return true; }

// Never destroyed: primitives of other threads may outlive static destructors.
dnnl::engine& engine() {
  static auto* instance = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *instance;
}

dnnl::stream& stream() {
  static auto* instance = new dnnl::stream(engine());
  return *instance;
}

namespace {

struct Free {
  void operator()(void* block) const { std::free(block); }
};
struct ScratchBuffer {
  std::unique_ptr<void, Free> data;
  size_t bytes = 0;
};
ScratchBuffer& scratch_buffer(ScratchSlot slot) {
  thread_local ScratchBuffer buffers[kScratchSlots];
  return buffers[slot];
}

} // namespace

void* scratch(ScratchSlot slot, size_t bytes) {
  ScratchBuffer& buffer = scratch_buffer(slot);
  if (buffer.bytes < bytes) {
    buffer = {};
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    buffer.data.reset(std::aligned_alloc(64, rounded));
    if (!buffer.data) throw std::bad_alloc();
    buffer.bytes = rounded;
  }
  return buffer.data.get();
}

void drop_large_scratch(ScratchSlot slot) {
  constexpr size_t kLarge = size_t{1} << 20;
  if (ScratchBuffer& buffer = scratch_buffer(slot); buffer.bytes >= kLarge) buffer = {};
}

} // namespace tesserack::cpu::onednn

#else

namespace tesserack::cpu::onednn {

bool is_built_in() { return false; }
bool matmul(const MatmulProblem&, const void*, const void*, const void*, void*) { return false; }
bool convolution(const ConvProblem&, const void*, const void*, const void*, const void*) { return false; }

} // namespace tesserack::cpu::onednn

#endif
