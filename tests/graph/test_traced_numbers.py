"""Numbers that follow from sizes, in traced programs: those of a run are Python's for its sizes."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import jit

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.*deprecated:DeprecationWarning")

FOLLOWED: dict[str, Callable[[Any], Any]] = {
    "reflected division": lambda x: x * (1.0 / x.shape[0]),
    "float times size": lambda x: x + 0.5 * x.shape[0],
    "size times float": lambda x: x + x.shape[0] * 0.5,
    "division": lambda x: x + x.shape[0] / x.shape[1],
    "division of quotients": lambda x: x + (x.shape[0] / 3) / (x.shape[1] / 7),
    "root": lambda x: x / x.shape[1] ** 0.5,
    "negative power": lambda x: x * x.size(-1) ** -1,
    "whole power": lambda x: x.sum() + ts.zeros(x.shape[0] ** 2).numel(),
    "power of a float": lambda x: x * 1.5 ** x.shape[0],
    "floor": lambda x: x[: math.floor(x.shape[0] * 0.7)],
    "ceil": lambda x: x[: math.ceil(x.shape[0] / 2)],
    "trunc": lambda x: x + math.trunc(x.shape[0] / -3),
    "round": lambda x: x + round(x.shape[0] / 2),
    "floor of floats": lambda x: x + x.shape[0] // 1.5 + x.shape[0] % -1.5,
    "divmod": lambda x: x + divmod(x.shape[0], 3)[0] * divmod(x.shape[1] / 2, 3)[1],
    "sign": lambda x: x * abs(-x.shape[0] / 2 - 1) + -(x.shape[1] / 4),
    "shifts": lambda x: x * ((x.shape[0] << 2) - (x.shape[1] >> 1)),
    "bool": lambda x: x + True * x.shape[0],
    "numpy": lambda x: x + np.float64(2.5) * x.shape[0],
    "numel": lambda x: x / (x.numel() - 1.5),
    "bounds": lambda x: (x * 20).clamp(-x.shape[0] / 2, x.shape[0] / 2),
    "keyword": lambda x: ts.add(x, x, alpha=x.shape[0] / 4),
    "float argument": lambda x: F.leaky_relu(-x.abs(), x.shape[0]),
    "list of floats": lambda x: F.interpolate(x[None, None], scale_factor=(x.shape[0] / 2 + 1, x.shape[1] / 2)),
    "fill": lambda x: x + ts.full((1,), x.shape[0] / 3),
    "tensor": lambda x: x + ts.tensor(x.shape[0] / 3),
    "whole tensor": lambda x: x + ts.tensor(x.shape[0]),
    "list": lambda x: x + ts.tensor([[x.shape[0], 2, x.shape[1] / 3]]).sum(),
    "linspace": lambda x: x * ts.linspace(-1 + 1 / x.shape[1], 1 - 1 / x.shape[1], x.shape[1]),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_number_made_of_sizes_is_that_of_each_run(name: str) -> None:
    program = FOLLOWED[name]
    traced = jit.trace(program, ts.rand(4, 6))
    file = io.BytesIO()
    jit.save(traced, file)
    file.seek(0)
    again = jit.load(file)
    for shape in ((4, 6), (9, 10), (3, 3), (1, 5)):
        x = ts.rand(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ts.equal(traced(x), program(x)) and ts.equal(again(x), program(x)), shape


def test_what_leaves_the_trace_warns() -> None:
    held: list[Callable[[Any], Any]] = [
        lambda x: x / math.sqrt(x.shape[0]),
        lambda x: x * float(x.shape[0] / 2),
        lambda x: x[: int(x.shape[0] * 0.5)],
        lambda x: x * 2 if x.shape[0] / 2 > 3 else x,
    ]
    for program in held:
        traced = jit.trace(program, ts.rand(4))
        traced(ts.rand(4))
        with pytest.warns(jit.TracerWarning, match="test_traced_numbers"):
            traced(ts.rand(9))


def test_errors_are_those_of_python() -> None:
    with pytest.raises(ZeroDivisionError):
        jit.trace(lambda x: x / (1 / (x.shape[0] - 3)), ts.rand(3))
    traced = jit.trace(lambda x: x / (1 / (x.shape[0] - 3)), ts.rand(4))
    with pytest.raises(ValueError, match="by zero"):
        traced(ts.rand(3))
    traced = jit.trace(lambda x: x * 2 ** (x.shape[0] - 3), ts.rand(4))
    with pytest.raises(ValueError, match="fraction"):
        traced(ts.rand(2))  # 2 ** -1 is no whole number


def test_a_traced_number_is_one_to_python() -> None:
    n: Any = None

    def program(x: Any) -> Any:
        nonlocal n
        n = x.shape[0]
        assert isinstance(n, int) and not isinstance(n, float) and isinstance(n / 2, float)
        assert n == 4 and n == 4.0 and n != "4" and n > 3 and n in (1, 4) and {4: "four"}[n] == "four"
        assert (str(n), f"{n:3d}", "%d".__mod__(n), repr(n / 8)) == ("4", "  4", "4", "0.5")
        assert [0] * n == [0] * 4 and "ab" * n == "abababab" and list(range(n)) == [0, 1, 2, 3]
        assert n * 1j == 4j and 1j * n == 4j and complex(n / 2) == 2
        assert n * Fraction(1, 2) == Fraction(1, 2) * n == 2
        assert (np.arange(3) * n).tolist() == (n * np.arange(3)).tolist() == [0, 4, 8] and np.array(n).dtype == np.int64
        assert n & 1 == 0 and n | 1 == 5 and n ^ 1 == 5 and ~n == -5 and 1 << n == 16 and 7 & n == 4
        assert n.bit_length() == 3 and (n / 2).is_integer() and sum([n, n]) == 8 and max(n, 1) == 4
        assert copy.deepcopy(n) == 4 and type(pickle.loads(pickle.dumps(n))) is int
        assert x.shape == (4, 2) == tuple(x.shape) and x.shape.numel() == 8 and ts.Size([n, 2]) == x.shape
        for wrong in (lambda: n + "a", lambda: n[0]):
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(AttributeError):
            n.nothing
        return x * n

    jit.trace(program, ts.rand(4, 2), check_trace=False)
    x = ts.rand(4)  # kept beyond the trace, it is a number still
    assert ts.equal(x[:n] * n + (n / 2), x * 4 + 2) and ts.zeros(n, n).shape == (4, 4) and ts.tensor([n]).item() == 4


def test_numbers_of_a_trace_within_a_trace() -> None:
    inner = jit.trace(lambda x: x * (1 / x.shape[0]) + x.shape[0] ** 0.5, ts.rand(4))
    outer = jit.trace(lambda x: inner(x[1:]) * (x.shape[0] / 2), ts.rand(5))
    for size in (5, 3, 8):
        x = ts.rand(size)
        assert ts.equal(outer(x), (x[1:] * (1 / (size - 1)) + (size - 1) ** 0.5) * (size / 2))


READ: dict[str, tuple[Callable[..., Any], Any]] = {
    "topk": (lambda x, k: x.topk(k, dim=1)[1], (3, 5)),
    "mask of lengths": (lambda x, k: (ts.arange(k.max())[None] < k).sum() * x, (2, 9)),
    "slices": (lambda x, k: x[:, k - 2 : k], (4, 3)),
    "narrow": (lambda x, k: x.narrow(1, k - 1, 1), (1, 4)),
    "sizes": (lambda x, k: x.repeat(k, 1), (2, 3)),
    "fill": (lambda x, k: x + ts.full((1,), k) + ts.full((2, 1, 1), k * 0.5), (2, 3)),
    "written meanwhile": (lambda x, k: x[:, : (n := k + 0)].sum() + x[:, : n.add_(1)].sum(), (2, 4)),
}


@pytest.mark.parametrize("name", READ)
def test_numbers_that_operators_read_from_tensors_are_those_of_each_run(name: str) -> None:
    program, (first, second) = READ[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=jit.TracerWarning)
        traced = jit.trace(program, (ts.rand(4, 6), ts.tensor(first)))
        outer = jit.trace(lambda x, k: traced(x, k + 1), (ts.rand(4, 6), ts.tensor(first)))
        frozen = jit.freeze(jit.trace(_Module(program).eval(), (ts.rand(4, 6), ts.tensor(first))))
    for k in (first, second, second, first):  # again: planned
        x = ts.rand(4, 6)
        assert ts.equal(traced(x, ts.tensor(k)), program(x, ts.tensor(k)))
        assert ts.equal(frozen(x, ts.tensor(k)), program(x, ts.tensor(k)))
        assert ts.equal(outer(x, ts.tensor(k - 1)), program(x, ts.tensor(k)))


class _Module(ts.nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: ts.Tensor, k: ts.Tensor) -> ts.Tensor:
        return self.program(x, k)


def test_numbers_among_results_are_tensors() -> None:
    traced = jit.trace(lambda x: (x.numel(), (x.shape[0] / 2, x)), ts.rand(2, 3))
    count, (half, _) = traced(ts.rand(3, 3))
    assert count == 9 and count.dtype == ts.int64 and half == 1.5
    with pytest.raises(RuntimeError, match=r"(?s)Type 'int' cannot be traced.*can be output from traced functions"):
        jit.trace(lambda x: [1, 5], ts.rand(2))


def test_dicts_are_read_by_their_keys() -> None:
    traced = jit.trace(lambda d: d["a"] - d["b"] * 2, ({"a": ts.tensor(1.0), "b": ts.tensor(2.0)},))
    assert traced({"b": ts.tensor(5.0), "a": ts.tensor(3.0), "c": ts.tensor(0.0)}) == -7
    with pytest.raises(RuntimeError, match="laid out as when it was"):
        traced({"a": ts.tensor(5.0)})


def test_detaching_in_place_is_written_down() -> None:
    def program(x: ts.Tensor, w: ts.Tensor) -> ts.Tensor:
        y = x @ w
        y.detach_()
        return y

    traced = jit.trace(program, (ts.rand(3, 4), ts.rand(4, 5)))
    x, w = ts.rand(3, 4), ts.rand(4, 5, requires_grad=True)
    assert ts.equal(traced(x, w), x @ w) and not traced(x, w).requires_grad


def test_other_inputs_must_make_the_same_calls() -> None:
    def loops(x: ts.Tensor) -> ts.Tensor:
        for _ in range(x.shape[0]):
            x = -x
        return x

    with pytest.raises(jit.TracingCheckError, match="Graphs differed across invocations"):
        jit.trace(loops, ts.rand(3, 4), check_inputs=[ts.rand(4, 4)])
    jit.trace(lambda x: x / x.shape[0], ts.rand(3, 4), check_inputs=[ts.rand(4, 4)])


def test_modules_with_backward_hooks_are_refused() -> None:
    module = ts.nn.Sequential(ts.nn.Linear(2, 2))
    module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="backward hooks assigned"):
        jit.trace(module, ts.rand(1, 2))


@pytest.mark.parametrize(
    ("program", "first", "other"),
    [
        (lambda self, x: x[:, :4].sum(1), (2, 4), (2, 6)),
        (lambda self, x: self.weight.expand(x.shape[0], -1) + x.sum(), (1, 6), (3, 6)),
        (lambda self, x: self.rows[: x.shape[0]] + 0, (4,), (3,)),
        (lambda self, x: x.permute(1, 0).clone().reshape(-1), (1, 1), (2, 3)),
        (lambda self, x: x.contiguous().view(-1), (2, 2), (3, 2)),
    ],
)
def test_frozen_programs_keep_what_changes_nothing_at_the_traced_sizes(program: Any, first: Any, other: Any) -> None:
    class Net(ts.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.rows = ts.nn.Parameter(ts.rand(1, 6)), ts.nn.Parameter(ts.rand(4, 6))

        def forward(self, x: ts.Tensor) -> ts.Tensor:
            return program(self, x)

    net = Net().eval()
    traced = jit.trace(net, ts.rand(first))
    for frozen in (jit.freeze(traced), jit.optimize_for_inference(traced)):
        for shape in (other, first, other):
            x = ts.rand(shape)
            assert ts.equal(frozen(x), net(x)), shape


def test_strides_follow_and_resizing_is_refused() -> None:
    def frames(x: ts.Tensor) -> ts.Tensor:
        return x.as_strided((x.shape[0], x.shape[1] - 1, 2), (x.stride(0), *2 * x.stride()[1:]))

    traced = jit.trace(frames, ts.rand(2, 4))
    for x in (ts.rand(3, 7), ts.rand(7, 3).t()):
        assert ts.equal(traced(x), frames(x))
    with pytest.raises(RuntimeError, match="resize_"):
        jit.trace(lambda x: x.clone().resize_(x.numel()), ts.rand(2, 3))


def test_arguments_by_name_go_to_their_places_whatever_the_order_of_the_example() -> None:
    given = {"b": ts.tensor(1.0), "a": ts.tensor(5.0)}
    traced = jit.trace(lambda a, b: a - b, example_kwarg_inputs=given)
    assert traced(ts.tensor(5.0), ts.tensor(1.0)) == traced(ts.tensor(5.0), b=ts.tensor(1.0)) == traced(**given) == 4
    traced = jit.trace(lambda d: d["a"] - d["b"], ({"a": ts.tensor(1.0), "b": ts.tensor(2.0)},))
    assert traced(OrderedDict(b=ts.tensor(5.0), a=ts.tensor(3.0))) == -2


def test_a_generator_of_the_program_lives_as_long_as_the_graph() -> None:
    traced = jit.trace(lambda x: x + ts.rand(8, generator=ts.Generator().manual_seed(3)), ts.rand(8), check_trace=False)
    noise = [ts.Generator() for _ in range(50)]
    assert traced(ts.zeros(8)).ne(0).all() and len(noise) == 50
