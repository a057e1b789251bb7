// All steps of an LSTM layer and of its gradient in one call. Sequences do not depend on each other, so threads share
// the batch and meet once, at the end; the recurrent weight is packed once.
#include "lstm.h"
#include "matmul/matmul_kernels.h"
#include "threads.h"

#include <tesserack/backend.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace tesserack::cpu {

TS_ISA_FUNCTION(void, lstm_gates, (const LstmRow& row, int64_t width));
TS_ISA_FUNCTION(void, lstm_gates_backward, (const LstmRowBackward& row, int64_t width));

namespace {

using backend::Call;
using backend::Tensor;

// Rows step after step, as the core's rnn::Steps lays them out.
class Steps {
public:
  Steps(std::span<const int64_t> counts, bool reverse) : counts_(counts), reverse_(reverse) {
    int64_t total = 0;
    for (const int64_t n : counts) {
      starts_.push_back(total);
      total += n;
    }
  }
  int64_t length() const { return static_cast<int64_t>(counts_.size()); }
  int64_t at(int64_t k) const { return reverse_ ? length() - 1 - k : k; }
  int64_t count(int64_t t) const { return counts_[static_cast<size_t>(t)]; }
  int64_t start(int64_t t) const { return starts_[static_cast<size_t>(t)]; }
  // The row of sequence b at the step walked before t, or -1: it starts from the initial state.
  int64_t row_before(int64_t t, int64_t b) const {
    const int64_t before = reverse_ ? t + 1 : t - 1;
    return before >= 0 && before < length() && b < count(before) ? start(before) + b : -1;
  }

private:
  std::span<const int64_t> counts_;
  std::vector<int64_t> starts_;
  bool reverse_;
};

// The recurrent weight packed as the right factor of every step's product, c (rows, n) = a (rows, k) @ weight.
class Packed {
public:
  Packed(const Matrix& weight, int64_t n, int64_t k) : n_(n), k_(k) {
    const size_t bytes = static_cast<size_t>(pick_gemm_panels()(n, k)) * sizeof(float);
    panels_.reset(static_cast<float*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    if (!panels_) throw std::bad_alloc();
    pick_pack_gemm_panels()(weight, n, k, panels_.get());
  }
  void multiply(const float* a, int64_t rows, float* c, bool add) const {
    const Matrix left{reinterpret_cast<char*>(const_cast<float*>(a)), k_, 1}, to{reinterpret_cast<char*>(c), n_, 1};
    pick_gemm_by_panels()({TS_FLOAT32, rows, n_, k_, left, {}, to, add ? to : Matrix{}}, panels_.get());
  }

private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> panels_;
  int64_t n_, k_;
};

// Whether to go this way: packing wants some steps to pay, and threads that each read all of a large weight want many
// sequences each.
bool suits(const Steps& steps, int64_t rows, int64_t batch, int64_t width) {
  constexpr int64_t kStepsFrom = 4, kLarge = int64_t{1} << 18, kSequencesEach = 16;
  const int64_t weight = 4 * width * width;
  if (batch == 0 || width == 0 || steps.length() < kStepsFrom || pick_gemm_panels()(4 * width, width) == 0)
    return false;
  if (rows > kPatience / weight) return false;
  return weight <= kLarge || max_threads() == 1 || batch / max_threads() >= kSequencesEach;
}

template <class F> void share_batch(int64_t rows, int64_t batch, int64_t width, const F& body) {
  constexpr int64_t kWorthAThread = 50'000; // multiply-adds
  const int64_t each = std::max<int64_t>(1, rows / batch * 4 * width * width);
  parallel_for(0, batch, std::max<int64_t>(1, kWorthAThread / each), body);
}

// out0: gates, that hold the input's part and then their values; out1: cells; out2: hidden states. Inputs: initial
// hidden state and cell, recurrent weight; params: batch sizes, reverse.
int lstm_steps(const Call& call) {
  const Steps steps(call.param(0).as_ints(), call.param(1).as_bool());
  float *const gates = call.out(0).data<float>(), *const cells = call.out(1).data<float>(),
               *const out = call.out(2).data<float>();
  const Tensor initial = call.in(0), weight = call.in(2);
  const int64_t batch = initial.size(0), width = initial.size(1), rows = call.out(0).size(0);
  if (!suits(steps, rows, batch, width)) return TS_DECLINED;
  const float *const h0 = initial.data<float>(), *const c0 = call.in(1).data<float>();
  const Packed packed({reinterpret_cast<char*>(weight.data<float>()), 1, width}, 4 * width, width);
  share_batch(rows, batch, width, [&](int64_t first, int64_t last) {
    std::vector<float> states(h0 + first * width, h0 + last * width);
    for (int64_t k = 0; k < steps.length(); ++k) {
      const int64_t t = steps.at(k), start = steps.start(t), end = std::min(last, steps.count(t));
      if (first >= end) continue;
      packed.multiply(states.data(), end - first, gates + (start + first) * 4 * width, true);
      for (int64_t b = first; b < end; ++b) {
        const int64_t row = start + b, before = steps.row_before(t, b);
        pick_lstm_gates()({gates + row * 4 * width, cells + row * width, out + row * width,
                           before < 0 ? c0 + b * width : cells + before * width},
                          width);
      }
      std::memcpy(states.data(), out + (start + first) * width,
                  static_cast<size_t>((end - first) * width) * sizeof(float));
    }
  });
  return TS_OK;
}

// out0: gradient of the gates; out1, out2: of the last hidden states and cells, then of the initial ones. Inputs:
// gradient of the outputs?, gates, cells, initial cell, recurrent weight; params: batch sizes, reverse.
int lstm_steps_backward(const Call& call) {
  const Steps steps(call.param(0).as_ints(), call.param(1).as_bool());
  float *const d_gates = call.out(0).data<float>(), *const d_states = call.out(1).data<float>(),
               *const d_cells = call.out(2).data<float>();
  const Tensor initial = call.in(3), weight = call.in(4);
  const int64_t batch = initial.size(0), width = initial.size(1), rows = call.out(0).size(0);
  if (!suits(steps, rows, batch, width)) return TS_DECLINED;
  const float *const d_out = call.in(0).is_none() ? nullptr : call.in(0).data<float>(),
                     *const gates = call.in(1).data<float>(), *const cells = call.in(2).data<float>(),
                     *const c0 = initial.data<float>();
  const Packed packed({reinterpret_cast<char*>(weight.data<float>()), width, 1}, width, 4 * width);
  share_batch(rows, batch, width, [&](int64_t first, int64_t last) {
    for (int64_t k = steps.length(); k-- > 0;) {
      const int64_t t = steps.at(k), start = steps.start(t), end = std::min(last, steps.count(t));
      if (first >= end) continue;
      for (int64_t b = first; b < end; ++b) {
        const int64_t row = start + b, before = steps.row_before(t, b);
        pick_lstm_gates_backward()({gates + row * 4 * width, cells + row * width,
                                    before < 0 ? c0 + b * width : cells + before * width, d_states + b * width,
                                    d_out ? d_out + row * width : nullptr, d_cells + b * width,
                                    d_gates + row * 4 * width},
                                   width);
      }
      packed.multiply(d_gates + (start + first) * 4 * width, end - first, d_states + first * width, false);
    }
  });
  return TS_OK;
}

constexpr uint64_t kSingle = uint64_t{1} << TS_FLOAT32;

} // namespace

TS_KERNEL_AS("lstm_steps", lstm_steps, kSingle, TS_L_CONTIGUOUS);
TS_KERNEL_AS("lstm_steps_backward", lstm_steps_backward, kSingle, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu
