"""Passes one after another, in an order that their constraints allow."""

from __future__ import annotations

import collections
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.passes.infra.pass_base import PassResult
from tesserack.nn.modules.module import Module

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

logger = logging.getLogger(__name__)
Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def _name(fn: Any) -> str:
    return str(fn.__name__) if inspect.isfunction(fn) else type(fn).__name__


@compatibility(is_backward_compatible=False)
def pass_result_wrapper(fn: Pass) -> Pass:
    """A pass of a function that returns a module, or nothing where it changes the one given."""

    @functools.wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        return result if isinstance(result, PassResult) else PassResult(result, True)

    wrapped.__name__ = _name(fn)
    return wrapped


def _validate_pass_schedule_constraint(constraint: Constraint, passes: list[Pass]) -> None:
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1 :]):
            if not constraint(a, b):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {a} before {b} but found {a} at index {i} and {b} at "
                    f"index {j} in pass list."
                )


def _topological_sort_passes(passes: list[Pass], constraints: list[Constraint]) -> list[Pass]:
    """The passes in an order that all constraints allow; otherwise as given. ``RuntimeError`` if there is none."""
    if not constraints:
        return passes
    after: dict[Pass, list[Pass]] = {p: [] for p in passes}
    waiting = dict.fromkeys(passes, 0)
    for a in passes:
        for b in passes:
            for constraint in constraints if a is not b else ():
                if not constraint(a, b):
                    after[b].append(a)
                    waiting[a] += 1
    ready = collections.deque(p for p in passes if not waiting[p])
    found: list[Pass] = []
    while ready:
        first = ready.popleft()
        found.append(first)
        for other in after[first]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    left = [p for p in waiting if waiting[p]]
    if left:
        raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
    return found


@compatibility(is_backward_compatible=False)
def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """A constraint: where both are, ``this`` comes first."""
    return lambda a, b: a != that or b != this


@compatibility(is_backward_compatible=False)
class PassManager:
    """Runs passes, all of them up to ``steps`` times as long as one changes something.

    Checks, added by :meth:`add_checks`, run before, and with ``run_checks_after_each_pass`` in between.

    >>> from tesserack import fx
    >>> def double(gm):
    ...     for node in gm.graph.nodes:
    ...         if node.op == "output":
    ...             with gm.graph.inserting_before(node):
    ...                 node.args = (gm.graph.call_method("mul", (node.args[0], 2)),)
    >>> import tesserack as ts
    >>> manager = PassManager([pass_result_wrapper(double)])
    >>> manager(fx.symbolic_trace(lambda x: x + 1)).graph_module(ts.ones(1)).item()
    4.0
    """

    steps: int = 1

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes, self.constraints = passes or [], constraints or []
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass, self.suppress_check_failures = (
            run_checks_after_each_pass,
            suppress_check_failures,
        )
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        """Add a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint: of two passes, whether the first may run before the second."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """``RuntimeError`` where the order of the passes breaks a constraint."""
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True

    def solve_constraints(self) -> None:
        """Bring the passes into an order that the constraints allow."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """Set the check, a function of the module alone."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[assignment, method-assign]

    def check(self, module: Module) -> None:
        """Raises where a module is as it must not be."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            modified = False
            for k, fn in enumerate(self.passes):
                try:
                    result = self._run(fn, module)
                except Exception as error:
                    before = [_name(p) for p in self.passes[:k]]
                    told = f"An error occurred when running the '{_name(fn)}' pass after the following passes: {before}"
                    raise Exception(told) from error
                module, modified = result.graph_module, modified or result.modified
            changed = changed or modified
            if not modified:
                break
        return PassResult(module, changed)

    def _run(self, fn: Pass, module: Module) -> Any:
        logger.debug("Running pass '%s'", _name(fn))
        result = fn(module)
        if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
            raise TypeError(
                f"The result of the pass {_name(fn)} should be type PassResult."
                "Please wrap it with pass_result_wrapper()"
            )
        if isinstance(result.graph_module, GraphModule):
            result.graph_module.recompile()
        if self.run_checks_after_each_pass:
            self.check(result.graph_module)
        return result
