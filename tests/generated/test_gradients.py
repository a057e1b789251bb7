"""Gradients of every differentiable operator: finite differences twice, layouts, dtypes, and what must have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.testing import cases, samples

RECORDS = samples.records()
MUTATING = {n for n, r in RECORDS.items() if "!" in r["schema"]}
SAMPLED = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n) and n not in MUTATING]


def functional_name(name: str) -> str:
    """The operator that an in-place one varies: "add_" is "add" in place."""
    base, dot, overload = name.partition(".")
    return base.removesuffix("_") + dot + overload


def differentiable(sample: samples.Sample) -> bool:
    return sample.grad and any(item.varies and item.grad for item in sample.inputs())


NAMES = [
    n
    for n in SAMPLED
    if RECORDS[n]["differentiable"] and samples.dtypes(n) != "integral" and any(map(differentiable, samples.samples(n)))
]
# The differences of results rounded to fewer digits say nothing.
DIFFERENCES = [n for n in NAMES if n not in ("float", "half", "bfloat16")]
CONSTANT = [n for n in SAMPLED if not RECORDS[n]["differentiable"] and samples.dtypes(n) != "integral"]
HALF_TOLERANCE = {"float32": 2e-4, "bfloat16": 8e-2, "float16": 2e-2}


def function(
    name: str, sample: samples.Sample, dtype: Any, device: Any, layout: str
) -> tuple[Callable[..., Any], list[Any]]:
    """The operator as a function of its differentiable tensors alone, and those tensors."""
    leaves = [
        cases.tensor(item, dtype, device, layout).detach().requires_grad_()
        for item in sample.inputs()
        if item.varies and item.grad
    ]

    def call(*tensors: Any) -> Any:
        rest = iter(tensors)
        args, kwargs = sample.map(
            lambda i: next(rest) if i.varies and i.grad else cases.tensor(i, dtype, device, layout)
        )
        results = cases.leaves(cases.call(name, args, kwargs))
        return tuple(r for r in results if isinstance(r, ts.Tensor) and r.is_floating_point())

    return call, leaves


@pytest.mark.parametrize("name", DIFFERENCES)
def test_gradient(name: str, device: ts.device) -> None:
    """First derivatives agree with differences, from contiguous and from other inputs."""
    for index, sample in enumerate(s for s in samples.samples(name) if differentiable(s)):
        layout = (
            "contiguous" if name in ("view", "view_as", "as_strided") else cases.LAYOUTS[index % len(cases.LAYOUTS)]
        )
        call, leaves = function(name, sample, ts.float64, device, layout)
        assert gradcheck(call, leaves), f"{name}({sample})"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_second_gradient(name: str, device: ts.device) -> None:
    """Second derivatives agree with differences of the first."""
    for sample in [s for s in samples.samples(name) if differentiable(s)][:3]:
        call, leaves = function(name, sample, ts.float64, device, "contiguous")
        if sum(leaf.numel() for leaf in leaves) <= 40 and call(*leaves) and call(*leaves)[0].requires_grad:
            assert gradgradcheck(call, leaves), f"{name}({sample})"


@pytest.mark.parametrize("name", NAMES)
def test_gradient_from_any_layout(name: str, device: ts.device) -> None:
    """Incoming gradients and inputs may be transposed, stepped, flipped or expanded."""
    for sample in samples.samples(name):
        if not differentiable(sample):
            continue
        call, leaves = function(name, sample, ts.float64, device, "contiguous")
        outputs = [o for o in call(*leaves) if o.requires_grad]
        if not outputs:
            continue
        arrays = [np.cos(np.arange(o.numel(), dtype=float)).reshape(tuple(o.shape)) for o in outputs]
        expected = None
        for layout in cases.LAYOUTS:
            grads = [cases.tensor(samples.Input(a), ts.float64, device, layout) for a in arrays]
            found = ts.autograd.grad(outputs, leaves, grads, retain_graph=True, allow_unused=True)
            expected = expected or found
            assert_same(found, expected, f"{name}({sample}), gradient {layout}")
        ones = [ts.ones((), dtype=ts.float64, device=device).expand(o.shape) for o in outputs]
        full = ts.autograd.grad(outputs, leaves, [o.contiguous() for o in ones], retain_graph=True, allow_unused=True)
        assert_same(ts.autograd.grad(outputs, leaves, ones, allow_unused=True), full, f"{name}({sample}), expanded")


def assert_same(found: Any, expected: Any, what: str, tolerance: float = 1e-10) -> None:
    """No gradient counts as zeros."""
    for f, e in zip(found, expected, strict=True):
        if f is None or e is None:
            assert not any(cases.values(g).any() for g in (f, e) if g is not None), what
            continue
        assert f.shape == e.shape
        scale = max(1.0, np.abs(cases.values(e)).max(initial=0.0)) if tolerance > 1e-6 else 1.0
        np.testing.assert_allclose(cases.values(f), cases.values(e), tolerance, tolerance * scale, err_msg=what)


@pytest.mark.parametrize("dtype", HALF_TOLERANCE)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_dtype(name: str, dtype: str, device: ts.device) -> None:
    """Gradients have their input's dtype and come near those of float64."""
    for sample in [s for s in samples.samples(name) if differentiable(s)][:2]:
        call, leaves = function(name, sample, getattr(ts, dtype), device, "contiguous")
        wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
        wide_call, _ = function(name, rounded(sample, dtype, device), ts.float64, device, "contiguous")
        found, expected = (gradients(c, x) for c, x in ((call, leaves), (wide_call, wide)))
        assert all(f is None or f.dtype == leaf.dtype for f, leaf in zip(found, leaves, strict=True))
        assert_same(found, expected, f"{name}({sample}) of {dtype}", HALF_TOLERANCE[dtype])


def rounded(sample: samples.Sample, dtype: str, device: Any) -> samples.Sample:
    """The sample with its floats as the dtype holds them."""

    def reround(item: samples.Input) -> samples.Input:
        array = cases.values(cases.tensor(item, getattr(ts, dtype), device)) if item.varies else item.array
        return samples.Input(array, item.varies, item.grad)

    args, kwargs = sample.map(reround)
    return samples.Sample(args, kwargs, sample.grad, sample.only)


def gradients(call: Callable[..., Any], leaves: list[Any]) -> Any:
    outputs = [o for o in call(*leaves) if o.requires_grad]
    if not outputs:
        return [None] * len(leaves)
    total = sum(
        (o.double() * ts.arange(1.0, o.numel() + 1, device=o.device, dtype=ts.float64).cos().reshape(o.shape)).sum()
        for o in outputs
    )
    return ts.autograd.grad(total, leaves, allow_unused=True)


@pytest.mark.parametrize("name", CONSTANT)
def test_not_differentiable(name: str, device: ts.device) -> None:
    """Comparisons, positions and the like never require gradients."""
    for sample in samples.samples(name):
        args, kwargs = sample.map(lambda item: cases.tensor(item, ts.float32, device).requires_grad_(item.varies))
        for leaf in cases.leaves(cases.call(name, args, kwargs)):
            assert not isinstance(leaf, ts.Tensor) or not leaf.requires_grad


INPLACE = [
    (name, functional)
    for name, functional in ((n, functional_name(n)) for n, r in RECORDS.items() if r["variant"] == "inplace")
    if functional in NAMES and not RECORDS[functional]["view"]
]


@pytest.mark.parametrize(("name", "functional"), INPLACE)
def test_inplace_gradient(name: str, functional: str, device: ts.device) -> None:
    """Writing in place, to a whole tensor or a view of one, has both derivatives of the functional operator."""
    for sample in samples.samples(functional):
        if not differentiable(sample) or not isinstance(sample.args[0], samples.Input):
            continue
        call, leaves = function(functional, sample, ts.float64, device, "contiguous")
        wide = call(*leaves)[0]
        if wide.shape != leaves[0].shape or not sample.args[0].grad:
            continue
        expected = twice(wide, leaves)
        for through_view in (False, True):
            _, leaves = function(functional, sample, ts.float64, device, "contiguous")
            base = ts.stack((leaves[0], leaves[0].detach())) if through_view else leaves[0] * 1
            target = base[0] if through_view else base
            rest = iter(leaves[1:])
            args, kwargs = samples.Sample(sample.args[1:], sample.kwargs).map(
                lambda i: next(rest) if i.varies and i.grad else cases.tensor(i, ts.float64, device)  # noqa: B023
            )
            getattr(target, name.split(".")[0])(*args, **kwargs)
            found = twice(base[0] if through_view else base, leaves)
            assert_same(found, expected, f"{name}({sample}), through a view: {through_view}")


def twice(result: Any, leaves: list[Any]) -> list[Any]:
    """First derivatives of a function of the result, and second ones of a sum of those."""
    first = ts.autograd.grad(result.sin().sum(), leaves, create_graph=True, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None and g.requires_grad)
    if not isinstance(total, ts.Tensor):
        return [*first, *(None for _ in leaves)]
    return [*first, *ts.autograd.grad(total, leaves, allow_unused=True)]
