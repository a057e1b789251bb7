"""An optimizer's step, stated once: lines of arithmetic of which the fused step of all parameters, the kernel for cards
that generate theirs, the recorded step and the step by single operators follow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["Rule"]

_NAME = re.compile(r"[a-z_]\w*(?!\w*\()")


class Rule:
    """Lines ``name = expression`` over ``param``, ``grad``, the state and the numbers that are named.

    A line that assigns to ``param`` or to a state is what it becomes; any other names a part. A name stands for its
    newest value. Expressions are those of pointwise operators: ``+ - * /``, comparisons, ``sqrt``, ``abs``, ``sign``,
    ``max(a, b)``, ``min(a, b)`` and ``select(condition, a, b)``. Lines of numbers alone, which may have ``exp``,
    ``expm1``, ``log`` and ``pow`` besides, are computed once a step, in double.

    >>> from tesserack.optim._rules import Rule
    >>> Rule("speed", "rate keep", "speed = keep * speed + grad; param = param - rate * speed").text
    'param grad,speed,rate keep:speed_=keep * speed + grad;param_=param - rate * speed_;param_;speed_'
    """

    def __init__(self, states: str, numbers: str, lines: str) -> None:
        self.states, self.numbers = tuple(states.split()), tuple(numbers.split())
        kept = ("param", *self.states)
        newest: dict[str, str] = {}
        written = []
        for line in filter(None, (part.strip() for part in re.split(r"[;\n]", lines))):
            name, expression = (part.strip() for part in line.split("=", 1))
            expression = _NAME.sub(lambda found: newest.get(found[0], found[0]), expression)
            if name in kept:
                newest[name] = f"{name}_"
            written.append(f"{newest.get(name, name)}={expression}")
        variables = ",".join((f"param grad,{' '.join(self.states)}", " ".join(self.numbers)))
        self._read(f"{variables}:{';'.join((*written, *(newest.get(name, name) for name in kept)))}")

    @classmethod
    def of(cls, text: str) -> Rule:
        """The rule of a text that the native core states: SGD's and Adam's."""
        made = cls.__new__(cls)
        names, _, _ = text.partition(":")
        _, states, numbers = names.split(",")
        made.states, made.numbers = tuple(states.split()), tuple(numbers.split())
        made._read(text)
        return made

    def _read(self, text: str) -> None:
        #: What the operator ``_optimizer_step_`` takes.
        self.text = text
        self._lines: list[tuple[str, CodeType]] = []
        self._results: list[CodeType] = []
        for line in text.partition(":")[2].split(";"):
            name, sign, expression = line.partition("=") if re.match(r"\w+=[^=]", line) else ("", "", line)
            code = compile(expression, f"<step of {name}>", "eval")
            if sign:
                self._lines.append((name, code))
            else:
                self._results.append(code)

    def step(self, param: Tensor, grad: Tensor, state: Mapping[str, Any], numbers: tuple[float, ...]) -> None:
        """The step of one parameter by single operators, which may be recorded: ``param`` and ``state`` change."""
        # What is recorded may be kept for the backward pass, which what changes is not fit for.
        seen = ts.clone if ts.is_grad_enabled() else lambda tensor: tensor
        values: dict[str, Any] = {"grad": grad, **dict(zip(self.numbers, numbers, strict=True))}
        values["param"] = seen(param)
        values.update((name, seen(state[name])) for name in self.states)
        functions = {**_FUNCTIONS, "select": partial(_select, param)}
        for name, expression in self._lines:
            values[name] = eval(expression, functions, values)
        results = [eval(expression, functions, values) for expression in self._results]
        for target, result in zip((param, *(state[s] for s in self.states)), results, strict=True):
            target.copy_(result)


def _extreme(name: str, bound: str) -> Callable[[Any, Any], Any]:
    def of(a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return getattr(ts, name)(a, b)
        return a.clamp(**{bound: b}) if isinstance(a, Tensor) else b.clamp(**{bound: a})

    return of


def _select(like: Tensor, condition: Any, a: Any, b: Any) -> Any:
    """Numbers are of the parameter's dtype: two of them would be of the default one."""
    if not isinstance(condition, Tensor):
        return a if condition else b
    values = (x if isinstance(x, Tensor) else like.detach().new_full((), x) for x in (a, b))
    return ts.where(condition, *values)


def _function(name: str) -> Callable[[Any], Any]:
    return lambda a: getattr(a, name)() if isinstance(a, Tensor) else getattr(math, name)(a)


_FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    **{name: _function(name) for name in ("sqrt", "exp", "expm1")},
    "log": lambda a: a.log() if isinstance(a, Tensor) else math.log(a) if a else -math.inf,
    "pow": lambda a, b: a**b,
    "abs": lambda a: a.abs(),
    "sign": lambda a: a.sign(),
    "copy": lambda a: a.detach().clone(),
    "max": _extreme("maximum", "min"),
    "min": _extreme("minimum", "max"),
}
