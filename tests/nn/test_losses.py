"""Losses against NumPy in float64: values for every reduction, and gradients by finite differences."""

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn import functional as F

RNG = np.random.default_rng(1)


def tensor(array, device, **options):
    return ts.tensor(np.asarray(array).tolist(), dtype=ts.float64, device=device, **options)


def log_softmax(x, axis=1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def huber(d, delta):
    d = np.abs(d)
    return np.where(d < delta, d * d / 2, delta * (d - delta / 2))


POSITIVE = RNG.uniform(0.05, 0.95, (3, 4))
ELEMENTWISE = {
    "l1": (nn.L1Loss, {}, lambda x, y: np.abs(x - y)),
    "mse": (nn.MSELoss, {}, lambda x, y: (x - y) ** 2),
    "smooth_l1": (nn.SmoothL1Loss, {"beta": 0.5}, lambda x, y: huber(x - y, 0.5) / 0.5),
    "huber": (nn.HuberLoss, {"delta": 0.7}, lambda x, y: huber(x - y, 0.7)),
    "bce": (nn.BCELoss, {}, lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x))),
    "bce_logits": (nn.BCEWithLogitsLoss, {}, lambda x, y: (1 - y) * x + np.log1p(np.exp(-x))),
    "kl": (nn.KLDivLoss, {}, lambda x, y: y * (np.log(y) - x)),
    "kl_log": (nn.KLDivLoss, {"log_target": True}, lambda x, y: np.exp(y) * (y - x)),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_elementwise_losses(name, reduction, device):
    kind, options, expected = ELEMENTWISE[name]
    x, y = RNG.uniform(0.05, 0.95, (3, 4)), POSITIVE
    reduce = {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[reduction]
    t = tensor(x, device, requires_grad=True)
    loss = kind(reduction=reduction, **options)(t, tensor(y, device))
    np.testing.assert_allclose(np.array(loss.tolist()), reduce(expected(x, y)), rtol=1e-10)
    loss.sum().backward()
    step, numeric = 1e-6, np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i], down[i] = x[i] + step, x[i] - step
        numeric[i] = (np.sum(reduce(expected(up, y))) - np.sum(reduce(expected(down, y)))) / (2 * step)
    np.testing.assert_allclose(np.array(t.grad.tolist()), numeric, rtol=1e-5, atol=1e-8)


def test_weights_of_elementwise_losses(device):
    x, y, w = (RNG.uniform(0.1, 0.9, (2, 3)) for _ in range(3))
    tx, ty, tw = (tensor(v, device) for v in (x, y, w))
    bce = -(y * np.log(x) + (1 - y) * np.log(1 - x))
    assert nn.BCELoss(weight=tw)(tx, ty).item() == pytest.approx((bce * w).mean())
    pos = RNG.uniform(1, 3, (3,))
    logits = -(pos * y * -np.log1p(np.exp(-x)) + (1 - y) * -np.log1p(np.exp(x)))
    assert nn.BCEWithLogitsLoss(pos_weight=tensor(pos, device))(tx, ty).item() == pytest.approx(logits.mean())
    square = (x - y) ** 2
    assert F.mse_loss(tx, ty, weight=tw).item() == pytest.approx((square * w).sum() / w.sum())
    assert F.l1_loss(tx, ty, weight=tw, reduction="sum").item() == pytest.approx((np.abs(x - y) * w).sum())
    assert F.huber_loss(tx, ty, weight=tw).item() == pytest.approx((huber(x - y, 1) * w).mean())
    with pytest.raises(ValueError, match="weight of shape"):
        F.mse_loss(tx, ty, weight=tw[0])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 2, 2)])
def test_class_losses(shape, weighted, reduction, device):
    x = RNG.normal(size=shape)
    target = RNG.integers(0, 3, (shape[0], *shape[2:]))
    target.flat[1] = -100
    weight = RNG.uniform(0.5, 2, 3) if weighted else np.ones(3)
    valid = target != -100
    picked = np.take_along_axis(log_softmax(x), np.where(valid, target, 0)[:, None], 1)[:, 0]
    each = -picked * weight[np.where(valid, target, 0)] * valid
    total = (weight[np.where(valid, target, 0)] * valid).sum()
    expected = {"mean": each.sum() / total, "sum": each.sum(), "none": each}[reduction]
    given = tensor(weight, device) if weighted else None
    tt = ts.tensor(target.tolist(), device=device)
    loss = nn.CrossEntropyLoss(weight=given, reduction=reduction)(tensor(x, device), tt)
    np.testing.assert_allclose(np.array(loss.tolist()), expected, rtol=1e-10)
    loss = nn.NLLLoss(weight=given, reduction=reduction)(tensor(log_softmax(x), device), tt)
    np.testing.assert_allclose(np.array(loss.tolist()), expected, rtol=1e-10)


def test_cross_entropy_gradient(device):
    x, target = RNG.normal(size=(4, 3)), [0, 2, 1, 1]
    t = tensor(x, device, requires_grad=True)
    nn.CrossEntropyLoss()(t, ts.tensor(target, device=device)).backward()
    expected = (np.exp(log_softmax(x)) - np.eye(3)[target]) / 4
    np.testing.assert_allclose(np.array(t.grad.tolist()), expected, rtol=1e-9, atol=1e-12)


def test_cross_entropy_with_probabilities_and_smoothing(device):
    x = RNG.normal(size=(4, 3))
    p = RNG.dirichlet(np.ones(3), 4)
    logp = log_softmax(x)
    loss = F.cross_entropy(tensor(x, device), tensor(p, device))
    assert loss.item() == pytest.approx(-(p * logp).sum(1).mean())
    target = np.array([0, 2, 1, 1])
    smooth = 0.9 * np.eye(3)[target] + 0.1 / 3
    loss = F.cross_entropy(tensor(x, device), ts.tensor(target.tolist(), device=device), label_smoothing=0.1)
    assert loss.item() == pytest.approx(-(smooth * logp).sum(1).mean())


def test_batchmean(device):
    x, y = np.log(POSITIVE), POSITIVE[::-1].copy()
    loss = nn.KLDivLoss(reduction="batchmean")(tensor(x, device), tensor(y, device))
    assert loss.item() == pytest.approx((y * (np.log(y) - x)).sum() / 3)


def test_extreme_logits_stay_finite(device):
    x = ts.tensor([[1000.0, -1000.0]], device=device)
    assert nn.CrossEntropyLoss()(x, ts.tensor([0], device=device)).item() == 0
    assert nn.CrossEntropyLoss()(x, ts.tensor([1], device=device)).item() == 2000
    assert nn.BCEWithLogitsLoss(reduction="sum")(x, ts.tensor([[0.0, 1.0]], device=device)).item() == 2000
    assert nn.BCELoss()(ts.tensor([0.0], device=device), ts.tensor([1.0], device=device)).item() == 100


def test_mistakes(device):
    x = ts.zeros(2, 3, device=device)
    with pytest.raises(IndexError):
        F.cross_entropy(x, ts.tensor([0, 3], device=device))
    with pytest.raises(ValueError):
        F.cross_entropy(x, ts.tensor([0, 1, 2], device=device))
    with pytest.raises(ValueError, match="average"):
        F.mse_loss(x, x, reduction="average")
    with pytest.warns(UserWarning, match="target size"):
        F.mse_loss(x, ts.zeros(3, device=device))


def test_old_reduction_arguments(device):
    x, y = ts.zeros(2, device=device), ts.full((2,), 3.0, device=device)
    with pytest.warns(UserWarning, match="reduction="):
        assert F.mse_loss(x, y, size_average=False).item() == 18
    with pytest.warns(UserWarning, match="reduction="):
        assert nn.MSELoss(reduce=False)(x, y).tolist() == [9.0, 9.0]


def test_a_reduction_that_none_knows_is_refused_when_the_loss_is_computed():
    loss = nn.MSELoss(reduction="unk")
    with pytest.raises(ValueError, match="unk is not a valid value for reduction"):
        loss(ts.ones(2), ts.zeros(2))
    loss.reduction = "sum"
    assert loss(ts.ones(2), ts.zeros(2)).item() == 2


def test_a_triplet_is_of_one_number_of_dims(device):
    one, many = ts.ones(3, device=device), ts.ones(2, 3, device=device)
    for triplet in ((one, many, many), (many, one, many), (many, many, one)):
        with pytest.raises(RuntimeError, match="same dimension"):
            F.triplet_margin_loss(*triplet)


@pytest.mark.parametrize("dtype", [ts.int32, ts.uint8, ts.float32])
def test_ctc_loss_takes_targets_of_any_dtype(dtype, device):
    x = ts.randn(10, 2, 5, device=device).log_softmax(-1)
    targets, lengths = ts.tensor([[1, 2, 3], [4, 1, 0]], device=device), (ts.tensor([10, 9]), ts.tensor([3, 2]))
    assert ts.equal(F.ctc_loss(x, targets.to(dtype), *lengths), F.ctc_loss(x, targets, *lengths))
