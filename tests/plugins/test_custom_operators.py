"""What operators of programs may be given and named, and what is registered for them."""

from typing import Any, List, Optional  # noqa: UP035

import pytest
import tesserack as ts
from tesserack import Tensor
from tesserack.aten.modes import TorchDispatchMode
from tesserack.aten.operators import namespace
from tesserack.export import default_decompositions
from tesserack.library import custom_op, infer_schema
from tesserack.library import definitions as library


def test_everything_is_registered_for_an_operator_of_the_namespace() -> None:
    library.define("given::square", "(Tensor x) -> Tensor")
    operator = namespace("given").square.default
    library.impl("given::square", "default", lambda x: x * 1)
    library.register_kernel(operator, "cpu", lambda x: x * x)
    library.register_fake(operator, lambda x: ts.empty_like(x))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    library.register_autograd(operator, lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad, setup_context=setup)
    library.register_vmap(namespace("given").square, lambda info, dims, x: (operator(x), dims[0]))
    x = ts.full((3,), 3.0, requires_grad=True)
    operator(x).sum().backward()
    assert x.grad.tolist() == [6.0] * 3
    assert ts.vmap(operator)(ts.full((2, 3), 2.0)).tolist() == [[4.0] * 3] * 2
    assert operator(ts.ones(2, device="meta")).shape == (2,)


def test_defaults_of_every_kind() -> None:
    @custom_op("given::defaults", mutates_args=())
    def defaults(
        x: Tensor,
        a: Optional[int] = None,  # noqa: UP045
        b: float = 3.5,
        c: bool = True,
        d: str = "a, b) c",
        e: ts.dtype = ts.int32,
        f: ts.device = ts.device("cpu:0"),  # noqa: B008
        g: ts.device = "cpu",  # type: ignore[assignment]
    ) -> Tensor:
        assert (a, c, d, e, f, g) == (None, True, "a, b) c", ts.int32, ts.device("cpu:0"), ts.device("cpu"))
        return x + b

    assert defaults(ts.ones(1)) == 4.5 and namespace("given").defaults(ts.ones(1), b=1.0) == 2


def test_names_of_schemas_and_lists_of_optional_tensors() -> None:
    def some(x: Tensor, more: List[Optional[Tensor]], *, n: int = 2) -> Tensor: ...  # noqa: UP006, UP045

    assert infer_schema(some, op_name="some") == "some(Tensor x, Tensor?[] more, *, int n=2) -> Tensor"
    made = custom_op("given::added", mutates_args={"more"})(_add_one)
    tensors = [ts.zeros(1), None, ts.zeros(1)]
    made(tensors)
    assert [t if t is None else t.item() for t in tensors] == [1.0, None, 1.0]


def _add_one(more: List[Optional[Tensor]]) -> None:  # noqa: UP006, UP045
    for t in more:
        if t is not None:
            t.add_(1)


def test_overloads_are_chosen_by_what_they_are_given() -> None:
    @custom_op("given::plus", mutates_args=())
    def one(x: Tensor) -> Tensor:
        return x + 1

    @custom_op("given::plus.other", mutates_args=())
    def other(x: Tensor, y: Tensor) -> Tensor:
        return x + y * 10

    x, plus = ts.ones(1), namespace("given").plus
    assert [one(x), other(x, x), plus(x), plus(x, x), plus.other(x, x), plus.default(x)] == [2, 11, 2, 11, 11, 2]
    assert sorted(plus.overloads()) == ["default", "other"]


def test_a_device_tells_where_something_is_made() -> None:
    @custom_op("given::made", mutates_args=(), device_types="cpu")
    def made(n: int, device: ts.device) -> Tensor:
        return ts.ones(n, device=device)

    assert made(3, "cpu").shape == (3,)
    with pytest.raises(NotImplementedError, match="no kernel for tensors on meta"):
        made(3, device=ts.device("meta"))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x: [x.view(-1)],
        lambda x: [x[0]],
        lambda x: [(y := x.clone()), y],
        lambda x: [(y := x.clone()), y[1:]],
    ],
)
def test_results_see_no_memory_of_arguments_or_of_each_other(kernel: Any) -> None:
    made = custom_op("given::views", mutates_args=(), schema="(Tensor x) -> Tensor[]")(kernel)
    with pytest.raises(RuntimeError, match=r"given::views: the kernel returned .*; return a copy"):
        made(ts.ones(2, 2))


def test_a_devices_kernel_may_be_put_aside() -> None:
    @custom_op("given::aside", mutates_args=())
    def aside(x: Tensor) -> Tensor:
        return x + 1

    aside.register_kernel("cpu", lambda x: x + 2)
    with aside.set_kernel_enabled("cpu", False):
        assert aside(ts.zeros(1)) == 1
        with aside.set_kernel_enabled("cpu", True):
            assert aside(ts.zeros(1)) == 2
        assert aside(ts.zeros(1)) == 1
    assert aside(ts.zeros(1)) == 2


class Plain(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Held(ts.Tensor):
    @staticmethod
    def __new__(cls, values: Tensor) -> Any:
        made = ts.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)
        made.values_ = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


def test_what_modes_and_subclasses_answer_of_an_operator() -> None:
    @custom_op("given::answered", mutates_args=())
    def answered(x: Tensor) -> Tensor:
        return x.clone()

    answered.register_torch_dispatch(Plain, lambda mode, func, types, args, kwargs: func(*args, **kwargs) + 9)
    library.register_torch_dispatch("given::answered", Held, lambda cls, func, types, args, kwargs: args[0].values_ * 5)
    with Plain():
        assert answered(ts.zeros(1)) == 9
    assert answered(ts.zeros(1)) == 0
    assert answered(Held(ts.ones(1))) == 5


def test_kernels_go_to_the_overload_that_is_named() -> None:
    made = library.Library("given_overloads", "FRAGMENT")
    for schema in ("f(Tensor x) -> Tensor", "f.two(Tensor x, Tensor y) -> Tensor", "g.only(Tensor x) -> Tensor"):
        made.define(schema)
    made.impl("f", lambda x: x + 1, "CompositeExplicitAutograd")
    made.impl("f.two", lambda x, y: x + y * 10, "CompositeExplicitAutograd")
    made.impl("g.only", lambda x: x * 3, "CompositeImplicitAutograd")
    operators, x = namespace("given_overloads"), ts.ones(1)
    assert [operators.f(x), operators.f(x, x), operators.f.two(x, x), operators.g(x), operators.g.only(x)] == [
        2,
        11,
        11,
        3,
        3,
    ]
    assert operators.g.only in default_decompositions()
    library.register_fake(operators.f.two, lambda x, y: ts.empty(7, device="meta"))
    meta = ts.ones(2, device="meta")
    assert operators.f.two(meta, meta).shape == (7,) and operators.f(meta).shape == (2,)
