"""``tensor`` of lists that hold tensors: in graphs their values are read when the graph runs."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")

CALLS = {
    "numbers of rows": lambda x: ts.tensor([row.sum() for row in x.unbind()]) * 2,
    "with a number": lambda x: ts.as_tensor([x.sum(), 1.5]) + x.mean(),
    "nested": lambda x: ts.tensor([[x.sum(), 2.0], [3, x.mean()], [1.0, 2.0]]),
    "dtype": lambda x: ts.tensor([x.argmax(), 7], dtype=ts.float64),
    "promoted": lambda x: ts.tensor([x.argmax(), x.sum()]),
    "blocks": lambda x: ts.tensor([x[0], x[1] + 1]),
    "one element": lambda x: ts.tensor([x[:1, :1], x[1, 1]]),
    "LongTensor": lambda x: ts.LongTensor([x.argmax()]),
    "new_tensor": lambda x: x.new_tensor((x.sum(), x.mean())),
}


class Program(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


WAYS = {
    "real": lambda f, x: make_fx(f)(x),
    "fake": lambda f, x: make_fx(f, tracing_mode="fake")(x),
    "trace": lambda f, x: ts.jit.trace(f, x, check_trace=False),
    "export": lambda f, x: ts.export.export(Program(f), (x,)).module(),
    "compile": lambda f, x: ts.compile(f),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_values_are_read_when_the_graph_runs(name, way) -> None:
    f = CALLS[name]
    graph = WAYS[way](f, ts.randn(2, 3))
    for _ in range(3):
        x = ts.randn(2, 3)
        found, expected = graph(x), f(x)
        assert found.dtype is expected.dtype and ts.equal(found, expected)


def test_ragged_lists_are_refused_under_a_tracer() -> None:
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        make_fx(lambda x: ts.tensor([[x[0], x[1]], [x[0]]]))(ts.ones(2))
    with pytest.raises(ValueError, match="expected a block of shape"):
        make_fx(lambda x: ts.tensor([x, x[:2]]))(ts.ones(3))


def test_lists_that_hold_themselves_are_refused_under_a_tracer() -> None:
    def program(x):
        held = [x.sum()]
        held.append(held)
        return ts.tensor(held, dtype=ts.float32)

    with pytest.raises((TypeError, ValueError)):
        make_fx(program)(ts.ones(2))
    with pytest.raises((TypeError, ValueError)):
        make_fx(lambda x: ts.tensor(_numbers(), dtype=ts.float32) + x)(ts.ones(2))


def _numbers():
    held = [1.0]
    held.append(held)
    return held
