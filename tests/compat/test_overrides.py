"""``__torch_function__``, of classes that are tensors and of others, and modes."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import overrides


class Metres:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is ts.sub:
            return NotImplemented
        plain = [a.value if isinstance(a, Metres) else a for a in args]
        return func, Metres(func(*plain, **(kwargs or {})))


def test_functions_take_objects_that_override_them():
    x = Metres(ts.ones(2))
    func, result = ts.mean(x)
    assert func is ts.mean and result.value == 1
    assert ts.add(ts.ones(2), x)[1].value.tolist() == [2, 2]
    assert ts.sum(x, dim=0, keepdim=True)[1].value.shape == (1,)
    assert (ts.ones(2) + x)[0].__name__ == "add" and ts.relu(x)[0] is ts.relu
    with pytest.raises(TypeError, match=r"no implementation found.*Metres"):
        ts.sub(x, x)
    with pytest.raises(TypeError):
        ts.mean(object())


class Logged(ts.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_keep_their_class_and_see_calls():
    x = ts.ones(2, 2).as_subclass(Logged)
    assert type(x) is Logged
    Logged.calls.clear()
    for result in (x + 1, 1 - x, x @ x, -x, x[0], x.sum(), ts.stack([x, x]), x.max(0).values, x.relu()):
        assert type(result) is Logged
    assert Logged.calls[:3] == ["add", "sub", "matmul"] and "stack" in Logged.calls
    with overrides.DisableTorchFunctionSubclass():
        assert type(x + 1) is ts.Tensor
    y = ts.ones(2, requires_grad=True)
    (y.as_subclass(Logged) * 3).sum().backward()
    assert y.grad.tolist() == [3, 3]
    with pytest.raises(TypeError, match="as_subclass"):
        y.as_subclass(int)


def test_parameters_and_plain_tensors_are_not_overridden():
    assert type(ts.nn.Parameter(ts.ones(2)) + 1) is ts.Tensor
    assert not overrides.has_torch_function((ts.ones(1), ts.nn.Parameter(ts.ones(1)), 3))
    assert overrides.has_torch_function_unary(Metres(1)) and overrides.is_tensor_like(Metres(1))


def test_modes_see_every_operator():
    seen = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode(), overrides.BaseTorchFunctionMode():
        y = ts.ones(2).relu() + 1
    assert y.tolist() == [2, 2] and seen == ["ones", "relu", "add"]
    _ = ts.ones(2) + 1
    assert len(seen) == 3


def test_wrapped_functions_in_python():
    @overrides.wrap_torch_function(lambda x: (x,))
    def double(x):
        return x * 2

    assert double(ts.ones(1)).item() == 2
    x = Metres(3)
    assert double(x)[0] is double


def test_the_subclass_of_a_subclass_comes_first():
    class Deeper(Logged):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "deeper"

    a, b = ts.ones(1).as_subclass(Logged), ts.ones(1).as_subclass(Deeper)
    assert a + b == "deeper" and ts.add(a, b) == "deeper"


def test_optimizers_may_wrap_others_without_their_own_parts():
    class Wrapper(ts.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    w = ts.nn.Parameter(ts.ones(1))
    wrapper = Wrapper(ts.optim.SGD([w], lr=1.0))
    w.sum().backward()
    wrapper.step()
    assert w.item() == 0
