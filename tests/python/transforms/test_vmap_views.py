"""Within vmap a view of an entry is a view of the whole, whichever operator makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts

VIEWS: dict[str, Callable[[Any], Any]] = {
    "diagonal": lambda x: x.diagonal(0, -1, 0),
    "movedim": lambda x: x.movedim(0, -1),
    "narrow": lambda x: ts.narrow(x, 1, 1, 2),
    "empty": lambda x: x.narrow(0, 0, 0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "tensor_split": lambda x: x.tensor_split(3)[1],
    "chunk": lambda x: ts.chunk(x, 2, dim=1)[1],
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze a dim": lambda x: ts.squeeze(x[:1], dim=0),
    "expand_as": lambda x: x[:1].expand_as(x),
    "view_as": lambda x: x.view_as(x.reshape(-1)),
    "real": ts.real,
    "real, attribute": lambda x: x.real,
    "view_as_complex": lambda x: ts.view_as_complex(x.view(3, 2, 2)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_lie_in_the_argument(view: Callable[[Any], Any]) -> None:
    x = ts.arange(60.0, dtype=ts.float64).reshape(5, 3, 4)
    found = ts.vmap(view)(x)
    assert found.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and found._is_view()
    assert ts.equal(found, ts.stack([view(row) for row in x]))
    turned = ts.arange(120.0, dtype=ts.float64).reshape(2, 5, 3, 4)
    nested = ts.vmap(ts.vmap(view), in_dims=1)(turned)
    assert nested.untyped_storage().data_ptr() == turned.untyped_storage().data_ptr()
    assert ts.equal(nested, ts.stack([ts.stack([view(row) for row in rows]) for rows in turned.movedim(1, 0)]))


def test_gradients_of_views() -> None:
    x = ts.randn(4, 3, 3, dtype=ts.float64, requires_grad=True)
    assert ts.autograd.gradcheck(ts.vmap(lambda y: y.movedim(0, 1).diagonal().sin() * y.narrow(0, 1, 1)[0]), (x,))


def test_what_is_written_to_a_view_is_in_the_argument() -> None:
    x = ts.zeros(2, 3, 3)
    ts.vmap(lambda y: y.diagonal().add_(1))(x)
    assert ts.equal(x, ts.eye(3).expand(2, 3, 3))


def test_an_entry_that_cannot_be_seen_so_is_refused() -> None:
    with pytest.raises(RuntimeError, match="view"):
        ts.vmap(lambda y: y.view(10), in_dims=1)(ts.rand(2, 7, 5))


def test_a_method_and_a_function_of_one_name() -> None:
    """``x.unfold`` makes a view, ``nn.functional.unfold`` columns, with whichever arguments."""
    x = ts.arange(64.0).reshape(1, 1, 8, 8)
    assert x.unfold(2, 2, 1).shape == (1, 1, 7, 8, 2)
    assert ts.nn.functional.unfold(x, 2, 1, 1).shape == (1, 4, 81)
    assert ts.vmap(lambda e: ts.nn.functional.unfold(e, 2, 1, 1))(x[None]).shape == (1, 1, 4, 81)
