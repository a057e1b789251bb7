"""Small models of the usual kinds, each right as it stands; a mistake is one argument that is given otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.nn import functional as F
from tesserack.utils.shapes import Float, Int

L, C = nn.Linear, nn.Conv2d


class Net(nn.Module):
    """Parts, and what is done with them."""

    def __init__(self, call: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *args: Any) -> Any:
        return self.call(self, *args)


def mlp(inner: int = 16, taken: int = 16, norm: int = 16) -> nn.Module:
    return nn.Sequential(L(8, inner), nn.LayerNorm(norm), nn.GELU(), L(taken, 4))


def convnet(
    a: int = 8, b: int = 8, norm: int = 8, flat: int = 16 * 8 * 8, groups: int = 1, first: int = 3
) -> nn.Module:
    features = nn.Sequential(C(first, a, 3, padding=1), nn.BatchNorm2d(norm), nn.ReLU(), nn.MaxPool2d(2))
    body = nn.Sequential(C(b, 16, 3, padding=1, groups=groups), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(features, body, nn.Flatten(), L(flat, 10))


def residual(stride: int = 1, width: int = 8, padding: int = 1, skip: int = 8) -> nn.Module:
    body = nn.Sequential(C(8, width, 3, padding=padding, stride=stride), nn.ReLU(), C(width, 8, 3, padding=1))
    return nn.Sequential(C(3, 8, 1), Net(lambda m, x: m.short(x) + m.body(x), body=body, short=C(8, skip, 1)))


class Attention(nn.Module):
    """Self-attention written out, with annotations at its core."""

    def __init__(self, dim: int = 32, heads: int = 4, split: int = 4, out: int = 32, **wrong: bool) -> None:
        super().__init__()
        self.heads, self.split, self.wrong = heads, split, wrong
        self.qkv, self.out = L(dim, 3 * dim), L(out, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.split, d // self.heads) for part in self.qkv(x).chunk(3, -1))
        if not self.wrong.get("no_transpose"):
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = self.attend(q, k if not self.wrong.get("k_turned") else k.transpose(-1, -2), v)
        return self.out(y if self.wrong.get("not_joined") else y.transpose(1, 2).reshape(b, t, d))

    @ts.check_shapes
    def attend(
        self,
        q: Float[Tensor, "batch {self.heads} time dim"],
        k: Float[Tensor, "batch {self.heads} time dim"],
        v: Float[Tensor, "batch {self.heads} time dim"],
    ) -> Float[Tensor, "batch {self.heads} time dim"]:
        scores = q @ (k if self.wrong.get("k_not_turned") else k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        if self.wrong.get("bias"):
            scores = scores + ts.zeros(scores.shape[-1] + 1)
        weights = scores.softmax(-1)
        return v @ weights if self.wrong.get("v_first") else weights @ v


def block(dim: int = 32, norm: int = 32, inner: int = 128, **wrong: Any) -> nn.Module:
    parts: dict[str, nn.Module] = {"norm": nn.LayerNorm(norm), "attn": Attention(dim, **wrong)}
    parts["mlp"] = nn.Sequential(L(dim, 128), nn.GELU(), L(inner, dim))
    return Net(lambda m, x: (lambda y: y + m.mlp(y))(x + m.attn(m.norm(x))), **parts)


def gpt(dim: int = 32, head: int = 32, **wrong: Any) -> nn.Module:
    blocks = nn.Sequential(block(), block(**wrong))
    return Net(
        lambda m, x: m.head(m.blocks(m.embed(x))), embed=nn.Embedding(100, dim), blocks=blocks, head=L(head, 100)
    )


def positions(length: int = 16, dim: int = 32) -> nn.Module:
    return Net(
        lambda m, x: m.embed(x) + m.place(ts.arange(length)), embed=nn.Embedding(9, 32), place=nn.Embedding(99, dim)
    )


def numbered(rows: int, changed: Callable[[Tensor], Tensor] = lambda p: p) -> nn.Module:
    """Positions by number, which the model makes itself."""
    return Net(lambda m, x: x + m.place(changed(ts.arange(x.shape[1])[None]).squeeze(0)), place=nn.Embedding(rows, 32))


@ts.check_shapes
class Table(nn.Module):
    """Its object is not called self."""

    table: Float[Tensor, "length dim"]

    def __init__(this, length: int = 12) -> None:
        super().__init__()
        this.table = nn.Parameter(ts.zeros(length, 32))

    def forward(this, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        return x + this.table


def vit(patch: int = 8, count: int = 16, channels: int = 32, turned: bool = True) -> nn.Module:
    def call(m: Any, x: Tensor) -> Tensor:
        y = m.patch(x).flatten(2)
        y = y.transpose(1, 2) if turned else y
        return m.head(m.block(y + ts.zeros(count, 32)).mean(1))

    return Net(call, patch=C(3, channels, patch, stride=patch), block=block(), head=L(32, 10))


def tagger(hidden: int = 12, both: bool = True, size: int = 6, out: int = 24) -> nn.Module:
    lstm = nn.LSTM(size, hidden, batch_first=True, bidirectional=both)
    return Net(lambda m, x: m.out(m.lstm(m.embed(x))[0]), embed=nn.Embedding(20, 6), lstm=lstm, out=L(out, 5))


def last_state(out: int = 12) -> nn.Module:
    return Net(lambda m, x: m.out(m.gru(x)[1][-1]), gru=nn.GRU(6, 12, num_layers=2), out=L(out, 3))


def autoencoder(code: int = 4, taken: int = 4, back: int = 28 * 28, shape: tuple[int, int] = (28, 28)) -> nn.Module:
    down = nn.Sequential(nn.Flatten(), L(28 * 28, 32), nn.ReLU(), L(32, code))
    up = nn.Sequential(L(taken, 32), nn.ReLU(), L(32, back), nn.Unflatten(1, shape))
    return nn.Sequential(down, up)


def vae(mean: int = 5, deviation: int = 5) -> nn.Module:
    def call(m: Any, x: Tensor) -> Tensor:
        h = m.encode(x).relu()
        return m.decode(m.mean(h) + m.deviation(h).exp())

    return Net(call, encode=L(12, 16), mean=L(16, mean), deviation=L(16, deviation), decode=L(5, 12))


def unet(up: int = 8, joined: int = 16, axis: int = 1) -> nn.Module:
    def call(m: Any, x: Tensor) -> Tensor:
        a = m.enter(x)
        return m.leave(ts.cat([a, m.up(m.down(a))], axis))

    parts = {
        "enter": C(3, 8, 3, padding=1),
        "down": C(8, 16, 2, stride=2),
        "up": nn.ConvTranspose2d(16, up, 2, stride=2),
    }
    return Net(call, **parts, leave=C(joined, 2, 1))


def graph(width: int = 8, out: int = 8, turned: bool = False) -> nn.Module:
    def call(m: Any, x: Tensor, a: Tensor) -> Tensor:
        h = m.one(x)
        return m.two((h.T if turned else a) @ (a if turned else h))

    return Net(call, one=L(5, width), two=L(out, 2))


def siamese(second: int = 6) -> nn.Module:
    def call(m: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cosine_similarity(m.left(x), m.right(y), dim=1)

    return Net(call, left=L(4, 6), right=L(4, second))


def speech(kernel: int = 3, channels: int = 16, turned: bool = True, size: int = 16) -> nn.Module:
    def call(m: Any, x: Tensor) -> Tensor:
        y = m.conv(x).relu()
        return m.out(m.gru(y.transpose(1, 2) if turned else y)[0])

    conv = nn.Conv1d(40, channels, kernel, padding=1)
    return Net(call, conv=conv, gru=nn.GRU(size, 8, batch_first=True), out=L(8, 30))


def translate(memory: int = 32, heads: int = 4) -> nn.Module:
    cross = nn.MultiheadAttention(32, heads, kdim=memory, vdim=memory, batch_first=True)
    return Net(lambda m, x, y: x + m.cross(x, y, y)[0], cross=cross)


def upscale(channels: int = 12) -> nn.Module:
    return nn.Sequential(C(3, channels, 3, padding=1), nn.PixelShuffle(2), C(3, 3, 1))


def mixture(experts: int = 4, gates: int = 4) -> nn.Module:
    def call(m: Any, x: Tensor) -> Tensor:
        outputs = ts.stack([expert(x) for expert in m.experts], -1)
        return (outputs @ m.gate(x).softmax(-1).unsqueeze(-1)).squeeze(-1)

    return Net(call, gate=L(6, gates), experts=nn.ModuleList([L(6, 7) for _ in range(experts)]))


def separable(groups: int = 8, width: int = 8) -> nn.Module:
    return nn.Sequential(C(3, 8, 1), C(8, width, 3, groups=groups, padding=1), C(8, 4, 1))


def classify(unsqueezed: bool = True, channels: int = 1) -> nn.Module:
    """Pictures without an axis for channels."""
    conv = C(channels, 4, 3, padding=1)
    return Net(lambda m, x: m.conv(x.unsqueeze(1) if unsqueezed else x).mean((2, 3)), conv=conv)


def scaled(axes: int = 2) -> nn.Module:
    """One factor for each sample."""

    def call(m: Any, x: Tensor) -> Tensor:
        factor = m.factor(x.mean((2, 3)))
        return x * (factor[:, :, None, None] if axes == 2 else factor)

    return Net(call, factor=L(6, 6))


@ts.check_shapes
def cross_entropy(scores: Float[Tensor, "batch classes"], target: Int[Tensor, "batch"]) -> Float[Tensor, ""]:
    return F.cross_entropy(scores, target)


@ts.check_shapes
def squared(prediction: Float[Tensor, "batch"], target: Float[Tensor, "batch"]) -> Float[Tensor, ""]:
    return ((prediction - target) ** 2).mean()


@ts.check_shapes
def weighted(losses: Float[Tensor, "batch"], weights: Float[Tensor, "batch"], keep: bool = False) -> Float[Tensor, ""]:
    return losses * weights if keep else (losses * weights).sum()


@ts.check_shapes
def log_loss(
    scores: Float[Tensor, "batch time classes"], target: Int[Tensor, "batch time"], turned: bool = True
) -> Tensor:
    return F.cross_entropy(scores.transpose(1, 2) if turned else scores, target)


class Flat(nn.Module):
    """Pictures as rows of pixels: the order of axes is what the annotation holds."""

    def __init__(self, how: Callable[[Tensor], Tensor] = lambda x: x.flatten(1)) -> None:
        super().__init__()
        self.how = how

    @ts.check_shapes
    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels*height*width"]:
        return self.how(x)


class Pool(nn.Module):
    """The mean of each sequence."""

    def __init__(self, axis: int = 1, kept: bool = False) -> None:
        super().__init__()
        self.axis, self.kept = axis, kept

    @ts.check_shapes
    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch dim"]:
        return x.mean(self.axis, keepdim=self.kept)


class Noisy(nn.Module):
    """Draws from a distribution of its parameters, whose values are checked, and keeps what it drew."""

    def __init__(self, dim: int = 6) -> None:
        super().__init__()
        self.mean, self.width = nn.Parameter(ts.zeros(dim)), nn.Parameter(ts.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        from tesserack.distributions import Categorical, Normal

        self.drawn = [Normal(self.mean, F.softplus(self.width)).rsample()]
        return x + self.drawn[0] * Categorical(logits=x).sample()[:, None]


class Rows(nn.Module):
    """A layer whose weight is written out."""

    weight: Float[Tensor, "out dim"]

    def __init__(self, rows: int = 5, columns: int = 7, turned: bool = True) -> None:
        super().__init__()
        self.weight, self.turned = nn.Parameter(ts.zeros(rows, columns)), turned

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch out"]:
        return x @ (self.weight.T if self.turned else self.weight)


ts.check_shapes(Rows)


def mha() -> nn.Module:
    """Attention to something else, with a mask."""
    attend = nn.MultiheadAttention(32, 4, batch_first=True)
    return Net(lambda m, x, y, mask: m.attend(x, y, y, attn_mask=mask)[0], attend=attend)


class Forces(nn.Module):
    """Differentiates within forward."""

    def __init__(self, asks: bool = True, out: int = 3) -> None:
        super().__init__()
        self.asks, self.out = asks, out
        self.energy = nn.Sequential(L(3, 16), nn.Tanh(), L(16, 1))

    def forward(self, place: Tensor) -> Tensor:
        if self.asks:
            place.requires_grad_()
        force = -ts.autograd.grad(self.energy(place).sum(), place, create_graph=True)[0]
        return force if self.out == 3 else force @ ts.ones(self.out, 2)


def packed(size: int = 8) -> nn.Module:
    """A recurrent layer over sequences of several lengths."""
    rnn = nn.utils.rnn

    def call(m: Any, x: Tensor, n: Tensor) -> Tensor:
        sequences = rnn.pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False)
        return m.out(rnn.pad_packed_sequence(m.lstm(sequences)[0], batch_first=True)[0])

    return Net(call, lstm=nn.LSTM(size, 6, batch_first=True), out=L(6, 5))


def aligned(more: int = 0) -> nn.Module:
    """Labels somewhere in the steps, all of these as long."""
    return Net(lambda _, x, y, n: F.ctc_loss(x, y, ts.full((x.shape[1] + more,), x.shape[0], dtype=ts.int64), n))


N, NN = ["n"], "[n, n]"
# Written so that all pairs are meant: a name, what is done, inputs, the shape of the result.
PAIRS: list[tuple[str, Callable[..., Any], list[str], str]] = [
    ("products by None", lambda _, x: x[:, None] * x[None, :], N, NN),
    ("products by a view", lambda _, x: x.view(-1, 1) * x, N, NN),
    ("equal by unsqueeze", lambda _, x: x.unsqueeze(1) == x, N, NN),
    ("quotients after a function", lambda _, x: x[..., None].exp().clone() / x, N, NN),
    ("sums of what is reduced", lambda _, x: x.pow(2).sum(1, keepdim=True) + x.pow(2).sum(1), ["n 8"], NN),
    ("largest of what is reduced", lambda _, x: x.max(1, keepdim=True)[0] - x.amax(1), ["n 8"], NN),
    ("differences of means", lambda _, k: k.mean(1, keepdim=True) - k.mean(0), ["n n"], NN),
    ("a column turned", lambda _, x: x + x.T, ["n 1"], NN),
    ("features", lambda _, x: x[:, None] - x, ["n 8"], "[n, n, 8]"),
    ("features of a layer", lambda _, x: F.linear(x[:, None], ts.ones(4, 8)) * F.linear(x, ts.ones(4, 8)), ["n 8"],
     "[n, n, 4]"),
    ("masks", lambda _, m: m[:, :, None] & m[:, None], ["bool[b n]"], "[b, n, n]"),
    ("made in place", lambda _, x: x.clone().unsqueeze_(1) * x, N, NN),
    ("positions", lambda _, x: (x.sum(-1, keepdim=True) * 0 + x[..., :1].relu()) - ts.arange(x.shape[1]), ["b n 8"],
     "[b, n, n]"),
    ("rows picked", lambda _, x, i: x[i][:, None] * x[i], ["m", "int64[n]"], NN),
    ("divergences", lambda _, x: F.kl_div(x[:, None], x, reduction="none").sum(-1), ["n 8"], NN),
    ("numbers without a name", lambda _, x, y: x * y, ["7 1", "7"], "[7, 7]"),
]  # fmt: skip


def _parts(**parts: Callable[[], nn.Module]) -> Callable[[], dict[str, nn.Module]]:
    return lambda: {name: build() for name, build in parts.items()}


TARGET = ["b 8", "b"]
HEAD, CLASSES, PICTURE = _parts(head=lambda: L(8, 1)), _parts(head=lambda: L(8, 4)), _parts(head=lambda: C(3, 1, 1))
ONE, GREY = _parts(), _parts(head=lambda: C(1, 1, 1))
# Right for a batch of one: a name, what is done, its parts, inputs, what is said.
COLUMNS: list[tuple[str, Callable[..., Any], Callable[[], dict[str, nn.Module]], list[str], str]] = [
    ("advantages", lambda m, x, a: -(F.logsigmoid(m.head(x)) * a).mean(), HEAD, TARGET, "mul: [b, 1] and [b]"),
    ("quotients", lambda m, x, y: y / m.head(x), HEAD, TARGET, "div: [b] and [b, 1] broadcast to [b, b]"),
    ("sums", lambda m, x, y: m.head(x).sigmoid() + y, HEAD, TARGET, "add: [b, 1] and [b]"),
    ("comparisons", lambda m, x, y: (m.head(x) > 0) == (y > 0), HEAD, TARGET, "eq: [b, 1] and [b]"),
    ("choices", lambda m, x, y: ts.where(y > 0, m.head(x), y), HEAD, TARGET, "where: "),
    ("hits", lambda m, x, y: m.head(x).argmax(1) == y, CLASSES, ["b 8", "int64[b 1]"], "eq: [b] and [b, 1]"),
    ("hits that keep their axis", lambda m, x, y: m.head(x).argmax(1, keepdim=True) == y, CLASSES,
     ["b 8", "int64[b]"], "eq: [b, 1] and [b]"),
    ("places of the largest", lambda m, x, y: m.head(x).max(1, keepdim=True)[1] == y, CLASSES, ["b 8", "int64[b]"],
     "eq: [b, 1] and [b]"),
    ("values of actions", lambda m, x, a, r: r - m.head(x).gather(1, a[:, None]), CLASSES, ["b 8", "int64[b]", "b"],
     "sub: [b] and [b, 1]"),
    ("overlap of masks", lambda m, x, y: (m.head(x) * y).sum(), PICTURE, ["b 3 h w", "b h w"],
     "mul: [b, 1, h, w] and [b, h, w] broadcast to [b, b, h, w]"),
    ("overlap of grey pictures", lambda m, x, y: (m.head(x[:, None]) * y).sum(), GREY, ["b h w", "b h w"],
     "mul: [b, 1, h, w] and [b, h, w]"),
    ("one-hot", lambda _, x, y: (x * F.one_hot(y, 20)).sum(1), ONE, ["b 20", "int64[b 1]"],
     "mul: [b, 20] and [b, 1, 20] broadcast to [b, b, 20]"),
    ("weights of samples", lambda _, x, w: (F.mse_loss(x, x, reduction="none") * w).mean(), ONE, ["b", "b 1"],
     "mul: [b] and [b, 1]"),
    ("weights in a loss", lambda _, x, w: F.binary_cross_entropy_with_logits(x, x, weight=w), ONE, ["b", "b 1"],
     "binary_cross_entropy_with_logits: [b] and [b, 1]"),
    ("the last step", lambda m, x, y: m.head(x)[:, -1] * y, HEAD, ["b t 8", "b"], "mul: [b, 1] and [b]"),
    ("normal targets", lambda m, x, y: F.gaussian_nll_loss(m.head(x), y, ts.ones(x.shape[0], 1)), HEAD, TARGET,
     "sub: [b, 1] and [b]"),
]  # fmt: skip
