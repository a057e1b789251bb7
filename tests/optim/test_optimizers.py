"""SGD, Adam and AdamW against their formulas in NumPy float64."""

import itertools

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn, optim

RNG = np.random.default_rng(0)
STEPS = 5


def sgd(p, g, state, *, lr, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False):
    g = (-g if maximize else g) + weight_decay * p
    if momentum:
        buffer = state["b"] = g if "b" not in state else momentum * state["b"] + (1 - dampening) * g
        g = g + momentum * buffer if nesterov else buffer
    return p - lr * g


def adam(
    p, g, state, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, maximize=False, decoupled=False
):
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
    v = state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g * g
    if amsgrad:
        v = state["vmax"] = np.maximum(state.get("vmax", v), v)
    return p - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def adamw(p, g, state, **options):
    return adam(p, g, state, decoupled=True, **{"weight_decay": 1e-2, **options})


CASES = [
    (optim.SGD, sgd, {"lr": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.SGD, sgd, {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    (optim.Adam, adam, {"lr": 0.01}),
    (optim.Adam, adam, {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adam, adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    (optim.AdamW, adamw, {"lr": 0.01}),
    (optim.AdamW, adamw, {"lr": 0.01, "weight_decay": 0.2, "amsgrad": True}),
    (optim.AdamW, adamw, {"lr": 0.01, "maximize": True}),
]
IDS = [f"{kind.__name__}-{'-'.join(options)}" for kind, _, options in CASES]


def parameter(values, device, dtype):
    return nn.Parameter(ts.tensor(values.tolist(), dtype=dtype, device=device))


def array(t):
    return np.array(t.detach().cpu().tolist())


@pytest.mark.parametrize(("kind", "rule", "options"), CASES, ids=IDS)
def test_steps_follow_the_formula(kind, rule, options, device):
    shapes = [(3, 4), (5,), (), (2, 0)]
    arrays = [RNG.normal(size=shape) for shape in shapes]
    params = [
        parameter(a, device, ts.float64) if a.size else nn.Parameter(ts.empty(2, 0, device=device)) for a in arrays
    ]
    states = [{} for _ in shapes]
    optimizer = kind(params, **options)
    for _ in range(STEPS):
        for i, p in enumerate(params):
            grad = RNG.normal(size=shapes[i])
            p.grad = ts.tensor(grad.tolist(), dtype=p.dtype, device=device).reshape(p.shape)
            arrays[i] = rule(arrays[i], grad, states[i], **options)
        optimizer.step()
    for p, a in zip(params[:3], arrays[:3], strict=True):
        np.testing.assert_allclose(array(p), a, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("kind", "rule", "options"), CASES[:9:4], ids=IDS[:9:4])
def test_other_dtypes_follow_within_their_precision(kind, rule, options, dtype, device):
    dtype = getattr(ts, dtype)
    values, grad = RNG.uniform(1, 2, 50), RNG.uniform(0.5, 1, 50)
    p = parameter(values, device, dtype)
    p.grad = ts.tensor(grad.tolist(), dtype=dtype, device=device)
    optimizer = kind([p], **options)
    expected, state = array(p), {}
    for _ in range(2):
        expected = rule(expected, array(p.grad), state, **options)
        optimizer.step()
    assert p.dtype == dtype
    np.testing.assert_allclose(array(p), expected, rtol=3 * ts.finfo(dtype).eps)


@pytest.mark.parametrize(("kind", "rule", "options"), CASES, ids=IDS)
def test_parameters_of_several_kinds_in_one_group(kind, rule, options, device):
    """Different dtypes, no gradient in some steps, a transposed parameter: each gets its own formula."""
    arrays = [RNG.normal(size=(3, 2)) for _ in range(4)]
    params = [parameter(a, device, dtype) for a, dtype in zip(arrays, [ts.float64, ts.float32] * 2, strict=True)]
    params[2] = nn.Parameter(ts.tensor(arrays[2].T.tolist(), dtype=ts.float64, device=device).t())
    states = [{} for _ in params]
    optimizer = kind(params, **options)
    for step, (i, p) in itertools.product(range(4), enumerate(params)):
        if i == 0:
            for q in params:
                q.grad = None
        if (step + i) % 3:
            grad = RNG.normal(size=(3, 2))
            p.grad = ts.tensor(grad.tolist(), dtype=p.dtype, device=device)
            arrays[i] = rule(arrays[i], grad, states[i], **options)
        if i == 3:
            optimizer.step()
    for p, a in zip(params, arrays, strict=True):
        np.testing.assert_allclose(array(p), a, rtol=1e-5 if p.dtype == ts.float32 else 1e-10, atol=1e-6)


@pytest.mark.parametrize(("kind", "rule", "options"), CASES, ids=IDS)
def test_saving_and_resuming_continues_the_same(kind, rule, options, device):
    def make():
        params = [nn.Parameter(ts.ones(3, device=device, dtype=ts.float64)) for _ in range(2)]
        return params, kind([{"params": params[:1]}, {"params": params[1:], "lr": 0.02}], **options)

    def step(params, optimizer, value):
        for p in params:
            p.grad = ts.full((3,), value, device=device, dtype=ts.float64)
        optimizer.step()

    params, optimizer = make()
    step(params, optimizer, 1.0)
    fresh, resumed = make()
    with ts.no_grad():
        for p, q in zip(params, fresh, strict=True):
            q.copy_(p)
    resumed.load_state_dict(optimizer.state_dict())
    for value in (-2.0, 0.5):
        step(params, optimizer, value)
        step(fresh, resumed, value)
    for p, q in zip(params, fresh, strict=True):
        assert p.tolist() == q.tolist()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p: optim.SGD(p, lr=-1), "learning rate"),
        (lambda p: optim.SGD(p, momentum=-1), "momentum"),
        (lambda p: optim.SGD(p, weight_decay=-1), "weight_decay"),
        (lambda p: optim.SGD(p, nesterov=True), "Nesterov"),
        (lambda p: optim.SGD(p, nesterov=True, momentum=0.9, dampening=0.1), "Nesterov"),
        (lambda p: optim.Adam(p, lr=-1), "learning rate"),
        (lambda p: optim.Adam(p, lr=float("nan")), "learning rate"),
        (lambda p: optim.Adam(p, betas=(1.0, 0.9)), "index 0"),
        (lambda p: optim.Adam(p, betas=(0.9, -0.1)), "index 1"),
        (lambda p: optim.Adam(p, eps=-1), "epsilon"),
        (lambda p: optim.AdamW(p, weight_decay=-1), "weight_decay"),
        (lambda p: optim.Adam([{"params": p, "lr": -3}]), "learning rate"),
    ],
)
def test_bad_options_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make([nn.Parameter(ts.ones(1))])


def test_foreach_and_fused_are_accepted():
    p = [nn.Parameter(ts.ones(1))]
    optim.SGD(p, foreach=True, fused=False)
    optim.Adam(p, foreach=False, fused=True)
    optim.AdamW(p, fused=True)


def test_training_reduces_the_loss(device):
    ts.manual_seed(0)
    for make in (lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda p: optim.AdamW(p, 0.05)):
        model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
        optimizer = make(model.parameters())
        x = ts.randn(64, 2, device=device)
        y = (x[:, 0] * x[:, 1] > 0).long()
        losses = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.25 < 0.5 < losses[0]


def test_adam_takes_betas_that_are_floats_or_tensors():
    """As in PyTorch, whose other optimizers take integers."""
    p = [nn.Parameter(ts.ones(1))]
    for kind in (optim.Adam, optim.AdamW):
        for betas in ((0, 0.9), (0.9, 0), (0, 0), (ts.tensor(0.9), 0.99)):
            with pytest.raises(ValueError, match="either both floats or both Tensors"):
                kind(p, betas=betas)
        assert kind(p, betas=(0.0, 0.9)).defaults["betas"] == (0.0, 0.9)
        assert len(kind(p, betas=(ts.tensor(0.9), ts.tensor(0.99)), foreach=False).param_groups) == 1
    for kind in (optim.NAdam, optim.RAdam, optim.Adamax):
        assert kind(p, betas=(0, 0.9)).defaults["betas"] == (0, 0.9)
