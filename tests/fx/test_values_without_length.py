"""Modules that hold tuples whose class refuses to tell a length, as packages of representations have them."""

from __future__ import annotations

from typing import Any

import tesserack as ts


class Kinds(tuple):
    def __len__(self) -> int:
        raise NotImplementedError


def test_compiled() -> None:
    class Layer(ts.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kinds = Kinds((1, 2))

        def forward(self, x: Any) -> Any:
            return x * 2

    compiled = ts.compile(Layer())
    for _ in range(3):
        assert compiled(ts.ones(2)).tolist() == [2, 2]
