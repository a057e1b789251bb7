"""Pooling of three dims, sampling, losses of sequences and margins, and the layers of them, beside torch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import nn

tnn = torch.nn
RNG = np.random.default_rng(5)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


POOLS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "max3": (lambda f, x: f.max_pool3d(x, 2, return_indices=True), (2, 3, 4, 5, 6)),
    "max3_options": (
        lambda f, x: f.max_pool3d(x, (3, 2, 3), (2, 1, 2), 1, (1, 2, 1), ceil_mode=True, return_indices=True),
        (3, 5, 6, 8),
    ),
    "max3_ceil": (lambda f, x: f.max_pool3d(x, 3, 2, 1, ceil_mode=True), (1, 2, 6, 8, 7)),
    "avg3": (lambda f, x: f.avg_pool3d(x, 2), (2, 3, 4, 5, 6)),
    "avg3_options": (lambda f, x: f.avg_pool3d(x, (3, 2, 3), (2, 1, 2), 1, True), (3, 5, 6, 8)),
    "avg3_without_pad": (lambda f, x: f.avg_pool3d(x, 3, 2, 1, True, False), (1, 2, 6, 8, 7)),
    "avg3_divisor": (lambda f, x: f.avg_pool3d(x, 3, 2, 1, divisor_override=5), (1, 2, 6, 8, 7)),
    "adaptive_avg3": (lambda f, x: [f.adaptive_avg_pool3d(x, s) for s in (1, (2, None, 3))], (2, 3, 4, 5, 6)),
    "adaptive_max3": (
        lambda f, x: [f.adaptive_max_pool3d(x, s, return_indices=True) for s in (1, (2, None, 3))],
        (3, 4, 5, 6),
    ),
    "adaptive_max1": (lambda f, x: [f.adaptive_max_pool1d(x, s, return_indices=True) for s in (1, 3)], (2, 3, 7)),
    "lp1": (lambda f, x: f.lp_pool1d(x.exp(), 3, 3, 2, True), (2, 3, 8)),
    "lp2": (lambda f, x: f.lp_pool2d(x, 2, (2, 3), 2), (2, 3, 8, 7)),
    "lp3": (lambda f, x: f.lp_pool3d(x, 2.0, 2), (2, 3, 4, 4, 6)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name: str, compare: Any) -> None:
    call, shape = POOLS[name]
    compare(lambda m, x: call(m.nn.functional, x), rand(*shape))
    compare(lambda m, x: call(m.nn.functional, x), rand(*shape), dtype="float32")


def test_fractional_pooling(compare: Any) -> None:
    def planes(m: Any, x: Any, u: Any) -> Any:
        f, u = m.nn.functional, u.detach()
        return [
            f.fractional_max_pool2d(x, 2, 4, return_indices=True, _random_samples=u),
            f.fractional_max_pool2d(x, (3, 2), output_ratio=(0.5, 0.7), _random_samples=u),
            f.fractional_max_pool2d(x, 2, (1, 3), _random_samples=u),
        ]

    compare(planes, rand(2, 3, 9, 8), RNG.random((2, 3, 2)))
    compare(
        lambda m, x, u: m.nn.functional.fractional_max_pool3d(
            x, 2, (3, 2, 4), return_indices=True, _random_samples=u.detach()
        ),
        rand(2, 3, 6, 5, 7),
        RNG.random((2, 3, 3)),
    )
    drawn = nn.FractionalMaxPool2d(2, 3)(ts.arange(64.0).reshape(1, 1, 8, 8))
    assert tuple(drawn.shape) == (1, 1, 3, 3)


def test_unpooling(compare: Any) -> None:
    def call(m: Any, x: Any) -> Any:
        f = m.nn.functional
        values, places = f.max_pool3d(x, 2, return_indices=True)
        return [f.max_unpool3d(values, places, 2), f.max_unpool3d(values, places, 2, output_size=x.shape)]

    compare(call, rand(1, 2, 4, 6, 4))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_grid_sample(mode: str, padding: str, corners: bool, compare: Any) -> None:
    def call(m: Any, x: Any, g: Any) -> Any:
        return m.nn.functional.grid_sample(x, g, mode, padding, corners)

    order = 0 if mode == "nearest" else 1
    compare(call, rand(2, 3, 5, 4), rand(2, 3, 6, 2) * 1.3, order=order)
    if mode != "bicubic":
        compare(call, rand(2, 2, 3, 4, 5), rand(2, 2, 3, 4, 3) * 1.3, order=order)


@pytest.mark.parametrize("corners", [False, True])
def test_affine_grid(corners: bool, compare: Any) -> None:
    compare(lambda m, t: m.nn.functional.affine_grid(t, (2, 3, 4, 5), corners), rand(2, 2, 3))
    compare(lambda m, t: m.nn.functional.affine_grid(t, (2, 3, 4, 2, 5), corners), rand(2, 3, 4))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_loss(reduction: str, flat: bool, compare: Any) -> None:
    lengths, sizes = [7, 5, 7, 4], [3, 2, 0, 4]
    labels = [[1, 1, 2, 0], [3, 2, 0, 0], [0, 0, 0, 0], [1, 2, 3, 4]]
    if flat:
        targets: Any = [label for row, size in zip(labels, sizes, strict=True) for label in row[:size]]
    else:
        targets = labels

    def call(m: Any, x: Any) -> Any:
        return m.nn.functional.ctc_loss(x.log_softmax(2), m.tensor(targets, device=x.device), m.tensor(lengths),
                                        m.tensor(sizes), blank=0, reduction=reduction)  # fmt: skip

    compare(call, rand(7, 4, 5), order=1)


def test_impossible_targets(compare: Any) -> None:
    def call(m: Any, x: Any) -> Any:
        f = m.nn.functional
        targets = m.tensor([[1, 1, 1], [1, 2, 3]], device=x.device)
        return f.ctc_loss(x.log_softmax(2), targets, [4, 4], [3, 3], 4, "none", zero_infinity=True)

    compare(call, rand(4, 2, 5), order=1)
    single = ts.tensor(rand(4, 5).tolist()).log_softmax(1)
    assert nn.functional.ctc_loss(single, ts.tensor([1, 2]), ts.tensor(4), ts.tensor(2), reduction="none").ndim == 0


LOSSES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "multi_margin": (
        lambda f, x, t, **o: f.multi_margin_loss(x, t, **o),
        [rand(5, 4), RNG.integers(0, 4, 5)],
    ),
    "multi_margin_weighted": (
        lambda f, x, w, t, **o: f.multi_margin_loss(x, t, 2, 0.7, w.detach().exp(), **o),
        [rand(5, 4), rand(4), RNG.integers(0, 4, 5)],
    ),
    "multi_margin_single": (lambda f, x, t, **o: f.multi_margin_loss(x, t, **o), [rand(4), np.array(2)]),
    "multilabel_margin": (
        lambda f, x, t, **o: f.multilabel_margin_loss(x, t, **o),
        [rand(3, 4), np.array([[1, 3, -1, 0], [-1, 0, 0, 0], [0, 1, 2, 3]])],
    ),
    "multilabel_margin_single": (
        lambda f, x, t, **o: f.multilabel_margin_loss(x, t, **o),
        [rand(4), np.array([2, 0, -1, 1])],
    ),
    "multilabel_soft_margin": (
        lambda f, x, t, w, **o: f.multilabel_soft_margin_loss(x, t.detach().sigmoid(), w.detach().exp(), **o),
        [rand(3, 4), rand(3, 4), rand(4)],
    ),
    "triplet": (
        lambda f, a, p, n, **o: f.triplet_margin_with_distance_loss(a, p, n, margin=2.0, swap=True, **o),
        [rand(3, 4), rand(3, 4), rand(3, 4)],
    ),
    "triplet_distance": (
        lambda f, a, p, n, **o: f.triplet_margin_with_distance_loss(
            a, p, n, distance_function=lambda x, y: (x - y).abs().sum(-1), **o
        ),
        [rand(3, 4), rand(3, 4), rand(3, 4)],
    ),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, reduction: str, compare: Any) -> None:
    call, arrays = LOSSES[name]
    compare(lambda m, *a: call(m.nn.functional, *a, reduction=reduction), *arrays, order=1)


def test_random_activations(device: Any) -> None:
    f = nn.functional
    ts.manual_seed(1)
    x = ts.randn(20000, device=device)
    y = f.rrelu(x, 0.2, 0.4, training=True)
    slopes = (y / x)[x < 0]
    assert y[x > 0].equal(x[x > 0]) and 0.2 <= slopes.min().item() <= slopes.max().item() <= 0.4
    assert slopes.mean().item() == pytest.approx(0.3, abs=0.01)
    dropped = f.alpha_dropout(x, 0.3, training=True)
    assert dropped.mean().item() == pytest.approx(0, abs=0.05) and dropped.std().item() == pytest.approx(1, abs=0.05)
    assert f.alpha_dropout(x, 0.3) is x and not f.alpha_dropout(x, 1.0, True).any()
    whole = f.feature_alpha_dropout(ts.ones(8, 50, 3, device=device), 0.5, training=True)
    assert whole.equal(whole[..., :1].expand(8, 50, 3)) and len(set(whole.flatten().tolist())) == 2
    for name in ("alpha_dropout", "feature_alpha_dropout"):
        with pytest.raises(ValueError):
            getattr(f, name)(ts.ones(2, 2), 1.5, True)


def test_conv_tbc(compare: Any) -> None:
    compare(lambda m, x, w, b: m.nn.functional.conv_tbc(x, w, b, 1) if m is ts else m.conv_tbc(x, w, b, 1),
            rand(5, 2, 3), rand(2, 3, 4), rand(4))  # fmt: skip


LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("MaxPool3d", (2,), {"stride": 1, "ceil_mode": True}, (2, 3, 4, 5, 6)),
    ("AvgPool3d", (2,), {"padding": 1, "count_include_pad": False}, (2, 3, 4, 5, 6)),
    ("AdaptiveAvgPool3d", ((2, None, 1),), {}, (2, 3, 4, 5, 6)),
    ("AdaptiveMaxPool3d", (2,), {}, (3, 4, 5, 6)),
    ("AdaptiveMaxPool1d", (2,), {}, (3, 4, 5)),
    ("LPPool1d", (2, 3), {"stride": 2}, (2, 3, 8)),
    ("LPPool2d", (2, (2, 3)), {"ceil_mode": True}, (2, 3, 8, 7)),
    ("LPPool3d", (2, 2), {}, (2, 3, 4, 4, 4)),
    ("FractionalMaxPool2d", (2, 3), {"_random_samples": "draw2"}, (2, 3, 6, 6)),
    ("FractionalMaxPool3d", (2,), {"output_ratio": 0.5, "_random_samples": "draw3"}, (2, 3, 6, 6, 6)),
    ("RReLU", (0.3, 0.3), {}, (2, 3)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=[row[0] for row in LAYERS])
def test_layers(name: str, args: Any, options: Any, shape: Any, beside: Any) -> None:
    torch.manual_seed(1)
    given = dict(options)
    if "_random_samples" in given:
        given["_random_samples"] = torch.rand(*shape[:2], int(given["_random_samples"][-1]), dtype=torch.double)
    ours, theirs = beside.pair(getattr(nn, name)(*args, **beside.ours(given)), getattr(tnn, name)(*args, **given))
    x = torch.randn(*shape, dtype=torch.double)
    x = x.abs() if name.startswith("LPPool") else x
    x.requires_grad_()
    a = beside.ours(x)
    for mode in (True, False):
        ours.train(mode), theirs.train(mode)
        got, expected = ours(a), theirs(x)
        beside.close(got, expected)
        a.grad = x.grad = None
        got.square().sum().backward(), expected.square().sum().backward()
        beside.close(a.grad, x.grad)


def test_bilinear(beside: Any) -> None:
    for bias in (True, False):
        ours, theirs = beside.pair(nn.Bilinear(4, 3, 2, bias), tnn.Bilinear(4, 3, 2, bias))
        x, y = torch.randn(5, 4, dtype=torch.double), torch.randn(5, 3, dtype=torch.double)
        got, expected = ours(beside.ours(x), beside.ours(y)), theirs(x, y)
        beside.close(got, expected)
        got.square().sum().backward(), expected.square().sum().backward()
        beside.gradients(ours, theirs)


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_log_softmax(head_bias: bool, beside: Any) -> None:
    torch.manual_seed(2)
    ours, theirs = beside.pair(*(n.AdaptiveLogSoftmaxWithLoss(16, 12, [4, 8], 2.0, head_bias) for n in (nn, tnn)))
    x, target = torch.randn(9, 16, dtype=torch.double), torch.tensor([0, 11, 5, 7, 3, 8, 8, 2, 4])
    a, t = beside.ours(x), beside.ours(target)
    got, expected = ours(a, t), theirs(x, target)
    beside.close(list(got), list(expected))
    beside.close(list(ours(a[0], t[0])), list(theirs(x[0], target[0])))
    beside.close(ours.log_prob(a), theirs.log_prob(x))
    assert ours.predict(a).tolist() == theirs.predict(x).tolist()
    got.loss.backward(), expected.loss.backward()
    beside.gradients(ours, theirs)


def test_losses_as_modules(beside: Any) -> None:
    torch.manual_seed(3)
    x = torch.randn(3, 4, dtype=torch.double)
    weight = torch.rand(4, dtype=torch.double)
    target = torch.tensor([0, 3, 1])
    cases = [
        ("MultiMarginLoss", {"p": 2, "weight": weight}, (x, target)),
        ("MultiLabelMarginLoss", {}, (x, torch.tensor([[1, 3, -1, 0]] * 3))),
        ("MultiLabelSoftMarginLoss", {"weight": weight}, (x, (x > 0).double())),
        ("TripletMarginWithDistanceLoss", {"margin": 0.5}, (x, x + 1, x * 2)),
        ("CTCLoss", {"blank": 3}, (x.unsqueeze(1).log_softmax(2), torch.tensor([[1, 2]]), [3], [2])),
    ]
    for (name, options, given), reduction in itertools.product(cases, ("mean", "sum", "none")):
        ours = getattr(nn, name)(**beside.ours(options), reduction=reduction)
        theirs = getattr(tnn, name)(**options, reduction=reduction)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        lengths = [torch.tensor(g) if name == "CTCLoss" and isinstance(g, list) else g for g in given]
        beside.close(ours(*beside.ours(given)), theirs(*lengths), name)


BAD = [
    lambda m: m.nn.functional.max_pool3d(m.ones(1, 2, 2, 2), 3),
    lambda m: m.nn.functional.max_pool3d(m.ones(1, 4, 4, 4), 2, padding=2),
    lambda m: m.nn.functional.avg_pool3d(m.ones(2, 2), 2),
    lambda m: m.nn.functional.avg_pool3d(m.ones(1, 4, 4, 4), 2, divisor_override=0),
    lambda m: m.nn.functional.fractional_max_pool2d(m.ones(1, 4, 4), 2),
    lambda m: m.nn.functional.fractional_max_pool2d(m.ones(1, 4, 4), 2, 4),
    lambda m: m.nn.FractionalMaxPool2d(2, output_ratio=1.5),
    lambda m: m.nn.functional.grid_sample(m.ones(1, 1, 2, 2), m.ones(1, 2, 2, 3), align_corners=False),
    lambda m: m.nn.functional.grid_sample(m.ones(1, 1, 2, 2), m.ones(1, 2, 2, 2), "cubic", align_corners=False),
    lambda m: m.nn.functional.grid_sample(m.ones(1, 1, 2, 2), m.ones(2, 2, 2, 2), align_corners=False),
    lambda m: m.nn.functional.grid_sample(m.ones(1, 1, 2, 2, 2), m.ones(1, 2, 2, 2, 3), "bicubic", align_corners=False),
    lambda m: m.nn.functional.affine_grid(m.ones(1, 2, 2), (1, 1, 2, 2), False),
    lambda m: m.nn.functional.affine_grid(m.ones(1, 2, 3, dtype=m.int64), (1, 1, 2, 2), False),
    lambda m: m.nn.functional.ctc_loss(m.ones(4, 1, 3), m.tensor([[1]]), (5,), (1,)),
    lambda m: m.nn.functional.ctc_loss(m.ones(4, 1, 3), m.tensor([[1]]), (4, 4), (1, 1)),
    lambda m: m.nn.functional.ctc_loss(m.ones(4, 1, 3), m.tensor([[1]]), (4,), (1,), blank=3),
    lambda m: m.nn.functional.multi_margin_loss(m.ones(2, 3), m.tensor([0, 1]), p=3),
    lambda m: m.nn.functional.multi_margin_loss(m.ones(2, 3), m.tensor([0])),
    lambda m: m.nn.functional.multilabel_margin_loss(m.ones(2, 3), m.tensor([0])),
    lambda m: m.nn.functional.rrelu(m.ones(2), 0.5, 0.1, True),
    lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [3, 2]),
    lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2])(m.ones(2, 4), m.tensor([0, 5])),
    lambda m: m.nn.Bilinear(0, 1, 1),
    lambda m: m.nn.MultiMarginLoss(p=3),
    lambda m: m.nn.TripletMarginWithDistanceLoss(margin=0),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_errors(case: int) -> None:
    with pytest.raises(Exception) as expected:
        BAD[case](torch)
    with pytest.raises(expected.type):
        BAD[case](ts)


@pytest.mark.parametrize("shape", [(2, 9000), (2, 3, 3000), (1, 2, 200, 90), (4, 5000)])
def test_long_reflections(shape: tuple[int, ...]) -> None:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    pad = (3, 5) if len(shape) < 4 else (2, 0, 0, 7)
    found = []
    for m in (torch, ts):
        x = m.tensor(numbers.tolist(), requires_grad=True)
        y = m.nn.functional.pad(x, pad, mode="reflect")
        (y * y * m.arange(y.shape[-1])).sum().backward()
        found.append([y.detach().numpy(), x.grad.numpy()])
    for expected, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, 1e-5)
