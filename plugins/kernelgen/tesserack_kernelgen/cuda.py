"""CUDA C++ as a dialect; nothing is included, so that NVRTC needs no headers but those of half precision.

``COMMON`` is what HIP shares with it.
"""

from __future__ import annotations

from tesserack_kernelgen.dialect import Dialect

__all__ = ["COMMON", "CUDA"]

_AXES = "\n".join(
    f"#define {word}_{axis} ((i32){variable}.{letter})"
    for word, variable in (("GROUP", "blockIdx"), ("LANE", "threadIdx"))
    for axis, letter in enumerate("xyz")
)

COMMON = f"""
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64; typedef float f32;
typedef double f64;
{_AXES}
#define KERNEL(x, y, z) extern "C" __global__ __launch_bounds__((x) * (y) * (z))
#define DEVICE __device__ __forceinline__ static
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define GROUP(axis) GROUP_##axis
#define LANE(axis) LANE_##axis
#define BARRIER __syncthreads()
#define ALIGNED(n) __align__(n)
#define AS_F32(x) __uint_as_float(x)
#define AS_U32(x) __float_as_uint(x)
#define AS_F64(x) __longlong_as_double((i64)(x))
#define AS_U64(x) ((u64)__double_as_longlong(x))
#define CAS32(p, old, new) atomicCAS((u32*)(p), (u32)(old), (u32)(new))
#define CAS64(p, old, new) atomicCAS((u64*)(p), (u64)(old), (u64)(new))
#define MULHI32(a, b) __umulhi(a, b)
#define UNROLL _Pragma("unroll")
"""

_HALF = """DEVICE f32 load_half(const u16* p) {
  f32 x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(*p));
  return x;
}
DEVICE u16 half_of_f32(f32 x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
DEVICE u16 half_of_f64(f64 x) {
  u16 h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x));
  return h;
}
#define LOAD_HALF(p, i) load_half((const u16*)(p) + (i))
#define STORE_HALF_F32(p, i, x) (((u16*)(p))[i] = half_of_f32(x))
#define STORE_HALF_F64(p, i, x) (((u16*)(p))[i] = half_of_f64(x))
"""

CUDA = Dialect("cuda", COMMON + _HALF)
