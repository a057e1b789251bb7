"""What a sample call is made of: tensors described by NumPy arrays, so that any library can build its own from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Input", "Maker", "Sample", "SampleTable", "sample"]


@dataclass(frozen=True, eq=False)
class Input:
    """A tensor argument. ``varies``: it takes the dtype under test; ``grad``: it is differentiated where it may be."""

    array: NDArray[Any]
    varies: bool = True
    grad: bool = True


@dataclass(frozen=True, eq=False)
class Sample:
    """One call: arguments with an ``Input`` for each tensor. ``grad``: smooth here, so its gradient can be checked.
    ``only``: the dtypes it is for, when they are fewer than the operator takes."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: bool = True
    only: str = "all"

    def map(self, fn: Callable[[Input], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with ``fn`` applied to every tensor, inside lists too."""
        return tuple(_map(v, fn) for v in self.args), {k: _map(v, fn) for k, v in self.kwargs.items()}

    def inputs(self) -> Iterator[Input]:
        """Every tensor of the call, in order."""
        found: list[Input] = []
        self.map(found.append)
        return iter(found)

    def __repr__(self) -> str:
        args, kwargs = self.map(lambda i: f"{i.array.dtype}{list(i.array.shape)}")
        return ", ".join([*(str(a) for a in args), *(f"{k}={v}" for k, v in kwargs.items())])


def _map(value: Any, fn: Callable[[Input], Any]) -> Any:
    if isinstance(value, Input):
        return fn(value)
    return type(value)(_map(v, fn) for v in value) if isinstance(value, list | tuple) else value


class Maker:
    """Makes sample tensors: distinct values in a fixed scrambled order, none near another, zero or an integer.

    >>> from tesserack.testing.samples import Maker
    >>> sorted(Maker()(2, 2, lo=0, hi=4).array.reshape(-1).round(2).tolist())
    [0.57, 1.57, 2.57, 3.57]
    """

    def __init__(self) -> None:
        import numpy

        self.np = numpy
        self.random = numpy.random.default_rng(7)

    def __call__(self, *shape: int, lo: float = -2.3, hi: float = 2.4, grad: bool = True) -> Input:
        count = self.np.prod(shape, dtype=int)
        steps = (self.np.arange(count) + 0.57) / max(count, 1)
        return Input(self.random.permutation(lo + (hi - lo) * steps).reshape(shape), grad=grad)

    def positive(self, *shape: int, grad: bool = True) -> Input:
        return self(*shape, lo=0.2, hi=3.4, grad=grad)

    def apart(self, *shape: int, grad: bool = True) -> Input:
        """Values that stay distinct when they are rounded down to integers."""
        count = int(self.np.prod(shape, dtype=int))
        return self(*shape, lo=-(count // 2), hi=count - count // 2, grad=grad)

    def const(self, *shape: int, lo: float = 0.2, hi: float = 3.4) -> Input:
        return self(*shape, lo=lo, hi=hi, grad=False)

    def index(self, high: int, *shape: int) -> Input:
        """int64 positions in [0, high), repeating when there are more than that."""
        count = int(self.np.prod(shape, dtype=int))
        return Input(self.random.permutation(self.np.arange(count) % high).reshape(shape), varies=False)

    def mask(self, *shape: int) -> Input:
        count = int(self.np.prod(shape, dtype=int))
        return Input(self.random.permutation(self.np.arange(count) % 2 == 0).reshape(shape), varies=False)

    def given(self, values: Any, grad: bool = True) -> Input:
        """The values themselves: floats take the dtype under test, integers and truth values are kept."""
        array = self.np.asarray(values)
        return Input(array, varies=array.dtype.kind == "f", grad=grad)


SampleTable = dict[str, Callable[[Maker], list[Sample]]]


def sample(*args: Any, grad: bool = True, only: str = "all", **kwargs: Any) -> Sample:
    """A ``Sample`` of these arguments."""
    return Sample(args, kwargs, grad, only)
