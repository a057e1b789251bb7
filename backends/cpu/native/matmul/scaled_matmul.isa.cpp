// Products of matrices stored in few bits: rows of both are widened and scaled once, and multiplied in float32.
#include "dtype_switch.h"
#include "threads.h"

#include <tesserack/narrow.hpp>

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kDepth = 256; // columns that are widened at a time: a strip of both stays in the caches
constexpr int64_t kStrip = 32;  // rows of a strip

struct Stored {
  const uint8_t* bytes;
  const uint8_t* scale_bytes;
  int32_t scale_dtype;
  int values_in_byte;
  int64_t row_bytes, block_rows, block_columns, scale_columns;
  backend::NarrowTable values;

  float scale(int64_t row, int64_t column) const {
    const int64_t at = row / block_rows * scale_columns + column / block_columns;
    if (scale_dtype != TS_FLOAT32) return backend::narrow_to_float(scale_dtype, scale_bytes[at]);
    float s;
    std::memcpy(&s, scale_bytes + at * 4, sizeof s);
    return s;
  }
  // Columns [begin, end) of a row, scaled.
  void widen(int64_t row, int64_t begin, int64_t end, float* to) const {
    const uint8_t* from = bytes + row * row_bytes;
    for (int64_t k = begin; k < end;) {
      const int64_t stop = std::min(end, (k / block_columns + 1) * block_columns);
      const float s = scale(row, k);
      for (; k < stop; ++k) {
        const uint8_t code = values_in_byte == 2 ? (from[k / 2] >> 4 * (k & 1)) & 15 : from[k];
        *to++ = values[code] * s;
      }
    }
  }
};

Stored stored(const backend::Call& call, int operand, int scale, int param) {
  const ts_tensor* t = call.in(operand).raw();
  const ts_tensor* s = call.in(scale).raw();
  const auto block = call.param(param).as_ints();
  Stored out{};
  out.bytes = reinterpret_cast<const uint8_t*>(call.in(operand).bytes());
  out.scale_bytes = reinterpret_cast<const uint8_t*>(call.in(scale).bytes());
  out.scale_dtype = s->dtype;
  out.values_in_byte = static_cast<int>(backend::values_in(t->dtype));
  out.row_bytes = t->sizes[1];
  out.block_rows = block[0];
  out.block_columns = block[1];
  out.scale_columns = s->sizes[1];
  out.values = backend::narrow_table(t->dtype);
  return out;
}

float dot(const float* a, const float* b, int64_t n) {
  float lanes[16] = {};
  int64_t k = 0;
  for (; k + 16 <= n; k += 16)
    for (int64_t j = 0; j < 16; ++j) lanes[j] += a[k + j] * b[k + j];
  float sum = 0;
  for (; k < n; ++k) sum += a[k] * b[k];
  for (float lane : lanes) sum += lane;
  return sum;
}

// inputs: a (m, k), b (n, k), their scales; params: blocks of a and of b.
void scaled_matmul(const backend::Call& call) {
  const Stored a = stored(call, 0, 2, 0), b = stored(call, 1, 3, 1);
  const int64_t m = call.out(0).raw()->sizes[0], n = call.out(0).raw()->sizes[1];
  const int64_t k = a.row_bytes * a.values_in_byte;
  switch_float("scaled_matmul", call.out(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = call.out(0).data<T>();
    const int64_t strips = (n + kStrip - 1) / kStrip;
    parallel_for(0, strips, std::max<int64_t>(1, 65536 / (m * k * kStrip + 1)), [&](int64_t first, int64_t last) {
      std::vector<float> wide_a(kStrip * kDepth), wide_b(kStrip * kDepth), sums(kStrip * kStrip);
      for (int64_t strip = first; strip < last; ++strip) {
        const int64_t n0 = strip * kStrip, n1 = std::min(n, n0 + kStrip);
        for (int64_t m0 = 0; m0 < m; m0 += kStrip) {
          const int64_t m1 = std::min(m, m0 + kStrip);
          std::fill(sums.begin(), sums.end(), 0.0f);
          for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
            const int64_t depth = std::min(k, k0 + kDepth) - k0;
            for (int64_t r = m0; r < m1; ++r) a.widen(r, k0, k0 + depth, &wide_a[(r - m0) * kDepth]);
            for (int64_t c = n0; c < n1; ++c) b.widen(c, k0, k0 + depth, &wide_b[(c - n0) * kDepth]);
            for (int64_t r = 0; r < m1 - m0; ++r)
              for (int64_t c = 0; c < n1 - n0; ++c)
                sums[r * kStrip + c] += dot(&wide_a[r * kDepth], &wide_b[c * kDepth], depth);
          }
          for (int64_t r = m0; r < m1; ++r)
            for (int64_t c = n0; c < n1; ++c)
              to[r * n + c] = store<T>(static_cast<Accumulator<T>>(sums[(r - m0) * kStrip + c - n0]));
        }
      }
    });
  });
}

} // namespace

constexpr uint64_t kAllDtypes = (uint64_t{1} << TS_NUM_DTYPES) - 1;
TS_KERNEL_AS("scaled_matmul", scaled_matmul, kAllDtypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
