"""What a program assigns to its modules while it is exported: buffers are results, other attributes are let go.

A graph assigns no attributes of Python: it is right where the program assigns them before it reads them, or only
counts. What was a tensor that the graph computes with is state, which a graph would never change: that is refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tesserack import Tensor
from tesserack.fx.experimental._proxy_tracer import shown_frames, user_frames
from tesserack.fx.export._errors import ExportError
from tesserack.nn.modules.module import Module

__all__ = ["SideEffects"]

_SKIPPED = frozenset({"_parameters", "_buffers", "_modules", "training"})


_HOOKS = "tesserack.nn.utils"  # which assign weights that they make of parameters, each time anew


class _Change(NamedTuple):
    name: str  # with the path of its module
    line: str
    before: list[Tensor]  # that it was, or held
    by_hook: bool


class SideEffects:
    """As a context: notes what is assigned and puts it back at the end. Parameters that are assigned are an error."""

    def __init__(self, module: Module) -> None:
        self.modules = [(name, m) for name, m in module.named_modules()]
        self.lines: dict[tuple[int, str], str] = {}
        self.changes: list[_Change] = []
        self._hooked: set[tuple[int, str]] = set()

    def __enter__(self) -> SideEffects:
        self._before = [(_state(m), {**m._buffers}, {**m._parameters}) for _, m in self.modules]
        self._setattr = Module.__setattr__
        original, lines = self._setattr, self.lines

        def noting(module: Module, name: str, value: Any) -> None:
            frames = user_frames()
            lines[id(module), name] = shown_frames(frames[-1:])
            if sys._getframe(1).f_globals.get("__name__", "").startswith(_HOOKS):
                self._hooked.add((id(module), name))
            original(module, name, value)

        setattr(Module, "__setattr__", noting)  # noqa: B010  (a method, which mypy holds constant)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        setattr(Module, "__setattr__", self._setattr)  # noqa: B010
        problems = []
        for (name, m), (state, buffers, parameters) in zip(self.modules, self._before, strict=True):
            problems += self._changes(name, m, state, parameters)
            _put_back(m._buffers, buffers)
            _put_back(m._parameters, parameters)
        if problems and kind is None:
            raise ExportError("\n".join(problems))

    def buffers(self, same: Callable[[Tensor, Any], bool]) -> list[tuple[str, Tensor]]:
        """The buffers that were assigned anew, with what they are now; not those that are the ``same``, in place."""
        found = []
        for (name, m), (_, buffers, _) in zip(self.modules, self._before, strict=True):
            for key, value in m._buffers.items():
                before = buffers.get(key)
                if value is not None and before is not None and value is not before and not same(before, value):
                    found.append((f"{name}.{key}" if name else key, value))
        return found

    def settle(self, read: Iterable[Tensor]) -> None:
        """Warn of what the graph does not assign. ``read``: the tensors that it computes with besides its inputs.

        Raises:
            ExportError: for an attribute whose tensor is one of those.
        """
        known = {id(tensor) for tensor in read}
        state = [change for change in self.changes if any(id(tensor) in known for tensor in change.before)]
        if state:
            told = (
                f"export: the attribute {change.name} is read and assigned anew, which an exported program does not "
                f"do: register it as a buffer (register_buffer)\n{change.line}".rstrip()
                for change in state
            )
            raise ExportError("\n".join(told))
        for change in self.changes:
            if not change.by_hook:
                warnings.warn(
                    f"export: the attribute {change.name} is assigned or changed while the program runs, which the "
                    "exported program does not do: for state register a buffer (register_buffer), else leave it out "
                    f"while tesserack.compiler.is_exporting()\n{change.line}".rstrip(),
                    stacklevel=2,
                )

    def _changes(self, path: str, m: Module, state: dict[str, Any], parameters: dict[str, Any]) -> list[str]:
        problems = []
        now = _state(m)
        for key in {**state, **now}:
            if key in state and key in now and _unchanged(state[key], now[key]):
                continue
            shown = f"{path}.{key}" if path else key
            line = self.lines.get((id(m), key), "")
            self.changes.append(_Change(shown, line, _tensors(state.get(key)), (id(m), key) in self._hooked))
            _restore(m, key, state)
        for key, value in m._parameters.items():
            if value is not parameters.get(key):
                problems.append(f"export: the parameter {key} of {path or 'the program'} was assigned anew")
        return problems


def _state(m: Module) -> dict[str, Any]:
    """A module's own attributes, containers with what they hold."""
    held = {*_SKIPPED, *m._parameters, *m._buffers, *m._modules}
    return {key: (value, _contents(value)) for key, value in m.__dict__.items() if key not in held}


def _put_back(registry: Any, before: dict[str, Any]) -> None:
    for key in [*registry]:
        if key not in before:
            del registry[key]
    for key, value in before.items():
        if registry.get(key) is not value:
            registry[key] = value


def _contents(value: Any) -> Any:
    if isinstance(value, dict):
        return {**value}
    return [*value] if isinstance(value, (list, set)) else None


def _tensors(before: tuple[Any, Any] | None) -> list[Tensor]:
    value, contents = before or (None, None)
    held = [*contents.values()] if isinstance(contents, dict) else contents or []
    return [x for x in (value, *held) if isinstance(x, Tensor)]


def _unchanged(before: tuple[Any, Any], now: tuple[Any, Any]) -> bool:
    if before[0] is not now[0] and not _equal(before[0], now[0]):
        return False
    one, other = before[1], now[1]
    if one is None or other is None:
        return one is other
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and one[key] is other[key] for key in one)
    return all(a is b for a, b in zip(one, other, strict=True))


def _equal(a: Any, b: Any) -> bool:
    plain = (int, float, str, bool, type(None))
    return isinstance(a, plain) and isinstance(b, plain) and type(a) is type(b) and a == b


def _restore(m: Module, key: str, state: dict[str, Any]) -> None:
    if key not in state:
        m.__dict__.pop(key, None)
        return
    value, contents = state[key]
    m.__dict__[key] = value
    if isinstance(value, (dict, set)) and contents is not None:
        value.clear()
        value.update(contents)
    elif isinstance(value, list):
        value[:] = contents
