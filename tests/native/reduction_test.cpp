// Elements of ranks made one, beside a loop over them: every dtype and reduction, where blocks and steps end.
#include "comm/reduction.h"
#include "harness.h"
#include "tesserack/elements.hpp"
#include <algorithm>
#include <complex>
#include <cstring>

namespace el = tesserack::backend;
using namespace ts;
using comm::Reduction;

namespace {

constexpr size_t kCounts[] = {0, 1, 15, 16, 17, 1023, 1024, 1041};

template <class T> T one(Reduction r, T a, T b) {
  if (r == Reduction::Minimum || r == Reduction::Maximum) return (r == Reduction::Minimum) == (b < a) ? b : a;
  if constexpr (std::is_integral_v<T>) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(r == Reduction::And       ? x & y
                          : r == Reduction::Or      ? x | y
                          : r == Reduction::Xor     ? x ^ y
                          : r == Reduction::Product ? x * y
                                                    : x + y);
  } else {
    return r == Reduction::Product ? a * b : a + b;
  }
}

template <class T> bool as_a_loop(DType t, size_t ranks, size_t count, Reduction r) {
  std::vector<std::vector<T>> held(ranks, std::vector<T>(count));
  std::vector<const void*> sources;
  uint64_t bits = 1;
  for (auto& part : held) {
    for (T& x : part) x = static_cast<T>((bits = bits * 6364136223846793005u + 1442695040888963407u) >> 33);
    sources.push_back(part.data());
  }
  std::vector<T> expected = held[0];
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 1; i < ranks; ++i) expected[k] = one(r, expected[k], held[i][k]);
    if constexpr (!std::is_integral_v<T>)
      if (r == Reduction::Average) expected[k] /= static_cast<T>(ranks);
  }
  comm::combine(held.back().data(), sources, count, t, r); // into one of them
  return std::ranges::equal(held.back(), expected);
}

template <class T> void check(DType t) {
  for (int r = 0; r < 8; ++r)
    for (size_t count : kCounts)
      for (size_t ranks : {1u, 2u, 3u})
        if (comm::has_meaning(static_cast<Reduction>(r), t))
          CHECK(as_a_loop<T>(t, ranks, count, static_cast<Reduction>(r)));
}

template <class H, float (*wide)(H), H (*narrow)(float)> void check_halves(DType t) {
  for (size_t count : kCounts) {
    std::vector<H> a(count), b(count), out(count);
    for (size_t k = 0; k < count; ++k)
      a[k] = narrow(0.25f * static_cast<float>(k % 97)), b[k] = narrow(1.0f + static_cast<float>(k % 13));
    const void* sources[] = {a.data(), b.data()};
    for (Reduction r :
         {Reduction::Sum, Reduction::Average, Reduction::Product, Reduction::Minimum, Reduction::Maximum}) {
      comm::combine(out.data(), sources, count, t, r);
      for (size_t k = 0; k < count; ++k) {
        const H expected = narrow(one(r, wide(a[k]), wide(b[k])) * (r == Reduction::Average ? 0.5f : 1.0f));
        CHECK(std::memcmp(&out[k], &expected, sizeof(H)) == 0);
      }
    }
  }
}

} // namespace

TEST(elements_of_ranks_are_combined_as_by_a_loop) {
  check<uint8_t>(DType::UInt8);
  check<uint16_t>(DType::UInt16);
  check<uint32_t>(DType::UInt32);
  check<uint64_t>(DType::UInt64);
  check<int8_t>(DType::Int8);
  check<int16_t>(DType::Int16);
  check<int32_t>(DType::Int32);
  check<int64_t>(DType::Int64);
  check<float>(DType::Float32);
  check<double>(DType::Float64);
  check_halves<el::Half, el::half_to_float, el::float_to_half>(DType::Float16);
  check_halves<el::BFloat16, el::bfloat16_to_float, el::float_to_bfloat16>(DType::BFloat16);
}

TEST(truth_values_of_ranks_stay_truth_values) {
  const uint8_t a[] = {0, 0, 1, 1}, b[] = {0, 1, 0, 1};
  const void* sources[] = {a, b};
  uint8_t out[4];
  auto given = [&](Reduction r) {
    comm::combine(out, sources, 4, DType::Bool, r);
    return out[0] + 2 * out[1] + 4 * out[2] + 8 * out[3];
  };
  CHECK(given(Reduction::Sum) == 14 && given(Reduction::Maximum) == 14 && given(Reduction::Or) == 14);
  CHECK(given(Reduction::Product) == 8 && given(Reduction::Minimum) == 8 && given(Reduction::And) == 8);
  CHECK(given(Reduction::Xor) == 6);
}
