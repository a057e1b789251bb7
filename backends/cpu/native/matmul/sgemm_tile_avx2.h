// The inner loop of tiles of two registers for AVX2, in assembly. Twelve FMAs take six cycles, in which the processor
// starts at most 36 instructions, half as many where another program shares the core. GCC 12 spends 26 on a row of B,
// and more on moving accumulators around once the loop is unrolled; here they are 22. Against that, one thread of an
// EPYC 7003 takes 0.75 to 0.85 of the time beside a busy neighbour, 0.95 on a quiet machine.
#ifndef TESSERACK_CPU_SGEMM_TILE_AVX2_H
#define TESSERACK_CPU_SGEMM_TILE_AVX2_H

#include "math/simd_f32.h"

#if defined(TESSERACK_CPU_SIMD_F32) && !defined(__AVX512F__)

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace sgemm {

using simd::Vector;

constexpr int kSteps = 4;      // rows of B in one round of the loop
constexpr int kRoundsFrom = 4; // rows of A

// Where element P of row i of A is, and row P of B.
#define TILE_BY_ROWS(i, P) TILE_ROW_##i(P)
#define TILE_ROW_0(P) "4*" #P "(%[a])"
#define TILE_ROW_1(P) "4*" #P "(%[a],%[step])"
#define TILE_ROW_2(P) "4*" #P "(%[a],%[step],2)"
#define TILE_ROW_3(P) "4*" #P "(%[a3])"
#define TILE_ROW_4(P) "4*" #P "(%[a3],%[step])"
#define TILE_ROW_5(P) "4*" #P "(%[a3],%[step],2)"
#define TILE_BY_COLUMNS(i, P) "4*" #i TILE_COLUMN_##P
#define TILE_COLUMN_0 "(%[a])"
#define TILE_COLUMN_1 "(%[a],%[step])"
#define TILE_COLUMN_2 "(%[a],%[step],2)"
#define TILE_COLUMN_3 "(%[a],%[a3])"
#define TILE_B_0(pointer) "(%[" pointer "])"
#define TILE_B_1(pointer) "(%[" pointer "],%[row])"
#define TILE_B_2(pointer) "(%[" pointer "],%[row],2)"
#define TILE_B_3(pointer) "(%[" pointer "],%[row3])"

// clang-format off
#define TILE_ZERO(i) \
  "vxorps %[c" #i "0], %[c" #i "0], %[c" #i "0]\n" \
  "vxorps %[c" #i "1], %[c" #i "1], %[c" #i "1]\n"
#define TILE_FMA(i, P, AT) \
  "vbroadcastss " AT(i, P) ", %%ymm14\n" \
  "vfmadd231ps %%ymm12, %%ymm14, %[c" #i "0]\n" \
  "vfmadd231ps %%ymm13, %%ymm14, %[c" #i "1]\n"
#define TILE_STEP(P, ROWS, AT) \
  "vmovups " TILE_B_##P("b") ", %%ymm12\n" \
  "vmovups 32" TILE_B_##P("b") ", %%ymm13\n" \
  "prefetcht0 " TILE_B_##P("ahead") "\n" \
  ROWS(P, AT)
#define TILE_LOOP(ROWS, AT, ADVANCE, ADVANCE_ONE, NEXT_RUN) \
  "1:\n" \
  "mov %[rounds], %[left]\n" \
  "2:\n" \
  TILE_STEP(0, ROWS, AT) TILE_STEP(1, ROWS, AT) TILE_STEP(2, ROWS, AT) TILE_STEP(3, ROWS, AT) \
  ADVANCE \
  "lea (%[b],%[row],4), %[b]\n" \
  "lea (%[ahead],%[row],4), %[ahead]\n" \
  "dec %[left]\n" \
  "jnz 2b\n" \
  "mov %[rest], %[left]\n" \
  "test %[left], %[left]\n" \
  "jz 4f\n" \
  "3:\n" \
  TILE_STEP(0, ROWS, AT) \
  ADVANCE_ONE \
  "add %[row], %[b]\n" \
  "add %[row], %[ahead]\n" \
  "dec %[left]\n" \
  "jnz 3b\n" \
  "4:\n" \
  NEXT_RUN \
  "add %[b_skip], %[b]\n" \
  "add %[b_skip], %[ahead]\n" \
  "decq %[runs]\n" \
  "jnz 1b\n"
// clang-format on

#define TILE_ZEROS_4 TILE_ZERO(0) TILE_ZERO(1) TILE_ZERO(2) TILE_ZERO(3)
#define TILE_ZEROS_5 TILE_ZEROS_4 TILE_ZERO(4)
#define TILE_ZEROS_6 TILE_ZEROS_5 TILE_ZERO(5)
#define TILE_ROWS_4(P, AT) TILE_FMA(0, P, AT) TILE_FMA(1, P, AT) TILE_FMA(2, P, AT) TILE_FMA(3, P, AT)
#define TILE_ROWS_5(P, AT) TILE_ROWS_4(P, AT) TILE_FMA(4, P, AT)
#define TILE_ROWS_6(P, AT) TILE_ROWS_5(P, AT) TILE_FMA(5, P, AT)
#define TILE_SUM(i) [c##i##0] "=&x"(sums[i][0]), [c##i##1] "=&x"(sums[i][1])
#define TILE_SUMS_4 TILE_SUM(0), TILE_SUM(1), TILE_SUM(2), TILE_SUM(3)
#define TILE_SUMS_5 TILE_SUMS_4, TILE_SUM(4)
#define TILE_SUMS_6 TILE_SUMS_5, TILE_SUM(5)
#define TILE_MULTIPLY(R, AT, ADVANCE, ADVANCE_ONE, NEXT_RUN)                                                           \
  asm(TILE_ZEROS_##R TILE_LOOP(TILE_ROWS_##R, AT, ADVANCE, ADVANCE_ONE, NEXT_RUN)                                      \
      : TILE_SUMS_##R, [a] "+r"(a), [a3] "+r"(a3), [b] "+r"(b), [ahead] "+r"(ahead), [left] "=&r"(left),               \
        [runs] "+m"(runs)                                                                                              \
      : [step] "r"(step), [row] "r"(row), [row3] "r"(3 * row), [rounds] "m"(rounds), [rest] "m"(rest),                 \
        [a_skip] "m"(a_skip), [b_skip] "m"(b_skip)                                                                     \
      : "ymm12", "ymm13", "ymm14", "cc", "memory")
#define TILE_MULTIPLY_ROWS(R)                                                                                          \
  TILE_MULTIPLY(R, TILE_BY_ROWS, "add $16, %[a]\nadd $16, %[a3]\n", "add $4, %[a]\nadd $4, %[a3]\n",                   \
                "add %[a_skip], %[a]\nadd %[a_skip], %[a3]\n")
#define TILE_MULTIPLY_COLUMNS(R)                                                                                       \
  TILE_MULTIPLY(R, TILE_BY_COLUMNS, "lea (%[a],%[step],4), %[a]\n", "add %[step], %[a]\n", "add %[a_skip], %[a]\n")

// sums = R rows of A times `runs` > 0 times `depth` >= kSteps rows of B. A step of A leads from one row to the next if
// rows are contiguous, else from one column to the next; where runs begin lies a_run and b_run apart.
template <int R, bool ByRows>
inline void multiply_rounds(Vector (&sums)[R][2], const float* a, int64_t a_step, const float* b, int64_t b_row,
                            int64_t depth, int64_t runs, int64_t a_run, int64_t b_run, int64_t prefetch) {
  static_assert(R >= kRoundsFrom && R <= 6);
  const int64_t step = a_step * 4, row = b_row * 4, rounds = depth / kSteps, rest = depth % kSteps;
  const int64_t a_skip = 4 * a_run - depth * (ByRows ? 4 : step), b_skip = 4 * b_run - depth * row;
  const float* ahead = b + prefetch * b_row;
  int64_t a3 = ByRows ? reinterpret_cast<int64_t>(a + 3 * a_step) : 3 * step; // row 3, or what leads to column 3
  int64_t left;
  if constexpr (ByRows && R == 4) TILE_MULTIPLY_ROWS(4);
  if constexpr (ByRows && R == 5) TILE_MULTIPLY_ROWS(5);
  if constexpr (ByRows && R == 6) TILE_MULTIPLY_ROWS(6);
  if constexpr (!ByRows && R == 4) TILE_MULTIPLY_COLUMNS(4);
  if constexpr (!ByRows && R == 5) TILE_MULTIPLY_COLUMNS(5);
  if constexpr (!ByRows && R == 6) TILE_MULTIPLY_COLUMNS(6);
}

} // namespace sgemm
} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_SGEMM_TILE_AVX2_H
