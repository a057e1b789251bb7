"""Custom operators, kernels at dispatch keys, and what explains them."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import library
from tesserack.library import definitions

_names = (f"tests::op{k}" for k in itertools.count())


def scale_op() -> library.CustomOp:
    """x times n, by NumPy, with a shape rule and a gradient."""

    @library.custom_op(next(_names), mutates_args=())
    def scale(x: ts.Tensor, n: float = 2.0) -> ts.Tensor:
        """Times n."""
        return ts.from_numpy(x.detach().numpy() * np.asarray(n, x.numpy().dtype))

    @scale.register_fake
    def fake(x: ts.Tensor, n: float = 2.0) -> ts.Tensor:
        return ts.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.n = inputs[1]

    scale.register_autograd(lambda ctx, grad: (grad * ctx.n, None), setup_context=setup)
    return scale  # type: ignore[no-any-return]


def test_values_gradients_and_shapes() -> None:
    scale = scale_op()
    x = ts.randn(3, dtype=ts.float64, requires_grad=True)
    assert scale.schema.endswith("(Tensor x, float n=2.0) -> Tensor")
    assert ts.equal(scale(x), x.detach() * 2)
    assert scale(x, n=3.0).grad_fn is not None
    assert ts.autograd.gradcheck(lambda t: scale(t, 5.0), (x,))
    assert scale(ts.empty(4, 2, device="meta")).shape == (4, 2)
    assert set(library.opcheck(scale, (x, 3.0)).values()) == {"SUCCESS"}


def test_it_is_an_operator_like_others() -> None:
    scale = scale_op()
    space, _, base = scale.name.partition("::")
    assert getattr(getattr(ts.ops, space), base) is scale
    assert ts.dispatch.schemas(scale.name) == [scale.schema]
    assert ("Autograd", f"{scale.name}.register_autograd") in ts.dispatch.table(scale.name)
    assert "Autograd" in ts.dispatch.explain(scale.name, ts.ones(2, requires_grad=True))
    seen = []
    key = ts.dispatch.register_key(f"See{base}", before="Profiler")

    @key.fallback
    def see(call: ts.dispatch.Call, *args: Any) -> Any:
        seen.append(call.op)
        return call.redispatch(*args)

    with key.enabled():
        scale(ts.ones(2))
    assert scale.name in seen
    with pytest.raises(TypeError, match="must be"):
        scale("a string")


def test_without_a_gradient_backward_says_so() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def opaque(x: ts.Tensor) -> ts.Tensor:
        return x.clone()

    y = opaque(ts.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="register_autograd"):
        y.sum().backward()
    with pytest.raises(NotImplementedError, match="register_fake"):
        opaque(ts.ones(2, device="meta"))


def test_kernels_by_device(reference: ts.device) -> None:
    @library.custom_op(next(_names), mutates_args=(), device_types="cpu")
    def where_am_i(x: ts.Tensor) -> ts.Tensor:
        return ts.zeros_like(x)

    assert where_am_i(ts.ones(2)).tolist() == [0.0, 0.0]
    with pytest.raises(NotImplementedError, match=r"no kernel for tensors on reference \(registered: cpu\)"):
        where_am_i(ts.ones(2, device=reference))

    @where_am_i.register_kernel("reference")
    def there(x: ts.Tensor) -> ts.Tensor:
        return ts.ones_like(x) * 7

    result = where_am_i(ts.ones(2, device=reference))
    assert result.device == reference and result.tolist() == [7.0, 7.0]


def test_operands_share_a_device(reference: ts.device) -> None:
    scale = scale_op()

    @library.custom_op(next(_names), mutates_args=())
    def total(x: ts.Tensor, others: list[ts.Tensor]) -> ts.Tensor:
        return x.clone()

    x = ts.ones(2)
    with pytest.raises(RuntimeError, match="same device"):
        total(x, [x, x.to(reference)])
    with pytest.raises(RuntimeError, match="same device"):
        total(x.to(reference), [x])
    assert ts.equal(total(x, [x]), x) and scale(x).tolist() == [2.0, 2.0]


def test_lists_optionals_and_several_results() -> None:
    @library.custom_op(next(_names), mutates_args=())
    def stats(xs: list[ts.Tensor], weight: ts.Tensor | None, dims: list[int]) -> tuple[ts.Tensor, ts.Tensor]:
        total = sum(xs[1:], start=xs[0].clone())
        return (total if weight is None else total * weight), ts.tensor(dims)

    def backward(ctx: Any, grad: ts.Tensor, _: Any) -> Any:
        return [grad] * ctx.count, None, None

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.count = len(inputs[0])

    stats.register_autograd(backward, setup_context=setup)
    xs = [ts.ones(2, requires_grad=True) for _ in range(3)]
    total, dims = stats(xs, None, [4, 5])
    assert total.tolist() == [3.0, 3.0] and dims.tolist() == [4, 5]
    total.sum().backward()
    assert all(x.grad is not None and x.grad.tolist() == [1.0, 1.0] for x in xs)


def test_mutation_is_declared_and_counted() -> None:
    @library.custom_op(next(_names), mutates_args=("x",))
    def add_one(x: ts.Tensor) -> None:
        x.numpy()[...] += 1

    x = ts.zeros(3)
    version = x._version
    assert add_one(x) is None
    assert x.tolist() == [1.0] * 3 and x._version == version + 1
    with pytest.raises(RuntimeError, match="writes its arguments"):
        add_one.register_autograd(lambda ctx: None)

    @library.custom_op(next(_names), mutates_args=())
    def secretly(x: ts.Tensor) -> ts.Tensor:
        x.numpy()[...] += 1
        return x.clone()

    with pytest.raises(library.OpCheckError, match="mutates_args"):
        library.opcheck(secretly, (ts.zeros(2),), test_utils="test_schema")


def test_opcheck_finds_wrong_rules() -> None:
    scale = scale_op()
    scale.register_fake(lambda x, n=2.0: ts.empty(x.shape[0] + 1, device="meta"))
    with pytest.raises(library.OpCheckError, match="register_fake"):
        library.opcheck(scale, (ts.ones(2),))
    wrong = scale_op()
    wrong.register_autograd(lambda ctx, grad: (grad * 17, None))
    outcome = library.opcheck(wrong, (ts.ones(2, dtype=ts.float64, requires_grad=True),), raise_exception=False)
    assert isinstance(outcome["test_autograd_registration"], library.OpCheckError)


@pytest.mark.parametrize(
    ("name", "message"), [("plain", "a name like"), ("a::b::c", "a name like"), ("a::1b", "a name like")]
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        library.custom_op(name, mutates_args=())


def test_bad_annotations() -> None:
    def missing(x) -> ts.Tensor:  # type: ignore[no-untyped-def]
        return x  # type: ignore[no-any-return]

    def strange(x: dict[str, int]) -> ts.Tensor: ...

    def collects(*xs: ts.Tensor) -> ts.Tensor: ...

    for function, message in ((missing, "needs an annotation"), (strange, "cannot take"), (collects, "fixed number")):
        with pytest.raises(ValueError, match=message):
            library.infer_schema(function)
    with pytest.raises(ValueError, match="no arguments"):
        library.infer_schema(missing, mutates_args=("y",))


def test_keys_are_considered_in_order() -> None:
    """In a process of its own: there is room for a few keys only."""
    program = "import test_library; test_library.check_order_of_keys()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def check_order_of_keys() -> None:
    order: list[str] = []

    def record(name: str) -> Any:
        def kernel(call: ts.dispatch.Call, *args: Any) -> Any:
            order.append(name)
            return call.redispatch(*args)

        return kernel

    inner = ts.dispatch.register_key("TestInner", after="Autograd")
    outer = ts.dispatch.register_key("TestOuter", before="Autograd")
    between = ts.dispatch.register_key("TestBetween", after="TestOuter")
    for key in (inner, outer, between):
        key.fallback(record(key.name))
    x = ts.ones(2)
    with inner.enabled(), outer.enabled(), between.enabled():
        x.neg()
        with outer.enabled(False):
            x.abs()
    assert order == ["TestOuter", "TestBetween", "TestInner", "TestBetween", "TestInner"]
    names = ts.dispatch.key_names()
    assert names.index("TestOuter") < names.index("TestBetween") < names.index("Autograd") < names.index("TestInner")
    with pytest.raises(RuntimeError, match="exists already"):
        ts.dispatch.register_key("TestOuter", before="Autograd")
    with pytest.raises(ValueError, match="no key named"):
        ts.dispatch.register_key("TestOther", before="Nothing")
    with pytest.raises(ValueError, match="exactly one of"):
        ts.dispatch.register_key("TestOther")


def test_a_kernel_may_replace_the_result() -> None:
    key = ts.dispatch.register_key("TestReplace", before="UserMode")

    @key.kernel("cos")
    def cosine(call: ts.dispatch.Call, x: ts.Tensor) -> ts.Tensor:
        return x.sin()

    x = ts.tensor([0.5])
    with key.enabled():
        assert x.cos().item() == pytest.approx(np.sin(0.5))
        assert x.sin().item() == pytest.approx(np.sin(0.5))

    @key.kernel("tan")
    def wrong(call: ts.dispatch.Call, x: ts.Tensor) -> Any:
        return "no tensor"

    with key.enabled(), pytest.raises(TypeError, match="tan"):
        x.tan()
    with key.enabled():

        @key.kernel("tanh")
        def too_few(call: ts.dispatch.Call, x: ts.Tensor) -> Any:
            return call.redispatch()

        with pytest.raises(TypeError, match="misses the argument"):
            x.tanh()


def test_rules_of_operators_for_vmap():
    """The whole batch in one call."""
    calls = []

    @library.custom_op("vmap_demo::scaled", mutates_args=())
    def scaled(x: ts.Tensor, by: float) -> ts.Tensor:
        calls.append(tuple(x.shape))
        return ts.from_numpy(x.numpy() * by)

    assert ts.vmap(lambda x: scaled(x, 2.0))(ts.ones(3, 2)).tolist() == [[2.0, 2.0]] * 3
    assert calls == [(2,)] * 3

    @library.register_vmap("vmap_demo::scaled")
    def rule(info, in_dims, x, by):
        assert info.batch_size == 3 and in_dims == (0, None)
        return scaled(x, by), 0

    calls.clear()
    assert ts.vmap(lambda x: scaled(x, 2.0), in_dims=1)(ts.ones(2, 3)).tolist() == [[2.0, 2.0]] * 3
    assert calls == [(3, 2)]


def test_opcheck_compares_what_is_compiled_and_open_sizes() -> None:
    definitions.define(name := f"checked::kept{id(object())}", "(Tensor x) -> Tensor")
    definitions.impl(name, "default", lambda x: x[x > 0])
    definitions.register_fake(name, lambda x: x.new_empty(definitions.get_ctx().new_dynamic_size()))
    outcome = library.opcheck(library.get(name), (ts.tensor([1.0, -1.0, 2.0]),), test_utils="test_faketensor")
    assert outcome == {"test_faketensor": "SUCCESS"}
    with pytest.raises(RuntimeError, match="symbols"):
        definitions.get_ctx()
    scale = scale_op()
    x = ts.tensor([1.0, 2.0], dtype=ts.float64, requires_grad=True)
    checks = ["test_aot_dispatch_dynamic", "test_aot_dispatch_static"]
    assert set(library.opcheck(scale, (x,), test_utils=checks).values()) == {"SUCCESS"}
    states = iter(range(100))
    definitions.define(name := f"checked::counts{id(object())}", "(Tensor x) -> Tensor")
    definitions.impl(name, "default", lambda x: x + next(states))
    definitions.register_fake(name, lambda x: x.new_empty(x.shape))
    with pytest.raises(library.OpCheckError, match="eagerly"):
        library.opcheck(library.get(name), (ts.ones(2),), test_utils="test_aot_dispatch_static")


def test_an_operator_is_copied_and_pickled_by_name():
    @ts.library.custom_op("demo_copies::double", mutates_args=())
    def double(x: ts.Tensor) -> ts.Tensor:
        return x * 2

    assert copy.deepcopy(double) is double and pickle.loads(pickle.dumps(double)) is double
    assert copy.deepcopy([ts.ops.demo_copies.double])[0](ts.ones(1)).item() == 2
