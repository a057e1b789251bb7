"""cuDNN by ctypes: the functions and numbers of ``cudnn_graph.h`` that graphs of a convolution need.

A graph is a set of descriptors, each made, told its attributes and finalized. The frontend of cuDNN for Python drives
the same functions, but executes graphs from Python alone; a launcher in C needs the plan itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tesserack_kernelgen import launcher

__all__ = ["CONSTANTS", "FUNCTIONS", "TYPES", "Library", "NotSupported", "Status"]

_Descriptor, _Out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)

#: Types of the arguments, in order. Each returns a cudnnStatus_t.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_Out,),
    "cudnnSetStream": (ctypes.c_void_p, ctypes.c_void_p),
    "cudnnBackendCreateDescriptor": (ctypes.c_int, _Out),
    "cudnnBackendDestroyDescriptor": (_Descriptor,),
    "cudnnBackendSetAttribute": (_Descriptor, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p),
    "cudnnBackendGetAttribute": (
        *(_Descriptor, ctypes.c_int, ctypes.c_int, ctypes.c_int64),
        *(ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p),
    ),
    "cudnnBackendFinalize": (_Descriptor,),
    "cudnnBackendExecute": (ctypes.c_void_p, _Descriptor, _Descriptor),
}


def _numbered(groups: dict[str, tuple[int, str]]) -> dict[str, int]:
    """Numbers by name, of names that begin alike and are numbered in order."""
    return {
        f"{start}{name}": first + k for start, (first, names) in groups.items() for k, name in enumerate(names.split())
    }


_ATTRIBUTES = {
    "POINTWISE_": (0, "MODE MATH_PREC"),
    "CONVOLUTION_": (100, "COMP_TYPE CONV_MODE DILATIONS FILTER_STRIDES POST_PADDINGS PRE_PADDINGS SPATIAL_DIMS"),
    "ENGINEHEUR_": (200, "MODE OPERATION_GRAPH RESULTS"),
    "ENGINECFG_": (300, "ENGINE"),
    "EXECUTION_PLAN_": (400, "HANDLE ENGINE_CONFIG WORKSPACE_SIZE"),
    "OPERATION_CONVOLUTION_FORWARD_": (700, "ALPHA BETA CONV_DESC W X Y"),
    "OPERATION_CONVOLUTION_BWD_DATA_": (706, "ALPHA BETA CONV_DESC W DX DY"),
    "OPERATION_CONVOLUTION_BWD_FILTER_": (712, "ALPHA BETA CONV_DESC DW X DY"),
    "OPERATION_POINTWISE_": (750, "PW_DESCRIPTOR XDESC BDESC YDESC"),
    "OPERATIONGRAPH_": (800, "HANDLE OPS"),
    "TENSOR_": (900, "BYTE_ALIGNMENT DATA_TYPE DIMENSIONS STRIDES"),
    "TENSOR_UNIQUE_": (906, "ID"),
    "TENSOR_IS_": (907, "VIRTUAL"),
    "ENGINE_NUMERICAL_": (1303, "NOTE"),
}
_DESCRIPTORS = {
    "": (0, "POINTWISE CONVOLUTION ENGINE ENGINECFG ENGINEHEUR EXECUTION_PLAN"),
    "OPERATION_CONVOLUTION_": (10, "FORWARD BACKWARD_FILTER BACKWARD_DATA"),
    "OPERATION_": (13, "POINTWISE"),
    "OPERATION": (15, "GRAPH"),
    "TEN": (17, "SOR"),
}
_OTHERS = {
    "TYPE_": (0, "HANDLE DATA_TYPE BOOLEAN INT64 FLOAT DOUBLE VOID_PTR CONVOLUTION_MODE HEUR_MODE"),
    "TYPE_NUMERICAL_": (11, "NOTE"),
    "TYPE_POINTWISE_": (14, "MODE"),
    "TYPE_BACKEND_": (15, "DESCRIPTOR"),
    "HEUR_MODE_": (2, "FALLBACK A"),
    "NUMERICAL_NOTE_": (0, "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT NONDETERMINISTIC"),
    "NUMERICAL_NOTE_TYPE_": (10, "COUNT"),
    "POINTWISE_": (0, "ADD"),
    "CROSS_": (1, "CORRELATION"),
    "STATUS_NOT_": (3000, "SUPPORTED"),
    "STATUS_INTERNAL_": (4000, "ERROR"),
}
#: Numbers by their names in the headers.
CONSTANTS: dict[str, int] = {
    **{f"CUDNN_ATTR_{name}": value for name, value in _numbered(_ATTRIBUTES).items()},
    **{f"CUDNN_BACKEND_{name}_DESCRIPTOR": value for name, value in _numbered(_DESCRIPTORS).items()},
    **{f"CUDNN_{name}": value for name, value in _numbered(_OTHERS).items()},
}
#: cudnnDataType_t of a dtype.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}

#: By the type of an attribute's elements, where it is not an int.
_ELEMENTS: dict[str, Any] = {
    "HANDLE": ctypes.c_void_p,
    "BOOLEAN": ctypes.c_bool,
    "INT64": ctypes.c_int64,
    "FLOAT": ctypes.c_float,
    "DOUBLE": ctypes.c_double,
    "BACKEND_DESCRIPTOR": ctypes.c_void_p,
}


class Status(RuntimeError):
    """A function of cuDNN did not succeed; ``code`` is its cudnnStatus_t."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class NotSupported(Status):
    """cuDNN has no engine for what it was asked: the one failure after which another way is taken."""


class _Handle(NamedTuple):
    address: int
    lock: int


class Library:
    """The functions of a loaded library, called with Python's values. Keeps handles per device.

    Args:
        functions: has those of :data:`FUNCTIONS` as attributes, as a ``ctypes.CDLL`` does, and cudnnGetErrorString.
    """

    def __init__(self, functions: Any):
        self._functions, self.addresses = {}, {}
        for name, arguments in FUNCTIONS.items():
            self.addresses[name] = _address(getattr(functions, name))
            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(self.addresses[name])
        self._text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)(_address(functions.cudnnGetErrorString))
        self._handles: dict[tuple[int, str], _Handle] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. :class:`NotSupported` for CUDNN_STATUS_NOT_SUPPORTED and what it comprises,
        :class:`Status` for any other failure.
        """
        if status := self._functions[name](*arguments):
            first, end = CONSTANTS["CUDNN_STATUS_NOT_SUPPORTED"], CONSTANTS["CUDNN_STATUS_INTERNAL_ERROR"]
            kind = NotSupported if first <= status < end else Status
            raise kind(f"{name} returned status {status} ({(self._text(status) or b'').decode()})", status)

    def handle(self, device: int, use: str) -> _Handle:
        """The handle for a device, which must be current, and its lock: "plans" or "launches", which other threads
        do meanwhile.
        """
        with self._lock:
            if (device, use) not in self._handles:
                made = ctypes.c_void_p()
                self.call("cudnnCreate", ctypes.byref(made))
                self._handles[device, use] = _Handle(made.value or 0, launcher.cudnn_lock())
            return self._handles[device, use]

    # --- descriptors ----------------------------------------------------------------------------------------------

    def create(self, kind: str) -> int:
        """A descriptor that is not finalized."""
        made = ctypes.c_void_p()
        number = CONSTANTS[f"CUDNN_BACKEND_{kind}_DESCRIPTOR"]
        self.call("cudnnBackendCreateDescriptor", number, ctypes.byref(made))
        return made.value or 0

    def tell(self, descriptor: int, name: str, kind: str, values: Sequence[Any]) -> None:
        """Tell a descriptor an attribute, of elements of type ``kind``."""
        held = (_ELEMENTS.get(kind, ctypes.c_int) * len(values))(*values)
        number, element = CONSTANTS[f"CUDNN_ATTR_{name}"], CONSTANTS[f"CUDNN_TYPE_{kind}"]
        self.call("cudnnBackendSetAttribute", descriptor, number, element, len(values), held)

    def finalize(self, descriptor: int) -> None:
        """Check a descriptor and end its making."""
        self.call("cudnnBackendFinalize", descriptor)

    def describe(self, kind: str, **attributes: tuple[str, Any]) -> int:
        """A finalized descriptor with attributes as (type, value or list of values)."""
        made = self.create(kind)
        try:
            for name, (element, value) in attributes.items():
                self.tell(made, name, element, value if isinstance(value, (list, tuple)) else [value])
            self.finalize(made)
        except Status:
            self.destroy([made])
            raise
        return made

    def get(self, descriptor: int, name: str, kind: str, most: int, given: Sequence[int] = ()) -> list[Any]:
        """The elements of an attribute, at most so many. Descriptors to be filled are ``given``."""
        held: Any = (_ELEMENTS.get(kind, ctypes.c_int) * most)(*given)
        number, element, count = CONSTANTS[f"CUDNN_ATTR_{name}"], CONSTANTS[f"CUDNN_TYPE_{kind}"], ctypes.c_int64()
        self.call("cudnnBackendGetAttribute", descriptor, number, element, most, ctypes.byref(count), held)
        return list(held)[: count.value]

    def destroy(self, descriptors: Iterable[int]) -> None:
        """Let go of descriptors that no plan needs."""
        for descriptor in descriptors:
            self.call("cudnnBackendDestroyDescriptor", descriptor)

    # --- engines --------------------------------------------------------------------------------------------------

    def configurations(self, graph: int, mode: str) -> list[int]:
        """What the heuristics of a mode, "A" or "FALLBACK", find for a finalized graph, the quickest first."""
        try:
            heuristics = self.describe(
                "ENGINEHEUR",
                ENGINEHEUR_OPERATION_GRAPH=("BACKEND_DESCRIPTOR", graph),
                ENGINEHEUR_MODE=("HEUR_MODE", CONSTANTS[f"CUDNN_HEUR_MODE_{mode}"]),
            )
        except NotSupported:
            return []
        try:
            count = ctypes.c_int64()
            number, element = CONSTANTS["CUDNN_ATTR_ENGINEHEUR_RESULTS"], CONSTANTS["CUDNN_TYPE_BACKEND_DESCRIPTOR"]
            self.call("cudnnBackendGetAttribute", heuristics, number, element, 0, ctypes.byref(count), None)
            made = [self.create("ENGINECFG") for _ in range(count.value)]
            found = self.get(heuristics, "ENGINEHEUR_RESULTS", "BACKEND_DESCRIPTOR", len(made), made) if made else []
            self.destroy(made[len(found) :])
            return made[: len(found)]
        finally:
            self.destroy([heuristics])

    def notes(self, configuration: int) -> set[int]:
        """The numerical notes of a configuration's engine."""
        engine = self.create("ENGINE")
        try:
            self.get(configuration, "ENGINECFG_ENGINE", "BACKEND_DESCRIPTOR", 1, [engine])
            return {
                *self.get(
                    engine, "ENGINE_NUMERICAL_NOTE", "NUMERICAL_NOTE", CONSTANTS["CUDNN_NUMERICAL_NOTE_TYPE_COUNT"]
                )
            }
        finally:
            self.destroy([engine])

    def plan(self, device: int, configuration: int) -> tuple[int, int]:
        """The execution plan of a configuration, and its workspace in bytes."""
        made = self.describe(
            "EXECUTION_PLAN",
            EXECUTION_PLAN_HANDLE=("HANDLE", self.handle(device, "plans").address),
            EXECUTION_PLAN_ENGINE_CONFIG=("BACKEND_DESCRIPTOR", configuration),
        )
        return made, int(self.get(made, "EXECUTION_PLAN_WORKSPACE_SIZE", "INT64", 1)[0])


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
