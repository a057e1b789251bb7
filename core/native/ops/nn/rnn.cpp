// Recurrent networks of several layers and directions, and their single cells.
#include "dispatch/op_handles.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "runtime/backend.h"
#include "tensor/geometry.h"
#include <algorithm>

namespace ts {
namespace {

const Op simple_layer_op("_rnn_layer"), lstm_layer_op("_lstm_layer"), gru_layer_op("_gru_layer"),
    rnn_dropout_op("dropout");

enum class Cell { Tanh, Relu, Lstm, Gru };
const char* name_of(Cell cell) {
  switch (cell) {
  case Cell::Tanh: return "rnn_tanh";
  case Cell::Relu: return "rnn_relu";
  case Cell::Lstm: return "lstm";
  default: return "gru";
  }
}

struct Options {
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
  int64_t directions() const { return bidirectional ? 2 : 1; }
};

// The last states of all layers and directions: hidden ones, and cells of an LSTM.
struct Network {
  Tensor output, hidden, cells;
};

void check_states(const char* op, TensorList states, const Options& o) {
  TS_CHECK_VALUE(o.num_layers > 0, op, ": num_layers must be greater than zero, got ", o.num_layers);
  TS_CHECK_VALUE(o.dropout >= 0 && o.dropout <= 1, op, ": dropout probability has to be between 0 and 1, but got ",
                 o.dropout);
  for (const Tensor& t : states)
    TS_CHECK(t.defined() && t.ndim() == 3 && t.size(0) / o.directions() == o.num_layers &&
                 t.size(0) % o.directions() == 0 && t.size(1) == states[0].size(1),
             op, ": expected initial states of ", o.num_layers, " layers in ", o.directions(),
             " direction(s) as (layers * directions, batch, size), got ", t.defined() ? t.sizes() : IntSpan());
}

Network walk(Cell cell, Tensor rows, IntSpan counts, TensorList states, TensorList params, const Options& o) {
  const char* op = name_of(cell);
  check_states(op, states, o);
  bool projected = cell == Cell::Lstm && states[0].size(2) != states[1].size(2);
  size_t per_layer = 2 + (o.has_biases ? 2 : 0) + (projected ? 1 : 0);
  size_t cells = static_cast<size_t>(o.num_layers * o.directions());
  TS_CHECK(params.size() == per_layer * cells, op, ": expected ", per_layer * cells, " parameters, got ",
           params.size());
  std::vector<Tensor> hidden, cell_states, outputs; // outputs: of the directions of one layer
  for (size_t k = 0; k < cells; ++k) {
    TensorList p = params.subspan(k * per_layer, per_layer);
    int64_t index = static_cast<int64_t>(k);
    bool reverse = o.bidirectional && k % 2 == 1;
    Tensor b_ih = o.has_biases ? p[2] : Tensor(), b_hh = o.has_biases ? p[3] : Tensor();
    Tensor h = ops::select(states[0], int64_t{0}, index);
    if (cell == Cell::Lstm) {
      Tensor c = ops::select(states[1], int64_t{0}, index), w_hr = projected ? p[per_layer - 1] : Tensor();
      auto r = lstm_layer_op.multi<6>(rows, h, c, p[0], p[1], b_ih, b_hh, w_hr, counts, reverse);
      outputs.push_back(r[0]), hidden.push_back(r[1]), cell_states.push_back(r[2]);
    } else if (cell == Cell::Gru) {
      auto r = gru_layer_op.multi<4>(rows, h, p[0], p[1], b_ih, b_hh, counts, reverse);
      outputs.push_back(r[0]), hidden.push_back(r[1]);
    } else {
      auto r = simple_layer_op.multi<2>(rows, h, p[0], p[1], b_ih, b_hh, counts, reverse, cell == Cell::Relu);
      outputs.push_back(r[0]), hidden.push_back(r[1]);
    }
    if (static_cast<int64_t>(outputs.size()) < o.directions()) continue;
    rows = o.bidirectional ? ops::cat(outputs, int64_t{1}) : outputs[0];
    outputs.clear();
    if (o.train && o.dropout > 0 && k + 1 < cells) rows = rnn_dropout_op(rows, o.dropout, true);
  }
  return {rows, ops::stack(hidden, int64_t{0}), cell == Cell::Lstm ? ops::stack(cell_states, int64_t{0}) : Tensor()};
}

Network on_batch(Cell cell, const Tensor& given, TensorList states, TensorList params, const Options& o,
                 bool batch_first) {
  const char* op = name_of(cell);
  TS_CHECK(given.ndim() == 3, op, ": expected an input of three dims, got ", given.sizes());
  Tensor input = batch_first ? ops::transpose(given, int64_t{0}, int64_t{1}) : given;
  int64_t length = input.size(0), batch = input.size(1);
  for (const Tensor& t : states)
    TS_CHECK(t.defined() && t.ndim() == 3 && t.size(1) == batch, op, ": expected initial states of batch size ", batch,
             ", got ", t.defined() ? t.sizes() : IntSpan());
  int64_t flat[] = {length * batch, input.size(2)};
  // Steps without sequences need not be counted: there may be very many.
  Dims counts(static_cast<size_t>(batch ? length : std::min<int64_t>(length, 1)), batch);
  Network n = walk(cell, ops::reshape(input, IntSpan(flat)), counts, states, params, o);
  int64_t sizes[] = {length, batch, n.output.size(1)};
  n.output = ops::reshape(n.output, IntSpan(sizes));
  if (batch_first) n.output = ops::transpose(n.output, int64_t{0}, int64_t{1});
  return n;
}

Dims host_counts(const Tensor& t, const char* op) {
  TS_CHECK(t.dtype() == DType::Int64 && t.ndim() == 1 && t.data(), op,
           ": expected batch_sizes as a 1-d int64 tensor on the cpu, got ", t.dtype(), " ", t.sizes(), " on ",
           to_string(t.device()));
  Dims counts;
  const char* at = static_cast<const char*>(t.data());
  for (int64_t k = 0; k < t.numel(); ++k)
    counts.push_back(read_scalar(at + k * t.strides()[0] * t.item_size(), DType::Int64).i);
  return counts;
}

using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

void check_pair(TensorList hx, const char* op) {
  TS_CHECK(hx.size() == 2, op, ": expects two hidden states, got ", hx.size());
}

Three lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t num_layers, double dropout,
           bool train, bool bidirectional, bool batch_first) {
  check_pair(hx, "lstm");
  Network n =
      on_batch(Cell::Lstm, input, hx, params, {has_biases, num_layers, dropout, train, bidirectional}, batch_first);
  return {n.output, n.hidden, n.cells};
}
Three lstm_packed(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params, bool has_biases,
                  int64_t num_layers, double dropout, bool train, bool bidirectional) {
  check_pair(hx, "lstm");
  Network n = walk(Cell::Lstm, data, host_counts(batch_sizes, "lstm"), hx, params,
                   {has_biases, num_layers, dropout, train, bidirectional});
  return {n.output, n.hidden, n.cells};
}
template <Cell cell>
Two simple(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t num_layers,
           double dropout, bool train, bool bidirectional, bool batch_first) {
  Network n =
      on_batch(cell, input, {&hx, 1}, params, {has_biases, num_layers, dropout, train, bidirectional}, batch_first);
  return {n.output, n.hidden};
}
template <Cell cell>
Two simple_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params, bool has_biases,
                  int64_t num_layers, double dropout, bool train, bool bidirectional) {
  Network n = walk(cell, data, host_counts(batch_sizes, name_of(cell)), {&hx, 1}, params,
                   {has_biases, num_layers, dropout, train, bidirectional});
  return {n.output, n.hidden};
}

// One step: a layer over a single one.
Dims single(const Tensor& input, const char* op) {
  TS_CHECK(input.ndim() == 2, op, ": expected an input (batch, size), got ", input.sizes());
  return {input.size(0)};
}
Two lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
              const Tensor& b_hh) {
  check_pair(hx, "lstm_cell");
  auto r =
      lstm_layer_op.multi<6>(input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh, Tensor(), single(input, "lstm_cell"), false);
  return {r[0], r[2]};
}
template <Cell cell>
Tensor simple_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                   const Tensor& b_hh) {
  Dims counts = single(input, name_of(cell));
  if (cell == Cell::Gru) return gru_layer_op.multi<4>(input, hx, w_ih, w_hh, b_ih, b_hh, counts, false)[0];
  return simple_layer_op.multi<2>(input, hx, w_ih, w_hh, b_ih, b_hh, counts, false, cell == Cell::Relu)[0];
}

#define TS_RNN_OPTIONS "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"
#define TS_RNN_CELL "Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor"

template <Cell cell> void declare_simple(const char* input, const char* data, const char* doc) {
  def(input)
      .facts(cell == Cell::Gru ? "autocast:first/lower" : "autocast:lower")
      .body<simple<cell>>()
      .random()
      .function_only()
      .doc(doc);
  def(data).body<simple_packed<cell>>().any_device().random().function_only().doc(doc);
}

} // namespace

TS_OPERATORS(rnn) {
  const char* lstm_doc =
      "An LSTM (Hochreiter and Schmidhuber 1997) of num_layers layers over (length, batch, size), or "
      "over packed rows with batch_sizes: outputs, last hidden states and cells. As torch.lstm.";
  def("lstm.input(Tensor input, Tensor[] hx, " TS_RNN_OPTIONS ", bool batch_first) -> (Tensor, Tensor, Tensor)")
      .facts("autocast:lower")
      .body<lstm>()
      .random()
      .function_only()
      .doc(lstm_doc);
  def("lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, " TS_RNN_OPTIONS ") -> (Tensor, Tensor, Tensor)")
      .body<lstm_packed>()
      .any_device() // batch_sizes is on the cpu
      .random()
      .function_only()
      .doc(lstm_doc);
  declare_simple<Cell::Gru>(
      "gru.input(Tensor input, Tensor hx, " TS_RNN_OPTIONS ", bool batch_first) -> (Tensor, Tensor)",
      "gru.data(Tensor data, Tensor batch_sizes, Tensor hx, " TS_RNN_OPTIONS ") -> (Tensor, Tensor)",
      "A GRU (Cho et al., arXiv:1406.1078) over (length, batch, size) or packed rows: outputs and last states.");
  declare_simple<Cell::Tanh>(
      "rnn_tanh.input(Tensor input, Tensor hx, " TS_RNN_OPTIONS ", bool batch_first) -> (Tensor, Tensor)",
      "rnn_tanh.data(Tensor data, Tensor batch_sizes, Tensor hx, " TS_RNN_OPTIONS ") -> (Tensor, Tensor)",
      "A recurrent network with tanh over (length, batch, size) or packed rows: outputs and last states.");
  declare_simple<Cell::Relu>(
      "rnn_relu.input(Tensor input, Tensor hx, " TS_RNN_OPTIONS ", bool batch_first) -> (Tensor, Tensor)",
      "rnn_relu.data(Tensor data, Tensor batch_sizes, Tensor hx, " TS_RNN_OPTIONS ") -> (Tensor, Tensor)",
      "A recurrent network with relu over (length, batch, size) or packed rows: outputs and last states.");
  def("lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> "
      "(Tensor, "
      "Tensor)")
      .facts("autocast:first/lower")
      .body<lstm_cell>()
      .function_only()
      .doc("One step of an LSTM over (batch, size): the next hidden state and cell.");
  def("gru_cell(Tensor input, " TS_RNN_CELL)
      .facts("autocast:first/lower")
      .body<simple_cell<Cell::Gru>>()
      .function_only()
      .doc("One step of a GRU over (batch, size): the next state.");
  def("rnn_tanh_cell(Tensor input, " TS_RNN_CELL)
      .facts("autocast:lower")
      .body<simple_cell<Cell::Tanh>>()
      .function_only()
      .doc("tanh(input @ w_ih^T + b_ih + hx @ w_hh^T + b_hh).");
  def("rnn_relu_cell(Tensor input, " TS_RNN_CELL)
      .facts("autocast:lower")
      .body<simple_cell<Cell::Relu>>()
      .function_only()
      .doc("relu(input @ w_ih^T + b_ih + hx @ w_hh^T + b_hh).");
}

} // namespace ts
