// nll_loss_forward and nll_loss_backward over (N, C, ...) log-probabilities.
#include "dtype_switch.h"
#include "threads.h"

#include <algorithm>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kFloats =
    uint64_t{1} << TS_FLOAT16 | uint64_t{1} << TS_BFLOAT16 | uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64;
constexpr uint64_t kDtypes = kFloats | uint64_t{1} << TS_INT64;
enum Reduction { kNone = 0, kMean = 1, kSum = 2 };

// Of scores (N, C, ...): how many classes there are, and how far apart those of a target lie.
struct Shape {
  int64_t n_classes, inner;

  explicit Shape(const Tensor& scores) : n_classes(scores.size(1)), inner(1) {
    for (int d = 2; d < scores.ndim(); ++d) inner *= scores.size(d);
  }
  // Calls with the number of each target from begin to end, and where the score of its class 0 lies.
  template <class Use> void each(int64_t begin, int64_t end, Use use) const {
    if (begin >= end) return;
    int64_t sample = begin / inner, place = begin % inner;
    for (int64_t i = begin; i < end; ++i) {
      use(i, sample * n_classes * inner + place);
      if (++place == inner) place = 0, ++sample;
    }
  }
};

// The targets with their class weights; every target is checked before any output is written.
template <class T> struct Targets {
  const int64_t* classes;
  const T* weights;
  int64_t count, ignored;

  Targets(const Call& call, int64_t n_classes, int64_t ignore_index)
      : classes(call.in(1).data<int64_t>()), weights(call.has_in(2) ? call.in(2).data<T>() : nullptr),
        count(call.in(1).numel()), ignored(ignore_index) {
    for (int64_t i = 0; i < count; ++i) {
      if (classes[i] == ignored || static_cast<uint64_t>(classes[i]) < static_cast<uint64_t>(n_classes)) continue;
      backend::fail(TS_INDEX_ERROR, "%s: target %lld is out of bounds for %lld classes (and is not ignore_index %lld)",
                    call.op(), static_cast<long long>(classes[i]), static_cast<long long>(n_classes),
                    static_cast<long long>(ignored));
    }
  }
  Accumulator<T> weight(int64_t i) const {
    if (classes[i] == ignored) return 0;
    return weights ? load(weights[classes[i]]) : Accumulator<T>{1};
  }
};

template <class T> void forward(const Call& call) {
  const Tensor self = call.in(0), out = call.out(0), total = call.out(1);
  const int64_t reduction = call.param(0).as_int();
  const Shape shape(self);
  const Targets<T> targets(call, shape.n_classes, call.param(1).as_int());
  const T* scores = self.data<T>();
  // Summed in double: one thread, and no error that grows with N.
  double sum = 0, weight_sum = 0;
  shape.each(0, targets.count, [&](int64_t i, int64_t first) {
    const Accumulator<T> weight = targets.weight(i);
    const bool skip = targets.classes[i] == targets.ignored;
    const Accumulator<T> loss = skip ? 0 : -weight * load(scores[first + targets.classes[i] * shape.inner]);
    if (reduction == kNone) out.data<T>()[i] = store<T>(loss);
    sum += loss, weight_sum += weight;
  });
  total.data<T>()[0] = store<T>(static_cast<Accumulator<T>>(reduction == kNone ? 0 : weight_sum));
  if (reduction == kNone) return;
  out.data<T>()[0] = store<T>(static_cast<Accumulator<T>>(reduction == kMean ? sum / weight_sum : sum));
}

void nll_loss_forward(const Call& call) {
  switch_float("nll_loss_forward", call.in(0).dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(call); });
}

template <class T> void backward(const Call& call) {
  const Tensor grad = call.in(0), out = call.out(0);
  const int64_t reduction = call.param(1).as_int();
  const Shape shape(out);
  const Targets<T> targets(call, shape.n_classes, call.param(2).as_int());
  const Accumulator<T> divisor = reduction == kMean ? load(call.in(3).data<T>()[0]) : Accumulator<T>{1};
  T* to = out.data<T>();
  const T* upstream = grad.data<T>();
  const auto clear = [&](int64_t begin, int64_t end) {
    std::memset(static_cast<void*>(to + begin), 0, static_cast<size_t>(end - begin) * sizeof(T));
  };
  const bool rows = shape.inner == 1; // each is cleared and set at once, while it is in the cache
  if (!rows) parallel_for(0, out.numel(), 32768, clear);
  parallel_for(0, targets.count, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, shape.n_classes)),
               [&](int64_t begin, int64_t end) {
                 if (rows) clear(begin * shape.n_classes, end * shape.n_classes);
                 shape.each(begin, end, [&](int64_t i, int64_t first) {
                   if (targets.classes[i] == targets.ignored) return;
                   const Accumulator<T> g = load(upstream[reduction == kNone ? i : 0]);
                   to[first + targets.classes[i] * shape.inner] = store<T>(-targets.weight(i) * g / divisor);
                 });
               });
}

// Schema: grad, target, weight, total_weight, input_size, reduction, ignore_index.
void nll_loss_backward(const Call& call) {
  switch_float("nll_loss_backward", call.in(0).dtype(),
               [&](auto tag) { backward<typename decltype(tag)::type>(call); });
}

} // namespace

TS_KERNEL_AS("nll_loss_forward", nll_loss_forward, kDtypes, TS_L_CONTIGUOUS);
TS_KERNEL_AS("nll_loss_backward", nll_loss_backward, kDtypes, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
