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

struct ScratchBuffers {
  void* data[kScratchSlots] = {};
  size_t bytes[kScratchSlots] = {};
  ~ScratchBuffers() {
    for (void* block : data) std::free(block);
  }
};

} // namespace

void* scratch(ScratchSlot slot, size_t bytes) {
  thread_local ScratchBuffers buffers;
  if (buffers.bytes[slot] < bytes) {
    std::free(buffers.data[slot]);
    buffers.bytes[slot] = 0;
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    buffers.data[slot] = std::aligned_alloc(64, rounded);
    if (!buffers.data[slot]) throw std::bad_alloc();
    buffers.bytes[slot] = rounded;
  }
  return buffers.data[slot];
}

} // namespace tesserack::cpu::onednn

#else

namespace tesserack::cpu::onednn {

bool is_built_in() { return false; }
bool matmul(const MatmulProblem&, const void*, const void*, const void*, void*) { return false; }
bool convolution(const ConvProblem&, const void*, const void*, const void*, const void*) { return false; }

} // namespace tesserack::cpu::onednn

#endif
