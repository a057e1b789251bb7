"""Writing in place, through views, and into ``out=``: values, versions, refusals and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.gradients import (
    DIFFERENTIABLE,
    RECORDS,
    compare,
    differentiable,
    function,
)

FORMS = {
    kind: {n: cases.functional_name(r) for n, r in RECORDS.items() if r["variant"] == kind}
    for kind in ("inplace", "out")
}
INPLACE = [(n, f, d) for n, f in FORMS["inplace"].items() for d in ("float32", "int64") if samples.samples(f)]
OUT = [(n, f) for n, f in FORMS["out"].items() if samples.samples(f)]
WITH_GRADIENT = [(n, f) for n, f in FORMS["inplace"].items() if f in DIFFERENTIABLE and not RECORDS[f]["view"]]


FEW = {"float32": 1e-4, "float16": 5e-2, "bfloat16": 2e-1}  # of second derivatives
# By operators that take an out of the result's dtype alone.
REFUSED = ("expected out of dtype", "Expected out tensor to have dtype")


def same(actual: Any, expected: Any, what: str) -> None:
    """Equal dtypes, and values but for rounding."""
    assert actual.dtype == expected.dtype, what
    tolerance = 1e-12 if actual.dtype == ts.float64 else 1e-5
    np.testing.assert_allclose(cases.values(actual), cases.values(expected), tolerance, tolerance, err_msg=what)


@pytest.mark.parametrize(("name", "functional", "dtype"), INPLACE)
def test_inplace(name: str, functional: str, dtype: str, card: Card, record: Record) -> None:
    """x.op_() is x.op() written into x, whatever its layout; impossible writes are refused and leave x alone."""
    record.case(op=functional, dtype=dtype, direction="in place")
    card.needs(dtype)
    for sample in samples.samples(functional):
        if not cases.claims(functional, sample, dtype) or not isinstance(sample.args[0], samples.Input):
            continue
        for layout in cases.LAYOUTS[:1] if RECORDS[functional]["view"] else cases.LAYOUTS:
            check_inplace(name, functional, *cases.build(sample, getattr(ts, dtype), card.device, layout), layout)


def check_inplace(name: str, functional: str, args: Any, kwargs: Any, layout: str) -> None:
    """One call."""
    this, before, version = args[0], args[0].clone(), args[0]._version
    write = getattr(this, name.split(".")[0])
    expected = cases.leaves(cases.call(functional, [before.clone(), *args[1:]], kwargs))[0]
    reshapes = expected.shape != this.shape and not RECORDS[functional]["view"]
    if reshapes or not ts.can_cast(expected.dtype, this.dtype):
        with pytest.raises(RuntimeError):
            write(*args[1:], **kwargs)
        same(this, before, f"{name} was refused")
        return
    assert write(*args[1:], **kwargs) is this
    assert this._version > version
    same(this, expected.to(this.dtype), f"{name} of {tuple(before.shape)} {before.dtype}, {layout}")


@pytest.mark.parametrize(("name", "functional"), OUT)
def test_out(name: str, functional: str, card: Card) -> None:
    """out= receives the result: resized when empty, as it lies when it fits, converted when that loses nothing."""
    for sample in samples.samples(functional):
        dtype = "float32" if cases.claims(functional, sample, "float32") else "int64"
        card.needs(dtype)
        args, kwargs = cases.build(sample, getattr(ts, dtype), card.device)
        expected = cases.call(functional, args, kwargs)
        wanted = cases.leaves(expected)
        makers = (empty_like, stepped_like, *([wider_like] if card.supports("float64") else []))
        for make in makers:
            outs = [make(w) for w in wanted]
            memory = [o.data_ptr() for o in outs]
            try:
                result = cases.call(functional, args, {**kwargs, "out": as_out(outs, expected)})
            except RuntimeError as error:
                assert make is wider_like and any(text in str(error) for text in REFUSED), error
                continue
            for r, o, w, m in zip(cases.leaves(result), outs, wanted, memory, strict=True):
                assert r is o
                assert m == o.data_ptr() or make is empty_like
                assert r.shape == w.shape
                same(r.to(w.dtype), w, f"{name}({sample}), {make.__name__}")
        # Factories make whatever dtype out= has.
        if dtype == "float32" and [*sample.inputs()] and all(w.is_floating_point() for w in wanted):
            outs = [ts.zeros(w.shape, dtype=ts.int64, device=card.device) for w in wanted]
            check_integers(functional, args, kwargs, outs, as_out(outs, expected))


def check_integers(functional: str, args: Any, kwargs: Any, outs: list[ts.Tensor], given: Any) -> None:
    """Integers do not hold a result of real numbers, but for operators that compute in the dtype of out=."""
    wanted = in_integers(functional, args, kwargs) if RECORDS[functional]["computes_in_out"] else None
    if wanted is None:
        with pytest.raises((RuntimeError, TypeError)):
            cases.call(functional, args, {**kwargs, "out": given})
        return
    cases.call(functional, args, {**kwargs, "out": given})
    for found, expected in zip(outs, wanted, strict=True):
        same(found, expected, f"{functional} into integers")


def in_integers(functional: str, args: Any, kwargs: Any) -> list[ts.Tensor] | None:
    """What an operator gives that is asked for int64; None for one that then refuses, or gives real numbers."""
    try:
        made = cases.leaves(cases.call(functional, args, {**kwargs, "dtype": ts.int64}))
    except (RuntimeError, TypeError):
        return None
    return made if all(x.dtype is ts.int64 for x in made) else None


def as_out(outs: list[ts.Tensor], expected: Any) -> Any:
    """What to give as out=: a tuple for operators with several results."""
    return tuple(outs) if isinstance(expected, tuple) else outs[0]


def empty_like(tensor: ts.Tensor) -> ts.Tensor:
    """Resized by the operator."""
    return ts.empty(0, dtype=tensor.dtype, device=tensor.device)


def stepped_like(tensor: ts.Tensor) -> ts.Tensor:
    """Written through, every other element of a larger tensor."""
    if not tensor.ndim:
        return ts.empty_like(tensor)
    return ts.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype, device=tensor.device)[..., ::2]


def wider_like(tensor: ts.Tensor) -> ts.Tensor:
    """The result is converted into it."""
    return ts.empty_like(tensor, dtype=ts.float64 if tensor.is_floating_point() else tensor.dtype)


@pytest.mark.parametrize(("name", "functional"), WITH_GRADIENT)
def test_inplace_gradient(name: str, functional: str, card: Card) -> None:
    """Writing in place, to a whole tensor or a view of one, has both derivatives of the functional operator."""
    dtype, tolerance = (ts.float64, 1e-10) if card.supports("float64") else (getattr(ts, card.real), FEW[card.real])
    for sample in samples.samples(functional):
        if not differentiable(sample) or not isinstance(sample.args[0], samples.Input):
            continue
        call, leaves = function(functional, sample, dtype, card.device)
        wide = call(*leaves)[0]
        if wide.shape != leaves[0].shape or not sample.args[0].grad:
            continue
        expected = twice(wide, leaves)
        for through_view in (False, True):
            _, leaves = function(functional, sample, dtype, card.device)
            result = written(name, sample, leaves, through_view)
            problem, _ = compare(twice(result, leaves), expected, tolerance)
            assert problem is None, f"{name}({sample}), through a view: {through_view}: {problem}"


def written(name: str, sample: samples.Sample, leaves: list[Any], through_view: bool) -> ts.Tensor:
    """A copy of the first leaf, or a view of one, after the in-place operator."""
    base = ts.stack((leaves[0], leaves[0].detach())) if through_view else leaves[0] * 1
    target = base[0] if through_view else base
    rest = iter(leaves[1:])
    args, kwargs = samples.Sample(sample.args[1:], sample.kwargs).map(
        lambda i: next(rest) if i.varies and i.grad else cases.tensor(i, leaves[0].dtype, leaves[0].device)
    )
    getattr(target, name.split(".")[0])(*args, **kwargs)
    return base[0] if through_view else base


def twice(result: Any, leaves: list[Any]) -> list[Any]:
    """First derivatives of a function of the result, and second ones of a sum of those."""
    first = ts.autograd.grad(result.sin().sum(), leaves, create_graph=True, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
    if not isinstance(total, ts.Tensor):
        return [*first, *(None for _ in leaves)]
    return [*first, *ts.autograd.grad(total, leaves, allow_unused=True)]
