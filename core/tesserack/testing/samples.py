"""Sample calls of every public operator, few and sharp: each covers something that the others do not.

Tests generated from the registry, comparisons with other libraries and conformance runs all start from these.

>>> from tesserack.testing import samples
>>> [len(s.args) for s in samples.samples("addmm")]
[3, 3, 3]
>>> samples.dtypes("sqrt")
'all'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tesserack.testing._inputs import Input, Maker, Sample
from tesserack.testing._sample_table import ALIASES, DOMAINS, DTYPES, NONE_NEEDED, TABLE

__all__ = ["ALIASES", "Input", "Maker", "Sample", "dtypes", "records", "samples", "special_values"]

_SPECIALS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-30,
    -1e-30,
    3e37,
    -3e37,
    20.5,
    -88.0,
    1e4,
)


@cache
def records() -> dict[str, dict[str, Any]]:
    """What the registry says of each operator with a public name, by full name: ``"max.dim"``. Those of libraries are
    not among them, whose names have a namespace: they come while a program runs."""
    from tesserack import _native

    listed = (r for r in _native._operators() if not r["hidden"] or r["namespaces"])
    return {r["name"]: r for r in listed if "::" not in r["name"]}


@cache
def samples(name: str) -> tuple[Sample, ...]:
    """The sample calls of an operator by full name; empty if it has none. In-place and ``out=`` forms share those of
    the functional one."""
    name = ALIASES.get(name, name)
    maker = Maker()
    if name in TABLE:
        return tuple(TABLE[name](maker))
    record = records().get(name)
    if record is None or name in NONE_NEEDED:
        return ()
    make = _by_signature(record)
    return tuple(make(name, maker)) if make else ()


def dtypes(name: str) -> str:
    """The dtypes an operator takes: ``"all"``, ``"numeric"`` (not bool), ``"floating"``, ``"exact"`` (float32 and
    float64), ``"integral"`` (integers and bool), ``"integer"``; samples may say ``"signed"`` too (neither bool nor
    unsigned)."""
    return DTYPES.get(ALIASES.get(name, name), "all")


def special_values(name: str) -> Sample | None:
    """Zeros of both signs, infinities, NaN, tiny and huge numbers for a pointwise operator of one or two operands:
    all pairs of them. None for other operators."""
    record = records().get(name)
    make = _by_signature(record) if record and record["pointwise"] else None
    if make is None:
        return None
    maker = Maker()
    values = maker.np.array(_SPECIALS)
    if make is _unary:
        return Sample((maker.given(values),), grad=False)
    return Sample((maker.given(values[:, None]), maker.given(values)), grad=False)


def _by_signature(record: dict[str, Any]) -> Callable[[str, Maker], list[Sample]] | None:
    """Pointwise operators need no samples of their own: theirs follow from the signature."""
    arguments = record["schema"].split("(", 1)[1].split(") ->")[0]
    positional = [a for a in arguments.split(", *")[0].split(", ") if "=" not in a]
    kinds = [a.split()[0] for a in positional]
    if kinds == ["Tensor"]:
        return _unary
    return _binary if kinds == ["Operand", "Operand"] else None


def _unary(name: str, x: Maker) -> list[Sample]:
    (lo, hi), *_ = DOMAINS.get(name, ((-2.3, 2.4),))
    return [
        Sample((x(2, 3, lo=lo, hi=hi),)),
        Sample((x(lo=lo, hi=hi),)),
        Sample((x(0, 3),)),
        Sample((x(3, 23, lo=lo, hi=hi),), grad=False),
    ]


def _binary(name: str, x: Maker) -> list[Sample]:
    a, *rest = DOMAINS.get(name, ((-2.3, 2.4), (-3.2, 3.5)))
    b = rest[0] if rest else a

    def left(*shape: int) -> Input:
        return x(*shape, lo=a[0], hi=a[1])

    def right(*shape: int) -> Input:
        return x(*shape, lo=b[0], hi=b[1])

    return [
        Sample((left(2, 3), right(2, 3))),
        Sample((left(3, 1), right(2))),
        Sample((left(), right(2, 3))),
        Sample((left(3), right())),
        Sample((left(0, 3), right(1, 3))),
        Sample((left(3, 23), right(3, 23)), grad=False),
        Sample((left(2, 2), _number(b))),
        Sample((_number(a), right(3))),
    ]


def _number(domain: tuple[float, float]) -> int:
    return 2 if domain[1] >= 2 else 1
