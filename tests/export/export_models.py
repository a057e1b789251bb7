"""Small models of every kind, with example inputs, sizes that vary and other inputs to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tesserack as ts
from tesserack import nn
from tesserack._higher_order_ops import associative_scan, cond, map, scan, while_loop
from tesserack.export import Dim
from tesserack.nn import functional as F

B, T = Dim("batch", min=2, max=64), Dim("time", min=1, max=48)
H, W = Dim("height", min=16, max=256), Dim("width", min=16)


@dataclass
class Case:
    """A model, what it is exported with, which sizes vary, and further inputs."""

    model: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    shapes: Any = None
    others: tuple[Callable[[], tuple[Any, ...]], ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


class Attention(nn.Module):
    """A block of a language model, with a mask that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.qkv, self.o, self.n = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)
        self.register_buffer("mask", ts.tril(ts.ones(48, 48)).bool(), persistent=False)

    def forward(self, ids: Any) -> Any:
        x = self.e(ids)
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 4, 4).transpose(1, 2) for y in self.qkv(self.n(x)).split(16, -1))
        scores = (q @ k.transpose(-1, -2)) / 4**0.5
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
        return {"x": x + self.o((scores @ v).transpose(1, 2).reshape(b, t, c)), "length": t}


class Writes(nn.Module):
    """Writes into views, buffers and copies of inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", ts.zeros(4, 8))
        self.register_buffer("step", ts.zeros((), dtype=ts.int64))

    def forward(self, x: Any) -> Any:
        self.cache[1] += x.sum(0)
        self.step += 1
        y = x.clone()
        y[:, 0] = 5
        y[:, 1:3].mul_(2)
        y.t()[4:].zero_()
        flat = y.view(-1)
        flat[0] = 9
        y.diagonal().fill_(-1)
        a, b = y.split(4, 1)
        a.add_(b)
        p, q = y.unbind(1)[:2]
        q.copy_(p)
        z = y.unsqueeze(0).expand(2, -1, -1).clone()
        z.squeeze_().permute(1, 0, 2)[0].sub_(1)
        self.cache.index_put_((ts.tensor([0], device=x.device),), x[:1])
        self.cache.masked_fill_(self.cache > 3, 0.5)
        return y, z, self.cache.clone(), flat, a


class Images(nn.Module):
    """Convolutions, batch norm, pooling, resizing, padding."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 8, 3)
        self.bn, self.pool, self.l = nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = self.pool(self.b(F.relu(self.bn(self.a(x)), inplace=True)))
        flat = h.flatten(2)
        small = F.adaptive_avg_pool2d(h, (2, 1)), F.adaptive_avg_pool2d(h, 1).squeeze((2, 3))
        return self.l(flat.mean(-1)), flat.reshape(x.shape[0], -1), F.interpolate(h, scale_factor=2), small


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.g = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), nn.GRU(10, 3, batch_first=True)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.l(x)
        return self.g(y)[0], h, c


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.EmbeddingBag(10, 4, mode="mean")

    def forward(self, rows: Any, flat: Any, offsets: Any) -> Any:
        return self.e(rows), self.e(flat, offsets)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e, self.l = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.l.weight = self.e.weight

    def forward(self, ids: Any) -> Any:
        return self.l(self.e(ids))


class Sizes(nn.Module):
    """What programs make of sizes: numbers, tensors, masks, results."""

    def forward(self, x: Any, y: Any, scale: float = 2.0, *, opts: Any = None) -> Any:
        n = x.shape[0]
        places = ts.arange(n, device=x.device)
        mask = places[:, None] <= places[None, :]
        z = ts.cat([x, y], 0)
        w = ts.zeros(n, z.shape[0], device=x.device)
        w[:, :n] = mask
        return {
            "z": z * scale / n,
            "w": w @ z,
            "s": z.sum() / n**0.5,
            "numbers": [x.shape[0] * y.shape[0], n + 1, float(n)],
            "every": z[:, ::2],
            "r": x.repeat(2, 1),
            "stacked": ts.stack([x, x]).reshape(-1, x.shape[1]),
            "line": ts.linspace(0, 1, n, device=x.device),
            "pad": F.pad(x, (1, 2)),
            "e": ts.eye(n, device=x.device) * opts["t"][0],
            "ends": (x[-1], x[: n // 2], x[n - 1 :], z[:-1]),
            "nothing": None,
            "name": "sizes",
        }


class Flow(nn.Module):
    """Branches and loops."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("b", ts.ones(3))

    def forward(self, x: Any) -> Any:
        y = cond(x.sum() > 0, lambda x: self.one(x), lambda x: self.other(x) * self.b, (x,))
        n, z = while_loop(lambda n, z: (z.abs().sum() < 100) & (n < 5), lambda n, z: (n + 1, z * 2), (ts.tensor(0), y))
        c, rows = scan(lambda c, t: (c + t, {"p": c * self.b}), ts.zeros(3), x)
        means = map(lambda r: self.one(r).mean(), x)
        sums = associative_scan(lambda a, b: a + b, x, 0)
        return y, n, z, c, rows, means, sums


class Counter(nn.Module):
    """Buffers assigned and written to, a constant, a submodule called twice, inputs written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", ts.zeros(3))
        self.l, self.fixed = nn.Linear(3, 3), ts.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Any, state: Any) -> Any:
        self.total = self.total + x.detach().sum(0)
        state["seen"].add_(1)
        return self.l(self.l(x)) * self.fixed + self.total


def _ids(*shape: int) -> ts.Tensor:
    return ts.randint(0, 10, shape)


CASES: dict[str, Case] = {
    "mlp": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 2)),
        lambda: (ts.randn(3, 4),), {"input": {0: B}}, (lambda: (ts.randn(7, 4),),),
    ),
    "attention": Case(
        Attention, lambda: (_ids(2, 5),), {"ids": {0: B, 1: T}}, (lambda: (_ids(7, 33),), lambda: (_ids(2, 1),)),
    ),
    "writes": Case(Writes, lambda: (ts.randn(3, 8),), {"x": {0: B}}, (lambda: (ts.randn(9, 8),),)),
    "images in training": Case(
        Images, lambda: (ts.randn(2, 3, 33, 32),), {"x": {0: B, 2: H, 3: W}}, (lambda: (ts.randn(3, 3, 64, 50),),),
    ),
    "images": Case(
        lambda: Images().eval(), lambda: (ts.randn(2, 3, 33, 32),), {"x": {0: B, 2: H, 3: W}},
        (lambda: (ts.randn(3, 3, 64, 50),), lambda: (ts.randn(2, 3, 17, 100),)),
    ),
    "recurrent": Case(Recurrent, lambda: (ts.randn(2, 5, 4),), {"x": {0: B}}, (lambda: (ts.randn(6, 5, 4),),)),
    "bags": Case(
        Bags, lambda: (_ids(3, 4), _ids(6), ts.tensor([0, 2, 5])),
        {"rows": {0: B, 1: T}, "flat": {0: Dim.DYNAMIC}, "offsets": {0: Dim.DYNAMIC}},
        (lambda: (_ids(5, 6), _ids(9), ts.tensor([0, 1, 2, 7])),),
    ),
    "tied": Case(Tied, lambda: (_ids(3),), {"ids": {0: B}}, (lambda: (_ids(5),),)),
    "sizes": Case(
        Sizes, lambda: (ts.randn(3, 6), ts.randn(5, 6)), {"x": {0: B}, "y": {0: T}, "opts": None},
        (lambda: (ts.randn(8, 6), ts.randn(2, 6)),), {"opts": {"t": [ts.ones(1)]}},
    ),
    "transformer": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), lambda: (ts.randn(2, 5, 8),),
        {"src": {0: B, 1: T}}, (lambda: (ts.randn(3, 9, 8),),),
    ),
    "self attention": Case(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True).eval(), lambda: (ts.randn(2, 5, 8),) * 3,
        {name: {0: B, 1: T} for name in ("query", "key", "value")}, (lambda: (ts.randn(3, 9, 8),) * 3,),
    ),
    "flow": Case(
        Flow, lambda: (ts.randn(4, 3),), {"x": {0: B}}, (lambda: (-ts.rand(2, 3),), lambda: (ts.rand(9, 3),)),
    ),
    "counter": Case(
        Counter, lambda: (ts.randn(4, 3), {"seen": ts.zeros(2)}), {"x": {0: B}, "state": {"seen": None}},
        (lambda: (ts.randn(6, 3), {"seen": ts.ones(2)}),),
    ),
    "random": Case(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.RReLU(), nn.Softplus()), lambda: (ts.randn(4, 3),),
        {"input": {0: B}}, (lambda: (ts.randn(8, 3),),),
    ),
    "constants": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding="same", padding_mode="reflect"), nn.GroupNorm(3, 3)),
        lambda: (ts.randn(2, 2, 9),), {"input": {0: B}}, (lambda: (ts.randn(5, 2, 9),),),
    ),
}  # fmt: skip
