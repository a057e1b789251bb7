"""Which views may be written to in place, changed in outline, and looked at afterwards, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "unbind": lambda m, x: x.unbind()[0],
    "view of unbind": lambda m, x: x.unbind()[0].view(3, 1),
    "chunk": lambda m, x: x.chunk(2)[1],
    "row of split": lambda m, x: x.split(1)[1][0],
    "split sizes": lambda m, x: x.split([1, 1])[1].t(),
    "tensor_split": lambda m, x: x.tensor_split(2)[1],
    "hsplit": lambda m, x: x.hsplit(3)[1],
    "view": lambda m, x: x.view(3, 2),
    "view of view": lambda m, x: x.view(3, 2)[1:],
    "by a function": lambda m, x: through(m).apply(x),
    "view of that": lambda m, x: through(m).apply(x)[0],
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda v: v.add_(1),
    "t_": lambda v: v.t_(),
    "as_strided_": lambda v: v.as_strided_((1, 0), (2, 2)),
    "squeeze_": lambda v: v.squeeze_(0),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "transpose_": lambda v: v.transpose_(0, 0),
}


def through(m: Any) -> Any:
    """A custom function whose result is a view of its argument."""

    class Through(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    return Through


def said(call: Callable[[], Any]) -> str:
    try:
        call()
    except RuntimeError:
        return "refused"
    return "done"


def look(v: Any) -> None:
    w = v.reshape(-1)
    if w.requires_grad:
        w.sum().backward()


def steps(m: Any, view: str, write: str, kind: tuple[bool, bool, bool]) -> list[Any]:
    """Whether the view may be written to, then written to again, then looked at."""
    made, written, wanted = kind
    x = m.ones(2, 3, requires_grad=wanted).clone()
    with m.set_grad_enabled(made):
        v = VIEWS[view](m, x)

    def change() -> None:
        with m.set_grad_enabled(written):
            WRITES[write](v)

    return [said(change), said(lambda: v.add_(1)), said(lambda: look(v)), v.requires_grad, v._is_view()]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_writes_to_views(compare_program: Callable[..., None], view: str, write: str) -> None:
    kinds = [(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)]

    def program(m: Any) -> list[Any]:
        return [steps(m, view, write, kind) for kind in kinds]

    compare_program(program)


def test_a_view_that_lost_its_node_requires_gradients_all_the_same(compare_program: Callable[..., None]) -> None:
    """Only who asks for the node, or takes part in what needs it, is refused."""

    def program(m: Any) -> list[Any]:
        base = m.ones(1, 4, requires_grad=True) * 3
        view = base.chunk(2)[-1]
        base.fill_(0)
        asked = [
            said(call) for call in (view.requires_grad_, lambda: view.requires_grad, lambda: view.grad_fn, view.sum)
        ]
        return [*asked, view.requires_grad]

    compare_program(program)
