"""Gradients of every differentiable operator: finite differences twice, layouts, dtypes, and what must have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.autograd.gradcheck import GradcheckError
from tesserack.testing import cases, samples
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.gradients import (
    CONSTANT,
    DIFFERENTIABLE,
    compare,
    differentiable,
    function,
    rounded,
    weighted_gradients,
)

# The differences of results rounded to fewer digits say nothing.
DIFFERENCES = [n for n in DIFFERENTIABLE if n not in ("float", "half", "bfloat16")]
TOLERANCE = {"float32": 2e-4, "bfloat16": 8e-2, "float16": 2e-2}
# Of gradients of one function in two layouts.
BETWEEN = {"float64": 1e-10, "float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}


def smooth(name: str) -> list[samples.Sample]:
    """The samples at which an operator can be differentiated."""
    return [sample for sample in samples.samples(name) if differentiable(sample)]


def fail(what: str, card: Card, name: str, sample: samples.Sample, problem: str) -> None:
    """Name the operator whose gradient is wrong."""
    pytest.fail(f"{what} of {name} on {card.name} is wrong, at ({sample}): {problem}", pytrace=False)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_gradient(name: str, card: Card, record: Record) -> None:
    """First derivatives agree with differences, from contiguous and from other inputs."""
    record.case(op=name, dtype="float64", direction="backward")
    card.needs("float64")
    for index, sample in enumerate(smooth(name)):
        layout = "contiguous" if name in ("view", "view_as", "as_strided") else cases.LAYOUTS[index % 4]
        call, leaves = function(name, sample, ts.float64, card.device, layout)
        try:
            gradcheck(call, leaves)
        except GradcheckError as error:
            fail(f"the gradient ({layout} input)", card, name, sample, str(error))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_second_gradient(name: str, card: Card, record: Record) -> None:
    """Second derivatives agree with differences of the first."""
    record.case(op=name, dtype="float64", direction="second")
    card.needs("float64")
    for sample in smooth(name)[:3]:
        call, leaves = function(name, sample, ts.float64, card.device)
        if sum(leaf.numel() for leaf in leaves) > 40 or not (call(*leaves) and call(*leaves)[0].requires_grad):
            continue
        try:
            gradgradcheck(call, leaves)
        except GradcheckError as error:
            fail("the second gradient", card, name, sample, str(error))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_from_any_layout(name: str, card: Card) -> None:
    """Incoming gradients may be transposed, stepped, flipped or expanded."""
    taken = "float64" if card.supports("float64") else card.real
    dtype, tolerance = getattr(ts, taken), BETWEEN[taken]
    for sample in [s for s in smooth(name) if cases.claims(name, s, taken)]:
        call, leaves = function(name, sample, dtype, card.device)
        outputs = [o for o in call(*leaves) if o.requires_grad]
        if not outputs:
            continue
        arrays = [np.cos(np.arange(o.numel(), dtype=float)).reshape(tuple(o.shape)) for o in outputs]
        expected: Any = None
        for layout in cases.LAYOUTS:
            grads = [
                cases.tensor(samples.Input(a), dtype, o.device, layout) for a, o in zip(arrays, outputs, strict=True)
            ]
            found = ts.autograd.grad(outputs, leaves, grads, retain_graph=True, allow_unused=True)
            expected = expected or found
            problem, _ = compare(found, expected, tolerance)
            if problem:
                fail(f"the gradient (incoming gradient {layout})", card, name, sample, problem)
        ones = [ts.ones((), dtype=dtype, device=o.device).expand(o.shape) for o in outputs]
        full = ts.autograd.grad(outputs, leaves, [o.contiguous() for o in ones], retain_graph=True, allow_unused=True)
        problem, _ = compare(ts.autograd.grad(outputs, leaves, ones, allow_unused=True), full, tolerance)
        if problem:
            fail("the gradient (incoming gradient expanded)", card, name, sample, problem)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_dtype(name: str, dtype: str, card: Card, record: Record) -> None:
    """Gradients have their input's dtype and come near those of float64 on the cpu."""
    record.case(op=name, dtype=dtype, direction="backward")
    card.needs(dtype)
    largest = 0.0
    for sample in [s for s in smooth(name) if cases.claims(name, s, dtype)][:2]:
        found, expected = (
            weighted_gradients(*function(name, s, t, where))
            for s, t, where in ((sample, getattr(ts, dtype), card.device), (rounded(sample, dtype), ts.float64, "cpu"))
        )
        wrong = [str(f.dtype) for f in found if f is not None and f.dtype is not getattr(ts, dtype)]
        if wrong:
            fail("the dtype of the gradient", card, name, sample, f"expected {dtype}, got {wrong[0]}")
        problem, error = compare(found, expected, TOLERANCE[dtype])
        largest = max(largest, error)
        if problem:
            fail(f"the {dtype} gradient", card, name, sample, problem)
    record.case(error=largest)


@pytest.mark.parametrize("name", CONSTANT)
def test_not_differentiable(name: str, card: Card) -> None:
    """Comparisons, positions and the like never require gradients."""
    for sample in samples.samples(name):
        args, kwargs = sample.map(
            lambda item: cases.tensor(item, ts.get_default_dtype(), card.device).requires_grad_(item.varies)
        )
        for leaf in cases.leaves(cases.call(name, args, kwargs)):
            assert not isinstance(leaf, ts.Tensor) or not leaf.requires_grad
