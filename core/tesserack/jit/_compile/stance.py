"""How compiled functions run, for a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack import _native

__all__ = ["SetStance", "current"]

_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
            "aot_eager_then_compile")  # fmt: skip


class _Stance:
    def __init__(self, stance: str = "default", force_backend: Any = None) -> None:
        self.stance, self.force_backend = stance, force_backend


_stack = [_Stance()]


def _set(stance: _Stance) -> None:
    _stack[-1] = stance
    _native._allow_quick(stance.stance != "force_eager")


def current() -> _Stance:
    """The stance of now."""
    return _stack[-1]


class SetStance:
    """Sets the stance at once; as a context or decorator, until its end."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; expected one of {', '.join(_STANCES)}")
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        self._before = _stack[-1]
        self._own = _Stance(stance, force_backend)
        _set(self._own)

    def __enter__(self) -> SetStance:
        _set(self._own)
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self._before)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _set(self._before)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before = _stack[-1]
            _set(self._own)
            try:
                return function(*args, **kwargs)
            finally:
                _set(before)

        return call
