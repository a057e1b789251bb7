// Pointwise operators of complex operands: a program over their real and imaginary parts.
#include "dispatch/describe.h"
#include "ops/common/storage_dtypes.h"
#include "ops/pointwise/kernel_call.h"
#include "ops/pointwise/run.h"

namespace ts {
namespace {

uint64_t complex_arguments(const pointwise::Program& p, const Frame& f) {
  uint64_t bits = 0;
  for (int a : p.inputs) {
    const Value& v = f.args[a];
    if (v.tag == Tag::Complex || (v.tag == Tag::Tensor && is_complex(v.tensor->dtype))) bits |= uint64_t{1} << a;
  }
  return bits;
}

// One part of a complex tensor as a real one of this geometry, which counts in complex elements.
Tensor part(const Tensor& t, bool imaginary, IntSpan sizes, IntSpan strides) {
  Dims doubled(strides);
  for (int64_t& s : doubled) s *= 2;
  DType real = real_type(t.dtype());
  Tensor out = alias(t, sizes, doubled, t->byte_offset + (imaginary ? item_size(real) : 0));
  out->set_dtype(real);
  return out;
}

// The program over parts of the operands, as one kernel call with an output for each part of the result.
void run_complex(const Operator& op, const ComplexProgram& complex, const pointwise::Program& p,
                 const PointwisePlan& plan, const Tensor& out) {
  Merged m = merge_dims(op, plan, out);
  std::vector<Tensor> views; // the launch only refers to its tensors
  views.reserve(complex.program->inputs.size() + 2);
  Launch launch(kPointwise, plan.device);
  launch.program(&complex.program->c).compute(plan.compute).work(out.numel());
  bool halves = is_complex(out.dtype());
  launch.out(views.emplace_back(halves ? part(out, false, m.sizes, m.strides_of(0))
                                       : alias(out, m.sizes, m.strides_of(0), out->byte_offset)));
  if (halves) launch.out(views.emplace_back(part(out, true, m.sizes, m.strides_of(0))));
  for (int input : complex.program->inputs) {
    auto at = std::find(p.inputs.begin(), p.inputs.end(), input / 2);
    auto k = static_cast<size_t>(at - p.inputs.begin());
    const PointwiseOperand& o = plan.operands[k];
    bool imaginary = input % 2;
    if (!o.tensor) {
      launch.scalar(imaginary ? o.number.imag() : o.number.real(), plan.compute);
      continue;
    }
    Tensor t = Tensor::share(const_cast<TensorImpl*>(o.tensor));
    launch.in(views.emplace_back(is_complex(t.dtype()) ? part(t, imaginary, m.sizes, m.strides_of(k + 1))
                                                       : alias(t, m.sizes, m.strides_of(k + 1), t->byte_offset)));
  }
  launch.run_required();
}

const ComplexProgram& choose_complex(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p,
                                     const Frame& f, const PointwisePlan& plan, DType result) {
  constexpr const char* kWhy = "; complex numbers have no order, and not every function is defined for them";
  TS_CHECK_KIND(ErrorKind::NotImplemented, !info.no_complex, op.name(), ": not implemented for dtype ", plan.common,
                kWhy);
  bool defaults = &p == info.default_program.get();
  const ComplexProgram& complex = info.complex_program(complex_arguments(p, f), defaults, is_complex(result));
  TS_CHECK_KIND(ErrorKind::NotImplemented, complex.program, op.name(), ": not implemented for dtype ", plan.common,
                kWhy);
  return complex;
}

} // namespace

void run_over_parts(const Operator& op, const PointwiseInfo& info, const pointwise::Program& p, Frame& f,
                    PointwisePlan& plan) {
  if (is_storage_dtype(plan.common)) check_storage_dtype(op, plan.common); // float16 beside a complex number, too
  choose_complex(op, info, p, f, plan, plan.result);                       // complains before anything is written
  Tensor out = pointwise_target(op, f, plan);
  if (!plan.device.is_meta() && out.numel() > 0)
    run_complex(op, choose_complex(op, info, p, f, plan, out.dtype()), p, plan, out);
  f.give(0, std::move(out));
}

} // namespace ts
