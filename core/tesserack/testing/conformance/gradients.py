"""Operators as functions of their differentiable tensors, and gradients compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tesserack as ts
from tesserack.testing import cases, samples

__all__ = [
    "CONSTANT",
    "DIFFERENTIABLE",
    "RECORDS",
    "compare",
    "differentiable",
    "function",
    "rounded",
    "weighted_gradients",
]

RECORDS = samples.records()
_MUTATING = {n for n, r in RECORDS.items() if "(Tensor(a!)" in r["schema"]}
_SAMPLED = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n) and n not in _MUTATING]
_FLOATING = [n for n in _SAMPLED if samples.dtypes(n) not in ("integral", "integer")]


def differentiable(sample: samples.Sample) -> bool:
    """Whether the operator is smooth at the sample, and has something to differentiate by."""
    return sample.grad and any(item.varies and item.grad for item in sample.inputs())


# Operators with gradients, and those that must not have any.
DIFFERENTIABLE = [n for n in _FLOATING if RECORDS[n]["differentiable"] and any(map(differentiable, samples.samples(n)))]
CONSTANT = [n for n in _FLOATING if not RECORDS[n]["differentiable"]]


def function(
    name: str, sample: samples.Sample, dtype: Any, device: Any, layout: str = "contiguous"
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


def rounded(sample: samples.Sample, dtype: str) -> samples.Sample:
    """The sample with its floats as the dtype holds them."""

    def reround(item: samples.Input) -> samples.Input:
        return samples.Input(cases.rounded(item, dtype) if item.varies else item.array, item.varies, item.grad)

    args, kwargs = sample.map(reround)
    return samples.Sample(args, kwargs, sample.grad, sample.only)


def weighted_gradients(call: Callable[..., Any], leaves: Sequence[Any]) -> Sequence[Any]:
    """The gradients of a weighted sum of all results, with weights that every float dtype holds exactly."""
    outputs = [o for o in call(*leaves) if o.requires_grad]
    if not outputs:
        return [None] * len(leaves)
    weights = [np.round(np.cos(np.arange(1.0, o.numel() + 1)) * 64).reshape(tuple(o.shape)) / 64 for o in outputs]
    grads = [cases.tensor(samples.Input(w), o.dtype, o.device) for w, o in zip(weights, outputs, strict=True)]
    return ts.autograd.grad(outputs, leaves, grads, allow_unused=True)


def compare(
    found: Sequence[Any], expected: Sequence[Any], tolerance: float, least: float = 1.0
) -> tuple[str | None, float]:
    """What is wrong with gradients, if anything, and the largest relative error: beside the element itself and the
    largest finite one, or ``least`` if that is more. None counts as zeros; infinities agree with their like."""
    worst = 0.0
    for index, (f, e) in enumerate(zip(found, expected, strict=True)):
        if f is None or e is None:
            if any(cases.values(g).any() for g in (f, e) if g is not None):
                return f"gradient {index} is {'missing' if f is None else 'there but should be zero'}", float("inf")
            continue
        if f.shape != e.shape:
            return f"gradient {index}: expected shape {tuple(e.shape)}, got {tuple(f.shape)}", float("inf")
        left, right = cases.values(f), cases.values(e)
        largest = np.abs(right[np.isfinite(right)]).max(initial=0.0)
        scale = max(least, largest) if tolerance > 1e-6 else 1.0
        with np.errstate(all="ignore"):
            error = np.nan_to_num(np.abs(left - right) / (scale + np.abs(right)), nan=np.inf)
        error = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, error)
        worst = max(worst, float(error.max(initial=0.0)))
        if worst > tolerance:
            at = tuple(int(i) for i in np.argwhere(error > tolerance)[0])
            wrong = int((error > tolerance).sum())
            where = f"gradient {index}, element {list(at)}: expected {right[at]}, got {left[at]}"
            return f"{where} ({wrong} of {error.size} elements wrong; tolerance {tolerance:.1e})", worst
    return None, worst
