"""``StridedNestedTensor``: rows of any shapes, one after another in one buffer, each with strides of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.handles import HookHandle
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack._tensor.subclass import as_subclass
from tesserack.nested._handlers import call_rows
from tesserack.nested._tensor import _REFUSED, _checked, _refusing

__all__ = ["Place", "StridedNestedTensor", "from_rows", "packed", "pad", "viewed", "wrap_like_rows", "wrap_rows"]

_GRAD: Any = Tensor.grad


class Place(NamedTuple):
    """Where a row lies in the buffer."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def packed(sizes: Sequence[Sequence[int]]) -> tuple[Place, ...]:
    """The places of contiguous rows, one after another."""
    places, offset = [], 0
    for size in sizes:
        steps, step = [], 1
        for n in reversed(size):
            steps.append(step)
            step *= max(n, 1)
        places.append(Place(tuple(size), tuple(reversed(steps)), offset))
        offset += ts.Size(size).numel()
    return tuple(places)


class StridedNestedTensor(Tensor):
    """A batch of tensors of as many dims, whose sizes may all differ; its memory is one buffer of one dim."""

    _places: tuple[Place, ...]
    _row_dims: int

    # --- shape ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """Refused: there is no one shape."""
        raise RuntimeError("shape: a nested tensor of the strided layout has none, as its rows differ; try size(dim), "
                           "or [row.shape for row in nt.unbind()]")  # fmt: skip

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """The number of dimensions, the batch among them."""
        return self._row_dims + 1

    @property
    def layout(self) -> Any:  # type: ignore[override]
        """``tesserack.strided``."""
        return ts.strided

    @property
    def is_nested(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    @property
    def mT(self) -> Any:  # type: ignore[override]
        """The last two dimensions exchanged."""
        return self.transpose(-2, -1)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The same memory without history."""
        return wrap_like_rows(self._plain(), self)

    def dim(self) -> int:
        """The number of dimensions, the batch among them."""
        return self.ndim

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """The size of a dimension in which all rows agree. ``RuntimeError`` if they do not."""
        if dim is None:
            return self.shape
        at = _checked("size", dim, self.ndim)
        if at == 0:
            return len(self._places)
        found = {place.size[at - 1] for place in self._places}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size; try the rows of unbind()")
        return found.pop()

    def stride(self, dim: int | None = None) -> Any:
        """Refused: each row has its own."""
        raise RuntimeError("stride: a nested tensor of the strided layout has one for each row; try unbind()")

    def is_same_size(self, other: Any) -> bool:
        """Whether another has rows of the same sizes; ``RuntimeError`` unless it is nested in this layout too."""
        if not isinstance(other, StridedNestedTensor):
            raise RuntimeError("is_same_size: expected both to be nested tensors of the strided layout")
        return [p.size for p in self._places] == [p.size for p in other._places]

    def numel(self) -> int:
        """The number of elements of all rows."""
        return sum(ts.Size(place.size).numel() for place in self._places)

    nelement = numel

    def is_contiguous(self, memory_format: Any = ts.contiguous_format) -> bool:
        """Whether the rows are, and lie one after another."""
        whole = packed([place.size for place in self._places])
        return whole == self._places and self.numel() == self._plain().numel()

    def _nested_tensor_size(self) -> Tensor:
        return ts.tensor([place.size for place in self._places], dtype=ts.int64)

    def _nested_tensor_strides(self) -> Tensor:
        return ts.tensor([place.stride for place in self._places], dtype=ts.int64)

    def _nested_tensor_storage_offsets(self) -> Tensor:
        return ts.tensor([place.offset for place in self._places], dtype=ts.int64)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Any:
        return iter(self.unbind())

    # --- parts ---------------------------------------------------------------------------------------------------

    def values(self) -> Tensor:
        """The buffer, a view with this tensor's gradient."""
        return as_subclass(self, Tensor)  # type: ignore[no-any-return]

    def _plain(self) -> Tensor:
        return Tensor._make_subclass(Tensor, self, False)

    def rows(self) -> list[Tensor]:
        """The rows: views, whose gradients go on to this tensor."""
        return _cut(self.values(), self._places, self.is_contiguous())

    def to_padded_tensor(self, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
        """See :func:`tesserack.nested.to_padded_tensor`."""
        return pad(self, padding, output_size)

    # --- gradients -----------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The accumulated gradient, nested as this tensor, or None."""
        found = _GRAD.__get__(self)
        return None if found is None else wrap_like_rows(found, self)

    @grad.setter
    def grad(self, value: Any) -> None:
        _GRAD.__set__(self, value.values() if isinstance(value, StridedNestedTensor) else value)

    def register_hook(self, hook: Any) -> HookHandle:
        """Call ``hook(grad)``, with a nested gradient; see ``Tensor.register_hook``."""

        def plain(grad: Tensor) -> Any:
            changed = hook(wrap_like_rows(grad, self))
            return changed.values() if isinstance(changed, StridedNestedTensor) else changed

        with DisableTorchFunctionSubclass():
            return Tensor.register_hook(self, plain)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Add gradients to the leaves; ``gradient`` is nested as this tensor."""
        if not isinstance(gradient, StridedNestedTensor):
            raise RuntimeError("backward: grad can be implicitly created only for scalar outputs; expected a nested "
                               "gradient")  # fmt: skip
        sizes = [[p.size for p in nt._places] for nt in (self, gradient)]
        if sizes[0] != sizes[1]:
            raise RuntimeError(f"backward: expected a gradient of rows {sizes[0]}, got {sizes[1]}")
        ts.autograd.backward(self.rows(), gradient.rows(), *args, **kwargs)

    # --- text and copies -----------------------------------------------------------------------------------------

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shown = [repr(row.detach().requires_grad_(self.requires_grad)) for row in _cut(self._plain(), self._places)]
        lines = ",\n".join("  " + text.replace("\n", "\n  ") for text in shown)
        history = ", requires_grad=True" if self.requires_grad else ""
        if self.grad_fn is not None:
            history = f", grad_fn=<{self.grad_fn.name()}>"
        return f"nested_tensor([\n{lines}\n]{history})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError("deepcopy: expected a leaf, got a nested tensor with history; try .detach().clone()")
            copied = wrap_like_rows(self._plain().clone(), self).requires_grad_(self.requires_grad)
            held = _GRAD.__get__(self)
            _GRAD.__set__(copied, None if held is None else held.clone())
            memo[id(self)] = copied
        return memo[id(self)]

    def __copy__(self) -> Any:
        return wrap_like_rows(self._plain(), self).requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self._plain(), self._places, self._row_dims, self.requires_grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call_rows(func, args, kwargs or {})


for _name in (*_REFUSED, "t", "T", "H", "mH"):
    if _name != "to_dense":
        _refusal = _refusing(_name)
        setattr(StridedNestedTensor, _name, property(_refusal) if _name in ("T", "H", "mH") else _refusal)


def _rebuild(buffer: Tensor, places: Any, row_dims: int, requires_grad: bool) -> StridedNestedTensor:
    """What a pickled nested tensor calls."""
    return wrap_rows(buffer, tuple(Place(*p) for p in places), row_dims).requires_grad_(requires_grad)


def _cut(buffer: Tensor, places: Sequence[Place], whole: bool = False) -> list[Tensor]:
    if whole:
        parts = buffer.split([ts.Size(p.size).numel() for p in places]) if places else ()
        return [part.view(place.size) for part, place in zip(parts, places, strict=True)]
    first = buffer.storage_offset()
    return [buffer.as_strided(p.size, p.stride, first + p.offset) for p in places]


def wrap_rows(buffer: Tensor, places: tuple[Place, ...], row_dims: int) -> StridedNestedTensor:
    """The nested tensor of checked places; its gradient goes on to ``buffer``, of one dim."""
    made: StridedNestedTensor = as_subclass(buffer, StridedNestedTensor)
    made._places, made._row_dims = places, row_dims
    return made


def wrap_like_rows(buffer: Tensor, like: StridedNestedTensor) -> StridedNestedTensor:
    """A buffer with the rows of a nested tensor."""
    return wrap_rows(buffer, like._places, like._row_dims)


def from_rows(rows: Sequence[Tensor]) -> StridedNestedTensor:
    """The nested tensor of copies of rows of as many dims; gradients go on to them."""
    if not rows:
        return wrap_rows(ts.empty(0), (), 0)
    buffer = ts.cat([row.reshape(-1) for row in rows])
    return wrap_rows(buffer, packed([tuple(row.shape) for row in rows]), rows[0].dim())


def viewed(nt: StridedNestedTensor, change: Callable[[Tensor], Tensor]) -> StridedNestedTensor:
    """The view that ``change`` makes of every row."""
    plain = nt._plain()
    rows = [change(row) for row in _cut(plain, nt._places)]
    first = plain.storage_offset()
    places = tuple(Place(tuple(r.shape), tuple(r.stride()), r.storage_offset() - first) for r in rows)
    return wrap_rows(nt.values(), places, rows[0].dim() if rows else nt._row_dims)


def pad(nt: StridedNestedTensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """A dense copy, with ``padding`` behind what is shorter than the largest row."""
    rows = nt.rows()
    largest = [max((place.size[d] for place in nt._places), default=0) for d in range(nt._row_dims)]
    if output_size is not None:
        wanted = [int(n) for n in output_size]
        if len(wanted) != nt.dim() or (wanted and wanted[0] not in (-1, len(rows))):
            raise RuntimeError(f"to_padded_tensor: expected {nt.dim()} sizes in output_size, the first "
                               f"{len(rows)}, got {wanted}")  # fmt: skip
        if any(w < n for w, n in zip(wanted[1:], largest, strict=True)):
            raise RuntimeError(f"to_padded_tensor: Value in output_size is less than NestedTensor padded size: "
                               f"expected {largest} at least, got {wanted[1:]}. Truncation is "
                               "not supported.")  # fmt: skip
        largest = wanted[1:]
    if not rows:
        return nt.values().new_zeros((0, *largest))
    filled = []
    for row in rows:
        behind = [n for d in reversed(range(row.dim())) for n in (0, largest[d] - row.shape[d])]
        filled.append(ts.nn.functional.pad(row, behind, value=padding) if any(behind) else row)
    return ts.stack(filled)
