"""Layers, optimizers and schedules beside PyTorch's: same text, same names, same numbers."""

import inspect

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import nn, optim

tnn, toptim = torch.nn, torch.optim
RNG = np.random.default_rng(0)


def ours(array, device):
    return ts.tensor(np.asarray(array).tolist(), dtype=ts.float64, device=device)


def numbers(t):
    return np.array(t.detach().cpu().tolist())


LAYERS = [
    ("Linear", (4, 3), {}, (2, 4)),
    ("Linear", (4, 3), {"bias": False}, (4,)),
    ("Conv1d", (4, 6, 3), {"padding": 1, "groups": 2}, (2, 4, 7)),
    ("Conv2d", (4, 6, 3), {"stride": 2, "padding": (1, 0), "dilation": 2}, (2, 4, 9, 8)),
    ("Conv2d", (4, 4, (5, 3)), {"padding": "same", "bias": False}, (1, 4, 5, 6)),
    ("Conv2d", (2, 2, 3), {"padding": 2, "padding_mode": "reflect"}, (1, 2, 5, 5)),
    ("Conv3d", (2, 3, 2), {"padding": 1}, (1, 2, 3, 4, 3)),
    ("BatchNorm1d", (4,), {}, (5, 4)),
    ("BatchNorm1d", (4,), {"momentum": None}, (5, 4, 2)),
    ("BatchNorm2d", (4,), {"affine": False}, (3, 4, 2, 2)),
    ("BatchNorm3d", (2,), {"track_running_stats": False}, (3, 2, 2, 2, 2)),
    ("LayerNorm", ((3, 4),), {}, (2, 3, 4)),
    ("LayerNorm", (4,), {"bias": False, "eps": 1e-3}, (2, 3, 4)),
    ("GroupNorm", (2, 4), {}, (2, 4, 3)),
    ("PReLU", (3,), {}, (2, 3, 4)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (2, 3, 8, 7)),
    ("MaxPool2d", ((2, 3),), {"dilation": 2}, (3, 8, 7)),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}, (2, 3, 8, 7)),
    ("AvgPool2d", ((2, 3),), {"divisor_override": 5}, (3, 8, 7)),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (2, 3, 8)),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (2, 3, 8)),
    ("AdaptiveAvgPool1d", (3,), {}, (2, 3, 8)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, (2, 3, 8, 5)),
    ("AdaptiveMaxPool2d", ((3, None),), {}, (2, 3, 8, 5)),
    ("Unfold", ((2, 3),), {"dilation": 2, "padding": 1, "stride": 2}, (2, 3, 8, 7)),
    ("Fold", ((4, 5), (2, 3)), {"padding": (1, 0), "stride": (2, 1)}, (2, 12, 9)),
    ("Upsample", (), {"scale_factor": 2}, (2, 3, 4)),
    ("Upsample", ((5, 3),), {"mode": "bilinear", "align_corners": True}, (2, 3, 4, 4)),
    ("Upsample", (), {"scale_factor": (1.5, 2.0), "mode": "bicubic"}, (2, 3, 4, 4)),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "linear", "recompute_scale_factor": True}, (2, 3, 4)),
    ("UpsamplingNearest2d", (5,), {}, (2, 3, 4, 4)),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, (2, 3, 4, 4)),
    ("Flatten", (), {"start_dim": 0, "end_dim": 1}, (2, 3, 4)),
    ("Unflatten", (1, (2, 3)), {}, (4, 6)),
    ("Dropout", (0.0,), {}, (3, 3)),
    ("Identity", (1,), {"unused": 2}, (3,)),
    ("Threshold", (0.1, 2.0), {}, (3, 4)),
    ("Softmax2d", (), {}, (2, 3, 2, 2)),
    *((name, (), {"dim": 0}, (3, 4)) for name in ("Softmax", "LogSoftmax", "Softmin")),
    *(
        (name, (), {}, (3, 4))
        for name in [
            "ReLU",
            "ReLU6",
            "ELU",
            "SELU",
            "CELU",
            "GELU",
            "SiLU",
            "Mish",
            "Sigmoid",
            "Tanh",
            "Softplus",
            "LeakyReLU",
            "Hardtanh",
            "Hardsigmoid",
            "Hardswish",
            "Softsign",
            "LogSigmoid",
            "GLU",
        ]
    ),
    ("GELU", ("tanh",), {}, (3, 4)),
    ("Softplus", (2.0, 1.0), {}, (3, 4)),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(LAYERS)]


def pair(name, args, options, device):
    theirs = getattr(tnn, name)(*args, **options).double()
    mine = getattr(nn, name)(*args, **options).double().to(device)
    state = {}
    for key, value in theirs.state_dict().items():
        if value.is_floating_point() and "running" not in key:
            value.copy_(torch.tensor(RNG.normal(size=tuple(value.shape))))
        state[key] = ts.tensor(value.tolist(), dtype=ts.float64 if value.is_floating_point() else ts.int64)
    mine.load_state_dict(state)
    return mine, theirs


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=IDS)
def test_layers(name, args, options, shape, device):
    mine, theirs = pair(name, args, options, device)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    x = RNG.normal(size=shape)
    for mode in (True, False):
        mine.train(mode), theirs.train(mode)
        a = ours(x, device).requires_grad_()
        b = torch.tensor(x, requires_grad=True)
        out, expected = mine(a), theirs(b)
        np.testing.assert_allclose(numbers(out), numbers(expected), rtol=1e-9, atol=1e-11)
        grad = RNG.normal(size=tuple(expected.shape))
        mine.zero_grad(), theirs.zero_grad()
        (out * ours(grad, device)).sum().backward()
        (expected * torch.tensor(grad)).sum().backward()
        # PyTorch's hardsigmoid gradient uses 1/6 rounded to float32.
        rtol = 1e-7 if type(mine).__name__ == "Hardsigmoid" else 1e-8
        np.testing.assert_allclose(numbers(a.grad), numbers(b.grad), rtol=rtol, atol=1e-10)
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(numbers(p.grad), numbers(q.grad), rtol=1e-8, atol=1e-10)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(numbers(mine.state_dict()[key]), numbers(value), rtol=1e-9)


def test_reprs_of_containers():
    def build(lib):
        return lib.ModuleDict(
            {
                "list": lib.ModuleList([lib.Linear(2, 2), lib.Linear(2, 2), lib.ReLU()]),
                "seq": lib.Sequential(lib.Sequential(lib.Dropout(0.1)), lib.Embedding(3, 4, padding_idx=1)),
                "empty": lib.Sequential(),
            }
        )

    assert repr(build(nn)) == repr(build(tnn))
    assert [n for n, _ in build(nn).named_modules()] == [n for n, _ in build(tnn).named_modules()]


def test_signatures_take_the_same_arguments():
    """Every layer accepts what its namesake does, in the same order."""
    for name in nn.modules.__all__:
        if name in ("Module", "Identity", "Sequential") or not inspect.isclass(getattr(nn, name)):
            continue
        mine = list(inspect.signature(getattr(nn, name)).parameters)
        theirs = list(inspect.signature(getattr(tnn, name)).parameters)
        theirs = [parameter for parameter in theirs if parameter not in ("min_value", "max_value", "args", "kwargs")]
        assert mine == theirs or set(mine) >= set(theirs), name
    for name in ("SGD", "Adam", "AdamW"):
        theirs = set(inspect.signature(getattr(toptim, name)).parameters)
        assert set(inspect.signature(getattr(optim, name)).parameters) >= theirs


OPTIMIZERS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.9)}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers_and_their_saved_state(name, options, device):
    start = [RNG.normal(size=shape) for shape in ((3, 2), (4,))]
    mine = [nn.Parameter(ours(a, device)) for a in start]
    theirs = [tnn.Parameter(torch.tensor(a)) for a in start]
    opt, their_opt = getattr(optim, name)(mine, **options), getattr(toptim, name)(theirs, **options)
    for step in range(6):
        for p, q in zip(mine, theirs, strict=True):
            grad = RNG.normal(size=tuple(q.shape))
            p.grad, q.grad = ours(grad, device), torch.tensor(grad)
        opt.step()
        their_opt.step()
        if step == 2:  # carry on from PyTorch's state
            saved = their_opt.state_dict()
            saved["state"] = {
                i: {key: ours(numbers(v), device) if isinstance(v, torch.Tensor) else v for key, v in state.items()}
                for i, state in saved["state"].items()
            }
            opt = getattr(optim, name)(mine, **options)
            opt.load_state_dict(saved)
    for p, q in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(numbers(p), numbers(q), rtol=1e-9)


SCHEDULES = [
    lambda s, o: s.LambdaLR(o, lambda t: 0.5**t),
    lambda s, o: s.StepLR(o, 3, 0.5),
    lambda s, o: s.MultiStepLR(o, [2, 5, 5], 0.1),
    lambda s, o: s.CosineAnnealingLR(o, 6, 0.01),
    lambda s, o: s.LinearLR(o, 0.1, 0.7, 5),
    lambda s, o: s.ExponentialLR(o, 0.9),
    lambda s, o: s.PolynomialLR(o, 7, 1.5),
    lambda s, o: s.OneCycleLR(o, 0.5, total_steps=20),
    lambda s, o: s.OneCycleLR(o, 0.5, total_steps=20, three_phase=True, anneal_strategy="linear", pct_start=0.4),
    lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, 10)], [4]),
    lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.3, 2), s.ExponentialLR(o, 0.8), s.StepLR(o, 2, 0.5)], [3, 8]),
    lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.1, 1.0, 4), s.ExponentialLR(o, 0.9)]),
    lambda s, o: s.ReduceLROnPlateau(o, patience=1, factor=0.5, cooldown=2),
]


@pytest.mark.parametrize("make", SCHEDULES, ids=range(len(SCHEDULES)))
def test_schedules(make):
    mine = optim.SGD([nn.Parameter(ts.zeros(1))], lr=0.2, momentum=0.9)
    theirs = toptim.SGD([tnn.Parameter(torch.zeros(1))], lr=0.2, momentum=0.9)
    schedule, their_schedule = make(optim.lr_scheduler, mine), make(toptim.lr_scheduler, theirs)
    metrics = [1.0, 0.9, 0.91, 0.92, 0.93, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]
    for metric in metrics:
        assert mine.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9, abs=1e-12)
        assert mine.param_groups[0]["momentum"] == pytest.approx(theirs.param_groups[0]["momentum"], rel=1e-9)
        for opt, s in ((mine, schedule), (theirs, their_schedule)):
            opt.step()
            s.step(metric) if type(s).__name__ == "ReduceLROnPlateau" else s.step()
