// sgd_step_ and adam_step_: one pass over each parameter with its state, threads shared over the whole list, computing
// what the lines of tesserack/steps.hpp say. What clipping gradients asks of a list: its norms, and all of it times a
// number.
#include "dtype_switch.h"
#include "step_program.h"
#include "threads.h"

#include <tesserack/steps.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::StepDecay;
using backend::Tensor;
using backend::Value;

constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;
constexpr int64_t kStepGrain = 8192; // elements worth a thread

// The arguments after the lists, whether or not the lists stand among the params too.
std::vector<Value> scalars_of(const Call& call, size_t expected) {
  std::vector<Value> scalars;
  for (int k = 0; k < call.n_params(); ++k)
    if (call.param(k).tag() != TS_V_TENSORS) scalars.push_back(call.param(k));
  if (scalars.size() != expected)
    backend::fail(TS_ERROR, "%s: expected %zu arguments after the lists, got %zu", call.op(), expected, scalars.size());
  return scalars;
}

// `lists` lists of equal length, flattened in the inputs.
class Lists {
public:
  Lists(const Call& call, int lists) : call_(call), count_(call.n_inputs() / lists) {
    if (call.n_inputs() % lists != 0)
      backend::fail(TS_ERROR, "%s: expected %d lists of one length, got %d tensors", call.op(), lists, call.n_inputs());
    starts_.push_back(0);
    for (int t = 0; t < count_; ++t) {
      for (int list = 1; list < lists; ++list) check(at(0, t), at(list, t));
      starts_.push_back(starts_.back() + at(0, t).numel());
    }
  }

  // work(tensor, begin, end) over all elements of all tensors.
  template <class Work> void for_each_part(const Work& work) const {
    parallel_for(0, starts_.back(), kStepGrain, [&](int64_t begin, int64_t end) {
      const auto after = std::upper_bound(starts_.begin(), starts_.end(), begin);
      for (int t = static_cast<int>(after - starts_.begin()) - 1; begin < end; ++t) {
        const int64_t start = starts_[static_cast<size_t>(t)],
                      stop = std::min(end, starts_[static_cast<size_t>(t) + 1]);
        if (begin < stop) work(t, begin - start, stop - start);
        begin = std::max(begin, stop);
      }
    });
  }

  Tensor at(int list, int tensor) const { return call_.in(list * count_ + tensor); }

private:
  const Call& call_;
  int count_;
  std::vector<int64_t> starts_;

  void check(const Tensor& parameter, const Tensor& other) const {
    if (other.numel() == parameter.numel() && other.dtype() == parameter.dtype()) return;
    backend::fail(TS_ERROR, "%s: expected state of %lld elements of %s like its parameter, got %lld of %s", call_.op(),
                  static_cast<long long>(parameter.numel()), backend::dtype_name(parameter.dtype()),
                  static_cast<long long>(other.numel()), backend::dtype_name(other.dtype()));
  }
};

template <bool Momentum, bool Nesterov, bool First, bool Decay> struct Sgd {
  static constexpr StepProgram program =
      StepReader(backend::sgd_step_text(Momentum, Nesterov, First, Decay).view()).program();
};

template <bool Amsgrad, StepDecay Decay, bool FromMean> struct Adam {
  static constexpr StepProgram program = StepReader(backend::adam_step_text(Amsgrad, Decay, FromMean).view()).program();
};

void take_step(const Call& call, const CompiledStep& step, std::span<const double> given) {
  const int tensors = 2 + step.program.states;
  const StepValues<double> numbers = step_numbers(step.program, given);
  const Lists lists(call, tensors);
  lists.for_each_part([&](int t, int64_t begin, int64_t end) {
    const int32_t dtype = lists.at(0, t).dtype();
    const int64_t from = begin * backend::dtype_size(dtype);
    StepMemory memory{};
    for (int k = 0; k < tensors; ++k) memory[static_cast<size_t>(k)] = lists.at(k, t).data<std::byte>() + from;
    switch (dtype) {
    case TS_FLOAT16: return step_halves<Float16>(step, memory, end - begin, numbers);
    case TS_BFLOAT16: return step_halves<BFloat16>(step, memory, end - begin, numbers);
    case TS_FLOAT32: return step.single(memory, end - begin, numbers);
    default: return step.wide(memory, end - begin, numbers);
    }
  });
}

// f.operator()<flags...>() for flags that are known in the call.
template <bool... Known, class F> void with_flags(F&& f) { f.template operator()<Known...>(); }
template <bool... Known, class F, class... More> void with_flags(F&& f, bool flag, More... more) {
  if (flag)
    with_flags<Known..., true>(static_cast<F&&>(f), more...);
  else
    with_flags<Known..., false>(static_cast<F&&>(f), more...);
}

// Scalars: lr, momentum, dampening, weight_decay, nesterov, maximize, first_step.
void sgd_step(const Call& call) {
  const std::vector<Value> v = scalars_of(call, 7);
  const double momentum = v[1].as_float(), decay = v[3].as_float();
  const std::array<double, 5> numbers{v[0].as_float(), momentum, v[2].as_float(), decay, v[5].as_bool() ? 1.0 : 0.0};
  if (momentum == 0)
    return with_flags([&]<bool Decay>() { take_step(call, kCompiledStep<Sgd<false, false, false, Decay>>, numbers); },
                      decay != 0);
  with_flags(
      [&]<bool Nesterov, bool First, bool Decay>() {
        take_step(call, kCompiledStep<Sgd<true, Nesterov, First, Decay>>, numbers);
      },
      v[4].as_bool(), v[6].as_bool(), decay != 0);
}

// Scalars: step (1 at the first), lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled.
void adam_step(const Call& call) {
  const std::vector<Value> v = scalars_of(call, 9);
  const double beta1 = v[2].as_float(), decay = v[4].as_float();
  const std::array<double, 7> numbers{
      static_cast<double>(v[0].as_int()), v[1].as_float(), beta1, v[3].as_float(), decay, v[5].as_float(),
      v[7].as_bool() ? 1.0 : 0.0};
  const bool decoupled = v[8].as_bool();
  with_flags(
      [&]<bool Amsgrad, bool FromMean>() {
        if (decay == 0) return take_step(call, kCompiledStep<Adam<Amsgrad, StepDecay::None, FromMean>>, numbers);
        if (decoupled) return take_step(call, kCompiledStep<Adam<Amsgrad, StepDecay::Decoupled, FromMean>>, numbers);
        take_step(call, kCompiledStep<Adam<Amsgrad, StepDecay::Coupled, FromMean>>, numbers);
      },
      v[6].as_bool(), beta1 > 0.5);
}

// A list's tensors in blocks of one size, whatever threads there are: sums of blocks are added up in order.
struct Block {
  int tensor;
  int64_t begin, end;
};
constexpr int64_t kBlock = 4096;

std::vector<Block> blocks_of(const Call& call, int tensors) {
  std::vector<Block> blocks;
  for (int t = 0; t < tensors; ++t) {
    const int64_t n = call.in(t).numel();
    for (int64_t at = 0; at < n; at += kBlock) blocks.push_back({t, at, std::min(at + kBlock, n)});
  }
  return blocks;
}

// Squares of narrower types neither over- nor underflow in double, and are exact there.
template <class T> double sum_squares(const T* x, int64_t n) {
  constexpr int64_t kLanes = 32;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      const double v = static_cast<double>(load(x[i + j]));
      lanes[j] += v * v;
    }
  for (int64_t j = 0; i < n; ++i, ++j) {
    const double v = static_cast<double>(load(x[i]));
    lanes[j] += v * v;
  }
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// The 2-norm of each input, as elements of the output. Tensors without elements do not come here.
int list_norms(const Call& call) {
  const Tensor out = call.out(0);
  if (out.numel() != call.n_inputs()) return TS_DECLINED;
  const std::vector<Block> blocks = blocks_of(call, call.n_inputs());
  std::vector<double> sums(blocks.size());
  switch_float(call.op(), out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(0, static_cast<int64_t>(blocks.size()), 4, [&](int64_t begin, int64_t end) {
      for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k)
        sums[k] = sum_squares(call.in(blocks[k].tensor).template data<T>() + blocks[k].begin,
                              blocks[k].end - blocks[k].begin);
    });
    T* to = out.data<T>();
    size_t k = 0;
    for (int t = 0; t < call.n_inputs(); ++t) {
      double sum = 0;
      for (; k < blocks.size() && blocks[k].tensor == t; ++k) sum += sums[k];
      to[t] = store<T>(static_cast<Accumulator<T>>(std::sqrt(sum)));
    }
  });
  return TS_OK;
}

// Inputs but the last times that, a number, in place.
void list_scale(const Call& call) {
  const int n = call.n_inputs() - 1;
  const Tensor last = call.in(n);
  switch_float(call.op(), last.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto factor = load(*last.data<T>());
    if (factor == 1) return; // which changes no bit of any number
    const std::vector<Block> blocks = blocks_of(call, n);
    parallel_for(0, static_cast<int64_t>(blocks.size()), 4, [&](int64_t begin, int64_t end) {
      for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
        T* x = call.in(blocks[k].tensor).template data<T>();
        for (int64_t i = blocks[k].begin; i < blocks[k].end; ++i) x[i] = store<T>(load(x[i]) * factor);
      }
    });
  });
}

} // namespace

TS_KERNEL_AS("list_norms", list_norms, kFloats & ~(uint64_t{1} << TS_FLOAT64), TS_L_CONTIGUOUS);
TS_KERNEL_AS("list_scale_", list_scale, kFloats, TS_L_CONTIGUOUS);
TS_KERNEL_AS("sgd_step_", sgd_step, kFloats, TS_L_CONTIGUOUS);
TS_KERNEL_AS("adam_step_", adam_step, kFloats, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
