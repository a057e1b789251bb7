#include "onednn.h"

#ifdef TESSERACK_CPU_ONEDNN

#include "onednn_cache.h"
#include "threads.h"

namespace tesserack::cpu::onednn {

namespace {

// Tile instructions read the right factor in blocks; laying it out so beforehand pays for itself with many rows: 1.96
// instead of 2.28 ms for 1024 cubed on Sapphire Rapids.
constexpr int64_t kBlockedFrom = 512;

bool wants_blocks(const MatmulProblem& p) {
  static const bool tiles = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx;
  return tiles && p.type != Type::f32 && p.m >= kBlockedFrom && p.n >= kBlockedFrom && p.k >= kBlockedFrom;
}

// One problem's primitive with the memory objects whose pointers are set at every call.
struct MatmulPlan {
  dnnl::primitive primitive;
  dnnl::memory a, b, bias, c, scratchpad;
  dnnl::memory b_blocks; // what the primitive reads in place of b, if `into_blocks`
  dnnl::reorder into_blocks;
  size_t scratchpad_bytes = 0;
  bool available = false;

  explicit MatmulPlan(const MatmulProblem& p) {
    const dnnl::memory::data_type type = data_type(p.type);
    const dnnl::memory::desc a_desc({p.m, p.k}, type, {p.a_row, p.a_col});
    const dnnl::memory::desc b_desc({p.k, p.n}, type, {p.b_row, p.b_col});
    const dnnl::memory::desc c_desc({p.m, p.n}, data_type(p.result), {p.c_row, 1});
    dnnl::memory::desc bias_desc;
    if (p.row_bias) bias_desc = dnnl::memory::desc({1, p.n}, type, {p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const bool blocked = wants_blocks(p);
    const dnnl::memory::desc any_desc({p.k, p.n}, type, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(engine(), a_desc, blocked ? any_desc : b_desc, bias_desc, c_desc,
                                            attributes, true);
    if (!usable(desc)) return;
    primitive = dnnl::matmul(desc);
    a = dnnl::memory(a_desc, engine(), nullptr);
    b = dnnl::memory(b_desc, engine(), nullptr);
    if (blocked && desc.weights_desc() != b_desc) {
      b_blocks = dnnl::memory(desc.weights_desc(), engine(), nullptr);
      into_blocks = dnnl::reorder(b, b_blocks);
    }
    c = dnnl::memory(c_desc, engine(), nullptr);
    if (p.row_bias) bias = dnnl::memory(bias_desc, engine(), nullptr);
    scratchpad_bytes = desc.scratchpad_desc().get_size();
    scratchpad = dnnl::memory(desc.scratchpad_desc(), engine(), nullptr);
    available = true;
  }
};

dnnl_exec_arg_t bind(int index, dnnl::memory& memory, const void* data) {
  dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data));
  return {index, memory.get()};
}

} // namespace

bool matmul(const MatmulProblem& problem, const void* a, const void* b, const void* bias, void* c) {
  thread_local PlanCache<MatmulProblem, MatmulPlan, 128> cache;
  const ThreadCount threads(problem.threads);
  MatmulPlan& plan = cache.find(problem);
  if (!plan.available) return false;
  if (plan.into_blocks) {
    plan.b.set_data_handle(const_cast<void*>(b));
    plan.b_blocks.set_data_handle(scratch(kWeights, plan.b_blocks.get_desc().get_size()));
    plan.into_blocks.execute(stream(), plan.b, plan.b_blocks);
  }
  dnnl_exec_arg_t args[5] = {bind(DNNL_ARG_SRC, plan.a, a), bind(DNNL_ARG_WEIGHTS, plan.b, b),
                             bind(DNNL_ARG_DST, plan.c, c)};
  if (plan.into_blocks) args[1].memory = plan.b_blocks.get();
  int count = 3;
  if (problem.row_bias) args[count++] = bind(DNNL_ARG_BIAS, plan.bias, bias);
  if (plan.scratchpad_bytes != 0) {
    args[count++] = bind(DNNL_ARG_SCRATCHPAD, plan.scratchpad, scratch(kScratchpad, plan.scratchpad_bytes));
  }
  place_workers();
  return dnnl_primitive_execute(plan.primitive.get(), stream().get(), count, args) == dnnl_success;
}

} // namespace tesserack::cpu::onednn

#endif
