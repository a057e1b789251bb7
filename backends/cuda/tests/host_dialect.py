"""The generator's words in plain C++, in which the simulated driver compiles what was written for CUDA."""

from __future__ import annotations

import re

from tesserack_kernelgen.cuda import CUDA
from tesserack_kernelgen.dialect import PORTABLE_HALF

__all__ = ["translate"]

_PRELUDE = (
    """
#include <cmath>
#include <cstdint>
#include <cstring>
using namespace std;
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64; typedef float f32; typedef double f64;
extern "C" { extern __thread int simulated_group[3], simulated_lane[3]; void simulated_barrier(); }
template <class To, class From> To same_bits(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
#define KERNEL(x, y, z) static
#define DEVICE static inline
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, count) alignas(16) static thread_local type name[count]
#define GROUP(axis) simulated_group[axis]
#define LANE(axis) simulated_lane[axis]
#define BARRIER simulated_barrier()
#define ALIGNED(n) alignas(n)
#define AS_F32(x) same_bits<f32>((u32)(x))
#define AS_U32(x) same_bits<u32>((f32)(x))
#define AS_F64(x) same_bits<f64>((u64)(x))
#define AS_U64(x) same_bits<u64>((f64)(x))
#define CAS32(p, old, fresh) __sync_val_compare_and_swap((u32*)(p), (u32)(old), (u32)(fresh))
#define CAS64(p, old, fresh) __sync_val_compare_and_swap((u64*)(p), (u64)(old), (u64)(fresh))
#define MULHI32(a, b) ((u32)(((u64)(u32)(a) * (u32)(b)) >> 32))
#define UNROLL
"""
    + PORTABLE_HALF
)


def translate(source: str) -> str:
    """A CUDA text as C++, with a function ``{name}_entry(void** arguments)`` beside each kernel, and the sizes of its
    parameters in ``{name}_sizes``, which end with 0. Text that is not the generator's is left as it is."""
    if not source.startswith(CUDA.prelude):
        return source
    body = source[len(CUDA.prelude) :]
    entries = []
    for name, parameters in re.findall(r"KERNEL\([^)]*\) void (\w+)\(([^)]*)\)", body):
        types = [
            re.sub(r"\w+$", "", parameter.replace("const ", "").replace("GLOBAL ", "").strip())
            for parameter in parameters.split(",")
        ]
        values = ", ".join(f"*({kind}*)a[{k}]" for k, kind in enumerate(types))
        sizes = ", ".join(f"sizeof({kind})" for kind in types)
        entries.append(
            f'extern "C" void {name}_entry(void** a) {{ {name}({values}); }}\n'
            f'extern "C" {{ extern const size_t {name}_sizes[]; const size_t {name}_sizes[] = {{{sizes}, 0}}; }}'
        )
    return "\n".join((_PRELUDE, body, *entries))


def has_barrier(source: str) -> bool:
    """Whether items of a group wait for one another."""
    return "BARRIER" in source[len(CUDA.prelude) :]
