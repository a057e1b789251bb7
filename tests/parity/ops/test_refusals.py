"""Calls that PyTorch refuses, refused here with its class of error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch

# Of real numbers alone.
REAL = [
    *(f"special.{name}" for name in ("entr", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "logit", "digamma")),
    *(f"special.modified_bessel_{name}" for name in ("i0", "i1", "k0", "k1")),
    *(f"special.scaled_modified_bessel_{name}" for name in ("k0", "k1")),
    *("special.airy_ai", "special.i0e", "special.ndtri", "deg2rad", "rad2deg"),
    *(f"nn.functional.{name}" for name in ("elu", "selu", "celu", "mish", "gelu", "glu", "leaky_relu", "softplus")),
]
REAL_PAIRS = [
    *(f"special.{name}" for name in ("xlogy", "xlog1py", "zeta", "hermite_polynomial_h", "chebyshev_polynomial_t")),
    *("special.legendre_polynomial_p", "special.laguerre_polynomial_l", "heaviside"),
    *("nn.functional.prelu", "nn.functional.mse_loss", "nn.functional.kl_div"),
]


def named(package: Any, path: str) -> Any:
    for part in path.split("."):
        package = getattr(package, part)
    return package


def refused(call: Callable[[Any], Any]) -> None:
    """Both packages raise; ours what torch raises, or a class of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((RuntimeError, TypeError)) as theirs:
            call(torch)
        with pytest.raises(theirs.type):
            call(ts)


@pytest.mark.parametrize("path", REAL)
def test_complex_operand(path: str) -> None:
    refused(lambda package: named(package, path)(package.tensor([1 + 1j, 2 - 1j])))


@pytest.mark.parametrize("path", REAL_PAIRS)
def test_complex_operands(path: str) -> None:
    refused(lambda package: named(package, path)(*(package.tensor([1 + 1j, 2 - 1j]) for _ in range(2))))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_polygamma_of_complex(order: int) -> None:
    refused(lambda package: package.polygamma(order, package.tensor([1 + 1j])))
    refused(lambda package: package.mvlgamma(package.tensor([3 + 1j]), order + 1))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_subtraction_of_a_truth_value(dtype: str) -> None:
    def tensor(package: Any) -> Any:
        return package.ones(2, dtype=getattr(package, dtype))

    refused(lambda package: tensor(package) - True)
    refused(lambda package: True - tensor(package))
    refused(lambda package: package.sub(tensor(package), True))
    refused(lambda package: tensor(package).sub_(True))
    refused(lambda package: package.rsub(tensor(package), True))


@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1)])
def test_masked_fill_with_many_values(shape: tuple[int, ...]) -> None:
    def operands(package: Any) -> Any:
        return package.zeros(2), package.tensor([True, False]), package.ones(shape)

    refused(lambda package: package.masked_fill(*operands(package)))
    refused(lambda package: (lambda x, mask, value: x.masked_fill_(mask, value))(*operands(package)))


def test_masked_fill_of_batches() -> None:
    """With a value for each entry of a batch, which is one value within it."""
    x, mask, values = ts.zeros(3, 2), ts.tensor([True, False]), ts.tensor([1.0, 2.0, 3.0])
    wanted = [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
    assert ts.func.vmap(lambda a, v: a.masked_fill(mask, v))(x, values).tolist() == wanted

    def written(a: Any, v: Any) -> Any:
        return a.clone().masked_fill_(mask, v)

    assert ts.func.vmap(written)(x, values).tolist() == wanted


def test_scatter_reduce_mean_of_complex(device: Any) -> None:
    index, source = [0, 0, 1], [1 + 1j, 2.0, 3.0]
    for include_self in (True, False):
        x, y = ts.ones(3, dtype=ts.complex64, device=device), torch.ones(3, dtype=torch.complex64)
        ours = x.scatter_reduce(0, ts.tensor(index, device=device), ts.tensor(source, device=device), "mean",
                                include_self=include_self)  # fmt: skip
        theirs = y.scatter_reduce(0, torch.tensor(index), torch.tensor(source), "mean", include_self=include_self)
        torch.testing.assert_close(torch.tensor(ours.tolist()), theirs)
