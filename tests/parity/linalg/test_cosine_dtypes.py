"""Cosines of vectors of two dtypes: integers take the dtype that both have in common, halves keep theirs."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

DTYPES = ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
SHAPES = [((3,), (3,)), ((2, 3), ()), ((), (3,)), ((), ())]


def outcome(m: Any, first: str, second: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    a = m.full(shapes[0], 1, dtype=getattr(m, first))
    b = m.full(shapes[1], 1, dtype=getattr(m, second))
    try:
        found = m.nn.functional.cosine_similarity(a, b, dim=-1)
    except RuntimeError:
        return "RuntimeError"
    return str(found.dtype).rpartition(".")[2], found.double().tolist()


@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_cosine_similarity(first: str, second: str) -> None:
    for shapes in SHAPES:
        found, expected = (outcome(m, first, second, shapes) for m in (ts, torch))
        if isinstance(found, str) or isinstance(expected, str):
            assert found == expected, shapes
        else:
            assert found[0] == expected[0], shapes
            assert found[1] == pytest.approx(expected[1], rel=1e-2), shapes
