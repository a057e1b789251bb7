"""Helpers of distributions: broadcasting of parameters, probabilities and logits, lazily computed attributes."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060

T = TypeVar("T")
Owner = TypeVar("Owner")


def is_number(value: object) -> bool:
    """Whether ``value`` is a plain number, which distributions turn into a tensor."""
    return isinstance(value, (int, float, complex))


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """The values as tensors of one common shape.

    Numbers become tensors with the dtype and device of the first tensor among the values, or the default ones.
    ``ValueError`` if a value is neither a number nor a tensor.

    >>> from tesserack.distributions.utils import broadcast_all
    >>> [t.shape for t in broadcast_all(1.0, ts.zeros(3))]
    [tesserack.Size([3]), tesserack.Size([3])]
    """
    for value in values:
        if not (is_number(value) or isinstance(value, Tensor)):
            raise ValueError(f"broadcast_all: expected numbers or tensors, got {type(value).__name__}")
    first = next((value for value in values if isinstance(value, Tensor)), None)
    dtype, device = (ts.get_default_dtype(), None) if first is None else (first.dtype, first.device)
    tensors = [v if isinstance(v, Tensor) else ts.tensor(v, dtype=dtype, device=device) for v in values]
    return tuple(ts.broadcast_tensors(*tensors))


def standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Standard normal numbers that take part in no gradient."""
    return ts.randn(shape, dtype=dtype, device=device)


def kept_within(value: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """Draws that rounding put on an end that their range excludes, moved to the nearest number within.

    The gradient is that of the draws.

    >>> from tesserack.distributions.utils import kept_within
    >>> kept_within(ts.tensor([0.0, 0.5]), low=0.25).tolist()
    [0.25, 0.5]
    """
    plain = value.detach()
    moved = plain.clamp(low, high)
    return value + ts.where(moved == plain, 0, moved - plain)


def sum_rightmost(value: Any, dims: int) -> Any:
    """The sum over the last ``dims`` dimensions of a tensor; a number as it is."""
    if dims == 0 or not isinstance(value, Tensor):
        return value
    return value.sum(dim=tuple(range(-dims, 0)))


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities moved into [eps, 1 - eps] of their dtype, so that their logarithms are finite."""
    eps = ts.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds (``is_binary``), or of unnormalised log-probabilities along the last dim."""
    return ts.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of probabilities (``is_binary``), or their logarithms; probabilities are kept off 0 and 1."""
    clamped = clamp_probs(probs)
    return ts.log(clamped) - ts.log1p(-clamped) if is_binary else ts.log(clamped)


class lazy_property(Generic[Owner, T]):
    """A property that is computed on first use and then an ordinary attribute of the instance."""

    def __init__(self, wrapped: Callable[[Owner], T]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    @overload
    def __get__(self, instance: None, owner: Any = None) -> lazy_property[Owner, T]: ...

    @overload
    def __get__(self, instance: Owner, owner: Any = None) -> T: ...

    def __get__(self, instance: Owner | None, owner: Any = None) -> Any:
        if instance is None:
            return self
        with ts.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles (up to diagonal ``diag``) of matrices (..., n, n), flattened row by row.

    ``ValueError`` if ``diag`` is not in [-n, n).
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: expected diag in [{-n}, {n}), got {diag}")
    rows, columns = ts.tril_indices(n, n, offset=diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of `tril_matrix_to_vec`: (..., D) to (..., n, n) with zeros elsewhere.

    ``ValueError`` if no such triangle has D elements.
    """
    # (n + diag)(n + diag + 1) / 2 elements up to diagonal diag, less what lies outside for diag > 0.
    count = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    size = round(n)
    eps = ts.finfo(vec.dtype).eps
    if abs(n - size) > eps or size <= 0:
        raise ValueError(f"vec_to_tril_matrix: {count} elements do not make a lower triangle up to diagonal {diag}")
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    rows, columns = ts.tril_indices(size, size, offset=diag, device=vec.device)
    mat[..., rows, columns] = vec
    return mat
