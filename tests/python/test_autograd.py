"""The Python side of automatic differentiation: running, hooks, modes, custom functions, checks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import Function, grad, gradcheck
from tesserack.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def leaf(*values: float) -> ts.Tensor:
    return ts.tensor(values, dtype=ts.float64, requires_grad=True)


# --- running -------------------------------------------------------------------------------------------------------


def test_backward_accumulates() -> None:
    x = leaf(1, 2)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    (x * 3).backward(ts.tensor([1.0, 2.0], dtype=ts.float64))
    assert x.grad.tolist() == [7.0, 14.0]


def test_backward_of_several_tensors_and_into_chosen_leaves() -> None:
    x, y = leaf(1), leaf(2)
    ts.autograd.backward([x * y, x + y], [None, ts.tensor([10.0], dtype=ts.float64)])
    assert x.grad.item() == 12.0 and y.grad.item() == 11.0
    (x * y).backward(inputs=[x])
    assert x.grad.item() == 14.0 and y.grad.item() == 11.0


def test_grad_and_its_options() -> None:
    x, y = leaf(3), leaf(1)
    z = x * x * x
    (first,) = grad(z, x, create_graph=True)
    (second,) = grad(first, x)
    assert (first.item(), second.item()) == (27.0, 18.0) and x.grad is None
    with pytest.raises(RuntimeError, match="allow_unused"):
        grad(x * 2, y)
    assert grad(x * 2, y, allow_unused=True) == (None,)
    assert grad(x * 2, y, materialize_grads=True)[0].item() == 0.0
    with pytest.raises(ValueError, match="materialize_grads"):
        grad(x * 2, y, allow_unused=False, materialize_grads=True)
    batched = grad(leaf_square := x * x, x, ts.tensor([[1.0], [2.0]], dtype=ts.float64), is_grads_batched=True)
    assert batched[0].tolist() == [[6.0], [12.0]] and leaf_square.requires_grad


PRODUCTS = {
    "mul": lambda a, b: a * b,
    "matmul": lambda a, b: a @ b,
    "linear": lambda a, b: ts.nn.functional.linear(a, b),
    "conv1d": lambda a, b: ts.nn.functional.conv1d(a.reshape(2, 1, 2), b.reshape(2, 1, 2)),
    "einsum": lambda a, b: ts.einsum("ij,kj->ik", a, b),
}


@pytest.mark.parametrize("op", PRODUCTS.values(), ids=PRODUCTS)
def test_only_gradients_asked_for_are_computed(op: Any) -> None:
    """The gradient of one factor needs the other: had the other's been computed too, the change would be noticed."""
    a, b = ts.rand(2, 2).requires_grad_(), ts.rand(2, 2).requires_grad_()
    left, right = a.clone(), b.clone()
    y = op(left, right)
    (expected,) = grad(y.sum(), a, retain_graph=True)
    with ts.no_grad():
        left.add_(1)
    assert grad(y.sum(), a, retain_graph=True)[0].tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(y.sum(), (a, b))


def test_a_function_knows_which_gradients_are_asked_for() -> None:
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, k: float, a: ts.Tensor, b: ts.Tensor) -> ts.Tensor:
            ctx.save_for_backward(a, b)
            return a * b * k

        @staticmethod
        def backward(ctx: Any, g: ts.Tensor) -> Any:
            seen.append(ctx.needs_input_grad)
            a, b = ctx.saved_tensors
            return None, g * b, g * a

    a, b = leaf(1, 2), leaf(3, 4)
    y = Product.apply(1.0, a, b)
    node = y.grad_fn
    (got,) = grad(y.sum(), b, retain_graph=True)
    assert got.tolist() == [1.0, 2.0]
    y.sum().backward()
    assert seen == [(False, False, True), (False, True, True)]
    assert node.needs_input_grad == (False, True, True)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x: (x * 2).backward(), "scalar outputs"),
        (lambda x: x.detach().sum().backward(), "does not require grad"),
        (lambda x: (x * 2).backward(ts.ones(5, dtype=ts.float64)), "shape"),
        (lambda x: grad(x.sum(), []), "cannot be empty"),
        (lambda x: x.sum().backward(inputs=[]), "cannot be empty"),
    ],
)
def test_refusals(run: object, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message):
        run(leaf(1, 2))  # type: ignore[operator]


def test_the_graph_is_freed_once_used() -> None:
    x = leaf(2)
    y = x.exp()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_modified_saved_tensors_are_noticed() -> None:
    x = leaf(1, 2)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_leaf_rules() -> None:
    x = leaf(1)
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with ts.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="floating"):
        ts.ones(2, dtype=ts.int64).requires_grad_()
    with pytest.raises(RuntimeError, match="bool"):
        x.requires_grad = 1
    with pytest.raises(RuntimeError, match="deleted"):
        del x.requires_grad


def test_deep_chains_need_no_stack() -> None:
    x = leaf(1)
    y = x
    for _ in range(100_000):
        y = y + 0
    y.backward()
    assert x.grad.item() == 1.0


# --- hooks ---------------------------------------------------------------------------------------------------------


def test_tensor_hooks() -> None:
    x = leaf(1)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    handle = x.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert seen == [1.0] and x.grad.item() == 20.0
    handle.remove()
    handle.remove()
    y.sum().backward()
    assert x.grad.item() == 22.0
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        ts.ones(1).register_hook(print)
    with pytest.raises(TypeError, match="callable"):
        x.register_hook(5)


def test_multi_grad_hooks() -> None:
    x, y = leaf(1), leaf(2)
    every: list[Any] = []
    first: list[Any] = []
    graph = ts.autograd.graph
    with graph.register_multi_grad_hook((x, y), lambda grads: every.append([g and g.item() for g in grads])):
        graph.register_multi_grad_hook((x, y), lambda g: first.append(g.item()), mode="any")
        (x * y).backward()
        (x * 3).backward()
    (x * y).backward()
    assert every == [[2.0, 1.0], [3.0, None]] and len(first) == 3
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((x,), print, mode="some")


def test_multi_grad_hook_forgets_a_failed_backward() -> None:
    x, y = leaf(1), leaf(2)
    seen: list[Any] = []
    ts.autograd.graph.register_multi_grad_hook((x, y), lambda grads: seen.append([g is None for g in grads]))
    fails = y * 1
    fails.register_hook(lambda g: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        (fails + x).backward()  # x is reached first or never
    (y * 2).backward()
    assert seen == [[True, False]]


def test_errors_in_hooks_come_through() -> None:
    class Boom(Exception):
        pass

    def hook(g: ts.Tensor) -> None:
        raise Boom("now")

    x = leaf(1)
    x.register_hook(hook)
    with pytest.raises(Boom, match="now"):
        (x * 2).backward()
    y = leaf(1)
    y.register_hook(lambda g: 5)
    with pytest.raises(TypeError, match="expected a Tensor"):
        (y * 2).backward()


def test_post_accumulate_hooks() -> None:
    x = leaf(1)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.item())))
    (x * 3).backward()
    handle.remove()
    (x * 3).backward()
    assert seen == [(True, 3.0)]
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_node_hooks_and_structure() -> None:
    x = leaf(1)
    y = x * 2
    node = y.grad_fn
    assert node is y.grad_fn and node.name() == "MulBackward0" and repr(node).startswith("<MulBackward0 object at")
    ((accumulate, number),) = [pair for pair in node.next_functions if pair[0] is not None]
    assert accumulate.name() == "torch::autograd::AccumulateGrad" and number == 0 and accumulate.variable is x
    with pytest.raises(AttributeError):
        node.variable
    node.metadata["a"] = 1
    assert node.metadata == {"a": 1}
    seen = []
    node.register_prehook(lambda grads: (grads[0] * 5,))
    handle = node.register_hook(lambda inputs, outputs: seen.append(outputs[0].item()))
    y.backward(retain_graph=True)
    assert seen == [5.0] and x.grad.item() == 10.0
    handle.remove()
    y.backward()
    assert len(seen) == 1
    with pytest.raises(TypeError):
        type(node)()


def test_retain_grad() -> None:
    x = leaf(1)
    y = x * 2
    y.retain_grad()
    assert y.retains_grad
    (y * 3).backward()
    assert y.grad.item() == 3.0
    with pytest.raises(RuntimeError, match="retain_grad"):
        ts.ones(1).retain_grad()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert (x * 2).grad is None


# --- modes ---------------------------------------------------------------------------------------------------------


def test_modes_nest_and_restore() -> None:
    x = leaf(1)
    with ts.no_grad():
        assert not (x * 2).requires_grad
        with ts.enable_grad():
            assert (x * 2).requires_grad
        with ts.set_grad_enabled(True):
            assert ts.is_grad_enabled()
        assert not ts.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), ts.no_grad():
        1 / 0
    assert ts.is_grad_enabled()
    ts.set_grad_enabled(False)
    assert not ts.is_grad_enabled()
    ts.set_grad_enabled(mode=True)
    mode = ts.no_grad()
    with mode, mode:
        assert not ts.is_grad_enabled()
    assert ts.is_grad_enabled()
    with pytest.raises(RuntimeError, match="not entered"):
        mode.__exit__(None, None, None)


def test_modes_decorate() -> None:
    @ts.no_grad()
    def one() -> bool:
        return ts.is_grad_enabled()

    @ts.no_grad
    def two() -> bool:
        return ts.is_grad_enabled()

    @ts.set_grad_enabled(False)
    def three() -> bool:
        return ts.is_grad_enabled()

    @ts.inference_mode()
    def four() -> bool:
        return ts.ones(1).is_inference()

    @ts.no_grad()
    def generate():  # type: ignore[no-untyped-def]
        got = yield ts.is_grad_enabled()
        yield (got, ts.is_grad_enabled())

    assert one() is two() is three() is False and four() and one.__name__ == "one"
    assert ts.is_grad_enabled()
    steps = generate()
    assert next(steps) is False and ts.is_grad_enabled()
    assert steps.send("x") == ("x", False)

    class Made:
        def __init__(self) -> None:
            self.mode = ts.is_grad_enabled()

    with pytest.warns(FutureWarning, match="class"):
        make = ts.no_grad()(Made)
    assert make().mode is False and Made().mode


def test_inference_mode() -> None:
    with ts.inference_mode():
        x = ts.ones(2)
        assert x.is_inference() and ts.is_inference_mode_enabled()
    assert not ts.is_inference_mode_enabled()
    w = ts.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (w * x).sum().backward()
    assert (w * x.clone()).requires_grad
    for write in (
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: t.__setitem__(0, 3),
        lambda t: t.mul_(w.detach()),
    ):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"), ts.no_grad():
            write(x)
    with ts.inference_mode():
        assert x.add_(1).tolist() == [2.0, 2.0]
    with ts.inference_mode(False):
        assert not ts.ones(1).is_inference()


def test_anomaly_mode_names_the_line() -> None:
    x = leaf(-1)
    with pytest.warns(UserWarning, match="Anomaly"), ts.autograd.detect_anomaly():
        y = x.sqrt()  # the line
        with (
            pytest.raises(RuntimeError, match="nan values in its 0th output"),
            pytest.warns(UserWarning, match="# the line"),
        ):
            y.backward()
    assert not ts._native.is_anomaly_enabled()
    with ts.autograd.set_detect_anomaly(True):
        assert ts._native.is_anomaly_enabled()
    assert not ts._native.is_anomaly_enabled()


# --- saved-tensor hooks --------------------------------------------------------------------------------------------


def test_saved_tensor_hooks() -> None:
    x = leaf(2)
    log = []
    with ts.autograd.graph.saved_tensors_hooks(
        lambda t: log.append("pack") or t.tolist(), lambda v: ts.tensor(v, dtype=ts.float64)
    ):
        y = x.exp()
    y.backward()
    assert log == ["pack"] and x.grad.item() == pytest.approx(7.38905609893065)
    with ts.autograd.graph.saved_tensors_hooks(lambda t: t, lambda v: 5):
        y = x * x
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        y.backward()
    with ts.autograd.graph.save_on_cpu():
        z = (x * x).exp()
    z.backward()
    with (
        pytest.raises(RuntimeError, match="not here"),
        ts.autograd.graph.disable_saved_tensors_hooks("not here"),
        ts.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_numbers_again(reentrant: bool) -> None:
    x = leaf(*range(20))
    runs = []

    def noisy(t: ts.Tensor) -> ts.Tensor:
        runs.append(1)
        return (t.exp() * ts.rand(20, dtype=ts.float64)).sin()

    ts.manual_seed(3)
    expected = grad(noisy(x).sum(), x)[0]
    after = ts.rand(1)
    ts.manual_seed(3)
    checkpoint(noisy, x, use_reentrant=reentrant).sum().backward()
    assert x.grad.tolist() == expected.tolist() and len(runs) == 3
    assert ts.rand(1).item() == after.item()


def test_checkpoint_keeps_nothing_and_notices_changes() -> None:
    x = leaf(1, 2)
    calls = []

    def changes(t: ts.Tensor) -> ts.Tensor:
        calls.append(1)
        return t.exp() if len(calls) == 1 else t.repeat(2).exp()

    y = checkpoint(changes, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="first run"):
        y.sum().backward()
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(changes, x, determinism_check="x", use_reentrant=False)


def test_checkpoint_sequential() -> None:
    x = leaf(0.1, 0.2)
    steps = [ts.exp, ts.sin, lambda t: t * 2, ts.tanh]
    expected = grad(((x.exp().sin()) * 2).tanh().sum(), x)[0]
    checkpoint_sequential(steps, 2, x, use_reentrant=False).sum().backward()
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed"):
        checkpoint_sequential(steps, 2, x)
    assert x.grad.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="segments"):
        checkpoint_sequential(steps, 9, x, use_reentrant=False)


# --- checks and functionals ----------------------------------------------------------------------------------------


class Wrong(Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * x

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g


def test_gradcheck_finds_wrong_gradients() -> None:
    x = leaf(1, 2)
    for fast in (False, True):
        with pytest.raises(ts.autograd.GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
            gradcheck(Wrong.apply, x, fast_mode=fast)
        assert gradcheck(Wrong.apply, x, fast_mode=fast, raise_exception=False) is False
    with pytest.raises(ValueError, match="at least one input"):
        gradcheck(ts.exp, ts.ones(2))

    def shifted(t: ts.Tensor) -> ts.Tensor:  # within the tolerance of values, but no multiple
        y = t.clone()
        y.register_hook(lambda g: g + 1e-2)
        return y

    with pytest.raises(ts.autograd.GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(shifted, x, atol=0.1)
    with pytest.warns(UserWarning, match="float64"):
        gradcheck(lambda t: t * 2, ts.ones(2, requires_grad=True), eps=1e-2)


def test_functionals() -> None:
    x = ts.tensor([1.0, 2.0], dtype=ts.float64)
    functional = ts.autograd.functional
    assert functional.jacobian(lambda t: t**2, x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert functional.hessian(lambda t: (t**3).sum(), x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert functional.vjp(lambda t: t**2, x, ts.ones(2, dtype=ts.float64))[1].tolist() == [2.0, 4.0]
    assert functional.jvp(lambda t: t**2, x, ts.ones(2, dtype=ts.float64))[1].tolist() == [2.0, 4.0]
    assert functional.hvp(lambda t: (t**3).sum(), x, ts.ones(2, dtype=ts.float64))[1].tolist() == [6.0, 12.0]
    two = functional.jacobian(lambda a, b: (a * b, a + b), (x, x))
    assert two[0][1].tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_nested_disabling_of_saved_tensor_hooks_ends_with_the_outer() -> None:
    graph = ts.autograd.graph

    def use() -> None:
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass

    with graph.disable_saved_tensors_hooks("outer"):
        with graph.disable_saved_tensors_hooks("inner"), pytest.raises(RuntimeError, match="inner"):
            use()
        with pytest.raises(RuntimeError, match="outer"):
            use()
    use()


def test_fifth_derivatives_are_programs_of_moderate_size() -> None:
    """As trees, those of lgamma took many seconds to write down."""
    x = ts.tensor([0.5, 2.5], dtype=ts.float64, requires_grad=True)
    y = ts.lgamma(x)
    for _ in range(5):
        (y,) = ts.autograd.grad(y.sum(), x, create_graph=True)
    assert ts.allclose(y, ts.polygamma(4, x), rtol=1e-9)


def test_an_error_under_anomaly_mode_is_raised_where_warnings_are_errors(caplog: pytest.LogCaptureFixture) -> None:
    x = ts.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ts.autograd.detect_anomaly():
            y = x + 1
            z = y**2
            y += 1
            warnings.simplefilter("error")
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
    assert "Error detected in PowBackward0" in caplog.text


OPERANDS = {
    "number": (lambda x: x + 5, [True, False]),
    "number divided": (lambda x: 5 / x, [False, True]),
    "first": (lambda x: ts.ones(2) * x, [False, True]),
    "second": (lambda x: x.atan2(ts.ones(2)), [True, False]),
    "three": (lambda x: ts.addcmul(x, ts.ones(2), x), [True, False, True]),
    "exponent": (lambda x: x**2, [True]),
    "mask": (lambda x: ts.where(x > 0, x, 0.0), [True, False]),
    "written": (lambda x: x.clone().mul_(2), [True, False]),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_want_no_gradient_have_their_place_among_next_functions(name) -> None:
    call, wanted = OPERANDS[name]
    following = call(ts.ones(2, requires_grad=True)).grad_fn.next_functions
    assert [node is not None for node, _ in following] == wanted
    assert all(number == 0 for _, number in following)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("shape", [(3, 2), (0, 2)], ids=["some", "none"])
@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_a_gradient_with_a_graph_is_no_view_with_or_without_memory(shape, place):
    p = ts.ones(shape, requires_grad=True, device=place)
    (p.T * p.T).sum().backward(create_graph=True)
    assert p.grad.shape == p.shape and p.grad._base is None and p.grad.requires_grad
    p.grad.detach_()


def test_zeros_in_the_place_of_missing_gradients_can_be_differentiated_with_the_graph():
    x, y = ts.ones(2, requires_grad=True), ts.ones(2, requires_grad=True)
    _, other = ts.autograd.grad((x * 2).sum(), (x, y), create_graph=True, materialize_grads=True)
    assert other.tolist() == [0, 0] and other.requires_grad
    assert not ts.autograd.grad((x * 2).sum(), (x, y), materialize_grads=True)[1].requires_grad


def test_a_fast_gradcheck_of_many_elements_is_as_lenient_as_pytorchs():
    # One direction of length one: what it finds grows with the error, whatever the number of elements.
    layer = ts.nn.LayerNorm([4, 5], elementwise_affine=False)
    x = ts.rand(30, 4, 5, dtype=ts.float64, requires_grad=True)
    assert gradcheck(layer, x, fast_mode=True)
    assert gradcheck(lambda x: x.cumsum(0) * 100, x, fast_mode=True)

    class Off(ts.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2.01

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Off.apply, x, fast_mode=True)


def test_inference_mode_records_nothing_whatever_is_switched_on_within() -> None:
    w = ts.ones(3, requires_grad=True)
    with ts.inference_mode():
        for switch in (ts.enable_grad(), ts.set_grad_enabled(True)):
            with switch:
                y = ts.nn.functional.layer_norm(ts.arange(3.0) * w, (3,))
                assert not (y * y).requires_grad
    with ts.set_grad_enabled(True):
        assert (w * 2).requires_grad
