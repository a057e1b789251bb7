"""Graphs of further arguments: what they depend on is looked at anew only where they read something else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.aten.fake import FakeTensorMode
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.jit._compile import capture
from tesserack.jit._compile.compiled import config

from tests.fx.compiled import same

SCALE, SHIFT, BIAS = 2.0, [0.5], 1.0


def scaled(x: ts.Tensor) -> ts.Tensor:
    y = (x * SCALE).sin() + x.cos() * SHIFT[0]
    return y + BIAS if len(x) > 4 else y


def counting(x: ts.Tensor) -> ts.Tensor:
    y = (x * SCALE).sin() + SHIFT[0]
    if len(x) > 4:
        SHIFT.append(1.0)
    return y


def branching(x: ts.Tensor) -> ts.Tensor:
    return shifted(x) if len(x) > 4 else x.sin() * SCALE


def shifted(x: ts.Tensor) -> ts.Tensor:
    return x.cos() + BIAS


@pytest.fixture(params=["alone", "beside"], autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "alone":
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is looked at before runs, for whose graphs nothing that is known of others would do."""
    monkeypatch.setitem(config, "smallest", 0)
    monkeypatch.setitem(config, "again", 1)
    monkeypatch.setitem(globals(), "SHIFT", [0.5])
    found: list[Any] = []
    before = capture.Before

    def seen(*args: Any) -> Any:
        found.append(args)
        return before(*args)

    monkeypatch.setattr(capture, "Before", seen)
    return found


def test_another_length_is_a_graph_of_the_same_dependencies(looked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ts.compile(scaled)
    for n in (2, 3, 8):
        assert same(compiled(ts.arange(n) * 1.0), scaled(ts.arange(n) * 1.0))
    assert compiled._compiled._count == 3 and len(looked) == 1
    for name, value in (("SCALE", 3.0), ("SHIFT", [0.25]), ("BIAS", 2.0)):
        monkeypatch.setitem(globals(), name, value)
        for n in (2, 3, 8):
            assert same(compiled(ts.arange(n) * 1.0), scaled(ts.arange(n) * 1.0))
    SHIFT[0] = 5.0
    for n in (2, 3, 8):
        assert same(compiled(ts.arange(n) * 1.0), scaled(ts.arange(n) * 1.0))


def test_a_run_that_changes_what_the_others_read_is_no_graph(looked: list[Any]) -> None:
    compiled, held = ts.compile(counting), SHIFT
    for n in (2, 2, 8, 8, 2, 8, 8):
        before = len(held)
        assert same(compiled(ts.arange(n) * 1.0), (ts.arange(n) * SCALE).sin() + SHIFT[0])
        assert len(held) == before + (n > 4)


def test_a_run_that_reads_more_is_looked_at_by_itself(looked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ts.compile(branching)
    for n in (2, 8, 8, 8):
        assert same(compiled(ts.arange(n) * 1.0), branching(ts.arange(n) * 1.0))
    assert compiled._compiled._count == 2 and len(looked) == 2
    monkeypatch.setitem(globals(), "BIAS", 4.0)
    for n in (2, 8):
        assert same(compiled(ts.arange(n) * 1.0), branching(ts.arange(n) * 1.0))


def test_modules_that_change_between_lengths(looked: list[Any]) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.LayerNorm(4))
    compiled = ts.compile(net)
    for n in (2, 3, 5):
        assert same(compiled(ts.ones(n, 4)), net(ts.ones(n, 4)))
    assert len(looked) == 1
    net[2] = nn.Tanh()
    for n in (2, 3, 7):
        assert same(compiled(ts.ones(n, 4)), net(ts.ones(n, 4)))
    handle = net[0].register_forward_hook(lambda module, args, result: result * 2)
    for n in (2, 9):
        assert same(compiled(ts.ones(n, 4)), net(ts.ones(n, 4)))
    handle.remove()
    assert same(compiled(ts.ones(9, 4)), net(ts.ones(9, 4)))


def test_a_call_that_python_makes_leaves_graphs_of_modules_at_hand() -> None:
    nets = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(8)]) for _ in range(2)]
    compiled, other = (ts.compile(net) for net in nets)
    x = ts.ones(2, 4)
    for _ in range(3):
        compiled(x)
    known = compiled._compiled.known
    assert known.replays.find((x,), {})
    with ts.compiler.set_stance("force_eager"):
        other(x)
        assert known.replays.find((x,), {})


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_graph_of_a_tensor_that_the_program_holds_is_for_no_other(fullgraph: bool) -> None:
    held = ts.ones(2, 2)

    def told(x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
        z = (x.sin() + y.cos()).exp().sigmoid().tanh()
        return z + 1 if x is held else z * 2

    compiled, others = ts.compile(told, fullgraph=fullgraph), [ts.ones(2, 2) * k for k in range(2)]
    # Whole graphs are looked for step by step, in each call anew: that takes as long as there are objects.
    for x in (held, *others, held) if fullgraph else (held, held, *others, held, *others, held):
        for y in others[: 1 if fullgraph and x is held else 2]:
            assert same(compiled(x, y), told(x, y))
    assert compiled._compiled._count == 2  # of one tensor twice, and of two


@pytest.mark.filterwarnings("ignore:initialising")
def test_layers_without_features_are_shown():
    """As models have them whose width was divided down to 0."""
    layer, x = nn.Linear(0, 4), ts.ones(2, 3, 0)
    assert ts.equal(ts.export.export(layer, (x,)).module()(x), layer(x))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.clone().resize_((3, 2)),
        lambda x: x.clone().resize_as_(ts.ones(3, 2)),
        lambda x: ts.empty(0).set_(x.clone()),
    ],
)
def test_a_tensor_that_becomes_another_is_refused(program, mode):
    """Whose graph went on with what it was, without a word."""
    with pytest.raises(RuntimeError, match="becomes another"):
        make_fx(program, tracing_mode=mode)(ts.randn(2, 3))
    other_sizes = pytest.warns(UserWarning, match="becomes another") if mode == "symbolic" else contextlib.nullcontext()
    with other_sizes:
        same_size = make_fx(lambda x: x.clone().resize_((2, 3)), tracing_mode=mode)(ts.ones(2, 3))
    assert ts.equal(same_size(ts.zeros(2, 3)), ts.zeros(2, 3))


def test_factors_of_fake_tensors():
    """Whether a matrix is singular cannot be told: there was a read of no memory."""
    with FakeTensorMode() as mode:
        x = mode.from_tensor(ts.randn(2, 5, 5))
        p, low, up = ts.lu_unpack(*ts.linalg.lu_factor(x))
        assert p.shape == low.shape == up.shape == (2, 5, 5)
        for solved in (ts.linalg.inv(x), ts.linalg.solve(x, x), ts.linalg.cholesky(x), ts.linalg.eigh(x)[1]):
            assert solved.shape == (2, 5, 5)


@pytest.mark.parametrize("make", [ts.linspace, ts.logspace])
def test_ends_in_tensors_are_no_constants(make):
    given = ts.tensor(1.0), ts.tensor(2.0)
    for program in (lambda a, b: make(a, b, 5), lambda a, b: make(a, 3, 5), lambda a, b: make(0, b, 5)):
        graph = make_fx(program)(*given)
        assert ts.equal(graph(given[1], given[0]), program(given[1], given[0]))


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3, 0), (0, 4)), ((2, 2, 0), (0,)), ((0,), (2, 0, 3)), ((1, 2, 0), (2, 0, 3))]
)
def test_products_of_nothing(a, b):
    x, y = ts.ones(a), ts.ones(b)
    assert ts.equal(make_fx(lambda x, y: x @ y)(x, y)(x, y), x @ y)


@pytest.mark.parametrize(
    "program",
    [lambda x: x * x.item(), lambda x: x * 2 if x > 1 else x, lambda x: x * int(ts.equal(x, x)), lambda x: x * bool(x)],
)
def test_numbers_of_what_is_traced_are_refused(program):
    """Which the graph had as constants of the first run."""
    x = ts.tensor(2.0)
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        make_fx(program)(x)
    written = make_fx(program, _error_on_data_dependent_ops=False)(x)
    assert ts.equal(written(x), program(x))
    constant = make_fx(lambda x: x * ts.tensor(3.0).item())(x)
    assert constant(x).item() == 6.0
