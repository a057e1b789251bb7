"""Traces that pack sequences: the lengths are data, so that others give what plain Python gives."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

pytestmark = pytest.mark.filterwarnings("ignore::tesserack.jit.TracerWarning", "ignore:.*deprecated")


class Reader(nn.Module):
    """Reads sequences of any order, or from long to short, and hands out all that packing makes."""

    def __init__(self, kind: type[nn.RNNBase], enforce_sorted: bool, total: int | None) -> None:
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True, bidirectional=True)
        self.enforce_sorted, self.total = enforce_sorted, total

    def forward(self, x: ts.Tensor, lengths: ts.Tensor) -> tuple[ts.Tensor, ...]:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.enforce_sorted)
        read, _ = self.rnn(packed)
        rows, found = pad_packed_sequence(read, batch_first=True, padding_value=-1.0, total_length=self.total)
        return packed.data, rows, found


@pytest.mark.parametrize("total", [None, 7])
@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_other_lengths(kind: type[nn.RNNBase], enforce_sorted: bool, total: int | None) -> None:
    reader, x = Reader(kind, enforce_sorted, total), ts.randn(4, 6, 3)
    traced = ts.jit.trace(reader, (x, ts.tensor([6, 5, 3, 2])), check_trace=False)
    for lengths in ([6, 5, 3, 2], [6, 4, 4, 2], [6, 6, 6, 6], [5, 2, 1, 1], [1, 1, 1, 1], [2, 6, 3, 5]):
        if enforce_sorted and lengths != sorted(lengths, reverse=True):
            continue
        y = ts.randn(4, 6, 3)
        for got, expected in zip(traced(y, ts.tensor(lengths)), reader(y, ts.tensor(lengths)), strict=True):
            assert ts.equal(got, expected), lengths


def test_gradients_reach_what_is_packed() -> None:
    reader, x, lengths = Reader(nn.GRU, False, None), ts.randn(3, 4, 3), ts.tensor([2, 4, 1])
    traced = ts.jit.trace(reader, (x, ts.tensor([4, 4, 3])), check_trace=False)
    grads = []
    for program in (reader, traced):
        given = x.clone().requires_grad_()
        program(given, lengths)[1].square().sum().backward()
        grads.append(given.grad)
    assert ts.allclose(grads[0], grads[1])
