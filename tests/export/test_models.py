"""Exported programs of small models beside the models: other sizes, files, decompositions, state."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from export_models import CASES, Case
from tesserack._higher_order_ops import cond, map, scan, while_loop
from tesserack.export import Dim, ExportedProgram, export, load, save
from tesserack.export._functional import written
from tesserack.utils._pytree import tree_leaves, tree_map


def close(a: Any, b: Any, tolerance: float) -> bool:
    if not isinstance(a, ts.Tensor):
        return type(a) is type(b) and a == b
    if not a.is_floating_point():
        return ts.equal(a, b)
    return a.shape == b.shape and a.dtype is b.dtype and ts.allclose(a, b, rtol=tolerance, atol=tolerance)


def copied(tree: Any) -> Any:
    return tree_map(lambda x: x.clone() if isinstance(x, ts.Tensor) else x, tree)


def same_as(model: Any, program: ExportedProgram, case: Case) -> None:
    """Called after one another, both give the same, and leave the same state and inputs behind."""
    mine, theirs = copy.deepcopy(program).module(), copy.deepcopy(model)
    for make in (case.args, *(case.others if program.range_constraints else ())):
        args, kwargs = make(), copied(case.kwargs)
        others = copied((args, kwargs))
        ts.manual_seed(1)
        expected = theirs(*args, **kwargs)
        ts.manual_seed(1)
        found = mine(*others[0], **others[1])
        pairs = zip(tree_leaves((expected, args, kwargs)), tree_leaves((found, *others)), strict=True)
        assert all(close(a, b, case.tolerance) for a, b in pairs)
        state = mine.state_dict()
        assert [*state] == [*theirs.state_dict()] or {*state} == {*theirs.state_dict()}
        assert all(close(value, state[name], case.tolerance) for name, value in theirs.state_dict().items())


@pytest.mark.parametrize("varying", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", CASES)
def test_a_program_is_its_model(name: str, varying: bool) -> None:
    case = CASES[name]
    model = case.model()
    before = copy.deepcopy(model.state_dict())
    program = export(model, case.args(), case.kwargs, dynamic_shapes=case.shapes if varying else None)
    assert all(ts.equal(value, before[key]) for key, value in model.state_dict().items())
    assert bool(program.range_constraints) is varying
    for node in program.graph.nodes:
        assert node.op in ("placeholder", "get_attr", "call_function", "output")
        # What has no form without a write, as uniform_, writes to a copy of its own.
        assert all(str(target.target) == "aten.clone.default" for target in written(node))
    same_as(model, program, case)
    file = io.BytesIO()
    save(program, file)
    loaded = load(file)
    assert str(loaded) == str(program) and re.search("aten", str(program))
    same_as(model, loaded, case)
    if varying:
        same_as(model, loaded.run_decompositions(), case)


@pytest.mark.parametrize("name", ["mlp", "attention", "images in training", "flow"])
def test_gradients_flow_to_parameters(name: str) -> None:
    case = CASES[name]
    model = case.model()
    program = export(model, case.args(), dynamic_shapes=case.shapes)
    grads = []
    args = case.others[0]()
    for module in (model, program.module()):
        found = [x for x in tree_leaves(module(*args)) if isinstance(x, ts.Tensor) and x.requires_grad]
        sum((x * x).sum() for x in found).backward()
        grads.append({key: p.grad for key, p in module.named_parameters() if p.grad is not None})
        model.zero_grad()
    assert {*grads[0]} == {*grads[1]} and grads[0]
    assert all(ts.allclose(grads[0][key], grads[1][key], rtol=1e-3, atol=1e-4) for key in grads[0])


def flows() -> dict[str, Callable[[Any, Any], Any]]:
    """Control flow whose functions close over sizes that vary."""

    def branch(m: Any, x: Any) -> Any:
        n, y = x.shape[0], x.sum(0)
        return cond(x.sum() > 0, lambda y: y * n, lambda y: y / (n + 1) + n, (y,))

    def loop(m: Any, x: Any) -> Any:
        n, y = x.shape[0], x.abs().sum(0)
        return while_loop(lambda y: y.sum() < 100 * n, lambda y: (y * 2 + 0.1,), (y,))

    def nested(m: Any, x: Any) -> Any:
        n = x.shape[0]
        return map(lambda r: cond(r.sum() > 0, lambda r: r * n, lambda r: r - n, (r,)), x)

    return {
        "branch": branch,
        "loop": loop,
        "nested": nested,
        "map": lambda m, x: map(lambda r: m.l(r) * x.shape[0] + r.sum() / (x.shape[0] * 2), x),
        "scan": lambda m, x: scan(lambda c, t: (c + t, c * x.shape[0]), ts.zeros(3), x),
    }


@pytest.mark.parametrize("name", flows())
def test_sizes_within_control_flow(name: str) -> None:
    class Flow(ts.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = ts.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return flows()[name](self, x)

    model, file = Flow(), io.BytesIO()
    program = export(model, (ts.randn(4, 3),), dynamic_shapes={"x": {0: Dim("rows", min=2, max=32)}})
    save(program, file)
    loaded = load(file)
    for each in (program, loaded, loaded.run_decompositions()):
        for x in (ts.randn(4, 3), ts.rand(9, 3), -ts.rand(2, 3)):
            pairs = zip(tree_leaves(model(x)), tree_leaves(each.module()(x)), strict=True)
            assert all(ts.allclose(a, b, atol=1e-5) for a, b in pairs)


def test_no_gradient_leaves_a_part_without_one() -> None:
    class Teacher(ts.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = ts.nn.Linear(3, 3), ts.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            with ts.no_grad():
                target = self.a(x).tanh()
            return (self.b(x) - target) ** 2, target

    model = Teacher()
    with ts.no_grad():  # where it is exported decides nothing
        program = export(model, (ts.ones(2, 3),))
    module = program.module()
    loss, target = module(ts.ones(2, 3))
    assert loss.requires_grad and not target.requires_grad and all(p.requires_grad for p in model.parameters())
    loss.sum().backward()
    assert model.a.weight.grad is None and model.b.weight.grad.any()
