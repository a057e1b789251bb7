"""Types of the results of operators that return several, by name: ``tesserack.return_types.max``.

They are tuples with names, made when asked for. An operator that returns none has none here.

>>> import tesserack as ts
>>> largest = ts.max(ts.tensor([[1.0, 3.0], [4.0, 2.0]]), dim=1)
>>> type(largest) is ts.return_types.max
True
>>> largest.indices
tensor([1, 0])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tesserack import _native

if TYPE_CHECKING:
    from tesserack import Tensor

    class frexp(tuple[Tensor, Tensor]):
        mantissa: Tensor
        exponent: Tensor

    class histogram(tuple[Tensor, Tensor]):
        hist: Tensor
        bin_edges: Tensor

    class histogramdd(tuple[Tensor, tuple[Tensor, ...]]):
        hist: Tensor
        bin_edges: tuple[Tensor, ...]


# Of functions written in Python.
_FIELDS = {
    "frexp": ("mantissa", "exponent"),
    "histogram": ("hist", "bin_edges"),
    "histogramdd": ("hist", "bin_edges"),
}


def __getattr__(name: str) -> Any:
    # Under PyTorch's name for results that were written to out=, too.
    operator = name.removesuffix("_out")
    if name.startswith("__"):
        made = None
    elif operator in _FIELDS:
        made = _native._named_results(operator, _FIELDS[operator])
    else:
        made = _native._named_results(operator)
    if made is None:
        raise AttributeError(f"module 'tesserack.return_types' has no attribute {name!r}: no operator of that name "
                             "returns several results with names")  # fmt: skip
    globals()[name] = made
    return made
