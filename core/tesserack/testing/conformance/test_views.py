"""Views are the core's: they share memory, need no kernel, and kernels must read and write through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.exactly import expect, real, rounded

VIEWS: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:4],
    "step": lambda x: x[:, ::2],
    "flip": lambda x: x[::-1, ::-2],
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x[:, :1].expand(4, 3),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "reshape": lambda x: x.reshape(2, 2, 5),
    "view": lambda x: x.view(5, 4),
    "flatten": lambda x: x.flatten(),
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 3, 1),
    "as_strided": lambda x: x.as_strided((2, 3), (7, 2), 1),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "narrow": lambda x: x.narrow(0, 1, 2),
}


def numbers(card: Card) -> ts.Tensor:
    """0 to 19 in four rows, made on the host."""
    return ts.arange(20.0).reshape(4, 5).to(card.device)


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str, card: Card) -> None:
    """Reads like the same view on the cpu, shares memory both ways, and runs no kernel elsewhere."""
    base, twin = numbers(card), ts.arange(20.0).reshape(4, 5)
    view, expected = VIEWS[name](base), VIEWS[name](twin)
    assert view.device.type == card.name
    assert view._is_view()
    assert (tuple(view.shape), view.stride()) == (tuple(expected.shape), expected.stride())
    assert view._storage_ptr() == base._storage_ptr()
    assert view.tolist() == expected.tolist()
    assert (view * 2).tolist() == (expected * 2).tolist()
    base.add_(100)
    twin.add_(100)
    assert view.tolist() == expected.tolist(), "a write to the base does not show in the view"
    if name not in ("expand", "unfold"):
        view.mul_(-1)
        expected.mul_(-1)
        assert base.tolist() == twin.tolist(), "a write to the view does not show in the base"
    assert "copy_cast" not in ts.backends.fallbacks(), "the device's copies of views ran on the cpu"


@pytest.mark.parametrize("seed", range(12))
def test_views_of_views(seed: int, card: Card) -> None:
    """Random chains of views, read, computed with and written, against NumPy."""
    random = np.random.default_rng(seed)
    for _ in range(10):
        base = np.arange(4 * 5 * 6, dtype=np.float64).reshape(4, 5, 6)
        tensor = real(base, card)
        array, view, steps = base, tensor, []
        for _ in range(int(random.integers(1, 5))):
            text, change = random_view(random, array)
            array, view = change(array), change(view)
            steps.append(text)
        what = " then ".join(steps)
        expect(view, array, f"a view of {card.real}", what, card)
        expect(view + view, array + array, f"pointwise, add of {card.real}", what, card)
        total = float(rounded(array.sum(), card.real))
        assert view.sum().item() == pytest.approx(total, rel=1e-6), f"sum over {what}"
        array += 1000
        view += 1000
        expect(tensor, base, f"pointwise, add of {card.real}", f"written through {what}", card)


def random_view(random: Any, array: Any) -> tuple[str, Callable[[Any], Any]]:
    """A view that NumPy and Tesserack make alike."""
    ndim = array.ndim
    dim = int(random.integers(ndim)) if ndim else 0
    size = array.shape[dim] if ndim else 0
    before = (slice(None),) * dim
    match int(random.integers(6)) if ndim else 0:
        case 0:
            return "unsqueeze", lambda x: x[None]
        case 1 if ndim > 1:
            order = tuple(int(i) for i in random.permutation(ndim))
            return f"permute{order}", lambda x: x.transpose(order) if isinstance(x, np.ndarray) else x.permute(*order)
        case 2 if size > 1:
            step = int(random.choice([-2, -1, 2]))
            return f"[::{step}] of dim {dim}", lambda x: x[(*before, slice(None, None, step))]
        case 3 if size > 1:
            begin = int(random.integers(size - 1))
            return f"[{begin}:] of dim {dim}", lambda x: x[(*before, slice(begin, None))]
        case 4 if ndim > 1 and size:
            at = int(random.integers(size))
            return f"[{at}] of dim {dim}", lambda x: x[(*before, at)]
        case _:
            return "[...]", lambda x: x[...]


@pytest.mark.parametrize("ndim", (1, 4, 8, 12))
def test_many_dimensions(ndim: int, card: Card) -> None:
    """Up to as many dimensions as the device declares; beyond, a clear refusal or the right result."""
    shape = [2 if d < 6 else 1 for d in range(ndim)]
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    x = real(array, card).permute(*reversed(range(ndim)))
    limit = int(card.capabilities["max_ndim"])
    try:
        found = x * 2 + x[::-1]
    except RuntimeError as error:
        assert limit and ndim > limit, f"{ndim} dimensions refused, {limit or 'any number of'} declared: {error}"
        assert str(ndim) in str(error), f"the refusal does not say how many dimensions there were: {error}"
        return
    expect(found, array.T * 2 + array.T[::-1], f"pointwise of {card.real}", f"{ndim} dimensions", card)
