"""The gradient of one tensor, asked for alone, is the one that all are asked for with."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.testing import samples
from tesserack.testing.conformance.gradients import DIFFERENTIABLE, differentiable, function


def same(one: ts.Tensor | None, among_all: ts.Tensor | None) -> bool:
    if one is None or among_all is None:
        return one is among_all
    return ts.equal(one.nan_to_num(nan=1e6), among_all.nan_to_num(nan=1e6))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_one_gradient(name: str, create_graph: bool, device: ts.device) -> None:
    for sample in filter(differentiable, samples.samples(name)):
        call, leaves = function(name, sample, ts.float32, device)
        outputs = [o for o in call(*leaves) if o.requires_grad]
        if len(leaves) < 2 or not outputs:
            continue
        incoming = [ts.ones_like(o) for o in outputs]
        options = {"retain_graph": True, "allow_unused": True, "create_graph": create_graph}
        expected = ts.autograd.grad(outputs, leaves, incoming, **options)
        for leaf, among_all in zip(leaves, expected, strict=True):
            (alone,) = ts.autograd.grad(outputs, [leaf], incoming, **options)
            assert same(alone, among_all), f"({sample})"
