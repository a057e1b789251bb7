"""cond, while_loop, scan, map and associative_scan against the loops and branches that they mean."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import pytest
import tesserack as ts
from tesserack._higher_order_ops import associative_scan, cond, map, scan, while_loop
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.aten.modes import TorchDispatchMode
from tesserack.utils._pytree import tree_map


def number(device: ts.device, *shape: int) -> ts.Tensor:
    return ts.randn(*shape, dtype=ts.float32).to(device)


def close(a: ts.Tensor, b: ts.Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and ts.allclose(a.cpu(), b.cpu(), rtol=1e-4, atol=1e-5)


# --- cond ------------------------------------------------------------------------------------------------------------


def test_cond_takes_a_branch_of_nested_operands(device: ts.device) -> None:
    x, y = number(device, 3), number(device, 3)
    operands = ({"a": x, "b": [y]}, (y,))
    for truth in (True, False):
        for pred in (truth, ts.tensor(truth, device=device), ts.tensor([[truth]], device=device)):
            found = cond(
                pred,
                lambda d, t: {"sum": d["a"] + d["b"][0], "t": (t[0] * 2,)},
                lambda d, t: {"sum": d["a"] - d["b"][0], "t": (t[0] * 3,)},
                operands,
            )
            assert ts.equal(found["sum"], x + y if truth else x - y)
            assert ts.equal(found["t"][0], y * (2 if truth else 3))


def test_cond_runs_the_branch_taken_alone(device: ts.device) -> None:
    x, counter = ts.zeros(2, device=device), ts.zeros(1, device=device)

    def taken(x: Any) -> Any:
        counter.add_(1)
        return x + 1

    def other(x: Any) -> Any:
        counter.add_(100)
        return x - 1

    for _ in range(2):
        cond(ts.tensor(True, device=device), taken, other, (x,))
    assert counter.item() == 2 and not x.any()


def test_cond_draws_no_random_numbers_for_the_other_branch(device: ts.device) -> None:
    x = ts.zeros(4, device=device)
    draw, plain = (lambda x: x + ts.rand_like(x)), (lambda x: x + 0)
    ts.manual_seed(3)
    expected = ts.rand_like(x)
    ts.manual_seed(3)
    assert ts.equal(cond(ts.tensor(False, device=device), draw, plain, (x,)), x)
    assert ts.equal(cond(ts.tensor(True, device=device), draw, plain, (x,)), expected)


def test_gradients_through_cond(device: ts.device) -> None:
    a, b, outside = (number(device, 3).requires_grad_() for _ in range(3))
    for truth in (True, False):
        found = cond(ts.tensor(truth, device=device), lambda a, b: a * outside, lambda a, b: b.sin(), (a, b))
        got = ts.autograd.grad(found.sum(), (a, b, outside), allow_unused=True)
        if truth:
            assert ts.equal(got[0], outside) and not got[1].any() and ts.equal(got[2], a)
        else:
            assert not got[0].any() and close(got[1], b.cos()) and got[2] is None
    (leaf,) = (number(device, 2).double().cpu().requires_grad_() for _ in range(1))
    step = lambda x: cond(x.sum() > 0, lambda x: x.exp(), lambda x: x * x, (x,))  # noqa: E731
    assert ts.autograd.gradgradcheck(step, (leaf,))


def test_cond_within_cond_and_in_a_module(device: ts.device) -> None:
    class Switch(ts.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = ts.nn.Linear(3, 3), ts.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            inner = lambda x: cond(x.sum() > 10, lambda x: x * 0, self.other, (x,))  # noqa: E731
            return cond(x.sum() > 0, self.one, inner, (x,))

    net = Switch().to(device)
    up = ts.ones(2, 3, device=device)
    assert ts.equal(net(up), net.one(up)) and ts.equal(net(-up), net.other(-up))
    net(-up).sum().backward()
    assert net.one.weight.grad is None and net.other.weight.grad.any()


def test_cond_tries_the_other_branch_only_as_far_as_it_can(device: ts.device) -> None:
    x = ts.ones(3, device=device)
    asks = lambda x: x * float(x.sum())  # noqa: E731
    assert ts.equal(cond(ts.tensor(True, device=device), lambda x: x + 1, asks, (x,)), x + 1)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda x: x[:2] + 0, r"same shape and dtype from true_fn and false_fn.*shape \(3,\).*shape \(2,\)"),
        (lambda x: x.long(), "float32 of shape .*int64 of shape"),
        (lambda x: (x, x + 1), "same structure"),
        (lambda x: [x + 1], "same structure"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_branches_have_to_agree(device: ts.device, other: Any, words: str, turned: bool) -> None:
    x = ts.ones(3, device=device)
    with pytest.raises(RuntimeError, match="cond: expected"):
        cond(ts.tensor(turned, device=device), lambda x: x * 2, other, (x,))
    with pytest.raises(RuntimeError, match=words):
        cond(ts.tensor(True, device=device), lambda x: x * 2, other, (x,))


def test_arguments_of_cond(device: ts.device) -> None:
    x, f, yes = ts.ones(3, device=device), (lambda *x: x), ts.tensor(True, device=device)
    for call, words in (
        (lambda: cond(x, f, f, (x,)), "single-element"),
        (lambda: cond("a", f, f, (x,)), "bool or tensor"),
        (lambda: cond(yes, f, 3, (x,)), "false_fn"),
        (lambda: cond(yes, f, f, x), "tuple"),
        (lambda: cond(yes, f, f, (x, 2.0)), "2.0 among them"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


# --- while_loop ------------------------------------------------------------------------------------------------------


def test_while_loop_counts_and_keeps_structure(device: ts.device) -> None:
    state = ({"n": 0, "x": ts.ones(2, device=device)}, [ts.tensor(1.0, device=device)])
    found = while_loop(
        lambda d, rest: d["n"] < 4, lambda d, rest: ({"n": d["n"] + 1, "x": d["x"] * 2}, [rest[0] + d["n"]]), state
    )
    assert found[0]["n"] == 4 and found[0]["x"].tolist() == [16, 16] and found[1][0].item() == 7
    by_tensor = while_loop(lambda x: (x < 50).any(), lambda x: x * 3, (ts.tensor([1.0, 2.0], device=device),))
    assert by_tensor.tolist() == [27 * 3, 162]


def test_while_loop_that_does_not_begin_copies(device: ts.device) -> None:
    x = ts.ones(2, device=device)
    (found,) = while_loop(lambda x: x.sum() < 0, lambda x: (x + 1,), (x,))
    assert ts.equal(found, x) and found is not x and found.data_ptr() != x.data_ptr()
    alone = while_loop(lambda x: x.sum() < 0, lambda x: x + 1, (x,))
    assert isinstance(alone, ts.Tensor)


def test_gradients_through_while_loop(device: ts.device) -> None:
    x, factor = number(device, 3).requires_grad_(), number(device, 3).requires_grad_()
    _, found = while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * factor), (ts.tensor(0, device=device), x))
    got = ts.autograd.grad(found.sum(), (x, factor))
    assert close(got[0], factor.detach() ** 3) and close(got[1], (3 * factor**2 * x).detach())


def test_while_loop_refuses(device: ts.device) -> None:
    n, x = ts.tensor(0, device=device), ts.ones(3, device=device)
    below = lambda n, *_: n < 3  # noqa: E731
    for call, words in (
        (lambda: while_loop(below, lambda n, x: (n + 1, x.sum()), (n, x)), "value 1.*shape \\(3,\\).*shape \\(\\)"),
        (lambda: while_loop(below, lambda n, x: (n + 1, x.long()), (n, x)), "keep the shape and dtype"),
        (lambda: while_loop(below, lambda n, x: (n + 1,), (n, x)), "expected 2 values from body_fn, got 1"),
        (lambda: while_loop(below, lambda n, x: {"n": n, "x": x}, (n, x)), "structure"),
        (lambda: while_loop(lambda n: n + 1, lambda n: (n + 1,), (n,)), "boolean scalar tensor"),
        (lambda: while_loop(lambda x: x > 0, lambda x: (x,), (x,)), "boolean scalar tensor"),
        (lambda: while_loop(below, below, (n, "a")), "whole numbers"),
        (lambda: while_loop(below, None, (n,)), "body_fn"),
        (lambda: while_loop(below, below, n), "tuple"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


# --- scan and map ----------------------------------------------------------------------------------------------------


def by_hand(combine: Any, carry: Any, xs: Any, dim: int, reverse: bool) -> Any:
    """What scan means, for one tensor of results."""
    count = xs[0].shape[dim]
    results: list[Any] = [None] * count
    for k in reversed(range(count)) if reverse else range(count):
        carry, results[k] = combine(carry, [x.select(dim, k) for x in xs])
    return carry, ts.stack(results, dim if dim <= results[0].ndim else 0)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_loop_with_its_gradients(device: ts.device, dim: int, reverse: bool) -> None:
    xs = [number(device, 3, 4, 2).requires_grad_() for _ in range(2)]
    weight = number(device, 2, 2).requires_grad_()
    rest = tuple(n for k, n in enumerate((3, 4, 2)) if k != dim % 3)
    init = ts.zeros(rest, device=device)

    def combine(carry: Any, x: Any) -> Any:
        carry = (carry + x[0]).tanh()
        return carry, carry * x[1] + weight.sum()

    found, expected = scan(combine, init, xs, dim=dim, reverse=reverse), by_hand(combine, init, xs, dim % 3, reverse)
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))
    grads = [ts.autograd.grad(one.sum() + many.square().sum(), (*xs, weight)) for one, many in (found, expected)]
    assert all(close(a, b) for a, b in zip(*grads, strict=True))


def test_scan_of_nested_structures(device: ts.device) -> None:
    xs = {"a": ts.arange(4.0, device=device), "b": (ts.ones(4, 2, device=device),)}
    carry, ys = scan(
        lambda c, x: ({"n": c["n"] + x["a"]}, [x["b"][0] * c["n"], None]), {"n": ts.tensor(1.0, device=device)}, xs
    )
    assert carry["n"].item() == 7 and ys[1] is None
    assert ys[0].tolist() == [[1, 1], [1, 1], [2, 2], [4, 4]]


def test_scan_refuses(device: ts.device) -> None:
    zero, xs = ts.zeros((), device=device), ts.arange(4.0, device=device)
    for call, words in (
        (lambda: scan(lambda c, x: ((c + x).long(), x), zero, xs), "keep the shape and dtype"),
        (lambda: scan(lambda c, x: ((c, c), x), zero, xs), "structure of init"),
        (lambda: scan(lambda c, x: c + x, zero, xs), "return a pair"),
        (lambda: scan(lambda c, x: (c, 3), zero, xs), "tensors as results, got int"),
        (lambda: scan(lambda c, x: (c + 1, xs[: int(c)]), zero, xs), "every step.*same shape"),
        (lambda: scan(lambda c, x: (c, x), (), xs), "init leaves"),
        (lambda: scan(lambda c, x: (c, x), 1.0, xs), "init leaves must be a Tensor"),
        (lambda: scan(lambda c, x: (c, x), zero, [xs, 1]), "xs leaves must be a Tensor"),
        (lambda: scan(lambda c, x: (c, x), zero, [xs, xs[:3]]), "one size in dim 0, got 4 and 3"),
        (lambda: scan(lambda c, x: (c, x), zero, xs[:0]), "scan dimension > 0"),
        (lambda: scan(lambda c, x: (c, x), zero, xs, reverse=1), "Reverse"),
        (lambda: scan(lambda c, x: (c, x), zero, xs, dim=1.0), "Dim must be an int"),
        (lambda: scan(3, zero, xs), "combine_fn"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(IndexError, match="dim"):
        scan(lambda c, x: (c, x), zero, xs, dim=1)
    assert scan(lambda c, x: (c, x), zero, ()) == (zero, [])


def test_map_is_the_loop_with_its_gradients(device: ts.device) -> None:
    xs, factor = number(device, 4, 3).requires_grad_(), number(device, 3).requires_grad_()
    found = map(lambda x, k, f: {"y": (x * f).sum() * k, "z": x.sin()}, xs, 3, factor)
    assert close(found["y"], 3 * (xs * factor).sum(1)) and close(found["z"], xs.sin())
    got = ts.autograd.grad(found["y"].sum(), (xs, factor))
    assert close(got[0], (3 * factor).expand(4, 3)) and close(got[1], 3 * xs.sum(0))
    pair = map(lambda p: p[0] + p[1]["k"], (xs, {"k": xs}))
    assert ts.equal(pair, xs + xs)


def test_map_refuses(device: ts.device) -> None:
    xs = ts.ones(3, 2, device=device)
    for call, words in (
        (lambda: map(lambda x: x, xs[:0]), "cannot be 0|dimension > 0"),
        (lambda: map(lambda x: x, ts.tensor(1.0, device=device)), "without dims"),
        (lambda: map(lambda x: x, (xs, xs[:2])), "one size"),
        (lambda: map(lambda x: x, ()), "at least one tensor"),
        (lambda: map(lambda x: x, 3), "must be a Tensor"),
        (lambda: map(lambda x: 3, xs), "tensors as results"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


# --- associative_scan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 13])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_associative_scan_of_sums(device: ts.device, count: int, mode: str) -> None:
    x = number(device, 2, count, 3)
    assert close(associative_scan(operator.add, x, 1, combine_mode=mode), x.cumsum(1))
    turned = associative_scan(operator.add, x, 1, reverse=True, combine_mode=mode)
    assert close(turned, x.flip(1).cumsum(1).flip(1))


def test_associative_scan_of_products_of_matrices(device: ts.device) -> None:
    x = (number(device, 6, 3, 3) * 0.5).requires_grad_()
    found, expected = associative_scan(ts.matmul, x, 0, combine_mode="generic"), [x[0]]
    for k in range(1, 6):
        expected.append(expected[-1] @ x[k])
    assert close(found, ts.stack(expected))
    grads = [ts.autograd.grad(y.sum(), x)[0] for y in (found, ts.stack(expected))]
    assert close(*grads)


def test_a_linear_recurrence(device: ts.device) -> None:
    a, b = number(device, 9, 2).sigmoid().requires_grad_(), number(device, 9, 2).requires_grad_()

    def combine(one: Any, other: Any) -> Any:
        return {"a": one["a"] * other["a"], "b": one["b"] * other["a"] + other["b"]}

    found = associative_scan(combine, {"a": a, "b": b}, 0)["b"]
    state, expected = ts.zeros(2, device=device), []
    for k in range(9):
        state = a[k] * state + b[k]
        expected.append(state)
    assert close(found, ts.stack(expected))
    grads = [ts.autograd.grad(y.square().sum(), (a, b)) for y in (found, ts.stack(expected))]
    assert all(close(*pair) for pair in zip(*grads, strict=True))


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
def test_rounds_grow_with_the_logarithm(device: ts.device, mode: str) -> None:
    calls = []

    def combine(a: Any, b: Any) -> Any:
        calls.append(1)
        return a + b

    x = ts.ones(1000, device=device)
    assert ts.equal(associative_scan(combine, x, 0, combine_mode=mode), x.cumsum(0))
    assert len(calls) <= 2 * 10


def test_associative_scan_refuses(device: ts.device) -> None:
    x = ts.ones(4, device=device)
    for call, words in (
        (lambda: associative_scan(3, x, 0), "callable"),
        (lambda: associative_scan(operator.add, x, 1.0), "Dim must be an int"),
        (lambda: associative_scan(operator.add, x, 0, combine_mode="fast"), "'pointwise' or 'generic'"),
        (lambda: associative_scan(operator.add, (), 0), "at least 1"),
        (lambda: associative_scan(operator.add, 3, 0), "must be a Tensor"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    for call, words in (
        (lambda: associative_scan(lambda a, b: (a, b), x, 0), "structure of xs"),
        (lambda: associative_scan(lambda a, b: (a + b).long(), x, 0), "same shape and dtype"),
        (lambda: associative_scan(operator.add, x[:0], 0), "scan dimension > 0"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


# --- within other things ---------------------------------------------------------------------------------------------


def test_under_vmap(device: ts.device) -> None:
    x = number(device, 4, 5)
    loops = {
        "cond": lambda x: cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)),
        "while_loop": lambda x: while_loop(lambda n, x: x.sum().abs() < 9, lambda n, x: (n + 1, x * 2), (0, x))[1],
        "scan": lambda x: scan(lambda c, x: (c + x, c * x), x[0] * 0, x)[1],
        "map": lambda x: map(lambda x, y: x + y.sum(), x, x),
        "associative_scan": lambda x: associative_scan(operator.mul, x, 0),
        "generic": lambda x: associative_scan(operator.mul, x, 0, combine_mode="generic"),
    }
    for name, f in loops.items():
        assert close(ts.vmap(f)(x), ts.stack([f(row) for row in x])), name
        assert close(ts.vmap(ts.func.grad(lambda x, f=f: f(x).sum()))(x),
                     ts.stack([ts.func.grad(lambda x, f=f: f(x).sum())(row) for row in x])), name  # fmt: skip


class Seen(TorchDispatchMode):
    """Notes what it is shown, and takes control flow over where it says so."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.supports_higher_order_operators = whole
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_see_the_operator_or_its_parts(device: ts.device) -> None:
    x = ts.ones(3, device=device)
    run = lambda: cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))  # noqa: E731
    with Seen(True) as whole:
        found = run()
    assert whole.names == ["aten.sum.default", "aten.gt.Scalar", "cond"] and ts.equal(found, x.sin())
    with Seen(False) as parts:
        run()
    assert "aten.sin.default" in parts.names and "cond" not in parts.names


def test_operators_by_name_and_ones_of_a_program() -> None:
    higher = ts.ops.higher_order
    assert str(higher.cond) == "cond" and higher.while_loop.name() == "while_loop"
    assert pickle.loads(pickle.dumps(higher.scan)) is higher.scan and copy.deepcopy(higher.map_impl) is higher.map_impl
    assert {"associative_scan", "cond", "map_impl", "scan", "while_loop"} <= {*dir(higher)}
    with pytest.raises(AttributeError, match="no_such"):
        higher.no_such
    twice = HigherOrderOperator("test_twice")
    with pytest.raises(NotImplementedError, match="py_impl"):
        twice(operator.neg, 3)
    twice.py_impl("DispatchKey.CompositeExplicitAutograd")(lambda f, x: f(f(x)))
    assert ts.ops.higher_order.test_twice(lambda x: x + 1, 3) == 5

    class Mode(TorchDispatchMode):
        pass

    twice.py_impl(Mode)(lambda mode, f, x: NotImplemented if x < 0 else "taken")
    with Mode():
        assert twice(operator.neg, 3) == "taken" and twice(operator.neg, -3) == -3


def test_functions_are_found_where_modules_are_called_alike() -> None:
    import tesserack._higher_order_ops as shown
    from tesserack._higher_order_ops.map import map_impl

    assert shown.map is map and shown.cond is cond is ts.cond and map_impl is ts.ops.higher_order.map_impl


def test_flat_forms() -> None:
    higher, x = ts.ops.higher_order, ts.arange(3.0)
    assert tree_map(ts.Tensor.tolist, higher.scan(lambda c, x: [c + x, c * x], [x[0]], [x], ())) == [3, [0, 0, 2]]
    assert higher.map_impl(lambda x, k: (x * k,), (x,), (2,))[0].tolist() == [0, 2, 4]
    assert higher.associative_scan(lambda a, b: [a + b], [x], ())[0].tolist() == [0, 1, 3]
    more = higher.while_loop(lambda n, k: n < k, lambda n, k: (n + 1,), (ts.tensor(0),), (ts.tensor(5),))
    assert more[0].item() == 5
