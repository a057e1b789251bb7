"""The device toy: kernels that tesserack-kernelgen writes, in a dialect of C. As it stands the dialect is C++.

Three parts are yours: the words, how text becomes a kernel, and memory.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from tesserack.backends import Backend
from tesserack_kernelgen import PORTABLE_HALF, Card, Device, Dialect, HostCompiler

# The words of the dialect.
WORDS = """
#include <tesserack/launch.h>
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64; typedef float f32; typedef double f64;
static thread_local i32 group_[3], lane_[3];
#define KERNEL(x, y, z) static
#define DEVICE static inline
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, count) static thread_local type name[count]
#define GROUP(axis) group_[axis]
#define LANE(axis) lane_[axis]
#define BARRIER
#define ALIGNED(n) __attribute__((aligned(n)))
#define AS_F32(x) __builtin_bit_cast(f32, (u32)(x))
#define AS_U32(x) __builtin_bit_cast(u32, (f32)(x))
#define AS_F64(x) __builtin_bit_cast(f64, (u64)(x))
#define AS_U64(x) __builtin_bit_cast(u64, (f64)(x))
#define CAS32(p, old, new) __sync_val_compare_and_swap((u32*)(p), (u32)(old), (u32)(new))
#define CAS64(p, old, new) __sync_val_compare_and_swap((u64*)(p), (u64)(old), (u64)(new))
#define MULHI32(a, b) ((u32)((u64)(u32)(a) * (u32)(b) >> 32))
#define UNROLL
template <class T, int N> struct vec { // see Dialect.vectors
  T at[N];
  vec() = default;
  explicit vec(T x) { for (T& a : at) a = x; }
  vec operator+(vec b) const { for (int k = 0; k < N; ++k) b.at[k] = at[k] + b.at[k]; return b; }
  vec operator*(vec b) const { for (int k = 0; k < N; ++k) b.at[k] = at[k] * b.at[k]; return b; }
  vec& operator+=(vec b) { return *this = *this + b; }
};
template <class T, int N> vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) { return a * b + c; }
"""
# Functions of C under one name for both types. Headers of the library would be most of what a kernel costs to compile.
ONE = "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc"
for names, takes in (
    (f"{ONE} lgamma floor ceil trunc rint fabs", "x"),
    ("fmod pow atan2 hypot copysign", "xy"),
    ("fma", "xyz"),
):
    for name in names.split():
        for c, suffix in (("f32", "f"), ("f64", "")):
            given = ", ".join(f"{c} {x}" for x in takes)
            WORDS += f"inline {c} {name}({given}) {{ return __builtin_{name}{suffix}({', '.join(takes)}); }}\n"
TYPES = "f32", "f64", "i32", "i64", "u64"
WORDS += "".join(f"template <int N> using {c}_vec = vec<{c}, N>;\n" for c in TYPES)
# The launcher: every item of every group in turn. A real one queues the kernel on the stream.
WORDS += """
template <class... A> struct Call { Call(void (*kernel)(A...), A... a) { kernel(a...); } };
template <class... A> int launch(void (*kernel)(A...), const ts_launch* l) {
  const auto &n = l->groups;
  const auto &m = l->group_size;
  for (u64 g = 0; g < n[0] * n[1] * n[2]; ++g)
    for (u64 i = 0; i < (u64)m[0] * m[1] * m[2]; ++i) {
      group_[0] = g % n[0], group_[1] = g / n[0] % n[1], group_[2] = g / (n[0] * n[1]);
      lane_[0] = i % m[0], lane_[1] = i / m[0] % m[1], lane_[2] = i / (m[0] * m[1]);
      int k = 0; // in braces arguments are taken from first to last
      Call<A...>{kernel, *(A*)TS_LAUNCH_ARGUMENT(l, k++)->value...};
    }
  return TS_OK;
}
"""
DIALECT = Dialect("toy", WORDS + PORTABLE_HALF, vectors={c: f"{c}_vec<{{n}}>" for c in TYPES})
ENTRY = """#include <tesserack/launch.h>
extern "C" int run(const ts_launch* l) { return ((int (*)(const ts_launch*))l->kernel)(l); }
"""


class ToyCard(Card):
    dialect = DIALECT

    def __init__(self, backend: Toy) -> None:
        super().__init__()
        self.compiler = HostCompiler(self.dialect.text("", True), link=("-nostdlib", "-lm"))
        self.faults = (ctypes.c_uint32 * 4)()
        self.limits = Device(0, "toy", 1, 1, 4, True, True, True, struct.pack("Q", ctypes.addressof(self.faults)))
        self.entry, _ = self.compiler.function(ENTRY, "run")

    def device(self, index: int) -> Device:
        return self.limits

    def compile(self, device: Device, source: str, name: str) -> int:
        made = f'\nextern "C" int start(const ts_launch* l) {{ return launch(::{name}, l); }}'
        address, compiled = self.compiler.function(source + made, "start")
        self.statistics.compiled += compiled
        self.statistics.from_disk += not compiled
        return address


# Memory is the host's, and handles are addresses.
C = ctypes.CDLL(None)
C.aligned_alloc.restype, C.aligned_alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
C.free.argtypes = (ctypes.c_void_p,)


class Toy(Backend):
    name, vendor, version = "toy", "org.example.toy", "0.1.0"
    raw_handles = True

    def alloc(self, device: int, nbytes: int, stream: Any) -> int:
        address = C.aligned_alloc(64, max(-(-nbytes // 64), 1) * 64)
        if not address:
            raise MemoryError(f"toy: no {nbytes} bytes")
        return int(address)

    def free(self, device: int, handle: int, nbytes: int, stream: Any) -> None:
        C.free(handle)

    def copy_from_host(self, device: int, dst: int, dst_offset: int, src: memoryview, stream: Any) -> None:
        ctypes.memmove(dst + dst_offset, bytes(src), src.nbytes)

    def copy_to_host(self, device: int, dst: memoryview, src: int, src_offset: int, stream: Any) -> None:
        dst[:] = ctypes.string_at(src + src_offset, dst.nbytes)
        self.synchronize(device, stream)

    def copy_within(self, device: int, dst: int, to: int, src: int, start: int, nbytes: int, stream: Any) -> None:
        ctypes.memmove(dst + to, src + start, nbytes)

    def synchronize(self, device: int, stream: Any) -> None:
        if self.card.faults[0]:
            words = [*self.card.faults]
            ctypes.memset(self.card.faults, 0, 16)
            raise self.card.fault_error(words)


backend = Toy()
backend.card = ToyCard(backend)
backend.card.install(backend)
