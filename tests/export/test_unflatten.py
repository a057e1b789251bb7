"""Programs as trees of modules again."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from export_models import CASES
from tesserack import nn
from tesserack.export import FlatArgsAdapter, export, unflatten
from tesserack.utils._pytree import tree_leaves, tree_map


@pytest.mark.parametrize("name", [name for name in CASES if name != "random"])
def test_a_tree_is_its_model(name: str) -> None:
    case = CASES[name]
    model = case.model()
    tree = unflatten(export(model, case.args(), case.kwargs, dynamic_shapes=case.shapes))
    assert {*tree.state_dict()} >= {*dict(model.named_parameters())}
    for make in (case.args, *case.others):
        args = make()
        given = tree_map(lambda x: x.clone() if isinstance(x, ts.Tensor) else x, args)
        before = {key: value.clone() for key, value in model.named_buffers()}
        expected = tree_leaves(model(*args, **case.kwargs))
        for key, value in model.named_buffers():
            dict(tree.named_buffers()).get(key, value).copy_(before[key])
        found = tree_leaves(tree(*given, **case.kwargs))
        for a, b in zip(expected, found, strict=True):
            assert ts.allclose(a, b, atol=1e-5, equal_nan=True) if isinstance(a, ts.Tensor) else a == b


def test_parts_have_their_names_and_can_be_exchanged() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def forward(self, x: Any) -> Any:
            return self.inner(self.inner(x) + 1)

    model = Twice()
    tree = unflatten(export(model, (ts.ones(2, 3),)))
    names = [name for name, _ in tree.named_modules()]
    assert {"inner", "inner.0", "inner.1", "inner@1", "inner@1.0", "inner@1.1"} <= {*names}
    weight = tree.get_submodule("inner.0").weight
    assert weight is not model.inner[0].weight and ts.equal(weight, model.inner[0].weight)  # state of its own
    assert weight is tree.get_submodule("inner@1.0").weight
    assert [*dict(tree.named_parameters())] == ["inner.0.weight", "inner.0.bias"]
    tree.inner = nn.Identity()
    assert ts.allclose(tree(ts.ones(2, 3)), model.inner(ts.ones(2, 3) + 1))


def test_inputs_are_adapted() -> None:
    class Adapter(FlatArgsAdapter):
        def adapt(
            self, target_spec: Any, input_spec: Any, input_args: Any, metadata: Any = None, obj: Any = None
        ) -> Any:
            return input_args[: target_spec.num_leaves]

    program = export(nn.ReLU(), (ts.ones(2),))
    assert unflatten(program, Adapter())(ts.tensor([-1.0, 1.0]), ts.ones(3)).tolist() == [0, 1]
    with pytest.raises(NotImplementedError):
        unflatten(program, FlatArgsAdapter())(ts.ones(2), 1)


class Counted(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.buf = nn.Buffer(ts.ones(1))
        self.hidden = nn.Buffer(ts.ones(1), persistent=False)

    def forward(self, x: Any) -> Any:
        self.buf.add_(1)
        return x + self.buf * self.hidden if self.inner is None else self.inner(x * self.buf) - self.hidden


class Mixed(nn.Module):
    """Calls a module of a module before and after the module that calls it itself."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = Counted(Counted())

    def forward(self, x: Any) -> Any:
        x = self.outer.inner(x + 1)
        x = self.outer(x) + self.outer.buf
        return self.outer.inner(x) + self.outer(x)


def test_calls_from_elsewhere_and_state_that_is_written() -> None:
    model, x = Mixed(), ts.ones(1)
    program = export(model, (x,))
    tree, other = unflatten(program), unflatten(program)
    twice = Mixed()
    expected = [float(twice(x)), float(twice(x))]
    for each in (tree, other, program.module()):  # none counts for another
        assert [float(each(x)), float(each(x))] == expected
    assert {*tree.state_dict()} == {*model.state_dict()}


def test_signatures_that_are_not_kept_are_told() -> None:
    with pytest.warns(UserWarning, match="preserve_module_call_signature"):
        export(Mixed(), (ts.ones(1),), preserve_module_call_signature=("outer",))
