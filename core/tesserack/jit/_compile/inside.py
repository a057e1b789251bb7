"""What runs within calls that stand whole, in this run or a later one: whether it may change what the program reads."""

from __future__ import annotations

import builtins
import collections
import dis
import functools
import inspect
import sysconfig
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from tesserack import Tensor
from tesserack._native import FunctionCtx
from tesserack.jit._compile.code import instructions_of, lines_of
from tesserack.nn.modules.module import Module

__all__ = ["Around", "Inside", "changes"]

# Methods that change what they are called on, where that is no tensor.
_CHANGING = frozenset({
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "discard", "clear",
    "update", "setdefault", "sort", "reverse", "rotate", "add", "add_module", "train", "eval", "requires_grad_",
    "load_state_dict", "__setitem__", "__delitem__", "__setattr__", "__delattr__",
})  # fmt: skip
_BY_NAME = frozenset({"exec", "eval", "globals", "vars"})
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_GLOBAL", "LOAD_CONST", "LOAD_CLOSURE", "LOAD_SMALL_INT")
_STORES = {"STORE_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_SLICE": 2}  # how far below the top the container lies
_LIBRARY = sysconfig.get_paths()["stdlib"]


class _Unknown:
    """What is known only when it runs."""


class _Fresh(_Unknown):
    """What the code has made itself, or a tensor."""


class Inside(NamedTuple):
    """A code that ran: where it looks up globals, its arguments and what it closes over."""

    space: dict[str, Any]
    names: dict[str, Any]

    @classmethod
    def of(cls, frame: types.FrameType) -> Inside:
        """As its frame begins. Tensors are not kept."""
        return cls(frame.f_globals, {n: _Fresh if isinstance(v, Tensor) else v for n, v in frame.f_locals.items()})


def _of_function(function: types.FunctionType) -> Inside:
    names = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            names[name] = _Unknown
    return Inside(function.__globals__, names)


class Around(NamedTuple):
    """What the program around reads: objects by their ids, attributes and globals by name, and attributes of layers."""

    held: dict[int, Any]
    read: frozenset[str]
    of_layers: frozenset[str]


def changes(inner: dict[types.CodeType, Inside], around: Around) -> str | None:
    """Where something is changed that the program around reads: by the codes, or by functions that they may call. What
    is not known counts as such."""
    waiting = [(code, each) for code, each in inner.items() if not code.co_filename.startswith(_LIBRARY)]
    seen = set(inner)
    while waiting:
        code, names = waiting.pop()
        reader = _Reader(code, names, around, seen)
        if (found := reader.change()) is not None:
            return found
        for function in reader.functions():
            if function.__code__ not in seen and not _is_ours(function):
                seen.add(function.__code__)
                waiting.append((function.__code__, _of_function(function)))
    return None


def _is_ours(function: types.FunctionType) -> bool:
    name = str(function.__globals__.get("__name__"))
    return name.partition(".")[0] == "tesserack" or function.__code__.co_filename.startswith(_LIBRARY)


class _Reader:
    """Reads one code."""

    def __init__(self, code: types.CodeType, inside: Inside, around: Around, known: set[types.CodeType]) -> None:
        self.code, self.inside, self.around, self.held = code, inside, around, around.held
        self.known = known  # all that runs inside
        self.steps = _steps(code)
        self.lines = lines_of(self.steps, code)
        self._tracing: set[str] = set()

    def change(self) -> str | None:
        """The first change that counts, in words."""
        for place, step in enumerate(self.steps):
            what = self._change_at(place, step)
            if what is not None:
                return f"{self.code.co_filename}:{self.lines[place]} ({self.code.co_name}) {what}"
        return None

    def _change_at(self, place: int, step: dis.Instruction) -> str | None:
        name, what = step.opname, step.argval
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return f"writes {what!r}, which is read outside of it" if what in self.around.read else None
        if name in ("STORE_ATTR", "DELETE_ATTR"):
            return f"writes {what!r}, which is read outside of it" if self._is_read(place, what) else None
        if name in ("STORE_DEREF", "DELETE_DEREF") and what in self.code.co_freevars and not self._is_inner(what):
            return f"writes {what!r} of the function around it"
        if name in _STORES:
            return self._told(self._below(place, _STORES[name]), "writes an item of")
        if name in ("LOAD_METHOD", "LOAD_ATTR") and (what in _CHANGING or str(what).startswith("register_")):
            return self._told(self._below(place, 0), f"calls {what} of")
        if name == "LOAD_GLOBAL" and what in ("setattr", "delattr"):
            return self._told(self._first_argument(place), f"calls {what} of")
        if name == "LOAD_GLOBAL" and what in _BY_NAME:
            return f"calls {what}, which may change anything"
        return None

    def _first_argument(self, place: int) -> Any:
        """Of the call of what is loaded there."""
        at = place + 1
        while at + 1 < len(self.steps) and self.steps[at + 1].opname == "LOAD_ATTR":
            at += 1
        return self._value(at) if at < len(self.steps) else _Unknown

    def _told(self, value: Any, what: str) -> str | None:
        if value is _Unknown:
            return f"{what} something that is known only when it runs"
        if id(value) in self.held and not isinstance(value, Tensor):
            return f"{what} a {type(value).__name__} that is read outside of it"
        return None

    def _is_read(self, place: int, name: str) -> bool:
        """Whether an attribute that is written there may be one that is read, and not of a function's own context."""
        owner = self._below(place, 0)
        if isinstance(owner, FunctionCtx) or (owner is _Unknown and self.steps[place - 1].argval == "ctx"):
            return False
        of_layer = name in self.around.of_layers and (owner is _Unknown or isinstance(owner, Module))
        return of_layer or name in self.around.read

    def _is_inner(self, name: str) -> bool:
        """Whether the variable is that of a function that runs inside, too, and is made anew with it."""
        return any(name in code.co_cellvars and self.code in code.co_consts for code in self.known)

    # --- values ---

    def _below(self, place: int, depth: int) -> Any:
        """What lies so far below the top of the stack before a step."""
        at, wanted = place - 1, depth
        while at >= 0:
            arity = _arity(self.steps[at])
            if arity is None:
                return self._on_line(self.lines[place])
            takes, gives = arity
            if gives > wanted:
                return self._value(at)
            wanted += takes - gives
            at -= 1
        return _Unknown

    def _on_line(self, line: int) -> Any:
        """The first thing read on a line that counts, where it is not known which is meant."""
        values = [self._value(k) for k, at in enumerate(self.lines) if at == line and self.steps[k].opname in _LOADS]
        return next((v for v in values if v is _Unknown or id(v) in self.held), _Fresh)

    def _value(self, at: int) -> Any:
        """What a step gives."""
        step = self.steps[at]
        name, what = step.opname, step.argval
        if name == "LOAD_FAST" and what not in self.inside.names:
            return self._local(what)
        if name in ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"):
            return self.inside.names.get(what, _Unknown if what in self.code.co_freevars else _Fresh)
        if name == "LOAD_GLOBAL":
            return self.inside.space.get(what, vars(builtins).get(what, _Unknown))
        if name in ("LOAD_ATTR", "LOAD_METHOD"):
            return _attribute(self._below(at, 0), what)
        if name == "BINARY_SUBSCR":
            return _item(self._below(at, 1), self._below(at, 0))
        return what if name in ("LOAD_CONST", "LOAD_SMALL_INT") else _Fresh

    def _local(self, name: str) -> Any:
        """What a variable of the code may be: where it is one of several things, the one that counts."""
        if name in self._tracing:
            return _Fresh
        self._tracing.add(name)
        try:
            stores = [k for k, s in enumerate(self.steps) if s.opname == "STORE_FAST" and s.argval == name]
            values = [self._below(k, 0) for k in stores]
        finally:
            self._tracing.discard(name)
        if name in self.code.co_varnames[: self.code.co_argcount + self.code.co_kwonlyargcount]:
            values.append(_Unknown)  # an argument of a function that has not run
        return next(
            (v for v in values if v is _Unknown or id(v) in self.held), values[0] if len(values) == 1 else _Fresh
        )

    def functions(self) -> Iterator[types.FunctionType]:
        """Those that it may call."""
        for at, step in enumerate(self.steps):
            if step.opname in _LOADS or step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield from _called(self._value(at))
            elif step.opname == "BINARY_SUBSCR":  # whichever it is
                for value in _parts(self._below(at, 1)):
                    yield from _called(value)


def _called(value: Any) -> Iterator[types.FunctionType]:
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, Module) and isinstance(forward := type(value).forward, types.FunctionType):
        yield forward


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Module):
        return [*value.children()]
    return [*value.values()] if isinstance(value, dict) else [*value] if isinstance(value, (list, tuple)) else []


def _attribute(value: Any, name: str) -> Any:
    """Without running anything of the program's."""
    if isinstance(value, type) and issubclass(value, _Unknown):
        return value
    if isinstance(value, Module):
        for parts in (vars(value), value._parameters, value._buffers, value._modules):
            if name in parts:
                return parts[name]
    found = inspect.getattr_static(value, name, _Unknown)
    if isinstance(found, types.MemberDescriptorType):
        return getattr(value, name, _Unknown)
    if isinstance(found, (types.FunctionType, types.BuiltinFunctionType, type)) or not hasattr(type(found), "__get__"):
        return found
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else _Unknown


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, type) and issubclass(value, _Unknown):
        return value
    if type(value) in (list, tuple, dict, collections.OrderedDict) and isinstance(key, (int, str)):
        try:
            return value[key]
        except (KeyError, IndexError, TypeError):
            return _Unknown
    return _Fresh if value is _Fresh or isinstance(value, Tensor) else _Unknown


# --- steps -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _steps(code: types.CodeType) -> list[dis.Instruction]:
    """One for each thing: newer versions load and store two at once."""
    steps: list[dis.Instruction] = []
    for step in instructions_of(code):
        name = step.opname.replace("_CHECK", "").replace("_BORROW", "")
        if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"):
            first, second = name[: len("STORE_FAST")].rstrip("_"), name[-len("STORE_FAST") :].lstrip("_")
            steps += [
                step._replace(opname=each, argval=what) for each, what in zip((first, second), step.argval, strict=True)
            ]
        else:
            subscript = name == "BINARY_OP" and step.argrepr == "[]"
            steps.append(step._replace(opname="BINARY_SUBSCR" if subscript else name))
    return steps


_FIXED = {
    "LOAD_ATTR": (1, 1), "LOAD_METHOD": (1, 1), "BINARY_SUBSCR": (2, 1), "BINARY_OP": (2, 1), "COMPARE_OP": (2, 1),
    "IS_OP": (2, 1), "CONTAINS_OP": (2, 1), "BINARY_SLICE": (3, 1), "KW_NAMES": (0, 0), "NOP": (0, 0), "RESUME": (0, 0),
    "STORE_FAST": (1, 0), "POP_TOP": (1, 0), "LIST_EXTEND": (1, 0), "GET_ITER": (1, 1), "STORE_SUBSCR": (3, 0),
    "STORE_ATTR": (2, 0), "COPY_FREE_VARS": (0, 0), "MAKE_CELL": (0, 0), "TO_BOOL": (1, 1),
}  # fmt: skip


def _arity(step: dis.Instruction) -> tuple[int, int] | None:
    """How many things a step takes from the stack, and how many it leaves there; None where that is not so plain."""
    name, count = step.opname, step.arg or 0
    if name in _LOADS:
        return 0, 1
    if name in _FIXED:
        return _FIXED[name]
    if name.startswith("UNARY_"):
        return 1, 1
    if name.startswith(("BINARY_", "INPLACE_")):
        return 2, 1
    if name in ("CALL", "CALL_FUNCTION", "CALL_METHOD"):
        return count + 1, 1
    if name in ("CALL_KW", "CALL_FUNCTION_KW"):
        return count + 2, 1
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
        return count, 1
    return (2 * count, 1) if name == "BUILD_MAP" else None
