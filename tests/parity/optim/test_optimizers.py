"""Optimizers, schedules and averages beside torch's: trajectories, saved states, refusals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import nn, optim

toptim = torch.optim

CASES: list[tuple[str, dict[str, Any]]] = [
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.3, "weight_decay": 0.1, "eps": (1e-3, 1e-2), "d": 1.5, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "foreach": True}),
    ("Adam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"lr": 0.1, "betas": (0.7, 0.8), "fused": True}),
    ("Adamax", {}),
    ("Adamax", {"weight_decay": 0.1, "betas": (0.5, 0.7), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"t0": 3, "lambd": 0.1, "weight_decay": 0.1, "alpha": 0.6, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "lr": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "alpha": 0.8, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.05), "maximize": True}),
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True, "foreach": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True, "fused": True}),
]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
SHAPES = [(3, 4), (5,), (2, 3, 2)]


def start(shapes: Any = SHAPES) -> list[Any]:
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(*shape, dtype=torch.double)) for shape in shapes]


def twins(beside: Any, shapes: Any = SHAPES) -> tuple[list[Any], list[Any]]:
    theirs = start(shapes)
    return [nn.Parameter(beside.ours(p.detach())) for p in theirs], theirs


def give_gradients(beside: Any, ours: list[Any], theirs: list[Any], step: int) -> None:
    for k, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        if k == 1 and step % 3 == 1:
            p.grad = q.grad = None
            continue
        q.grad = torch.randn_like(q)
        p.grad = beside.ours(q.grad)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_trajectories(name: str, options: dict[str, Any], beside: Any, tmp_path: Path) -> None:
    """Ten steps, with a copy resumed from torch's state after four and one from a file after seven."""
    ours, theirs = twins(beside)
    mine, other = getattr(optim, name)(ours, **options), getattr(toptim, name)(theirs, **options)
    for step in range(10):
        give_gradients(beside, ours, theirs, step)
        mine.step(), other.step()
        # PyTorch keeps ASGD's rate in float32.
        beside.close(ours, theirs, f"step {step}", 1e-6 if name == "ASGD" else 1e-8)
        if step == 4:
            mine = getattr(optim, name)(ours, **options)
            mine.load_state_dict(beside.ours(other.state_dict()))
        if step == 7:
            ts.save(mine.state_dict(), tmp_path / "state")
            mine = getattr(optim, name)(ours, lr=77.0)
            mine.load_state_dict(ts.load(tmp_path / "state"))
    assert mine.state_dict()["param_groups"] == other.state_dict()["param_groups"]
    keys = {key for state in other.state_dict()["state"].values() for key in state}
    assert {key for state in mine.state_dict()["state"].values() for key in state} == keys


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_files_resume_exactly(name: str, options: dict[str, Any], beside: Any, tmp_path: Path) -> None:
    ours, theirs = twins(beside)
    mine = getattr(optim, name)(ours, **options)
    for step in range(3):
        give_gradients(beside, ours, theirs, step)
        mine.step()
    copies = [nn.Parameter(p.detach().clone()) for p in ours]
    ts.save(mine.state_dict(), tmp_path / "state")
    resumed = getattr(optim, name)(copies)
    resumed.load_state_dict(ts.load(tmp_path / "state"))
    for step in range(3, 6):
        give_gradients(beside, ours, theirs, step)
        for p, q in zip(ours, copies, strict=True):
            q.grad = p.grad
        mine.step(), resumed.step()
    assert all(p.equal(q) for p, q in zip(ours, copies, strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}], ids=str
)
def test_muon(options: dict[str, Any], beside: Any) -> None:
    ours, theirs = twins(beside, [(3, 4), (6, 2), (4, 4)])
    mine, other = optim.Muon(ours, lr=0.1, **options), toptim.Muon(theirs, lr=0.1, **options)
    for step in range(10):
        give_gradients(beside, ours, theirs, step * 3)
        mine.step(), other.step()
        for p, q in zip(ours, theirs, strict=True):  # computed in bfloat16
            assert (p - beside.ours(q.detach())).abs().max().item() < 0.03
    assert mine.state_dict()["param_groups"] == other.state_dict()["param_groups"]


LBFGS: list[dict[str, Any]] = [
    {"lr": 0.1},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 4},
    {"lr": 0.05, "max_eval": 5},
]


@pytest.mark.parametrize("options", LBFGS, ids=str)
def test_lbfgs(options: dict[str, Any], beside: Any) -> None:
    ours, theirs = twins(beside, [(2,), (3,)])
    mine, other = optim.LBFGS(ours, **options), toptim.LBFGS(theirs, **options)

    def closure_of(optimizer: Any, a: Any, b: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = (1 - a[0]) ** 2 + 100 * (a[1] - a[0] ** 2) ** 2 + (b * b * b * b).sum() + (b.cos() * a[0]).sum()
            loss.backward()
            return loss

        return closure

    for _ in range(10):
        losses = [o.step(closure_of(o, *params)) for o, params in ((mine, ours), (other, theirs))]
        beside.close(*losses, tolerance=1e-5)
        beside.close(ours, theirs, tolerance=1e-5)
    states = mine.state[ours[0]], other.state[theirs[0]]
    assert [states[0][key] for key in ("func_evals", "n_iter")] == [states[1][key] for key in ("func_evals", "n_iter")]


def test_complex_parameters(beside: Any) -> None:
    for name in ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"):
        theirs = [torch.nn.Parameter(torch.tensor([1 + 2j, -0.5 + 0.25j], dtype=torch.complex128))]
        ours = [nn.Parameter(ts.tensor([1 + 2j, -0.5 + 0.25j], dtype=ts.complex128, device=beside.device))]
        if not hasattr(ts, "view_as_real"):
            pytest.skip("complex tensors have no real view yet")
        mine, other = getattr(optim, name)(ours), getattr(toptim, name)(theirs)
        for step in range(5):
            value = [complex(step - 1.5, 0.5), complex(-1, step)]
            theirs[0].grad = torch.tensor(value, dtype=torch.complex128)
            ours[0].grad = ts.tensor(value, dtype=ts.complex128, device=beside.device)
            mine.step(), other.step()
        assert ours[0].tolist() == pytest.approx(theirs[0].tolist())


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam"])
def test_differentiable_steps(name: str, beside: Any) -> None:
    """The gradient of what a step makes by what its gradient was made of."""
    found = []
    for lib in (ts, torch):
        weight = lib.tensor([1.0, -2.0], dtype=lib.float64, requires_grad=True)
        param = weight.clone()
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(lib.optim, name)([weight], lr=0.1, differentiable=True, **options)
        optimizer.param_groups[0]["params"][0] = param
        for scale in (1.0, 2.0):
            param.grad = weight * scale
            optimizer.step()
        found.append(lib.autograd.grad((param * param).sum(), weight)[0])
    assert found[0].tolist() == pytest.approx(found[1].tolist(), rel=1e-5)


REFUSED = [
    lambda o, w: o.Adadelta([w], rho=2),
    lambda o, w: o.Adafactor([w], d=0.5),
    lambda o, w: o.Adafactor([w], beta2_decay=1),
    lambda o, w: o.Adagrad([w], lr_decay=-1),
    lambda o, w: o.Adamax([w], betas=(1, 0)),
    lambda o, w: o.ASGD([w], weight_decay=-1),
    lambda o, w: o.LBFGS([{"params": [w]}, {"params": [w * 1]}]),
    lambda o, w: o.Muon([w]),
    lambda o, w: o.Muon([w], adjust_lr_fn="x"),
    lambda o, w: o.NAdam([w], momentum_decay=-1),
    lambda o, w: o.RAdam([w], eps=-1),
    lambda o, w: o.RMSprop([w], alpha=-1),
    lambda o, w: o.Rprop([w], etas=(1.5, 2)),
    lambda o, w: o.SparseAdam([w]).step(),
    lambda o, w: o.SGD([w], nesterov=True),
    lambda o, w: o.Adam([w], capturable=True).step(),
    lambda o, w: o.lr_scheduler.CyclicLR(o.Adagrad([w]), 0.1, 0.2),
    lambda o, w: o.lr_scheduler.CyclicLR(o.SGD([w]), 0.1, 0.2, mode="x"),
    lambda o, w: o.swa_utils.SWALR(o.SGD([w]), 0.1, anneal_epochs=-1),
    lambda o, w: o.swa_utils.get_ema_avg_fn(2.0),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case: int) -> None:
    for lib in (torch, ts):
        weight = lib.ones(3, requires_grad=True)
        weight.grad = lib.ones(3)
        if lib is torch:
            with pytest.raises(Exception) as expected:
                REFUSED[case](lib.optim, weight)
        else:
            with pytest.raises(expected.type):
                REFUSED[case](lib.optim, weight)


SCHEDULES = [
    lambda m, o: m.optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, step_size_up=3),
    lambda m, o: m.optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, 3, 2, "triangular2"),
    lambda m, o: m.optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, 3, 4, "exp_range", 0.9, cycle_momentum=False),
    lambda m, o: m.optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, 3, scale_fn=lambda x: 1 / x, base_momentum=0.5),
    lambda m, o: m.optim.swa_utils.SWALR(o, 0.05, 4),
    lambda m, o: m.optim.swa_utils.SWALR(o, 0.05, 3, "linear"),
    lambda m, o: m.optim.swa_utils.SWALR(o, 0.05, 0),
    lambda m, o: m.optim.lr_scheduler.CosineAnnealingLR(o, 5, 0.01),
    lambda m, o: m.optim.lr_scheduler.MultiplicativeLR(o, lambda t: 0.9),
    lambda m, o: m.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    lambda m, o: m.optim.lr_scheduler.OneCycleLR(o, 0.3, 30),
]


@pytest.mark.parametrize("case", range(len(SCHEDULES)))
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedules_and_their_states(case: int, kind: str, tmp_path: Path) -> None:
    def build(m: Any) -> Any:
        options: dict[str, Any] = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(m.optim, kind)([m.nn.Parameter(m.zeros(1))], lr=0.2, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optimizer, SCHEDULES[case](m, optimizer)

    (ours, mine), (theirs, other) = build(ts), build(torch)
    for step in range(20):
        for key in ("lr", "momentum", "betas"):
            a, b = ours.param_groups[0].get(key), theirs.param_groups[0].get(key)
            assert a is b is None or a == pytest.approx(b, rel=1e-9, abs=1e-12)
        ours.step(), mine.step(), theirs.step(), other.step()
        if step == 9:
            ts.save({"optimizer": ours.state_dict(), "schedule": mine.state_dict()}, tmp_path / "state")
            ours, mine = build(ts)
            saved = ts.load(tmp_path / "state")
            ours.load_state_dict(saved["optimizer"]), mine.load_state_dict(saved["schedule"])


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", ["plain", "ema", "swa_fn", "ema_fn", "ema_multi"])
def test_averaged_models(kind: str, use_buffers: bool, beside: Any) -> None:
    ours, theirs = beside.pair(*(m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3)) for m in (ts, torch)))

    def average(m: Any, model: Any) -> Any:
        swa = m.optim.swa_utils
        options: dict[str, Any] = {
            "plain": {},
            "ema": {"avg_fn": lambda a, b, n: 0.9 * a + 0.1 * b},
            "swa_fn": {"avg_fn": swa.get_swa_avg_fn()},
            "ema_fn": {"avg_fn": swa.get_ema_avg_fn(0.8)},
            "ema_multi": {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.8)},
        }[kind]
        return swa.AveragedModel(model, use_buffers=use_buffers, **options)

    mine, other = average(ts, ours), average(torch, theirs)
    for _ in range(4):
        x = torch.randn(5, 2, dtype=torch.double)
        ours(beside.ours(x)), theirs(x)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            change = torch.randn_like(q)
            p.data.add_(beside.ours(change)), q.data.add_(change)
        mine.update_parameters(ours), other.update_parameters(theirs)
    assert list(mine.state_dict()) == list(other.state_dict())
    beside.close(list(mine.state_dict().values()), list(other.state_dict().values()))
    batches = [torch.randn(5, 2, dtype=torch.double) for _ in range(3)]
    optim.swa_utils.update_bn([(beside.ours(b), None) for b in batches], mine)
    toptim.swa_utils.update_bn([(b, None) for b in batches], other)
    beside.close(list(mine.state_dict().values()), list(other.state_dict().values()))
    beside.close(mine(beside.ours(x)), other(x))


def test_differentiable_products_of_weights() -> None:
    """NAdam's running product is in the graph where it requires a gradient."""

    def run(lib: Any) -> Any:
        weight = lib.arange(1.0, 4.0, dtype=lib.float64).requires_grad_()
        product = lib.tensor(0.9, dtype=lib.float64, requires_grad=True)
        stepped = weight.clone()
        optimizer = lib.optim.NAdam([stepped], lr=0.1, differentiable=True)
        moments = {name: lib.full((3,), 0.5, dtype=lib.float64) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[stepped].update(step=lib.tensor(3.0), mu_product=product.clone(), **moments)
        stepped.grad = lib.full((3,), 0.3, dtype=lib.float64)
        optimizer.step()
        return [stepped.detach().tolist(), lib.autograd.grad(stepped.sum(), product)[0].item()]

    ours, theirs = run(ts), run(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)
    assert ours[1] == pytest.approx(theirs[1], rel=1e-9)
