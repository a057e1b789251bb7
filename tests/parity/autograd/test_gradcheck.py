"""What gradcheck finds, beside PyTorch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")  # PyTorch's own, of its forward mode


def point(m: Any) -> Any:
    return m.ones(1, dtype=m.float64, requires_grad=True)


def outcome(m: Any, f: Callable[..., Any], x: Any, **options: Any) -> str:
    """True, or the name of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(m.autograd.gradcheck(f, x, **options))
        except Exception as error:
            return type(error).__name__


def unsteady(m: Any) -> Any:
    class Unsteady(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * (1 + m.rand_like(grad) * 1e-6)

    return Unsteady.apply


def needs_gradients(x: Any) -> Any:
    def hook(grad: Any) -> None:
        if grad is None:
            raise RuntimeError("no gradient")

    y = x.clone()
    y.register_hook(hook)
    return y


CASES: dict[str, Callable[[Any, bool], str]] = {
    "two runs differ": lambda m, fast: outcome(m, unsteady(m), point(m), fast_mode=fast),
    "within the tolerance": lambda m, fast: outcome(m, unsteady(m), point(m), fast_mode=fast, nondet_tol=1e-4),
    "shape by value": lambda m, fast: outcome(m, lambda x: m.cat([x, x]) if (x >= 1).all() else x, point(m),
                                              fast_mode=fast),
    "dtype by value": lambda m, fast: outcome(m, lambda x: x.float() if (x >= 1).all() else x, point(m),
                                              fast_mode=fast),
    "missing gradients": lambda m, fast: outcome(m, needs_gradients, point(m), fast_mode=fast),
    "not asked for": lambda m, fast: outcome(m, needs_gradients, point(m), fast_mode=fast, check_undefined_grad=False),
    "dtypes, of what saves its input": lambda m, fast: outcome(m, lambda x: x.cosh(), point(m), fast_mode=fast,
                                                              check_grad_dtypes=True),
    "two outputs": lambda m, fast: outcome(m, lambda x: (x.sin(), x * 2), point(m), fast_mode=fast,
                                           check_forward_ad=True, check_batched_forward_grad=True),
}  # fmt: skip


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_it_finds(compare_program: Callable[..., None], name: str, fast: bool) -> None:
    compare_program(lambda m: CASES[name](m, fast))


def test_how_often_tangents_are_taken(compare_program: Callable[..., None]) -> None:
    """Once for every element of an input, and twice more for an input whose tangent is missing."""

    def program(m: Any) -> list[int]:
        calls = [0]

        class Both(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x.clone(), y.clone()

            @staticmethod
            def jvp(ctx: Any, x: Any, y: Any) -> Any:
                calls[0] += 1
                return x.clone(), y.clone()

        counts = []
        for undefined in (False, True):
            calls[0] = 0
            assert m.autograd.gradcheck(Both.apply, (point(m), point(m)), check_forward_ad=True,
                                        check_backward_ad=False, check_undefined_grad=undefined,
                                        check_batched_grad=False)  # fmt: skip
            counts.append(calls[0])
        return counts

    compare_program(program)


def test_forward_over_backward_of_two_inputs(compare_program: Callable[..., None]) -> None:
    """A gradient's outputs follow which inputs want one, whichever has a tangent."""

    def program(m: Any) -> bool:
        x, y = m.arange(1.0, 4.0, dtype=m.float64), m.arange(2.0, 5.0, dtype=m.float64)
        inputs = (x.requires_grad_(), y.requires_grad_())
        return bool(m.autograd.gradgradcheck(lambda a, b: a * b.sin(), inputs, check_fwd_over_rev=True))

    compare_program(program)
