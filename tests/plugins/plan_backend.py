"""A backend whose every kernel is a launch plan: Python compiles, a small C library launches."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
import tesserack_cpu
from tesserack.backends import WORKSPACE, Backend, Block, Buffer, Launch, LaunchPlan, Operand, Patch

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "core" / "include" / "tesserack" / "abi.h").read_text()


def numbers_of(prefix: str) -> dict[str, int]:
    """The values of an enumeration of the ABI, by lower-case name."""
    found = re.findall(rf"TS_{prefix}(\w+) = (\d+)", HEADER)
    return {name.lower(): int(value) for name, value in found}


INSTRUCTIONS, REDUCTIONS, SCATTERS = numbers_of("I_"), numbers_of("R_"), numbers_of("S_")
DTYPES = {name: k for name, k in numbers_of("").items() if hasattr(ts, name)}
TAGS = {bool: 4, int: 2, float: 3, type(None): 0}
SCALAR, NONE, MUTABLE, CONTIGUOUS = 1, 2, 4, 8


def dtype_number(dtype: Any) -> int:
    return DTYPES[str(dtype).rpartition(".")[2]]


@functools.cache
def driver() -> ctypes.CDLL:
    """The C library, built once a process."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    out = Path(tempfile.mkdtemp()) / "libplan_driver.so"
    source = str(ROOT / "tests" / "plugins" / "plan_driver.cpp")
    options = ["-O2", "-std=c++17", "-shared", "-fPIC", f"-I{ROOT}/core/include"]
    subprocess.run([compiler, *options, source, "-o", str(out), "-ldl"], check=True, capture_output=True)
    library = ctypes.CDLL(str(out))
    library.driver_alloc.restype = library.driver_compile.restype = ctypes.c_void_p
    library.driver_alloc.argtypes = [ctypes.c_size_t]
    library.driver_free.argtypes = [ctypes.c_void_p]
    library.driver_last_grid.restype = ctypes.c_int64
    library.driver_open(tesserack_cpu.library().encode())
    return library


def entry(name: str) -> int:
    """The address of a launcher of the driver's."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


def describe(x: Any) -> list[int]:
    """An operand of a call as driver_compile reads it."""
    if isinstance(x, Operand):
        flags = MUTABLE * x.is_mutable | CONTIGUOUS * x.is_contiguous
        return [dtype_number(x.dtype), flags, x.ndim, *x.shape, *x.strides]
    if x is None:
        return [0, NONE, 0]
    return [DTYPES["float64" if isinstance(x, float) else "bool" if isinstance(x, bool) else "int64"], SCALAR, 0]


def describe_program(program: Any) -> list[int]:
    words = [1, program.id, program.n_inputs, len(program.constants), len(program.instructions), len(program.outputs)]
    for name, *registers in program.instructions:
        words += [INSTRUCTIONS[name], *registers, *[0] * (3 - len(registers))]
    return [*words, *program.outputs]


def compiled(op: str, opcode: int, compute: Any, outputs: Any, inputs: Any, params: Any, program: Any) -> int:
    """The address of a kernel for calls of this kind."""
    words = [opcode, -1 if compute is None else dtype_number(compute), len(outputs), len(outputs) + len(inputs)]
    for x in (*outputs, *inputs):
        words += describe(x)
    words += [len(params), *[TAGS[type(p)] for p in params]]
    words += describe_program(program) if program else [0]
    constants = program.constants if program else ()
    words += program.integers if program else ()
    given = (ctypes.c_int64 * len(words))(*words)
    return int(driver().driver_compile(op.encode(), given, (ctypes.c_double * max(1, len(constants)))(*constants)))


def arguments(operands: Any, params: Any, changing: frozenset[int]) -> tuple[Block, list[Buffer]]:
    """Offsets, numbers and parameters as one block, and the tensors."""
    data, patches, buffers = b"", [], []
    for k, x in enumerate(operands):
        if isinstance(x, Operand):
            patches.append(Patch(len(data), "offset", k, "q"))
            buffers.append(Buffer(k))
        elif x is not None:
            patches.append(Patch(len(data), "scalar", k, "d" if isinstance(x, float) else "q"))
        data += bytes(8)
    for k, p in enumerate(params):
        if k in changing:
            patches.append(Patch(len(data), "param", k, "d" if isinstance(p, float) else "q"))
        data += struct.pack("<d" if isinstance(p, float) else "<q", p)
    return Block(data, patches), buffers


class Planned(Backend):
    """The backend; ``compilations`` counts how often Python was asked for a kernel."""

    vendor = "org.tesserack.tests"
    raw_handles = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.compilations = 0
        super().__init__()
        self._library = driver()
        required = ("copy_cast", "pointwise", "reduce", "scan", "gather", "scatter", "sort")
        self.kernel(*required)(self._compiler(frozenset()))
        self.kernel("fill", changing=[0])(self._compiler(frozenset({0})))
        self.kernel("iota", "random_bits", changing=(0, 1))(self._compiler(frozenset({0, 1})))
        self.kernel("matmul", layout="contiguous")(self.matmul)

    def _compiler(self, changing: frozenset[int]) -> Callable[..., LaunchPlan]:
        def compile_kernel(
            *, op: str, opcode: Any, compute_dtype: Any, program: Any, outputs: Any, inputs: Any, params: Any
        ) -> LaunchPlan:
            self.compilations += 1
            code = SCATTERS[opcode] if op == "scatter" else REDUCTIONS.get(opcode, 0)
            kernel = compiled(op, code, compute_dtype, outputs, inputs, params, program)
            block, buffers = arguments((*outputs, *inputs), params, changing)
            groups = (-(-outputs[0].numel // 64), 1, 1)
            return LaunchPlan([Launch(entry("driver_run"), kernel, groups, (64, 1, 1), [block, *buffers])])

        return compile_kernel

    def matmul(self, out: Operand, *inputs: Any, compute_dtype: Any) -> LaunchPlan:
        """Into scratch memory first, and from there to the result."""
        self.compilations += 1
        kernel = compiled("matmul", 0, compute_dtype, (out,), inputs, (), None)
        block, buffers = arguments((out, *inputs), (), frozenset())
        # The scratch memory begins at its first byte.
        block = Block(block.data, [p for p in block.patches if p.source != 0])
        nbytes = out.numel * out.itemsize
        copied = Block(struct.pack("<qq", 0, nbytes), [Patch(0, "offset", 0, "q")])
        launches = [
            Launch(entry("driver_run"), kernel, (1, 1, 1), (1, 1, 1), [block, Buffer(WORKSPACE), *buffers[1:]]),
            Launch(entry("driver_copy"), 0, (1, 1, 1), (1, 1, 1), [Buffer(0), Buffer(WORKSPACE), copied]),
        ]
        return LaunchPlan(launches, workspace=nbytes)

    def alloc(self, device: int, nbytes: int, stream: Any) -> int:
        return int(self._library.driver_alloc(nbytes))

    def free(self, device: int, handle: int, nbytes: int, stream: Any) -> None:
        self._library.driver_free(handle)

    def copy_from_host(self, device: int, dst: int, dst_offset: int, src: memoryview, stream: Any) -> None:
        ctypes.memmove(dst + dst_offset, bytes(src), src.nbytes)

    def copy_to_host(self, device: int, dst: memoryview, src: int, src_offset: int, stream: Any) -> None:
        dst[:] = ctypes.string_at(src + src_offset, dst.nbytes)

    def copy_within(
        self, device: int, dst: int, dst_offset: int, src: int, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        ctypes.memmove(dst + dst_offset, src + src_offset, nbytes)
