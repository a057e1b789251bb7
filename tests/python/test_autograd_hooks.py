"""Hooks that change the hooks while these run, and what becomes of leaves, accumulators and retained gradients."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import Function, grad


def leaf(*values: float) -> ts.Tensor:
    return ts.tensor(values, dtype=ts.float64, requires_grad=True)


# --- taking hooks away ---------------------------------------------------------------------------------------------


def written(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    y = x * 1
    handle = y.register_hook(lambda g: seen.append("hook"))
    y[0] = 2
    return y.sum(), handle


def forgotten(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    y = x * 1
    return (y * 2).sum(), y.register_hook(lambda g: seen.append("hook"))


def written_base(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    y = x * 1
    view = y[:1]
    handle = view.register_hook(lambda g: seen.append("hook"))
    out = view.sum()
    y.mul_(2)
    return out + y.sum(), handle


def detached(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    y = x * 1
    handle = y.register_hook(lambda g: seen.append("hook"))
    out = (y * 2).sum()
    y.detach_()
    return out, handle


def of_a_node(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    y = x * 1
    assert y.grad_fn is not None
    handle = y.grad_fn.register_prehook(lambda g: seen.append("hook"))
    y.add_(1)
    return y.sum(), handle


def of_a_forgotten_leaf(x: ts.Tensor, seen: list[str]) -> tuple[ts.Tensor, Any]:
    other = leaf(1, 2)
    return (x * other).sum(), other.register_post_accumulate_grad_hook(lambda t: seen.append("hook"))


CASES = [written, forgotten, written_base, detached, of_a_node, of_a_forgotten_leaf]


@pytest.mark.parametrize("case", CASES)
def test_a_hook_is_taken_away_whatever_became_of_its_tensor(case: Any) -> None:
    seen: list[str] = []
    out, handle = case(leaf(1, 2), seen)
    out.backward(retain_graph=True)
    assert seen == ["hook"]
    handle.remove()
    out.backward()
    assert seen == ["hook"]
    handle.remove()  # a second time does nothing


@pytest.mark.parametrize("case", CASES)
def test_a_handle_does_not_keep_the_graph(case: Any) -> None:
    class Marker:
        pass

    marker = Marker()
    gone = weakref.ref(marker)
    out, handle = case(leaf(1, 2), [])
    assert out.grad_fn is not None
    out.grad_fn.metadata["marker"] = marker
    del out, marker
    gc.collect()
    assert gone() is None
    handle.remove()


def test_hooks_are_told_by_tensor() -> None:
    x, hook = leaf(1.0), [].append
    assert x._backward_hooks is None and ts.ones(1)._backward_hooks is None
    handle = x.register_hook(hook)
    assert [*x._backward_hooks.values()] == [hook]
    first, second = (x * ts.ones(2, dtype=ts.float64)).unbind()
    second.register_hook(hook)
    assert not first._backward_hooks and [*second._backward_hooks.values()] == [hook]
    handle.remove()
    assert x._backward_hooks is None


def test_hooks_are_given_as_a_dict() -> None:
    x, seen = leaf(1.0), []
    y, plain = x * 2, ts.ones(1)
    hooks: dict[str, Any] = {"first": seen.append}
    for tensor in (x, y, plain):
        tensor._backward_hooks = hooks  # type: ignore[attr-defined]
        assert tensor._backward_hooks is hooks
    hooks["second"] = lambda grad: grad * 10
    y.backward(retain_graph=True)
    assert [float(grad) for grad in seen] == [1, 20] and x.grad == 200
    x._backward_hooks = None  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="_backward_hooks: expected a dict of hooks or None, got list"):
        x._backward_hooks = []  # type: ignore[attr-defined]
    y.backward()
    assert len(seen) == 3 and x.grad == 220
    for name in ("_backward_hooks", "_grad_fn", "data", "requires_grad"):
        with pytest.raises(RuntimeError):
            delattr(x, name)
    z = x * 2
    assert z._grad_fn is z.grad_fn  # type: ignore[attr-defined]
    z._grad_fn = None  # type: ignore[attr-defined]
    assert z.grad_fn is None and not z.requires_grad


def test_giving_hooks_takes_those_that_a_leaf_had() -> None:
    x, seen = leaf(1.0), []
    handle = x.register_hook(lambda grad: seen.append("registered"))
    x._backward_hooks = None  # type: ignore[attr-defined]
    assert x._backward_hooks is None
    handle.remove()
    (x * 2).backward()
    x.register_hook(lambda grad: seen.append("registered"))
    x._backward_hooks = {0: lambda grad: seen.append("given")}  # type: ignore[attr-defined]
    y = x * 2
    y.register_hook(lambda grad: seen.append("on a result"))
    y._backward_hooks = None  # type: ignore[attr-defined]
    y.backward()
    assert seen == ["on a result", "given"]


def test_removing_a_hook_may_free_what_holds_it() -> None:
    class Ends:
        def __init__(self, handle: Any) -> None:
            self.handle = handle

        def __call__(self, g: ts.Tensor) -> None:
            pass

        def __del__(self) -> None:
            self.handle.remove()
            ended.append(1)

    ended: list[int] = []
    x = leaf(1, 2)
    y = x * 1
    first = y.register_hook(lambda g: None)
    handle = y.register_hook(Ends(first))
    handle.remove()
    assert ended == [1]
    y.register_hook(Ends(first))
    del y
    gc.collect()
    assert ended == [1, 1]


# --- hooks that change hooks ---------------------------------------------------------------------------------------


def changing_hooks(t: ts.Tensor, seen: list[int]) -> None:
    """The first removes itself, the third adds a fourth."""

    def first(g: ts.Tensor) -> None:
        seen.append(1)
        handle.remove()

    def third(g: ts.Tensor) -> None:
        seen.append(3)
        t.register_hook(lambda g: seen.append(4))

    handle = t.register_hook(first)
    t.register_hook(lambda g: seen.append(2))
    t.register_hook(third)


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_hook_may_remove_itself_and_add_another(is_leaf: bool) -> None:
    x = leaf(1, 2)
    t = x if is_leaf else x * 1
    seen: list[int] = []
    changing_hooks(t, seen)
    total = (t * 2).sum()
    total.backward(retain_graph=True)
    assert seen == [1, 2, 3]  # what is added counts from the next time on
    total.backward()
    assert seen == [1, 2, 3, 2, 3, 4]


def test_the_hooks_of_a_leaf_may_change_under_grad() -> None:
    x = leaf(1, 2)
    seen: list[int] = []
    changing_hooks(x, seen)
    assert grad((x * 2).sum(), x)[0].tolist() == [2.0, 2.0]
    assert seen == [1, 2, 3]


def test_a_hook_that_was_removed_by_one_before_it_still_runs_this_time() -> None:
    x = leaf(1)
    seen: list[int] = []

    def first(*_: Any) -> None:
        seen.append(1)
        later.remove()

    x.register_post_accumulate_grad_hook(first)
    later = x.register_post_accumulate_grad_hook(lambda t: seen.append(2))
    (x * 2).backward()
    assert seen == [1, 2]
    (x * 2).backward()
    assert seen == [1, 2, 1]


def test_hooks_of_nodes_may_remove_each_other() -> None:
    y = leaf(1) * 2
    seen: list[int] = []

    def first(*_: Any) -> None:
        seen.append(1)
        later.remove()

    y.grad_fn.register_hook(first)
    later = y.grad_fn.register_hook(lambda *_: seen.append(2))
    y.grad_fn.register_prehook(lambda *_: seen.append(0))
    y.backward()
    assert seen == [0, 1, 2]


# --- backward(inputs=...) ------------------------------------------------------------------------------------------


def test_backward_into_chosen_inputs_fires_all_their_hooks() -> None:
    x, other = leaf(1, 2), leaf(3, 4)
    y = x * other
    seen: list[str] = []
    x.register_hook(lambda g: seen.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(f"post {t.grad.tolist()}"))
    other.register_post_accumulate_grad_hook(lambda t: seen.append("never"))
    y.retain_grad()
    y.sum().backward(inputs=[x, y, x])
    assert x.grad.tolist() == [3.0, 4.0] and y.grad.tolist() == [1.0, 1.0] and other.grad is None
    assert seen == ["leaf", "post [3.0, 4.0]"]


def test_backward_into_a_result_runs_the_hooks_of_its_node() -> None:
    x = leaf(1, 2)
    y = x * 2
    z = y.exp()
    seen: list[str] = []
    for name, t in (("y", y), ("z", z)):
        t.register_hook(lambda g, name=name: seen.append(f"tensor {name}"))
        t.grad_fn.register_prehook(lambda g, name=name: seen.append(f"before {name}"))
        t.grad_fn.register_hook(lambda *g, name=name: seen.append(f"after {name}"))
    x.register_hook(lambda g: seen.append("never"))
    z.sum().backward(inputs=[y], retain_graph=True)
    assert seen == ["tensor z", "before z", "after z", "tensor y", "before y", "after y"]
    assert ts.equal(y.grad, z) and x.grad is None
    seen.clear()
    (g,) = ts.autograd.grad(z.sum(), y)  # which asks for no more than the gradient
    assert ts.equal(g, z) and seen == ["tensor z", "before z", "after z", "tensor y"]


# --- leaves --------------------------------------------------------------------------------------------------------


class Keeps(Function):
    """Something that runs code when the graph goes."""

    @staticmethod
    def forward(ctx: Any, x: ts.Tensor, token: Any) -> ts.Tensor:
        ctx.token = token
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: ts.Tensor) -> tuple[ts.Tensor, None]:
        return g * 2, None


def test_a_leaf_used_while_its_graph_is_freed_gets_its_own_gradient() -> None:
    x, results = leaf(1), []

    class Token:
        def __del__(self) -> None:
            results.append(x * 3)

    y = Keeps.apply(x, Token())
    total = x * 5 + y  # freed: first the edge to x, then the function, whose token uses x
    del y, total
    others = [leaf(k) for k in range(8)]
    sums = [o * 7 for o in others]
    results[0].sum().backward()
    assert x.grad.tolist() == [3.0]
    assert all(o.grad is None for o in others) and len(sums) == 8


def test_a_leaf_switched_off_after_its_graph_was_built_gets_no_gradient() -> None:
    x, z = leaf(1), leaf(2)
    y = x * z
    x.requires_grad_(False)
    y.sum().backward()
    assert x.grad is None and z.grad.tolist() == [1.0]


def test_a_leaf_that_is_a_view_may_not_be_overwritten_behind_its_back() -> None:
    base = ts.zeros(10)
    part = base[2:6].requires_grad_()
    total = (part * 3).sum()
    base[0:3].mul_(ts.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="moved into the graph interior"):
        total.backward()
    with pytest.raises(RuntimeError, match="view of a leaf"):
        ts.zeros(4)[1:].requires_grad_()[1:].mul_(2)


def test_a_retained_gradient_follows_the_tensor_through_in_place_changes() -> None:
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5.0, 5.0] and x.grad.tolist() == [30.0, 30.0]


# --- custom functions that write their inputs ----------------------------------------------------------------------


class WritesSecond(Function):
    @staticmethod
    def forward(ctx: Any, a: ts.Tensor, b: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        b.mul_(3)
        ctx.mark_dirty(b)
        return a * 2, b

    @staticmethod
    def backward(ctx: Any, ga: ts.Tensor, gb: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        return ga * 2, gb * 3


def test_a_view_of_a_leaf_may_not_be_marked_dirty() -> None:
    x = leaf(1, 1, 1)
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        WritesSecond.apply(leaf(1, 1), x[1:])


def test_gradients_of_writes_to_expanded_tensors_are_refused() -> None:
    """As by PyTorch: which of the writes to a place counts, a gradient cannot tell."""
    filled = leaf(1, -2, 3) * 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled.expand(2, 3).fill_(0.1)
    with pytest.raises(RuntimeError, match=r"more than one element .* clone\(\)"):
        filled.sum().backward()
    x = leaf(1, -2, 3)
    y = x * 1
    shown = y.expand(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown[ts.tensor([[True, False, False], [False, True, False]])] = 0.1
    with pytest.raises(RuntimeError, match=r"more than one element .* clone\(\)"):
        y.sum().backward()


# --- writes without a gradient -------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["eq_", "ne_", "lt_", "ge_", "logical_and_", "logical_xor_"])
def test_a_comparison_written_in_place_cuts_off_what_was_there(write: str) -> None:
    x = leaf(1, 2)
    y = x * 2
    getattr(y, write)(ts.tensor([2.0, 1.0], dtype=ts.float64))
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_bytes_seen_as_another_dtype_need_no_gradient() -> None:
    x = leaf(1, 2)
    seen = x.view(ts.float32)
    assert not seen.requires_grad and seen.is_leaf and (x * 2).view(ts.int64).grad_fn is None


def test_results_that_have_no_derivative_say_so() -> None:
    x = leaf(3, 1, 3)
    for found in (x.unique(), x.unique_consecutive(), ts.unique(x, dim=0)):
        assert found.requires_grad
        with pytest.raises(RuntimeError, match="is not implemented"):
            found.sum().backward()
    assert ts.zeros(0, requires_grad=True).median().requires_grad


def test_parts_of_tensor_split_may_be_written() -> None:
    x = leaf(1, 2, 3, 4)
    y = x * 1
    y.tensor_split(2)[1].mul_(3)
    y.tensor_split((1,))[0].mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 1.0, 3.0, 3.0]
