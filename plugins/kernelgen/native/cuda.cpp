// The launcher of CUDA kernels.
#include "launcher.h"
#include <array>
#include <memory>

namespace ts::kernelgen {
namespace {

// cuLaunchKernel, by its signature in cuda.h.
using LaunchKernel = int (*)(void* function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
                             uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, void* stream, void** arguments,
                             void** extra);
using SetContext = int (*)(void* context);
constexpr int kMaxArguments = 256;

struct Kernel {
  LaunchKernel launch;
  SetContext set_context;
  void* function;
  void* context; // of the function's device; threads of the core may have another, or none
};

// What CUDA says again of every call until the process ends: an illegal address, a failed launch, hardware errors.
bool is_lost(int code) {
  return code == 46 || code == 700 || code == 709 || code == 710 || (code >= 714 && code <= 719);
}

int launch(const ts_launch* l) {
  auto* k = static_cast<const Kernel*>(l->kernel);
  if (l->n_arguments > kMaxArguments) return refused(l, "the launcher", kMaxArguments);
  std::array<void*, kMaxArguments> arguments;
  for (int32_t i = 0; i < l->n_arguments; ++i)
    arguments[static_cast<size_t>(i)] = const_cast<void*>(TS_LAUNCH_ARGUMENT(l, i)->value);
  if (k->context) {
    if (int code = k->set_context(k->context)) return refused(l, "cuCtxSetCurrent", code);
  }
  auto grid = [&](int axis) { return static_cast<uint32_t>(l->groups[axis]); };
  int code = k->launch(k->function, grid(0), grid(1), grid(2), l->group_size[0], l->group_size[1], l->group_size[2],
                       l->shared_bytes, l->stream, arguments.data(), nullptr);
  if (code) return refused(l, "cuLaunchKernel", code, is_lost(code));
  launches.fetch_add(1, std::memory_order_relaxed);
  return TS_OK;
}

} // namespace
} // namespace ts::kernelgen

// What a plan names as kernel: a CUfunction, its CUcontext, and the addresses of cuLaunchKernel and cuCtxSetCurrent.
// Lives until the process ends.
TS_EXPORT void* tesserack_cuda_kernel(void* launch_kernel, void* set_context, void* function, void* context) {
  using namespace ts::kernelgen;
  auto made = std::make_unique<Kernel>();
  made->launch = reinterpret_cast<LaunchKernel>(launch_kernel);
  made->set_context = reinterpret_cast<SetContext>(set_context);
  made->function = function;
  made->context = context;
  return made.release();
}

TS_EXPORT int tesserack_cuda_launch(const ts_launch* l) { return ts::kernelgen::launch(l); }
