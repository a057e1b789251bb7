"""What placeholders, arguments and state of exported programs are called."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.aten.operators import namespace
from tesserack.export import Dim, ShapesCollection, export, register_dataclass


class Inputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.param = nn.Parameter(ts.randn(4))

    def forward(self, x: Any, x_foo: Any, x_foo_0: Any, p_param: Any) -> Any:
        return x["foo"][0] + x_foo[0] * x_foo_0 + self.param * p_param


def test_names_that_meet() -> None:
    model = Inputs()
    args = ({"foo": [ts.randn(4)]}, (ts.randn(4),), ts.randn(4), ts.randn(4))
    program = export(model, args)
    names = [spec.arg.name for spec in program.graph_signature.input_specs]
    assert names == ["p_param_1", "x_foo_0", "x_foo_0_1", "x_foo_0_2", "p_param"]
    assert ts.equal(program.module()(*args), model(*args))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = nn.BatchNorm1d(3)
        inner.register_buffer("hidden", ts.randn(3), persistent=False)
        self.a, self.b = nn.Sequential(inner), nn.Sequential(inner)

    def forward(self, x: Any) -> Any:
        return self.a(x) + self.b(x) * self.b[0].hidden


def test_a_hidden_buffer_of_two_names() -> None:
    model, x = Shared().eval(), ts.randn(2, 3)
    assert ts.equal(export(model, (x,)).module()(x), model(x))


def test_hooks_of_state_dict_rename_nothing() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), ts.randn(2, 2)

    def renamed(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        for key in [*state]:
            state[key.replace("0.", "first.")] = state.pop(key)

    model._register_state_dict_hook(renamed)
    program = export(model, (x,))
    assert [*program.state_dict] == ["0.weight", "0.bias"]
    assert ts.equal(program.module()(x), model(x))


class Structured(nn.Module):
    def forward(self, x: Any, y: Any, *, z: Any) -> Any:
        a, b = x
        return a + b * y["k"] - z


def test_modules_have_the_arguments_of_the_program() -> None:
    x = ts.ones(2)
    args, kwargs = ((x, x), {"k": x}), {"z": x}
    module = export(Structured(), args, kwargs).module()
    assert [*inspect.signature(module.forward).parameters] == ["x", "y", "z"]
    again = export(module, args, kwargs).module()
    assert ts.equal(again((x, x + 1), {"k": x}, z=x), ts.full((2,), 2.0))


def test_constants_need_no_gradients() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.foo = ts.randn(2, requires_grad=True)

        def forward(self, x: Any) -> Any:
            return x + self.foo

    assert not export(Constant(), (ts.ones(2),)).module().foo.requires_grad


def test_bitwise_operators_as_aten_spells_them() -> None:
    aten, x = namespace("aten"), ts.tensor([5, 3])
    assert aten.__and__.Tensor(x, x + 1).tolist() == [4, 0]
    assert aten.__xor__(x, 1).tolist() == [4, 2] and aten.__lshift__.Scalar(x, 2).tolist() == [20, 12]
    assert aten.__ior__.Tensor(x, ts.tensor([8, 8])) is x and x.tolist() == [13, 11]


class Sum(nn.Module):
    def forward(self, x: Any, *, y: Any) -> Any:
        return x + y


def test_other_examples() -> None:
    program = export(Sum(), (ts.ones(3),), {"y": ts.ones(3)})
    program.example_inputs = (ts.zeros(3),), {"y": ts.ones(3)}
    args, kwargs = program.example_inputs
    assert program.module()(*args, **kwargs).tolist() == [1, 1, 1]
    for wrong in ((ts.ones(3),), ((ts.ones(3),), {}), ((), {"y": ts.ones(3)})):
        with pytest.raises(ValueError, match="xample"):
            program.example_inputs = wrong
    assert program.example_inputs[0] is args


@dataclass
class Given:
    x: Any
    rest: Any


def test_shapes_of_tensors_in_classes_of_the_program() -> None:
    register_dataclass(Given, serialized_type_name="test_names_and_state.Given")

    class Model(nn.Module):
        def forward(self, given: Given) -> Any:
            return given.x + given.rest["y"][0]

    x, y, shapes, rows = ts.ones(4), ts.ones(4), ShapesCollection(), Dim("rows", min=2)
    shapes[x] = shapes[y] = (rows,)
    program = export(Model(), (Given(x, {"y": [y]}),), dynamic_shapes=shapes)
    assert program.module()(Given(ts.ones(6), {"y": [ts.ones(6)]})).tolist() == [2] * 6


def test_signals_there_and_back() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            window = ts.hann_window(16)
            return ts.istft(ts.stft(x, 16, window=window, return_complex=True), 16, window=window)

    x = ts.randn(1, 64)
    assert ts.equal(export(Model(), (ts.randn(1, 64),)).module()(x), Model()(x))
