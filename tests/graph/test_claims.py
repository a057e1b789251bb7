"""Parts of graphs that a card compiles itself: whatever it claims, programs give what its kernels give."""

from __future__ import annotations

import ctypes
import gc
import random
import shutil
import subprocess
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from programs import Program, inputs, record, same_bits
from tesserack import _native, nn
from tesserack.backends.compiler import GraphNode, PartGraph, groups_of
from tesserack.nn import functional as F
from tesserack.testing import seeds

pytest.importorskip("tesserack_reference", reason="needs the reference backend, which make test installs")
from claiming_backend import Claiming, registered


@pytest.fixture
def card() -> Iterator[Claiming]:
    """The card, claiming nothing."""
    made = registered()
    made.policy, made.compile = (lambda graph: []), made.interpret
    made.parts.clear()
    made.runs = 0
    yield made
    made.policy = lambda graph: []


def anything(chance: random.Random) -> Callable[[PartGraph], list[list[GraphNode]]]:
    """A claim of any nodes, in up to four parts."""

    def policy(graph: PartGraph) -> list[list[GraphNode]]:
        parts: list[list[GraphNode]] = [[] for _ in range(chance.randint(2, 5))]
        for node in graph.nodes:
            chance.choice(parts).append(node)
        return [part for part in parts[1:] if part]

    return policy


def traced(function: Any, *args: ts.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ts.jit.trace(function, args, check_trace=False)


@pytest.mark.parametrize("part", range(2))
def test_random_parts_of_random_programs_give_the_bits_of_eager(card: Claiming, part: int) -> None:
    chance = seeds.generator(f"graph claims {part}")
    card.policy = anything(chance)
    for _ in range(200 if seeds.full() else 12):
        seed = chance.randrange(2**31)
        program = Program(seed, writes=True, draws=True)

        def given(seed: int = seed) -> list[ts.Tensor]:
            return [t.to("claiming") for t in inputs(seed)]

        with ts.device("claiming"):
            ts.manual_seed(seed)
            expected = program(*given())
            recorded, _ = record(program, *given())
        runner = _native._GraphRunner(recorded.leaf_level())
        for _ in range(3):  # the last by a plan
            ts.manual_seed(seed)
            with ts.no_grad(), ts.device("claiming"):
                got = runner.run(given())
            assert all(map(same_bits, got, expected)), f"Program({seed})"
    assert card.runs and card.parts


def mixed(x: ts.Tensor, w: ts.Tensor, y: ts.Tensor) -> tuple[ts.Tensor, ...]:
    h = F.relu(x @ w + 1)
    wide = ts.cat([h, h.softmax(-1) * y], 1)
    wide[:, :2] = h[:, 2:] * 3
    x.add_(1)
    return wide.sum(0), h.t() @ wide, x * 2


def test_what_was_there_before_is_written(card: Claiming) -> None:
    card.policy = lambda graph: [graph.nodes]
    w, y = ts.randn(4, 4), ts.randn(5, 4)
    on = [t.to("claiming") for t in (w, y)]
    run = traced(mixed, ts.randn(5, 4).to("claiming"), *on)
    for _ in range(4):
        x = ts.randn(5, 4)
        mine, plain = x.to("claiming"), x.to("reference")
        got, expected = run(mine, *on), mixed(plain, w.to("reference"), y.to("reference"))
        assert all(a.tolist() == b.tolist() for a, b in zip(got, expected, strict=True))
        assert mine.tolist() == plain.tolist()
    (part,) = card.parts
    assert card.runs == 2 and len({value.memory for value in part.inputs}) == 3
    (written,) = (value for value in part.inputs if value in part.outputs)
    assert [node.writes for node in part.nodes if written in node.outputs] == [True]


def test_a_part_that_could_not_run_at_once_is_split(card: Claiming) -> None:
    """matmul, relu, matmul, relu: the products alone cannot run before the relu between them."""
    card.policy = lambda graph: [[node for node in graph.nodes if node.op == "matmul"]]
    w = ts.randn(4, 4).to("claiming")
    run = traced(lambda x: F.relu(F.relu(x @ w) @ w), ts.randn(3, 4).to("claiming"))
    for _ in range(4):
        x = ts.randn(3, 4)
        expected = F.relu(F.relu(x.to("reference") @ w.to("reference")) @ w.to("reference"))
        assert run(x.to("claiming")).tolist() == expected.tolist()
    assert [len(part.nodes) for part in card.parts] == [1, 1]


def layers(width: int) -> list[nn.Module]:
    return [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]


def test_training_steps_of_a_compiled_model(card: Claiming) -> None:
    chance = seeds.generator("claims of steps")

    def steps(device: str, compiled: bool) -> list[Any]:
        ts.manual_seed(0)
        model = nn.Sequential(*layers(8), *layers(8), *layers(8), nn.Linear(8, 3)).to(device)
        run = ts.compile(model) if compiled else model
        optimizer = ts.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = ts.randn(5, 8).to(device), ts.tensor([0, 1, 2, 0, 1]).to(device)
        for _ in range(8):
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
        return [value.tolist() for value in model.state_dict().values()]

    expected = steps("reference", False)
    card.policy = anything(chance)
    assert steps("claiming", True) == expected
    assert card.runs


# --- a compiler that is one: C, by g++ ------------------------------------------------------------------------------

_C = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "abs": "fabsf({0})",
    "relu": "{0} < 0 ? 0 : {0}",
    "gt": "{0} > {1}",
    "lt": "{0} < {1}",
    "where": "{0} ? {1} : {2}",
}


def _is_c(node: GraphNode) -> bool:
    values = [*node.reads(), *node.outputs]
    return (
        node.op == "pointwise"
        and all(name in _C for name, *_ in node.program.instructions)
        and all(v.dtype is ts.float32 and v.shape == values[-1].shape for v in values)
        and all(v.strides == values[-1].strides and v.alias_of is None for v in values)
    )


def compile_c(part: PartGraph, folder: Path) -> Any:
    """A part of pointwise nodes as one loop."""
    names = {value: f"t{value.index}" for value in part.values}
    lines = [f"float {names[v]} = p{k}[i];" for k, v in enumerate(part.inputs)]
    for node in part.nodes:
        registers = [names[x] if x in names else repr(float(x)) + "f" for x in node.inputs]
        registers += [repr(c) + "f" for c in node.program.constants]
        for k, (name, *operands) in enumerate(node.program.instructions):
            lines.append(f"float r{node.index}_{k} = {_C[name].format(*(registers[n] for n in operands))};")
            registers.append(f"r{node.index}_{k}")
        for out, register in zip(node.outputs, node.program.outputs, strict=True):
            lines.append(f"float {names[out]} = {registers[register]};")
    lines += [f"q{k}[i] = {names[v]};" for k, v in enumerate(part.outputs)]
    pointers = [f"const float* p{k}" for k in range(len(part.inputs))] + [
        f"float* q{k}" for k in range(len(part.outputs))
    ]
    body = "\n    ".join(lines)
    text = f"""#include <cmath>
extern "C" void part(long n, {", ".join(pointers)}) {{
  for (long i = 0; i < n; ++i) {{
    {body}
  }}
}}
"""
    source, library = folder / "part.cpp", folder / f"part{len([*folder.iterdir()])}.so"
    source.write_text(text)
    command = ["g++", "-O2", "-ffp-contract=off", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).part

    def run(*, outputs: Any, inputs: Any) -> None:
        addresses = [ctypes.c_void_p(x.handle.ctypes.data + x.byte_offset) for x in (*inputs, *outputs)]
        function(ctypes.c_long(outputs[0].numel), *addresses)

    return run


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_part_compiled_to_c(card: Claiming, tmp_path: Path) -> None:
    ran = []

    def compiled(part: PartGraph) -> Any:
        function = compile_c(part, tmp_path)

        def run(*, outputs: Any, inputs: Any) -> None:
            ran.append(len(part.nodes))
            function(outputs=outputs, inputs=inputs)

        return run

    card.policy = lambda graph: [[node for node in graph.nodes if _is_c(node)]]
    card.compile = compiled

    def program(x: ts.Tensor, y: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        z = F.relu(x * 2 - y)
        return (z + y.abs()).sum(), z * x - 0.5

    run = traced(program, *(ts.randn(4, 8).to("claiming") for _ in range(2)))
    for _ in range(4):
        x, y = ts.randn(4, 8), ts.randn(4, 8)
        got, expected = run(x.to("claiming"), y.to("claiming")), program(x.to("reference"), y.to("reference"))
        assert all(a.tolist() == b.tolist() for a, b in zip(got, expected, strict=True))
    assert len(ran) >= 2 and sum(ran) >= 10


# --- answers that cannot be, and ends -------------------------------------------------------------------------------


def chain(x: ts.Tensor) -> ts.Tensor:
    return (x * 2).sum(0).exp()


def third(function: Any) -> Any:
    """The result of the first run that has a plan."""
    x = ts.ones(2, 3).to("claiming")
    run = traced(function, x)
    return [run(x) for _ in range(3)][-1]


def test_a_part_that_is_declined_stays_with_the_core(card: Claiming) -> None:
    card.policy = lambda graph: [graph.nodes[:2]]
    card.compile = lambda part: NotImplemented
    assert third(chain).tolist() == chain(ts.ones(2, 3).to("reference")).tolist()
    assert len(card.parts) == 1 and not card.runs


def warned(function: Any, x: ts.Tensor, match: str) -> list[Any]:
    """Results of runs, of which the one whose plan is made warns."""
    run = traced(function, x.clone())
    with pytest.warns(RuntimeWarning, match=match) as caught:
        results = [run(x).tolist() for _ in range(4)]
    assert len([each for each in caught if each.category is RuntimeWarning]) == 1
    return results


def counting(x: ts.Tensor) -> ts.Tensor:
    x.add_(1)
    return (x * 2).sum(0)


def test_a_compiler_that_fails_says_so_and_takes_nothing(card: Claiming) -> None:
    def fails(part: PartGraph) -> Any:
        raise ValueError("out of registers")

    card.policy = lambda graph: [graph.nodes]
    card.compile = fails
    x = ts.zeros(2, 3).to("claiming")
    told = r"the compiler of 'claiming' failed on pointwise\+pointwise\+reduce, .*: .*out of registers"
    assert warned(counting, x, told) == [[4.0 * k] * 3 for k in range(1, 5)]
    assert x.tolist() == [[4.0] * 3] * 2


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda graph: [graph.nodes, graph.nodes[:1]], "expected each node in one part, got node 0, pointwise, in two"),
        (lambda graph: [["pointwise"]], "expected lists of nodes of the graph, got 'pointwise' in one"),
        (
            lambda graph: graph.nodes,
            "one for each part, got the node 'pointwise' as one",
        ),
    ],
)
def test_claims_that_cannot_be(card: Claiming, policy: Any, told: str) -> None:
    card.policy = policy
    assert warned(counting, ts.zeros(2, 3).to("claiming"), told) == [[4.0 * k] * 3 for k in range(1, 5)]


def test_claiming_without_compiling_is_refused() -> None:
    class Half(Claiming):
        name = "halfcompiler"
        compile_part = None

    with pytest.raises(RuntimeError, match=r"'halfcompiler' .* leaves the required slot compiler.compile empty"):
        _native._register_python_backend(Half(), "a test")


def test_kinds_of_parts_that_are_not_there(card: Claiming) -> None:
    for nothing in (None, NotImplemented, [], [[], []]):
        card.policy = lambda graph, nothing=nothing: nothing
        assert third(chain).tolist() == chain(ts.ones(2, 3).to("reference")).tolist()
    card.policy = lambda graph: [[], *([] for _ in range(20)), graph.nodes]
    assert third(chain).tolist() == chain(ts.ones(2, 3).to("reference")).tolist()
    assert card.runs == 1 and groups_of(None, PartGraph([], [], [], [])) == []


def test_what_a_node_writes_among_its_inputs(card: Claiming) -> None:
    seen = []

    def policy(graph: PartGraph) -> Any:
        seen.extend(node for node in graph.nodes if node.writes and not node.outputs[0].is_input)
        assert all(node in graph.makers(value) for node in graph.nodes for value in node.written)
        return [graph.nodes]

    card.policy = policy
    x, at = ts.zeros(3, 2).to("claiming"), ts.tensor([2, 0]).to("claiming")
    run = traced(lambda x, at: x.index_add_(0, at, x[:2] + 1) * 2, x.clone(), at)
    plain = ts.zeros(3, 2)
    for _ in range(4):
        plain.index_add_(0, at.cpu(), plain[:2] + 1)
        assert run(x, at).tolist() == (plain * 2).tolist() and x.tolist() == plain.tolist()


def test_a_part_ends_with_its_plan(card: Claiming) -> None:
    card.policy = lambda graph: [graph.nodes]
    ends: list[Any] = []

    def compiled(part: PartGraph) -> Any:
        def run(*, outputs: Any, inputs: Any) -> None:
            made(outputs=outputs, inputs=inputs)

        made = card.interpret(part)
        ends.append(weakref.ref(run))
        return run

    card.compile = compiled
    x = ts.ones(2, 3).to("claiming")
    run = traced(chain, x)
    for _ in range(3):
        run(x)
    assert ends[0]() is not None
    del run
    gc.collect()
    assert ends[0]() is None


def test_explain_tells_of_parts(card: Claiming) -> None:
    card.policy = lambda graph: [graph.nodes]
    model = nn.Sequential(*layers(4), *layers(4), *layers(4), *layers(4)).to("claiming").eval()
    compiled = ts.compile(model, fullgraph=True)
    x = ts.ones(2, 4).to("claiming")
    with ts.no_grad():
        for _ in range(6):
            compiled(x)
        assert "in parts that the card compiled" in str(ts.compiler.explain(compiled)(x))
