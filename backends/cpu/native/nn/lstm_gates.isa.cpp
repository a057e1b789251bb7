// The pointwise part of a step of an LSTM, for one sequence: its rows stay in the first cache from loop to loop.
#include "lstm.h"
#include "pointwise/ops.h"

namespace tesserack::cpu {
namespace TESSERACK_VARIANT {

void lstm_gates(const LstmRow& row, int64_t width);
void lstm_gates_backward(const LstmRowBackward& row, int64_t width);

void lstm_gates(const LstmRow& row, int64_t width) {
  const OpFn<float> sigmoid = op_table<float>().fn[TS_I_SIGMOID][0], tanh = op_table<float>().fn[TS_I_TANH][0];
  float *const i = row.gates, *const f = i + width, *const g = f + width, *const o = g + width;
  sigmoid(i, i, nullptr, nullptr, 2 * width);
  tanh(g, g, nullptr, nullptr, width);
  sigmoid(o, o, nullptr, nullptr, width);
  float *const cell = row.cell, *const hidden = row.hidden;
  const float* const before = row.cell_before;
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) cell[k] = f[k] * before[k] + i[k] * g[k];
  tanh(hidden, cell, nullptr, nullptr, width);
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) hidden[k] *= o[k];
}

template <bool HasOut> static void gates_backward(const LstmRowBackward& row, int64_t width) {
  const float *const i = row.gates, *const f = i + width, *const g = f + width, *const o = g + width;
  const float *const before = row.cell_before, *const d_hidden = row.d_hidden, *const d_out = row.d_out;
  float *const di = row.d_gates, *const df = di + width, *const dg = df + width, *const d_o = dg + width,
               *const d_cell = row.d_cell;
  op_table<float>().fn[TS_I_TANH][0](d_o, row.cell, nullptr, nullptr, width);
#pragma GCC ivdep
  for (int64_t k = 0; k < width; ++k) {
    const float t = d_o[k], s = HasOut ? d_hidden[k] + d_out[k] : d_hidden[k];
    const float m = d_cell[k] + s * o[k] * (1.0f - t * t);
    di[k] = m * g[k] * i[k] * (1.0f - i[k]);
    df[k] = m * before[k] * f[k] * (1.0f - f[k]);
    dg[k] = m * i[k] * (1.0f - g[k] * g[k]);
    d_o[k] = s * t * o[k] * (1.0f - o[k]);
    d_cell[k] = m * f[k];
  }
}

void lstm_gates_backward(const LstmRowBackward& row, int64_t width) {
  row.d_out ? gates_backward<true>(row, width) : gates_backward<false>(row, width);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
