"""What a result depends on besides its tensors, as values that can be compared: a token is equal as long as nothing
that was seen has changed.
"""

from __future__ import annotations

import enum
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.jit._compile.errors import NotProved
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["PLAIN", "Tokens", "is_ours", "settings"]

_ATOMS = frozenset((
    type(None), bool, int, str, bytes, type(...), types.BuiltinFunctionType, ts.dtype, ts.device,
    range, type(ts.strided), type(ts.contiguous_format), types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, _native.Operator, _native.OperatorMethod,
))  # fmt: skip
_CONTAINERS = frozenset((dict, OrderedDict, list, set))
# Values that do not change, whoever holds them.
PLAIN = (
    type(None), bool, int, float, complex, str, bytes, type(...), ts.dtype, ts.device, ts.Size, range, enum.Enum,
)  # fmt: skip
# What a module keeps for itself and no computation reads.
_PRIVATE = frozenset({
    "_tesserack_scripted", "_compiled_call_impl", "_graph", "_lineno_map", "_tracer_cls", "_tracer_extras", "_in_spec",
    "_out_spec", "_compiled",
})  # fmt: skip


def is_ours(cls: Any) -> bool:
    """Whether a class or function is this package's."""
    return str(getattr(cls, "__module__", "")).partition(".")[0] in ("tesserack", "torch")


class Tokens:
    """Makes tokens. Objects that are told apart by identity are kept, so that none takes the place of another.

    ``tensors`` and ``modules`` are those that were met, ``functions`` those written in Python, by their code.
    """

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.kept: dict[int, Any] = {}
        self.tensors: dict[int, Tensor] = {}
        self.modules: dict[int, Module] = {}
        self.classes: dict[int, type] = {}
        self.functions: dict[types.CodeType, list[types.FunctionType]] = {}
        self._open: dict[int, int] = {}  # what is being looked at, or was, by the order of that

    def of(self, value: Any) -> Any:
        """The token of a value. ``NotProved`` for one whose changes cannot be seen."""
        kind = type(value)
        if kind in _ATOMS:
            return (kind, value)
        if kind in _CONTAINERS and not value:
            return (kind, self._same(value))
        if isinstance(value, types.ModuleType):
            return self.module(value, whole=True)
        if isinstance(value, (float, complex)):
            return (type(value).__name__, repr(value))
        if isinstance(value, Tensor):
            return self.tensor(value)
        if id(value) in self._open:
            return ("again", self._open[id(value)])
        self._open[id(value)] = len(self._open)
        self._same(value)
        return self._compound(value)

    def module(self, value: types.ModuleType, whole: bool) -> Any:
        """The token of a module of Python: which it is. ``NotProved`` for one of the program's that is used whole."""
        first = value.__name__.partition(".")[0]
        if whole and first not in ("tesserack", "torch") and first not in sys.stdlib_module_names:
            raise NotProved(f"the module {value.__name__} is handed on, so that what is read of it cannot be seen")
        return ("module object", self._same(value))

    def _same(self, value: Any) -> int:
        if self.keep:
            self.kept[id(value)] = value
        return id(value)

    def tensor(self, x: Tensor, identity: bool = True) -> Any:
        """The token of a tensor: which it is, if asked, and what it is like."""
        if type(x) not in (Tensor, Parameter) or x.layout is not ts.strided:
            raise NotProved(f"a tensor of class {type(x).__name__} and layout {x.layout} is used")
        if getattr(x, "__dict__", None):
            raise NotProved("a tensor has attributes of its own")
        if identity:
            self._same(x)
            self.tensors[id(x)] = x
        same = id(x) if identity else None
        like = (tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.is_conj(), x.is_neg())
        return ("tensor", same, type(x).__name__, like)

    def _compound(self, value: Any) -> Any:
        if isinstance(value, type):
            self.classes[id(value)] = value
            return ("class", id(value))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return ("method", self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, enum.Enum):
            return ("enum", id(value))
        if isinstance(value, dict):
            pairs = tuple((self.of(key), self.of(item)) for key, item in value.items())
            own = self._attributes(value) if type(value) not in _CONTAINERS else None
            return (type(value), id(value), pairs, own)
        if isinstance(value, (list, tuple, set, frozenset)):
            items = tuple(
                self.of(item) for item in (value if isinstance(value, (list, tuple)) else sorted(value, key=repr))
            )
            return (type(value).__name__, id(value) if isinstance(value, (list, set)) else None, items)
        if isinstance(value, (property, classmethod, staticmethod)):
            return self._wrapped(value)
        if isinstance(value, Module):
            self.modules[id(value)] = value
            kind = self._same(type(value)), self._same(type(value).forward)
            return ("module", id(value), kind, self._attributes(value))
        return self._object(value)

    def _wrapped(self, value: Any) -> Any:
        parts = (value.fget,) if isinstance(value, property) else (value.__func__,)
        return (type(value).__name__, id(value), tuple(self.of(part) for part in parts if part is not None))

    def _function(self, function: types.FunctionType) -> Any:
        self.functions.setdefault(function.__code__, []).append(function)
        parts = (function.__defaults__, function.__kwdefaults__)
        return ("function", id(function), self._same(function.__code__), tuple(self.of(part) for part in parts))

    def _attributes(self, value: Any) -> Any:
        found = getattr(value, "__dict__", None) or {}
        return tuple((name, self.of(item)) for name, item in found.items() if name not in _PRIVATE)

    def _object(self, value: Any) -> Any:
        """A plain object of a class written in Python: its attributes."""
        cls = type(value)
        plain = cls.__flags__ & (1 << 9) and not is_ours(cls) and not _has_slots(cls)  # made by a class statement
        base = next((b for b in cls.__mro__ if not b.__flags__ & (1 << 9)), object)
        if not plain or base is not object:
            raise NotProved(f"an object of class {cls.__qualname__} is used, whose changes cannot be seen")
        self.classes[id(cls)] = cls
        return ("object", id(value), self._same(cls), self._attributes(value))

    def of_class(self, cls: type, read: frozenset[str]) -> Any:
        """The token of what a class of the program holds: its functions, and what is read of the rest."""
        return tuple(
            (name, self._member(name in read, value))
            for base in cls.__mro__ if base.__flags__ & (1 << 9) and not is_ours(base)
            for name, value in vars(base).items()
        )  # fmt: skip

    def _member(self, read: bool, value: Any) -> Any:
        plain = isinstance(value, (types.FunctionType, property, classmethod, staticmethod))
        return self.of(value) if plain or read else self._same(value)


def _has_slots(cls: type) -> bool:
    return any(vars(base).get("__slots__") for base in cls.__mro__)


def settings() -> Iterator[Any]:
    """What this thread's computations depend on everywhere."""
    from tesserack._tensor.overrides import _modes
    from tesserack.amp import _autocast
    from tesserack.aten.modes import stack

    yield ts.is_grad_enabled()
    yield ts.is_inference_mode_enabled()
    yield ts.get_default_dtype()
    yield str(ts.get_default_device())
    yield ts.are_deterministic_algorithms_enabled()
    yield ts.get_float32_matmul_precision()
    yield len(_modes), len(stack())
    yield _autocast.entered_regions()
