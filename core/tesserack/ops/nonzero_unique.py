"""Selections whose PyTorch signatures return one tensor or several, as asked."""

from __future__ import annotations

from tesserack.ops.registry import operators

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from tesserack._native import Tensor

__all__ = ["nonzero", "nonzero_static", "unique", "unique_consecutive"]

_nonzero = operators()["nonzero"]
_nonzero_numpy = operators()["nonzero_numpy"]
_unique = operators()["_unique2"]
unique_dim = operators()["unique_dim"]
_unique_consecutive = operators()["_unique_consecutive"]


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Indices ``(n, ndim)`` of the elements that are not zero, in row-major order; with ``as_tuple`` one index per dim.

    Waits for the device. The dtype is int64.

    >>> import tesserack as ts
    >>> ts.nonzero(ts.tensor([0, 3, 5])).tolist()
    [[1], [2]]
    """
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero: expected either out= or as_tuple=True, got both")
        return tuple(_nonzero_numpy(input))
    return _nonzero(input) if out is None else _nonzero(input, out=out)  # type: ignore[no-any-return]


def _asked(results: tuple[Tensor, ...], inverse: bool, counts: bool) -> Tensor | tuple[Tensor, ...]:
    kept = tuple(t for t, wanted in zip(results, (True, inverse, counts), strict=True) if wanted)
    return kept[0] if len(kept) == 1 else kept


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements, or slices along ``dim``, in ascending order (whatever ``sorted`` says).

    ``return_inverse`` adds the position of each element among them, ``return_counts`` their counts; both int64.
    Every NaN counts as distinct. Waits for the device. Raises ``IndexError`` for a dim out of range.

    >>> import tesserack as ts
    >>> ts.unique(ts.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if dim is None:
        return _asked(_unique(input, sorted, return_inverse, return_counts), return_inverse, return_counts)
    return _asked(unique_dim(input, dim, sorted, return_inverse, return_counts), return_inverse, return_counts)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements, or of equal slices along ``dim``.

    ``return_inverse`` adds the run each element belongs to, ``return_counts`` the lengths of the runs; both int64.
    Waits for the device. Raises ``IndexError`` for a dim out of range.

    >>> import tesserack as ts
    >>> ts.unique_consecutive(ts.tensor([1, 1, 2, 1])).tolist()
    [1, 2, 1]
    """
    return _asked(_unique_consecutive(input, return_inverse, return_counts, dim), return_inverse, return_counts)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None) -> Tensor:
    """The places of the elements that are not zero, one a row, as many as ``size``: the first, or filled up.

    >>> import tesserack as ts
    >>> ts.nonzero_static(ts.tensor([0, 5, 6]), size=3).tolist()
    [[1], [2], [-1]]
    """
    from tesserack.ops.results import deliver

    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
    found = _nonzero(input)[:size]
    missing = size - found.shape[0]
    if missing:
        import tesserack as ts

        rest = found.new_full((missing, found.shape[1]), fill_value)
        found = ts.cat([found, rest])
    return deliver("nonzero_static", found, out)


def install(cls: type[Tensor]) -> None:
    """Hang the functions on the class as methods."""
    for method in (nonzero, unique, unique_consecutive):
        setattr(cls, method.__name__, method)
