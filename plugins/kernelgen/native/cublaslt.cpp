// The launcher of cuBLASLt's products: descriptors and algorithm were chosen when the plan was made.
#include "launcher.h"
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

namespace ts::kernelgen {
namespace {

// The two functions of cuBLASLt that a call needs, by their signatures in cublasLt.h.
using Matmul = int (*)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                       void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                       const void* algorithm, void* workspace, size_t workspace_bytes, void* stream);
using SetAttribute = int (*)(void* desc, int attribute, const void* value, size_t bytes);
using SetContext = int (*)(void* context);
constexpr int kBiasPointer = 8; // CUBLASLT_MATMUL_DESC_BIAS_POINTER

// What the plan's maker fills in, by the same struct in tesserack_kernelgen/launcher.py.
struct Description {
  Matmul matmul;
  SetAttribute set_attribute;
  SetContext set_context;
  void* context;
  void* handle;
  void* desc;
  void* layouts[4]; // of a, b, c and d
  unsigned char algorithm[64];
  unsigned char alpha[16], beta[16];
  int64_t workspace_bytes;
  int64_t outer;          // how many products one after another,
  int64_t outer_steps[4]; // and the bytes between them
  int32_t has_c, has_bias;
};

struct Product {
  Description d;
  std::mutex mutex; // the descriptor holds one bias
};

// Arguments: memory of d, a, b, then of c, bias and workspace where there are such; at last the offsets of the first.
int launch(const ts_launch* l) {
  auto* p = static_cast<Product*>(l->kernel);
  const Description& d = p->d;
  const int memory = 3 + (d.has_c != 0) + (d.has_bias != 0), all = memory + (d.workspace_bytes > 0) + 1;
  if (l->n_arguments != all) return refused(l, "the launcher of cuBLASLt", all);
  const ts_launch_argument* offsets = TS_LAUNCH_ARGUMENT(l, all - 1);
  if (offsets->size != sizeof(int64_t) * static_cast<size_t>(memory))
    return refused(l, "the launcher of cuBLASLt", static_cast<int>(offsets->size));
  auto handle = [&](int k) {
    void* value;
    std::memcpy(&value, TS_LAUNCH_ARGUMENT(l, k)->value, sizeof value);
    return static_cast<unsigned char*>(value);
  };
  auto at = [&](int k) {
    int64_t offset;
    std::memcpy(&offset, static_cast<const unsigned char*>(offsets->value) + sizeof offset * static_cast<size_t>(k),
                sizeof offset);
    return handle(k) + offset;
  };
  unsigned char *out = at(0), *a = at(1), *b = at(2), *c = d.has_c ? at(3) : out;
  void* bias = d.has_bias ? at(memory - 1) : nullptr;
  void* workspace = d.workspace_bytes > 0 ? handle(memory) : nullptr;
  if (d.context) {
    if (int code = d.set_context(d.context)) return refused(l, "cuCtxSetCurrent", code);
  }
  std::unique_lock<std::mutex> lock(p->mutex, std::defer_lock);
  if (bias) {
    lock.lock();
    if (int code = d.set_attribute(d.desc, kBiasPointer, &bias, sizeof bias))
      return refused(l, "cublasLtMatmulDescSetAttribute", code);
  }
  for (int64_t k = 0; k < d.outer; ++k) {
    auto of = [&](unsigned char* first, int which) { return first + k * d.outer_steps[which]; };
    int code = d.matmul(d.handle, d.desc, d.alpha, of(a, 0), d.layouts[0], of(b, 1), d.layouts[1], d.beta, of(c, 2),
                        d.layouts[2], of(out, 3), d.layouts[3], d.algorithm, workspace,
                        static_cast<size_t>(d.workspace_bytes), l->stream);
    if (code) return refused(l, "cublasLtMatmul", code);
    launches.fetch_add(1, std::memory_order_relaxed);
  }
  return TS_OK;
}

} // namespace
} // namespace ts::kernelgen

// What a plan names as kernel, from a Description of this size; NULL where the two sides disagree about it. Lives until
// the process ends.
TS_EXPORT void* tesserack_cublaslt_product(const void* description, size_t bytes) {
  using namespace ts::kernelgen;
  if (bytes != sizeof(Description)) return nullptr;
  auto made = std::make_unique<Product>();
  std::memcpy(&made->d, description, bytes);
  return made.release();
}

TS_EXPORT int tesserack_cublaslt_launch(const ts_launch* l) { return ts::kernelgen::launch(l); }
