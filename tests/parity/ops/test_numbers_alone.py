"""Functions whose operands are all numbers, beside torch's."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize("operands", [(7, 2), (-7, 2), (7.5, 2), (-7, 2.0), (True, 2)], ids=str)
def test_quotients_of_numbers(operands: Any, mode: Any) -> None:
    ours, theirs = (module.div(*operands, rounding_mode=mode) for module in (ts, torch))
    assert (
        ours.tolist() == theirs.tolist() and str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    )
