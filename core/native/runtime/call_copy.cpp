#include "runtime/call_copy.h"
#include "tensor/dtype.h"
#include <cstring>
#include <new>
#include <string>

namespace ts {
namespace {

constexpr size_t kAlign = alignof(std::max_align_t);

// Lays copies of arrays into one block; with no block yet, only counts what they need.
class Arena {
public:
  explicit Arena(char* block) : block_(block) {}
  size_t used() const { return used_; }
  void* put(const void* data, size_t bytes) {
    if (!data) return nullptr;
    size_t at = used_;
    used_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return block_ ? std::memcpy(block_ + at, data, bytes) : nullptr;
  }
  template <class T> const T* array(const T* data, int64_t n) {
    return static_cast<const T*>(put(data, static_cast<size_t>(n) * sizeof(T)));
  }
  const char* text(const char* s) { return s ? static_cast<const char*>(put(s, std::strlen(s) + 1)) : nullptr; }

  // Tensors of a call may be longer than this core knows; the distance between them stays.
  const ts_tensor* tensors(const ts_tensor* data, int32_t n, size_t distance) {
    if (n == 0) return nullptr;
    char* copy = static_cast<char*>(put(data, static_cast<size_t>(n) * distance));
    for (int32_t k = 0; k < n; ++k) {
      const auto& from =
          *reinterpret_cast<const ts_tensor*>(reinterpret_cast<const char*>(data) + static_cast<size_t>(k) * distance);
      const int64_t* sizes = array(from.sizes, from.sizes ? from.ndim : 0);
      const int64_t* strides = array(from.strides, from.strides ? from.ndim : 0);
      if (!copy) continue;
      auto& to = *reinterpret_cast<ts_tensor*>(copy + static_cast<size_t>(k) * distance);
      to.sizes = sizes;
      to.strides = strides;
    }
    return reinterpret_cast<const ts_tensor*>(copy);
  }

  const ts_value* values(const ts_value* data, int32_t n) {
    if (n == 0) return nullptr;
    auto* copy = static_cast<ts_value*>(put(data, static_cast<size_t>(n) * sizeof(ts_value)));
    for (int32_t k = 0; k < n; ++k) {
      const void* inner = nullptr;
      switch (data[k].tag) {
      case TS_V_STR: inner = text(data[k].as.str); break;
      case TS_V_INTS: inner = array(data[k].as.ints, data[k].len); break;
      case TS_V_FLOATS: inner = array(data[k].as.floats, data[k].len); break;
      case TS_V_COMPLEX: inner = array(data[k].as.floats, 2); break;
      default: continue;
      }
      if (copy) copy[k].as.ptr = inner;
    }
    return copy;
  }

  const ts_program* program(const ts_program* p) {
    if (!p) return nullptr;
    auto* copy = static_cast<ts_program*>(put(p, sizeof *p));
    ts_program parts = *p;
    parts.constants = array(p->constants, p->n_constants);
    parts.instructions = array(p->instructions, p->n_instructions);
    parts.outputs = array(p->outputs, p->n_outputs);
    parts.text = text(p->text);
    parts.integers = array(p->integers, p->n_constants);
    if (copy) *copy = parts;
    return copy;
  }

private:
  char* block_;
  size_t used_ = 0;
};

ts_call* lay(const ts_call& call, Arena& arena) {
  auto* copy = static_cast<ts_call*>(arena.put(&call, sizeof call));
  ts_call parts = call;
  parts.core = nullptr;
  parts.op = arena.text(call.op);
  parts.outputs = arena.tensors(call.outputs, call.n_outputs, call.tensor_size);
  parts.inputs = arena.tensors(call.inputs, call.n_inputs, call.tensor_size);
  parts.params = arena.values(call.params, call.n_params);
  parts.program = arena.program(call.program);
  parts.prologue = arena.program(call.prologue);
  parts.epilogue = arena.program(call.epilogue);
  if (copy) *copy = parts;
  return copy;
}

} // namespace

ts_call* copy_call(const ts_call& call) noexcept {
  Arena counting(nullptr);
  lay(call, counting);
  auto* block = static_cast<char*>(::operator new(counting.used(), std::nothrow));
  if (!block) return nullptr;
  Arena arena(block);
  return lay(call, arena);
}

void free_call(ts_call* copy) noexcept { ::operator delete(copy); }

} // namespace ts
