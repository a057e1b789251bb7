"""A checked function: its own signature, the common case compiled to comparisons, the rest left to the plan."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

from tesserack import _native
from tesserack._native import Tensor, dtype
from tesserack.utils.shapes._dims import Axis
from tesserack.utils.shapes._hints import Check, Either, Plain, Shape
from tesserack.utils.shapes._kinds import Run, kind_of, like
from tesserack.utils.shapes._plan import KEPT, Plan
from tesserack.utils.shapes._switch import state

__all__ = ["checked"]


class _HardError(Exception):
    """Comparisons in a fixed order cannot say it: the plan is asked each time."""


class _Writer:
    """Lines that hold values against shapes; ``ok`` is false at the end where the plan has to look again."""

    def __init__(self, plan: Plan, space: dict[str, Any]) -> None:
        self.plan, self.space = plan, space
        self.bound: set[str] = set()
        self.optional: set[str] = set()  # names that only an argument that may be None has
        self.count = 0

    def _new(self) -> str:
        self.count += 1
        return f"_ts_{self.count}"

    def value(self, check: Check, source: str) -> list[str]:
        """Lines for one value."""
        if isinstance(check, Either):
            shapes = [m for m in check.members if isinstance(m, Shape)]
            rest = [m for m in check.members if not (isinstance(m, Plain) and m.kind is type(None))]
            if len(shapes) != 1 or len(rest) != 1:
                raise _HardError
            return self.optional_value(shapes[0], source)
        if not isinstance(check, Shape) or check.kind is not Tensor:
            raise _HardError
        return self.shape(check, source)

    def optional_value(self, check: Check, source: str) -> list[str]:
        """The same where it may be None: what it binds is not known after it."""
        before = set(self.bound)
        lines = self.value(check, source)
        self.optional |= self.bound - before
        self.bound = before
        return [f"if {source} is not None:", *(f"    {line}" for line in lines)]

    def shape(self, check: Shape, source: str) -> list[str]:
        terms = [f"isinstance({source}, _ts_Tensor)"]
        if check.dtypes is not None:
            key = self._new()
            self.space[key] = _dtypes(check.dtypes)
            terms.append(f"{source}.dtype in {key}")
        targets, conditions = [], []
        for axis in check.axes:
            target, condition = self.axis(axis)
            targets.append(target)
            conditions += condition
        lines = [f"{', '.join(targets)}{',' if targets else '()'} = {source}.shape"]
        if not targets:
            lines = []
            terms.append(f"not {source}.shape")
        lines.append(f"if not ({' and '.join(terms + conditions)}): raise _ts_Miss")
        return lines

    def axis(self, axis: Axis) -> tuple[str, list[str]]:
        """Where its size goes, and what is asked of it."""
        star = "*" if axis.many else ""
        place = self._new()
        if axis.kind == "any":
            return star + place, []
        if axis.many and axis.broadcast:
            raise _HardError
        one = f"{place} == 1 or " if axis.broadcast else ""
        if axis.kind == "fixed":
            return place, [f"({one}{place} == {axis.size})"]
        if axis.kind == "expression":
            return place, [f"({one}{place} == ({self.expression(axis)}))"]
        name = f"_ts_n_{axis.name}"
        if axis.name in self.optional or (axis.broadcast and axis.name not in self.bound):
            raise _HardError
        if axis.name in self.bound:
            return star + place, [f"({one}{place} == {name})"]
        self.bound.add(axis.name)
        if axis.name in self.plan.keep:
            return name, [f"_ts_kept[{axis.name!r}][0] == {name}"]
        return star + name, []

    def expression(self, axis: Axis) -> str:
        expression = axis.expression
        assert expression is not None
        if not set(expression.names) <= self.bound:
            raise _HardError
        text = expression.source
        for name in expression.names:
            text = re.sub(rf"(?<![\w.]){name}\b", f"_ts_n_{name}", text)
        # Last, as what stands in them are not names of axes.
        return re.sub(r"\b_(\d+)\b", lambda hole: f"({expression.holes[int(hole[1])]})", text)


def _dtypes(names: frozenset[str]) -> frozenset[Any]:
    kinds = (getattr(_native, name, None) for name in names)
    return frozenset(kind for kind in kinds if isinstance(kind, dtype))


def _fast(plan: Plan, space: dict[str, Any]) -> tuple[list[str], list[str]] | None:
    """Lines for arguments and result, or None where the plan is to be asked each time."""
    writer = _Writer(plan, space)
    head = [f"_ts_kept = {plan.instance}.__dict__[{KEPT!r}]"] if plan.keep else []
    if plan.keep and not plan.instance:
        return None
    try:
        for name, check in plan.attributes.items():
            head += writer.value(check, f"{plan.instance}.{name}")
        absent = [n for n in plan.checks if plan.signature.parameters[n].default is None]
        # What always binds its names comes first: `#name` may be 1 and binds nothing then.
        for name, check in sorted(plan.checks.items(), key=lambda item: (item[0] in absent, _may_be_one(item[1]))):
            head += writer.optional_value(check, name) if name in absent else writer.value(check, name)
        tail = writer.value(plan.result, "_ts_result") if plan.result is not None else []
    except _HardError:
        return None
    return head, tail


def _may_be_one(check: Check) -> bool:
    return any(axis.broadcast for shape in check.shapes() for axis in shape.axes)


def _signature(plan: Plan, space: dict[str, Any]) -> tuple[str, str]:
    """The parameters as text, and the call that passes them on."""
    written, passed = [], []
    kinds = [p.kind for p in plan.signature.parameters.values()]
    for number, parameter in enumerate(plan.signature.parameters.values()):
        name = parameter.name
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in written and parameter.VAR_POSITIONAL not in kinds:
            written.append("*")
        star = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
        default = ""
        if parameter.default is not parameter.empty:
            space[f"_ts_default_{number}"] = parameter.default
            default = f"=_ts_default_{number}"
        written.append(f"{star}{name}{default}")
        passed.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else f"{star}{name}")
        following = kinds[number + 1] if number + 1 < len(kinds) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
            written.append("/")
    return ", ".join(written), ", ".join(passed)


def _source(plan: Plan, space: dict[str, Any]) -> str:
    parameters, passed = _signature(plan, space)
    values = "(" + "".join(f"{name}, " for name in plan.parameters) + ")"
    fast = _fast(plan, space)
    lines = [f"def _ts_checked({parameters}):", f"    if not _ts_state.on: return _ts_function({passed})"]
    if fast is None:
        lines.append(f"    _ts_binding = _ts_plan.bind({values})")
    else:
        lines += ["    try:", *(f"        {line}" for line in fast[0] or ["pass"])]
        lines += ["    except Exception:", f"        _ts_plan.bind({values})", "        _ts_missed = True"]
        lines += ["    else:", "        _ts_missed = False"]
    lines += ["    try:", f"        _ts_result = _ts_function({passed})"]
    lines += ["    except Exception as _ts_error:", f"        _ts_plan.explain(_ts_error, {values})", "        raise"]
    if fast is None and plan.result is not None:
        lines.append("    _ts_plan.check_result(_ts_binding, _ts_result)")
    elif fast is not None and fast[1]:
        lines += ["    try:", "        if _ts_missed: raise _ts_Miss", *(f"        {line}" for line in fast[1])]
        lines += ["    except Exception:", f"        _ts_plan.check_call({values}, _ts_result)"]
    if plan.makes:  # what it made is an attribute now
        lines.append(f"    _ts_plan.bind({values})")
    return "\n".join([*lines, "    return _ts_result"])


@functools.lru_cache(maxsize=1024)
def _code(source: str, name: str) -> CodeType:
    """Compiled once for functions that are defined again in each call of another."""
    return compile(source, f"<checked {name}>", "exec")


class _Checked(Run):
    """A call of a coroutine or a generator."""

    def __init__(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.plan = plan
        try:
            self.values = plan.values(args, kwargs)
        except TypeError:
            plan.function(*args, **kwargs)  # it tells of arguments that it does not take
            raise
        self.binding = plan.bind(self.values)
        super().__init__(plan.function(*args, **kwargs))

    def yielded(self, value: Any) -> None:
        self.plan.check_yield(self.binding, value)

    def done(self, value: Any) -> None:
        if self.plan.result is not None:
            self.plan.check_result(self.binding, value)

    def failed(self, error: Exception) -> None:
        self.plan.explain(error, self.values)


def checked(plan: Plan) -> Callable[..., Any]:
    """The function of a plan, with its checks around it."""
    if kind_of(plan.function):
        return like(
            plan.function,
            lambda args, kwargs: _Checked(plan, args, kwargs) if state.on else Run(plan.function(*args, **kwargs)),
        )
    space: dict[str, Any] = {
        "_ts_state": state,
        "_ts_function": plan.function,
        "_ts_plan": plan,
        "_ts_Tensor": Tensor,
        "_ts_Miss": _HardError,
    }
    exec(_code(_source(plan, space), plan.name), space)
    return functools.update_wrapper(space["_ts_checked"], plan.function)
