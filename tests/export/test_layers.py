"""Layers and operators of every family, exported with a batch that varies; a part in turn, all with FULL=1."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.export import Dim, export
from tesserack.nn import functional as F
from tesserack.testing import seeds
from tesserack.utils._pytree import tree_leaves

BATCH = Dim("batch", min=2, max=64)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {}


class Of(nn.Module):
    """A function."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def layer(name: str, make: Callable[[], nn.Module], *sizes: tuple[int, ...]) -> None:
    CASES[name] = make, sizes


def of(name: str, f: Callable[..., Any], *sizes: tuple[int, ...]) -> None:
    CASES[name] = (lambda: Of(f)), sizes


layer(
    "ct",
    lambda: nn.ConvTranspose2d(3, 4, 3, stride=2),
    (
        3,
        5,
        5,
    ),
)
layer(
    "c3",
    lambda: nn.Conv3d(2, 3, 2),
    (
        2,
        4,
        4,
        4,
    ),
)
layer(
    "c1",
    lambda: nn.Conv1d(2, 4, 3, groups=2, dilation=2),
    (
        2,
        9,
    ),
)
layer(
    "gn",
    lambda: nn.GroupNorm(2, 4),
    (
        4,
        5,
    ),
)
layer(
    "in",
    lambda: nn.InstanceNorm2d(3, affine=True),
    (
        3,
        4,
        4,
    ),
)
layer(
    "ln",
    lambda: nn.LayerNorm((3, 4)),
    (
        3,
        4,
    ),
)
layer("rms", lambda: nn.RMSNorm(4), (4,))
layer("bn1", lambda: nn.BatchNorm1d(4), (4,))
layer(
    "bn3d",
    lambda: nn.BatchNorm3d(2),
    (
        2,
        3,
        3,
        3,
    ),
)
layer(
    "lrn",
    lambda: nn.LocalResponseNorm(2),
    (
        4,
        3,
        3,
    ),
)
for n in (
    *("ELU", "Hardshrink", "Hardsigmoid", "Hardtanh", "Hardswish", "LeakyReLU"),
    *("LogSigmoid", "PReLU", "ReLU6", "SELU"),
    *(
        "CELU",
        "SiLU",
        "Mish",
        "Softplus",
        "Softshrink",
        "Softsign",
        "Tanhshrink",
        "GELU",
        "GLU",
        "Softmin",
        "LogSoftmax",
    ),
):
    layer(n, lambda n=n: getattr(nn, n)(*((1,) if n in ("Softmin", "LogSoftmax") else ())), (4,))
layer(
    "tr",
    lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval(),
    (
        5,
        8,
    ),
    (
        3,
        8,
    ),
)
layer(
    "enc",
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval(),
    (
        5,
        8,
    ),
)
layer(
    "rnn",
    lambda: nn.RNN(3, 4, batch_first=True),
    (
        5,
        3,
    ),
)
layer("lstmcell", lambda: nn.LSTMCell(3, 4), (3,))
layer("grucell", lambda: nn.GRUCell(3, 4), (3,))
layer("bil", lambda: nn.Bilinear(3, 4, 5), (3,), (4,))
layer("cos", lambda: nn.CosineSimilarity(), (3,), (3,))
layer("pd", lambda: nn.PairwiseDistance(), (3,), (3,))
layer(
    "pix",
    lambda: nn.PixelShuffle(2),
    (
        4,
        3,
        3,
    ),
)
layer(
    "unp",
    lambda: nn.PixelUnshuffle(2),
    (
        1,
        4,
        4,
    ),
)
layer(
    "ups",
    lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    (
        2,
        3,
        3,
    ),
)
layer(
    "fold",
    lambda: nn.Fold((4, 4), 2),
    (
        8,
        9,
    ),
)
layer(
    "unf",
    lambda: nn.Unfold(2),
    (
        2,
        4,
        4,
    ),
)
for n in ["ReflectionPad2d", "ReplicationPad2d", "ZeroPad2d", "CircularPad2d"]:
    layer(
        n,
        lambda n=n: getattr(nn, n)(1),
        (
            2,
            4,
            4,
        ),
    )
layer(
    "amax",
    lambda: nn.AdaptiveMaxPool2d(2),
    (
        2,
        5,
        5,
    ),
)
layer(
    "lp",
    lambda: nn.LPPool2d(2, 2),
    (
        2,
        4,
        4,
    ),
)
layer(
    "avg3",
    lambda: nn.AvgPool3d(2),
    (
        2,
        4,
        4,
        4,
    ),
)
layer(
    "mp1",
    lambda: nn.MaxPool1d(2),
    (
        2,
        5,
    ),
)
for n in ["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss", "BCEWithLogitsLoss"]:
    layer(n, lambda n=n: getattr(nn, n)(), (4,), (4,))
of("ce", lambda x: F.cross_entropy(x, x.argmax(1), label_smoothing=0.1), (4,))
of("nllw", lambda x: F.nll_loss(x.log_softmax(1), x.argmax(1), reduction="none"), (4,))
of(
    "einsum",
    lambda x, y: ts.einsum("bij,bjk->bik", x, y),
    (
        3,
        4,
    ),
    (
        4,
        5,
    ),
)
of(
    "bmm",
    lambda x: x @ x.mT,
    (
        3,
        4,
    ),
)
of(
    "mat1",
    lambda x: x @ ts.ones(4),
    (
        3,
        4,
    ),
)
of("topk", lambda x: x.topk(2), (5,))
of("sort", lambda x: x.sort(0), (5,))
of("gather", lambda x: x.gather(1, x.argsort(1)), (5,))
of("scatter", lambda x: ts.zeros_like(x).scatter_add(1, x.argsort(1), x), (5,))
of("cumsum", lambda x: x.cumsum(0), (5,))
of("std", lambda x: (x.std(0), x.var(), x.norm(), x.prod(1), x.median(0)[0], x.amax(0)), (5,))
of("chunk", lambda x: x.chunk(2, 1), (6,))
of("mesh", lambda x: ts.meshgrid(x[:, 0], x[:, 1], indexing="ij"), (3,))
of("where", lambda x: ts.where(x > 0, x, x.new_zeros(())), (3,))
of("onehot", lambda x: F.one_hot(x.argmax(1), 5), (5,))
of("roll", lambda x: x.roll(1, 0), (3,))
of("flip", lambda x: x.flip(0), (3,))
of("index", lambda x: x[ts.arange(x.shape[0]), x.argmax(1)], (3,))
of("setidx", lambda x: ((y := x.clone()), y.__setitem__((slice(None), ts.tensor([0, 2])), 1.0))[0], (3,))
of("neg", lambda x: x[::2], (3,))
of("negst", lambda x: x[:, ::2].contiguous().view(-1), (4,))
of("repint", lambda x: x.repeat_interleave(2, 0), (3,))
of("tile", lambda x: x.tile(2, 2), (3,))
of("outer", lambda x: ts.outer(x[:, 0], x[:, 1]), (3,))
of("diag", lambda x: ts.diag(x[:, 0]), (3,))
of("tri", lambda x: ts.ones(x.shape[0], x.shape[0]).tril().triu(-1), (3,))
of("lin", lambda x: F.interpolate(x[:, None], size=x.shape[0]), (4,))
of("cx", lambda x: (ts.view_as_complex(x.view(x.shape[0], -1, 2)) * 1j).abs(), (4,))
of("half", lambda x: x.half().float(), (3,))
of("posemb", lambda x: x + ts.sin(ts.arange(x.shape[1])[None] * 0.1), (7,))
of("size", lambda x: x.view(x.size(0), x.size(1) // 2, 2).mean(-1), (6,))
of("numel", lambda x: x.sum() / x.numel(), (3,))
of("unbind", lambda x: ts.stack([t * 2 for t in x.unbind(1)]), (3,))
of(
    "sdpa",
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    (
        2,
        4,
        8,
    ),
)
of(
    "sdpam",
    lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=ts.ones(4, 4).tril().bool()),
    (
        2,
        4,
        8,
    ),
)
of("cdist", lambda x: ts.cdist(x, x), (3,))
of("linalg", lambda x: ts.linalg.norm(x, dim=1), (3,))
of("pow", lambda x: x.abs() ** 0.5, (3,))
of("full", lambda x: ts.full((x.shape[0], 2), float("-inf")).softmax(-1).nan_to_num(), (3,))
of("masked", lambda x: x.masked_fill(ts.arange(x.shape[0])[:, None] > 2, 0), (3,))
of(
    "lstsq",
    lambda x: ts.linalg.solve(x @ x.mT + ts.eye(3), x),
    (
        3,
        3,
    ),
)
of("inner", lambda x: ts.tensordot(x, x, ([1], [1])), (3,))
of("argm", lambda x: (x.argmax(), x.argmin(0), x.any(), x.all(1), x.count_nonzero()), (3,))
of("bucket", lambda x: ts.bucketize(x, ts.tensor([0.0, 1.0])), (3,))
of("hist", lambda x: x.clamp(0, 1).round().long().sum(1), (3,))
layer(
    "embp",
    lambda: nn.Sequential(Of(lambda x: x.argmax(-1)), nn.Embedding(6, 3, padding_idx=0)),
    (
        5,
        6,
    ),
)
of("gumbel", lambda x: F.gumbel_softmax(x), (3,))
of("bern", lambda x: ts.bernoulli(x.sigmoid()), (3,))
layer(
    "drop2",
    lambda: nn.Dropout2d(0.5),
    (
        3,
        2,
        2,
    ),
)
of("mn", lambda x: ts.multinomial(x.abs(), 2), (4,))
of("rp", lambda x: x[ts.randperm(x.shape[0])], (4,))
of("nrm", lambda x: x + ts.randn(x.shape), (4,))
of("normal_", lambda x: ts.empty_like(x).normal_(), (4,))


@pytest.mark.parametrize("name", seeds.turn([*CASES], 4))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_layer_at_any_batch(name: str) -> None:
    make, sizes = CASES[name]
    model = make()
    shapes: Any = tuple({0: BATCH} for _ in sizes)
    args = tuple(ts.randn(4, *size) for size in sizes)
    program = export(model, args, dynamic_shapes=(shapes,) if isinstance(model, Of) else shapes)
    mine, theirs = copy.deepcopy(program).module(), copy.deepcopy(model)
    for count in (4, 9):
        args = tuple(ts.randn(count, *size) for size in sizes)
        ts.manual_seed(0)
        expected = tree_leaves(theirs(*args))
        ts.manual_seed(0)
        for a, b in zip(expected, tree_leaves(mine(*args)), strict=True):
            assert a.shape == b.shape and a.dtype is b.dtype
            assert ts.allclose(a, b, atol=1e-5, equal_nan=True) if a.is_floating_point() else ts.equal(a, b)
    state = mine.state_dict()
    assert all(ts.allclose(value, state[key]) for key, value in theirs.state_dict().items())
