"""cuBLASLt by ctypes: the functions and numbers of ``cublasLt.h`` that products need.

CuPy binds cuBLAS, not cuBLASLt, whose epilogues, layouts and heuristics are wanted here; ``nvmath-python`` binds it
with much besides. The library is what ``nvidia-cublas`` or a toolkit installs, found as CuPy finds its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["COMPUTE", "CONSTANTS", "FUNCTIONS", "TYPES", "Heuristic", "Library", "Status"]

_Handle, _Out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)


class Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


#: Types of the arguments, in order. Each returns a cublasStatus_t.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_Out,),
    "cublasLtMatmulDescCreate": (_Out, ctypes.c_int, ctypes.c_int),
    "cublasLtMatmulDescDestroy": (_Handle,),
    "cublasLtMatmulDescSetAttribute": (_Handle, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    "cublasLtMatrixLayoutCreate": (_Out, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_Handle,),
    "cublasLtMatrixLayoutSetAttribute": (_Handle, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    "cublasLtMatmulPreferenceCreate": (_Out,),
    "cublasLtMatmulPreferenceDestroy": (_Handle,),
    "cublasLtMatmulPreferenceSetAttribute": (_Handle, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (
        *(_Handle,) * 7,
        ctypes.c_int,
        ctypes.POINTER(Heuristic),
        ctypes.POINTER(ctypes.c_int),
    ),
    "cublasLtMatmul": (
        *(_Handle,) * 3,
        *(ctypes.c_void_p,) * 10,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ),
}

#: Numbers by their names in the headers.
CONSTANTS = {
    "CUBLASLT_MATMUL_DESC_TRANSA": 3,
    "CUBLASLT_MATMUL_DESC_TRANSB": 4,
    "CUBLASLT_MATMUL_DESC_EPILOGUE": 7,
    "CUBLASLT_MATMUL_DESC_BIAS_POINTER": 8,
    "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": 5,
    "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": 6,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1,
    "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": 3,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": 5,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": 6,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": 7,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": 8,
    "CUBLASLT_REDUCTION_SCHEME_INPLACE": 1,
    "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": 2,
    "CUBLASLT_EPILOGUE_RELU": 2,
    "CUBLASLT_EPILOGUE_BIAS": 4,
    "CUBLASLT_EPILOGUE_RELU_BIAS": 6,
}

#: cudaDataType of a dtype.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14}
#: cublasComputeType_t: CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 and CUBLAS_COMPUTE_64F.
COMPUTE = {"float32": 68, "tf32": 77, "float64": 70}


class Status(RuntimeError):
    """A function of cuBLASLt did not succeed."""


class Library:
    """The functions of a loaded library, called with Python's values. Keeps one handle per device.

    Args:
        functions: has those of :data:`FUNCTIONS` as attributes, as a ``ctypes.CDLL`` does.
    """

    def __init__(self, functions: Any):
        self._functions = {}
        for name, arguments in FUNCTIONS.items():
            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(_address(getattr(functions, name)))
        self.matmul = _address(functions.cublasLtMatmul)
        self.set_attribute = _address(functions.cublasLtMatmulDescSetAttribute)
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. :class:`Status` where it does not return CUBLAS_STATUS_SUCCESS."""
        if status := self._functions[name](*arguments):
            raise Status(f"{name} returned status {status}")

    def handle(self, device: int) -> int:
        """The handle for a device, which must be current."""
        with self._lock:
            if device not in self._handles:
                self._handles[device] = self._make("cublasLtCreate")
            return self._handles[device]

    def _make(self, name: str, *arguments: Any) -> int:
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def _set(self, kind: str, which: int, **attributes: tuple[str, int]) -> None:
        for name, (code, value) in attributes.items():
            held = struct.pack(code, value)
            buffer = ctypes.create_string_buffer(held, len(held))
            self.call(f"cublasLt{kind}SetAttribute", which, CONSTANTS[f"CUBLASLT_{name}"], buffer, len(held))

    def description(self, compute: int, scale: int, operations: tuple[int, int], epilogue: int, bias: int) -> int:
        """A ``cublasLtMatmulDesc_t``: of ``operations`` 1 is a transpose; ``epilogue`` and ``bias`` 0: none."""
        made = self._make("cublasLtMatmulDescCreate", compute, scale)
        first, second = operations
        self._set("MatmulDesc", made, MATMUL_DESC_TRANSA=("i", first), MATMUL_DESC_TRANSB=("i", second))
        if epilogue:
            self._set("MatmulDesc", made, MATMUL_DESC_EPILOGUE=("I", epilogue))
        if bias:
            self._set("MatmulDesc", made, MATMUL_DESC_BIAS_POINTER=("Q", bias))
        return made

    def layout(self, dtype: int, rows: int, columns: int, leading: int, batch: int, step: int) -> int:
        """A ``cublasLtMatrixLayout_t`` of ``batch`` matrices, column after column, ``step`` elements apart."""
        made = self._make("cublasLtMatrixLayoutCreate", dtype, rows, columns, leading)
        if batch != 1:
            self._set(
                "MatrixLayout",
                made,
                MATRIX_LAYOUT_BATCH_COUNT=("i", batch),
                MATRIX_LAYOUT_STRIDED_BATCH_OFFSET=("q", step),
            )
        return made

    def algorithm(
        self, device: int, desc: int, layouts: tuple[int, ...], workspace: int, alignments: tuple[int, ...]
    ) -> Heuristic | None:
        """What the heuristics put first within ``workspace`` bytes; None where the library has no such product.

        ``alignments`` are the least ones, in bytes, of a, b, c and d. Parts of a split sum are kept as precise as it.
        """
        with self._preference(workspace, alignments) as preference:
            found, count = Heuristic(), ctypes.c_int()
            arguments = (self.handle(device), desc, *layouts, preference, 1, ctypes.byref(found), ctypes.byref(count))
            status = self._functions["cublasLtMatmulAlgoGetHeuristic"](*arguments)
        return found if not status and count.value and not found.state else None

    @contextlib.contextmanager
    def _preference(self, workspace: int, alignments: tuple[int, ...]) -> Iterator[int]:
        made = self._make("cublasLtMatmulPreferenceCreate")
        try:
            kept = CONSTANTS["CUBLASLT_REDUCTION_SCHEME_INPLACE"] | CONSTANTS["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"]
            wanted = {"MAX_WORKSPACE_BYTES": ("Q", workspace), "REDUCTION_SCHEME_MASK": ("I", kept)}
            wanted |= {f"MIN_ALIGNMENT_{x}_BYTES": ("I", n) for x, n in zip("ABCD", alignments, strict=True)}
            self._set("MatmulPreference", made, **{f"MATMUL_PREF_{name}": value for name, value in wanted.items()})
            yield made
        finally:
            self.call("cublasLtMatmulPreferenceDestroy", made)

    def release(self, desc: int, layouts: tuple[int, ...]) -> None:
        """Destroy what a product that is not kept was described by."""
        self.call("cublasLtMatmulDescDestroy", desc)
        for layout in dict.fromkeys(layouts):
            self.call("cublasLtMatrixLayoutDestroy", layout)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
