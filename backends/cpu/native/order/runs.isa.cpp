// Runs of equal neighbours: the first of each, which run an element belongs to, and how long the runs are.
#include "dtype_switch.h"

#include <algorithm>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kBlock = 32; // compared at once

// Everything is written one place further than it may belong, and stays if a run begins there: no branch to be
// predicted. Returns the number of runs.
template <bool Places, bool Lengths, class T>
int64_t split(const T* __restrict x, int64_t n, T* __restrict values, int64_t* __restrict run_of,
              int64_t* __restrict starts) {
  int64_t run = 0;
  values[0] = x[0];
  if constexpr (Places) run_of[0] = 0;
  if constexpr (Lengths) starts[0] = 0;
  const auto differs = [&](int64_t i) { return load(x[i]) != load(x[i - 1]); };
  for (int64_t i = 1; i < n;) {
    const int64_t end = std::min(n, i + kBlock);
    if (end - i == kBlock) {
      int any = 0;
      for (int64_t j = 0; j < kBlock; ++j) any |= differs(i + j);
      if (any == 0) {
        if constexpr (Places) std::fill_n(run_of + i, kBlock, run);
        i = end;
        continue;
      }
    }
    for (; i < end; ++i) {
      values[run + 1] = x[i];
      if constexpr (Lengths) starts[run + 1] = i;
      run += differs(i);
      if constexpr (Places) run_of[i] = run;
    }
  }
  if constexpr (Lengths) {
    for (int64_t k = 0; k < run; ++k) starts[k] = starts[k + 1] - starts[k];
    starts[run] = n - starts[run];
  }
  return run + 1;
}

// inputs: n > 0 elements; outputs: values, one more than n; the run of each element and the runs' lengths, one more
// than n, or none; how many runs there are
void runs(const Call& call) {
  const Tensor in = call.in(0), values = call.out(0), run_of = call.out(1), lengths = call.out(2);
  const int64_t n = in.numel();
  const bool places = run_of.numel() > 0, lengths_too = lengths.numel() > 0;
  if (n < 1 || values.numel() <= n || (places && run_of.numel() < n) || (lengths_too && lengths.numel() <= n))
    backend::fail(TS_ERROR, "runs: expected room for %lld runs", static_cast<long long>(n));
  switch_real("runs", in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int64_t *const at = places ? run_of.data<int64_t>() : nullptr, *const starts =
                                                                       lengths_too ? lengths.data<int64_t>() : nullptr;
    const auto chosen = places        ? lengths_too ? &split<true, true, T> : &split<true, false, T>
                               : lengths_too ? &split<false, true, T>
                                      : &split<false, false, T>;
    *call.out(3).data<int64_t>() = chosen(in.data<T>(), n, values.data<T>(), at, starts);
  });
}

constexpr uint64_t kReal = (uint64_t{1} << TS_BOOL) | (uint64_t{1} << TS_UINT8) | (uint64_t{1} << TS_UINT16) |
                           (uint64_t{1} << TS_UINT32) | (uint64_t{1} << TS_UINT64) | (uint64_t{1} << TS_INT8) |
                           (uint64_t{1} << TS_INT16) | (uint64_t{1} << TS_INT32) | (uint64_t{1} << TS_INT64) |
                           (uint64_t{1} << TS_FLOAT16) | (uint64_t{1} << TS_BFLOAT16) | (uint64_t{1} << TS_FLOAT32) |
                           (uint64_t{1} << TS_FLOAT64);

} // namespace

TS_KERNEL_AS("runs", runs, kReal, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
