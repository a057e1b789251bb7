"""Recurrent layers in float32, which a backend may compute by kernels of its own, beside the same ones in float64."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def everything(layer: nn.Module, given: list[ts.Tensor], lengths: list[int] | None) -> list[np.ndarray]:
    """Outputs, last states and all gradients."""
    x, h, c = leaves = [t.detach().requires_grad_() for t in given]
    states = (h, c) if isinstance(layer, nn.LSTM) else h
    output, last = layer(x if lengths is None else pack_padded_sequence(x, lengths), states)
    if lengths is not None:
        output, _ = pad_packed_sequence(output)
    ends = last if isinstance(last, tuple) else (last,)
    sum(((t**2).sum() for t in ends), (output * output.sin()).sum()).backward()
    grads = [t.grad for t in (*leaves, *layer.parameters()) if t.grad is not None]
    return [t.detach().numpy() for t in (output, *ends, *grads)]


@pytest.mark.parametrize("lengths", [None, [7, 7, 5, 4, 1]], ids=["whole", "packed"])
@pytest.mark.parametrize("width", [1, 6, 40])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_many_steps_in_both_precisions(
    kind: type[nn.Module], both: bool, width: int, lengths: list[int] | None
) -> None:
    ts.manual_seed(0)
    layer = kind(4, width, 2, bidirectional=both, bias=width != 6)
    states = (4 if both else 2, 5, width)
    given = [ts.randn(7, 5, 4), ts.randn(*states), ts.randn(*states)]
    wide = everything(copy.deepcopy(layer).double(), [t.double() for t in given], lengths)
    found = everything(layer, given, lengths)
    assert len(found) == len(wide)
    for ours, exact in zip(found, wide, strict=True):
        np.testing.assert_allclose(ours, exact, 1e-4, 2e-5 * max(1.0, float(np.abs(exact).max())))


def test_steps_of_a_graph_that_ends_at_the_last_cell() -> None:
    ts.manual_seed(1)
    layer, x = nn.LSTM(3, 5), ts.randn(6, 2, 3)
    layer(x)[1][1].sum().backward()
    wide = nn.LSTM(3, 5, dtype=ts.float64)
    wide.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    wide(x.double())[1][1].sum().backward()
    for ours, exact in zip(layer.parameters(), wide.parameters(), strict=True):
        assert ours.grad is not None and exact.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), exact.grad.numpy(), 1e-4, 1e-5)
