"""Text of graphs: what it says, and that wrong text is refused."""

from __future__ import annotations

import pytest
import tesserack as ts
from programs import Program, inputs, record, run
from tesserack import _native
from tesserack.testing import seeds

SMALL = """graph(%0 x: float32[2, 3] cpu) captures(%1 scale: float32[] cpu const) {
  %2: int 2 = size.size(%0, 0)
  %3: float32[2, 3] cpu = mul(%0, %1)  # model.py:3
  %4: float32[6] cpu &3 = view(%3, [-1]) @"part"
  [%5: float32[3] cpu &3, %6: float32[3] cpu &3] = split(%4, 3, 0) !no_grad
  %7: float32[] cpu = sum(%6, dtype=None)
  size.ge(%2, 1, True)
  return (%5, %7)
}
"""


def test_text_is_a_program():
    graph = _native._Graph.parse(SMALL, [ts.tensor(2.0)])
    assert str(graph) == SMALL
    x = ts.arange(6.0).view(2, 3)
    part, total = run(graph, x)
    assert part.tolist() == [0, 2, 4] and total.item() == 24
    node, value = graph.node(1), graph.value(4)
    assert (node["op"], node["line"], node["args"]) == ("mul", "model.py:3", [("%", 0), ("%", 1)])
    assert (value["shape"], value["alias"], value["producer"], value["dtype"]) == ([6], 3, 2, ts.float32)
    assert graph.node(2)["module"] == "part" and graph.node(3)["no_grad"] and not graph.has_backward
    with pytest.raises(IndexError, match="there is no node 99"):
        graph.node(99)
    with pytest.raises(RuntimeError, match="expected 1 inputs, got 0"):
        run(graph)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul(%0, %1)", "mul(%0, %9)", "%9 is used before it is defined"),
        ("mul(%0, %1)", "mul(%0)", "expected 2 arguments, got 1"),
        ("mul(", "mull(", "there is no operator 'mull'"),
        ("float32[6]", "float99[6]", "line 4.*expected a dtype"),
        ("[-1]", "[%3]", "the argument size is no int"),
        ("return (%5, %7)", "return (%5, %8)", "%8, is not defined"),
        ("float32[2, 3] cpu =", "float32[2, 99999999999999999999] cpu =", "expected"),
        ("&3, %6", "&77, %6", "shares the memory of a value that is not there"),
        ("dtype=None", "dtpe=None", "expected dtype"),
        ("size.size(%0, 0)", "size.size(%0, 5)", "there is no dim 5"),
        ("size.ge(%2, 1, True)", "size.ge(%0, 1, True)", "wrong type"),
        ("}\n", "", "expected }"),
    ],
)
def test_wrong_text_is_refused_with_its_place(old, new, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        _native._Graph.parse(SMALL.replace(old, new, 1), [ts.tensor(2.0)])


def test_damaged_text_never_does_harm():
    chance = seeds.generator("graph text")
    texts = [SMALL] + [str(record(Program(k), *inputs(k))[0]) for k in range(4)]
    for _ in range(30_000 if seeds.full() else 600):
        text = list(chance.choice(texts))
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(text))
            kind = chance.randrange(3)
            if kind == 0:
                text[at] = chance.choice('%[](){}=#"!@&-,.:0123456789abcgx \n')
            elif kind == 1:
                del text[at : at + chance.choice([1, 5, 40])]
            else:
                text[at:at] = text[chance.randrange(len(text)) :][: chance.choice([1, 5, 40])]
            text = text or ["x"]
        joined = "".join(text)
        try:
            graph = _native._Graph.parse(joined, [ts.tensor(2.0)])
        except (ValueError, RuntimeError, OverflowError, TypeError):
            continue
        assert str(_native._Graph.parse(str(graph), graph.captured)) == str(graph), joined


def test_passes_do_what_they_are_called():
    def program(x):
        return [(x * 1).neg().neg() + (x + 1) + (x + 1), ts.tensor([1.0, 2.0]).exp() * x]

    recorded, _ = record(program, ts.ones(2))
    graph = recorded.leaf_level().specialised()

    def ops(g):
        return [g.node(k)["op"] for k in range(g.num_nodes)]

    assert ops(graph.share_equal()).count("add") == ops(graph).count("add") - 1
    assert "neg" not in ops(graph.rewrite().without_dead()) and "exp" not in ops(graph.rewrite().fold())
    assert ops(graph.optimised()) == ["add", "add", "add", "mul"]


def test_random_calls_are_neither_shared_nor_dropped():
    def program(x):
        ts.rand(2)
        return [x + ts.rand(2), x + ts.rand(2)]

    recorded, _ = record(program, ts.ones(2))
    graph = recorded.leaf_level().optimised(True)
    assert [graph.node(k)["op"] for k in range(graph.num_nodes)].count("rand") == 3


def test_what_is_given_out_is_not_shared():
    recorded, _ = record(lambda x: [x + 1, x + 1], ts.ones(2))
    a, b = run(recorded.leaf_level().optimised(), ts.ones(2))
    a.zero_()
    assert b.tolist() == [2, 2]
