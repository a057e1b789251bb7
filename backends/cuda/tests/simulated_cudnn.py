"""The frontend of cuDNN that is not there: graphs of one convolution, perhaps with a bias, computed by NumPy.

Nodes, descriptions of tensors and the order of calls are as in the frontend's own documentation; data is found by uid,
read by the strides that the graph was told, and computed in the order of the handle's stream.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from simulated import Simulated

__all__ = ["SimulatedCudnn"]

_STORAGE = {"HALF": np.float16, "FLOAT": np.float32, "DOUBLE": np.float64, "BFLOAT16": np.uint16}
WORKSPACE = 4096
_STEPS = ("new", "validated", "lowered", "planned", "supported", "built")


class cudnnGraphNotSupportedError(Exception):
    """As the frontend's."""


class _Tensor:
    def __init__(self, **known: Any):
        self.dim = self.stride = self.data_type = self.uid = None
        self.node: tuple[Any, ...] | None = None
        self.is_output = False
        self.__dict__.update(known)

    def set_output(self, value: bool) -> _Tensor:
        self.is_output = value
        return self

    def set_data_type(self, value: str) -> _Tensor:
        self.data_type = value
        return self

    def set_dim(self, value: list[int]) -> _Tensor:
        self.dim = list(value)
        return self

    def set_stride(self, value: list[int]) -> _Tensor:
        self.stride = list(value)
        return self

    def set_uid(self, value: int) -> _Tensor:
        self.uid = value
        return self


class _Handle:
    def __init__(self, device: int):
        self.device, self.stream = device, 0


class SimulatedCudnn:
    """The module. ``executed`` lists the graphs that ran, by their last node."""

    data_type = SimpleNamespace(**{name: name for name in _STORAGE})
    heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
    numerical_note = SimpleNamespace(
        **{name: name for name in ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC")}
    )
    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError

    def __init__(self, driver: Simulated):
        self.driver = driver
        self.executed: list[tuple[str, frozenset[str]]] = []

    def create_handle(self) -> _Handle:
        self.driver.unsafe("cudnnCreate")
        return _Handle(self.driver.getDevice())

    def set_stream(self, handle: _Handle, stream: int) -> None:
        handle.stream = stream

    def pygraph(self, **options: Any) -> _Graph:
        assert {*options} == {"io_data_type", "intermediate_data_type", "compute_data_type", "handle"}
        return _Graph(self, **options)


class _Graph:
    def __init__(self, module: SimulatedCudnn, handle: _Handle, compute_data_type: str, **_: Any):
        self._module, self._handle, self._compute = module, handle, compute_data_type
        self._tensors: list[_Tensor] = []
        self._step, self._notes = 0, frozenset[str]()

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: str, uid: int) -> _Tensor:
        assert len(dim) == len(stride) and all(type(n) is int for n in (*dim, *stride)) and data_type in _STORAGE
        assert uid not in [t.uid for t in self._tensors]
        self._tensors.append(_Tensor(dim=list(dim), stride=list(stride), data_type=data_type, uid=uid, name=name))
        return self._tensors[-1]

    def _made(self, *node: Any) -> _Tensor:
        self._tensors.append(_Tensor(node=node))
        return self._tensors[-1]

    def conv_fprop(self, *, image: _Tensor, weight: _Tensor, **window: Any) -> _Tensor:
        return self._made("conv_fprop", image, weight, window)

    def conv_dgrad(self, *, loss: _Tensor, filter: _Tensor, **window: Any) -> _Tensor:
        return self._made("conv_dgrad", loss, filter, window)

    def conv_wgrad(self, *, image: _Tensor, loss: _Tensor, **window: Any) -> _Tensor:
        return self._made("conv_wgrad", image, loss, window)

    def bias(self, *, input: _Tensor, bias: _Tensor) -> _Tensor:
        return self._made("bias", input, bias)

    def _advance(self, before: str, after: str) -> None:
        assert _STEPS[self._step] == before, f"{after} after {_STEPS[self._step]}"
        self._step = _STEPS.index(after)

    def validate(self) -> None:
        self._advance("new", "validated")
        (result,) = [t for t in self._tensors if t.is_output]
        if result.data_type == "DOUBLE":
            raise cudnnGraphNotSupportedError("no engine for double here")
        self._result = result

    def build_operation_graph(self) -> None:
        self._advance("validated", "lowered")

    def create_execution_plans(self, heuristics: list[str]) -> None:
        assert heuristics == ["A", "FALLBACK"]
        self._advance("lowered", "planned")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert _STEPS[self._step] == "planned"
        self._notes = frozenset(notes)

    def check_support(self) -> None:
        self._advance("planned", "supported")

    def build_plans(self) -> None:
        self._advance("supported", "built")

    def get_workspace_size(self) -> int:
        return WORKSPACE

    def execute(self, pointers: dict[int, int], workspace: int, handle: _Handle) -> None:
        assert _STEPS[self._step] == "built"
        driver, module = self._module.driver, self._module
        assert handle.device == driver.getDevice() and driver._find(workspace, WORKSPACE) == handle.device
        assert {*pointers} == {t.uid for t in self._tensors if t.uid}
        memory = {uid: self._memory(pointers[uid], self._by_uid(uid), handle) for uid in pointers}
        node = self._result.node or ()
        module.executed.append((node[0], self._notes))
        driver._stream(handle.stream).put(lambda: self._run(memory))

    def _by_uid(self, uid: int) -> _Tensor:
        return next(t for t in self._tensors if t.uid == uid)

    def _memory(self, address: int, tensor: _Tensor, handle: _Handle) -> Any:
        dtype = np.dtype(_STORAGE[tensor.data_type])
        reach = sum((n - 1) * s for n, s in zip(tensor.dim, tensor.stride, strict=True)) + 1
        assert self._module.driver._find(address, reach * dtype.itemsize) == handle.device
        flat = np.frombuffer((ctypes.c_ubyte * (reach * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(flat, tensor.dim, [s * dtype.itemsize for s in tensor.stride])

    def _run(self, memory: dict[int, Any]) -> None:
        out = memory[self._result.uid]
        out[...] = _narrow(self._value(self._result, memory), self._result.data_type)

    def _value(self, tensor: _Tensor, memory: dict[int, Any]) -> Any:
        if tensor.node is None:
            values = memory[tensor.uid]
            if tensor.data_type == "BFLOAT16":
                return (values.astype(np.uint32) << 16).view(np.float32)
            return values.astype(np.float32)
        name, *rest = tensor.node
        if name == "bias":
            return self._value(rest[0], memory) + self._value(rest[1], memory)
        first, second, window = rest
        return _convolved(name, self._value(first, memory), self._value(second, memory), window, self._result.dim)


def _convolved(name: str, a: Any, b: Any, window: dict[str, Any], out: list[int]) -> Any:
    """Each tap of the window in turn: images (n, c, ...), weights (o, c of a group, ...), results (n, o, ...)."""
    before, after, stride, dilation = (window[key] for key in ("pre_padding", "post_padding", "stride", "dilation"))
    sizes = {"conv_fprop": (a.shape, b.shape), "conv_dgrad": (out, b.shape), "conv_wgrad": (a.shape, out)}[name]
    image, weight = sizes
    padded = [n + p + q for n, p, q in zip(image[2:], before, after, strict=True)]
    x = np.zeros((*image[:2], *padded), np.float32)
    inner = tuple(slice(p, p + n) for p, n in zip(before, image[2:], strict=True))
    if name != "conv_dgrad":
        x[(..., *inner)] = a
    results = [(p - d * (k - 1) - 1) // s + 1 for p, k, s, d in zip(padded, weight[2:], stride, dilation, strict=True)]
    y = (
        np.zeros((image[0], weight[0], *results), np.float32)
        if name == "conv_fprop"
        else a
        if name == "conv_dgrad"
        else b
    )
    assert list(y.shape[2:]) == results
    w = np.zeros(weight, np.float32) if name == "conv_wgrad" else b
    groups = image[1] // weight[1]
    each = weight[0] // groups
    for tap in itertools.product(*map(range, weight[2:])):
        at = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in zip(tap, dilation, stride, results, strict=True)
        )
        for g in range(groups):
            seen = (slice(None), slice(g * weight[1], (g + 1) * weight[1]), *at)
            made = slice(g * each, (g + 1) * each)
            if name == "conv_fprop":
                y[:, made] += np.einsum("nc...,oc->no...", x[seen], w[(made, slice(None), *tap)])
            elif name == "conv_dgrad":
                x[seen] += np.einsum("no...,oc->nc...", y[:, made], w[(made, slice(None), *tap)])
            else:
                flat = (part.reshape(*part.shape[:2], -1) for part in (y[:, made], x[seen]))
                w[(made, slice(None), *tap)] = np.einsum("nop,ncp->oc", *flat)
    return {"conv_fprop": y, "conv_dgrad": x[(..., *inner)], "conv_wgrad": w}[name]


def _narrow(values: Any, kind: str) -> Any:
    if kind != "BFLOAT16":
        return values.astype(_STORAGE[kind])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
