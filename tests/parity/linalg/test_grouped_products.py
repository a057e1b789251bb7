"""Products of groups beside torch's: values, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

SHAPES = {
    "rows": ((8, 16), (3, 16, 24)),
    "columns": ((3, 4, 16), (16, 8)),
    "sums": ((4, 8), (8, 16)),
    "stacks": ((3, 4, 16), (3, 16, 8)),
}


@pytest.mark.parametrize("ends", [[2, 5, 8], [0, 8, 8]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_groups(name: str, dtype: str, ends: list[int], device: Any) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape) for shape in SHAPES[name]]
    results = []
    for module, target in ((torch, "cpu"), (ts, device)):
        kind = getattr(module, dtype)
        left, right = (module.tensor(array, device=target).to(kind).requires_grad_() for array in arrays)
        offs = None if name == "stacks" else module.tensor(ends, dtype=module.int32, device=target)
        product = module.nn.functional.grouped_mm(left, right, offs=offs)
        weight = module.tensor(np.cos(np.arange(product.numel())), device=target).reshape(product.shape).to(kind)
        grads = module.autograd.grad((product * weight).sum(), [left, right])
        results.append([t.detach().double().cpu().numpy() for t in (product, *grads)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, theirs, *((1e-5, 1e-5) if dtype == "float32" else (2e-2, 6e-2)))


def _grouped(m: Any, left: tuple[int, ...], right: tuple[int, ...], ends: Any = (2, 5, 8), **options: Any) -> Any:
    offs = None if ends is None else m.tensor(ends, dtype=options.pop("kind", m.int32))
    return m.nn.functional.grouped_mm(m.ones(left), m.ones(right), offs=offs, **options)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "offsets of stacks": lambda m: _grouped(m, *SHAPES["stacks"]),
    "no offsets": lambda m: _grouped(m, *SHAPES["rows"], ends=None),
    "offsets of int64": lambda m: _grouped(m, *SHAPES["rows"], kind=m.int64),
    "fewer offsets": lambda m: _grouped(m, *SHAPES["rows"], ends=(2, 8)),
    "a bias": lambda m: _grouped(m, *SHAPES["rows"], bias=m.ones(24)),
    "another dtype": lambda m: _grouped(m, *SHAPES["rows"], out_dtype=m.bfloat16),
    "inner sizes": lambda m: _grouped(m, (8, 16), (3, 32, 24)),
    "a vector": lambda m: _grouped(m, (16,), (3, 16, 24)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for module in (torch, ts):
        with pytest.raises(RuntimeError):
            REFUSED[name](module)


def test_offsets_that_pytorch_would_follow_beyond_the_end(device: Any) -> None:
    left, right = ts.ones(8, 4, device=device), ts.ones(3, 4, 2, device=device)
    for ends in ([2, 5, 9], [5, 2, 8]):
        with pytest.raises(RuntimeError, match="expected offsets that grow"):
            ts.nn.functional.grouped_mm(left, right, offs=ts.tensor(ends, dtype=ts.int32, device=device))
    short = ts.nn.functional.grouped_mm(left, right, offs=ts.tensor([1, 2, 6], dtype=ts.int32, device=device))
    assert short[:6].eq(4).all() and short[6:].eq(0).all()
