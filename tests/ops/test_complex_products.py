"""Products and running products of complex numbers, whichever dims they go along and however the numbers lie."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts

SHAPES = [(), (1,), (5,), (200,), (7, 33), (40, 3, 5), (2, 70, 17), (3, 600), (600, 3)]


def on_circle(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers whose products neither vanish nor grow."""
    angles = np.random.default_rng(len(shape)).uniform(-3, 3, shape)
    return np.asarray(np.exp(1j * angles), dtype=dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape: tuple[int, ...], dtype: str, device: ts.device) -> None:
    numbers = on_circle(shape, dtype)
    close = {"rtol": 0, "atol": 2e-4 if dtype == "complex64" else 1e-12}
    x = ts.tensor(numbers, device=device)
    np.testing.assert_allclose(x.prod().cpu().numpy(), numbers.prod(), **close)
    for dim in range(len(shape)):
        np.testing.assert_allclose(x.prod(dim).cpu().numpy(), numbers.prod(dim), **close)
        np.testing.assert_allclose(x.cumprod(dim).cpu().numpy(), numbers.cumprod(dim), **close)
        turned = x.movedim(dim, 0)
        np.testing.assert_allclose(turned.prod(0).cpu().numpy(), numbers.prod(dim), **close)
        expected = np.moveaxis(numbers.cumprod(dim), dim, 0)
        np.testing.assert_allclose(turned.cumprod(0).cpu().numpy(), expected, **close)


def test_a_factor_that_is_not_there_takes_no_part(device: ts.device) -> None:
    """1 times an infinity is no number, so a short row begins with its own first factor."""
    x = ts.tensor([complex("inf"), 2.0], device=device)
    assert x[:1].prod().cpu().item() == complex("inf")
    assert x[:1].cumprod(0).cpu().tolist() == [complex("inf")]
