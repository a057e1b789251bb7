"""What the tests of ``compile`` share: a compiler that keeps its graphs, values, functions and a layer."""

from __future__ import annotations

import enum

import tesserack as ts
from tesserack import fx, nn


class Backend:
    """Runs graphs as they are, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs, **options):
        assert isinstance(gm, fx.GraphModule)
        gm.graph.lint()
        self.graphs.append(gm)
        return gm.forward


X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])
W = X.clone().requires_grad_()
SCALE, TABLE, ITEMS = 2.0, {"k": 2}, [1, 2]


def same(a, b):
    leaves = [ts.utils._pytree.tree_leaves(v) for v in (a, b)]
    return len(leaves[0]) == len(leaves[1]) and all(
        ts.equal(x, y) and x.requires_grad == y.requires_grad if isinstance(x, ts.Tensor) else x == y
        for x, y in zip(*leaves, strict=True)
    )


class Color(enum.Enum):
    RED = 1


class Settings:
    def __init__(self):
        self.factor, self.names = 2.0, ["a"]


def helper(x):
    return x * SCALE


def factory(n):
    def inner(x, power=2):
        return x**power + n

    return inner


class Net(nn.Module):
    gain = 3.0

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU()
        self.settings, self.blocks, self.flag = Settings(), nn.ModuleList([nn.Linear(4, 4)]), True
        self.register_buffer("shift", ts.ones(4))

    def forward(self, x, extra=None):
        y = self.act(self.norm(self.linear(x))) * self.settings.factor * self.gain
        for block in self.blocks:
            y = block(y) + self.shift
        if extra is not None:
            y = y + extra["bias"]
        return {"y": y, "kept": x} if self.flag else y


def prints(x):
    print("hi")
    return x
