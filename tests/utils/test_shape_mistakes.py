"""Models tried without data: right ones give nothing, and each planted mistake its module and axis."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.compat import shims
from tesserack.nn import functional as F
from tesserack.utils.shapes import try_shapes


def _models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shape_models", Path(__file__).with_name("shape_models.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules["shape_models"] = importlib.util.module_from_spec(spec)  # annotations are looked up in it
    spec.loader.exec_module(module)
    return module


m = _models()
IMAGE, TOKENS, TEXT = ["batch 3 32 32"], ["int64[batch time]"], ["batch time 32"]
SCORES = ["batch 10", "int64[batch]"]
L, C = nn.Linear, nn.Conv2d
wrap = m.Net

RIGHT: dict[str, tuple[Callable[[], Any], list[str], str]] = {
    "mlp": (m.mlp, ["batch 8"], "[batch, 4]"),
    "mlp of sequences": (m.mlp, ["batch time 8"], "[batch, time, 4]"),
    "convnet": (m.convnet, IMAGE, "[batch, 10]"),
    "residual": (m.residual, ["batch 3 h w"], "[batch, 8, h, w]"),
    "attention": (m.Attention, TEXT, "[batch, time, 32]"),
    "block": (m.block, TEXT, "[batch, time, 32]"),
    "gpt": (m.gpt, TOKENS, "[batch, time, 100]"),
    "positions": (m.positions, ["int64[batch 16]"], "[batch, 16, 32]"),
    "vit": (m.vit, IMAGE, "[batch, 10]"),
    "tagger": (m.tagger, TOKENS, "[batch, time, 5]"),
    "last state": (m.last_state, ["5 batch 6"], "[batch, 3]"),
    "autoencoder": (m.autoencoder, ["batch 28 28"], "[batch, 28, 28]"),
    "vae": (m.vae, ["batch 12"], "[batch, 12]"),
    "unet": (m.unet, IMAGE, "[batch, 2, 32, 32]"),
    "graph": (m.graph, ["nodes 5", "nodes nodes"], "[nodes, 2]"),
    "siamese": (m.siamese, ["batch 4", "batch 4"], "[batch]"),
    "speech": (m.speech, ["batch 40 time"], "[batch, time, 30]"),
    "translate": (m.translate, ["batch time 32", "batch source 32"], "[batch, time, 32]"),
    "upscale": (m.upscale, ["batch 3 h w"], "[batch, 3, 2*h, 2*w]"),
    "mixture": (m.mixture, ["batch 6"], "[batch, 7]"),
    "separable": (m.separable, ["batch 3 h w"], "[batch, 4, h, w]"),
    "classify": (m.classify, ["batch h w"], "[batch, 4]"),
    "scaled": (m.scaled, ["batch 6 h w"], "[batch, 6, h, w]"),
    "cross entropy": (lambda: m.cross_entropy, SCORES, "[]"),
    "squared": (lambda: m.squared, ["batch", "batch"], "[]"),
    "weighted": (lambda: m.weighted, ["batch", "batch"], "[]"),
    "log loss": (lambda: m.log_loss, ["batch time 7", "int64[batch time]"], "[]"),
    "flat": (m.Flat, ["batch 3 h w"], "[batch, 3*h*w]"),
    "pool": (m.Pool, TEXT, "[batch, 32]"),
    "noise": (m.Noisy, ["batch 6"], "[batch, 6]"),
    "a device by name": (
        lambda: wrap(lambda _, x: ts.cat([x.to("cpu"), ts.zeros(x.shape[0], 1, device="cpu")], 1).cpu()),
        ["batch 3"],
        "[batch, 4]",
    ),
    "a constant with data": (
        lambda: wrap(lambda _, x: x[:, ts.tensor([2, 0], device="cpu")] * ts.tensor([0.5, 2.0], device="cpu")),
        ["batch 3"],
        "[batch, 2]",
    ),
    "rows": (m.Rows, ["batch time 7"], "[batch, time, 5]"),
    "a convolution of steps": (lambda: C(3, 4, 5, stride=3), ["batch 3 h w"], "[batch, 4, (h-2)//3, (w-2)//3]"),
    "rows for every position": (lambda: m.numbered(16), ["batch 16 32"], "[batch, 16, 32]"),
    "as many positions as fit": (lambda: m.numbered(64), ["batch time 32"], "[batch, time, 32]"),
    "positions that are cut": (lambda: m.numbered(12, lambda p: p.clamp_(max=11)), ["batch 16 32"], "[batch, 16, 32]"),
    "positions written to by a view": (
        lambda: m.numbered(12, lambda p: (p[8:].fill_(0), p)[1]),
        ["batch 16 32"],
        "[batch, 16, 32]",
    ),
    "values asked for but in an export": (
        lambda: wrap(lambda _, x: x if not ts.compiler.is_exporting() and bool((x > 0).all()) else x.flatten(1)),
        ["batch 3 4"],
        "[batch, 12]",
    ),
    "values asserted on the device": (
        lambda: wrap(lambda _, x: (shims._assert_async((x > 0).all()), x)[1]),
        ["batch 3"],
        "[batch, 3]",
    ),
    "a table cut by positions": (
        lambda: wrap(lambda _, x: x[:, ts.arange(4)].index_select(1, ts.arange(2) + 2)),
        ["batch 4"],
        "[batch, 2]",
    ),
    "rows chosen by a mask of the model's": (
        lambda: wrap(lambda _, x: x.masked_fill(ts.ones_like(x, dtype=ts.bool), 0.0)),
        ["batch 4"],
        "[batch, 4]",
    ),
    "differences of all pairs": (
        lambda: wrap(lambda _, x: (x[:, None] - x) / (x.view(-1, 1) - x.unsqueeze(0)) + x.expand(2, -1).sum(0) - x),
        ["batch"],
        "[batch, batch]",
    ),
    "forces of an energy": (m.Forces, ["n 3"], "[n, 3]"),
    "forces of what a caller has require gradients": (lambda: m.Forces(False), ["n 3"], "[n, 3]"),
    "lazy layers": (
        lambda: nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(10)),
        IMAGE,
        "[batch, 10]",
    ),
    "lazy layers of a named width": (lambda: nn.Sequential(nn.LazyLinear(4), L(4, 2)), ["batch dim"], "[batch, 2]"),
    "normal targets": (
        lambda: lambda x, y, v: F.gaussian_nll_loss(x, y, v.exp()),
        ["batch 3", "batch 3", "batch 3"],
        "[]",
    ),
    "labels for steps": (
        lambda: lambda x, y, n: F.ctc_loss(x, y, ts.full((x.shape[1],), 9), n, reduction="none"),
        ["time batch 20", "int64[batch len]", "int64[batch]"],
        "[batch]",
    ),
    "labels for steps in a row": (m.aligned, ["time batch 20", "int64[total]", "int64[batch]"], "[]"),
    "packed sequences": (m.packed, ["batch time 8", "int64[batch]"], "[batch, time, 5]"),
    **{f"all pairs, {name}": (lambda f=f: wrap(f), inputs, out) for name, f, inputs, out in m.PAIRS},
    "several outputs": (lambda: nn.LSTM(3, 4), ["t n 3"], "([t, n, 4], ([1, n, 4], [1, n, 4]))"),
}

# What is wrong: how it is built, its inputs, the path of the module, what the message says.
WRONG: list[tuple[str, Callable[[], Any], list[str], str, list[str]]] = [
    # layers of the wrong width
    ("next layer too wide", lambda: m.mlp(taken=17), ["batch 8"], "3", ["[batch, 16]", "takes 17"]),
    ("next layer too narrow", lambda: m.mlp(taken=8), ["batch time 8"], "3", ["[batch, time, 16]", "takes 8"]),
    ("norm of another width", lambda: m.mlp(norm=8), ["batch 8"], "1", ["[8]", "[batch, 16]"]),
    ("input of another width", m.mlp, ["batch 9"], "0", ["[batch, 9]", "takes 8"]),
    ("input turned", m.mlp, ["8 batch"], "0", ["[8, batch]", "last size batch"]),
    ("head of another width", lambda: m.gpt(head=64), TOKENS, "head", ["[batch, time, 32]", "takes 64"]),
    ("mlp of a block not widened", lambda: m.gpt(inner=32), TOKENS, "blocks.1.mlp.2", ["128", "takes 32"]),
    ("norm inside a block", lambda: m.gpt(norm=16), TOKENS, "blocks.1.norm", ["[16]", "[batch, time, 32]"]),
    ("embedding of another width", lambda: m.gpt(dim=48), TOKENS, "blocks.0.norm", ["[32]", "[batch, time, 48]"]),
    ("code of another width", lambda: m.autoencoder(taken=8), ["batch 28 28"], "1.0", ["[batch, 4]", "takes 8"]),
    ("two heads that differ", lambda: m.vae(deviation=6), ["batch 12"], "", ["[batch, 5]", "[batch, 6]"]),
    ("decoder of another width", lambda: m.vae(6, 6), ["batch 12"], "decode", ["[batch, 6]", "takes 5"]),
    ("graph layer", lambda: m.graph(out=9), ["nodes 5", "nodes nodes"], "two", ["[nodes, 8]", "takes 9"]),
    ("twins that differ", lambda: m.siamese(second=7), ["batch 4", "batch 4"], "", ["6", "7"]),
    # convolutions
    (
        "channels between layers",
        lambda: m.convnet(a=8, b=4),
        IMAGE,
        "1.0",
        ["expected input[batch, 8, 16, 16]", "4 channels"],
    ),
    ("channels of the picture", m.convnet, ["batch 1 32 32"], "0.0", ["[batch, 1, 32, 32]", "3 channels"]),
    ("channels last", m.convnet, ["batch 32 32 3"], "0.0", ["[batch, 32, 32, 3]", "3 channels"]),
    ("norm of a convolution", lambda: m.convnet(norm=16), IMAGE, "0.1", ["16", "8"]),
    ("rows after flatten", lambda: m.convnet(flat=16 * 4 * 4), IMAGE, "3", ["[batch, 1024]", "takes 256"]),
    ("rows for another picture", m.convnet, ["batch 3 28 28"], "3", ["[batch, 784]", "takes 1024"]),
    (
        "step in one branch",
        lambda: m.residual(stride=2),
        ["batch 3 32 32"],
        "1",
        ["[batch, 8, 32, 32]", "[batch, 8, 16, 16]"],
    ),
    ("no padding in one branch", lambda: m.residual(padding=0), ["batch 3 h w"], "1", ["[batch, 8, h, w]", "h - 2"]),
    (
        "shortcut of other channels",
        lambda: m.residual(skip=16),
        ["batch 3 h w"],
        "1",
        ["[batch, 16, h, w]", "[batch, 8, h, w]"],
    ),
    ("joined channels", lambda: m.unet(joined=8), IMAGE, "leave", ["[batch, 16, 32, 32]", "8 channels"]),
    ("joined along another axis", lambda: m.unet(axis=0), IMAGE, "leave", ["[2*batch, 8, 32, 32]", "16 channels"]),
    ("up to other channels", lambda: m.unet(up=4), IMAGE, "leave", ["[batch, 12, 32, 32]"]),
    ("odd picture halved and doubled", m.unet, ["batch 3 31 31"], "", ["31", "30"]),
    ("channels for a shuffle", lambda: m.upscale(channels=10), IMAGE, "1", ["10"]),
    ("channels after a shuffle", lambda: m.upscale(channels=16), IMAGE, "2", ["[batch, 4, 64, 64]", "3 channels"]),
    ("depthwise of other channels", lambda: m.separable(width=16), IMAGE, "2", ["[batch, 16, 32, 32]", "8 channels"]),
    (
        "axis for channels missing",
        lambda: m.classify(unsqueezed=False),
        ["batch h w"],
        "conv",
        ["input[1, batch, h, w]", "got batch channels"],
    ),
    ("grey into colour", lambda: m.classify(channels=3), ["batch h w"], "conv", ["[batch, 1, h, w]", "3 channels"]),
    ("factors not widened", lambda: m.scaled(axes=0), ["batch 6 h w"], "", ["[batch, 6, h, w]", "[batch, 6]"]),
    ("kernel larger than the picture", lambda: C(3, 4, 7), ["batch 3 5 5"], "", ["5", "7"]),
    # attention
    ("heads split", lambda: m.Attention(split=8), TEXT, "", ["[batch, time, 8, 8]"]),
    (
        "heads not before time",
        lambda: m.gpt(no_transpose=True),
        TOKENS,
        "blocks.1.attn",
        ["heads is 4, got time", "`q`"],
    ),
    (
        "keys turned too early",
        lambda: m.gpt(k_turned=True),
        TOKENS,
        "blocks.1.attn",
        ["time from `q`", "`k`", "axis 2"],
    ),
    (
        "keys not turned",
        lambda: m.gpt(k_not_turned=True),
        TOKENS,
        "blocks.1.attn",
        ["attend", "time", "dim=8 from `q`"],
    ),
    ("values before weights", lambda: m.gpt(v_first=True), TOKENS, "blocks.1.attn", ["attend", "dim=8 from `q`"]),
    (
        "heads not joined",
        lambda: m.gpt(not_joined=True),
        TOKENS,
        "blocks.1.attn.out",
        ["[batch, 4, time, 8]", "takes 32"],
    ),
    ("bias one too long", lambda: m.gpt(bias=True), TOKENS, "blocks.1.attn", ["time", "time + 1"]),
    ("output of another width", lambda: m.gpt(out=64), TOKENS, "blocks.1.attn.out", ["[batch, time, 32]", "takes 64"]),
    (
        "memory of another width",
        lambda: m.translate(memory=16),
        ["batch time 32", "batch source 32"],
        "cross",
        ["16", "32"],
    ),
    ("batch of memory", m.translate, ["batch time 32", "source batch 32"], "cross", ["batch", "source"]),
    ("positions too short", lambda: m.positions(length=15), ["int64[batch 16]"], "", ["[batch, 16, 32]", "[15, 32]"]),
    ("positions too narrow", lambda: m.positions(dim=16), ["int64[batch 16]"], "", ["[batch, 16, 32]", "[16, 16]"]),
    ("patches not turned", lambda: m.vit(turned=False), IMAGE, "", ["[batch, 32, 16]", "[16, 32]"]),
    ("patches of another size", lambda: m.vit(patch=4), IMAGE, "", ["[batch, 64, 32]", "[16, 32]"]),
    ("patches of another width", lambda: m.vit(channels=16), IMAGE, "", ["[batch, 16, 16]", "[16, 32]"]),
    ("rows too few", lambda: m.numbered(12), ["batch 16 32"], "place", ["index 15", "weight [12, 32]"]),
    ("rows one too few", lambda: m.numbered(16, lambda p: p + 1), ["batch 16 32"], "place", ["index 16", "[16, 32]"]),
    (
        "a row that a kind lacks",
        lambda: wrap(lambda s, t: s.kind(ts.full_like(t, 2)), kind=nn.Embedding(2, 4)),
        TOKENS,
        "kind",
        ["index 2", "weight [2, 4]"],
    ),
    (
        "positions of a table by an index",
        lambda: wrap(lambda s, x: x + s.table.weight[ts.arange(x.shape[1])], table=nn.Embedding(12, 32)),
        ["batch 16 32"],
        "",
        ["index 15", "axis 0, of size 12"],
    ),
    (
        "columns chosen by positions",
        lambda: wrap(lambda _, x: x.index_select(-1, ts.arange(4) * 3)),
        ["batch 9"],
        "",
        ["index 9", "axis 1, of size 9"],
    ),
    ("mask of attention turned", m.mha, [*TEXT, "batch source 32", "bool[source time]"], "attend", ["(source, time)"]),
    (
        "mismatch behind values asked for",
        lambda: wrap(lambda s, x: s.head(x.relu() if ts.compiler.is_exporting() or (x > 0).all() else x), head=L(4, 2)),
        ["batch 3"],
        "head",
        ["[batch, 3]", "takes 4"],
    ),
    # sequences
    (
        "state of another width",
        lambda: wrap(lambda s, x, h: s.lstm(x, (h, h))[0], lstm=nn.LSTM(8, 16, batch_first=True)),
        ["batch time 8", "1 batch 12"],
        "lstm",
        ["(1, batch, 16)", "[1, batch, 12]"],
    ),
    (
        "batch not first in the layer",
        lambda: wrap(lambda s, x, h: s.lstm(x, (h, h))[0], lstm=nn.LSTM(8, 16)),
        ["batch time 8", "1 batch 16"],
        "lstm",
        ["(1, time, 16)", "[1, batch, 16]"],
    ),
    ("one direction of two", lambda: m.tagger(both=False), TOKENS, "out", ["[batch, time, 12]", "takes 24"]),
    ("two directions for one", lambda: m.tagger(out=12), TOKENS, "out", ["[batch, time, 24]", "takes 12"]),
    ("input of the layer", lambda: m.tagger(size=8), TOKENS, "lstm", ["8", "6"]),
    ("last state", lambda: m.last_state(out=24), ["5 batch 6"], "out", ["[batch, 12]", "takes 24"]),
    ("channels as time", lambda: m.speech(turned=False), ["batch 40 time"], "gru", ["16", "time"]),
    ("features after time", m.speech, ["batch time 40"], "conv", ["[batch, time, 40]", "40 channels"]),
    ("gate of another width", lambda: m.mixture(gates=5), ["batch 6"], "", ["4", "5"]),
    ("picture from a row", lambda: m.autoencoder(shape=(28, 27)), ["batch 28 28"], "1.3", ["784"]),
    ("weight not turned", lambda: m.Rows(turned=False), ["batch time 7"], "", ["7 is dim", "5 is out"]),
    ("weight made turned", lambda: m.Rows(7, 5), ["batch time 7"], "", ["dim is 5, got 7", "`self.weight`"]),
    ("rows of a graph as columns", lambda: m.graph(turned=True), ["nodes 5", "nodes nodes"], "two", ["[8, nodes]"]),
    (
        "joined along the wrong axis",
        lambda: wrap(lambda _, x, y: ts.cat([x, y], -1)),
        ["batch time 8", "batch source 8"],
        "",
        ["Dimension 1 of [batch, time, 8] and [batch, source, 8] differs"],
    ),
    # what broadcasts or joins in silence, found by annotations
    ("an object of another name", m.Table, ["batch 16 32"], "", ["length is 12, got 16", "`this.table`"]),
    ("flatten with the batch", lambda: m.Flat(lambda x: x.flatten()), ["batch 3 h w"], "", ["batch", "got 1 of shape"]),
    ("flatten too little", lambda: m.Flat(lambda x: x.flatten(2)), ["batch 3 h w"], "", ["2 axes", "got 3"]),
    (
        "flatten in another order",
        lambda: m.Flat(lambda x: x.permute(1, 0, 2, 3).flatten(1)),
        ["batch 3 h w"],
        "",
        ["batch"],
    ),
    ("mean over the batch", lambda: m.Pool(axis=0), TEXT, "", ["batch", "got time"]),
    ("mean over features", lambda: m.Pool(axis=2), TEXT, "", ["dim is 32, got time"]),
    ("mean keeps its axis", lambda: m.Pool(kept=True), TEXT, "", ["2 axes", "got 3"]),
    ("target as a column", lambda: m.squared, ["batch", "batch 1"], "", ["`target`", "1 axes", "got 2"]),
    ("prediction as a column", lambda: m.squared, ["batch 1", "batch"], "", ["`prediction`", "1 axes", "got 2"]),
    ("one weight too many", lambda: m.weighted, ["batch", "batch+1"], "", ["batch from `losses`", "got batch + 1"]),
    ("losses not added", lambda: wrap(lambda _, x: m.weighted(x, x, True)), ["batch"], "", ["the result", "got 1"]),
    ("scores turned", lambda: m.cross_entropy, ["10 batch", "int64[batch]"], "", ["batch is 10", "`target`"]),
    ("targets as one-hot", lambda: m.cross_entropy, ["batch 10", "int64[batch 10]"], "", ["`target`", "got 2"]),
    ("targets as floats", lambda: m.cross_entropy, ["batch 10", "batch"], "", ["`target` is Int", "float32"]),
    (
        "classes not before time",
        lambda: wrap(lambda _, x, y: m.log_loss(x, y, False)),
        ["batch time 7", "int64[batch time]"],
        "",
        ["log_loss", "batch", "time"],
    ),
    *(
        (
            f"{loss.__name__} of a column and a row",
            lambda loss=loss: wrap(lambda _, x, y: loss(x, y)),
            ["batch 1", "batch"],
            "",
            ["target size (tesserack.Size([batch]))", "input size (tesserack.Size([batch, 1]))", "broadcasting"],
        )
        for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
    ),
    (
        "a difference of a column and a row",
        lambda: wrap(lambda s, x, y: (y - s.head(x)).pow(2).mean(), head=L(4, 1)),
        ["batch 4", "batch"],
        "",
        ["[batch] and [batch, 1] broadcast to [batch, batch]"],
    ),
    *(
        (f"a column and a row, {name}", lambda f=f, p=parts: wrap(f, **p()), inputs, "", [said, "rarely meant"])
        for name, f, parts, inputs, said in m.COLUMNS
    ),
    *(
        (
            f"{loss.__name__} of a column and a row",
            lambda loss=loss: wrap(lambda _, x, y: loss(x, y)),
            ["batch 1", "batch"],
            "",
            [f"{loss.__name__}: [batch, 1] and [batch] broadcast to [batch, batch]"],
        )
        for loss in (F.poisson_nll_loss, F.soft_margin_loss, F.hinge_embedding_loss)
    ),
    (
        "divergence of a column and a row",
        lambda: wrap(lambda _, x, y: F.kl_div(x, y, reduction="batchmean")),
        ["batch 1", "batch"],
        "",
        ["kl_div: [batch, 1] and [batch] broadcast"],
    ),
    (
        "ranks of columns by a row",
        lambda: wrap(lambda _, x, y, z: F.margin_ranking_loss(x, y, z)),
        ["batch 1", "batch 1", "batch"],
        "",
        ["margin_ranking_loss: [batch, 1] and [batch] broadcast"],
    ),
    (
        "variances of another width",
        lambda: wrap(lambda _, x, v: F.gaussian_nll_loss(x, x, v)),
        ["batch 8", "batch 3"],
        "",
        ["var is of incorrect size", "[batch, 3]"],
    ),
    (
        "a length of steps too many",
        lambda: m.aligned(1),
        ["time batch 20", "int64[batch len]", "int64[batch]"],
        "",
        ["expected batch input and target lengths, got batch + 1 and batch"],
    ),
    (
        "labels turned",
        m.aligned,
        ["time batch 20", "int64[len batch]", "int64[batch]"],
        "",
        ["expected targets (batch, at least 0), got (len, batch)"],
    ),
    ("a length too many", m.packed, ["batch time 8", "int64[batch+1]"], "", ["batch + 1 lengths", "(time, batch, 8)"]),
    ("packed into another width", lambda: m.packed(9), ["batch time 8", "int64[batch]"], "lstm", ["Expected 9, got 8"]),
    ("forces of another width", lambda: m.Forces(out=4), ["n 3"], "", ["nx3 and 4x2"]),
    (
        "behind a lazy layer",
        lambda: nn.Sequential(nn.LazyLinear(4), L(5, 2)),
        ["batch dim"],
        "1",
        ["[batch, 4]", "takes 5"],
    ),
    (
        "a table cut by the wrong axis",
        lambda: wrap(lambda s, x: x * s.table.weight[: x.shape[1]], table=nn.Embedding(256, 16)),
        ["batch heads time 16"],
        "",
        ["tensor a (time)", "tensor b (min(heads, 256))", "[min(heads, 256), 16]"],
    ),
    ("tensors of a plain loss", lambda: F.cross_entropy, ["batch 10", "int64[other]"], "", ["batch", "other"]),
]


@pytest.mark.parametrize(("build", "inputs", "output"), RIGHT.values(), ids=RIGHT)
def test_right_models(build: Callable[[], Any], inputs: list[str], output: str) -> None:
    report = try_shapes(build(), *inputs)
    assert report.mismatch is None, str(report)
    assert report.rows[0].output == output


@pytest.mark.parametrize(("build", "inputs", "path", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_planted_mistakes(build: Callable[[], Any], inputs: list[str], path: str, said: list[str]) -> None:
    report = try_shapes(build(), *inputs)
    assert report.mismatch is not None, str(report)
    assert report.mismatch.path == path, str(report)
    assert [part for part in said if part not in report.mismatch.message] == [], str(report)


def test_enough_mistakes_are_planted() -> None:
    assert len(WRONG) >= 60 and len({w[0] for w in WRONG}) == len(WRONG)


def test_nothing_is_allocated_or_run() -> None:
    """By any kernel this would need terabytes."""
    with ts.device("meta"):
        net = nn.Sequential(L(10**6, 10**6), nn.ReLU(), L(10**6 + 1, 1))
    report = try_shapes(net, "batch 1000000")
    assert report.mismatch is not None and report.mismatch.path == "2"
    assert "mismatch at `2` (Linear)" in str(report)


def test_the_model_stays_as_it_is() -> None:
    net = m.mlp()
    weight = net[0].weight
    try_shapes(net, "batch 8")
    assert net[0].weight is weight and weight.device.type != "meta" and net(ts.ones(2, 8)).shape == (2, 4)


def test_a_model_that_ran_before_is_copied_with_what_it_kept() -> None:
    net = m.Noisy()
    drawn = (net(ts.ones(3, 6)), net.drawn[0])[1]
    assert try_shapes(net, "batch 6").mismatch is None
    assert net.drawn[0] is drawn and drawn.device.type != "meta"


def test_what_asks_for_values_is_no_mismatch() -> None:
    for model, inputs in (
        (wrap(lambda _, x: x * x.sum().item()), ["batch 3"]),
        (wrap(lambda _, x: ts.bincount(x)), ["int64[n]"]),
        (wrap(lambda _, x: F.one_hot(x)), ["int64[n]"]),
        (wrap(lambda _, x: x.numpy()), ["n"]),
        (wrap(lambda _, x: f"{x.sum():.2f}"), ["n"]),
        (wrap(lambda _, x: x if ts.equal(x, x + 1) else -x), ["n"]),
        (wrap(lambda _, x: x[x > 0]), ["n"]),
        (wrap(lambda _, x: x.unique()), ["n"]),
    ):
        assert str(try_shapes(model, *inputs)).startswith("cannot be tried beyond the model (Net): ")


def test_a_lazy_model_stays_lazy() -> None:
    net = nn.Sequential(nn.LazyLinear(4))
    report = try_shapes(net, "batch 8")
    assert report.rows[1].kind == "Linear" and report.parameters == 36 and report.rows[1].flops == "64*batch"
    assert isinstance(net[0], nn.LazyLinear) and net(ts.ones(2, 3)).shape == (2, 4)


def test_pairs_of_sizes_without_a_name_come_before_those_with_one() -> None:
    both = wrap(lambda _, x, y, a, b: (a * b).sum() + (x * y).sum())
    assert try_shapes(both, "7", "7 1", "batch 7", "batch 7").mismatch is None
    report = try_shapes(both, "batch", "batch 1", "7 1", "7")
    assert report.mismatch is not None and "[batch] and [batch, 1]" in report.mismatch.message


def test_a_function_that_builds_is_told_from_one_of_tensors() -> None:
    for build, kind in ((lambda width: L(8, width), "Linear"), (lambda depth: C(3, 4, 3), "Conv2d")):
        with pytest.raises(TypeError, match=rf"builds a module \({kind}\) of its arguments .*`def build\(\): return"):
            try_shapes(build, "batch 8")
    assert try_shapes(lambda x: L(8, 4)(x), "batch 8").rows[0].output == "[batch, 4]"


def test_counts_are_those_of_the_summary() -> None:
    net = m.convnet()
    report, found = try_shapes(net, "32 3 32 32"), ts.summary(net, (32, 3, 32, 32))
    assert report.parameters == found.parameters and report.flops == f"{found.flops:,}"


def test_peak_is_what_lives_at_once() -> None:
    """Two results of 4 KiB for each sample are alive while the second is made, and the first not after it."""
    net = nn.Sequential(*(L(1024, 1024, bias=False) for _ in range(5)))
    report = try_shapes(net, "batch 1024")
    assert report.peak == "8.0 KiB*batch" and report.kept == "20.0 KiB*batch"


def test_what_a_trial_cannot_do() -> None:
    report = try_shapes(wrap(lambda _, x: x * x.sum().item()), "batch 3")
    assert report.mismatch is not None and "asks a tensor for its values" in report.mismatch.message
    with pytest.raises(TypeError, match="does not take these 2 inputs"):
        try_shapes(L(3, 4), "batch 3", "batch 3")
    for text, said in (
        ("batch ...", "'...' has no size"),
        ("none[batch]", "'none' is no dtype"),
        ("a[b", "expected axes"),
    ):
        with pytest.raises(ValueError, match=said):
            try_shapes(L(3, 4), text)
