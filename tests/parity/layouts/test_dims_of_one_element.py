"""Strides of dims of one element: they move nothing, but say where channels lie, and copies keep them."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

MADE = [
    "m.rand(10, 3, 1, 1).to(memory_format=m.channels_last)", "m.rand(3, 1, 5, 4).to(memory_format=m.channels_last)",
    "m.empty_strided((3, 1), (1, 7)).fill_(1.0)", "m.rand(3, 4)[:, :1].t()", "m.rand(3, 1, 2, 1, 4)", "m.rand(0, 1, 3)",
]  # fmt: skip
COPIES = [
    "x.clone()", "m.empty_like(x)", "m.zeros_like(x, dtype=m.int32)", "m.full_like(x, 2)", "m.rand_like(x)",
    "x.double()", "x.to(m.float16)", "x.sort(0)[0]", "x.sort(0)[1]", "x.flip(0)", "x.sin()", "x.contiguous()",
    "m.empty_like(x, device='meta')",
]  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("copy", COPIES)
def test_copies_keep_them(copy: str, made: str) -> None:
    def strides(m: Any) -> Any:
        return eval(copy, {"m": m, "x": eval(made, {"m": m})}).stride()

    assert strides(ts) == strides(torch)
