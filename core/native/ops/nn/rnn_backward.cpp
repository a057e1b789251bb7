// Gradients of the recurrent layers through time: operators of their own, which walk the steps backwards and leave the
// weights' gradients to one product each. What differentiates them goes through the layer written with operators.
#include "autograd/traced.h"
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/linalg/matmul_launch.h"
#include "ops/nn/rnn_layer.h"
#include "ops/reduce/reduce_arrange.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRnnBackwardCode =
    "walks over steps between products, all of an LSTM's by one kernel where there is one";

using namespace rnn;

Tensor rnn_backward_matrix(int64_t rows, int64_t columns, const Tensor& like) {
  int64_t sizes[] = {rows, columns};
  return empty_tensor(sizes, like.dtype(), like.device());
}
Tensor rnn_backward_turned(const Tensor& t) { return raw_transpose(t, 0, 1); }

// The gradient of argument k: empty where nobody wants it.
bool is_wanted(int64_t wanted, int k) { return wanted >> k & 1; }
Tensor gradient_outline(int64_t wanted, int k, const Tensor& argument, const Tensor& like) {
  bool asked = is_wanted(wanted, k) && argument.defined();
  return outline(asked ? argument.sizes() : Dims{0}.span(), like.dtype(), like.device());
}
// A state's gradient as it is walked back: in the result's memory if it is wanted, from what arrives.
Tensor walked(const Tensor& result, bool wanted, const Tensor& arrived, const Tensor& like) {
  Tensor state = wanted ? result : rnn_backward_matrix(like.size(0), like.size(1), like);
  if (arrived.defined())
    raw_copy(state, arrived);
  else
    raw_fill(state, 0);
  return state;
}
Tensor dense(const Tensor& t) { return t.defined() ? raw_contiguous(t) : t; }

// Gradients that follow from those of the gates, for every cell alike. Those not wanted are empty.
struct Products {
  const Tensor &input, &input_weight, &hidden_weight, &input_bias, &hidden_bias;
};
void fill_products(const Products& to, const Tensor& input, const Tensor& input_weight, const Tensor& before,
                   const Tensor& input_gates, const Tensor& hidden_gates) {
  if (to.input.numel()) launch_matmul(to.input, input_gates, input_weight);
  if (to.input_weight.numel()) launch_matmul(to.input_weight, rnn_backward_turned(input_gates), input);
  if (to.hidden_weight.numel()) launch_matmul(to.hidden_weight, rnn_backward_turned(hidden_gates), before);
  if (to.input_bias.numel()) reduce_into(to.input_bias, TS_R_SUM, input_gates, 1);
  if (!to.hidden_bias.numel()) return;
  bool same_sums = to.input_bias.numel() && &input_gates == &hidden_gates;
  same_sums ? raw_copy(to.hidden_bias, to.input_bias) : reduce_into(to.hidden_bias, TS_R_SUM, hidden_gates, 1);
}

std::vector<bool> flags(int64_t wanted, int n) {
  std::vector<bool> out;
  for (int k = 0; k < n; ++k) out.push_back(is_wanted(wanted, k));
  return out;
}

// --- written with operators, for second derivatives ------------------------------------------------------------

// Calls `step(rows of the gates, states)` for every step and gathers the outputs; states[0] is the output's.
using TracedStep = std::function<void(const Tensor& gates, std::vector<Tensor>& states)>;
std::vector<Tensor> traced_walk(const Steps& steps, const Tensor& gates, std::vector<Tensor> states,
                                const TracedStep& step) {
  std::vector<Tensor> outputs(static_cast<size_t>(steps.length()));
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), batch = steps.batch();
    std::vector<Tensor> now;
    for (const Tensor& s : states) now.push_back(ops::narrow(s, int64_t{0}, int64_t{0}, n));
    step(ops::narrow(gates, int64_t{0}, steps.start(t), n), now);
    outputs[static_cast<size_t>(t)] = now[0];
    for (size_t s = 0; s < states.size(); ++s) {
      std::vector<Tensor> parts{now[s]};
      if (n < batch) parts.push_back(ops::narrow(states[s], int64_t{0}, n, batch - n));
      states[s] = n < batch ? ops::cat(parts, int64_t{0}) : now[s];
    }
  }
  std::vector<Tensor> results{ops::cat(outputs, int64_t{0})};
  for (Tensor& s : states) results.push_back(std::move(s));
  return results;
}

Tensor part(const Tensor& t, int64_t k, int64_t width) { return ops::narrow(t, int64_t{1}, k * width, width); }
Tensor traced_linear(const Tensor& x, const Tensor& w, const Tensor& b) { return ops::linear(x, w, b); }

// --- simple -----------------------------------------------------------------------------------------------------

using Six = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using Eight = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
const Fused kTanhBackward("h d e", {"(d + e) * (1 - h * h)"}), kReluBackward("h d e", {"select(h > 0, d + e, 0)"});

std::vector<Tensor> traced_simple(const std::vector<Tensor>& a, IntSpan counts, bool reverse, bool relu) {
  Steps steps("rnn", counts, a[0].size(0), a[1].size(0), reverse);
  return traced_walk(steps, traced_linear(a[0], a[2], a[4]), {a[1]}, [&](const Tensor& gates, auto& s) {
    Tensor sum = ops::add(gates, traced_linear(s[0], a[3], a[5]));
    s[0] = relu ? ops::relu(sum) : ops::tanh(sum);
  });
}

Six rnn_backward_simple_rule(const Tensor&, const Tensor&, const Tensor& x, const Tensor& hx, const Tensor& w_ih,
                             const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& out, IntSpan,
                             bool, bool, int64_t wanted) {
  auto of = [&](int k, const Tensor& t) { return gradient_outline(wanted, k, t, out); };
  return {of(0, x), of(1, hx), of(2, w_ih), of(3, w_hh), of(4, b_ih), of(5, b_hh)};
}
void rnn_backward_simple_backward(const Tensor& dx, const Tensor& dhx, const Tensor& dw_ih, const Tensor& dw_hh,
                                  const Tensor& db_ih, const Tensor& db_hh, const Tensor& grad,
                                  const Tensor& grad_state, const Tensor& input, const Tensor& hx, const Tensor& w_ih,
                                  const Tensor& w_hh, const Tensor&, const Tensor&, const Tensor& out, IntSpan counts,
                                  bool reverse, bool relu, int64_t wanted) {
  Tensor x = raw_contiguous(input), initial = raw_contiguous(hx), d_out = dense(grad);
  Steps steps("rnn", counts, x.size(0), initial.size(0), reverse);
  Tensor d_state = walked(dhx, is_wanted(wanted, 1), grad_state, initial);
  Tensor d_gates = rnn_backward_matrix(out.size(0), out.size(1), out);
  for (int64_t k = steps.length(); k-- > 0;) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor d = rows_of(d_gates, start, n), state = rows_of(d_state, 0, n);
    (relu ? kReluBackward : kTanhBackward)
        .run({d}, {rows_of(out, start, n), state, d_out.defined() ? rows_of(d_out, start, n) : d_out});
    launch_matmul(state, d, w_hh);
  }
  fill_products({dx, dw_ih, dw_hh, db_ih, db_hh}, x, w_ih, states_before(steps, out, initial), d_gates, d_gates);
}
Six simple_traced(const Tensor& grad, const Tensor& grad_state, const Tensor& x, const Tensor& hx, const Tensor& w_ih,
                  const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor&, IntSpan counts,
                  bool reverse, bool relu, int64_t wanted) {
  auto d = traced_gradients({x, hx, w_ih, w_hh, b_ih, b_hh}, flags(wanted, 6), {grad, grad_state},
                            [&](const auto& a) { return traced_simple(a, counts, reverse, relu); });
  return {d[0], d[1], d[2], d[3], d[4], d[5]};
}

// --- LSTM -------------------------------------------------------------------------------------------------------

// i f g o are the gates' values, c the cell, p the cell before, dh + e and dc what arrives.
const Fused kLstmBackward("i f g o c p h e d",
                          {"t=tanh(c)", "s=h + e", "m=d + s * o * (1 - t * t)", "m * g * i * (1 - i)",
                           "m * p * f * (1 - f)", "m * i * (1 - g * g)", "s * t * o * (1 - o)", "m * f"});

std::vector<Tensor> traced_lstm(const std::vector<Tensor>& a, IntSpan counts, bool reverse) {
  Steps steps("lstm", counts, a[0].size(0), a[1].size(0), reverse);
  int64_t width = a[2].size(1);
  return traced_walk(steps, traced_linear(a[0], a[3], a[5]), {a[1], a[2]}, [&](const Tensor& gates, auto& s) {
    Tensor sum = ops::add(gates, traced_linear(s[0], a[4], a[6]));
    Tensor forgotten = ops::mul(ops::sigmoid(part(sum, 1, width)), s[1]);
    s[1] = ops::add(forgotten, ops::mul(ops::sigmoid(part(sum, 0, width)), ops::tanh(part(sum, 2, width))));
    s[0] = ops::mul(ops::sigmoid(part(sum, 3, width)), ops::tanh(s[1]));
    if (a[7].defined()) s[0] = traced_linear(s[0], a[7], {});
  });
}

Eight rnn_backward_lstm_rule(const Tensor&, const Tensor&, const Tensor&, const Tensor& x, const Tensor& hx,
                             const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                             const Tensor& b_hh, const Tensor& w_hr, const Tensor& out, const Tensor&, const Tensor&,
                             const Tensor&, IntSpan, bool, int64_t wanted) {
  auto of = [&](int k, const Tensor& t) { return gradient_outline(wanted, k, t, out); };
  return {of(0, x), of(1, hx), of(2, cx), of(3, w_ih), of(4, w_hh), of(5, b_ih), of(6, b_hh), of(7, w_hr)};
}
// All steps by one kernel, if there is one that takes them.
const KernelId kRnnBackwardLstmSteps("lstm_steps_backward");
bool lstm_steps_backward(const Tensor& d_gates, const Tensor& d_state, const Tensor& d_cell, const Tensor& d_out,
                         const Tensor& gates, const Tensor& cells, const Tensor& c0, const Tensor& weight,
                         IntSpan counts, bool reverse) {
  return Launch(kRnnBackwardLstmSteps, gates.device())
      .out(d_gates)
      .out(d_state)
      .out(d_cell)
      .in(d_out)
      .in(gates)
      .in(cells)
      .in(c0)
      .in(weight)
      .param(counts)
      .param(reverse)
      .work(gates.numel() * c0.size(1))
      .run();
}
void rnn_backward_lstm_backward(const Tensor& dx, const Tensor& dhx, const Tensor& dcx, const Tensor& dw_ih,
                                const Tensor& dw_hh, const Tensor& db_ih, const Tensor& db_hh, const Tensor& dw_hr,
                                const Tensor& grad, const Tensor& grad_state, const Tensor& grad_cell,
                                const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih,
                                const Tensor& w_hh, const Tensor&, const Tensor&, const Tensor& w_hr, const Tensor& out,
                                const Tensor& gates, const Tensor& cells, const Tensor& hidden, IntSpan counts,
                                bool reverse, int64_t wanted) {
  static const Fused kAdd("a b", {"a + b"});
  Tensor x = raw_contiguous(input), h0 = raw_contiguous(hx), c0 = raw_contiguous(cx), d_out = dense(grad);
  bool projected = w_hr.defined();
  Steps steps("lstm", counts, x.size(0), h0.size(0), reverse);
  int64_t width = c0.size(1);
  Tensor d_state = walked(dhx, is_wanted(wanted, 1), grad_state, h0),
         d_cell = walked(dcx, is_wanted(wanted, 2), grad_cell, c0);
  Tensor d_gates = rnn_backward_matrix(gates.size(0), gates.size(1), gates);
  Tensor d_hidden = projected ? rnn_backward_matrix(h0.size(0), width, x) : Tensor();
  Tensor d_projected = projected ? rnn_backward_matrix(x.size(0), h0.size(1), x) : Tensor();
  bool walked_back =
      !projected && lstm_steps_backward(d_gates, d_state, d_cell, d_out, gates, cells, c0, w_hh, counts, reverse);
  for (int64_t k = walked_back ? 0 : steps.length(); k-- > 0;) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor d = rows_of(d_gates, start, n), gate = rows_of(gates, start, n), state = rows_of(d_state, 0, n);
    Tensor cell = rows_of(d_cell, 0, n), arriving = d_out.defined() ? rows_of(d_out, start, n) : Tensor();
    Tensor dh = state;
    if (projected) {
      Tensor both = rows_of(d_projected, start, n);
      kAdd.run({both}, {state, arriving});
      dh = rows_of(d_hidden, 0, n);
      launch_matmul(dh, both, w_hr);
      arriving = Tensor();
    }
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kLstmBackward.run({piece(d, 0), piece(d, 1), piece(d, 2), piece(d, 3), cell},
                      {piece(gate, 0), piece(gate, 1), piece(gate, 2), piece(gate, 3), rows_of(cells, start, n),
                       state_before(steps, t, cells, c0), dh, arriving, cell});
    launch_matmul(state, d, w_hh);
  }
  fill_products({dx, dw_ih, dw_hh, db_ih, db_hh}, x, w_ih, states_before(steps, out, h0), d_gates, d_gates);
  if (dw_hr.numel()) launch_matmul(dw_hr, rnn_backward_turned(d_projected), hidden);
}
Eight lstm_traced(const Tensor& grad, const Tensor& grad_state, const Tensor& grad_cell, const Tensor& x,
                  const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                  const Tensor& b_hh, const Tensor& w_hr, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                  IntSpan counts, bool reverse, int64_t wanted) {
  auto d = traced_gradients({x, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr}, flags(wanted, 8), {grad, grad_state, grad_cell},
                            [&](const auto& a) { return traced_lstm(a, counts, reverse); });
  return {d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]};
}

// --- GRU --------------------------------------------------------------------------------------------------------

// r z n: the gates' values, q the state's part of the last, h the state before, d + e what arrives.
const Fused kGruBackward("r z n q h d e", {"s=d + e", "v=s * (1 - z) * (1 - n * n)", "y=s * (h - n) * z * (1 - z)",
                                           "x=v * q * r * (1 - r)", "x", "y", "v", "x", "y", "v * r", "s * z"});

std::vector<Tensor> traced_gru(const std::vector<Tensor>& a, IntSpan counts, bool reverse) {
  Steps steps("gru", counts, a[0].size(0), a[1].size(0), reverse);
  int64_t width = a[1].size(1);
  return traced_walk(steps, traced_linear(a[0], a[2], a[4]), {a[1]}, [&](const Tensor& gates, auto& s) {
    Tensor sum = traced_linear(s[0], a[3], a[5]);
    Tensor r = ops::sigmoid(ops::add(part(gates, 0, width), part(sum, 0, width)));
    Tensor z = ops::sigmoid(ops::add(part(gates, 1, width), part(sum, 1, width)));
    Tensor n = ops::tanh(ops::add(part(gates, 2, width), ops::mul(r, part(sum, 2, width))));
    s[0] = ops::add(n, ops::mul(z, ops::sub(s[0], n)));
  });
}

Six rnn_backward_gru_rule(const Tensor&, const Tensor&, const Tensor& x, const Tensor& hx, const Tensor& w_ih,
                          const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& out, const Tensor&,
                          const Tensor&, IntSpan, bool, int64_t wanted) {
  auto of = [&](int k, const Tensor& t) { return gradient_outline(wanted, k, t, out); };
  return {of(0, x), of(1, hx), of(2, w_ih), of(3, w_hh), of(4, b_ih), of(5, b_hh)};
}
void rnn_backward_gru_backward(const Tensor& dx, const Tensor& dhx, const Tensor& dw_ih, const Tensor& dw_hh,
                               const Tensor& db_ih, const Tensor& db_hh, const Tensor& grad, const Tensor& grad_state,
                               const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor&, const Tensor&, const Tensor& out, const Tensor& gates,
                               const Tensor& inner, IntSpan counts, bool reverse, int64_t wanted) {
  Tensor x = raw_contiguous(input), h0 = raw_contiguous(hx), d_out = dense(grad);
  Steps steps("gru", counts, x.size(0), h0.size(0), reverse);
  int64_t width = h0.size(1), rows = x.size(0);
  Tensor d_state = walked(dhx, is_wanted(wanted, 1), grad_state, h0);
  Tensor d_input = rnn_backward_matrix(rows, 3 * width, x), d_hidden = rnn_backward_matrix(rows, 3 * width, x);
  Tensor kept = rnn_backward_matrix(h0.size(0), width, x);
  for (int64_t k = steps.length(); k-- > 0;) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor di = rows_of(d_input, start, n), dh = rows_of(d_hidden, start, n), gate = rows_of(gates, start, n);
    Tensor state = rows_of(d_state, 0, n), keep = rows_of(kept, 0, n);
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kGruBackward.run({piece(di, 0), piece(di, 1), piece(di, 2), piece(dh, 0), piece(dh, 1), piece(dh, 2), keep},
                     {piece(gate, 0), piece(gate, 1), piece(gate, 2), rows_of(inner, start, n),
                      state_before(steps, t, out, h0), state, d_out.defined() ? rows_of(d_out, start, n) : d_out});
    launch_matmul(state, dh, w_hh, keep);
  }
  fill_products({dx, dw_ih, dw_hh, db_ih, db_hh}, x, w_ih, states_before(steps, out, h0), d_input, d_hidden);
}
Six gru_traced(const Tensor& grad, const Tensor& grad_state, const Tensor& x, const Tensor& hx, const Tensor& w_ih,
               const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor&, const Tensor&, const Tensor&,
               IntSpan counts, bool reverse, int64_t wanted) {
  auto d = traced_gradients({x, hx, w_ih, w_hh, b_ih, b_hh}, flags(wanted, 6), {grad, grad_state},
                            [&](const auto& a) { return traced_gru(a, counts, reverse); });
  return {d[0], d[1], d[2], d[3], d[4], d[5]};
}

} // namespace

TS_OPERATORS(rnn_backward) {
  def("_rnn_layer_backward(Tensor? grad, Tensor? grad_state, Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, "
      "Tensor? b_ih, Tensor? b_hh, Tensor output, int[] batch_sizes, bool reverse, bool relu, int wanted) -> (Tensor, "
      "Tensor, Tensor, Tensor, Tensor, Tensor)")
      .rule<rnn_backward_simple_rule>()
      .computation<rnn_backward_simple_backward, 6>(kRnnBackwardCode)
      .saves("grad grad_state input hx w_ih w_hh b_ih b_hh output")
      .gradient(traced_gradient<simple_traced>)
      .hidden()
      .doc("Gradients of _rnn_layer by its tensors; bits of wanted say which, the others are empty.");
  def("_lstm_layer_backward(Tensor? grad, Tensor? grad_state, Tensor? grad_cell, Tensor input, Tensor hx, Tensor cx, "
      "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, Tensor output, Tensor gates, Tensor cells, "
      "Tensor hidden, int[] batch_sizes, bool reverse, int wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
      "Tensor, Tensor)")
      .facts("kernel:lstm_steps_backward")
      .rule<rnn_backward_lstm_rule>()
      .computation<rnn_backward_lstm_backward, 8>(kRnnBackwardCode)
      .saves("grad grad_state grad_cell input hx cx w_ih w_hh b_ih b_hh w_hr output gates cells hidden")
      .gradient(traced_gradient<lstm_traced>)
      .hidden()
      .doc("Gradients of _lstm_layer by its tensors; bits of wanted say which, the others are empty.");
  def("_gru_layer_backward(Tensor? grad, Tensor? grad_state, Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, "
      "Tensor? b_ih, Tensor? b_hh, Tensor output, Tensor gates, Tensor inner, int[] batch_sizes, bool reverse, int "
      "wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
      .rule<rnn_backward_gru_rule>()
      .computation<rnn_backward_gru_backward, 6>(kRnnBackwardCode)
      .saves("grad grad_state input hx w_ih w_hh b_ih b_hh output gates inner")
      .gradient(traced_gradient<gru_traced>)
      .hidden()
      .doc("Gradients of _gru_layer by its tensors; bits of wanted say which, the others are empty.");
}

} // namespace ts
