// The three recurrent layers, one direction of one layer each. Their gradients through time: rnn_backward.cpp.
//
// One product makes the input's part of all steps; each step then adds the state's part and runs one fused pointwise
// program. Where a backend has a kernel for all steps of an LSTM, that walks them.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/raw.h"
#include "ops/linalg/matmul_launch.h"
#include "ops/nn/rnn_layer.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kRnnLayersCode =
    "walks over steps between products, all of an LSTM's by one kernel where there is one";

using namespace rnn;

const Op rnn_layers_simple_backward("_rnn_layer_backward"), rnn_layers_lstm_backward("_lstm_layer_backward"),
    rnn_layers_gru_backward("_gru_layer_backward");

Tensor outlined(int64_t rows, int64_t columns, const Tensor& like) {
  int64_t sizes[] = {rows, columns};
  return outline(sizes, like.dtype(), like.device());
}
Tensor rnn_layers_matrix(int64_t rows, int64_t columns, const Tensor& like) {
  int64_t sizes[] = {rows, columns};
  return empty_tensor(sizes, like.dtype(), like.device());
}
Tensor rnn_layers_turned(const Tensor& t) { return raw_transpose(t, 0, 1); }

// A weight that every step multiplies with, its rows one after another where that saves each step the rearranging.
Tensor turned_for(const Steps& steps, const Tensor& weight) {
  constexpr int64_t kStepsFrom = 4;
  return steps.length() < kStepsFrom ? rnn_layers_turned(weight) : raw_contiguous(rnn_layers_turned(weight));
}

// What the input gives to the gates of every row: input @ weight^T + bias (+ the other bias).
void input_part(const Tensor& gates, const Tensor& input, const Weights& w, bool both_biases) {
  Tensor bias = w.input_bias;
  if (both_biases && w.hidden_bias.defined()) bias = bias.defined() ? ops::add(bias, w.hidden_bias) : w.hidden_bias;
  launch_matmul(gates, input, rnn_layers_turned(w.input), bias);
}

// Of a layer's gradients those that anybody wants, a bit for each of the first `n` arguments.
int64_t wanted_bits(const GradContext& c, int n) {
  int64_t bits = 0;
  for (int k = 0; k < n; ++k) bits |= int64_t{c.needs(k)} << k;
  return bits;
}
Tensor arrived(GradContext& c, int result) { return c.has_grad(result) ? c.grad(result) : Tensor(); }
template <size_t N> void set_all(GradContext& c, const std::array<Tensor, N>& found) {
  for (size_t k = 0; k < N; ++k)
    if (c.needs(static_cast<int>(k))) c.set(static_cast<int>(k), found[k]);
}

// --- simple: h = tanh(gates) or relu(gates) ---------------------------------------------------------------------

using Two = std::tuple<Tensor, Tensor>;
const Fused kTanhForward("x", {"tanh(x)"}), kReluForward("x", {"max(x, 0)"});

Two rnn_layers_simple_rule(const Tensor& x, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                           const Tensor& b_ih, const Tensor& b_hh, IntSpan counts, bool reverse, bool) {
  check_layer("rnn", x, hx, {w_ih, w_hh, b_ih, b_hh, {}}, 1);
  Steps("rnn", counts, x.size(0), hx.size(0), reverse);
  return {outlined(x.size(0), hx.size(1), x), outlined(hx.size(0), hx.size(1), x)};
}
void simple_layer(const Tensor& out, const Tensor& last, const Tensor& given, const Tensor& hx, const Tensor& w_ih,
                  const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, IntSpan counts, bool reverse, bool relu) {
  Steps steps("rnn", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), initial = raw_contiguous(hx), gates = rnn_layers_matrix(x.size(0), w_ih.size(0), x);
  input_part(gates, x, {w_ih, w_hh, b_ih, b_hh, {}}, true);
  Tensor weight = turned_for(steps, w_hh), sums = rnn_layers_matrix(hx.size(0), w_hh.size(0), x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n);
    launch_matmul(sum, state_before(steps, t, out, initial), weight, rows_of(gates, start, n));
    (relu ? kReluForward : kTanhForward).run({rows_of(out, start, n)}, {sum});
  }
  raw_copy(last, last_states(steps, out));
}
void simple_gradient(GradContext& c) {
  auto found = rnn_layers_simple_backward.multi<6>(arrived(c, 0), arrived(c, 1), c.arg(0), c.arg(1), c.arg(2), c.arg(3),
                                                   c.arg(4), c.arg(5), c.result(0), c.value(6), c.value(7), c.value(8),
                                                   wanted_bits(c, 6));
  set_all(c, found);
}

// --- LSTM (Hochreiter and Schmidhuber 1997) ---------------------------------------------------------------------

const Fused kLstmForward("i f g o c", {"a=sigmoid(i)", "b=sigmoid(f)", "k=tanh(g)", "e=sigmoid(o)", "m=b * c + a * k",
                                       "a", "b", "k", "e", "m", "e * tanh(m)"});
using Six = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

void check_cell(const Tensor& hx, const Tensor& cx, const Weights& w) {
  check_same_dtype(hx, cx, "lstm");
  TS_CHECK(cx.ndim() == 2 && cx.size(0) == hx.size(0) && cx.size(1) == w.input.size(0) / 4,
           "lstm: expected a cell state of shape [", hx.size(0), ", ", w.input.size(0) / 4, "], got ", cx.sizes());
}

// Results: output, last hidden state, last cell, and for the gradient the gates, cells and hidden states before the
// projection (empty without one).
Six rnn_layers_lstm_rule(const Tensor& x, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
                         const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan counts, bool reverse) {
  Weights w{w_ih, w_hh, b_ih, b_hh, w_hr};
  check_layer("lstm", x, hx, w, 4);
  check_cell(hx, cx, w);
  Steps("lstm", counts, x.size(0), hx.size(0), reverse);
  int64_t rows = x.size(0), width = cx.size(1);
  return {outlined(rows, hx.size(1), x),  outlined(hx.size(0), hx.size(1), x),
          outlined(hx.size(0), width, x), outlined(rows, 4 * width, x),
          outlined(rows, width, x),       outlined(w_hr.defined() ? rows : 0, width, x)};
}
// All steps by one kernel, if there is one that takes them.
const KernelId kRnnLayersLstmSteps("lstm_steps");
bool lstm_steps(const Tensor& gates, const Tensor& cells, const Tensor& out, const Tensor& h0, const Tensor& c0,
                const Tensor& weight, IntSpan counts, bool reverse) {
  return Launch(kRnnLayersLstmSteps, out.device())
      .out(gates)
      .out(cells)
      .out(out)
      .in(h0)
      .in(c0)
      .in(weight)
      .param(counts)
      .param(reverse)
      .work(gates.numel() * out.size(1))
      .run();
}
void lstm_layer(const Tensor& out, const Tensor& last, const Tensor& last_cell, const Tensor& gates,
                const Tensor& cells, const Tensor& unprojected, const Tensor& given, const Tensor& hx, const Tensor& cx,
                const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr,
                IntSpan counts, bool reverse) {
  Steps steps("lstm", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), h0 = raw_contiguous(hx), c0 = raw_contiguous(cx);
  input_part(gates, x, {w_ih, w_hh, b_ih, b_hh, w_hr}, true);
  if (!w_hr.defined() && lstm_steps(gates, cells, out, h0, c0, w_hh, counts, reverse)) {
    raw_copy(last, last_states(steps, out));
    return raw_copy(last_cell, last_states(steps, cells));
  }
  int64_t width = cx.size(1);
  const Tensor &hidden = w_hr.defined() ? unprojected : out, weight = turned_for(steps, w_hh);
  Tensor sums = rnn_layers_matrix(hx.size(0), 4 * width, x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n), gate = rows_of(gates, start, n), h = rows_of(hidden, start, n);
    launch_matmul(sum, state_before(steps, t, out, h0), weight, gate);
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kLstmForward.run({piece(gate, 0), piece(gate, 1), piece(gate, 2), piece(gate, 3), rows_of(cells, start, n), h},
                     {piece(sum, 0), piece(sum, 1), piece(sum, 2), piece(sum, 3), state_before(steps, t, cells, c0)});
    if (w_hr.defined()) launch_matmul(rows_of(out, start, n), h, rnn_layers_turned(w_hr));
  }
  raw_copy(last, last_states(steps, out));
  raw_copy(last_cell, last_states(steps, cells));
}
void lstm_gradient(GradContext& c) {
  auto found = rnn_layers_lstm_backward.multi<8>(
      arrived(c, 0), arrived(c, 1), arrived(c, 2), c.arg(0), c.arg(1), c.arg(2), c.arg(3), c.arg(4), c.arg(5), c.arg(6),
      c.arg(7), c.result(0), c.result(3), c.result(4), c.result(5), c.value(8), c.value(9), wanted_bits(c, 8));
  set_all(c, found);
}

// --- GRU (Cho et al., arXiv:1406.1078) --------------------------------------------------------------------------

// x y v: the input's parts, r z n: the state's, h the state before.
const Fused kGruForward("x y v r z n h", {"a=sigmoid(x + r)", "b=sigmoid(y + z)", "k=tanh(v + a * n)", "a", "b", "k",
                                          "n", "k + b * (h - k)"});
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Results: output, last state, and for the gradient the gates and the state's part of the last of them.
Four rnn_layers_gru_rule(const Tensor& x, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                         const Tensor& b_hh, IntSpan counts, bool reverse) {
  check_layer("gru", x, hx, {w_ih, w_hh, b_ih, b_hh, {}}, 3);
  Steps("gru", counts, x.size(0), hx.size(0), reverse);
  int64_t rows = x.size(0), width = hx.size(1);
  return {outlined(rows, width, x), outlined(hx.size(0), width, x), outlined(rows, 3 * width, x),
          outlined(rows, width, x)};
}
void gru_layer(const Tensor& out, const Tensor& last, const Tensor& gates, const Tensor& inner, const Tensor& given,
               const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
               IntSpan counts, bool reverse) {
  Steps steps("gru", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), h0 = raw_contiguous(hx), weight = turned_for(steps, w_hh);
  input_part(gates, x, {w_ih, w_hh, b_ih, b_hh, {}}, false);
  int64_t width = hx.size(1);
  Tensor sums = rnn_layers_matrix(hx.size(0), 3 * width, x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n), gate = rows_of(gates, start, n), before = state_before(steps, t, out, h0);
    launch_matmul(sum, before, weight, b_hh);
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kGruForward.run(
        {piece(gate, 0), piece(gate, 1), piece(gate, 2), rows_of(inner, start, n), rows_of(out, start, n)},
        {piece(gate, 0), piece(gate, 1), piece(gate, 2), piece(sum, 0), piece(sum, 1), piece(sum, 2), before});
  }
  raw_copy(last, last_states(steps, out));
}
void gru_gradient(GradContext& c) {
  auto found = rnn_layers_gru_backward.multi<6>(arrived(c, 0), arrived(c, 1), c.arg(0), c.arg(1), c.arg(2), c.arg(3),
                                                c.arg(4), c.arg(5), c.result(0), c.result(2), c.result(3), c.value(6),
                                                c.value(7), wanted_bits(c, 6));
  set_all(c, found);
}

} // namespace

TS_OPERATORS(rnn_layers) {
  def("_rnn_layer(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, int[] batch_sizes, "
      "bool reverse, bool relu) -> (Tensor, Tensor)")
      .rule<rnn_layers_simple_rule>()
      .computation<simple_layer, 2>(kRnnLayersCode)
      .saves("input hx w_ih w_hh b_ih b_hh result0")
      .gradient(simple_gradient)
      .hidden()
      .doc("One direction of a simple recurrent layer over packed rows: outputs, and the state each sequence ends "
           "with.");
  def("_lstm_layer(Tensor input, Tensor hx, Tensor cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? "
      "w_hr, int[] batch_sizes, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
      .facts("kernel:lstm_steps")
      .rule<rnn_layers_lstm_rule>()
      .computation<lstm_layer, 6>(kRnnLayersCode)
      .saves("input hx cx w_ih w_hh b_ih b_hh w_hr result0 result3 result4 result5")
      .gradient(lstm_gradient)
      .hidden()
      .doc(
          "One direction of an LSTM layer over packed rows: outputs, last hidden state and cell, and what its gradient "
          "reads.");
  def("_gru_layer(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, int[] batch_sizes, "
      "bool reverse) -> (Tensor, Tensor, Tensor, Tensor)")
      .rule<rnn_layers_gru_rule>()
      .computation<gru_layer, 4>(kRnnLayersCode)
      .saves("input hx w_ih w_hh b_ih b_hh result0 result2 result3")
      .gradient(gru_gradient)
      .hidden()
      .doc("One direction of a GRU layer over packed rows: outputs, last state, and what its gradient reads.");
}

} // namespace ts
