"""Random programs, recorded: each level, each pass and all of them, against eager, in bits."""

from __future__ import annotations

import pytest
import tesserack as ts
from programs import Program, inputs, record, run, same_bits
from tesserack import _native
from tesserack.testing import seeds

COUNT = 2000 if seeds.full() else 60


def eager(program: Program, seed: int) -> list[ts.Tensor]:
    ts.manual_seed(seed)
    return program(*inputs(seed))


def graphs(recorded):
    yield "outer", recorded.outer_level()
    leaf = recorded.leaf_level()
    yield "leaf", leaf
    special = leaf.specialised()
    for name in ("fold", "share_equal", "rewrite", "without_dead"):
        yield name, getattr(special, name)()
    yield "all", special.optimised()
    yield "frozen", special.optimised(True)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(("writes", "draws"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_graph_gives_the_bits_of_eager(part: int, writes: bool, draws: bool) -> None:
    chance = seeds.generator(f"graph programs {part}")
    for _ in range(COUNT // 16 + 1):
        seed = chance.randrange(2**31)
        program = Program(seed, writes=writes, draws=draws)
        expected = eager(program, seed)
        ts.manual_seed(seed)
        recorded, traced = record(program, *inputs(seed))
        said = f"Program({seed}, writes={writes}, draws={draws})"
        assert all(map(same_bits, traced, expected)), said
        text = str(recorded)
        assert str(_native._Graph.parse(text, recorded.captured)) == text, said
        for name, graph in graphs(recorded):
            ts.manual_seed(seed)
            with ts.no_grad():
                got = run(graph, *inputs(seed))
            wrong = [k for k, (a, b) in enumerate(zip(got, expected, strict=True)) if not same_bits(a, b)]
            assert not wrong, f"{said}: results {wrong} of the level or pass {name}\n{graph}"
            parsed = _native._Graph.parse(str(graph), graph.captured)
            assert str(parsed) == str(graph), said


def test_gradients_flow_through_a_graph_as_through_the_program() -> None:
    chance = seeds.generator("graph gradients")
    for _ in range(COUNT // 8 + 1):
        seed = chance.randrange(2**31)
        program = Program(seed, writes=False, draws=True)

        def loss(results):
            return sum((r * r).sum() for r in results)

        ours, theirs = ([t.requires_grad_() for t in inputs(seed)] for _ in range(2))
        recorded, _ = record(program, *inputs(seed))
        ts.manual_seed(seed)
        loss(program(*theirs)).backward()
        ts.manual_seed(seed)
        loss(run(recorded.outer_level(), *ours)).backward()
        for a, b in zip(ours, theirs, strict=True):
            assert (a.grad is None) == (b.grad is None), seed
            assert a.grad is None or same_bits(a.grad, b.grad), f"Program({seed})"


@pytest.mark.parametrize("operator", ["neg", "bitwise_not", "logical_not"])
def test_a_call_is_not_undone_once_its_result_is_written_to(operator: str) -> None:
    def program(x):
        y = getattr(ts, operator)(x)
        y[0] = True
        return [getattr(ts, operator)(y)]

    x = ts.tensor([True, False, True]) if operator != "neg" else ts.tensor([2.0, 3.0])
    recorded, _ = record(program, x)
    for name, graph in graphs(recorded):
        assert same_bits(run(graph, x)[0], program(x)[0]), name
