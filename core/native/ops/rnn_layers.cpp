// The three recurrent layers, one direction of one layer each, with their gradients through time.
//
// One product makes the input's part of all steps; each step then adds the state's part and runs one fused pointwise
// program. Backward walks the steps once more and leaves the weights' gradients to one product each.
#include "ops/api.h"
#include "ops/declare.h"
#include "ops/matmul_launch.h"
#include "ops/raw.h"
#include "ops/reduce_arrange.h"
#include "ops/rnn_layer.h"

namespace ts {
namespace {

using namespace rnn;

Tensor matrix(int64_t rows, int64_t columns, const Tensor& like) {
  int64_t sizes[] = {rows, columns};
  return empty_tensor(sizes, like.dtype(), like.device());
}
Tensor turned(const Tensor& t) { return raw_transpose(t, 0, 1); }

// What the input gives to the gates of every row: input @ weight^T + bias (+ the other bias).
Tensor input_part(const Tensor& input, const Weights& w, bool both_biases) {
  Tensor bias = w.input_bias;
  if (both_biases && w.hidden_bias.defined()) bias = bias.defined() ? ops::add(bias, w.hidden_bias) : w.hidden_bias;
  Tensor gates = matrix(input.size(0), w.input.size(0), input);
  launch_matmul(gates, input, turned(w.input), bias);
  return gates;
}

// Sum over the rows.
Tensor column_sums(const Tensor& t) { return run_reduce("rnn", TS_R_SUM, t, 1, false, t.dtype()); }

Tensor copy_of(const Tensor& t) {
  Tensor copy = matrix(t.size(0), t.size(1), t);
  raw_copy(copy, t);
  return copy;
}

// Gradients that follow from those of the gates, for every cell alike: arguments are numbered as the operators'.
struct LayerArguments {
  int input, input_weight, hidden_weight, input_bias, hidden_bias;
};
void set_products(GradContext& c, const LayerArguments& k, const Tensor& input, const Tensor& input_weight,
                  const Tensor& before, const Tensor& input_gates, const Tensor& hidden_gates) {
  if (c.needs(k.input)) c.set(k.input, multiply_matrices(input_gates, input_weight, "rnn"));
  if (c.needs(k.input_weight)) c.set(k.input_weight, multiply_matrices(turned(input_gates), input, "rnn"));
  if (c.needs(k.hidden_weight)) c.set(k.hidden_weight, multiply_matrices(turned(hidden_gates), before, "rnn"));
  if (c.needs(k.input_bias)) c.set(k.input_bias, column_sums(input_gates));
  if (c.needs(k.hidden_bias)) c.set(k.hidden_bias, column_sums(hidden_gates));
}

std::vector<Tensor> saved_arguments(GradContext& c, int count) {
  std::vector<Tensor> all;
  for (int k = 0; k < count; ++k) all.push_back(c.arg(k));
  return all;
}
void set_traced(GradContext& c, int arguments, int results,
                const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& forward) {
  std::vector<bool> wanted;
  std::vector<Tensor> grads;
  for (int k = 0; k < arguments; ++k) wanted.push_back(c.needs(k));
  for (int k = 0; k < results; ++k) grads.push_back(c.has_grad(k) ? c.grad(k) : Tensor());
  std::vector<Tensor> found = traced_gradients(saved_arguments(c, arguments), wanted, grads, forward);
  for (int k = 0; k < arguments; ++k)
    if (found[static_cast<size_t>(k)].defined()) c.set(k, found[static_cast<size_t>(k)]);
}
bool plain_gradients(GradContext& c, int results) {
  KeySet keys = 0;
  for (int k = 0; k < results; ++k)
    if (c.has_grad(k)) keys |= keys_of(c.grad(k));
  return is_plain(keys | keys_of(c.arg(0)) | keys_of(c.arg(1)) | keys_of(c.arg(2)) | keys_of(c.arg(3)));
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

// --- simple: h = tanh(gates) or relu(gates) ---------------------------------------------------------------------

using Two = std::tuple<Tensor, Tensor>;
const Fused kTanhForward("x", {"tanh(x)"}), kReluForward("x", {"max(x, 0)"});
const Fused kTanhBackward("h d e", {"(d + e) * (1 - h * h)"}), kReluBackward("h d e", {"select(h > 0, d + e, 0)"});

Two simple_layer(const Tensor& given, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                 const Tensor& b_hh, IntSpan counts, bool reverse, bool relu) {
  Weights w{w_ih, w_hh, b_ih, b_hh, {}};
  check_layer("rnn", given, hx, w, 1);
  Steps steps("rnn", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), initial = raw_contiguous(hx), gates = input_part(x, w, true);
  Tensor out = matrix(x.size(0), hx.size(1), x), weight = turned(w_hh);
  Tensor sums = matrix(hx.size(0), w_hh.size(0), x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n);
    launch_matmul(sum, state_before(steps, t, out, initial), weight, rows_of(gates, start, n));
    (relu ? kReluForward : kTanhForward).run({rows_of(out, start, n)}, {sum});
  }
  return {out, last_states(steps, out)};
}

std::vector<Tensor> traced_simple(const std::vector<Tensor>& a, IntSpan counts, bool reverse, bool relu) {
  Steps steps("rnn", counts, a[0].size(0), a[1].size(0), reverse);
  return traced_walk(steps, traced_linear(a[0], a[2], a[4]), {a[1]}, [&](const Tensor& gates, auto& s) {
    Tensor sum = ops::add(gates, traced_linear(s[0], a[3], a[5]));
    s[0] = relu ? ops::relu(sum) : ops::tanh(sum);
  });
}

void simple_gradient(GradContext& c) {
  IntSpan counts = c.value<IntSpan>(6);
  bool reverse = c.value<bool>(7), relu = c.value<bool>(8);
  if (!plain_gradients(c, 2))
    return set_traced(c, 6, 2, [&](const auto& a) { return traced_simple(a, counts, reverse, relu); });
  Tensor x = raw_contiguous(c.arg(0)), initial = raw_contiguous(c.arg(1)), w_hh = c.arg(3), out = c.result(0);
  Steps steps("rnn", counts, x.size(0), initial.size(0), reverse);
  Tensor d_out = c.has_grad(0) ? raw_contiguous(c.grad(0)) : Tensor(), d_state = copy_of(c.grad(1));
  Tensor d_gates = matrix(out.size(0), out.size(1), out);
  for (int64_t k = steps.length(); k-- > 0;) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor d = rows_of(d_gates, start, n), state = rows_of(d_state, 0, n);
    (relu ? kReluBackward : kTanhBackward)
        .run({d}, {rows_of(out, start, n), state, d_out.defined() ? rows_of(d_out, start, n) : d_out});
    launch_matmul(state, d, w_hh);
  }
  set_products(c, {0, 2, 3, 4, 5}, x, c.arg(2), states_before(steps, out, initial), d_gates, d_gates);
  if (c.needs(1)) c.set(1, d_state);
}

// --- LSTM (Hochreiter and Schmidhuber 1997) ---------------------------------------------------------------------

const Fused kLstmForward("i f g o c", {"a=sigmoid(i)", "b=sigmoid(f)", "k=tanh(g)", "e=sigmoid(o)", "m=b * c + a * k",
                                       "a", "b", "k", "e", "m", "e * tanh(m)"});
// i f g o are the gates' values, c the cell, p the cell before, dh + e and dc what arrives.
const Fused kLstmBackward("i f g o c p h e d",
                          {"t=tanh(c)", "s=h + e", "m=d + s * o * (1 - t * t)", "m * g * i * (1 - i)",
                           "m * p * f * (1 - f)", "m * i * (1 - g * g)", "s * t * o * (1 - o)", "m * f"});

using Six = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

void check_cell(const Tensor& hx, const Tensor& cx, const Weights& w) {
  check_same_dtype(hx, cx, "lstm");
  TS_CHECK(cx.ndim() == 2 && cx.size(0) == hx.size(0) && cx.size(1) == w.input.size(0) / 4,
           "lstm: expected a cell state of shape [", hx.size(0), ", ", w.input.size(0) / 4, "], got ", cx.sizes());
}

// Results: output, last hidden state, last cell, and for the gradient the gates, cells and hidden states before the
// projection (empty without one).
Six lstm_layer(const Tensor& given, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
               const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan counts, bool reverse) {
  Weights w{w_ih, w_hh, b_ih, b_hh, w_hr};
  check_layer("lstm", given, hx, w, 4);
  check_cell(hx, cx, w);
  Steps steps("lstm", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), h0 = raw_contiguous(hx), c0 = raw_contiguous(cx), gates = input_part(x, w, true);
  int64_t rows = x.size(0), width = cx.size(1);
  bool projected = w_hr.defined();
  Tensor hidden = matrix(rows, width, x), cells = matrix(rows, width, x);
  Tensor out = projected ? matrix(rows, hx.size(1), x) : hidden, weight = turned(w_hh);
  Tensor sums = matrix(hx.size(0), 4 * width, x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n), gate = rows_of(gates, start, n), h = rows_of(hidden, start, n);
    launch_matmul(sum, state_before(steps, t, out, h0), weight, gate);
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kLstmForward.run({piece(gate, 0), piece(gate, 1), piece(gate, 2), piece(gate, 3), rows_of(cells, start, n), h},
                     {piece(sum, 0), piece(sum, 1), piece(sum, 2), piece(sum, 3), state_before(steps, t, cells, c0)});
    if (projected) launch_matmul(rows_of(out, start, n), h, turned(w_hr));
  }
  Tensor last = last_states(steps, out), last_cell = last_states(steps, cells);
  return {out, last, last_cell, gates, cells, projected ? hidden : matrix(0, width, x)};
}

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

void lstm_gradient(GradContext& c) {
  IntSpan counts = c.value<IntSpan>(8);
  bool reverse = c.value<bool>(9);
  if (!plain_gradients(c, 3))
    return set_traced(c, 8, 3, [&](const auto& a) { return traced_lstm(a, counts, reverse); });
  Tensor x = raw_contiguous(c.arg(0)), h0 = raw_contiguous(c.arg(1)), c0 = raw_contiguous(c.arg(2));
  Tensor w_hh = c.arg(4), w_hr = c.arg(7), out = c.result(0), gates = c.result(3), cells = c.result(4);
  bool projected = w_hr.defined();
  Steps steps("lstm", counts, x.size(0), h0.size(0), reverse);
  int64_t width = c0.size(1);
  Tensor d_out = c.has_grad(0) ? raw_contiguous(c.grad(0)) : Tensor();
  Tensor d_state = copy_of(c.grad(1)), d_cell = copy_of(c.grad(2));
  Tensor d_gates = matrix(gates.size(0), gates.size(1), gates);
  Tensor d_hidden = projected ? matrix(h0.size(0), width, x) : Tensor();
  Tensor d_projected = projected ? matrix(x.size(0), h0.size(1), x) : Tensor();
  for (int64_t k = steps.length(); k-- > 0;) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor d = rows_of(d_gates, start, n), gate = rows_of(gates, start, n), state = rows_of(d_state, 0, n);
    Tensor cell = rows_of(d_cell, 0, n), arriving = d_out.defined() ? rows_of(d_out, start, n) : Tensor();
    Tensor dh = state;
    if (projected) {
      static const Fused kAdd("a b", {"a + b"});
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
  set_products(c, {0, 3, 4, 5, 6}, x, c.arg(3), states_before(steps, out, h0), d_gates, d_gates);
  if (c.needs(1)) c.set(1, d_state);
  if (c.needs(2)) c.set(2, d_cell);
  if (c.needs(7)) c.set(7, multiply_matrices(turned(d_projected), c.result(5), "lstm"));
}

// --- GRU (Cho et al., arXiv:1406.1078) --------------------------------------------------------------------------

// x y v: the input's parts, r z n: the state's, h the state before.
const Fused kGruForward("x y v r z n h", {"a=sigmoid(x + r)", "b=sigmoid(y + z)", "k=tanh(v + a * n)", "a", "b", "k",
                                          "n", "k + b * (h - k)"});
// r z n: the gates' values, q the state's part of the last, h the state before, d + e what arrives.
const Fused kGruBackward("r z n q h d e", {"s=d + e", "v=s * (1 - z) * (1 - n * n)", "y=s * (h - n) * z * (1 - z)",
                                           "x=v * q * r * (1 - r)", "x", "y", "v", "x", "y", "v * r", "s * z"});

using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Four gru_layer(const Tensor& given, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
               const Tensor& b_hh, IntSpan counts, bool reverse) {
  Weights w{w_ih, w_hh, b_ih, b_hh, {}};
  check_layer("gru", given, hx, w, 3);
  Steps steps("gru", counts, given.size(0), hx.size(0), reverse);
  Tensor x = raw_contiguous(given), h0 = raw_contiguous(hx), gates = input_part(x, w, false);
  int64_t rows = x.size(0), width = hx.size(1);
  Tensor out = matrix(rows, width, x), inner = matrix(rows, width, x), weight = turned(w_hh);
  Tensor sums = matrix(hx.size(0), 3 * width, x);
  for (int64_t k = 0; k < steps.length(); ++k) {
    int64_t t = steps.at(k), n = steps.count(t), start = steps.start(t);
    Tensor sum = rows_of(sums, 0, n), gate = rows_of(gates, start, n), before = state_before(steps, t, out, h0);
    launch_matmul(sum, before, weight, b_hh);
    auto piece = [&](const Tensor& m, int64_t p) { return columns_of(m, p * width, width); };
    kGruForward.run(
        {piece(gate, 0), piece(gate, 1), piece(gate, 2), rows_of(inner, start, n), rows_of(out, start, n)},
        {piece(gate, 0), piece(gate, 1), piece(gate, 2), piece(sum, 0), piece(sum, 1), piece(sum, 2), before});
  }
  return {out, last_states(steps, out), gates, inner};
}

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

void gru_gradient(GradContext& c) {
  IntSpan counts = c.value<IntSpan>(6);
  bool reverse = c.value<bool>(7);
  if (!plain_gradients(c, 2)) return set_traced(c, 6, 2, [&](const auto& a) { return traced_gru(a, counts, reverse); });
  Tensor x = raw_contiguous(c.arg(0)), h0 = raw_contiguous(c.arg(1)), w_hh = c.arg(3);
  Tensor out = c.result(0), gates = c.result(2), inner = c.result(3);
  Steps steps("gru", counts, x.size(0), h0.size(0), reverse);
  int64_t width = h0.size(1), rows = x.size(0);
  Tensor d_out = c.has_grad(0) ? raw_contiguous(c.grad(0)) : Tensor(), d_state = copy_of(c.grad(1));
  Tensor d_input = matrix(rows, 3 * width, x), d_hidden = matrix(rows, 3 * width, x);
  Tensor kept = matrix(h0.size(0), width, x);
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
  set_products(c, {0, 2, 3, 4, 5}, x, c.arg(2), states_before(steps, out, h0), d_input, d_hidden);
  if (c.needs(1)) c.set(1, d_state);
}

} // namespace

TS_OPERATORS(rnn_layers) {
  def("_rnn_layer(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, int[] batch_sizes, "
      "bool reverse, bool relu) -> (Tensor, Tensor)")
      .body<simple_layer>()
      .saves("input hx w_ih w_hh b_ih b_hh result0")
      .gradient(simple_gradient)
      .hidden()
      .doc("One direction of a simple recurrent layer over packed rows: outputs, and the state each sequence ends "
           "with.");
  def("_lstm_layer(Tensor input, Tensor hx, Tensor cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? "
      "w_hr, int[] batch_sizes, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
      .body<lstm_layer>()
      .saves("input hx cx w_ih w_hh b_ih b_hh w_hr result0 result3 result4 result5")
      .gradient(lstm_gradient)
      .hidden()
      .doc(
          "One direction of an LSTM layer over packed rows: outputs, last hidden state and cell, and what its gradient "
          "reads.");
  def("_gru_layer(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, int[] batch_sizes, "
      "bool reverse) -> (Tensor, Tensor, Tensor, Tensor)")
      .body<gru_layer>()
      .saves("input hx w_ih w_hh b_ih b_hh result0 result2 result3")
      .gradient(gru_gradient)
      .hidden()
      .doc("One direction of a GRU layer over packed rows: outputs, last state, and what its gradient reads.");
}

} // namespace ts
