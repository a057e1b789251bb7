"""cuDNN that is not there: C functions by the prototypes of ``cudnn_graph.h``, and graphs of one convolution, perhaps
with a bias, computed by NumPy.

Descriptors hold what they are told and nothing else: an attribute of a wrong type, or one that is missing, is refused.
Data is found by uid, read by the strides that the graph was told, and computed in the order of the handle's stream.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from simulated_errors import SimulatedError

if TYPE_CHECKING:
    from simulated import Simulated

__all__ = ["SimulatedCudnn"]

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_STORAGE = {0: np.float32, 1: np.float64, 2: np.float16, 9: np.uint16}
_BFLOAT16 = 9
BAD_PARAM, PATTERN, DATA_TYPE, LAYOUT, COMPILATION = 2000, 3001, 3003, 3004, 4001
WORKSPACE = 4096
TENSOR_CORE, DOWN_CONVERT, NONDETERMINISTIC = 0, 1, 4
#: Notes of the engines that the heuristics offer, by mode. Those without tensor cores add no bias.
ENGINES = {
    3: [{TENSOR_CORE, DOWN_CONVERT}, {TENSOR_CORE}, {TENSOR_CORE, NONDETERMINISTIC}, {NONDETERMINISTIC}],
    2: [set()],
}
#: By type of elements: how they lie in memory.
_ELEMENTS = {0: _P, 2: ctypes.c_bool, 3: _L, 4: ctypes.c_float, 5: ctypes.c_double, 6: _P, 15: _P}
_INT, _DESCRIPTOR = {1, 7, 8, 11, 14}, 15
_POINTWISE, _CONVOLUTION, _ENGINE, _ENGINECFG, _ENGINEHEUR, _PLAN = range(6)
_FORWARD, _FILTER, _DATA, _SUM, _GRAPH, _PACK, _TENSOR = 10, 11, 12, 13, 15, 16, 17
#: By kind of descriptor: the attributes that it must be told, with their types.
_TOLD = {
    _POINTWISE: {0: 14, 1: 1},
    _CONVOLUTION: {100: 1, 101: 7, 102: 3, 103: 3, 104: 3, 105: 3, 106: 3},
    _ENGINEHEUR: {200: 8, 201: 15},
    _PLAN: {400: 0, 401: 15},
    _FORWARD: {702: 15, 703: 15, 704: 15, 705: 15, 700: None, 701: None},
    _DATA: {708: 15, 709: 15, 710: 15, 711: 15, 706: None, 707: None},
    _FILTER: {714: 15, 715: 15, 716: 15, 717: 15, 712: None, 713: None},
    _SUM: {750: 15, 751: 15, 752: 15, 753: 15},
    _GRAPH: {800: 0, 801: 15},
    _PACK: {1000: 3, 1001: 6, 1003: 6},
    _TENSOR: {900: 3, 901: 1, 902: 3, 903: 3, 906: 3, 907: 2},
}
_NAMES = {_FORWARD: "conv_fprop", _DATA: "conv_dgrad", _FILTER: "conv_wgrad"}


class _Descriptor:
    def __init__(self, kind: int):
        self.kind, self.final, self.told = kind, False, dict[int, list[Any]]()
        self.notes: frozenset[int] = frozenset()
        self.graph: _Descriptor | None = None

    def one(self, name: int) -> Any:
        (value,) = self.told[name]
        return value


class SimulatedCudnn:
    """The functions as attributes, callbacks of C. ``executed`` lists the graphs that ran, by their last node and the
    notes of the engine; ``failing`` has statuses for descriptors to be finalized, by kind, and for "execute".
    """

    def __init__(self, driver: Simulated):
        self.driver = driver
        self._numbers = itertools.count(0x90000, 0x10)
        self.objects: dict[int, Any] = {}
        self.executed: list[tuple[str, frozenset[int]]] = []
        self.layouts: list[tuple[Any, ...]] = []  # strides of what ran, by uid
        self.failing: dict[Any, int] = {}
        for name, arguments in _PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(_I, *arguments)(self._guarded(getattr(self, f"_{name[5:]}"))))
        self._text = ctypes.create_string_buffer(b"CUDNN_STATUS_SIMULATED")
        self.cudnnGetErrorString = ctypes.CFUNCTYPE(_P, _I)(lambda status: ctypes.addressof(self._text))

    @staticmethod
    def _guarded(function: Any) -> Any:
        def called(*arguments: Any) -> int:
            try:
                return int(function(*arguments) or 0)
            except (KeyError, ValueError, SimulatedError, AssertionError):
                return BAD_PARAM

        return called

    def _Create(self, out: Any) -> None:
        self.driver.unsafe("cudnnCreate")
        out[0] = next(self._numbers)
        self.objects[out[0]] = [self.driver.getDevice(), 0]

    def _SetStream(self, handle: int, stream: int | None) -> None:
        self.objects[handle][1] = stream or 0

    def _BackendCreateDescriptor(self, kind: int, out: Any) -> None:
        assert kind in _TOLD or kind in (_ENGINE, _ENGINECFG)
        out[0] = next(self._numbers)
        self.objects[out[0]] = _Descriptor(kind)

    def _BackendDestroyDescriptor(self, which: int) -> None:
        assert isinstance(self.objects.pop(which), _Descriptor)

    def _BackendSetAttribute(self, which: int, name: int, kind: int, count: int, elements: int) -> None:
        made = self.objects[which]
        expected = _TOLD[made.kind][name]
        assert not made.final and kind in ((4, 5) if expected is None else (expected,)) and count > 0
        values = list((_element(kind) * count).from_address(elements))
        if kind == _DESCRIPTOR:
            values = [self.objects[value] for value in values]
            assert all(value.final for value in values)
        made.told[name] = values

    def _BackendFinalize(self, which: int) -> int:
        made = self.objects[which]
        assert not made.final and {*made.told} == {*_TOLD[made.kind]}
        if made.kind in self.failing:
            return self.failing[made.kind]
        status = self._checked(made)
        made.final = not status
        return status

    def _checked(self, made: _Descriptor) -> int:
        """The status with which a descriptor is finalized."""
        if made.kind == _TENSOR:
            assert len(made.told[902]) == len(made.told[903]) and made.one(901) in _STORAGE
            assert made.one(900) in (1, 2, 4, 8, 16)
        if made.kind == _CONVOLUTION:
            assert all(len(made.told[name]) == made.one(106) for name in (102, 103, 104, 105))
        if made.kind == _GRAPH and _parts(made)["result"].one(901) == 1:
            return DATA_TYPE
        if made.kind == _PLAN:
            return self._planned(made)
        return 0

    def _planned(self, made: _Descriptor) -> int:
        chosen = made.one(401)
        made.notes, made.graph = chosen.notes, chosen.graph
        graph = _parts(made.graph)
        layouts = {_by_channels(t) for t in graph["tensors"]} - {None}
        if len(layouts) > 1:
            return LAYOUT
        return PATTERN if graph["bias"] and TENSOR_CORE not in made.notes else 0

    def _BackendGetAttribute(self, which: int, name: int, kind: int, most: int, count: Any, elements: int) -> None:
        made = self.objects[which]
        if made.kind == _ENGINEHEUR:
            assert made.final and name == 202 and kind == _DESCRIPTOR
            offered = ENGINES[made.one(200)]
            count[0] = min(most, len(offered)) if most else len(offered)
            for notes, number in zip(offered, (_P * most).from_address(elements) if most else (), strict=False):
                target = self.objects[number]
                assert target.kind == _ENGINECFG
                target.notes, target.graph, target.final = frozenset(notes), made.one(201), True
            return
        if made.kind == _ENGINECFG:
            assert name == 300 and kind == _DESCRIPTOR and most == 1
            target = self.objects[_P.from_address(elements).value or 0]
            assert target.kind == _ENGINE
            target.notes, target.final, count[0] = made.notes, True, 1
            return
        if made.kind == _ENGINE:
            assert name == 1303 and kind == 11
            count[0] = len(made.notes)
            (_I * most).from_address(elements)[: len(made.notes)] = sorted(made.notes)
            return
        assert made.kind == _PLAN and made.final and name == 402 and kind == 3
        _L.from_address(elements).value, count[0] = WORKSPACE, 1

    def _BackendExecute(self, handle: int, plan: int, pack: int) -> int:
        if "execute" in self.failing:
            return self.failing["execute"]
        device, stream = self.objects[handle]
        made, given = self.objects[plan], self.objects[pack]
        driver, parts = self.driver, _parts(made.graph)
        assert made.kind == _PLAN and given.final and device == driver.getDevice()
        pointers = dict(zip(given.told[1000], given.told[1001], strict=True))
        assert driver._find(given.one(1003), WORKSPACE) == device
        assert {*pointers} == {t.one(906) for t in parts["tensors"]}
        memory = {t.one(906): self._memory(pointers[t.one(906)], t, device) for t in parts["tensors"]}
        self.executed.append(("bias" if parts["bias"] else parts["name"], made.notes))
        self.layouts.append(tuple(tuple(t.told[903]) for t in parts["tensors"]))
        scratch = (ctypes.c_ubyte * WORKSPACE).from_address(given.one(1003))

        def work() -> None:
            scratch[0] = scratch[WORKSPACE - 1] = 0xEE  # it is the plan's meanwhile
            _run(parts, memory)

        with driver._lock:
            driver._stream(stream).put(work)
        return 0

    def _memory(self, address: int, tensor: _Descriptor, device: int) -> Any:
        dtype = np.dtype(_STORAGE[tensor.one(901)])
        dims, strides = tensor.told[902], tensor.told[903]
        reach = sum((n - 1) * s for n, s in zip(dims, strides, strict=True)) + 1
        assert address % tensor.one(900) == 0 and self.driver._find(address, reach * dtype.itemsize) == device
        flat = np.frombuffer((ctypes.c_ubyte * (reach * dtype.itemsize)).from_address(address), dtype)
        return np.lib.stride_tricks.as_strided(flat, dims, [s * dtype.itemsize for s in strides])


def _element(kind: int) -> Any:
    return _I if kind in _INT else _ELEMENTS[kind]


def _by_channels(tensor: _Descriptor) -> bool | None:
    """Whether the channels lie last; None for a tensor of which that cannot be told."""
    sizes, strides = tensor.told[902], tensor.told[903]
    if tensor.one(906) == 4 or sizes[1] == 1 or strides[1] == strides[-1]:
        return None
    return bool(strides[1] < strides[-1])


def _parts(graph: Any) -> dict[str, Any]:
    """What a graph computes: the tensors in memory, and how the result comes from the others."""
    first, *rest = graph.told[801]
    name = _NAMES[first.kind]
    start = {_FORWARD: 702, _DATA: 708, _FILTER: 714}[first.kind]
    window = first.one(start)
    w, x, y = (first.one(start + k) for k in (1, 2, 3))
    result = {"conv_fprop": y, "conv_dgrad": x, "conv_wgrad": w}[name]
    assert first.one(start - 2) == 1 and first.one(start - 1) == 0 and window.one(101) == 1
    bias = None
    if rest:
        (addition,) = rest
        assert addition.one(750).one(0) == 0 and addition.one(751) is y and y.one(907) and name == "conv_fprop"
        bias, result = addition.one(752), addition.one(753)
    tensors = [t for t in (w, x, y, bias, result) if t is not None and not t.one(907)]
    unique = list({id(t): t for t in tensors}.values())
    return {"name": name, "window": window, "w": w, "x": x, "y": y, "bias": bias, "result": result, "tensors": unique}


def _run(parts: dict[str, Any], memory: dict[int, Any]) -> None:
    def value(tensor: _Descriptor) -> Any:
        held = memory[tensor.one(906)]
        if tensor.one(901) == _BFLOAT16:
            return (held.astype(np.uint32) << 16).view(np.float32)
        return held.astype(np.float32)

    given = {"conv_fprop": "xw", "conv_dgrad": "yw", "conv_wgrad": "xy"}[parts["name"]]
    told = parts["window"].told
    window = {"pre_padding": told[105], "post_padding": told[104], "stride": told[103], "dilation": told[102]}
    result = parts["result"]
    made = _convolved(parts["name"], *(value(parts[k]) for k in given), window, result.told[902])
    if parts["bias"] is not None:
        made = made + value(parts["bias"])
    memory[result.one(906)][...] = _narrow(made, result.one(901))


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


def _narrow(values: Any, kind: int) -> Any:
    if kind != _BFLOAT16:
        return values.astype(_STORAGE[kind])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


_OUT = ctypes.POINTER(_P)
#: As cudnn_graph.h declares them: written down a second time, so that a mistake in the backend's own shows.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_OUT,),
    "cudnnSetStream": (_P, _P),
    "cudnnBackendCreateDescriptor": (_I, _OUT),
    "cudnnBackendDestroyDescriptor": (_P,),
    "cudnnBackendSetAttribute": (_P, _I, _I, _L, _P),
    "cudnnBackendGetAttribute": (_P, _I, _I, _L, ctypes.POINTER(_L), _P),
    "cudnnBackendFinalize": (_P,),
    "cudnnBackendExecute": (_P, _P, _P),
}
