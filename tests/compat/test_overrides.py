"""``__torch_function__``, of classes that are tensors and of others, and modes."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import typing

import pytest
import tesserack as ts
from tesserack import overrides
from tesserack.compat.shims import serialization


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


def test_tensors_repeat_what_python_repeats_under_modes():
    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    n = ts.tensor(2)
    with Mode():
        assert [1] * n == n * [1] == [1, 1]
        assert (1, 2) * n == (1, 2, 1, 2) and "ab" * n == "abab" and b"x" * n == b"xx"
        with pytest.raises(TypeError, match="concatenate"):
            [1] + n


def test_wrapped_functions_in_python():
    @overrides.wrap_torch_function(lambda x: (x,))
    def double(x):
        return x * 2

    assert double(ts.ones(1)).item() == 2
    x = Metres(3)
    assert double(x)[0] is double


class Again(ts.Tensor):
    """Runs every function anew, so that functions which it calls come here too."""

    calls: typing.ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return overrides.redispatch_function(func, types, args, kwargs)


def test_redispatching_skips_one_function_and_no_more():
    def double_and_one(x):
        if overrides.has_torch_function_unary(x):
            return overrides.handle_torch_function(double_and_one, (x,), x)
        return x * 2 + x

    x = ts.ones(2).as_subclass(Again)
    Again.calls.clear()
    assert double_and_one(x).tolist() == [3, 3] and Again.calls == ["double_and_one", "mul", "add"]
    assert type(x.relu()) is ts.Tensor and x.shape == (2,) and Again.calls[3:] == ["relu"]
    assert x.abs().tolist() == [1, 1] and Again.calls[4:] == ["abs"]  # nothing is left to skip
    with overrides.DisableTorchFunctionSubclass():
        assert not overrides.has_torch_function((x,)) and double_and_one(x).tolist() == [3, 3]


def test_functions_in_python_come_to_modes():
    seen = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    @overrides.wrap_torch_function(lambda x: (x,))
    def twice(x):
        return x * 2

    with Mode():
        assert overrides.has_torch_function((ts.ones(1),)) and twice(3) == 6
    assert seen == ["ones", "twice"] and not overrides.has_torch_function((ts.ones(1),))


def test_indices_in_a_list_may_override():
    class Index(ts.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert ts.ones(3)[[ts.ones(1).as_subclass(Index)]] == "__getitem__"


class Slotted(ts.Tensor):
    __slots__ = ("inner", "unset")


class Stated(ts.Tensor):
    def __getstate__(self):
        return {"told": self.told + 1}

    def __setstate__(self, state):
        self.told = state["told"]


def test_slots_and_states_of_subclasses_go_along(tmp_path):
    leaf = ts.ones(2, requires_grad=True)
    x = leaf.as_subclass(Slotted)
    x.inner = [1]
    (x * 3).sum().backward()  # results are instances too
    assert type(x * 3) is Slotted and leaf.grad.tolist() == [3, 3]
    x = leaf.detach().as_subclass(Slotted)
    x.inner, x.beside = [ts.ones(1)], "b"
    serialization.save(x, tmp_path / "x.pt")
    again = serialization.load(tmp_path / "x.pt", weights_only=False)
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), again):
        assert type(made) is Slotted and made.tolist() == [1, 1] and made.beside == "b"
        assert made.inner[0].item() == 1 and not hasattr(made, "unset")
    assert copy.copy(x).inner is x.inner and copy.deepcopy(x).inner[0] is not x.inner[0]
    y = ts.ones(2).as_subclass(Stated)
    y.told = 1
    serialization.save(y, tmp_path / "y.pt")
    assert serialization.load(tmp_path / "y.pt", weights_only=False).told == pickle.loads(pickle.dumps(y)).told == 2


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


def test_every_function_that_asks_is_named_with_its_arguments(program):
    seed = random.randrange(2**32)
    lines = program.run(
        f"""
        import inspect, random
        import torch
        from torch.overrides import get_ignored_functions, get_overridable_functions
        from torch.overrides import get_testing_overrides, resolve_name

        class Like:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return stand_ins[func](*args, **(kwargs or {{}}))

        stand_ins, by_place = get_testing_overrides(), get_overridable_functions()
        assert {{torch, torch.Tensor, torch.linalg}} <= {{*by_place}}
        assert {{*stand_ins}} == {{f for functions in by_place.values() for f in functions}}
        assert not get_ignored_functions() & {{*stand_ins}}
        random.seed({seed})
        for function in random.sample(by_place[torch] + by_place[torch.nn.functional], 60):
            assert eval(resolve_name(function)) is function
            plain = [p for p in inspect.signature(stand_ins[function]).parameters.values() if p.default is p.empty]
            given = [Like() for p in plain if p.kind is p.POSITIONAL_OR_KEYWORD] or [Like()]
            keywords = {{p.name: 1 for p in plain if p.kind is p.KEYWORD_ONLY}}
            assert function(*given, **keywords) == -1, function
        print([*inspect.signature(stand_ins[torch.stft]).parameters][:2])
        print(resolve_name(torch.Tensor.add), resolve_name(torch.ops.aten.add.Tensor))
        """
    )
    assert lines == ["['input', 'n_fft']", "torch.Tensor.add aten.add.Tensor"]


def test_signatures_of_operators_whose_arguments_are_words_of_python():
    assert [*inspect.signature(ts.Tensor.uniform_).parameters] == ["self", "from_", "to", "generator"]


def test_gradients_of_a_subclass_are_of_it():
    x = ts.ones(2).as_subclass(Logged).requires_grad_()
    y = (x**2).sum()
    Logged.calls.clear()
    (gradient,) = ts.autograd.grad(y, x, retain_graph=True)
    assert type(gradient) is Logged and gradient.tolist() == [2, 2] and Logged.calls == ["grad"]
    for run in (lambda: y.backward(retain_graph=True), lambda: ts.autograd.backward(y, retain_graph=True)):
        Logged.calls.clear()
        run()
        assert Logged.calls == ["backward"]
    assert x.grad.tolist() == [4, 4] and type(x.grad) is ts.Tensor
    with overrides.DisableTorchFunctionSubclass():
        assert type(ts.autograd.grad(y, x, retain_graph=True)[0]) is ts.Tensor
    assert ts.autograd.grad((t for t in (y,)), (t for t in (x,)))[0].tolist() == [2, 2]


@pytest.mark.parametrize("strict", [False, True])
def test_functionals_of_a_subclass(strict):
    x, v = ts.ones(2).as_subclass(Logged), ts.ones(2)
    functional = ts.autograd.functional
    for name in ("vjp", "jvp"):
        assert type(getattr(functional, name)(lambda t: t**2, x, v, strict=strict)[1]) is Logged
    for name in ("hvp", "vhp"):
        assert type(getattr(functional, name)(lambda t: (t**3).sum(), x, v, strict=strict)[1]) is Logged
    for name in ("jacobian", "hessian"):
        assert type(getattr(functional, name)(lambda t: (t**3).sum(), x, strict=strict)) is Logged
    if strict:
        with pytest.raises(RuntimeError, match="strict mode"):
            functional.jacobian(lambda t: ts.ones(1), x, strict=True)


def test_modes_see_passes_backward():
    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    x = ts.ones(2, requires_grad=True)
    y = x.sum()
    with Mode():
        y.backward(retain_graph=True)
        ts.autograd.grad(y, x, retain_graph=True)
        ts.autograd.backward(y)
    assert seen == ["backward", "grad", "backward"]


def test_nobody_is_asked_about_files_and_settings(program, tmp_path):
    """As in PyTorch: an object that takes no function over is saved as any other."""
    file = str(tmp_path / "a.pt")
    lines = program.run(
        f"""
        import torch

        class Answers:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

            def __init__(self):
                self.x = torch.ones(2)

        torch.save(Answers(), {file!r})
        print(torch.load({file!r}, weights_only=False).x.tolist())
        try:
            torch.numel(Answers())
        except TypeError:
            print("asked")
        """
    )
    assert lines == ["[1.0, 1.0]", "asked"]


LISTED = """
    import torch
    from torch.overrides import get_ignored_functions, get_overridable_functions
    from torch.overrides import get_testing_overrides, resolve_name

    Tensor, stand_ins, ignored = torch.Tensor, get_testing_overrides(), get_ignored_functions()
    operators = "__add__ __radd__ __iadd__ __matmul__ __getitem__ __setitem__ __eq__ __neg__ __invert__ __pow__ __len__"
    python = "__repr__ __deepcopy__ __contains__ backward register_hook unique stft numpy item tolist size to where add"
    names = f"{operators} {python}".split()
    print([name for name in names if getattr(Tensor, name) not in stand_ins])
    print([resolve_name(getattr(Tensor, name)) for name in ("__add__", "__getitem__", "backward", "sub")])
    properties = "real imag grad shape dtype device T mH data requires_grad is_leaf ndim is_cuda name".split()
    print([name for name in properties if getattr(Tensor, name).__get__ not in stand_ins])
    print(resolve_name(Tensor.real.__get__), get_overridable_functions()[Tensor.real] == [Tensor.real.__get__])
    never = "__init__ __hash__ __torch_function__ __setattr__ new_tensor stride as_subclass __iter__".split()
    print([name for name in never if getattr(Tensor, name) in stand_ins])
    print(torch.Tensor.__iter__ in ignored, Tensor.add in get_overridable_functions()[Tensor])
    print(stand_ins[Tensor.__add__](1, 2), stand_ins[Tensor.real.__get__](1))
"""


def test_operators_and_properties_of_tensors_are_listed(program):
    assert program.run(LISTED) == [
        "[]",
        "['torch.Tensor.__add__', 'torch.Tensor.__getitem__', 'torch.Tensor.backward', 'torch.Tensor.sub']",
        "[]",
        "torch.Tensor.real.__get__ True",
        "[]",
        "True True",
        "-1 -1",
    ]


MODULES_OF_FUNCTIONS = """
    import torch
    names = torch.functional.__all__
    print(len(names), all(getattr(torch.functional, name) is getattr(torch, name) for name in names))
    print(torch.overrides.resolve_name(torch.split), torch.overrides.resolve_name(torch.relu))
    listed = [name for name in dir(torch._C._VariableFunctions) if not name.startswith("__")]
    same = [name for name in listed if getattr(torch, name) is not getattr(torch._C._VariableFunctions, name)]
    print(len(listed) > 550, same, {"flatten", "relu", "conv2d", "_foreach_add", "get_device"} - {*listed})
    print({"save", "compile", "is_tensor", "get_default_dtype", "unique"} & {*listed})
    print(hasattr(torch._VF, "flatten"), torch._VF.relu is torch.relu, hasattr(torch._VF, "nosuch"))
    print("fft_rfft" in dir(torch._C._fft), "special_erf" in dir(torch._C._special), "linear" in dir(torch._C._nn))

    real, calls = torch._VF.lstm, []
    torch._VF.lstm = lambda *args: calls.append("lstm") or real(*args)
    cell, x = torch.nn.LSTM(2, 3), torch.ones(1, 1, 2)
    cell(x)
    torch._VF.lstm = real
    cell(x)
    print(calls)
"""


def test_modules_of_functions_list_them(program):
    assert program.run(MODULES_OF_FUNCTIONS) == [
        "22 True",
        "torch.functional.split torch.relu",
        "True [] set()",
        "set()",
        "True True False",
        "True True True",
        "['lstm']",
    ]
