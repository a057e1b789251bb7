// Who multiplies large matrices of float32: own tiles, oneDNN or OpenBLAS. What is quickest depends on the processor
// and is measured by `python -m tesserack_cpu.tune`, never while a program runs: a product then has the same bits in
// every process, until the next tuning.
#ifndef TESSERACK_CPU_ENGINES_H
#define TESSERACK_CPU_ENGINES_H

#include "matmul.h"

#include <tesserack/abi.h>

namespace tesserack::cpu {

enum class Engine : uint8_t { own, onednn, openblas };

// For float32, of usual strides. Small products are not classed: they stay with own tiles.
Engine engine_for(const Gemm& gemm);

// Where the choice for a processor is kept between processes. Asked once, at the first product that is classed.
void keep_engines_at(const ts_host* host);

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ENGINES_H
