"""How writes are counted and refused, views of inference mode, transforms, and derivatives at infinity.

Each is one program for both libraries.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from outcomes import detached, error_of

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")  # PyTorch's own, of its forward mode


def writes_are_counted_once(m: Any) -> Any:
    x, y = m.tensor([0.5, 1.5, 2.5]), m.tensor([1.0, 2.0, 3.0])
    at = m.tensor([0])
    writes: list[Callable[[], Any]] = [
        lambda: x.clamp_(0),
        lambda: x.clamp_(0, 9),
        lambda: x.clip_(y, None),
        lambda: x.pow_(2),
        lambda: x.div_(2, rounding_mode="floor"),
        lambda: x.lerp_(y, 0.3),
        lambda: x.nan_to_num_(),
        lambda: x.logit_(0.1),
        lambda: x.put_(at, y[:1]),
        lambda: x.scatter_reduce_(0, at, y[:1], "prod"),
        lambda: m.pow(y, 2, out=x),
        lambda: m.clamp(y, 0, 2, out=x),
        lambda: x[:2].clamp_(0),
    ]
    counts = []
    for write in writes:
        before = x._version
        write()
        counts.append(x._version - before)
    base = m.ones(3, requires_grad=True).clone()
    view = base[:2]
    view.clamp_(0, 0.5)
    base.pow_(2)
    (view * 3 + base.sum()).sum().backward()
    return [counts, base._version, view._version]


def forms_that_overlap(m: Any) -> Any:
    def refused(write: Callable[[Any], Any]) -> Any:
        x = m.arange(6.0)
        return [error_of(lambda: write(x)), x]

    at = m.tensor([0, 1])
    return [
        refused(lambda x: x[1:].copy_(x[:-1])),
        refused(lambda x: x.view(2, 3).copy_(x.view(3, 2).t())),
        refused(lambda x: x[::2].copy_(x[1::2])),
        refused(lambda x: x.copy_(x)),
        refused(lambda x: x.index_add_(0, at, x[1:3])),
        refused(lambda x: x.index_copy_(0, at, x[1:3])),
        refused(lambda x: x.scatter_(0, at, x)),
        refused(lambda x: x.scatter_add_(0, at, x[:2])),
        refused(lambda x: x.put_(at, x[1:3])),
        refused(lambda x: x.__setitem__(at, x[1:3])),
        refused(lambda x: x.__setitem__(x > 2, x[:3])),
        refused(lambda x: x.__setitem__(x > 2, x[0])),
        refused(lambda x: x.expand(2, 6).index_add_(0, at, m.ones(2, 6))),
    ]


def resizing_counts_as_a_write(m: Any) -> Any:
    x = m.ones(4)
    x.resize_(2, 2)
    mantissa, exponent = parts = m.frexp(m.tensor([6.0, 0.3]))
    whole = x.contiguous(memory_format=m.preserve_format) is x
    leaf = m.ones(2, 3, requires_grad=True)
    view = leaf[:]
    turned = [error_of(lambda f=f: f()) for f in (view.t_, lambda: view.transpose_(0, 1), lambda: view.unsqueeze_(0))]
    return [x._version, mantissa, exponent, parts.mantissa is mantissa, parts.exponent is exponent, whole, turned]


def views_made_under_inference_mode(m: Any) -> Any:
    x = m.ones(3)
    with m.inference_mode():
        view, other = x.view(3), m.ones(2)
        within = other[:1]
    view.add_(1)
    flags = [t.is_inference() for t in (view, other, within, x.detach())]
    return [flags, x, x._version, error_of(lambda: within.add_(1))]


def functions_that_write_their_primals(m: Any) -> Any:
    x, tangent = m.arange(3.0), m.ones(3)

    def write(t: Any) -> Any:
        t[0] = 3.0
        return t.mul_(2).sin()

    return [*m.func.jvp(write, (x,), (tangent,)), x]


def transforms_without_gradients(m: Any) -> Any:
    layer = m.nn.Linear(2, 2)
    point, direction = layer.weight, m.ones(2, 2)
    f = m.tanh

    def pulled() -> Any:
        return m.func.vjp(f, point)[1](direction)[0]

    def derived() -> list[Any]:
        forward = m.func.jvp(f, (point,), (direction,))
        once, both = m.func.grad(lambda w: f(w).sum())(point), m.func.linearize(f, point)[1](direction)
        return [*forward, once, m.func.jacrev(f)(point), m.func.jacfwd(f)(point), pulled(), both]

    with m.no_grad():
        without = [t.requires_grad for t in derived()]
        _, later = m.func.vjp(m.sin, point)  # of tanh, whose result is saved, PyTorch has no history here
    inner = m.func.grad(lambda w: f(w).sum() + m.no_grad()(m.func.grad(lambda v: (v**3).sum()))(w).sum())
    inner_value = inner(m.ones(2, 2))
    return [without, [t.requires_grad for t in derived()], later(direction)[0].requires_grad, inner_value]


def draws_under_vmap(m: Any) -> Any:
    def draw(x: Any) -> Any:
        return x + m.rand(4)

    x = m.zeros(3)
    distinct = [m.vmap(draw, randomness=kind)(x).unique(dim=0).shape[0] for kind in ("same", "different")]
    return [*distinct, error_of(lambda: m.vmap(draw)(x))]


def backward_twice_where_nothing_is_kept(m: Any) -> Any:
    x = m.ones(2, 2, requires_grad=True)
    for y in (x + 2, 2 - x, -x, x.mean(), x.cumsum(0), x.add(x, alpha=3), m.cat([x, x]), x.t()[1:]):
        y.sum().backward()
        y.sum().backward()
    return x.grad


def gradients_beside_infinity(m: Any) -> Any:
    grads = []
    for values in ([1.0, math.inf], [-math.inf, 2.0], [math.nan, 1.0]):
        x = m.tensor([values, [0.5, 1.5]], requires_grad=True)
        x.logsumexp(1).sum().backward()
        grads.append(x.grad)
    return grads


def derivatives_that_are_strict(m: Any) -> Any:
    f = m.autograd.functional
    x, eye, cube = m.tensor([1.0, 2.0]), m.eye(2), lambda a: (a**3).sum()
    functions = [lambda a: a.exp(), lambda a: a * 2, lambda a: m.ones(2), lambda a: a.sum(), cube]
    kept: list[Any] = []
    made = [
        partial(f.jacobian, inputs=x),
        partial(f.hessian, inputs=x),
        partial(f.jacobian, inputs=x, create_graph=True),
    ]
    made += [partial(take, inputs=x, v=v) for take in (f.jvp, f.vhp, f.hvp) for v in (x, None)]
    made += [partial(f.vjp, inputs=x, v=v) for v in (x, m.tensor(1.0), None, eye)]
    for function, strict, call in product(functions, (False, True), made):
        kept.append(detached(error_of(partial(call, function, strict=strict))))
    kept += [error_of(partial(f.jacobian, cube, wrong)) for wrong in ([x], 3)] + [
        error_of(lambda: f.vjp(lambda a: 3, x))
    ]
    return [*kept, error_of(lambda: f.jacobian(cube, x, strict=True, vectorize=True))]


PROGRAMS = [
    writes_are_counted_once,
    forms_that_overlap,
    resizing_counts_as_a_write,
    views_made_under_inference_mode,
    functions_that_write_their_primals,
    transforms_without_gradients,
    draws_under_vmap,
    backward_twice_where_nothing_is_kept,
    gradients_beside_infinity,
    derivatives_that_are_strict,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)


def closed_generators(m: Any) -> list[bool]:
    """A generator that is closed ends under the mode that decorates it."""
    seen = []

    def counting() -> Any:
        try:
            while True:
                yield 1
        finally:
            seen.append(m.is_grad_enabled())

    for mode, around in ((m.no_grad, m.enable_grad), (m.enable_grad, m.no_grad)):
        with around():
            generator = mode()(counting)()
            next(generator)
            generator.close()
            seen.append(m.is_grad_enabled())
    return seen


def results_returned_twice(m: Any) -> list[Any]:
    class Twice(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx: Any, one: Any, other: Any) -> Any:
            return one * 2 + other * 2

    x = m.ones(2, requires_grad=True)
    a, b = Twice.apply(x)
    (a + b * 3).sum().backward()
    return [a is b, x.grad]


def marked_but_no_input(m: Any) -> list[Any]:
    class Marks(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        y = Marks.apply(m.ones(2, requires_grad=True))
    return [len(said), y.requires_grad]


def sparse_sums(m: Any) -> Any:
    """The order of the elements of a sum of sparse gradients."""

    class Gives(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, place: int) -> Any:
            ctx.place = place
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return m.sparse_coo_tensor([[ctx.place]], [1.0], (4,), check_invariants=True), None

    x = m.ones(4, requires_grad=True)
    (Gives.apply(x, 1) + Gives.apply(x, 3) + Gives.apply(x, 2)).sum().backward()
    return x.grad._indices()


@pytest.mark.parametrize("program", [closed_generators, results_returned_twice, marked_but_no_input, sparse_sums])
def test_corners_of_functions(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)


def data_that_is_replaced(m: Any) -> Any:
    """The count of writes is the tensor's, not that of the memory it gets."""
    x = m.ones(1, 2)
    x.add_(1).add_(1)
    counts = [x._version]
    x.data = m.zeros(2, 3)
    counts.append(x._version)
    x.add_(1)
    w = m.ones(2, requires_grad=True)
    y = w.exp()
    z = y.sin()
    y.data = y.data.add(1)
    z.sum().backward()
    return [*counts, x._version, w.grad]


def parts_apart(m: Any) -> Any:
    """What unsafe_split and its kin give: results that share memory, and count their writes each for itself."""
    found = []
    for cut in (
        lambda t: t.unsafe_split(1),
        lambda t: t.unsafe_split_with_sizes((1, 2)),
        lambda t: t.unsafe_chunk(2, 1),
    ):
        a = m.arange(9.0).reshape(3, 3).requires_grad_()
        b = a * 2
        parts = cut(b)
        parts[0].mul_(parts[1] if parts[0].shape == parts[1].shape else 3)
        parts[0].sum().backward()
        found += [a.grad, b.detach(), [p._is_view() for p in parts], m.ones(4, 4).unsafe_chunk(2)[1].requires_grad]
    return found


def views_of_what_inference_mode_made(m: Any) -> Any:
    with m.inference_mode():
        made = m.ones(1, 2, 3, requires_grad=True)
        within = made[0]
    views = [made.view(-1), made[0], made.transpose(0, 1), made.expand(2, 2, 3), within]
    told = [[v.requires_grad, v.is_leaf, v._is_view(), v.is_inference(), v.grad_fn is None] for v in views]
    return [*told, (made.detach() * 2).requires_grad]


def sparse_gradients_of_shared_elements(m: Any) -> Any:
    """A gradient whose elements share memory is copied before it becomes .grad."""

    class Gives(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            places, values = m.tensor([[0, 2, 1]]), m.ones(1, 2).expand(3, 2)
            return m.sparse_coo_tensor(places, values, (4, 2), check_invariants=True)

    x = m.ones(4, 2, requires_grad=True)
    Gives.apply(x).sum().backward()
    x.grad._values()[0] += 1
    once = x.grad.to_dense().clone()
    Gives.apply(x).sum().backward()
    return [once, x.grad.to_dense()]


@pytest.mark.parametrize(
    "program",
    [data_that_is_replaced, parts_apart, views_of_what_inference_mode_made, sparse_gradients_of_shared_elements],
)
def test_counts_of_writes(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
