"""Operators by their schema names, ``torch.ops.aten.add.Tensor``; every namespace of custom operators likewise."""

from __future__ import annotations

import functools
import operator
from typing import Any

from tesserack import _native, library
from tesserack._native import Tensor
from tesserack._tensor.overrides import _overrides, handle_torch_function
from tesserack.aten.missing import MissingNameError
from tesserack.aten.schema import FunctionSchema, parse
from tesserack.aten.signatures import SCHEMAS
from tesserack.ops.registry import operators

__all__ = ["OpOverload", "OpOverloadPacket", "namespace", "private"]


_shown: list[Any] = []  # how a call is shown to modes: f(overload, args, kwargs), NotImplemented if none asks


@functools.cache
def _overloads() -> dict[str, dict[str, dict[str, Any]]]:
    """The registry's records: base name, then overload."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in _native._operators():
        base, _, overload = record["name"].partition(".")
        found.setdefault(base, {})[overload or "default"] = record
    return found


def _overriding(args: tuple[Any, ...]) -> list[Any]:
    """The arguments, and items of lists among them, whose classes take functions over."""
    flat = [item for arg in args for item in (arg if type(arg) in (list, tuple) else (arg,))]
    found = [arg for arg in flat if type(arg) is not Tensor and _overrides(arg)]
    return found if found and _native._asks_overrides() else []


class _Single:
    """One object for each name: its copies are itself, so that copied graphs call what their originals do."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class OpOverload(_Single):
    """One overload, such as ``aten.add.Tensor``; one object per name.

    PyTorch splits some operators into more overloads than there are here: such a one is the whole operator.
    """

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self._packet, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__ = self.__name__
        self.__module__ = packet.__module__
        record = _overloads().get(packet.__name__, {}).get(overload)
        self._exact = record is not None and packet.namespace == "aten"
        own = record is not None and packet.__name__ not in SCHEMAS
        self._text = record["schema"] if record is not None and own else packet.schema
        self._function: Any = None
        self._adapted: Any = None

    @property
    def _schema(self) -> FunctionSchema:
        return parse(self._packet._qualified_op_name, self._overloadname.replace("default", ""), self._text)

    @property
    def namespace(self) -> str:
        """``"aten"`` for built-in operators."""
        return self._packet.namespace

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The operator that this is an overload of."""
        return self._packet

    op = overloadpacket

    def name(self) -> str:
        """The name with its namespace, as in ``"aten::add.Tensor"``."""
        suffix = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self._packet._qualified_op_name}{suffix}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if overriding := _overriding(args):
            return handle_torch_function(self, overriding, *args, **kwargs)
        if self._function is None:
            suffix = "" if self._overloadname == "default" else f".{self._overloadname}"
            full = f"{self._packet.__name__}{suffix}"
            self._adapted = self._packet.adapted()
            self._function = self._adapted or (_native._operator_function(full) if self._exact else self._packet)
            if self.namespace != "aten":
                self._function = self._packet._own().get(suffix.removeprefix("."), self._packet)
        if self._adapted is not None and _shown:  # the registry has it not, so that no call of it comes to a mode
            found = _shown[0](self, args, kwargs)
            if found is not NotImplemented:
                return found
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self._packet._qualified_op_name.replace('::', '.')}', overload='{self._overloadname}')>"
        )

    __str__ = _name = lambda self: f"{self.namespace}.{self.__name__}"

    def __reduce__(self) -> Any:
        return _named, (self.namespace, self._packet.__name__, self._overloadname)


class OpOverloadPacket(_Single):
    """An operator with all its overloads, such as ``torch.ops.aten.add``."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace, self.__name__ = namespace, name
        self.__qualname__ = name
        self.__module__ = f"torch._ops.{namespace}"
        self._qualified_op_name = f"{namespace}::{name}"
        self._target: Any = None

    def __reduce__(self) -> Any:
        return _named, (self.namespace, self.__name__)

    @property
    def schema(self) -> str:
        """The text of the first overload's schema; empty for an operator that there is not."""
        if self.namespace != "aten":
            return str(next(iter(self._own().values())).schema)
        if self.__name__ in SCHEMAS:
            return SCHEMAS[self.__name__]
        return next((record["schema"] for record in _overloads().get(self.__name__, {}).values()), "")

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        if self.namespace != "aten":
            return [name or "default" for name in self._own()]
        return [*_overloads().get(self.__name__, {})]

    def _own(self) -> dict[str, Any]:
        """A program's operators of that name, by overload. ``KeyError`` where there are none."""
        return library.overloads(self._qualified_op_name) or {"": library.get(self._qualified_op_name)}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        # Found without coming here from then on.
        return self.__dict__.setdefault(name, OpOverload(self, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if overriding := _overriding(args):
            return handle_torch_function(self, overriding, *args, **kwargs)
        if self._target is None:
            self._target = self._find()
        return self._target(*args, **kwargs)

    def adapted(self) -> Any:
        """The function of one that takes other arguments than the operator here, or that is none here; else None."""
        from tesserack.aten.functions import FUNCTIONS

        if self.namespace != "aten" or self.__name__.startswith("__"):
            return None
        return FUNCTIONS.get(self.__name__)

    def _find(self) -> Any:
        if self.namespace != "aten":
            own = self._own()
            several = len(own) > 1 or "" not in own
            return _native._overloaded_function(self._qualified_op_name) if several else own[""]
        if self.__name__.startswith("__"):  # as Python writes them: seen as what they are made of
            return getattr(operator, self.__name__)
        target = self.adapted() or operators().get(self.__name__)
        if target is not None:
            return target
        try:
            return _native._operator_function(self.__name__)  # one that is made on first need, as mul_grad0
        except RuntimeError:
            pass
        raise MissingNameError(f"torch.ops.aten.{self.__name__}: Tesserack has no operator of this name")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"


class _OpNamespace:
    """The operators of a namespace. In ``aten`` every name can be taken; calling one that is not there says so."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (self.name != "aten" or name not in SCHEMAS):
            raise AttributeError(name)
        if self.name != "aten" and not library.overloads(f"{self.name}::{name}"):
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")
        packet = OpOverloadPacket(self.name, name)
        setattr(self, name, packet)
        return packet

    def __dir__(self) -> list[str]:
        return sorted(_overloads() if self.name == "aten" else library.in_namespace(self.name))

    def __repr__(self) -> str:
        return f"<torch.ops.{self.name}>"


def private(name: str) -> OpOverloadPacket:
    """What ``torch._name`` is, which PyTorch makes of its own operators; ``AttributeError`` where there is none."""
    packet: OpOverloadPacket = getattr(namespace("aten"), name)
    try:
        packet._find()
    except MissingNameError:
        raise AttributeError(name) from None
    return packet


@functools.cache
def namespace(name: str) -> _OpNamespace:
    """The namespace of that name, one object each."""
    return _OpNamespace(name)


def _forgotten(name: str) -> None:
    """The operator is no more, or another one: what was found of it is found again."""
    space, _, base = name.partition(".")[0].partition("::")
    packet = namespace(space).__dict__.pop(base, None)
    if packet is not None:
        packet._target = None
        for overload in vars(packet).values():
            if isinstance(overload, OpOverload):
                overload._function = None


library.when_forgotten.append(_forgotten)


def _named(space: str, name: str, overload: str | None = None) -> Any:
    """As which they are pickled: what a call has made of one is not taken along."""
    packet = getattr(namespace(space), name)
    return packet if overload is None else getattr(packet, overload)
