// The transforms of convolution by the minimal algorithm F(2x2, 3x3): Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2015). Tiles of 2 x 2 output positions take 16 products where the sums have 36.
// Forward it is A'[(G g G') * (B' d B)]A; the gradient of the weight is the adjoint, G'[(A dy A') * (B' d B)]G. Nothing
// but sums, differences and halves: small integers stay exact.
#ifndef TESSERACK_CPU_WINOGRAD_H
#define TESSERACK_CPU_WINOGRAD_H

#include "math/simd_f32.h"

#ifdef TESSERACK_CPU_SIMD_F32

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace winograd {

using simd::kLanes;
using simd::Vector;

constexpr int64_t kStep = 2, kReach = 4; // output positions of a tile along a dimension; input positions
constexpr int64_t kPoints = kReach * kReach;

// B' d B of a tile. at(y, x): channels of an input position. The 16 results go `plane` elements apart.
template <class At> inline void transform_input(const At& at, float* to, int64_t plane) {
  constexpr int first[] = {0, 1, 2, 1}, second[] = {2, 2, 1, 3};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    Vector r[4];
#pragma GCC unroll 4
    for (int x = 0; x < 4; ++x) r[x] = i == 1 ? at(1, x) + at(2, x) : at(first[i], x) - at(second[i], x);
    simd::store(to + (4 * i) * plane, r[0] - r[2]);
    simd::store(to + (4 * i + 1) * plane, r[1] + r[2]);
    simd::store(to + (4 * i + 2) * plane, r[2] - r[1]);
    simd::store(to + (4 * i + 3) * plane, r[1] - r[3]);
  }
}

// A dy A' of a tile. at(y, x): channels of an output position's gradient.
template <class At> inline void transform_gradient(const At& at, float* to, int64_t plane) {
  const Vector y[2][2] = {{at(0, 0), at(0, 1)}, {at(1, 0), at(1, 1)}};
  const auto put = [&](int i, Vector a, Vector b) {
    simd::store(to + (4 * i) * plane, a);
    simd::store(to + (4 * i + 1) * plane, a + b);
    simd::store(to + (4 * i + 2) * plane, a - b);
    simd::store(to + (4 * i + 3) * plane, -b);
  };
  put(0, y[0][0], y[0][1]);
  put(1, y[0][0] + y[1][0], y[0][1] + y[1][1]);
  put(2, y[0][0] - y[1][0], y[0][1] - y[1][1]);
  put(3, -y[1][0], -y[1][1]);
}

// A' m A, the 2 x 2 outputs of 16 sums that lie `plane` elements apart.
inline void transform_output(const float* from, int64_t plane, Vector (&y)[2][2]) {
  Vector rows[2][4];
#pragma GCC unroll 4
  for (int x = 0; x < 4; ++x) {
    const auto m = [&](int i) { return simd::load(from + (4 * i + x) * plane); };
    rows[0][x] = m(0) + (m(1) + m(2));
    rows[1][x] = (m(1) - m(2)) - m(3);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    y[i][0] = rows[i][0] + (rows[i][1] + rows[i][2]);
    y[i][1] = (rows[i][1] - rows[i][2]) - rows[i][3];
  }
}

// G g G' of 3 x 3 weights, by rows.
inline void transform_weight(const Vector (&g)[9], float* to, int64_t plane) {
  Vector rows[4][3];
#pragma GCC unroll 3
  for (int x = 0; x < 3; ++x) {
    const Vector outer = g[x] + g[6 + x];
    rows[0][x] = g[x], rows[3][x] = g[6 + x];
    rows[1][x] = (outer + g[3 + x]) * 0.5f, rows[2][x] = (outer - g[3 + x]) * 0.5f;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Vector outer = rows[i][0] + rows[i][2];
    simd::store(to + (4 * i) * plane, rows[i][0]);
    simd::store(to + (4 * i + 1) * plane, (outer + rows[i][1]) * 0.5f);
    simd::store(to + (4 * i + 2) * plane, (outer - rows[i][1]) * 0.5f);
    simd::store(to + (4 * i + 3) * plane, rows[i][2]);
  }
}

// G' z G, the gradient of 3 x 3 weights, from 16 sums that lie `plane` elements apart.
inline void transform_weight_gradient(const float* from, int64_t plane, Vector (&g)[9]) {
  Vector rows[3][4];
#pragma GCC unroll 4
  for (int x = 0; x < 4; ++x) {
    const auto z = [&](int i) { return simd::load(from + (4 * i + x) * plane); };
    const Vector half = (z(1) + z(2)) * 0.5f;
    rows[0][x] = z(0) + half, rows[1][x] = (z(1) - z(2)) * 0.5f, rows[2][x] = half + z(3);
  }
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    const Vector half = (rows[i][1] + rows[i][2]) * 0.5f;
    g[3 * i] = rows[i][0] + half, g[3 * i + 1] = (rows[i][1] - rows[i][2]) * 0.5f, g[3 * i + 2] = half + rows[i][3];
  }
}

// Watches results for infinities and NaN.
class FiniteCheck {
public:
  void see(Vector v) { sum_ = simd::fma(v, simd::zero(), sum_); }
  bool passed() const {
    float lanes[kLanes];
    simd::store(lanes, sum_);
    for (float lane : lanes)
      if (lane != 0.0f) return false;
    return true;
  }

private:
  Vector sum_ = simd::zero();
};

} // namespace winograd
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_WINOGRAD_H
