"""Captured programs whose kernels share no memory: branches of a graph, which the driver does in another order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import tesserack as ts
from simulated import NAME, Simulated, SimulatedError
from simulated_graphs import Capture, Node
from tesserack.testing import seeds

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture
def graphs(driver: Simulated, monkeypatch: pytest.MonkeyPatch) -> list[list[Node]]:
    """The kernels of each graph that is captured."""
    made: list[list[Node]] = []
    instantiate = driver.graphInstantiate

    def keep(graph: int) -> int:
        made.append([node for node in driver.graphs[graph][2] if not node.enters])
        return instantiate(graph)

    monkeypatch.setattr(driver, "graphInstantiate", keep)
    return made


def nothing_is_captured(driver: Simulated) -> bool:
    return not driver.captures and all(stream.capture is None for stream in driver._streams.values())


def side_by_side(a: Node, b: Node) -> bool:
    return a not in b.ancestors() and b not in a.ancestors()


def small(*shape: int) -> ts.Tensor:
    """Whole numbers, so that sums are exact."""
    return ts.randint(-2, 3, shape).float().to(NAME)


def replayed(driver: Simulated, function: Callable[..., ts.Tensor], *given: ts.Tensor, turns: int = 12) -> int:
    """How many graphs were launched, while each result is compared with that of calls."""
    with warnings.catch_warnings(), ts.no_grad():
        warnings.simplefilter("ignore")
        traced = ts.jit.trace(function, given, check_trace=False)
        before = driver.replays
        for turn in range(turns):
            given[0].copy_(small(*given[0].shape))
            expected = function(*given).cpu()
            result = traced(*given)
            assert result.cpu().tolist() == expected.tolist(), turn
            del result
    return driver.replays - before


def towers(x: ts.Tensor, w: ts.Tensor, v: ts.Tensor) -> ts.Tensor:
    left, right = x, x
    for _ in range(3):
        left = (left @ w).cumsum(1)
    for _ in range(3):
        right = (right @ v).cumsum(1)
    return left + right


def test_chains_are_branches_of_the_graph(driver: Simulated, graphs: list[list[Node]]) -> None:
    assert replayed(driver, towers, small(4, 5), small(5, 5), small(5, 5))
    *kernels, last = graphs[-1]
    streams = {node.stream: 0 for node in kernels}
    chains = [[node for node in kernels if node.stream is stream] for stream in streams]
    assert len(chains) == 2 and len(chains[0]) == len(chains[1])
    assert all(side_by_side(a, b) for a in chains[0] for b in chains[1])
    assert all(a in b.ancestors() for chain in chains for a, b in pairwise(chain))
    assert last.ancestors() >= {*kernels}
    assert nothing_is_captured(driver)


def test_a_chain_is_one_stream(driver: Simulated, graphs: list[list[Node]]) -> None:
    def chain(x: ts.Tensor, w: ts.Tensor) -> ts.Tensor:
        for _ in range(4):
            x = (x @ w).cumsum(1)
        return x

    assert replayed(driver, chain, small(4, 5), small(5, 5))
    assert len({node.stream for node in graphs[-1]}) == 1


def test_branches_have_scratch_memory_of_their_own(driver: Simulated, graphs: list[list[Node]]) -> None:
    """Sums in parts, whose parts lie in the workspace until the next kernel of the branch has added them."""

    def sums(x: ts.Tensor) -> ts.Tensor:
        return ts.stack([(x[k : k + 1].flip(1).sum() + x[k, 0]) * 2 for k in range(4)])

    assert replayed(driver, sums, small(4, 9000))
    assert len({node.stream for node in graphs[-1]}) == 4
    held = ts.memory_stats(NAME)["allocated"]
    ts.empty_cache(NAME)
    assert ts.memory_stats(NAME)["allocated"] < held


def wide(chance: Any) -> Callable[..., ts.Tensor]:
    """Each step takes what any earlier one gave, now and then in place or a part of it."""
    kinds = ["matmul", "cumsum", "flip", "add", "write", "part"]
    steps = [
        (chance.choice(kinds), chance.randrange(99), chance.randrange(99)) for _ in range(chance.randrange(12, 30))
    ]

    def program(x: ts.Tensor, w: ts.Tensor) -> ts.Tensor:
        there = [x.clone(), x * 2]
        for what, one, two in steps:
            a, b = there[one % len(there)], there[two % len(there)]
            if what == "matmul":
                there.append((a @ w).clamp(-9, 9))
            elif what == "cumsum":
                there.append(a.cumsum(one % 2).clamp(-9, 9))
            elif what == "flip":
                there.append(a.flip(one % 2))
            elif what == "add":
                there.append((a - b).cumsum(1).clamp(-9, 9))
            elif what == "write":
                a.copy_(b.flip(0))
            else:
                a[:2].add_(b[2:].cumsum(0)).clamp_(-9, 9)
        return ts.stack([*there[::3], there[-1]])

    return program


def test_random_programs_give_the_bits_of_calls(driver: Simulated, graphs: list[list[Node]]) -> None:
    chance = seeds.generator("branches of graphs")
    for _ in range(40 if seeds.full() else 5):
        replayed(driver, wide(chance), small(4, 4), small(4, 4), turns=7)
    assert any(len({node.stream for node in graph}) > 1 for graph in graphs)


@pytest.mark.parametrize("what", ["eventRecord", "streamWaitEvent"])
def test_where_streams_do_not_join_one_is_captured(
    driver: Simulated, graphs: list[list[Node]], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    real: Any = getattr(driver, what)
    asked: list[Any] = []

    def fails(*args: Any) -> None:
        if driver.captures:
            asked.append(args)
            if len(asked) >= 2:
                raise SimulatedError(900, "operation not permitted when stream is capturing")
        real(*args)

    monkeypatch.setattr(driver, what, fails)
    assert replayed(driver, towers, small(4, 5), small(5, 5), small(5, 5))
    assert asked and len({node.stream for node in graphs[-1]}) == 1
    assert nothing_is_captured(driver)


@pytest.mark.parametrize("number", [1, 5, 9])
def test_what_ends_the_capture_within_a_branch(driver: Simulated, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Both ways: then the kernels are called, as the stream that each was given says."""
    asked: list[Any] = []
    real = Capture.put

    def fails(self: Any, stream: Any, operation: Any) -> int:
        asked.append(stream)
        if len(asked) % 10 == number:
            raise self.broken("a launch of that kind")
        return real(self, stream, operation)

    monkeypatch.setattr(Capture, "put", fails)
    assert not replayed(driver, towers, small(4, 5), small(5, 5), small(5, 5))
    assert asked and nothing_is_captured(driver)


def test_nothing_is_left_behind(driver: Simulated) -> None:
    """Streams and events are used again by later captures."""
    given = small(4, 5), small(5, 5), small(5, 5)
    replayed(driver, towers, *given)
    streams, events, graphs = len(driver._streams), len(driver._events), len(driver.graphs)
    for _ in range(4):
        replayed(driver, towers, *given)
    assert (len(driver._streams), len(driver._events)) == (streams, events)
    ts.empty_cache(NAME)
    assert len(driver.graphs) <= graphs
