// sgd_step_ and adam_step_: one pass over each parameter with its state, threads shared over the whole list. What
// clipping gradients asks of a list: its norms, and all of it times a number.
#include "dtype_switch.h"
#include "threads.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
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

template <class A> struct Sgd {
  A lr, momentum, keep, weight_decay, sign;
  bool nesterov, first;
};

template <class T, bool Momentum>
void sgd_part(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, const Sgd<Accumulator<T>>& s) {
  using A = Accumulator<T>;
  const bool decays = s.weight_decay != 0; // zero times an infinite parameter is no number
  for (int64_t i = 0; i < n; ++i) {
    const A parameter = load(p[i]);
    A step = s.sign * load(g[i]) + (decays ? s.weight_decay * parameter : A{0});
    if constexpr (Momentum) {
      const A kept = s.first ? step : s.momentum * load(buffer[i]) + s.keep * step;
      buffer[i] = store<T>(kept);
      step = s.nesterov ? step + s.momentum * kept : kept;
    }
    p[i] = store<T>(parameter - s.lr * step);
  }
}

// Scalars: lr, momentum, dampening, weight_decay, nesterov, maximize, first_step.
void sgd_step(const Call& call) {
  const std::vector<Value> v = scalars_of(call, 7);
  const double lr = v[0].as_float(), momentum = v[1].as_float(), dampening = v[2].as_float(), decay = v[3].as_float();
  const bool nesterov = v[4].as_bool(), maximize = v[5].as_bool(), first = v[6].as_bool(), has_buffer = momentum != 0;
  const Lists lists(call, has_buffer ? 3 : 2);
  lists.for_each_part([&](int t, int64_t begin, int64_t end) {
    switch_float(call.op(), lists.at(0, t).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using A = Accumulator<T>;
      const Sgd<A> s{static_cast<A>(lr),
                     static_cast<A>(momentum),
                     static_cast<A>(1 - dampening),
                     static_cast<A>(decay),
                     maximize ? A{-1} : A{1},
                     nesterov,
                     first};
      T* p = lists.at(0, t).template data<T>() + begin;
      const T* g = lists.at(1, t).template data<T>() + begin;
      if (has_buffer) return sgd_part<T, true>(p, g, lists.at(2, t).template data<T>() + begin, end - begin, s);
      sgd_part<T, false>(p, g, nullptr, end - begin, s);
    });
  });
}

template <class A> struct Adam {
  A shrink, decay, sign; // decoupled decay multiplies the parameter, the other adds to the gradient
  A beta1, beta2, rest1, rest2;
  A inverse_correction2, eps, step_size;
};

template <class T, bool Amsgrad>
void adam_part(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, T* __restrict top, int64_t n,
               const Adam<Accumulator<T>>& s) {
  using A = Accumulator<T>;
  const bool from_mean = s.rest1 < A{0.5}; // lerp's two forms, as torch chooses between them
  const bool decays = s.decay != 0;        // zero times an infinite parameter is no number
  for (int64_t i = 0; i < n; ++i) {
    const A before = load(p[i]), gradient = s.sign * load(g[i]) + (decays ? s.decay * before : A{0});
    const A gap = gradient - load(m[i]);
    const A mean = from_mean ? load(m[i]) + s.rest1 * gap : gradient - gap * s.beta1;
    const A square = s.beta2 * load(v[i]) + s.rest2 * gradient * gradient;
    m[i] = store<T>(mean);
    v[i] = store<T>(square);
    A scale = square;
    if constexpr (Amsgrad) {
      scale = std::max(load(top[i]), square);
      top[i] = store<T>(scale);
    }
    p[i] = store<T>(before * s.shrink - s.step_size * (mean / (std::sqrt(scale) * s.inverse_correction2 + s.eps)));
  }
}

// Scalars: step (1 at the first), lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, decoupled.
void adam_step(const Call& call) {
  const std::vector<Value> v = scalars_of(call, 9);
  const double step = static_cast<double>(v[0].as_int()), lr = v[1].as_float(), beta1 = v[2].as_float(),
               beta2 = v[3].as_float(), decay = v[4].as_float(), eps = v[5].as_float();
  const bool amsgrad = v[6].as_bool(), maximize = v[7].as_bool(), decoupled = v[8].as_bool();
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  const Lists lists(call, amsgrad ? 5 : 4);
  lists.for_each_part([&](int t, int64_t begin, int64_t end) {
    switch_float(call.op(), lists.at(0, t).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using A = Accumulator<T>;
      const Adam<A> s{static_cast<A>(decoupled ? 1 - lr * decay : 1),
                      static_cast<A>(decoupled ? 0 : decay),
                      maximize ? A{-1} : A{1},
                      static_cast<A>(beta1),
                      static_cast<A>(beta2),
                      static_cast<A>(1 - beta1),
                      static_cast<A>(1 - beta2),
                      static_cast<A>(1 / std::sqrt(correction2)),
                      static_cast<A>(eps),
                      static_cast<A>(lr / correction1)};
      const auto data = [&](int list) { return lists.at(list, t).template data<T>() + begin; };
      if (amsgrad) return adam_part<T, true>(data(0), data(1), data(2), data(3), data(4), end - begin, s);
      adam_part<T, false>(data(0), data(1), data(2), data(3), nullptr, end - begin, s);
    });
  });
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
