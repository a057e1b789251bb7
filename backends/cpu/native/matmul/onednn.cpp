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

void* CallScratch::at(ScratchSlot slot, size_t bytes) {
  constexpr size_t kLarge = size_t{1} << 18;
  const ts_call* const call = call_.raw();
  if (bytes < kLarge || call->core == nullptr || call->host == nullptr) return scratch(slot, bytes);
  Piece& piece = pieces_[slot];
  if (piece.bytes < bytes) {
    if (call->host->workspace(call, bytes, &piece.data) != TS_OK) throw std::bad_alloc();
    piece.bytes = bytes;
  }
  return piece.data;
}

} // namespace tesserack::cpu::onednn

#else

namespace tesserack::cpu::onednn {

bool is_built_in() { return false; }
bool matmul(const MatmulProblem&, const void*, const void*, const void*, void*) { return false; }
bool convolution(const ConvProblem&, CallScratch&, const void*, const void*, const void*, const void*) { return false; }

} // namespace tesserack::cpu::onednn

#endif
