"""Losses against their formulas in NumPy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.fx.experimental.proxy_tensor import make_fx

RNG = np.random.default_rng(7)
CLASSES = np.array([0, 4, 2, 2, 1, 3])


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def reduced(losses: np.ndarray, reduction: str, count: float | None = None) -> np.ndarray:
    if reduction == "none":
        return losses
    return losses.sum() / (1 if reduction == "sum" else count or losses.size)


def close(got: ts.Tensor, want: Any, tolerance: float = 1e-12) -> None:
    assert tuple(got.shape) == np.shape(want)
    np.testing.assert_allclose(got.detach().double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)


REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [-100, 2])
def test_nll_and_cross_entropy(device: Any, reduction: str, weighted: bool, ignore: int) -> None:
    a, w = rand(6, 5), RNG.random(5) + 0.1
    per_target = np.where(ignore == CLASSES, 0, w[CLASSES] if weighted else 1.0)
    losses = -log_softmax(a)[np.arange(6), CLASSES] * per_target
    want = reduced(losses, reduction, per_target.sum())
    options: dict[str, Any] = {
        "weight": tensor(w, device) if weighted else None,
        "ignore_index": ignore,
        "reduction": reduction,
    }
    x, target = tensor(a, device, grad=True), tensor(CLASSES, device)
    close(ts.cross_entropy(x, target, **options), want)
    close(ts.nll_loss(x.log_softmax(1), target, **options), want)
    single = {**options, "weight": options["weight"].float() if weighted else None}
    close(ts.cross_entropy(x.float(), target, **single), want, 1e-5)
    assert gradcheck(lambda t: ts.cross_entropy(t, target, **options), (x,))
    assert gradgradcheck(lambda t: ts.cross_entropy(t, target, **options), (x,))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_classes_in_the_second_dim(device: Any, reduction: str) -> None:
    a, target = rand(2, 5, 3, 2), RNG.integers(0, 5, (2, 3, 2))
    losses = -np.take_along_axis(log_softmax(a), target[:, None], 1)[:, 0]
    close(ts.cross_entropy(tensor(a, device), tensor(target, device), reduction=reduction), reduced(losses, reduction))
    close(ts.cross_entropy(tensor(a[0, :, 0, 0], device), tensor(target[0, 0, 0], device)), losses[0, 0, 0])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["whole", "channels last", "slice"])
def test_losses_of_pictures(device: Any, reduction: str, weighted: bool, form: str) -> None:
    a, w, classes = rand(2, 5, 3, 4), RNG.random(5) + 0.1, RNG.integers(0, 5, (2, 3, 4))
    classes[0, 1, 2] = -100
    per_target = np.where(classes == -100, 0, w[classes % 5] if weighted else 1.0)
    losses = -np.take_along_axis(log_softmax(a), classes[:, None] % 5, 1)[:, 0] * per_target
    x, target = tensor(a, device, grad=True), tensor(classes, device)
    weight = tensor(w, device) if weighted else None

    def lost(x: ts.Tensor) -> ts.Tensor:
        if form == "channels last":
            x = x.contiguous(memory_format=ts.channels_last)
        elif form == "slice":
            x = ts.cat([x, x], 3)[..., :4]
        return ts.cross_entropy(x, target, weight, reduction=reduction)

    close(lost(x), reduced(losses, reduction, per_target.sum()))
    assert gradcheck(lost, (x,))
    assert gradgradcheck(lost, (x,))


def test_losses_of_pictures_take_scores_as_they_lie() -> None:
    target = ts.randint(0, 5, (2, 3, 4))

    def steps(x: ts.Tensor) -> str:
        return str(make_fx(lambda x: ts.nll_loss(x, target))(x).graph)

    whole = steps(ts.zeros(2, 5, 3, 4))
    assert "nll_loss_forward" in whole and "permute" not in whole and "reshape" not in whole
    assert "permute" in steps(ts.zeros(2, 5, 3, 4).contiguous(memory_format=ts.channels_last))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_probabilities_and_smoothing(device: Any, reduction: str) -> None:
    a, p = rand(6, 5), RNG.random((6, 5))
    x, q = tensor(a, device, grad=True), tensor(p, device, grad=True)
    close(ts.cross_entropy(x, q, reduction=reduction), reduced(-(log_softmax(a) * p).sum(1), reduction))
    assert gradcheck(lambda *t: ts.cross_entropy(*t, reduction=reduction), (x, q))
    smooth = 0.9 * np.eye(5)[CLASSES] + 0.1 / 5
    want = reduced(-(log_softmax(a) * smooth).sum(1), reduction)
    close(ts.cross_entropy(x, tensor(CLASSES, device), reduction=reduction, label_smoothing=0.1), want)


ELEMENTWISE: dict[str, tuple[Any, Any]] = {
    "mse": (ts.mse_loss, lambda x, t: (x - t) ** 2),
    "l1": (ts.l1_loss, lambda x, t: abs(x - t)),
    "smooth_l1": (
        lambda x, t, **o: ts.smooth_l1_loss(x, t, beta=0.7, **o),
        lambda x, t: np.where(abs(x - t) < 0.7, (x - t) ** 2 / 1.4, abs(x - t) - 0.35),
    ),
    "huber": (
        lambda x, t, **o: ts.huber_loss(x, t, delta=0.7, **o),
        lambda x, t: np.where(abs(x - t) < 0.7, (x - t) ** 2 / 2, 0.7 * (abs(x - t) - 0.35)),
    ),
    "kl": (lambda x, t, **o: ts.kl_div(x, t.exp(), **o), lambda x, t: np.exp(t) * (t - x)),
    "kl_log": (lambda x, t, **o: ts.kl_div(x, t, log_target=True, **o), lambda x, t: np.exp(t) * (t - x)),
    "bce": (
        lambda x, t, **o: ts.binary_cross_entropy(x.sigmoid(), t.sigmoid(), **o),
        lambda x, t: np.log1p(np.exp(x)) - x / (1 + np.exp(-t)),
    ),
    "bce_logits": (
        lambda x, t, **o: ts.binary_cross_entropy_with_logits(x, t.sigmoid(), **o),
        lambda x, t: np.log1p(np.exp(x)) - x / (1 + np.exp(-t)),
    ),
    "soft_margin": (lambda x, t, **o: ts.soft_margin_loss(x, t, **o), lambda x, t: np.log1p(np.exp(-x * t))),
    "poisson": (lambda x, t, **o: ts.poisson_nll_loss(x, t, **o), lambda x, t: np.exp(x) - t * x),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(device: Any, name: str, reduction: str) -> None:
    ours, formula = ELEMENTWISE[name]
    a, b = rand(3, 4), rand(3, 4)
    x, t = tensor(a, device, grad=True), tensor(b, device, grad=True)
    close(ours(x, t, reduction=reduction), reduced(formula(a, b), reduction), 1e-11)
    assert gradcheck(lambda *v: ours(*v, reduction=reduction), (x, t))
    assert gradgradcheck(lambda *v: ours(*v, reduction=reduction), (x, t))
    close(ours(x[:, ::2], t[:, ::2], reduction=reduction), reduced(formula(a[:, ::2], b[:, ::2]), reduction), 1e-11)


def test_weights_of_binary_losses(device: Any) -> None:
    x, t, w, p = rand(3, 4) * 5, RNG.random((3, 4)), RNG.random((3, 4)), RNG.random(4) + 0.5
    probability = 1 / (1 + np.exp(-x))
    positive, negative = -t * np.log(probability), -(1 - t) * np.log(1 - probability)
    args = [tensor(v, device) for v in (x, t, w, p)]
    close(
        ts.binary_cross_entropy_with_logits(args[0], args[1], args[2], pos_weight=args[3]),
        w * (p * positive + negative),
        1e-9,
    )
    close(ts.binary_cross_entropy(args[0].sigmoid(), args[1], args[2]), (w * (positive + negative)).mean(), 1e-9)


def test_extremes(device: Any) -> None:
    x, t = tensor([1000.0, -1000.0], device), tensor([0.0, 1.0], device)
    assert ts.binary_cross_entropy_with_logits(x, t, reduction="sum").item() == 2000
    assert ts.binary_cross_entropy(tensor([0.0, 1.0], device), tensor([1.0, 0.0], device)).item() == 100
    assert ts.kl_div(tensor([-1.0], device), tensor([0.0], device)).item() == 0
    assert np.isnan(ts.nll_loss(ts.zeros(2, 3, device=device), tensor([-100, -100], device)).item())
    assert (
        ts.nll_loss(ts.zeros(0, 3, device=device), ts.zeros(0, dtype=ts.int64, device=device), reduction="sum").item()
        == 0
    )


def test_margins(device: Any) -> None:
    a, b, sign = rand(4, 3), rand(4, 3), np.array([1, -1, 1, -1.0])
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    x, y, s = tensor(a, device, grad=True), tensor(b, device, grad=True), tensor(sign, device)
    close(ts.cosine_embedding_loss(x, y, s, 0.1), np.where(sign == 1, 1 - cosine, np.maximum(cosine - 0.1, 0)))
    close(ts.margin_ranking_loss(x[:, 0], y[:, 0], s, 0.2), np.maximum(-sign * (a - b)[:, 0] + 0.2, 0))
    close(ts.hinge_embedding_loss(x[:, 0], s), np.where(sign == 1, a[:, 0], np.maximum(1 - a[:, 0], 0)))
    near, far = (np.linalg.norm(a - other + 1e-6, axis=1) for other in (b, b[::-1]))
    close(ts.triplet_margin_loss(x, y, y.flip(0)), np.maximum(near - far + 1, 0))
    assert gradcheck(lambda u, v: ts.cosine_embedding_loss(u, v, s, 0.1), (x, y))


def test_errors(device: Any) -> None:
    x, target = tensor(rand(6, 5), device), tensor(CLASSES, device)
    for call, error, text in (
        (lambda: ts.nll_loss(x, target + 1), IndexError, "out of bounds"),
        (lambda: ts.nll_loss(x, target - 1), IndexError, "out of bounds"),
        (lambda: ts.nll_loss(x, target[:2]), ValueError, "batch_size"),
        (lambda: ts.nll_loss(x, target.double()), RuntimeError, "target"),
        (lambda: ts.nll_loss(x, target, tensor(rand(4), device)), RuntimeError, "weight"),
        (lambda: ts.nll_loss(x.long(), target), RuntimeError, "floating"),
        (
            lambda: ts.ops.nll_loss_backward(x[:, 0], target.double(), None, x[0, 0], (6, 5), 0, -1),
            RuntimeError,
            "target",
        ),
        (lambda: ts.ops.nll_loss_backward(x[:, 0], target, x[0, :2], x[0, 0], (6, 5), 0, -1), RuntimeError, "weight"),
        (lambda: ts.cross_entropy(x, target, reduction="other"), ValueError, "reduction"),
        (lambda: ts.cross_entropy(x, target, label_smoothing=2.0), RuntimeError, "label_smoothing"),
        (lambda: ts.cross_entropy(x, tensor(rand(5, 5), device).long()), ValueError, "batch_size"),
        (lambda: ts.binary_cross_entropy(x * 9, x), RuntimeError, "between 0 and 1"),
        (lambda: ts.binary_cross_entropy(x.sigmoid(), x[:2]), ValueError, "target size"),
        (lambda: ts.huber_loss(x, x, delta=0.0), RuntimeError, "delta"),
        (lambda: ts.mse_loss(x, x[:, :2]), RuntimeError, "must match"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("which", [0, 1])
def test_ctc_lengths_are_whole_numbers(which, device):
    lengths = [ts.tensor([4], device=device), ts.tensor([2], device=device)]
    lengths[which] = lengths[which].float()
    chances = ts.zeros(4, 1, 3, device=device).log_softmax(2)
    with pytest.raises(RuntimeError, match="integer"):
        ts.nn.functional.ctc_loss(chances, ts.tensor([[1, 2]], device=device), *lengths)
