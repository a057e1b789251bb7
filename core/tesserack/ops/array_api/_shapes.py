"""The standard's creation, conversion and shape functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is another, or of a kind such as "integral", or of one of a tuple of those.

    >>> import tesserack as ts
    >>> ts.array_api.isdtype(ts.float32, ("integral", "real floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return dtype is kind
    if kind not in _KINDS:
        raise ValueError(f"isdtype: expected a kind of {sorted(_KINDS)}, got {kind!r}")
    return str(dtype).rpartition(".")[2] in _KINDS[kind]


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """``x`` in another dtype; a copy even if it has it, unless told."""
    if x.is_complex() and not (dtype.is_complex or dtype is ts.bool):
        raise TypeError(f"astype: expected a complex dtype for complex numbers, got {dtype}; try real()")
    result = x.to(x.device if device is None else device, dtype)
    return result.clone() if copy and result is x else result


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that arrays, dtypes and numbers together have: numbers decide its kind, not its width."""
    given = [a.dtype if isinstance(a, Tensor) else a for a in arrays_and_dtypes]
    kinds = [k for k in given if isinstance(k, ts.dtype)]
    if not kinds:
        raise ValueError("result_type: expected at least one array or dtype")
    found = kinds[0]
    for kind in kinds[1:]:
        found = ts.promote_types(found, kind)
    for number in given:
        if not isinstance(number, ts.dtype):
            found = ts.result_type(ts.empty(1, dtype=found, device="meta"), number)
    return found


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays in the shape that they broadcast to."""
    return tuple(ts.broadcast_tensors(*arrays)) if arrays else ()


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after another along an axis, or all their elements in one line for None."""
    return ts.cat([a.reshape(-1) for a in arrays]) if axis is None else ts.cat(list(arrays), axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """One more axis of one element, at ``axis``, or several. ``IndexError`` for a place that does not exist."""
    axes = (axis,) if isinstance(axis, int) else axis
    rank = x.dim() + len(axes)
    if any(not -rank <= a < rank for a in axes):
        raise IndexError(f"expand_dims: expected axes from {-rank} to {rank - 1}, got {axis}")
    places = sorted(a % rank for a in axes)
    if len(set(places)) < len(places):
        raise ValueError(f"expand_dims: expected different axes, got {axis}")
    for place in places:
        x = x.unsqueeze(place)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Without axes of one element. ``ValueError`` for one of more elements."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: expected axes of one element, got {axis} of shape {tuple(x.shape)}")
    return x.squeeze(axes) if axes else x


def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """The elements in reverse along axes, or along all."""
    return ts.flip(x, list(range(x.dim())) if axis is None else [axis] if isinstance(axis, int) else list(axis))


def roll(x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Tensor:
    """The elements moved along axes, those that leave entering at the other end; in one line for None."""
    if axis is None:
        return ts.roll(x.reshape(-1), shift).reshape(x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    return ts.roll(x, shifts, axes) if axes else x.clone()


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return x.permute(axes)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places, the others staying in order."""
    return ts.movedim(x, source, destination)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; ``copy=False`` raises ``ValueError`` where that needs a copy."""
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(f"reshape: expected strides that need no copy for {tuple(shape)}: {error}") from None
    return x.clone(memory_format=ts.contiguous_format).reshape(shape) if copy else x.reshape(shape)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element as many times as told, along an axis or in one line."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(repeats, Tensor):
        repeats = repeats.to(ts.int64)
    return ts.repeat_interleave(x, repeats, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return ts.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array side by side as many times as told along each axis."""
    return ts.tile(x, tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return tuple(ts.unbind(x, axis))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array in a shape that it broadcasts to."""
    return x.expand(tuple(shape))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices at indices along an axis."""
    if axis is None and x.dim() != 1:
        raise ValueError(f"take: expected an axis for an array of {x.dim()} dimensions")
    along = 0 if axis is None else axis
    wrapped = ts.where(indices < 0, indices + x.shape[along], indices)
    return ts.index_select(x, along, wrapped)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements at indices along an axis; the other axes broadcast."""
    wrapped = ts.where(indices < 0, indices + x.shape[axis], indices)
    return ts.take_along_dim(x, wrapped.to(ts.int64), axis)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.transpose(-1, -2)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of the points of a grid, each in the dtype of its array."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: expected the indexing 'xy' or 'ij', got {indexing!r}")
    if any(a.dim() != 1 for a in arrays):
        raise ValueError(f"meshgrid: expected one-dimensional arrays, got shapes {[tuple(a.shape) for a in arrays]}")
    sizes = [a.shape[0] for a in arrays]
    order = list(range(len(arrays)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    shape = [sizes[k] for k in order]
    return tuple(a.reshape([-1 if k == j else 1 for j in order]).expand(shape).clone() for k, a in enumerate(arrays))


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the ``k``-th diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    made = ts.zeros(n_rows, columns, dtype=dtype, device=device)
    if -n_rows < k < columns:
        made.diagonal(k).fill_(1)
    return made


def linspace(
    start: complex, stop: complex, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` numbers evenly spaced from ``start`` to ``stop``, or to before it without ``endpoint``."""
    given: Any = (start, stop)
    if dtype is None and any(isinstance(v, complex) for v in given):
        dtype = ts.get_default_dtype().to_complex()
    made: Tensor = ts.linspace(given[0], given[1], num if endpoint else num + 1, dtype=dtype, device=device)
    return made if endpoint else made[:num]


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """The numbers from ``start``, or 0, up to ``stop``, which is not one of them; none where the step leads away."""
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step < 0:
        floating = any(isinstance(v, float) for v in (start, stop, step))
        return ts.empty(0, dtype=dtype or (ts.get_default_dtype() if floating else ts.int64), device=device)
    return ts.arange(start, stop, step, dtype=dtype, device=device)


def _sized(op: str, shape: int | tuple[int, ...]) -> tuple[int, ...]:
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in size):
        raise ValueError(f"{op}: expected sizes that are not negative, got {size}")
    return size


def empty(shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of whatever the memory held."""
    return ts.empty(_sized("empty", shape), dtype=dtype, device=device)


def ones(shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return ts.ones(_sized("ones", shape), dtype=dtype, device=device)


def zeros(shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return ts.zeros(_sized("zeros", shape), dtype=dtype, device=device)


def full(shape: int | tuple[int, ...], fill_value: complex, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one number."""
    value: Any = fill_value
    return ts.full(_sized("full", shape), value, dtype=dtype, device=device)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """``obj`` as an array: see ``tesserack.asarray``."""
    return ts.asarray(obj, dtype=dtype, device=device, copy=copy)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices, zeros elsewhere; ``k`` moves the boundary up."""
    return ts.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices, zeros elsewhere; ``k`` moves the boundary up."""
    return ts.triu(x, k)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether both dtypes are of one kind, bool, integers or floating and complex, and promotion gives ``to``."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    return _rank(source) == _rank(to) and result_type(source, to) is to


def _rank(dtype: Any) -> int:
    return 0 if dtype is ts.bool else 2 if dtype.is_floating_point or dtype.is_complex else 1


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that shapes broadcast to. ``ValueError`` if they do not."""
    try:
        return tuple(ts.broadcast_shapes(*shapes))
    except RuntimeError as error:
        raise ValueError(str(error)) from None
