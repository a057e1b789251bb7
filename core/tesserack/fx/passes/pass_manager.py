"""Functions of modules one after another; the older manager of PyTorch's."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from tesserack.fx.passes.infra.pass_manager import (
    Constraint,
    Pass,
    _validate_pass_schedule_constraint,
    this_before_that_pass_constraint,
)

__all__ = ["PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
           "this_before_that_pass_constraint"]  # fmt: skip

logger = logging.getLogger(__name__)


def inplace_wrapper(fn: Pass) -> Pass:
    """A pass of a function that changes the module given."""

    @functools.wraps(fn)
    def wrapped(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """The pass, which logs that it ran and what it returned."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, value)
        return value

    return wrapped


def loop_pass(base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None) -> Pass:
    """The pass several times: ``n_iter``, or while a predicate of the module holds."""
    assert (n_iter is not None) ^ (predicate is not None), "Exactly one of `n_iter`or `predicate` must be specified."
    if n_iter is not None and n_iter <= 0:
        raise RuntimeError(f"loop_pass must be given positive int n_iter (given {n_iter})")

    @functools.wraps(base_pass)
    def wrapped(source: Any) -> Any:
        if n_iter is not None:
            return functools.reduce(lambda value, _: base_pass(value), range(n_iter), source)
        while predicate is not None and predicate(source):
            source = base_pass(source)
        return source

    return wrapped


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """A constraint on passes however wrapped: where both are, ``these`` come first."""
    return lambda a, b: inspect.unwrap(a) != those or inspect.unwrap(b) != these


class PassManager:
    """Runs functions of a module one after another; their order must be what the constraints allow."""

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None) -> None:
        self.passes, self.constraints = passes or [], constraints or []
        self._validated = False

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """One with these passes."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """Add a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str] | None) -> None:
        """Remove passes by name."""
        self.passes = [each for each in self.passes if each.__name__ not in (_passes or ())]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Put a pass in the place of one with the name of another."""
        self.passes = [_replacement if each.__name__ == _target.__name__ else each for each in self.passes]
        self._validated = False

    def validate(self) -> None:
        """``RuntimeError`` where the order of the passes breaks a constraint."""
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True

    def __call__(self, source: Any) -> Any:
        self.validate()
        return functools.reduce(lambda value, each: each(value), self.passes, source)
