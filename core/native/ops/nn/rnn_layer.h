// One direction of one layer of a recurrent network over a whole batch of sequences.
#pragma once
#include "dispatch/boxing.h"
#include "ops/pointwise/fused.h"
#include "tensor/geometry.h"
#include <functional>
#include <vector>

namespace ts::rnn {

// Rows of a batch step after step, as pack_padded_sequence lays them out: step t holds `counts[t]` rows from
// `starts[t]` on, and never more than the step before it.
class Steps {
public:
  // RuntimeError unless `counts` are positive, do not grow, start at `batch` and add up to `rows`.
  Steps(const char* op, IntSpan counts, int64_t rows, int64_t batch, bool reverse);
  int64_t length() const { return static_cast<int64_t>(counts_.size()); }
  int64_t batch() const { return batch_; }
  int64_t count(int64_t t) const { return counts_[static_cast<size_t>(t)]; }
  int64_t start(int64_t t) const { return starts_[static_cast<size_t>(t)]; }
  // The k-th step in the direction of the layer, and the one walked before step t (-1: none).
  int64_t at(int64_t k) const { return reverse_ ? length() - 1 - k : k; }
  int64_t before(int64_t t) const { return reverse_ ? (t + 1 < length() ? t + 1 : -1) : t - 1; }
  // Rows of step t whose state comes from the step before; the others start from the initial state.
  int64_t carried(int64_t t) const { return before(t) < 0 ? 0 : reverse_ ? count(before(t)) : count(t); }
  // Rows whose last step is t.
  std::pair<int64_t, int64_t> finished(int64_t t) const;

private:
  IntSpan counts_;
  Dims starts_;
  int64_t batch_;
  bool reverse_;
};

// `count` rows of a contiguous matrix from `start` on, without history; and columns `from` .. `from + width` of a
// matrix.
Tensor rows_of(const Tensor& t, int64_t start, int64_t count);
Tensor columns_of(const Tensor& t, int64_t from, int64_t width);

// States of the rows of step t before it: a part of `states`, of `initial`, or both put together.
Tensor state_before(const Steps& steps, int64_t t, const Tensor& states, const Tensor& initial);
// The same of all steps, one row each.
Tensor states_before(const Steps& steps, const Tensor& states, const Tensor& initial);
// The state each row ends with.
Tensor last_states(const Steps& steps, const Tensor& states);

// Parameters of a layer. Biases and projection may be undefined.
struct Weights {
  Tensor input, hidden, input_bias, hidden_bias, projection;
};
// RuntimeError unless input is (rows, I), hx (B, P), and the weights fit with `gates` times the hidden size.
void check_layer(const char* op, const Tensor& input, const Tensor& hx, const Weights& w, int64_t gates);

// Gradients through the layer written with operators: what a second derivative goes through. `forward` computes the
// results from stand-ins of `arguments`; returns one gradient per argument, undefined where none is wanted.
std::vector<Tensor> traced_gradients(const std::vector<Tensor>& arguments, const std::vector<bool>& wanted,
                                     const std::vector<Tensor>& grads,
                                     const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& forward);

} // namespace ts::rnn
