"""Selective checkpointing, early stops, edges of the graph, and versions."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import tesserack as ts
from tesserack.aten.operators import namespace
from tesserack.autograd import graph
from tesserack.utils import checkpoint as checkpoints
from tesserack.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


def body(x: Any, y: Any) -> Any:
    return ts.sigmoid(ts.matmul(ts.matmul(x, y), y)) * y


def inputs(device: Any) -> tuple[Any, Any]:
    return tuple(ts.randn(6, 6, device=device, dtype=ts.float64).requires_grad_() for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("answer", list(CheckpointPolicy))
def test_policies_keep_the_gradients_and_save_the_work(answer: CheckpointPolicy, device: Any) -> None:
    x, y = inputs(device)
    expected = ts.autograd.grad(body(x, y).sum(), (x, y))
    asked: list[tuple[bool, str]] = []

    def policy(context: Any, op: Any, *args: Any) -> CheckpointPolicy:
        assert (context.op_output is None) == context.is_recompute
        asked.append((context.is_recompute, op.name()))
        return answer if op.name() == "aten::mm" else CheckpointPolicy.PREFER_RECOMPUTE

    ran: list[str] = []
    key = _counter()
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    out = checkpoint(body, x, y, use_reentrant=False, context_fn=contexts).sum()
    with key.watching(ran):
        got = ts.autograd.grad(out, (x, y))
    assert all(ts.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert asked.count((False, "aten::mm")) == 2 and not any(again for again, _ in asked)
    assert ("sigmoid" in ran) and ran.count("matmul") == (0 if "RECOMPUTE" not in answer.name else 2)


def test_a_policy_is_asked_once_for_each_operator(device: Any) -> None:
    x, y = inputs(device)
    for kept in ("aten::mm", "aten::sin", "nothing"):
        asked: list[str] = []

        def policy(context: Any, op: Any, *args: Any, kept: str = kept, asked: list[str] = asked) -> CheckpointPolicy:
            asked.append(op.name())
            return CheckpointPolicy.MUST_SAVE if op.name() == kept else CheckpointPolicy.PREFER_RECOMPUTE

        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        out = checkpoint(lambda a, b: (a @ b).sin().exp().sin(), x, y, use_reentrant=False, context_fn=contexts)
        out.sum().backward()
        assert asked == ["aten::mm", "aten::sin", "aten::exp", "aten::sin"]


class _Counter:
    """Names of operators that reach the cards."""

    def __init__(self) -> None:
        create_selective_checkpoint_contexts([])  # registers the key that comes before this one
        self.key = ts.dispatch.register_key("SelectiveTestCounter", after="SelectiveCheckpoint")
        self.key.fallback(self.see)
        self.names: list[str] = []

    def see(self, call: Any, *args: Any) -> Any:
        self.names.append(call.op)
        return call.redispatch(*args)

    def watching(self, names: list[str]) -> Any:
        self.names = names
        return self.key.enabled()


@functools.cache
def _counter() -> _Counter:
    return _Counter()


def test_lists_of_operators_and_other_values(device: Any) -> None:
    x, y = inputs(device)
    expected = ts.autograd.grad(body(x, y).sum(), (x, y))
    for chosen in ([ts.matmul], [ts.ops.sigmoid], []):
        contexts = functools.partial(create_selective_checkpoint_contexts, chosen)
        got = ts.autograd.grad(checkpoint(body, x, y, context_fn=contexts, use_reentrant=False).sum(), (x, y))
        assert all(ts.equal(a, b) for a, b in zip(expected, got, strict=True))
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]


def test_results_that_were_written_to_are_refused(device: Any) -> None:
    x, _ = inputs(device)
    held: list[Any] = []

    def policy(context: Any, op: Any, *args: Any) -> CheckpointPolicy:
        if not context.is_recompute and op.name() == "aten::exp":
            held.append(context.op_output)
        return CheckpointPolicy.MUST_SAVE

    def run(allowed: bool) -> None:
        contexts = functools.partial(create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=allowed)
        out = checkpoint(lambda t: (t.sin().exp() * t).sum(), x, context_fn=contexts, use_reentrant=False)
        with ts.no_grad():
            held.pop().zero_()
        out.backward()

    with pytest.raises(RuntimeError, match="has been mutated"):
        run(False)
    run(True)


def test_a_function_that_does_more_the_second_time_is_told(device: Any) -> None:
    x, _ = inputs(device)
    runs: list[int] = []

    def function(t: Any) -> Any:
        runs.append(1)
        return (t.sin() if len(runs) == 1 else t.sin().sin()).exp().sum()

    contexts = functools.partial(create_selective_checkpoint_contexts, [ts.ops.cos])
    out = checkpoint(function, x, context_fn=contexts, use_reentrant=False, early_stop=False)
    with pytest.raises(RuntimeError, match="not found in storage"):
        out.backward()


def test_a_selective_region_goes_backward_once(device: Any) -> None:
    x, _ = inputs(device)
    contexts = functools.partial(create_selective_checkpoint_contexts, [ts.ops.sin])
    out = checkpoint(lambda t: t.sin().cos().exp().sum(), x, context_fn=contexts, use_reentrant=False)
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        out.backward()


def test_looks_at_what_is_saved_compute_it_again() -> None:
    x = ts.rand(3, requires_grad=True)
    runs: list[int] = []

    def function(t: Any) -> Any:
        runs.append(1)
        return (t * t).exp()

    out: Any = checkpoint(function, x, use_reentrant=False)
    for count in (2, 3):
        assert ts.equal(out.grad_fn._saved_result, out) and len(runs) == count
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    assert len(runs) == 5
    with pytest.raises(RuntimeError, match="second time"):
        out.grad_fn._saved_result


def test_leaves_keep_their_identity() -> None:
    seen: list[Any] = []

    class Keeps(ts.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> Any:
            seen.extend(ctx.saved_tensors)
            return grad * ctx.saved_tensors[1], None

    x, y = ts.rand(2, requires_grad=True), ts.rand(2)
    checkpoint(Keeps.apply, x, y, use_reentrant=False).sum().backward()
    assert seen[0] is x and seen[1] is y


def test_groups_of_backwards_compute_once() -> None:
    x, y = ts.rand(2, requires_grad=True), ts.rand(2, requires_grad=True)
    runs: list[int] = []

    def function(a: Any, b: Any) -> Any:
        runs.append(1)
        return a.sin(), b.cos()

    a, b = checkpoint(function, x, y, use_reentrant=False)
    with checkpoints.GraphExecGroup():
        a.sum().backward()
        b.sum().backward()
        with pytest.raises(RuntimeError, match="nested"), checkpoints.GraphExecGroup():
            pass
    assert len(runs) == 2
    a, _ = checkpoint(function, x, y, use_reentrant=False)
    with checkpoints.GraphExecGroup(), pytest.raises(CheckpointError, match="already unpacked"):
        a.sum().backward(retain_graph=True)
        a.sum().backward()


def test_the_scheme_is_to_be_chosen() -> None:
    x = ts.rand(2, requires_grad=True)
    with pytest.warns(UserWarning, match="use_reentrant"):
        out = checkpoint(lambda t: t.sin(), x)
    with pytest.raises(RuntimeError, match="use_reentrant=True"):
        ts.autograd.grad(out.sum(), x)


@pytest.mark.parametrize("early", [True, False])
def test_early_stop(early: bool, device: Any) -> None:
    x, _ = inputs(device)
    ends: list[int] = []

    def function(t: Any) -> Any:
        result = t.sin().exp()
        last = result + 1  # saves nothing
        ends.append(1)
        return last

    with set_checkpoint_early_stop(early):
        out = checkpoint(function, x, use_reentrant=False)
    out.sum().backward()
    assert len(ends) == (1 if early else 2)


def test_debugging_names_the_operators(device: Any) -> None:
    x, _ = inputs(device)
    runs: list[int] = []

    def function(t: Any) -> Any:
        runs.append(1)
        return t.sin().exp() if len(runs) == 1 else t.sin()

    with set_checkpoint_debug_enabled(True):
        out = checkpoint(function, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match=r"first run: sin, exp\nof the second: .*sin"):
        out.sum().backward()


def test_parts_under_their_names(device: Any) -> None:
    x, _ = inputs(device)
    detached = checkpoints.detach_variable((x, 3))
    assert detached[0].requires_grad and detached[0].is_leaf and detached[1] == 3
    with pytest.warns(UserWarning, match="requires_grad"):
        checkpoints.check_backward_validity([x.detach()])
    out = checkpoints.CheckpointFunction.apply(lambda t: (t * t).sum(), True, x)
    assert ts.equal(_backward(out, x), 2 * x)
    with checkpoints.GraphExecGroup():
        pass


def _backward(out: Any, x: Any) -> Any:
    x.grad = None
    out.backward()
    return x.grad


# --- edges -----------------------------------------------------------------------------------------------------------


def test_edges_stand_for_tensors(device: Any) -> None:
    x, y = inputs(device)
    z = (x * y).sin()
    w = (z * z).sum()
    edge, leaf = graph.get_gradient_edge(z), graph.get_gradient_edge(x)
    expected = ts.autograd.grad(w, (z, x), retain_graph=True)
    got = ts.autograd.grad(w, (edge, leaf), retain_graph=True)
    assert all(ts.equal(a, b) for a, b in zip(expected, got, strict=True))
    seed = ts.ones_like(z)
    expected = ts.autograd.grad(z, x, seed, retain_graph=True)
    assert ts.equal(ts.autograd.grad(edge, x, seed, retain_graph=True)[0], expected[0])
    ts.autograd.backward(edge, seed, inputs=leaf)
    assert ts.equal(x.grad, expected[0]) and y.grad is None
    first, second = (x * 2).unbind(0)[:2]
    edges = [graph.get_gradient_edge(t) for t in (first, second)]
    assert [e.output_nr for e in edges] == [0, 1]
    grads = ts.autograd.grad(edges, x, [ts.ones_like(first), 3 * ts.ones_like(second)])
    assert grads[0][:3, 0].tolist() == [2, 6, 0]


def test_edges_follow_a_leaf_that_takes_another_memory(device: Any) -> None:
    x = ts.ones(3, device=device, requires_grad=True)
    before = graph.get_gradient_edge(x)
    with ts.no_grad():
        x.set_(ts.ones(5, device=device))
    edge = graph.get_gradient_edge(x)
    assert edge.node is not before.node and edge == graph.get_gradient_edge(x)
    (gradient,) = ts.autograd.grad((x * 2).sum(), edge)
    assert gradient.tolist() == [2] * 5


def test_edges_that_are_none(device: Any) -> None:
    x, _ = inputs(device)
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(x.detach())
    with pytest.raises(TypeError, match="expected a Node"):
        ts.autograd.grad(graph.GradientEdge(3, 0), x)  # type: ignore[arg-type]
    node = (x * x).grad_fn
    with pytest.raises(IndexError, match="1 results"):
        ts.autograd.grad(graph.GradientEdge(node, 4), x, ts.ones_like(x))
    with pytest.raises(RuntimeError, match="shape"):
        ts.autograd.grad(graph.GradientEdge(node, 0), x, ts.ones(2, device=device, dtype=x.dtype))


def test_versions_are_counted_on(device: Any) -> None:
    x, _ = inputs(device)
    y = x.sin()
    z = y.exp() * y
    graph.increment_version([y])
    assert y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_reentrant_checkpoints_warn_where_nothing_requires_gradients():
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        checkpoint(lambda x: x * 2, ts.ones(2), use_reentrant=True)


def test_operators_of_programs_are_kept(device: Any) -> None:
    runs: list[int] = []

    @ts.library.custom_op("selective_tests::sine", mutates_args=())
    def sine(x: ts.Tensor) -> tuple[ts.Tensor, int]:
        runs.append(1)
        return x.sin(), 2

    sine.register_autograd(
        lambda ctx, grad, _: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x, _ = inputs(device)
    keep = functools.partial(create_selective_checkpoint_contexts, [namespace("selective_tests").sine.default])
    y = checkpoint(lambda t: (sine(t)[0] * t.sin().exp()).sin(), x, use_reentrant=False, context_fn=keep)
    (found,) = ts.autograd.grad(y.sum(), x)
    assert len(runs) == 1
    (expected,) = ts.autograd.grad((x.sin() * x.sin().exp()).sin().sum(), x)
    assert ts.allclose(found, expected)


def test_what_is_no_list_of_operators() -> None:
    with pytest.raises(ValueError, match="to be an OpOverload but got: 2"):
        create_selective_checkpoint_contexts([2])
    with pytest.raises(ValueError, match="update the OpOverloadPacket to a specific OpOverload"):
        create_selective_checkpoint_contexts([namespace("aten").sin])
    with pytest.raises(TypeError, match="either a function or a list of ops"):
        create_selective_checkpoint_contexts(2)  # type: ignore[arg-type]


def test_inputs_that_zeros_cannot_be_made_for(device: Any) -> None:
    x, y = inputs(device)
    edge = graph.get_gradient_edge(y.clone())
    assert ts.autograd.grad(x.sum(), (x, edge), allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        ts.autograd.grad(x.sum(), (x, edge), materialize_grads=True)


@pytest.mark.parametrize("function", [ts.sin, ts.linalg.qr, lambda a: (a @ a).softmax(-1)])
def test_what_catches_errors_does_not_catch_the_end_of_the_second_run(function: Any) -> None:
    """``vmap`` runs entry by entry what fails on all entries at once."""
    given = ts.randn(3, 4, 4, dtype=ts.float64, requires_grad=True)

    def loss(x: Any) -> Any:
        found = ts.vmap(function)(x)
        return (found[0] if isinstance(found, tuple) else found).sum()

    (wanted,) = ts.autograd.grad(loss(given), given)
    (found,) = ts.autograd.grad(checkpoint(loss, given, use_reentrant=False), given)
    assert ts.equal(found, wanted)
