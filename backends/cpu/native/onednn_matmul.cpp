#include "onednn.h"

#ifdef TESSERACK_CPU_ONEDNN

#include "onednn_cache.h"

namespace tesserack::cpu::onednn {

namespace {

// One problem's primitive with the memory objects whose pointers are set at every call.
struct MatmulPlan {
  dnnl::primitive primitive;
  dnnl::memory a, b, bias, c, scratchpad;
  size_t scratchpad_bytes = 0;
  bool available = false;

  explicit MatmulPlan(const MatmulProblem& p) {
    const dnnl::memory::data_type type = data_type(p.type);
    const dnnl::memory::desc a_desc({p.m, p.k}, type, {p.a_row, p.a_col});
    const dnnl::memory::desc b_desc({p.k, p.n}, type, {p.b_row, p.b_col});
    const dnnl::memory::desc c_desc({p.m, p.n}, type, {p.c_row, 1});
    dnnl::memory::desc bias_desc;
    if (p.row_bias) bias_desc = dnnl::memory::desc({1, p.n}, type, {p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0f);
      attributes.set_post_ops(post);
    }
    const dnnl::matmul::primitive_desc desc(engine(), a_desc, b_desc, bias_desc, c_desc, attributes, true);
    if (!desc || std::strncmp(desc.impl_info_str(), "ref", 3) == 0) return;
    primitive = dnnl::matmul(desc);
    a = dnnl::memory(a_desc, engine(), nullptr);
    b = dnnl::memory(b_desc, engine(), nullptr);
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
  dnnl_exec_arg_t args[5] = {bind(DNNL_ARG_SRC, plan.a, a), bind(DNNL_ARG_WEIGHTS, plan.b, b),
                             bind(DNNL_ARG_DST, plan.c, c)};
  int count = 3;
  if (problem.row_bias) args[count++] = bind(DNNL_ARG_BIAS, plan.bias, bias);
  if (plan.scratchpad_bytes != 0) {
    args[count++] = bind(DNNL_ARG_SCRATCHPAD, plan.scratchpad, scratch(kScratchpad, plan.scratchpad_bytes));
  }
  return dnnl_primitive_execute(plan.primitive.get(), stream().get(), count, args) == dnnl_success;
}

bool sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
           const float* b, int64_t ldb, float beta, float* c, int64_t ldc, int threads) {
  const ThreadCount count(threads);
  return dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc) ==
         dnnl_success;
}

} // namespace tesserack::cpu::onednn

#endif
