"""Calls the kernels of libtesserack_cpu.so straight through the C contract, with NumPy arrays as tensors."""

from __future__ import annotations

import ctypes as ct
import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]

OK, DECLINED, ERROR, OUT_OF_MEMORY, INDEX_ERROR, INTERRUPTED, VALUE_ERROR = range(7)
SCALAR, NONE, MUTABLE, CONTIGUOUS = 1, 2, 4, 8
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES: list[np.dtype[Any]] = [np.dtype(d) for d in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2")] + [
    BFLOAT16,
    np.dtype("f4"),
    np.dtype("f8"),
    np.dtype("c8"),
    np.dtype("c16"),
]
CODE = {d: i for i, d in enumerate(DTYPES)}

INSTRUCTIONS = [
    "copy",
    "neg",
    "abs",
    "sign",
    "recip",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "sigmoid",
    "floor",
    "ceil",
    "trunc",
    "round",
    "bitnot",
    "not",
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "mod",
    "fmod",
    "pow",
    "max",
    "min",
    "atan2",
    "hypot",
    "copysign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "select",
    "fma",
]
REDUCTIONS = ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"]


class Value(ct.Structure):
    class As(ct.Union):
        _fields_ = [("i", ct.c_int64), ("f", ct.c_double), ("ptr", ct.c_void_p)]

    _fields_ = [("tag", ct.c_int32), ("len", ct.c_int32), ("as_", As)]


class Tensor(ct.Structure):
    class Scalar(ct.Union):
        _fields_ = [("i", ct.c_int64), ("f", ct.c_double)]

    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("handle", ct.c_void_p),
        ("byte_offset", ct.c_int64),
        ("numel", ct.c_int64),
        ("sizes", ct.POINTER(ct.c_int64)),
        ("strides", ct.POINTER(ct.c_int64)),
        ("dtype", ct.c_int32),
        ("ndim", ct.c_int32),
        ("flags", ct.c_uint32),
        ("reserved", ct.c_uint32),
        ("scalar", Scalar),
    ]


class Instruction(ct.Structure):
    _fields_ = [("op", ct.c_uint16), ("a", ct.c_uint16), ("b", ct.c_uint16), ("c", ct.c_uint16)]


class Program(ct.Structure):
    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("id", ct.c_uint64),
        ("n_inputs", ct.c_int32),
        ("n_constants", ct.c_int32),
        ("n_instructions", ct.c_int32),
        ("n_outputs", ct.c_int32),
        ("constants", ct.POINTER(ct.c_double)),
        ("instructions", ct.POINTER(Instruction)),
        ("outputs", ct.POINTER(ct.c_uint16)),
        ("text", ct.c_char_p),
        ("integers", ct.POINTER(ct.c_int64)),
        ("hash", ct.c_uint64 * 2),
    ]


SET_ERROR = ct.CFUNCTYPE(None, ct.c_char_p)
INTERRUPTED_FN = ct.CFUNCTYPE(ct.c_int)
LOG = ct.CFUNCTYPE(None, ct.c_int32, ct.c_char_p)


class Host(ct.Structure):
    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("abi_major", ct.c_int32),
        ("abi_minor", ct.c_int32),
        ("set_error", SET_ERROR),
        ("interrupted", INTERRUPTED_FN),
        ("log", LOG),
    ]


class Call(ct.Structure):
    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("host", ct.POINTER(Host)),
        ("backend_ctx", ct.c_void_p),
        ("kernel_ctx", ct.c_void_p),
        ("stream", ct.c_void_p),
        ("op", ct.c_char_p),
        ("opcode", ct.c_int32),
        ("device_index", ct.c_int32),
        ("compute_dtype", ct.c_int32),
        ("n_outputs", ct.c_int32),
        ("n_inputs", ct.c_int32),
        ("n_params", ct.c_int32),
        ("tensor_size", ct.c_size_t),
        ("outputs", ct.POINTER(Tensor)),
        ("inputs", ct.POINTER(Tensor)),
        ("params", ct.POINTER(Value)),
        ("program", ct.POINTER(Program)),
        ("core", ct.c_void_p),
        ("call_flags", ct.c_uint32),
        ("reserved", ct.c_uint32),
        ("prologue", ct.POINTER(Program)),
        ("epilogue", ct.POINTER(Program)),
        ("number", ct.c_uint64),
    ]


RUN = ct.CFUNCTYPE(ct.c_int, ct.POINTER(Call))


class Kernel(ct.Structure):
    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("run", RUN),
        ("ctx", ct.c_void_p),
        ("dtypes", ct.c_uint64),
        ("layouts", ct.c_uint32),
        ("flags", ct.c_uint32),
    ]


class Properties(ct.Structure):
    _fields_ = [
        ("struct_size", ct.c_size_t),
        ("name", ct.c_char * 128),
        ("total_memory", ct.c_uint64),
        ("free_memory", ct.c_uint64),
        ("dtypes", ct.c_uint64),
        ("max_ndim", ct.c_int32),
        ("compute_units", ct.c_int32),
        ("max_allocation", ct.c_uint64),
        ("alignment", ct.c_uint32),
        ("flags", ct.c_uint32),
    ]


C, P, I32, I64, SIZE = ct.c_int, ct.c_void_p, ct.c_int32, ct.c_int64, ct.c_size_t


class Backend(ct.Structure):
    _fields_ = [
        ("struct_size", SIZE),
        ("abi_major", I32),
        ("abi_minor_needed", I32),
        ("name", ct.c_char_p),
        ("vendor", ct.c_char_p),
        ("version", ct.c_char_p),
        ("ctx", P),
        ("probe", ct.CFUNCTYPE(C, P, ct.POINTER(I32), ct.c_char_p, SIZE)),
        ("properties", ct.CFUNCTYPE(C, P, I32, ct.POINTER(Properties))),
        ("alloc", ct.CFUNCTYPE(C, P, I32, SIZE, P, ct.POINTER(P))),
        ("free", ct.CFUNCTYPE(None, P, I32, P, SIZE, P)),
        ("copy_from_host", ct.CFUNCTYPE(C, P, I32, P, I64, P, SIZE, P)),
        ("copy_to_host", ct.CFUNCTYPE(C, P, I32, P, P, I64, SIZE, P)),
        ("copy_within", ct.CFUNCTYPE(C, P, I32, P, I64, P, I64, SIZE, P)),
        ("synchronize", ct.CFUNCTYPE(C, P, I32, P)),
        ("get_kernel", ct.CFUNCTYPE(C, P, I32, ct.c_char_p, ct.POINTER(Kernel))),
        ("host_pointer", ct.CFUNCTYPE(P, P, I32, P)),
        ("copy_peer", P),
        ("stream_create", P),
        ("stream_destroy", P),
        ("event_create", P),
        ("event_destroy", P),
        ("event_record", P),
        ("event_query", P),
        ("event_synchronize", P),
        ("event_elapsed", P),
        ("stream_wait_event", P),
        ("flags", ct.c_uint32),
        ("reserved", ct.c_uint32),
        ("set_num_threads", ct.CFUNCTYPE(None, P, I32)),
        ("get_num_threads", ct.CFUNCTYPE(I32, P)),
    ]


class KernelError(Exception):
    """A kernel's status and the message it left with the host."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.message = message


_last_error: list[str] = [""]


def _record_error(message: bytes) -> None:
    _last_error[0] = message.decode()


_set_error = SET_ERROR(_record_error)


_HOST = Host(ct.sizeof(Host), 2, 0, _set_error, INTERRUPTED_FN(lambda: 0), LOG(lambda level, text: None))


def library_path() -> Path | None:
    """The library under test: $TESSERACK_CPU_LIB, else the one in the installed package."""
    named = os.environ.get("TESSERACK_CPU_LIB")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("tesserack_cpu")
    for folder in spec.submodule_search_locations or [] if spec else []:
        if (path := Path(folder) / "libtesserack_cpu.so").exists():
            return path
    return None


def load_table(path: Path) -> tuple[int, str, Any]:
    """What a library's entry point says: its status, the message it left with the host, and its table or null."""
    _last_error[0] = ""
    table = ct.POINTER(Backend)()
    status = ct.CDLL(str(path)).tesserack_backend(ct.byref(_HOST), ct.byref(table))
    return status, _last_error[0], table


@cache
def backend() -> Backend:
    """Loads the library once; skips the test when there is none."""
    path = library_path()
    if path is None:
        pytest.skip("libtesserack_cpu.so not found: build it and set TESSERACK_CPU_LIB, or install tesserack-cpu")
    status, message, table = load_table(path)
    assert status == OK, message
    return table.contents


@cache
def kernel(op: str) -> Kernel:
    """The kernel registered under `op`; a KernelError with DECLINED when there is none."""
    found = Kernel(struct_size=ct.sizeof(Kernel))
    status = backend().get_kernel(None, 0, op.encode(), ct.byref(found))
    if status != OK:
        raise KernelError(status, f"no kernel named {op}")
    return found


def as_array(x: Any) -> Array:
    """A NumPy view of x. torch's bfloat16 comes through its bits."""
    if type(x).__module__.startswith("torch"):
        import torch

        x = x.detach()
        x = x.view(torch.int16).numpy().view(BFLOAT16) if x.dtype is torch.bfloat16 else x.numpy()
    return np.asarray(x)


def is_contiguous(a: Array) -> bool:
    """Row-major without gaps; sizes of 1 do not count, as in the contract."""
    return bool(a.flags.c_contiguous)


def fill_tensor(t: Tensor, x: Any, keep: list[Any], flags: int = 0) -> None:
    """Describes None (absent), a Python number (TS_T_SCALAR) or an array."""
    t.struct_size = ct.sizeof(Tensor)
    if x is None:
        t.flags = NONE
        return
    if isinstance(x, tuple):  # (number, dtype, ndim): a scalar operand
        value, dtype, ndim = x
        t.dtype, t.ndim, t.numel, t.flags = CODE[np.dtype(dtype)], ndim, 1, SCALAR
        zeros = (ct.c_int64 * max(ndim, 1))()
        keep.append(zeros)
        t.sizes = t.strides = ct.cast(zeros, ct.POINTER(ct.c_int64))
        if CODE[np.dtype(dtype)] >= CODE[np.dtype("f2")]:
            t.scalar.f = value
        else:
            t.scalar.i = int(value)
        return
    a = as_array(x)
    sizes = (ct.c_int64 * max(a.ndim, 1))(*a.shape)
    strides = (ct.c_int64 * max(a.ndim, 1))(*(s // a.itemsize for s in a.strides))
    keep += [a, sizes, strides]
    t.handle, t.byte_offset = a.ctypes.data - 0, 0
    t.numel, t.ndim, t.dtype = a.size, a.ndim, CODE[a.dtype]
    t.sizes, t.strides = ct.cast(sizes, ct.POINTER(ct.c_int64)), ct.cast(strides, ct.POINTER(ct.c_int64))
    t.flags = flags | (CONTIGUOUS if is_contiguous(a) else 0)


def fill_value(v: Value, x: Any, keep: list[Any]) -> None:
    """Describes one parameter; np.dtype objects are DTYPE, lists are INTS or FLOATS."""
    if x is None:
        v.tag = 0
    elif isinstance(x, np.dtype):
        v.tag, v.as_.i = 9, CODE[x]
    elif isinstance(x, bool):
        v.tag, v.as_.i = 4, int(x)
    elif isinstance(x, int):
        v.tag, v.as_.i = 2, x if x < 1 << 63 else x - (1 << 64)
    elif isinstance(x, float):
        v.tag, v.as_.f = 3, x
    elif isinstance(x, Tensors):
        v.tag, v.len, v.as_.i = 8, x.count, x.first
    else:
        floats = any(isinstance(e, float) for e in x)
        data = ((ct.c_double if floats else ct.c_int64) * max(len(x), 1))(*x)
        keep.append(data)
        v.tag, v.len, v.as_.ptr = (7 if floats else 6), len(x), ct.addressof(data)


class Tensors:
    """A TENSORS parameter: `count` inputs from index `first` on."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count


class Bound:
    """A call ready to run again and again, for timing."""

    def __init__(
        self,
        op: str,
        outputs: Sequence[Any],
        inputs: Sequence[Any] = (),
        params: Sequence[Any] = (),
        opcode: int = 0,
        compute: Any = None,
        program: Program | None = None,
    ) -> None:
        self.keep: list[Any] = [program]
        outs, ins = (Tensor * max(len(outputs), 1))(), (Tensor * max(len(inputs), 1))()
        values = (Value * max(len(params), 1))()
        for t, x in zip(outs, outputs, strict=False):
            fill_tensor(t, x, self.keep)
        for t, x in zip(ins, inputs, strict=False):
            fill_tensor(t, x, self.keep)
            if isinstance(x, tuple) and len(outputs):
                t.sizes = outs[0].sizes
        for v, x in zip(values, params, strict=False):
            fill_value(v, x, self.keep)
        self.keep += [outs, ins, values]
        self.call = Call(
            struct_size=ct.sizeof(Call),
            host=ct.pointer(_HOST),
            op=op.encode(),
            opcode=opcode,
            compute_dtype=CODE[np.dtype(compute)] if compute is not None else 0,
            n_outputs=len(outputs),
            n_inputs=len(inputs),
            n_params=len(params),
            tensor_size=ct.sizeof(Tensor),
            outputs=outs,
            inputs=ins,
            params=values,
            program=ct.pointer(program) if program is not None else None,
        )
        self.pointer = ct.pointer(self.call)
        self.kernel = kernel(op).run

    def run(self) -> None:
        """Runs the kernel; raises KernelError unless it returns OK."""
        _last_error[0] = ""
        status = self.kernel(self.pointer)
        if status != OK:
            raise KernelError(status, _last_error[0])


def call(op: str, outputs: Sequence[Any], inputs: Sequence[Any] = (), params: Sequence[Any] = (), **kw: Any) -> None:
    """Binds and runs one call."""
    Bound(op, outputs, inputs, params, **kw).run()


_keep: list[Any] = []


def make_program(
    n_inputs: int,
    steps: Sequence[tuple[Any, ...]],
    constants: Sequence[float] = (),
    outputs: Sequence[int] | None = None,
) -> Program:
    """A program from steps such as ("add", 0, 1); registers count inputs, constants, then steps."""
    code = (Instruction * max(len(steps), 1))()
    for instruction, (name, *registers) in zip(code, steps, strict=False):
        a, b, c = (*registers, 0, 0)[:3]
        instruction.op = INSTRUCTIONS.index(name) if isinstance(name, str) else name
        instruction.a, instruction.b, instruction.c = a, b, c
    if outputs is None:
        outputs = [n_inputs + len(constants) + len(steps) - 1]
    numbers = (ct.c_double * max(len(constants), 1))(*constants)
    out = (ct.c_uint16 * len(outputs))(*outputs)
    made = Program(
        ct.sizeof(Program), 1, n_inputs, len(constants), len(steps), len(outputs), numbers, code, out, b"test program"
    )
    made.keep = (numbers, code, out)
    return made


def pointwise(
    out: Any, inputs: Sequence[Any], steps: Sequence[tuple[Any, ...]], compute: Any, constants: Sequence[float] = ()
) -> None:
    """Runs a program of one output."""
    call("pointwise", [out], inputs, compute=compute, program=make_program(len(inputs), steps, constants))


def ulp_error(got: Array, want: Array) -> Array:
    """Distance in units in the last place of got's dtype; `want` is float64 or wider. 0 where both are NaN or equal."""
    info = np.finfo(got.dtype)
    want = np.asarray(want)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        exponent = np.maximum(np.frexp(np.abs(rounded).astype(np.float64))[1] - 1, info.minexp)
        unit = np.ldexp(np.float64(1), exponent - info.nmant)
        error = np.abs(got.astype(want.dtype) - want) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    close = np.isfinite(got) & np.isfinite(rounded)
    return np.where(close, np.where(got == want, 0.0, error), np.where(same, 0.0, np.inf)).astype(np.float64)
