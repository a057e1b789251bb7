"""Gradients checked against differences: ``autograd.gradcheck``."""

from __future__ import annotations

import pytest
import tesserack as ts


@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck_takes_inputs_that_share_memory(fast: bool) -> None:
    x = ts.rand(2, 6, dtype=ts.float64, requires_grad=True)
    first, second = x.chunk(2, -1)  # views of a function of many, which refuses writes to the others
    before = x.detach().clone()
    assert ts.autograd.gradcheck(lambda a, b: a * b.exp(), (first, second), fast_mode=fast)
    assert ts.equal(x, before) and first._version == 0
    z = ts.rand(2, 4, dtype=ts.complex128, requires_grad=True)
    assert ts.autograd.gradcheck(lambda a, b: a * b, z.unbind(0), fast_mode=fast)
