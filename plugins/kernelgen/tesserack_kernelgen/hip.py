"""HIP C++ as a dialect, for AMD's devices, and its compiler at run time, hiprtc, which needs no device.

Nothing is included: hiprtc puts the declarations of HIP before every text.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tesserack_kernelgen.cuda import COMMON
from tesserack_kernelgen.dialect import Dialect

__all__ = ["HIP", "Compiler"]

# Clang has half precision as a type, and would join products and sums unless told otherwise.
_OWN = """#pragma clang fp contract(off)
#define LOAD_HALF(p, i) ((f32)((const _Float16*)(p))[i])
#define STORE_HALF_F32(p, i, x) (((_Float16*)(p))[i] = (_Float16)(f32)(x))
#define STORE_HALF_F64(p, i, x) (((_Float16*)(p))[i] = (_Float16)(f64)(x))
"""

HIP = Dialect("hip", COMMON + _OWN)

# By version of ROCm: 5 has the compiler in the library of the runtime, 6 and later beside it.
_LIBRARIES = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5", "libamdhip64.so")


class Compiler:
    """hiprtc, by ctypes. ``OSError`` where it is not installed.

    Debian's (5.2) ends a process in which PoCL has compiled: each brings an LLVM of its own.

    Args:
        library: its name or path; those of ROCm 5 and later are tried unless one is given.
    """

    def __init__(self, library: str = ""):
        self._library = _load((library,) if library else _LIBRARIES)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("hiprtcVersion", ctypes.byref(major), ctypes.byref(minor))
        #: (major, minor), which belongs in :attr:`Device.identity`.
        self.version = major.value, minor.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"hiprtc: {name} failed with status {status}")

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"hiprtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value + 1)
        self._call(f"hiprtcGet{what}", program, data)
        return data.raw[: size.value]

    def compile(self, source: str, architecture: str, *options: str) -> bytes:
        """The code object of a text for an architecture such as ``"gfx90a"``. ``RuntimeError`` with the log for a bad
        text.
        """
        program = ctypes.c_void_p()
        self._call("hiprtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.hip", 0, None, None)
        try:
            words = [f"--offload-arch={architecture}", "-std=c++17", "-ffp-contract=off", *options]
            array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
            if self._library.hiprtcCompileProgram(program, len(words), array):
                log = self._read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise RuntimeError(f"hip: a kernel does not compile for {architecture}: {log}")
            return self._read("Code", program)
        finally:
            self._library.hiprtcDestroyProgram(ctypes.byref(program))


def _load(names: tuple[str, ...]) -> ctypes.CDLL:
    causes = []
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            causes.append(str(error))
            continue
        if hasattr(library, "hiprtcCompileProgram"):
            return library
        causes.append(f"{name} has no hiprtcCompileProgram")
    raise OSError(
        f"hip: no compiler, {'; '.join(causes)}; install ROCm's hiprtc, on Debian libamdhip64-5 and libhiprtc-builtins5"
    )
