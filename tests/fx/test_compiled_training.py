"""Compiled modules that train: backward passes planned with their forward, in bits what plain Python gives."""

from __future__ import annotations

import copy
import gc
import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.testing import seeds
from tesserack.utils import checkpoint

F = nn.functional
COUNT = 100 if seeds.full() else 5


class Mixed(nn.Module):
    """A layer of many kinds: weights that meet twice, a residual, dropout, a buffer that it counts."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 3)
        self.drop = nn.Dropout(0.3)
        self.scale = nn.Parameter(ts.ones(width))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        h = self.drop(F.gelu(self.first(x) * self.scale)) + x
        h = self.norm(F.relu(F.linear(h, self.first.weight)) * self.scale)
        return self.last(h.sigmoid() * h)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mixed": (Mixed, (5, 8)),
    "convolutions": (convolutions, (3, 2, 8, 8)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True), (2, 5, 8)),
    "layers": (lambda: nn.Sequential(*(m for _ in range(5) for m in (nn.Linear(8, 8), nn.Tanh()))), (4, 8)),
}


def pair(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module, Any]:
    """A model, a copy, and the copy compiled."""
    ts.manual_seed(0)
    model = make()
    other = copy.deepcopy(model)
    return model, other, ts.compile(other)


def plans(compiled: Any) -> set[str]:
    """The halves that have plans."""
    found = [runner for place in compiled._compiled.places for runner in place.capture.module.runners]
    return {plan["half"] for runner in found for plan in runner.plans()}


def same(a: nn.Module, b: nn.Module) -> None:
    """Parameters, gradients and buffers are equal in bits."""
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert p.detach().equal(q.detach()), name
        assert (p.grad is None) == (q.grad is None) and (p.grad is None or p.grad.equal(q.grad)), name
    for (name, p), q in zip(a.named_buffers(), b.named_buffers(), strict=True):
        assert p.equal(q[1]), name


def pass_back(run: Any, x: ts.Tensor, seed: int) -> ts.Tensor:
    ts.manual_seed(seed)
    loss = (run(x) * 1.5).square().mean()
    loss.backward()
    return loss.detach()


def train(model: nn.Module, compiled: Any, other: nn.Module, shape: tuple[int, ...], turns: int = 5) -> None:
    """Passes through both, with gradients that are summed."""
    for turn in range(turns):
        x = ts.randn(shape)
        assert pass_back(model, x, turn).equal(pass_back(compiled, x, turn))
        same(model, other)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_leave_the_parameters_of_eager(name: str, optimizer: str) -> None:
    make, shape = MODELS[name]
    model, other, compiled = pair(make)
    options: dict[str, Any] = {"momentum": 0.9} if optimizer == "SGD" else {}
    steps = [getattr(ts.optim, optimizer)(m.parameters(), lr=0.02, **options) for m in (model, other)]
    for turn in range(10):
        x = ts.randn(shape)
        for step, run in zip(steps, (model, compiled), strict=True):
            step.zero_grad()
            pass_back(run, x, turn)
            nn.utils.clip_grad_norm_(step.param_groups[0]["params"], 1.0)
            step.step()
        same(model, other)
    assert {"forward", "backward"} <= plans(compiled)


class Chosen(nn.Module):
    """A chain of layers that follows from a seed."""

    def __init__(self, chance: Any) -> None:
        super().__init__()
        width = chance.choice([3, 4, 8])
        self.width = width
        self.layers = nn.ModuleList()
        self.ways: list[str] = []
        for _ in range(chance.randrange(4, 9)):
            kind: Callable[[], nn.Module] = chance.choice([
                lambda: nn.Linear(width, width), lambda: nn.Linear(width, width, bias=False), nn.GELU, nn.SiLU,
                lambda: nn.ReLU(inplace=True), nn.Tanh, nn.Softplus, lambda: nn.LayerNorm(width), nn.ELU,
                lambda: nn.BatchNorm1d(width), lambda: nn.Dropout(0.4), lambda: nn.PReLU(), lambda: nn.Softmax(-1),
                lambda: nn.GLU() if width % 2 == 0 else nn.Tanh(),
            ])  # fmt: skip
            layer = chance.choice(list(self.layers)) if len(self.layers) and chance.random() < 0.2 else kind()
            self.layers.append(layer)
            self.ways.append(chance.choice(["plain", "add", "multiply", "halves"]))
        for p in self.parameters():
            p.requires_grad_(chance.random() < 0.85)

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        for layer, way in zip(self.layers, self.ways, strict=True):
            y = layer(x * 1.0)
            if y.shape != x.shape:
                y = ts.cat([y, y], -1)
            if way == "add":
                y = x + y
            elif way == "multiply":
                y = y * x.sigmoid()
            elif way == "halves":
                a, b = y.split([1, self.width - 1], -1)
                y = ts.cat([b, a * 2], -1)
            x = y
        return x + 0.5


def test_random_modules_train_as_in_eager() -> None:
    chance = seeds.generator("compiled training")
    planned = 0
    for _ in range(COUNT):
        seed = chance.randrange(2**31)
        model, other, compiled = pair(lambda seed=seed: Chosen(random.Random(seed)))
        for turn in range(8):
            if turn == 6:
                model.eval(), other.eval()
            x = ts.randn(6, model.width)
            given = [x.clone().requires_grad_(seed % 3 > 0) for _ in range(2)]
            if not given[0].requires_grad and not any(p.requires_grad for p in model.parameters()):
                continue
            losses = [pass_back(run, t, turn) for run, t in zip((model, compiled), given, strict=True)]
            assert losses[0].equal(losses[1]), f"Chosen({seed}), turn {turn}"
            try:
                same(model, other)
            except AssertionError as error:
                raise AssertionError(f"Chosen({seed}), turn {turn}") from error
            assert given[0].grad is None or given[0].grad.equal(given[1].grad), f"Chosen({seed}), turn {turn}"
        planned += "backward" in plans(compiled)
    assert planned


# --- what changes between two calls ---


def flip(m: nn.Module) -> None:
    m.first.weight.requires_grad_(not m.first.weight.requires_grad)


def replace(m: nn.Module) -> None:
    m.scale = nn.Parameter(m.scale.detach() * 2)


def write(m: nn.Module) -> None:
    with ts.no_grad():
        m.scale.mul_(1.5)


def hook(m: nn.Module) -> None:
    m.norm.register_forward_hook(lambda module, args, out: out * 2)


def tensor_hook(m: nn.Module) -> None:
    m.scale.register_hook(lambda g: g * 3)


def backward_hook(m: nn.Module) -> None:
    m.norm.register_full_backward_hook(lambda module, gin, gout: tuple(None if g is None else g * 2 for g in gin))


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "requires_grad": flip,
    "a parameter": replace,
    "values": write,
    "a forward hook": hook,
    "a tensor's hook": tensor_hook,
    "a module's backward hook": backward_hook,
    "eval": lambda m: m.eval(),
    "double": lambda m: m.double(),
    "all frozen": lambda m: m.requires_grad_(False),
    "no gradients": lambda m: m.zero_grad(),
    "data": lambda m: setattr(m.scale, "data", m.scale.data + 1),
    "a layer": lambda m: setattr(m, "drop", nn.Dropout(0.7)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_after_planning_counts(what: str) -> None:
    model, other, compiled = pair(Mixed)
    train(model, compiled, other, (5, 8))
    assert {"forward", "backward"} <= plans(compiled)
    for turn in range(2):  # there, and again or back
        for m in (model, other):
            CHANGES[what](m)
        for k in range(4):
            x = ts.randn(5, 8).to(model.scale.dtype).requires_grad_()
            given = x.detach().clone().requires_grad_()
            assert pass_back(model, x, k).equal(pass_back(compiled, given, k))
            same(model, other)
            assert x.grad.equal(given.grad), (turn, k)


def test_shapes_and_grad_modes_come_and_go() -> None:
    model, other, compiled = pair(Mixed)
    for turn in range(12):
        x = ts.randn(3 + turn % 2, 8)
        with ts.set_grad_enabled(turn % 3 != 2):
            ts.manual_seed(turn)
            expected = model(x)
            ts.manual_seed(turn)
            got = compiled(x)
        assert got.equal(expected) and got.requires_grad == expected.requires_grad
        if expected.requires_grad:
            expected.sum().backward()
            got.sum().backward()
            same(model, other)


# --- what is done with the tape ---


def ready() -> tuple[nn.Module, nn.Module, Any]:
    model, other, compiled = pair(Mixed)
    model.eval(), other.eval()
    train(model, compiled, other, (5, 8))
    assert {"forward", "backward"} <= plans(compiled)
    model.zero_grad(), other.zero_grad()
    return model, other, compiled


def test_a_graph_that_is_retained_goes_back_twice_and_one_that_is_not_is_freed() -> None:
    model, other, compiled = ready()
    x = ts.randn(5, 8)
    for run in (model, compiled):
        y = run(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
    same(model, other)


def test_writing_to_what_is_saved_is_an_error() -> None:
    for run in ready()[::2]:
        y = run(ts.randn(5, 8))
        with ts.no_grad():
            run.last.bias.add_(1)  # which no gradient needs
        y.sum().backward()
        for p in (run.last.weight, run.norm.weight, run.scale):
            y = run(ts.randn(5, 8))
            with ts.no_grad():
                p.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()


def test_gradients_of_gradients() -> None:
    model, other, compiled = ready()
    for _ in range(3):
        found = []
        for run in (model, compiled):
            ts.manual_seed(0)
            x = ts.randn(5, 8, requires_grad=True)
            (g,) = ts.autograd.grad(run(x * 2).square().sum(), x, create_graph=True)
            g.square().sum().backward()
            found.append((g.detach(), x.grad))
        assert all(a.equal(b) for a, b in zip(*found, strict=True))
        same(model, other)


def test_a_pass_that_wants_something_else_gets_it() -> None:
    model, other, compiled = ready()
    for turn in range(6):
        found = []
        for run in (model, compiled):
            ts.manual_seed(0)
            x = ts.randn(5, 8, requires_grad=True)
            y = run(x)
            if turn % 2:
                found.append(ts.autograd.grad(y.sum(), [x, run.scale], retain_graph=turn > 2)[:2])
            else:
                y.t().backward(ts.ones(3, 5))
                found.append((x.grad, run.scale.grad))
        assert all(a.equal(b) for a, b in zip(*found, strict=True))
    same(model, other)


def test_hooks_run_as_often_and_in_the_order_of_eager() -> None:
    model, other, compiled = ready()
    told: list[list[str]] = [[], []]
    for m, list_ in zip((model, other), told, strict=True):
        for name, p in m.named_parameters():
            p.register_hook(lambda g, name=name, list_=list_: list_.append(name))
            p.register_post_accumulate_grad_hook(lambda p, name=name, list_=list_: list_.append("after " + name))
    x = ts.randn(5, 8)
    for run, list_ in zip((model, compiled), told, strict=True):
        y = run(x)
        y.register_hook(lambda g, list_=list_: list_.append("result"))
        y.retain_grad()
        y.sum().backward()
        assert y.grad.equal(ts.ones(5, 3))
    assert told[0] == told[1]
    same(model, other)


def test_modes_that_look_within_see_single_operators() -> None:
    model, other, compiled = ready()
    x, seen = ts.randn(5, 8), [0, 0]
    for k, run in enumerate((model, compiled)):

        def pack(t: ts.Tensor, k: int = k) -> ts.Tensor:
            seen[k] += 1
            return t

        with ts.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            run(x).sum().backward()
        with pytest.warns(UserWarning, match="Anomaly Detection"), ts.autograd.detect_anomaly():
            run(x).sum().backward()
        y = run(x)
        with pytest.warns(UserWarning, match="Anomaly Detection"), ts.autograd.detect_anomaly():
            y.sum().backward()
    assert seen[0] == seen[1] > 0
    same(model, other)


def test_a_result_may_be_written_to() -> None:
    model, other, compiled = ready()
    x = ts.randn(5, 8)
    for run in (model, compiled):
        y = run(x)
        y.mul_(2).add_(1)
        y.square().sum().backward()
    same(model, other)


class Squashed(nn.Module):
    """What it gives is what its gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(8, 8), nn.Sigmoid())))

    def forward(self, x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
        return self.layers(x + y.sin())


def test_writing_to_a_result_that_is_saved_is_an_error() -> None:
    model, other, compiled = pair(Squashed)
    x = ts.randn(5, 8)
    for _ in range(8):
        for run in (model, compiled):
            y = run(x, x)
            y.square().sum().backward()
        same(model, other)
    for run in (model, compiled):
        y = run(x, x)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert "backward" in plans(compiled)


def test_a_gradient_goes_to_the_tensor_that_was_given() -> None:
    model, other, compiled = pair(Squashed)
    for turn in range(16):
        found = []
        for run in (model, compiled):
            ts.manual_seed(turn)
            x = ts.randn(5, 8, requires_grad=True)
            y = (x, x.detach(), x.view(5, 8), x.detach().clone().requires_grad_())[turn % 4]
            (run(x, y) * 2).sum().backward()
            found.append([x.grad, y.grad if y.is_leaf else None])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None) and (a is None or a.equal(b)), turn
        same(model, other)
    assert "backward" in plans(compiled)


def test_transforms_and_checkpoints() -> None:
    model, other, compiled = ready()
    x, v = ts.randn(5, 8), ts.randn(5, 8)
    for got, expected in zip(ts.func.jvp(compiled, (x,), (v,)), ts.func.jvp(model, (x,), (v,)), strict=True):
        assert got.equal(expected)
    assert ts.func.vmap(compiled)(x).equal(ts.func.vmap(model)(x))
    square = [lambda t, run=run: run(t).square().sum() for run in (model, compiled)]
    assert ts.func.hessian(square[1])(x[0]).equal(ts.func.hessian(square[0])(x[0]))
    for reentrant in (False, True):
        for run in (model, compiled):
            given = x.clone().requires_grad_()
            checkpoint.checkpoint(run, given, use_reentrant=reentrant).square().sum().backward()
        same(model, other)


def test_threads_train_one_module() -> None:
    model, other, compiled = ready()
    xs = [ts.randn(5, 8) for _ in range(4)]
    expected = [ts.autograd.grad(model(x).square().mean(), list(model.parameters())) for x in xs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(10):
            got = ts.autograd.grad(compiled(xs[k]).square().mean(), list(other.parameters()))
            if not all(a.equal(b) for a, b in zip(got, expected[k], strict=True)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_that_nobody_uses() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = Mixed(), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
            h = self.body(x)
            return self.a(h).tanh(), self.b(h).sigmoid()

    model, other, compiled = pair(Two)
    for turn in range(10):
        x = ts.randn(5, 8)
        for run in (model, compiled):
            ts.manual_seed(turn)
            a, b = run(x)
            (a.sum() if turn < 7 else (a * b).sum()).backward()
        same(model, other)
        assert turn > 6 or other.b.weight.grad is None
    assert "backward" in plans(compiled)


@pytest.mark.parametrize("back", [True, False])
def test_nothing_is_held_after_the_pass(back: bool) -> None:
    _, _, compiled = ready()
    for _ in range(6):
        hidden = ts.randn(5, 8, requires_grad=True) * 2
        gone = weakref.ref(hidden)
        y = compiled(hidden)
        if back:
            y.sum().backward()
        else:
            y = y.detach()
        del hidden
    assert gone() is None


def peak(run: Any, m: nn.Module, x: ts.Tensor) -> int:
    """Bytes that a pass takes at its highest, above what was there before."""
    for _ in range(6):
        m.zero_grad()
        run(x).sum().backward()
    m.zero_grad()
    gc.collect()
    ts.reset_peak_memory_stats("cpu")
    before = ts.memory_stats("cpu")["allocated"]
    run(x).sum().backward()
    return int(ts.memory_stats("cpu")["allocated_peak"]) - int(before)


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_memory_is_not_above_that_of_eager(name: str) -> None:
    make, shape = MODELS[name]
    model, other, compiled = pair(make)
    x = ts.randn(256, *shape[1:])
    assert peak(compiled, other, x) <= peak(model, model, x) + 2048  # statistics as they were, small temporaries
    assert "backward" in plans(compiled)


def halve(parameter: ts.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


HOOKS: dict[str, Callable[[nn.Module, ts.Tensor], Any]] = {
    "tensor": lambda model, h: h.register_hook(lambda grad: grad.clamp(-0.001, 0.001)),
    "leaf": lambda model, h: model.first.weight.register_post_accumulate_grad_hook(halve),
    "kept": lambda model, h: h.retain_grad(),
    "node": lambda model, h: h.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2, *inputs[1:])),
}


class Hooked(Mixed):
    hook = "tensor"

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        h = self.first(x)
        if h.requires_grad:
            HOOKS[self.hook](self, h)
        return super().forward(h.tanh())


@pytest.mark.parametrize("hook", HOOKS)
def test_a_module_that_puts_hooks_on_what_it_computes_is_heard(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hooked, "hook", hook)
    model, other, compiled = pair(Hooked)
    for k in range(5):
        grads = []
        for run, owner in ((model, model), (compiled, other)):
            ts.manual_seed(k)
            owner.zero_grad()
            run(ts.randn(5, 8)).square().sum().backward()
            grads.append([p.grad for p in owner.parameters()])
        assert all(map(ts.equal, *grads)), k
