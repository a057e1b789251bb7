"""Convolution and its gradients by cuDNN's graphs, through ``nvidia-cudnn-frontend``; generated kernels without it.

A graph is built once per signature of a call, as a launch plan is. The frontend executes graphs from Python alone, so
that each convolution enters Python once, unlike all else; captured graphs replay without it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack import _native
from tesserack.backends import WORKSPACE, Block, Buffer, Launch, LaunchPlan, Patch
from tesserack_kernelgen.dtypes import name_of
from tesserack_kernelgen.templates import TEMPLATES

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA
    from tesserack_cuda.card import CUDACard

__all__ = ["Convolutions"]

_TYPES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}
_OK, _ERROR = 0, 2


class _Argument(ctypes.Structure):
    """``ts_launch_argument``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class _Launch(ctypes.Structure):
    """The beginning of ``ts_launch``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("host", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("device_index", ctypes.c_int32),
        ("n_arguments", ctypes.c_int32),
        ("argument_size", ctypes.c_size_t),
        ("arguments", ctypes.c_void_p),
    )


_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))


@dataclass(frozen=True)
class _Window:
    """How windows lie, of at least two spatial dims."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]

    @classmethod
    def of(cls, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> _Window:
        one = len(stride) == 1
        return cls([1] * one + [*stride], [0] * one + [*padding], [1] * one + [*dilation])

    def arguments(self) -> dict[str, list[int]]:
        """As the frontend names them."""
        sides = {"pre_padding": self.padding, "post_padding": self.padding}
        return {**sides, "stride": self.stride, "dilation": self.dilation}


class Convolutions:
    """The three kernels for the devices of a backend. ``install`` registers them in place of the generated ones."""

    def __init__(self, backend: CUDA, card: CUDACard):
        self._backend, self._card = backend, card
        self._graphs: dict[int, Any] = {}
        self._numbers = itertools.count(1)
        self._handles: dict[tuple[int, int], Any] = {}
        self._lock = threading.RLock()  # a handle serves one thread at a time
        self._entry = _ENTRY(self._launched)

    @functools.cached_property
    def library(self) -> Any:
        """The frontend, or None where it or cuDNN is not installed."""
        return self._backend.driver.library("cudnn")

    def install(self) -> None:
        """Register the kernels."""
        for op, build in _BUILDERS.items():
            self._backend.kernel(op)(self._kernel(op, build))

    def _kernel(self, op: str, build: Callable[..., Any]) -> Callable[..., Any]:
        generated = self._card._serve(TEMPLATES[op])

        def kernel(
            *,
            outputs: tuple[Any, ...],
            inputs: tuple[Any, ...],
            params: tuple[Any, ...],
            op: str,
            opcode: Any,
            compute_dtype: Any,
            program: Any,
            device: int,
            precision: str,
            deterministic: bool,
        ) -> Any:
            tensors = [x for x in (*outputs, *inputs) if x is not None]
            known = all(hasattr(x, "strides") and name_of(x.dtype) in _TYPES for x in tensors)
            if known and self.library is not None:
                with self._lock, self._backend.relaxed():
                    plan = self._plan(build, outputs, inputs, params, device, precision, deterministic)
                if plan is not None:
                    return plan
            return generated(
                outputs=outputs,
                inputs=inputs,
                params=params,
                op=op,
                opcode=opcode,
                compute_dtype=compute_dtype,
                program=program,
                device=device,
            )

        return kernel

    def _plan(
        self,
        build: Callable[..., Any],
        outputs: tuple[Any, ...],
        inputs: tuple[Any, ...],
        params: tuple[Any, ...],
        device: int,
        precision: str,
        deterministic: bool,
    ) -> LaunchPlan | None:
        """The launch of a graph; None where cuDNN supports no such one."""
        cudnn = self.library
        self._backend.on(device)
        wide = name_of(outputs[0].dtype) == "float64"
        compute = cudnn.data_type.DOUBLE if wide else cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=self._type(outputs[0]),
            intermediate_data_type=compute,
            compute_data_type=compute,
            handle=self._handle(device, 0),
        )
        try:
            build(self, graph, outputs[0], inputs, params)
            self._choose(graph, name_of(outputs[0].dtype), precision, deterministic)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError):  # of the library and of its frontend
            return None
        number = next(self._numbers)
        self._graphs[number] = graph
        return self._launch(number, int(graph.get_workspace_size()), [*outputs, *inputs])

    def _choose(self, graph: Any, dtype: str, precision: str, deterministic: bool) -> None:
        """Plans by the heuristics, without those that round more than was permitted."""
        cudnn = self.library
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        notes = [cudnn.numerical_note.NONDETERMINISTIC] if deterministic else []
        if dtype == "float32":
            notes.append(cudnn.numerical_note.DOWN_CONVERT_INPUTS)
            notes += [cudnn.numerical_note.TENSOR_CORE] * (precision == "highest")
        if notes:
            graph.deselect_numeric_notes(notes)
        graph.check_support()
        graph.build_plans()

    def _launch(self, number: int, workspace: int, operands: list[Any]) -> LaunchPlan:
        used = [k for k, x in enumerate(operands) if x is not None]
        arguments: list[Buffer | Block] = [Buffer(k) for k in used]
        if workspace:
            arguments.append(Buffer(WORKSPACE))
        arguments.append(Block(bytes(8 * len(used)), [Patch(8 * k, "offset", o, "q") for k, o in enumerate(used)]))
        entry = ctypes.cast(self._entry, ctypes.c_void_p).value or 0
        return LaunchPlan([Launch(entry, number, (1, 1, 1), (1, 1, 1), arguments)], workspace, self)

    # --- graphs ---------------------------------------------------------------------------------------------------

    def _type(self, operand: Any) -> Any:
        return getattr(self.library.data_type, _TYPES[name_of(operand.dtype)])

    def tensor(self, graph: Any, operand: Any, uid: int) -> Any:
        """An input of a graph, with a spatial dim of 1 where there is one only."""
        dim, stride = _seen(operand)
        return graph.tensor(name=f"t{uid}", dim=dim, stride=stride, data_type=self._type(operand), uid=uid)

    def result(self, tensor: Any, operand: Any) -> None:
        """What a node gives as the graph's output, which has the first uid."""
        dim, stride = _seen(operand)
        tensor.set_output(True).set_data_type(self._type(operand)).set_dim(dim).set_stride(stride).set_uid(1)

    def _handle(self, device: int, stream: int) -> Any:
        key = device, stream
        if key not in self._handles:
            made = self._handles[key] = self.library.create_handle()
            self.library.set_stream(handle=made, stream=stream)
        return self._handles[key]

    # --- launches -------------------------------------------------------------------------------------------------

    def _launched(self, given: Any) -> int:
        try:
            with self._lock:
                self._execute(given.contents)
            return _OK
        except Exception as error:
            set_error = ctypes.CFUNCTYPE(None, ctypes.c_char_p).from_address(_native._host_table() + 16)
            set_error(f"cuDNN: {error}".encode())
            return _ERROR

    def _execute(self, launch: _Launch) -> None:
        graph = self._graphs[launch.kernel]
        arguments = [
            _Argument.from_address(launch.arguments + k * launch.argument_size) for k in range(launch.n_arguments)
        ]
        *memory, block = arguments
        count = block.size // 8
        offsets = (ctypes.c_int64 * count).from_address(block.value)
        handles = [ctypes.c_uint64.from_address(argument.value).value for argument in memory]
        pointers = {uid + 1: handles[uid] + offsets[uid] for uid in range(count)}
        self._backend.on(launch.device_index)
        with self._backend.relaxed():
            handle = self._handle(launch.device_index, launch.stream or 0)
        graph.execute(pointers, handles[count] if len(handles) > count else 0, handle=handle)


def _seen(operand: Any) -> tuple[list[int], list[int]]:
    """Sizes and strides, of at least two spatial dims."""
    sizes, strides = [*operand.shape], [*operand.strides]
    if len(sizes) == 3:
        sizes.insert(2, 1)
        strides.insert(2, sizes[3] * strides[2])
    return sizes, strides


def _forward(made: Convolutions, graph: Any, out: Any, inputs: Sequence[Any], params: Sequence[Any]) -> None:
    image, weight, bias = inputs
    x, w = made.tensor(graph, image, 2), made.tensor(graph, weight, 3)
    y = graph.conv_fprop(image=x, weight=w, **_Window.of(*params[:3]).arguments())
    if bias is not None:
        space = max(len(out.shape) - 2, 2)
        dim, step = [1, bias.numel] + [1] * space, bias.strides[0]
        stride = [bias.numel * step, step] + [step] * space
        b = graph.tensor(name="t4", dim=dim, stride=stride, data_type=made._type(bias), uid=4)
        y = graph.bias(input=y, bias=b)
    made.result(y, out)


def _backward_input(made: Convolutions, graph: Any, out: Any, inputs: Sequence[Any], params: Sequence[Any]) -> None:
    grad, weight = made.tensor(graph, inputs[0], 2), made.tensor(graph, inputs[1], 3)
    made.result(graph.conv_dgrad(loss=grad, filter=weight, **_Window.of(*params[1:4]).arguments()), out)


def _backward_weight(made: Convolutions, graph: Any, out: Any, inputs: Sequence[Any], params: Sequence[Any]) -> None:
    grad, image = made.tensor(graph, inputs[0], 2), made.tensor(graph, inputs[1], 3)
    made.result(graph.conv_wgrad(image=image, loss=grad, **_Window.of(*params[1:4]).arguments()), out)


_BUILDERS = {
    "convolution": _forward,
    "convolution_backward_input": _backward_input,
    "convolution_backward_weight": _backward_weight,
}
