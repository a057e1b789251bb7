"""``TorchDispatchMode``, and the kernel that hands calls to modes and to classes with a ``__torch_dispatch__``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tesserack import Tensor, _native
from tesserack._tensor.subclass import DISPATCH_KEY, has_no_memory
from tesserack.aten.layers import is_whole
from tesserack.aten.names import is_leaf, shown
from tesserack.aten.operators import _shown, namespace
from tesserack.aten.parts import NUMBER_FIRST, PARTS, SEEN
from tesserack.aten.renamed import RENAMED, Form
from tesserack.aten.whole import whole_form, whole_overloads
from tesserack.library import dispatch_rules
from tesserack.library.dispatch import Call

__all__ = ["TorchDispatchMode", "check_geometry", "disabled_modes", "entered", "stack", "within_composite"]

KEY = DISPATCH_KEY


class _State(threading.local):
    def __init__(self) -> None:
        self.modes: list[TorchDispatchMode] = []
        self.outside: list[tuple[TorchDispatchMode, list[TorchDispatchMode], int]] = []  # of each that was entered
        self.entered = 0  # also those that are not asked now, since one of them runs
        self.composites = 0  # operators, one in another, that go by their parts now


_state = _State()


def stack() -> list[TorchDispatchMode]:
    """This thread's modes, the innermost last."""
    return _state.modes


def entered() -> bool:
    """Whether this thread is within a mode, or in what one does."""
    return _state.entered > 0


class TorchDispatchMode:
    """As a context: every operator of this thread comes to ``__torch_dispatch__``, below autograd.

    ``__torch_dispatch__(func, types, args, kwargs)`` is given the operator, as ``torch.ops.aten.add.Tensor``, and
    returns the results, most often of ``func(*args, **kwargs)``, which goes on to the modes around this one and then
    to the device. Operators that are composed of others are seen as their parts.

    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> import tesserack as ts
    >>> x, weight = ts.ones(1, 2), ts.ones(3, 2)
    >>> with Names():
    ...     _ = ts.nn.functional.linear(x, weight) + 1
    aten.t.default
    aten.mm.default
    aten.add.Tensor
    """

    supports_higher_order_operators = False
    # Whether what has no gradient of its own is seen as its parts where one is recorded: they are what is saved.
    sees_parts_of_recorded = False
    # The composed operators that it is given whole, all the same.
    whole: frozenset[Any] = frozenset()
    # Whether a tensor may become another one, by resize_ or set_, of which it is not told.
    bears_new_geometry = True

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: a mode defines __torch_dispatch__")

    def __enter__(self) -> TorchDispatchMode:
        if getattr(self.__torch_dispatch__, "__self__", self) is not self:
            raise RuntimeError(
                f"{type(self).__name__}: __torch_dispatch__ of a mode should be a normal method not a class method"
            )
        _state.outside.append((self, _state.modes, _state.entered))
        _state.modes = [*_state.modes, self]
        _state.entered += 1
        _native._enable_key(KEY, True)
        return self

    def __exit__(self, *exc: object) -> None:
        places = [place for place, (mode, *_) in enumerate(_state.outside) if mode is self]
        if places:  # an interruption may have kept a mode within this one from its end
            _, _state.modes, _state.entered = _state.outside[places[-1]]
            del _state.outside[places[-1] :]
            _native._enable_key(KEY, bool(_state.modes))

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: no mode is part of the framework."""
        return False


@contextlib.contextmanager
def _only(modes: list[TorchDispatchMode]) -> Iterator[None]:
    """Within it the modes are these."""
    before, _state.modes = _state.modes, modes
    _native._enable_key(KEY, bool(modes))
    try:
        yield
    finally:
        _state.modes = before
        _native._enable_key(KEY, bool(before))


@contextlib.contextmanager
def disabled_modes() -> Iterator[list[TorchDispatchMode]]:
    """Within it no mode is asked."""
    before = _state.modes
    with _only([]):
        yield before


# --- the kernel ------------------------------------------------------------------------------------------------------


# Questions about a tensor's outline, which no class is asked.
_ANSWERED = frozenset({"is_conj", "is_neg"})


def _kernel(call: Call, *args: Any) -> Any:
    if call.op in _ANSWERED:
        return call.redispatch(*args)
    how = shown(call.op, call.schema)
    tensors = [*_tensors(args)]
    types = _types(tensors)
    if _state.modes and _state.modes[-1].whole:
        form = whole_form(call.op, call.schema, args)
        if form is not None and form.func in _state.modes[-1].whole:
            return _handed(form, types)
    parted = call.composite and not is_leaf(how.base) and not is_whole(how.base, args)
    if parted and call.op in SEEN:
        found = SEEN[call.op](*args)
        if found is not NotImplemented:
            return found
    if parted or (call.composite and (types or _parts_wanted()) and _records(tensors)):
        return _by_parts(call, args, types, tensors) if types else call.redispatch(*args)
    number_first = len(args) > 1 and isinstance(args[0], (int, float, complex)) and isinstance(args[1], Tensor)
    parts = (NUMBER_FIRST if number_first else PARTS).get(call.op)
    if parts is not None:
        return parts(*args)
    if not _state.modes and not types:
        _check_memory(call.op, tensors)
        return call.redispatch(*args)
    renamed = RENAMED.get(call.op)
    if renamed is not None:
        return _handed(renamed(*args), types)
    positional, keywords = how.arguments(args)
    return _hand_over(how.overload(args), types, positional, keywords)


def _handed(form: Form, types: list[type[Tensor]]) -> Any:
    result = _hand_over(form.func, types, form.args, form.kwargs)
    return result if form.pick is None else result[form.pick]


def _by_parts(call: Call, args: Any, types: list[type[Tensor]], tensors: list[Tensor]) -> Any:
    """A composed operator: its parts come here each by itself. A class may look at what the whole one is given by
    ``__check_composite__(name, tensors)``, since parts are given more: tensors that the operator makes for them."""
    if not _state.composites:
        for kind in types:
            if hasattr(kind, "__check_composite__"):
                kind.__check_composite__(call.op, tensors)
    _state.composites += 1
    try:
        return call.redispatch(*args)
    finally:
        _state.composites -= 1


def check_geometry(name: str) -> None:
    """``RuntimeError`` where a mode of this thread would go on with what a tensor was before a call of this name."""
    for mode in _state.modes:
        if not mode.bears_new_geometry:
            raise RuntimeError(
                f"{name}: the tensor becomes another one, which {type(mode).__name__} cannot write down; make a new "
                "tensor, by reshape, or zeros and a copy"
            )


def within_composite() -> bool:
    """Whether this thread computes a part of a composed operator."""
    return _state.composites > 0


def _tensors(args: Iterable[Any]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif type(arg) is list:
            yield from (item for item in arg if isinstance(item, Tensor))


def _check_memory(op: str, tensors: list[Tensor]) -> None:
    """Of a wrapper nothing but its class can tell the values."""
    for x in tensors:
        if KEY in _native._keys_of(x) and has_no_memory(x):
            raise RuntimeError(
                f"{op}: expected a tensor with memory, got one made by _make_wrapper_subclass that is no longer an "
                f"instance of its class (shape {tuple(x.shape)}); go on with what its __torch_dispatch__ returns"
            )


def _records(tensors: list[Tensor]) -> bool:
    """Whether a gradient is to flow through what its class computes: by parts that have gradients of their own."""
    return _native.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _parts_wanted() -> bool:
    return any(mode.sees_parts_of_recorded for mode in _state.modes)


def _types(tensors: list[Tensor]) -> list[type[Tensor]]:
    """The classes that take over, subclasses before what they derive from."""
    found: list[type[Tensor]] = []
    for tensor in tensors:
        kind = type(tensor)
        if kind in found or kind.__torch_dispatch__ is Tensor.__torch_dispatch__:
            continue
        at = next((k for k, other in enumerate(found) if issubclass(kind, other)), len(found))
        found.insert(at, kind)
    return found


def _ruled(func: Any, kind: Any) -> Any:
    """What a program has said that a class or mode answers of its own operator, by register_torch_dispatch."""
    name = getattr(getattr(func, "overloadpacket", None), "_qualified_op_name", None)
    return None if name is None else dispatch_rules.get((name, kind))


def _asked(of: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return of.__torch_dispatch__(func, types, args, kwargs)


def _hand_over(func: Any, types: list[type[Tensor]], args: Any, kwargs: dict[str, Any]) -> Any:
    asked: list[str] = []
    if _state.modes:
        mode = _state.modes[-1]
        rule = _ruled(func, type(mode)) if dispatch_rules else None
        with _only(_state.modes[:-1]):
            result = (rule or _asked)(mode, func, tuple(types), args, kwargs)
        if result is not NotImplemented:
            return result
        asked.append(f"mode object {mode!r}")
    for kind in types:
        rule = _ruled(func, kind) if dispatch_rules else None
        result = (rule or _asked)(kind, func, tuple(types), args, kwargs)
        if result is not NotImplemented:
            return result
        asked.append(f"tensor subclass {kind!r}")
    raise TypeError(
        f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented: "
        f"{', '.join(asked)}"
    )


def _of_aten_alone(func: Any, args: Any, kwargs: Any) -> Any:
    """A call of an operator that is a function here, as it is, to the modes; its parts where gradients are recorded."""
    tensors = [*_tensors(args), *_tensors([*kwargs.values()])]
    if not _state.modes or _records(tensors):
        return NotImplemented
    if func in whole_overloads() and func not in _state.modes[-1].whole:
        return NotImplemented  # the operator here goes by its parts
    return _hand_over(func, _types(tensors), args, kwargs)


def _lift(made: Tensor) -> Any:
    """A tensor of numbers that the program gives, as the modes have it: a constant of a graph, a fake one."""
    return _hand_over(namespace("aten").lift_fresh.default, [], (made,), {}) if _state.modes else made


_shown.append(_of_aten_alone)
_native._set_lift(KEY, _lift)
_native._set_kernel(None, KEY, _kernel, "__torch_dispatch__")
