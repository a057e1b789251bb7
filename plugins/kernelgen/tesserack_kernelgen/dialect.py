"""Dialects of C: the words that the templates are written in, and what each means in one language.

Every template is text in the same words; a dialect defines them by a prelude of macros and types. The words:

- types ``u8 u16 u32 u64 i8 i16 i32 i64 f32 f64``; ``f64`` only where the device has it;
- ``KERNEL(x, y, z)`` before a kernel, with the size of its groups; ``DEVICE`` before a helper function;
- ``GLOBAL``, ``LOCAL`` before types of pointers; ``LOCAL_ARRAY(type, name, count)`` declares memory of the group;
- ``GROUP(axis)``, ``LANE(axis)``: number of the group, and of the item in it, along axis 0, 1 or 2, as ``i32``;
- ``BARRIER`` between phases of a group;
- ``ALIGNED(n)`` in a struct, so that it is loaded and stored at once;
- ``AS_F32(u32)``, ``AS_U32(f32)``, and for 64 bits ``AS_F64(u64)``, ``AS_U64(f64)``: the same bits;
- ``CAS32(pointer, old, new)``, ``CAS64``: atomic compare-and-swap on ``u32`` and ``u64``, giving what was there;
- ``MULHI32(a, b)``: high word of a product; ``UNROLL`` before a loop;
- ``LOAD_HALF(pointer, i)`` (``f32``) and ``STORE_HALF_F32(pointer, i, x)``, ``STORE_HALF_F64``: IEEE half precision.

Functions of mathematics have their names of C (``exp``, ``fma``, ``lgamma``), for ``f32`` as well as for ``f64``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PORTABLE_HALF", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """A dialect of C.

    Args:
        name: stands in the key of the disk cache.
        prelude: text before every kernel, which defines the words.
        prelude_f64: text that comes after it where the device computes with float64.
        buffer: how a kernel declares a storage among its parameters.
        value: how it declares the struct of numbers.
        vectors: names of vector types by type of element, ``{n}`` for how many there are. They add, multiply and
            ``fma`` element by element and are made of one number by a cast. For devices that are ``serial``.
        vector_functions: whether functions of mathematics, comparisons, ``?:``, ``vload{n}`` and ``vstore{n}`` work on
            them as OpenCL has them. Then ``vectors`` has those of ``f32``, ``i32`` and ``u32``, and where the device
            computes with float64, of ``f64``, ``i64`` and ``u64``.
    """

    name: str
    prelude: str
    prelude_f64: str = ""
    buffer: str = "GLOBAL u8* {name}"
    value: str = "const {type} {name}"
    vectors: Mapping[str, str] = field(default_factory=dict)
    vector_functions: bool = False

    def vector(self, c: str, n: int) -> str:
        """The type of ``n`` elements of C type ``c``."""
        return self.vectors[c].format(n=n)

    def text(self, body: str, f64: bool) -> str:
        """The whole source of a kernel."""
        return "\n".join(filter(None, (self.prelude, self.prelude_f64 if f64 else "", SHARED, body)))


#: Half precision by integer arithmetic, for dialects without the type. Rounds to nearest, ties to even.
PORTABLE_HALF = """
DEVICE f32 half_to_f32(u16 h) {
  u32 sign = (u32)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  if (exponent == 31) return AS_F32(sign | 0x7f800000u | (fraction << 13));
  if (exponent) return AS_F32(sign | ((exponent + 112) << 23) | (fraction << 13));
  f32 tiny = (f32)fraction * 5.9604644775390625e-8f;
  return sign ? -tiny : tiny;
}
DEVICE u16 f32_to_half(f32 x) {
  u32 bits = AS_U32(x), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (u16)(sign | 0x7e00);
  if (rest >= 0x477ff000) return (u16)(sign | 0x7c00);
  if (rest >= 0x38800000) return (u16)(sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13));
  if (rest < 0x33000000) return (u16)sign;
  u32 shift = 126 - (rest >> 23), mantissa = (rest & 0x7fffff) | 0x800000;
  u32 half = mantissa >> shift, lost = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
  return (u16)(sign | (half + (lost > tie || (lost == tie && (half & 1)))));
}
#define LOAD_HALF(p, i) half_to_f32(((GLOBAL const u16*)(p))[i])
#define STORE_HALF_F32(p, i, x) (((GLOBAL u16*)(p))[i] = f32_to_half(x))
#define STORE_HALF_F64(p, i, x) STORE_HALF_F32(p, i, (f32)(x))
"""

# What follows from the words alone: storage of every dtype, and the report of faults.
SHARED = """
DEVICE f32 bf16_to_f32(u16 h) { return AS_F32((u32)h << 16); }
DEVICE u16 f32_to_bf16(f32 x) {
  u32 bits = AS_U32(x);
  return x != x ? (u16)0x7fc0 : (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#define LOAD_bool(p, i) ((i32)(((GLOBAL const u8*)(p))[i] != 0))
#define LOAD_uint8(p, i) (((GLOBAL const u8*)(p))[i])
#define LOAD_uint16(p, i) (((GLOBAL const u16*)(p))[i])
#define LOAD_uint32(p, i) (((GLOBAL const u32*)(p))[i])
#define LOAD_uint64(p, i) (((GLOBAL const u64*)(p))[i])
#define LOAD_int8(p, i) (((GLOBAL const i8*)(p))[i])
#define LOAD_int16(p, i) (((GLOBAL const i16*)(p))[i])
#define LOAD_int32(p, i) (((GLOBAL const i32*)(p))[i])
#define LOAD_int64(p, i) (((GLOBAL const i64*)(p))[i])
#define LOAD_float16(p, i) LOAD_HALF(p, i)
#define LOAD_bfloat16(p, i) bf16_to_f32(((GLOBAL const u16*)(p))[i])
#define LOAD_float32(p, i) (((GLOBAL const f32*)(p))[i])
#define LOAD_float64(p, i) (((GLOBAL const f64*)(p))[i])
#define REAL_TO_U64(x) ((x) < 0 ? (u64)(i64)(x) : (u64)(x))
DEVICE void report_fault(GLOBAL u32* fault, i32 code, i32 site, i64 value) {
  if (CAS32(fault, 0u, (u32)code) == 0u) {
    fault[1] = (u32)site;
    fault[2] = (u32)value;
    fault[3] = (u32)((u64)value >> 32);
  }
}
"""
