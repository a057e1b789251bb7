// What the recurrent layers share: steps and states.
#include "ops/nn/rnn_layer.h"
#include "autograd/engine.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/raw.h"

namespace ts::rnn {
namespace {

void copy_rows(const Tensor& to, int64_t to_start, const Tensor& from, int64_t from_start, int64_t count) {
  if (count) raw_copy(rows_of(to, to_start, count), rows_of(from, from_start, count));
}

void check_bias(const char* op, const char* name, const Tensor& bias, const Tensor& weight) {
  if (!bias.defined()) return;
  check_same_dtype(weight, bias, op);
  TS_CHECK(bias.ndim() == 1 && bias.numel() == weight.size(0), op, ": expected ", name, " of shape [", weight.size(0),
           "], got ", bias.sizes());
}

} // namespace

Steps::Steps(const char* op, IntSpan counts, int64_t rows, int64_t batch, bool reverse)
    : counts_(counts), batch_(batch), reverse_(reverse) {
  TS_CHECK(!counts.empty(), op, ": Expected sequence length to be larger than 0");
  int64_t total = 0, before = batch;
  TS_CHECK(counts[0] == batch, op, ": expected the first step to hold all ", batch, " sequences, got ", counts[0]);
  for (int64_t n : counts) {
    TS_CHECK(n >= 0 && n <= before, op, ": expected batch sizes that do not grow, got ", n, " after ", before);
    starts_.push_back(total);
    before = n;
    TS_CHECK(!__builtin_add_overflow(total, n, &total), op, ": more rows than fit in 64 bits");
  }
  TS_CHECK(total == rows, op, ": expected batch sizes that add up to the ", rows, " rows of the input, got ", total);
}

std::pair<int64_t, int64_t> Steps::finished(int64_t t) const {
  if (reverse_) return {0, t == 0 ? count(0) : 0};
  int64_t next = t + 1 < length() ? count(t + 1) : 0;
  return {next, count(t) - next};
}

Tensor rows_of(const Tensor& t, int64_t start, int64_t count) {
  int64_t sizes[] = {count, t.sizes()[1]};
  return alias(t, sizes, t.strides(), t->byte_offset + start * t.strides()[0] * t.item_size());
}

Tensor columns_of(const Tensor& t, int64_t from, int64_t width) {
  int64_t sizes[] = {t.sizes()[0], width};
  return alias(t, sizes, t.strides(), t->byte_offset + from * t.item_size());
}

Tensor state_before(const Steps& steps, int64_t t, const Tensor& states, const Tensor& initial) {
  int64_t n = steps.count(t), carried = steps.carried(t);
  if (carried == 0) return rows_of(initial, 0, n);
  int64_t from = steps.start(steps.before(t));
  if (carried == n) return rows_of(states, from, n);
  int64_t sizes[] = {n, states.sizes()[1]};
  Tensor joined = empty_tensor(sizes, states.dtype(), states.device());
  copy_rows(joined, 0, states, from, carried);
  copy_rows(joined, carried, initial, carried, n - carried);
  return joined;
}

Tensor states_before(const Steps& steps, const Tensor& states, const Tensor& initial) {
  Tensor all = empty_tensor(states.sizes(), states.dtype(), states.device());
  int64_t last = steps.length() - 1;
  for (int64_t t = 0; t <= last; ++t) {
    int64_t carried = steps.carried(t), start = steps.start(t), before = steps.before(t);
    // Neighbours of one count are one copy.
    int64_t run = t;
    while (carried && steps.count(before) == carried && run < last && steps.count(run + 1) == carried &&
           steps.carried(run + 1) == carried && steps.count(t) == carried)
      ++run;
    if (carried) copy_rows(all, start, states, steps.start(before), (run - t + 1) * carried);
    copy_rows(all, start + carried, initial, carried, run == t ? steps.count(t) - carried : 0);
    t = run;
  }
  return all;
}

Tensor last_states(const Steps& steps, const Tensor& states) {
  int64_t sizes[] = {steps.batch(), states.sizes()[1]};
  Tensor last = empty_tensor(sizes, states.dtype(), states.device());
  for (int64_t t = 0; t < steps.length(); ++t) {
    auto [row, count] = steps.finished(t);
    copy_rows(last, row, states, steps.start(t) + row, count);
  }
  return last;
}

void check_layer(const char* op, const Tensor& input, const Tensor& hx, const Weights& w, int64_t gates) {
  TS_CHECK(is_floating(input.dtype()), op, ": expected a floating input, got ", input.dtype());
  for (const Tensor* t : {&hx, &w.input, &w.hidden}) check_same_dtype(input, *t, op);
  TS_CHECK(input.ndim() == 2 && hx.ndim() == 2, op, ": expected input and hidden state of two dims, got ",
           input.sizes(), " and ", hx.sizes());
  TS_CHECK(w.input.ndim() == 2 && w.hidden.ndim() == 2 && w.input.size(0) % gates == 0 &&
               w.hidden.size(0) == w.input.size(0),
           op, ": expected weights of ", gates, " times the hidden size rows, got ", w.input.sizes(), " and ",
           w.hidden.sizes());
  TS_CHECK(w.input.size(1) == input.size(1), op, ": input has inconsistent input_size: got ", input.size(1),
           " expected ", w.input.size(1));
  TS_CHECK(w.hidden.size(1) == hx.size(1), op, ": hidden has inconsistent hidden_size: got ", hx.size(1), ", expected ",
           w.hidden.size(1));
  check_bias(op, "input bias", w.input_bias, w.input);
  check_bias(op, "hidden bias", w.hidden_bias, w.hidden);
  int64_t hidden = w.input.size(0) / gates;
  if (!w.projection.defined()) {
    TS_CHECK(hx.size(1) == hidden, op, ": expected a hidden state of size ", hidden, ", got ", hx.size(1));
    return;
  }
  check_same_dtype(input, w.projection, op);
  TS_CHECK(w.projection.ndim() == 2 && w.projection.size(0) == hx.size(1) && w.projection.size(1) == hidden, op,
           ": expected a projection of shape [", hx.size(1), ", ", hidden, "], got ", w.projection.sizes());
}

std::vector<Tensor> traced_gradients(const std::vector<Tensor>& arguments, const std::vector<bool>& wanted,
                                     const std::vector<Tensor>& grads,
                                     const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& forward) {
  // Stand-ins end the walk: one argument may have been computed from another.
  std::vector<Tensor> stand_ins, inputs, found(arguments.size());
  for (const Tensor& t : arguments) stand_ins.push_back(t.defined() ? ops::view(t, t.sizes()) : t);
  for (size_t k = 0; k < arguments.size(); ++k)
    if (wanted[k]) inputs.push_back(stand_ins[k]);
  std::vector<Tensor> results = forward(stand_ins), roots, root_grads;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!grads[k].defined() || !requires_grad(results[k])) continue;
    roots.push_back(results[k]);
    root_grads.push_back(grads[k]);
  }
  if (roots.empty()) return found;
  BackwardOptions options;
  options.retain_graph = options.create_graph = options.allow_unused = true;
  options.accumulate = false;
  std::vector<Tensor> given = run_backward(roots, root_grads, inputs, options);
  for (size_t k = 0, next = 0; k < arguments.size(); ++k)
    if (wanted[k]) found[k] = given[next++];
  return found;
}

} // namespace ts::rnn
