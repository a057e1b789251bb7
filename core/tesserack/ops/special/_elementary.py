"""Small relatives of logarithms and of the gamma function."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.registry import operators
from tesserack.ops.results import deliver, real_only

__all__ = ["multigammaln", "mvlgamma", "xlog1py"]


def xlog1py(input: Any, other: Any, *, out: Tensor | None = None) -> Tensor:
    """``input * log1p(other)``, with 0 where ``input`` is 0 and ``other`` no NaN; one of the two may be a number.

    >>> import tesserack as ts
    >>> ts.special.xlog1py(ts.tensor([0.0, 2.0]), -1)
    tensor([0., -inf])
    """
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError(
            f"xlog1py: expected a tensor among the arguments, got {type(input).__name__} and {type(other).__name__}"
        )
    real_only("xlog1py", input, other)
    return operators()["special_xlog1py"](input, other, out=out)  # type: ignore[no-any-return]


def multigammaln(a: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``, defined for ``a`` > (p - 1) / 2.

    Other elements get the sum of logarithms that the function is made of. RuntimeError for p < 1.

    >>> import tesserack as ts
    >>> ts.special.multigammaln(ts.tensor([2.0]), 1)
    tensor([0.])
    """
    if p < 1:
        raise RuntimeError(f"multigammaln: p has to be greater than or equal to 1, got {p}")
    real_only("multigammaln", a)
    x = a if a.is_floating_point() else a.to(ts.get_default_dtype())
    steps = ts.arange(p, dtype=x.dtype, device=x.device) / 2
    result = ts.lgamma(x.unsqueeze(-1) - steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
    return deliver("multigammaln", result, out)


mvlgamma = multigammaln
