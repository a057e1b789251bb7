// What one step of an LSTM does with one sequence (nn/lstm_gates.isa.cpp). Gates lie as i f g o, each of `width`.
#ifndef TESSERACK_CPU_LSTM_H
#define TESSERACK_CPU_LSTM_H

#include <cstdint>

namespace tesserack::cpu {

// The gates' sums become their values.
struct LstmRow {
  float *gates, *cell, *hidden;
  const float* cell_before;
};

// d_hidden and d_out (or NULL) arrive together; d_cell is first that of the step's cell, then of the one before.
struct LstmRowBackward {
  const float *gates, *cell, *cell_before, *d_hidden, *d_out;
  float *d_cell, *d_gates;
};

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_LSTM_H
