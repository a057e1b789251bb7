"""Convolution, pooling, softmax, normalisation, losses, embedding and optimizer steps against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

Call = Callable[..., Any]
RNG = np.random.default_rng(2)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


CONVS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("conv1d", (2, 4, 9), (6, 4, 3), {}),
    ("conv1d", (4, 9), (6, 2, 3), {"groups": 2, "stride": 2, "padding": 1}),
    ("conv1d", (2, 4, 9), (6, 4, 4), {"padding": "same", "dilation": 2}),
    ("conv2d", (2, 4, 6, 7), (6, 4, 3, 2), {}),
    ("conv2d", (2, 4, 6, 7), (6, 4, 3, 3), {"padding": 1, "stride": 2}),
    ("conv2d", (2, 4, 6, 7), (6, 4, 3, 3), {"padding": (2, 1), "stride": (1, 2), "dilation": (2, 1)}),
    ("conv2d", (2, 4, 6, 7), (8, 1, 3, 3), {"groups": 4, "padding": 1}),
    ("conv2d", (2, 4, 6, 7), (6, 2, 1, 1), {"groups": 2}),
    ("conv2d", (4, 6, 7), (6, 4, 3, 3), {"padding": "same"}),
    ("conv2d", (2, 4, 6, 7), (6, 4, 2, 3), {"padding": "valid", "stride": 3}),
    ("conv2d", (0, 4, 6, 7), (6, 4, 3, 3), {}),
    ("conv3d", (2, 2, 4, 5, 4), (4, 2, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 2, "output_padding": 1}),
    ("conv_transpose2d", (2, 4, 5, 4), (4, 3, 3, 2), {"stride": 2, "padding": 1, "dilation": 2}),
    ("conv_transpose2d", (4, 5, 4), (4, 2, 3, 3), {"groups": 2, "stride": (3, 2), "output_padding": (1, 0)}),
    ("conv_transpose3d", (1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {"stride": 2}),
]


@pytest.mark.parametrize("case", range(len(CONVS)))
def test_convolution(compare: Call, case: int) -> None:
    name, x, w, options = CONVS[case]
    outputs = w[1] * options.get("groups", 1) if "transpose" in name else w[0]

    def call(m: Any, x: Any, w: Any, b: Any) -> Any:
        f = getattr(m.nn.functional, name)
        return [f(x, w, b, **options), f(x, w, **options)]

    compare(call, rand(*x), rand(*w), rand(outputs))
    compare(call, rand(*x), rand(*w), rand(outputs), dtype="float32")


def test_convolution_layouts(compare: Call) -> None:
    def call(m: Any, x: Any, w: Any) -> Any:
        x = x.permute(0, 3, 1, 2)
        return m.nn.functional.conv2d(x, w, padding=1)

    compare(call, rand(2, 6, 7, 4), rand(6, 4, 3, 3))
    compare(call, rand(2, 6, 7, 4), rand(6, 4, 3, 3), dtype="float32")
    last = ts.ones(2, 4, 6, 7, device="cpu").contiguous(memory_format=ts.channels_last)
    out = ts.nn.functional.conv2d(last, ts.ones(6, 4, 3, 3, device="cpu"))
    assert out.is_contiguous(memory_format=ts.channels_last)


POOLS: dict[str, tuple[Call, tuple[int, ...]]] = {
    "max2": (lambda m, x: m.nn.functional.max_pool2d(x, 2), (2, 3, 6, 7)),
    "max_options": (
        lambda m, x: m.nn.functional.max_pool2d(x, (3, 2), stride=(2, 1), padding=1, dilation=(2, 1), ceil_mode=True),
        (2, 3, 8, 7),
    ),
    "max_ceil": (lambda m, x: m.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 6, 8)),
    "max_indices": (lambda m, x: m.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 3, 6, 7)),
    "max_layout": (lambda m, x: m.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2), (2, 6, 7, 3)),
    "max1": (lambda m, x: m.nn.functional.max_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "avg2": (lambda m, x: m.nn.functional.avg_pool2d(x, 2), (2, 3, 6, 7)),
    "avg_options": (lambda m, x: m.nn.functional.avg_pool2d(x, (3, 2), (2, 1), 1, ceil_mode=True), (2, 3, 8, 7)),
    "avg_ceil": (
        lambda m, x: m.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (3, 6, 8),
    ),
    "avg_divisor": (lambda m, x: m.nn.functional.avg_pool2d(x, 3, divisor_override=2), (2, 3, 6, 7)),
    "avg_layout": (lambda m, x: m.nn.functional.avg_pool2d(x.permute(0, 3, 1, 2), 2, padding=1), (2, 6, 7, 3)),
    "avg1": (lambda m, x: m.nn.functional.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "adaptive_avg": (lambda m, x: [m.nn.functional.adaptive_avg_pool2d(x, s) for s in (1, 2, 3, (4, 5))], (2, 3, 6, 7)),
    "adaptive_avg1": (lambda m, x: m.nn.functional.adaptive_avg_pool1d(x, 4), (2, 3, 7)),
    "adaptive_max": (lambda m, x: [m.nn.functional.adaptive_max_pool2d(x, s) for s in (1, 2, (4, 5))], (2, 3, 6, 7)),
    "empty_batch": (lambda m, x: [m.nn.functional.max_pool2d(x, 2), m.nn.functional.avg_pool2d(x, 2)], (0, 3, 6, 7)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(compare: Call, name: str) -> None:
    call, shape = POOLS[name]
    compare(call, rand(*shape))
    compare(call, rand(*shape), dtype="float32")


def test_pooling_of_minus_infinity(compare: Call) -> None:
    for dilation in (1, 2):
        compare(
            lambda m, x, d=dilation: m.nn.functional.max_pool2d(x, 3, 1, 1, d, return_indices=True),
            np.full((1, 1, 5, 5), -np.inf),
            order=0,
        )


def test_softmax(compare: Call) -> None:
    f = "functional"
    for shape in ((3, 4), (2, 3, 4), (5,), (), (0, 3), (3, 0)):
        for dim in {0, -1, len(shape) // 2 - 1 if shape else 0}:
            x = rand(*shape) * 3
            compare(
                lambda m, x, d=dim: [
                    getattr(m.nn, f).softmax(x, d),
                    m.softmax(x, dim=d),
                    x.log_softmax(d),
                    getattr(m.nn, f).softmin(x, d),
                ],
                x,
            )
            compare(lambda m, x, d=dim: [x.softmax(d), x.log_softmax(d)], x, dtype="float32")
            compare(lambda m, x, d=dim: [x.softmax(d), x.log_softmax(d)], x, dtype="bfloat16")
    compare(
        lambda m, x: [x.softmax(0, dtype=m.float32), x.float().log_softmax(0, dtype=m.float64)], rand(3, 4), order=0
    )
    compare(lambda m, x: [x.softmax(0, dtype=m.float32)], RNG.integers(0, 4, (3, 4)))
    big = np.array([[1e30, 0.0, -1e30], [np.inf, 0, 0], [-np.inf, 0, 1], [-np.inf] * 3, [np.nan, 0, 1]])
    compare(lambda m, x: [x.softmax(1), x.log_softmax(1)], big, order=0)
    compare(lambda m, x: [x.transpose(0, 1).softmax(1), x.transpose(0, 1).log_softmax(0)], rand(3, 4))


NORMS: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "layer": (lambda m, x, w, b: m.nn.functional.layer_norm(x, (5,), w, b), [(2, 3, 5), (5,), (5,)]),
    "layer2": (lambda m, x, w: m.nn.functional.layer_norm(x, (3, 5), w, eps=0.1), [(2, 3, 5), (3, 5)]),
    "layer_plain": (lambda m, x: m.nn.functional.layer_norm(x, [3, 5]), [(3, 5)]),
    "layer_strided": (lambda m, x: m.nn.functional.layer_norm(x.transpose(1, 2), [3]), [(2, 3, 5)]),
    "layer_empty": (lambda m, x, w: m.nn.functional.layer_norm(x, [3], w), [(0, 3), (3,)]),
    "batch": (lambda m, x, w, b: m.nn.functional.batch_norm(x, None, None, w, b, True), [(4, 3, 5, 2), (3,), (3,)]),
    "batch2d": (lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True, eps=0.1), [(4, 3)]),
    "batch_layout": (
        lambda m, x, w: m.nn.functional.batch_norm(x.permute(0, 3, 1, 2), None, None, w, training=True),
        [(4, 5, 2, 3), (3,)],
    ),
    "group": (lambda m, x, w, b: m.nn.functional.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    "instance": (lambda m, x, w, b: m.nn.functional.instance_norm(x, weight=w, bias=b), [(2, 3, 4, 5), (3,), (3,)]),
    "rms": (
        lambda m, x, w: [m.nn.functional.rms_norm(x, (5,), w), m.nn.functional.rms_norm(x, (5,), eps=0.1)],
        [(2, 3, 5), (5,)],
    ),
    "normalize": (lambda m, x: [m.nn.functional.normalize(x), m.nn.functional.normalize(x, 1.0, -1)], [(2, 3, 5)]),
    "local": (lambda m, x: m.nn.functional.local_response_norm(x, 3, 0.1, 0.7, 2.0), [(2, 5, 4)]),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalisation(compare: Call, name: str) -> None:
    call, shapes = NORMS[name]
    compare(call, *[rand(*s) for s in shapes])
    compare(call, *[rand(*s) for s in shapes], dtype="float32")
    if name not in ("local", "normalize"):
        compare(call, *[rand(*s) for s in shapes], dtype="bfloat16")


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics(compare: Call, training: bool) -> None:
    def call(m: Any, x: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
        mean, var = mean.detach().clone(), var.detach().exp()
        out = m.nn.functional.batch_norm(x, mean, var, w, b, training, 0.3)
        return [out, mean, var]

    compare(call, rand(4, 3, 5), rand(3), rand(3), rand(3), rand(3))
    compare(call, rand(4, 3, 5), rand(3), rand(3), rand(3), rand(3), dtype="float32")

    def instance(m: Any, x: Any, mean: Any, var: Any) -> Any:
        mean, var = mean.detach().clone(), var.detach().exp()
        return [m.nn.functional.instance_norm(x, mean, var, use_input_stats=training, momentum=0.3), mean, var]

    compare(instance, rand(4, 3, 5), rand(3), rand(3))


CLASSES = RNG.integers(0, 5, 6)
IGNORED = np.where(np.arange(6) % 3 == 0, -100, CLASSES)
PROBABILITIES = RNG.random((6, 5))
LOSSES: dict[str, tuple[Call, list[np.ndarray]]] = {
    "nll": (lambda m, x, t, **o: m.nn.functional.nll_loss(x, t, **o), [rand(6, 5), CLASSES]),
    "nll_ignored": (lambda m, x, t, **o: m.nn.functional.nll_loss(x, t, **o), [rand(6, 5), IGNORED]),
    "nll_weight": (
        lambda m, x, w, t, **o: m.nn.functional.nll_loss(x, t, w.detach().exp(), ignore_index=2, **o),
        [rand(6, 5), rand(5), CLASSES],
    ),
    "nll_spatial": (lambda m, x, t, **o: m.nn.functional.nll_loss(x, t, **o), [rand(2, 5, 3), CLASSES.reshape(2, 3)]),
    "nll_vector": (lambda m, x, t, **o: m.nn.functional.nll_loss(x, t, **o), [rand(5), np.array(3)]),
    "ce": (lambda m, x, t, **o: m.nn.functional.cross_entropy(x, t, **o), [rand(6, 5), IGNORED]),
    "ce_smooth": (
        lambda m, x, t, **o: m.nn.functional.cross_entropy(x, t, label_smoothing=0.2, **o),
        [rand(6, 5), IGNORED],
    ),
    "ce_smooth_weight": (
        lambda m, x, w, t, **o: m.nn.functional.cross_entropy(x, t, w.detach().exp(), label_smoothing=0.2, **o),
        [rand(6, 5), rand(5), IGNORED],
    ),
    "ce_soft": (lambda m, x, t, **o: m.nn.functional.cross_entropy(x, t, **o), [rand(6, 5), PROBABILITIES]),
    "ce_soft_weight": (
        lambda m, x, t, w, **o: m.nn.functional.cross_entropy(x, t, w.detach().exp(), label_smoothing=0.1, **o),
        [rand(6, 5), PROBABILITIES, rand(5)],
    ),
    "ce_spatial": (
        lambda m, x, t, **o: m.nn.functional.cross_entropy(x, t, **o),
        [rand(2, 5, 3), CLASSES.reshape(2, 3)],
    ),
    "ce_vector": (lambda m, x, t, **o: m.nn.functional.cross_entropy(x, t, **o), [rand(5), np.array(3)]),
    "mse": (lambda m, x, t, **o: m.nn.functional.mse_loss(x, t, **o), [rand(6, 5), rand(6, 5)]),
    "l1": (lambda m, x, t, **o: m.nn.functional.l1_loss(x, t, **o), [rand(6, 5), rand(6, 5)]),
    "smooth": (lambda m, x, t, **o: m.nn.functional.smooth_l1_loss(x, t, beta=0.7, **o), [rand(6, 5), rand(6, 5)]),
    "huber": (lambda m, x, t, **o: m.nn.functional.huber_loss(x, t, delta=0.7, **o), [rand(6, 5), rand(6, 5)]),
    "bce": (
        lambda m, x, t, w, **o: m.nn.functional.binary_cross_entropy(x.sigmoid(), t, w.detach(), **o),
        [rand(6, 5), PROBABILITIES, rand(6, 5)],
    ),
    "bce_logits": (
        lambda m, x, t, w, **o: m.nn.functional.binary_cross_entropy_with_logits(x, t, w.detach(), **o),
        [rand(6, 5) * 30, PROBABILITIES, rand(6, 5)],
    ),
    "bce_pos": (
        lambda m, x, t, p, **o: m.nn.functional.binary_cross_entropy_with_logits(
            x, t, pos_weight=p.detach().exp(), **o
        ),
        [rand(6, 5), PROBABILITIES, rand(5)],
    ),
    "kl": (
        lambda m, x, t, **o: m.nn.functional.kl_div(x, t.detach(), **o),
        [rand(6, 5), np.where(PROBABILITIES > 0.2, PROBABILITIES, 0)],
    ),
    "kl_log": (lambda m, x, t, **o: m.nn.functional.kl_div(x, t, log_target=True, **o), [rand(6, 5), rand(6, 5)]),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
def test_losses(compare: Call, name: str, reduction: str) -> None:
    call, arrays = LOSSES[name]
    compare(lambda m, *t: call(m, *t, reduction=reduction), *arrays, order=1 if name == "l1" else 2)
    compare(lambda m, *t: call(m, *t, reduction=reduction), *arrays, dtype="float32")


def test_losses_of_probabilities_at_the_ends(compare: Call) -> None:
    compare(
        lambda m, x, t: m.nn.functional.binary_cross_entropy(x, t),
        np.array([0.0, 1.0, 0.0, 1.0, 0.3]),
        np.array([0.0, 1.0, 1.0, 0.0, 0.5]),
        order=1,
    )


def test_all_ignored(compare: Call) -> None:
    compare(
        lambda m, x, t: [m.nn.functional.cross_entropy(x, t), m.nn.functional.nll_loss(x, t, reduction="sum")],
        rand(3, 4),
        np.full(3, -100),
        order=1,
    )
    compare(
        lambda m, x, t: m.nn.functional.nll_loss(x, t, reduction="sum"),
        np.zeros((0, 4)),
        np.zeros(0, np.int64),
        order=1,
    )


def test_embedding(compare: Call) -> None:
    f = lambda m, w, i: [m.nn.functional.embedding(i, w), m.nn.functional.embedding(i, w, padding_idx=-1)]  # noqa: E731
    for dtype in ("int64", "int32"):
        compare(f, rand(5, 3), RNG.integers(0, 5, (2, 4)).astype(dtype))
    compare(f, rand(5, 3), np.array(4))
    compare(f, rand(5, 3), np.zeros((0, 2), np.int64))
    compare(f, rand(5, 3), RNG.integers(0, 5, 7), dtype="bfloat16")


def test_errors(compare_errors: Call) -> None:
    x, w = rand(2, 4, 6, 6), rand(6, 4, 3, 3)
    for call in (
        lambda m, x, w: m.nn.functional.conv2d(x, w, groups=3),
        lambda m, x, w: m.nn.functional.conv2d(x[:, :2], w),
        lambda m, x, w: m.nn.functional.conv2d(x[..., :2], w),
        lambda m, x, w: m.nn.functional.conv2d(x, w, stride=0),
        lambda m, x, w: m.nn.functional.conv2d(x, w, padding=-1),
        lambda m, x, w: m.nn.functional.conv2d(x, w, padding="odd"),
        lambda m, x, w: m.nn.functional.conv2d(x, w, padding="same", stride=2),
        lambda m, x, w: m.nn.functional.conv2d(x, w, w),
        lambda m, x, w: m.nn.functional.conv2d(x, w.float()),
        lambda m, x, w: m.nn.functional.conv1d(x, w),
        lambda m, x, w: m.nn.functional.conv_transpose2d(x, w),
        lambda m, x, w: m.nn.functional.max_pool2d(x, 3, padding=2),
        lambda m, x, w: m.nn.functional.max_pool2d(x, 9),
        lambda m, x, w: m.nn.functional.max_pool2d(x, 0),
        lambda m, x, w: m.nn.functional.max_pool2d(x[0, 0], 2),
        lambda m, x, w: m.nn.functional.avg_pool2d(x, 2, divisor_override=0),
        lambda m, x, w: m.nn.functional.softmax(x, 4),
        lambda m, x, w: m.nn.functional.layer_norm(x, (5,)),
        lambda m, x, w: m.nn.functional.layer_norm(x, (6,), w),
        lambda m, x, w: m.nn.functional.batch_norm(x, None, None),
        lambda m, x, w: m.nn.functional.batch_norm(x[:1, :, :1, :1], None, None, training=True),
        lambda m, x, w: m.nn.functional.batch_norm(x, None, None, x[0, 0, 0], training=True),
        lambda m, x, w: m.nn.functional.group_norm(x, 3),
        lambda m, x, w: m.nn.functional.nll_loss(x[0, 0], m.tensor([0, 1, 2, 3, 4, 9])),
        lambda m, x, w: m.nn.functional.cross_entropy(x[0, 0], m.tensor([0, 1, 2, 3, 4, -1])),
        lambda m, x, w: m.nn.functional.nll_loss(x[0, 0], m.tensor([0, 1])),
        lambda m, x, w: m.nn.functional.cross_entropy(x[0, 0], m.tensor([0] * 6), reduction="other"),
        lambda m, x, w: m.nn.functional.binary_cross_entropy(x * 9, x),
        lambda m, x, w: m.nn.functional.embedding(m.tensor([6]), x[0, 0]),
        lambda m, x, w: m.nn.functional.embedding(m.tensor([-1]), x[0, 0]),
        lambda m, x, w: m.nn.functional.embedding(m.tensor([0.5]), x[0, 0]),
    ):
        compare_errors(call, x, w)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
        {"momentum": 0.9, "nesterov": True},
        {"maximize": True},
    ],
)
def test_sgd(device: str, options: dict[str, Any]) -> None:
    start, grads = rand(3, 4), [rand(3, 4) for _ in range(4)]
    theirs = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.SGD([theirs], lr=0.1, **options)
    ours, buffer = (
        ts.tensor(start.tolist(), dtype=ts.float64, device=device),
        ts.zeros(3, 4, dtype=ts.float64, device=device),
    )
    momentum = options.get("momentum", 0.0)
    for step, grad in enumerate(grads):
        theirs.grad = torch.tensor(grad)
        optimizer.step()
        given = ts.tensor(grad.tolist(), dtype=ts.float64, device=device)
        ts.sgd_step_(
            [ours],
            [given],
            [buffer] if momentum else [],
            0.1,
            momentum,
            options.get("dampening", 0.0),
            options.get("weight_decay", 0.0),
            options.get("nesterov", False),
            options.get("maximize", False),
            step == 0,
        )
    np.testing.assert_allclose(np.array(ours.tolist()), theirs.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"full": True, "reduction": "sum"}, {"eps": 0.9, "reduction": "none"}])
def test_gaussian_nll_loss(compare: Callable[..., None], options: dict[str, Any]) -> None:
    for shape in ((3, 4), (3, 1), (3,)):
        spread = rand(*shape) ** 2 + 0.1
        compare(
            lambda m, x, y, v: m.nn.functional.gaussian_nll_loss(x, y, v, **options), rand(3, 4), rand(3, 4), spread
        )


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True, "eps": 1e-3}])
def test_adam(device: str, options: dict[str, Any], decoupled: bool) -> None:
    start, grads = rand(3, 4), [rand(3, 4) for _ in range(4)]
    theirs = torch.nn.Parameter(torch.tensor(start))
    options = {"weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False} | options
    optimizer = (torch.optim.AdamW if decoupled else torch.optim.Adam)([theirs], lr=0.1, betas=(0.8, 0.95), **options)
    # A transposed parameter: the step has to write through strides.
    ours = ts.tensor(start.T.tolist(), dtype=ts.float64, device=device).t()
    m, v, top = (ts.zeros(3, 4, dtype=ts.float64, device=device) for _ in range(3))
    for step, grad in enumerate(grads, 1):
        theirs.grad = torch.tensor(grad)
        optimizer.step()
        given = ts.tensor(grad.tolist(), dtype=ts.float64, device=device)
        ts.adam_step_(
            [ours],
            [given],
            [m],
            [v],
            [top] if options["amsgrad"] else [],
            step,
            0.1,
            0.8,
            0.95,
            options["weight_decay"],
            options["eps"],
            options["amsgrad"],
            options["maximize"],
            decoupled,
        )
    np.testing.assert_allclose(np.array(ours.tolist()), theirs.detach().numpy(), rtol=1e-10)
