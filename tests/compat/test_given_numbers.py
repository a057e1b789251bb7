"""Tensors of numbers that a program writes down, as modes see them: constants of graphs, fake tensors whose value is
known."""

import copy

import pytest
import tesserack as ts
from tesserack.aten.fake.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from tesserack.aten.modes import TorchDispatchMode
from tesserack.fx.experimental.proxy_tensor import make_fx


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_are_shown_numbers_that_become_tensors(device):
    with Names() as names:
        assert ts.tensor([1.0, 2.0], device=device).tolist() == [1.0, 2.0]
        ts.as_tensor(3)
        ts.ones(2).new_tensor([4])
    assert names.seen.count("aten.lift_fresh.default") == 3
    before = [*names.seen]
    ts.tensor(1.0)
    assert names.seen == before


def test_what_a_graph_does_to_a_constant_it_does_to_a_copy():
    def program(x):
        return x + ts.tensor([1.0]).add_(1)

    graph = make_fx(program)(ts.zeros(2))
    assert [graph(ts.zeros(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert copy.deepcopy(graph)(ts.zeros(2)).tolist() == [2.0, 2.0]
    for mode in ("real", "fake"):  # a number that is read is as it was written
        assert make_fx(lambda x: x * ts.tensor(2.0).item(), tracing_mode=mode)(ts.ones(2))(ts.ones(2)).tolist() == [
            2,
            2,
        ]


def test_fake_tensors_know_the_numbers_that_were_written_down():
    with FakeTensorMode():
        x = ts.tensor(4.0)
        assert isinstance(x, FakeTensor) and x.item() == 4.0 and x.tolist() == 4.0
        y = x.add_(1)
        assert y is x and (x * 2 + 1).item() == 11.0
        pair = ts.tensor([1, 2])
        assert pair[1].item() == 2 and pair.tolist() == [1, 2]
        with pytest.raises(DataDependentOutputException):
            pair.add(1)[0].item()  # of more than one number: what is computed of it is not kept
        with pytest.raises(DataDependentOutputException):
            ts.tensor(0.5).bernoulli().item()


def test_fake_tensors_forget_what_may_have_changed():
    with FakeTensorMode():
        x = ts.tensor([1.0])
        view = x[:]
        assert x.constant is not None and view.constant is not None
        view.add_(ts.rand(1))
        assert x.constant is None and view.constant is None
        x = ts.tensor([1])
        x.expand(4)[0] = 7  # a view of more numbers, which are not followed
        assert x.constant is None


def test_fake_forms_of_outlines():
    mode, outline = FakeTensorMode(), ts.empty(2, 3, device="meta")
    made = mode.fake_tensor_converter(mode, outline, "cpu")
    assert made.device.type == "cpu" and made.shape == (2, 3)
    assert mode.fake_tensor_converter(mode, outline, "cpu") is made
    real = ts.ones(2)
    assert mode.fake_tensor_converter(mode, real) is mode.from_tensor(real)
    with pytest.raises(RuntimeError, match="meta device"):
        mode.fake_tensor_converter(mode, real, "cpu")


def test_two_numbers_divided_within_a_mode():
    with Names():
        assert ts.div(3, 2).item() == 1.5 and (2 / ts.tensor(4.0)).item() == 0.5
