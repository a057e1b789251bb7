"""Losses in exported programs: their reduction is ATen's number, and left out where it is the mean."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

# mse_loss, l1_loss and their kin broadcast first in torch: no loss of one shape does here.
CALLS: dict[str, Any] = {
    "binary_cross_entropy": lambda m, x, y, **r: m.nn.functional.binary_cross_entropy(x, y, **r),
    "binary_cross_entropy_with_logits": lambda m, x, y, **r: m.nn.functional.binary_cross_entropy_with_logits(
        x, y, **r
    ),
    "weighted": lambda m, x, y, **r: m.nn.functional.binary_cross_entropy_with_logits(x, y, y, pos_weight=y, **r),
    "soft_margin_loss": lambda m, x, y, **r: m.nn.functional.soft_margin_loss(x, y, **r),
    "mse_loss": lambda m, x, y, **r: m.nn.functional.mse_loss(x, y, **r),
    "smooth_l1_loss": lambda m, x, y, **r: m.nn.functional.smooth_l1_loss(x, y, beta=0.5, **r),
}


def shown(m: Any, call: Any, reduction: str | None) -> tuple[str, list[Any], float]:
    """The loss in the program, its arguments behind the first two tensors, and what the program gives."""

    class Model(m.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return call(m, x, y, **({} if reduction is None else {"reduction": reduction}))

    x, y = m.arange(1, 7).reshape(2, 3) / 8, m.arange(2, 8).reshape(2, 3) / 9
    program = m.export.export(Model(), (x, y))
    node = [n for n in program.graph.nodes if n.op == "call_function"][-1]
    rest = [getattr(value, "name", value) for value in node.args[2:]]
    return str(node.target), rest, program.module()(x, y).sum().item()


@pytest.mark.parametrize("reduction", [None, "none", "mean", "sum"])
@pytest.mark.parametrize("name", CALLS)
def test_reductions_are_numbers(name: str, reduction: str | None) -> None:
    target, rest, value = shown(ts, CALLS[name], reduction)
    expected_target, expected_rest, expected = shown(torch, CALLS[name], reduction)
    assert (target, rest) == (expected_target, expected_rest) and value == pytest.approx(expected)
