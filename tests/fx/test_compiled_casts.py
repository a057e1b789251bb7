"""Weights that autocast casts once and a program uses often: gradients meet where they meet in plain Python."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import compiler, nn

F = nn.functional
CALLS = 5


class Often(nn.Module):
    """One layer three times, and an embedding that is the last layer's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.norm = nn.Embedding(9, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.last = nn.Linear(8, 9, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        h = self.table(x)
        for _ in range(3):
            h = self.norm(h + self.layer(h).tanh())
        return self.last(h) + self.last(h.sin())


def region(**options: Any) -> Any:
    return ts.autocast("cpu", options.pop("dtype", ts.bfloat16), **options)


def one(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    with region():
        return net(x).float()


def two(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    with region():
        first = net(x)
    with region():
        return net(x) + first


def nested(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    with region(), region():
        first = net(x)
        with ts.no_grad():
            net(x)
        with region(enabled=False):
            second = net(x)
        return net(x) + first + second


def uncached(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    with region(cache_enabled=False):
        return net(x)


def written(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    with region():
        first = net.last(net.table(x))
        with ts.no_grad():
            net.last.weight.mul_(0.5)
        return net.last(first @ net.last.weight.detach()) + first.detach()


def plain(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    return net(x)


@pytest.mark.parametrize("outer", [None, {}, {"cache_enabled": False}], ids=["alone", "within", "uncached"])
@pytest.mark.parametrize("program", [plain, one, two, nested, uncached, written], ids=lambda f: f.__name__)
def test_gradients_are_those_of_plain_python_from_the_first_call_on(
    program: Callable[..., ts.Tensor], outer: dict[str, Any] | None
) -> None:
    ts.manual_seed(0)
    net = Often()
    twin = copy.deepcopy(net)
    compiled = ts.compile(lambda x: program(net, x))
    for call in range(CALLS):
        x = ts.randint(0, 9, (2, 5))
        for model, run in ((net, compiled), (twin, lambda x: program(twin, x))):
            with contextlib.nullcontext() if outer is None else region(**outer):
                losses = [F.cross_entropy(run(x).float().flatten(0, 1), x.flatten()) for _ in range(2)]
            model.zero_grad()
            sum(losses).backward()
            with ts.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p.sub_(p.grad * 0.01)
        for (name, p), q in zip(net.named_parameters(), twin.parameters(), strict=True):
            assert p.detach().equal(q.detach()), (call, name)
            assert (p.grad is q.grad is None) or p.grad.equal(q.grad), (call, name)


def inner_products(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    h = net.table(x).sin()
    return ts.einsum("abc,dc->abd", h, net.layer.weight).cos().tanh().exp() + h.tanh().exp()


def within_one_operator(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    h = net.table(x).sin()
    return ts.linalg.matrix_exp(h @ h.mT / 64).cos().tanh().exp().sin().tanh()


@ts.library.custom_op("castsown::product", mutates_args=())
def custom_product(x: ts.Tensor) -> ts.Tensor:
    return x @ x.mT


@custom_product.register_fake
def _(x: ts.Tensor) -> ts.Tensor:
    return x @ x.mT


def within_a_custom_operator(net: nn.Module, x: ts.Tensor) -> ts.Tensor:
    return custom_product(net.table(x).detach().sin()).cos().tanh().exp().sin().tanh() + net.last.weight[0, 0]


REGIONS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "casts within": ({}, None),
    "within one that is off": ({}, {"enabled": False}),
    "off within another one": ({"enabled": False}, {}),
    "of another dtype": ({"dtype": ts.float16}, {}),
}


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize(
    "program", [plain, inner_products, within_one_operator, within_a_custom_operator], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("grad", [True, False])
def test_regions_of_the_programs_own_count_in_every_call(
    program: Callable[..., ts.Tensor], name: str, grad: bool
) -> None:
    """Operators that cast within, and those that a region around the call would have cast otherwise."""
    own, outer = REGIONS[name]
    net = Often()

    def run(x: ts.Tensor) -> ts.Tensor:
        with ts.autocast("cpu", **{"dtype": ts.bfloat16, **own}):
            return program(net, x)

    compiled = ts.compile(run)
    for _ in range(CALLS):
        x = ts.randint(0, 9, (2, 5))
        found = []
        for call in (run, compiled):
            net.zero_grad()
            with ts.set_grad_enabled(grad), contextlib.nullcontext() if outer is None else region(**outer):
                y = call(x)
            if grad:
                y.float().square().mean().backward()
            found.append([y.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)])
        assert all(a.dtype == b.dtype and a.equal(b) for a, b in zip(*found, strict=True))


def test_a_trace_has_one_cast_of_a_region_of_its_own() -> None:
    layer = nn.Linear(4, 4)

    def program(x: ts.Tensor) -> ts.Tensor:
        with region():
            return layer(layer(layer(x)))

    compiled = ts.compile(program, fullgraph=True)
    x, found = ts.randn(3, 4), []
    for run in (program, compiled, compiled, compiled):
        layer.zero_grad()
        run(x).float().square().sum().backward()
        found.append([p.grad.clone() for p in layer.parameters()])
    assert all(a.equal(b) for grads in found[1:] for a, b in zip(found[0], grads, strict=True))
    graph = compiled._compiled.places[0].capture.module.graph
    assert str(graph).count("_autocast_cast(") == 2  # the weight and the bias


@pytest.mark.parametrize("grad", [True, False])
def test_calls_within_a_region_are_planned_both_ways(grad: bool) -> None:
    ts.manual_seed(0)
    net = nn.Sequential(
        *[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)]
    )
    twin = copy.deepcopy(net)
    compiled = ts.compile(net)
    for call in range(7):
        x = ts.randn(4, 8)
        results = []
        for model, run in ((net, compiled), (twin, twin)):
            ts.manual_seed(call)
            with region(), ts.set_grad_enabled(grad):
                y = run(x) + run(x * 2)  # of one region's casts
            if grad:
                y.float().square().sum().backward()
            results.append([y.detach(), *(p.grad for p in model.parameters())])
        for mine, theirs in zip(*results, strict=True):
            assert mine is theirs is None or (mine.dtype == theirs.dtype and mine.equal(theirs)), call
    told = str(compiler.explain(compiled)(ts.randn(4, 8)))
    halves = ["forward", "backward"] if grad else ["whole"]
    assert all(f"graph 1, {half}: " in told for half in halves), told
    with region(dtype=ts.float16):
        assert compiled(x).dtype == ts.float16  # another region
    assert compiled(x).equal(net(x)) or net.training


def test_hooks_within_a_region_run_in_the_order_of_eager() -> None:
    ts.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(3)])
    log: list[Any] = []
    compiled, x = ts.compile(net), ts.randn(4, 8)

    def step(run: Any) -> list[Any]:
        log.clear()
        with region():
            y = run(x)
        y.float().square().sum().backward()
        return [*log]

    for _ in range(5):
        step(compiled)
    for name, p in net.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: log.append((name, p.grad.sum().item())))
        p.register_hook(lambda grad, name=name: log.append(name))
    for _ in range(3):
        net.zero_grad()
        mine = step(compiled)
        net.zero_grad()
        assert mine == step(net) and len(mine) == 24


def test_what_casts_within_itself_is_called_in_its_region() -> None:
    def program(x: ts.Tensor, w: ts.Tensor) -> ts.Tensor:
        h = ts.einsum("ab,cb->ac", x.tanh().exp(), w).sin().cos()
        return h.tanh().exp().sin()

    compiled, x, w = ts.compile(program), ts.randn(3, 4), nn.Parameter(ts.randn(5, 4))
    for _ in range(5):
        with region():
            mine, theirs = compiled(x, w), program(x, w)
        assert mine.dtype == theirs.dtype == ts.bfloat16 and mine.equal(theirs)
        assert ts.autograd.grad(mine.sum(), w)[0].equal(ts.autograd.grad(theirs.sum(), w)[0])
