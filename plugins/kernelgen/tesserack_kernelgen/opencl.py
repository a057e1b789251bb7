"""OpenCL C 1.2 as a dialect."""

from __future__ import annotations

from tesserack_kernelgen.dialect import Dialect

__all__ = ["OPENCL"]

_PRELUDE = """
#pragma OPENCL FP_CONTRACT OFF
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef char i8; typedef short i16; typedef int i32; typedef long i64; typedef float f32;
#define KERNEL(x, y, z) __kernel __attribute__((reqd_work_group_size(x, y, z)))
#define DEVICE inline static
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_ARRAY(type, name, count) __local type name[count]
#define GROUP(axis) ((i32)get_group_id(axis))
#define LANE(axis) ((i32)get_local_id(axis))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define ALIGNED(n) __attribute__((aligned(n)))
#define AS_F32(x) as_float((u32)(x))
#define AS_U32(x) as_uint((f32)(x))
#define CAS32(p, old, new) atomic_cmpxchg((volatile __global u32*)(p), (u32)(old), (u32)(new))
#define CAS64(p, old, new) atom_cmpxchg((volatile __global u64*)(p), (u64)(old), (u64)(new))
#define MULHI32(a, b) mul_hi((u32)(a), (u32)(b))
#define UNROLL
#define LOAD_HALF(p, i) vload_half(i, (__global const half*)(p))
#define STORE_HALF_F32(p, i, x) vstore_half_rte((f32)(x), i, (__global half*)(p))
"""
_PRELUDE_F64 = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define AS_F64(x) as_double((u64)(x))
#define AS_U64(x) as_ulong((f64)(x))
#define STORE_HALF_F64(p, i, x) vstore_half_rte((f64)(x), i, (__global half*)(p))
"""

_VECTORS = {
    "f32": "float{n}",
    "f64": "double{n}",
    "i32": "int{n}",
    "u32": "uint{n}",
    "i64": "long{n}",
    "u64": "ulong{n}",
}

OPENCL = Dialect("opencl", _PRELUDE, _PRELUDE_F64, vectors=_VECTORS, vector_functions=True)
