"""``_chunk_cat``: results and classes of errors beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

CASES: list[tuple[list[tuple[int, ...]], int, int]] = [
    ([(3, 4), (5, 4), (1, 2)], 0, 2),
    ([(3, 4), (3, 2)], 1, 3),
    ([(2, 3, 4), (2, 2, 2)], 1, 2),
    ([(2,), (3,)], -1, 4),
    ([(2, 3), (3, 3)], 1, 2),
    ([(0, 3)], 0, 2),
    ([], 0, 2),
    ([(2,)], 0, 0),
    ([(2, 3)], 2, 1),
]


def outcome(package: Any, shapes: list[tuple[int, ...]], dim: int, chunks: int, **where: Any) -> Any:
    tensors = [package.arange(float(package.Size(s).numel()), **where).view(s) for s in shapes]
    try:
        given = package.empty(0, **where)
        assert package._chunk_cat(tensors, dim, chunks, out=given) is given
        return package._chunk_cat(tensors, dim, chunks).tolist(), given.tolist()
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_chunk_cat(case: Any, device: Any) -> None:
    assert outcome(ts, *case, device=device) == outcome(torch, *case)
