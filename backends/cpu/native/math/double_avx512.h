// Roots, powers, logarithms, erf, its complement and its inverse on vectors of float64, with instructions that the
// compiler does not reach from plain code: estimates refined in place of divisions and roots, tables in registers,
// scaling by a power of two. Masked forms avoid GCC 12's warning about its own headers. Largest errors in ulp, found
// over some millions of arguments against wider types: exp 0.52, log 0.53, erf 1, erfc 4.
#ifndef TESSERACK_CPU_DOUBLE_AVX512_H
#define TESSERACK_CPU_DOUBLE_AVX512_H

#include "erfc_f64.h"
#include "trig_f32.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define TESSERACK_CPU_DOUBLE_AVX512 1

#include <immintrin.h>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

TS_INLINE __m512d all_of(double x) { return _mm512_set1_pd(x); }
TS_INLINE __m512d min_or_nan(double limit, __m512d x) { return _mm512_maskz_min_pd(0xff, all_of(limit), x); }
TS_INLINE __m512d max_or_nan(double limit, __m512d x) { return _mm512_maskz_max_pd(0xff, all_of(limit), x); }

// Coefficients from the highest power down.
template <typename... C> TS_INLINE __m512d polynomial_pd(__m512d x, double first, C... rest) {
  __m512d p = all_of(first);
  ((p = _mm512_fmadd_pd(p, x, all_of(rest))), ...);
  return p;
}

// 1 / x to the last digit or two, of a normal x whose reciprocal is one.
TS_INLINE __m512d reciprocal_pd(__m512d x) {
  const __m512d one = all_of(1.0), r = _mm512_maskz_rcp14_pd(0xff, x);
  const __m512d s = _mm512_fmadd_pd(r, _mm512_fnmadd_pd(r, x, one), r);
  return _mm512_fmadd_pd(s, _mm512_fnmadd_pd(s, x, one), s);
}

// As rounded by the processor's own instruction, which takes twice as long: the estimate of 14 bits is refined to the
// root and half its reciprocal, and what the root's square leaves, which is exact, decides on the last bit (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
TS_INLINE __m512d sqrt_avx512(__m512d x) {
  // What is no root, zero, infinite or so small that the rest is not exact: to the instruction.
  const __m512i above = _mm512_sub_epi64(_mm512_castpd_si512(x), _mm512_set1_epi64(int64_t{0x0680} << 48));
  const __mmask8 odd = _mm512_cmpge_epu64_mask(above, _mm512_set1_epi64(int64_t{0x7970} << 48));
  if (__builtin_expect(odd != 0, 0)) return _mm512_maskz_sqrt_pd(0xff, x);
  const __m512d estimate = _mm512_maskz_rsqrt14_pd(0xff, x), half = all_of(0.5);
  __m512d g = _mm512_mul_pd(x, estimate), h = _mm512_mul_pd(estimate, half);
  __m512d r = _mm512_fnmadd_pd(g, h, half);
  g = _mm512_fmadd_pd(g, r, g), h = _mm512_fmadd_pd(h, r, h);
  r = _mm512_fnmadd_pd(g, h, half);
  g = _mm512_fmadd_pd(g, r, g), h = _mm512_fmadd_pd(h, r, h);
  return _mm512_fmadd_pd(_mm512_fnmadd_pd(g, g, x), h, g);
}

alignas(64) constexpr double kExpTable[2][16] = { // 2^(k / 16), rounded, and the rest
    {0x1.0p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0, 0x1.306fe0a31b715p+0,
     0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0, 0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0,
     0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0, 0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0,
     0x1.ea4afa2a490dap+0},
    {0.0, 0x1.8a62e4adc610bp-54, -0x1.19041b9d78a76p-55, 0x1.9b07eb6c70573p-54, 0x1.6f46ad23182e4p-55,
     0x1.ada0911f09ebcp-55, 0x1.d4397afec42e2p-56, 0x1.6324c054647adp-54, -0x1.bdd3413b26456p-54,
     -0x1.41577ee04992fp-55, 0x1.6e9f156864b27p-54, 0x1.c7c46b071f2bep-56, 0x1.7a1cd345dcc81p-54, 0x1.11065895048ddp-55,
     0x1.2ed02d75b3707p-55, -0x1.e9c23179c2893p-54}};

TS_INLINE __m512d picked(const double (&table)[16], __m512i by) {
  return _mm512_permutex2var_pd(_mm512_load_pd(table), by, _mm512_load_pd(table + 8));
}

// exp(x) = 2^floor(n) * y for |x| < 2^20; n, a multiple of 1/16, is what _mm512_scalef_pd takes.
struct ExpParts512d {
  __m512d n, y;
};
TS_INLINE ExpParts512d exp_parts512(__m512d x) {
  const __m512d round = all_of(0x1.8p48); // its units are 1/16
  const __m512d t = _mm512_fmadd_pd(x, all_of(kLog2E), round), n = _mm512_sub_pd(t, round);
  const __m512d r = _mm512_fnmadd_pd(n, all_of(kLn2Low), _mm512_fnmadd_pd(n, all_of(kLn2High), x));
  const __m512d q =
      polynomial_pd(r, 0x1.6c17bb51f236dp-10, 0x1.11120af701debp-7, 0x1.55555555194d2p-5, 0x1.55555554dd44dp-3, 0.5);
  const __m512d p = _mm512_fmadd_pd(q, _mm512_mul_pd(r, r), r); // exp(r) - 1
  const __m512i k = _mm512_castpd_si512(t);
  const __m512d power = picked(kExpTable[0], k);
  return {n, _mm512_add_pd(power, _mm512_fmadd_pd(power, p, picked(kExpTable[1], k)))};
}
TS_INLINE __m512d exp_avx512(__m512d x) {
  const ExpParts512d parts = exp_parts512(min_or_nan(710.0, max_or_nan(-746.0, x)));
  return _mm512_maskz_scalef_pd(0xff, parts.y, parts.n);
}

// -log(k / 16), of numbers 16 to 21 and 11 to 15 for k: a multiple of 2^-40, and the rest.
alignas(64) constexpr double kLogTable[2][16] = {
    {0.0, -0x1.f0a30c0120000p-5, -0x1.e27076e2b0000p-4, -0x1.5ff3070a78000p-3, -0x1.c8ff7c79a8000p-3,
     -0x1.1675cababc000p-2, 0.0, 0.0, 0.0, 0.0, 0.0, 0x1.7fafa3bd80000p-2, 0x1.269621134c000p-2, 0x1.a93ed3c8b0000p-3,
     0x1.1178e82280000p-3, 0x1.08598b59e0000p-4},
    {0.0, 0x1.3ab33d066d1d2p-42, 0x1.a342c2af0003cp-45, -0x1.3d3c873e20a07p-43, -0x1.a21ac25d81ef3p-43,
     0x1.9f1fc63382a8fp-42, 0.0, 0.0, 0.0, 0.0, 0.0, 0x1.51bede6fdb533p-42, 0x1.b92783beb7677p-42,
     -0x1.30e486a0ac42dp-42, -0x1.b8421cc74be04p-43, 0x1.d034451fecdfbp-43}};

// x = 2^e m with m from 3/4 to 3/2, and m c = 1 + r, exactly, of a c of 5 bits next to 1 / m: 1 itself where the
// logarithm is small.
TS_INLINE __m512d log_avx512(__m512d x) {
  const __m512d m = _mm512_maskz_getmant_pd(0xff, x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  const __m512d e = _mm512_sub_pd(_mm512_maskz_getexp_pd(0xff, x), _mm512_maskz_getexp_pd(0xff, m));
  const __m512d round = all_of(0x1.8p48), t = _mm512_add_pd(_mm512_maskz_rcp14_pd(0xff, m), round);
  const __m512d r = _mm512_fmadd_pd(m, _mm512_sub_pd(t, round), all_of(-1.0));
  const __m512i k = _mm512_castpd_si512(t);
  const __m512d q = polynomial_pd(r, 0x1.75ed00830fcf4p-4, -0x1.9b4ad2ca1b139p-4, 0x1.c71bc8e9d87edp-4,
                                  -0x1.ffff49123b05ap-4, 0x1.24924931c4e07p-3, -0x1.55555563a14e9p-3,
                                  0x1.99999999990b1p-3, -0x1.ffffffffff659p-3, 0x1.5555555555555p-2, -0.5);
  const __m512d low =
      _mm512_fmadd_pd(q, _mm512_mul_pd(r, r), _mm512_fmadd_pd(e, all_of(kLn2Low), picked(kLogTable[1], k)));
  const __m512d base = _mm512_fmadd_pd(e, all_of(kLn2High), picked(kLogTable[0], k)), high = _mm512_add_pd(base, r);
  const __m512d y = _mm512_add_pd(high, _mm512_add_pd(_mm512_add_pd(_mm512_sub_pd(base, high), r), low));
  return _mm512_mask_mov_pd(y, _mm512_fpclass_pd_mask(x, 0x0e), base); // of zeros and of infinity
}

// erf(a) / a - 1 in the first three intervals of 3/8, erf(a) from there on, by the distance from the middle.
alignas(64) constexpr double kErfTableF64[14][16] = {
    {0x1.d83ecffec36eep-4, 0x1.457ac9a6a1c4fp-6, -0x1.0b61b2d27c159p-3, 0x1.df85ea8db188ep-1, 0x1.f74a6d9a38383p-1,
     0x1.fe307f2b503d0p-1, 0x1.ffb5bdf67fe6fp-1, 0x1.fff6dee89352ep-1, 0x1.ffff2436a21dcp-1, 0x1.fffff039f9e8fp-1,
     0x1.ffffff233ee1dp-1, 0x1.fffffff6d1e56p-1, 0x1.ffffffffb5be5p-1, 0x1.fffffffffe380p-1, 0x1.fffffffffff7bp-1,
     0x1.ffffffffffffep-1},
    {-0x1.1ad8fe728fb15p-3, -0x1.679e55f14d0ebp-2, -0x1.b5e332cde440cp-2, 0x1.9cb5bd549b111p-3, 0x1.0bf97e95f2a64p-4,
     0x1.06ae13b0d3255p-6, 0x1.84ba3004a50d0p-9, 0x1.b23a5a23e4210p-12, 0x1.6e2367dc27f95p-15, 0x1.d21397ead99cbp-19,
     0x1.bfd7555a3bd66p-23, 0x1.44d26de513197p-27, 0x1.63ac6b4edc8c1p-32, 0x1.25f9ee0b92502p-37, 0x1.6ed2f2515efbdp-43,
     0x1.5982008db296cp-49},
    {-0x1.6948b59e1edf7p-2, -0x1.957878b9a0e29p-3, -0x1.96b59010877dap-7, -0x1.0ed7443f85c30p-2, -0x1.c435059d0977cp-4,
     -0x1.0ee3844e59bf6p-5, -0x1.d9c2ea85a9294p-8, -0x1.315107613c61ap-10, -0x1.23c436c36fd6cp-13,
     -0x1.9f19734d2a14dp-17, -0x1.b8d7f804d3888p-21, -0x1.5e32de7af5faep-25, -0x1.a0ce0dc04d8b7p-30,
     -0x1.741051462d4c6p-35, -0x1.f2a6c16468b85p-41, -0x1.f610e8c751681p-47},
    {0x1.4c6796aabb5b2p-4, 0x1.6262c6c4b0c5dp-3, 0x1.1daad1cca2f37p-3, 0x1.5066cda84bbadp-3, 0x1.a3687c1eaf1a8p-4,
     0x1.48b127f8ed8a4p-5, 0x1.60898536e1054p-7, 0x1.0c243329a9c9cp-9, 0x1.26bf00867a80dp-12, 0x1.d982bd41d89a2p-16,
     0x1.17f93e5149417p-19, 0x1.e9e05b3c8f361p-24, 0x1.3e380dd75710ap-28, 0x1.33cde4f351105p-33, 0x1.bc42ba385a113p-39,
     0x1.df2dac2e39519p-45},
    {0x1.95f90c6997ed3p-4, 0x1.1354bdb07b262p-6, -0x1.a83203f32f5c0p-5, -0x1.419fa10b74b48p-6, -0x1.9647a30b194a9p-5,
     -0x1.f155b4e7d589cp-6, -0x1.5eb1c899ef713p-7, -0x1.4630116267020p-9, -0x1.a51fb50b19727p-12,
     -0x1.8320fc4817f18p-15, -0x1.013b0457acb75p-18, -0x1.f2f6fa7edee85p-23, -0x1.638bc5016e627p-27,
     -0x1.760fe7d102fc1p-32, -0x1.2391e1744f336p-37, -0x1.51b1805100836p-43},
    {-0x1.d0686f6104ba3p-6, -0x1.92fd6788ed97cp-5, -0x1.379108eac8fafp-6, -0x1.3f41761d5c505p-5, 0x1.6981061e0e498p-9,
     0x1.aa2c0753d5dd9p-7, 0x1.d854f73e7277cp-8, 0x1.1e84d1022f0c6p-9, 0x1.c082537902079p-12, 0x1.e0a1cb1d02d21p-15,
     0x1.6b245d7e076dep-18, 0x1.899dcace49859p-22, 0x1.35753ad5bb996p-26, 0x1.63a70fdbfce89p-31, 0x1.2c6c2464df7fcp-36,
     0x1.76996e12c7cf6p-42},
    {-0x1.677ae22f77ebdp-6, 0x1.2aefea74fb173p-8, 0x1.20af561ddfbd6p-6, 0x1.6d1d724f93f32p-6, 0x1.7e8755e1b2af1p-7,
     -0x1.bbf7e2be33b5bp-11, -0x1.897719ad369a3p-9, -0x1.6b41872073588p-10, -0x1.6c3dbfde77352p-12,
     -0x1.d3842244d14e0p-15, -0x1.98077560a7f6dp-18, -0x1.f34b7e8c2000fp-22, -0x1.b41f31a73e1c4p-26,
     -0x1.1324f28c95482p-30, -0x1.f9a3acd575ebcp-36, -0x1.546136858ac30p-41},
    {0x1.d6a57d57588d5p-8, 0x1.4188159a06cacp-7, -0x1.a5d3ab83bc90cp-12, 0x1.e377f5ba4e7b1p-11, -0x1.9be73203df481p-8,
     -0x1.5478d78607222p-9, 0x1.88cdc8d0bb56cp-12, 0x1.36edde56d625bp-11, 0x1.c1dd143258d95p-13, 0x1.696daf67018d6p-15,
     0x1.749204996bd80p-18, 0x1.04be03020dd7fp-21, 0x1.fe694d930e1e9p-26, 0x1.63a3185c59e0bp-30, 0x1.65024f26336e9p-35,
     0x1.0456e483c99e0p-40},
    {0x1.02700093bba86p-8, -0x1.2092cd0c83ac4p-9, -0x1.b1ef4c9b0f5ccp-9, -0x1.4cc91ba698ff3p-8, 0x1.3a95173ef689fp-13,
     0x1.8eae13be6bb06p-10, 0x1.b325a9b6eea39p-12, -0x1.f7873075d40e5p-14, -0x1.94c36d914c092p-14,
     -0x1.bb6e2025ca839p-16, -0x1.175064e8ceba3p-18, -0x1.c73bf1a20e58fp-22, -0x1.f8afaef3e13e2p-26,
     -0x1.87263276a54cap-30, -0x1.af257fb8d0b83p-35, -0x1.55db1b3d5699fp-40},
    {-0x1.781d021c4ed7bp-10, -0x1.82ef1b1022900p-10, 0x1.80ef6afe8b14ap-11, 0x1.553ee50ebc4cbp-10,
     0x1.319f7ff051d09p-10, -0x1.92945f39af865p-13, -0x1.381550ced1827p-12, -0x1.51ecf6fb29eb6p-15,
     0x1.bf0ab9f9b42fbp-16, 0x1.a4fcad43caf7ep-17, 0x1.57e940f46f913p-19, 0x1.4edda87b5f2f2p-22, 0x1.aa775b61f64cdp-26,
     0x1.72e327080af05p-30, 0x1.c38a88b37fa1ep-35, 0x1.86edb5c24f0f2p-40},
    {-0x1.36e261d349130p-11, 0x1.10efe873e0570p-11, 0x1.a9e421c813a59p-12, 0x1.262a8f5e16dc2p-11,
     -0x1.b8818a97f33dep-12, -0x1.9100c39801db2p-13, 0x1.2b1a37230b01bp-14, 0x1.7128821334554p-15,
     0x1.6cd10cff2b2e9p-23, -0x1.1c9c8e6fc4e8cp-18, -0x1.570e5dec93088p-20, -0x1.9fbe1a1d5aceap-23,
     -0x1.35fab007a59a8p-26, -0x1.31c1754529e66p-30, -0x1.9ddc5233922e6p-35, -0x1.88de9ba8c65cfp-40},
    {0x1.f117eee0384bdp-13, 0x1.67b024abd3524p-13, -0x1.75c4cbb603dd4p-13, -0x1.6bb764688295bp-12,
     -0x1.0393ab3315c5ap-14, 0x1.b074bbcd4b1fbp-14, 0x1.1ee794c92d77dp-16, -0x1.0aeb45b75a4bcp-16,
     -0x1.2b3ca05690667p-18, 0x1.74731e3ddcd6fp-21, 0x1.0a15ac0bd8469p-21, 0x1.b0d6575ac6ff2p-24, 0x1.84ece5e14e6fbp-27,
     0x1.b9b7b2a9d55e5p-31, 0x1.4f879ce3301cap-35, 0x1.5f9ae8e6e28e3p-40},
    {0x1.3bf450b403843p-14, -0x1.6f5ff5d4765f3p-14, -0x1.f5b14927772b6p-16, -0x1.53d7c51af22d2p-17,
     0x1.50029de3621a0p-14, -0x1.8d81afaee9475p-18, -0x1.2801edb074e50p-16, 0x1.6f57c1f5267b3p-21,
     0x1.3939f5359b9a0p-19, 0x1.02a9830d3ead9p-22, -0x1.177030826b20cp-23, -0x1.758ba9760eb04p-25,
     -0x1.ad00b803b8762p-28, -0x1.219134af572d1p-31, -0x1.f92c35de9c991p-36, -0x1.29ddf75f7c66ap-40},
    {-0x1.1421134a352bfp-15, -0x1.f5286a16b08c2p-17, 0x1.c9d396578b37bp-16, 0x1.a4dd7287a4a59p-15,
     -0x1.9003a9b8fe7b5p-17, -0x1.a1b114050b090p-17, 0x1.164a6e7c15f7dp-18, 0x1.00ac9edb2c2e2p-19,
     -0x1.10f934534e76bp-21, -0x1.e4a54bb4665c1p-23, 0x1.3248f146c4042p-27, 0x1.ee4d472414a5cp-27,
     0x1.87a1ca24dfc97p-29, 0x1.3fa071eb58365p-32, 0x1.40947970654f8p-36, 0x1.a71eb863d4890p-41}};
TS_INLINE __m512d erf_avx512(__m512d x) {
  const __m512d sign_bit = all_of(-0.0), sign = _mm512_and_pd(x, sign_bit), round = all_of(kRound);
  const __m512d a = min_or_nan(5.99, _mm512_xor_pd(x, sign));
  const __m512d shifted = _mm512_sub_pd(a, all_of(0.1875));
  const __m512d place = _mm512_fmadd_pd(shifted, all_of(8.0 / 3), round);
  const __m512d t = _mm512_fnmadd_pd(_mm512_sub_pd(place, round), all_of(0.375), shifted);
  const __m512i interval = _mm512_castpd_si512(place);
  __m512d q = picked(kErfTableF64[13], interval);
#pragma GCC unroll 13
  for (int p = 12; p >= 0; --p) q = _mm512_fmadd_pd(q, t, picked(kErfTableF64[p], interval));
  const __mmask8 small = _mm512_cmp_pd_mask(place, all_of(kRound + 3.0), _CMP_LT_OQ);
  const __m512d y = _mm512_mask_fmadd_pd(q, small, a, a);
  return _mm512_or_pd(min_or_nan(1.0, y), sign);
}

// erfc(a) = exp(-a^2) / (a + 4) * p((a - 4) / (a + 4)) for a from 0 to 27.3, after which it is below the least float64;
// p interpolates (a + 4) erfcx(a) at Chebyshev's points to 2^-57.
TS_INLINE __m512d erfc_avx512(__m512d x) {
  const __m512d four = all_of(4.0), one = all_of(1.0), a = min_or_nan(27.3, _mm512_andnot_pd(all_of(-0.0), x));
  const __m512d square = _mm512_mul_pd(a, a), lost = _mm512_fmsub_pd(a, a, square);
  const __m512d b = _mm512_add_pd(a, four), rest = _mm512_sub_pd(a, _mm512_sub_pd(b, four)); // what b lacks
  const __m512d estimate = _mm512_maskz_rcp14_pd(0xff, b);
  const __m512d s = _mm512_fmadd_pd(estimate, _mm512_fnmadd_pd(estimate, b, one), estimate);
  const __m512d off = _mm512_fnmadd_pd(s, rest, _mm512_fnmadd_pd(s, b, one));
  const __m512d r = _mm512_fmadd_pd(s, off, s), eight = _mm512_mul_pd(s, all_of(8.0));
  const __m512d t = _mm512_fnmadd_pd(eight, off, _mm512_sub_pd(one, eight));
  const __m512d p =
      polynomial_pd(t, 0x1.e47b7cdb21b0dp-31, -0x1.8d4415f8909a6p-31, -0x1.05a8abd07690ap-26, 0x1.ec9ba00cfaa3cp-29,
                    0x1.0a8fabf883843p-23, -0x1.541233210a00dp-24, -0x1.c677812a4c40ep-21, 0x1.7f09a5b300b78p-20,
                    0x1.3b0f87e4c2b7ep-18, -0x1.3c744a1794d21p-16, -0x1.e7ede3ac30415p-19, 0x1.72cddb3cf91fbp-13,
                    -0x1.dd2842b298115p-12, -0x1.269b56e636abfp-12, 0x1.908f471da9359p-8, -0x1.b00c052a14539p-6,
                    0x1.38dbd2c8ec0fap-4, -0x1.645fd8a4c04e3p-3, 0x1.52cac2370ff85p-2, -0x1.14eacb1ad02bfp-1,
                    0x1.8be202d26c70ap-1, -0x1.f3fe31ecb49c0p-1, 0x1.18932bf08e154p+0);
  const ExpParts512d parts = exp_parts512(_mm512_sub_pd(_mm512_setzero_pd(), square));
  const __m512d y = _mm512_mul_pd(parts.y, _mm512_mul_pd(p, r));
  const __m512d tail = _mm512_maskz_scalef_pd(0xff, _mm512_fnmadd_pd(y, lost, y), parts.n); // y exp(-lost)
  return _mm512_mask_sub_pd(tail, _mm512_movepi64_mask(_mm512_castpd_si512(x)), all_of(2.0), tail);
}

// By the sixteenth of [1, 2) that a mantissa lies in: a number near its reciprocal, and the reciprocal's logarithm less
// 5 / 2.
alignas(64) constexpr double kErfinvLog[2][16] = {
    {32.0 / 32, 30.0 / 32, 28.0 / 32, 26.0 / 32, 25.0 / 32, 24.0 / 32, 23.0 / 32, 22.0 / 32, 21.0 / 32, 20.0 / 32,
     19.0 / 32, 19.0 / 32, 18.0 / 32, 17.0 / 32, 17.0 / 32, 16.0 / 32},
    {-0x1.4000000000000p+1, -0x1.4842cc5acf1d0p+1, -0x1.51178e8227e48p+1, -0x1.5a93ed3c8ad9ep+1, -0x1.5f991c6cb3b38p+1,
     -0x1.64d2c42269b72p+1, -0x1.6a455c0e7147bp+1, -0x1.6ff5f477b02a4p+1, -0x1.75ea52a4919bap+1, -0x1.7c2914344e4dap+1,
     -0x1.82b9db8b4153ep+1, -0x1.82b9db8b4153ep+1, -0x1.89a58844d36e4p+1, -0x1.90f67fcbe48f1p+1, -0x1.90f67fcbe48f1p+1,
     -0x1.98b90bfbe8e7cp+1}};
// As erfinv_f32 has it, of eight float32 whose w is below 5: a logarithm to 2^-32 is enough.
TS_INLINE __m256 erfinv_centre(__m256 x, __mmask8& beyond) {
  const __m512d one = all_of(1.0), d = _mm512_maskz_cvtps_pd(0xff, x), v = _mm512_fnmadd_pd(d, d, one);
  const __m512d m = _mm512_maskz_getmant_pd(0xff, v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
  const __m512i k = _mm512_maskz_srli_epi64(0xff, _mm512_castpd_si512(m), 48);
  const __m512d r = _mm512_fmsub_pd(m, picked(kErfinvLog[0], k), one);
  const __m512d p = polynomial_pd(r, 0x1.8576c9ac3d64ap-3, -0x1.004137d9aeab8p-2, 0x1.55595cfd3e546p-2,
                                  -0x1.fffff9f46b936p-2, 0x1.ffffffe6fe3aap-1);
  const __m512d base =
      _mm512_fnmadd_pd(_mm512_maskz_getexp_pd(0xff, v), all_of(0x1.62e42fefa39efp-1), picked(kErfinvLog[1], k));
  const __m512d w = _mm512_fnmadd_pd(r, p, base); // less 5 / 2
  beyond = _mm512_cmp_pd_mask(w, all_of(2.5), _CMP_NLT_UQ);
  __m512d q = all_of(kErfinvCentre[0]);
#pragma GCC unroll 10
  for (int i = 1; i < 11; ++i) q = _mm512_fmadd_pd(q, w, all_of(kErfinvCentre[i]));
  return _mm512_maskz_cvtpd_ps(0xff, _mm512_mul_pd(d, q));
}
// Those beyond, few, are put aside, computed together and put in place.
inline int erfinv_loop_avx512(float* out, const float* a, const float*, const float*, int64_t n) {
  constexpr int64_t kPart = 512;
  float far[kPart + 8];
  int32_t at[kPart + 8];
  for (int64_t start = 0; start < n; start += kPart) {
    const int64_t end = n - start < kPart ? n : start + kPart;
    int64_t count = 0;
    for (int64_t i = start; i < end; i += 8) {
      const __mmask8 present = end - i >= 8 ? 0xff : static_cast<__mmask8>((1u << (end - i)) - 1);
      const __m256 x = _mm256_maskz_loadu_ps(present, a + i);
      __mmask8 beyond;
      _mm256_mask_storeu_ps(out + i, present, erfinv_centre(x, beyond));
      if (__builtin_expect(beyond == 0, 1)) continue;
      const __m256i here =
          _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(i - start)));
      _mm256_storeu_ps(far + count, _mm256_maskz_compress_ps(beyond, x));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + count), _mm256_maskz_compress_epi32(beyond, here));
      count += __builtin_popcount(beyond);
    }
    for (int64_t j = 0; j < count; ++j) far[j] = erfinv_f32(far[j]);
    for (int64_t j = 0; j < count; ++j) out[start + at[j]] = far[j];
  }
  return 0;
}

// out[i] = F(a[i]), two vectors in flight.
template <__m512d (*F)(__m512d)> inline void map_avx512(double* out, const double* a, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512d first = F(_mm512_loadu_pd(a + i)), second = F(_mm512_loadu_pd(a + i + 8));
    _mm512_storeu_pd(out + i, first);
    _mm512_storeu_pd(out + i + 8, second);
  }
  for (; i < n; i += 8) {
    const __mmask8 mask = n - i >= 8 ? 0xff : static_cast<__mmask8>((1u << (n - i)) - 1);
    _mm512_mask_storeu_pd(out + i, mask, F(_mm512_maskz_loadu_pd(mask, a + i)));
  }
}
template <__m512d (*F)(__m512d)>
int loop_avx512(double* out, const double* a, const double*, const double*, int64_t n) {
  map_avx512<F>(out, a, n);
  return 0;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif
#endif // TESSERACK_CPU_DOUBLE_AVX512_H
