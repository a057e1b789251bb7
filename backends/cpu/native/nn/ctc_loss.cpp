// ctc_loss and ctc_loss_backward: forward and backward variables of the labels with blanks between, in logarithms.
#include "dtype_switch.h"
#include "threads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kDtypes = uint64_t{1} << TS_FLOAT32 | uint64_t{1} << TS_FLOAT64 | uint64_t{1} << TS_INT64;

// log(exp(a) + exp(b) + exp(c)), also where all are minus infinity.
template <class T> T log_sum(T a, T b, T c) {
  const T top = std::max(a, std::max(b, c));
  if (!(top > -std::numeric_limits<T>::infinity())) return top;
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// The arguments that both directions have, checked before anything is indexed.
template <class T> struct Sequences {
  const T* log_probs; // (steps, batch, classes)
  const int64_t *labels, *lengths, *sizes;
  int64_t steps, batch, classes, longest, places, blank;

  Sequences(const Call& call, int first, int64_t blank_label) : blank(blank_label) {
    const Tensor probs = call.in(first), rows = call.in(first + 1);
    log_probs = probs.data<T>();
    labels = rows.data<int64_t>();
    lengths = call.in(first + 2).data<int64_t>();
    sizes = call.in(first + 3).data<int64_t>();
    steps = probs.size(0), batch = probs.size(1), classes = probs.size(2), longest = rows.size(1);
    places = 2 * longest + 1;
    for (int64_t n = 0; n < batch; ++n) check(call, n);
  }
  void check(const Call& call, int64_t n) const {
    if (lengths[n] < 0 || lengths[n] > steps || sizes[n] < 0 || sizes[n] > longest)
      backend::fail(TS_ERROR, "%s: sequence %lld has length %lld of %lld and %lld labels of %lld", call.op(),
                    static_cast<long long>(n), static_cast<long long>(lengths[n]), static_cast<long long>(steps),
                    static_cast<long long>(sizes[n]), static_cast<long long>(longest));
    for (int64_t s = 0; s < sizes[n]; ++s)
      if (const int64_t label = labels[n * longest + s]; label < 0 || label >= classes)
        backend::fail(TS_INDEX_ERROR, "%s: label %lld is out of bounds for %lld classes", call.op(),
                      static_cast<long long>(label), static_cast<long long>(classes));
  }
  // Of place s of sequence n: blanks stand at even places.
  int64_t label(int64_t n, int64_t s) const { return s % 2 ? labels[n * longest + s / 2] : blank; }
  // Whether a way may come from two places before.
  bool skips(int64_t n, int64_t s) const { return s % 2 && s > 1 && label(n, s) != label(n, s - 2); }
  const T* row(int64_t t, int64_t n) const { return log_probs + (t * batch + n) * classes; }
};

template <class T> void forward_one(const Sequences<T>& q, int64_t n, T* loss, T* alphas) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const int64_t used = 2 * q.sizes[n] + 1, length = q.lengths[n];
  std::fill(alphas, alphas + q.steps * q.places, kNone);
  if (length == 0) {
    *loss = q.sizes[n] == 0 ? T{0} : -kNone;
    return;
  }
  for (int64_t s = 0; s < std::min<int64_t>(used, 2); ++s) alphas[s] = q.row(0, n)[q.label(n, s)];
  for (int64_t t = 1; t < length; ++t) {
    const T* before = alphas + (t - 1) * q.places;
    T* now = alphas + t * q.places;
    const T* row = q.row(t, n);
    for (int64_t s = 0; s < used; ++s) {
      const T one = s > 0 ? before[s - 1] : kNone, two = q.skips(n, s) ? before[s - 2] : kNone;
      now[s] = log_sum(before[s], one, two) + row[q.label(n, s)];
    }
  }
  const T* last = alphas + (length - 1) * q.places;
  *loss = -log_sum(last[used - 1], used > 1 ? last[used - 2] : kNone, kNone);
}

template <class T> void forward(const Call& call) {
  const Sequences<T> q(call, 0, call.param(0).as_int());
  T *losses = call.out(0).data<T>(), *alphas = call.out(1).data<T>();
  parallel_for(0, q.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) forward_one(q, n, losses + n, alphas + n * q.steps * q.places);
  });
}

// exp(log_probs) minus the share of each class in all ways, times the gradient of the loss.
template <class T>
void backward_one(const Sequences<T>& q, int64_t n, T grad, T loss, const T* alphas, bool zero, T* out) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  const int64_t used = 2 * q.sizes[n] + 1, length = q.lengths[n];
  const auto row_of = [&](int64_t t) { return out + (t * q.batch + n) * q.classes; };
  for (int64_t t = length; t < q.steps; ++t) std::fill_n(row_of(t), q.classes, T{0});
  if (loss == -kNone) { // no way leads there
    for (int64_t t = 0; t < length; ++t)
      std::fill_n(row_of(t), q.classes, zero ? T{0} : std::numeric_limits<T>::quiet_NaN());
    return;
  }
  std::vector<T> betas(static_cast<size_t>(used), kNone), next(static_cast<size_t>(used));
  for (int64_t t = length - 1; t >= 0; --t) {
    const T *row = q.row(t, n), *alpha = alphas + t * q.places;
    T* to = row_of(t);
    for (int64_t c = 0; c < q.classes; ++c) to[c] = std::exp(row[c]);
    for (int64_t s = 0; s < used; ++s) {
      const size_t at = static_cast<size_t>(s);
      T ahead;
      if (t == length - 1) {
        ahead = s + 2 >= used ? T{0} : kNone;
      } else {
        const T one = s + 1 < used ? betas[at + 1] : kNone;
        ahead = log_sum(betas[at], one, s + 2 < used && q.skips(n, s + 2) ? betas[at + 2] : kNone);
      }
      next[at] = ahead + row[q.label(n, s)];
      const T share = alpha[s] + ahead + loss;
      if (share > kNone) to[q.label(n, s)] -= std::exp(share);
    }
    betas.swap(next);
    for (int64_t c = 0; c < q.classes; ++c) to[c] *= grad;
  }
}

template <class T> void backward(const Call& call) {
  const Sequences<T> q(call, 1, call.param(0).as_int());
  const bool zero = call.param(1).as_bool();
  const T *grads = call.in(0).data<T>(), *losses = call.in(5).data<T>(), *alphas = call.in(6).data<T>();
  T* out = call.out(0).data<T>();
  parallel_for(0, q.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      backward_one(q, n, grads[n], losses[n], alphas + n * q.steps * q.places, zero, out);
  });
}

// Inputs: log_probs, labels, lengths, sizes; params: blank.
void ctc_loss(const Call& call) {
  if (call.in(0).dtype() == TS_FLOAT32) return forward<float>(call);
  if (call.in(0).dtype() == TS_FLOAT64) return forward<double>(call);
  backend::fail(TS_ERROR, "%s: expected float32 or float64", call.op());
}

// Inputs: grad, log_probs, labels, lengths, sizes, loss, alphas; params: blank, zero_infinity.
void ctc_loss_backward(const Call& call) {
  if (call.in(0).dtype() == TS_FLOAT32) return backward<float>(call);
  if (call.in(0).dtype() == TS_FLOAT64) return backward<double>(call);
  backend::fail(TS_ERROR, "%s: expected float32 or float64", call.op());
}

} // namespace

TS_KERNEL_AS("ctc_loss", ctc_loss, kDtypes, TS_L_CONTIGUOUS);
TS_KERNEL_AS("ctc_loss_backward", ctc_loss_backward, kDtypes, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
