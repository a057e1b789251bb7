"""``NestedTensor``: rows of different lengths, packed along one dimension of their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.handles import HookHandle
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack._tensor.subclass import as_subclass
from tesserack.nested._handlers import call, call_named, unsupported
from tesserack.nested._size import NestedInt, ragged_size

__all__ = ["NestedTensor", "values_of", "wrap", "wrap_like"]


_GRAD: Any = Tensor.grad


class NestedTensor(Tensor):
    """A tensor (B, ..., j, ...) whose dimension ``j``, not the first, has another size in each of the B elements.

    Its memory is ``values``, where that dimension holds all elements one after another and the batch dimension is
    missing; ``offsets``, B + 1 ints, say where each begins; ``lengths``, B ints, are there if there are gaps.
    """

    _offsets: Tensor
    _lengths: Tensor | None
    _ragged_idx: int
    _metadata_cache: dict[str, int]
    _size: tuple[Any, ...]

    def __new__(
        cls,
        values: Tensor,
        offsets: Tensor,
        *,
        lengths: Tensor | None = None,
        requires_grad: bool = False,
        _ragged_idx: int = 1,
        _metadata_cache: dict[str, int] | None = None,
    ) -> NestedTensor:
        """See :func:`tesserack.nested.nested_tensor_from_jagged`."""
        made = wrap(values, offsets, lengths, _ragged_idx, _metadata_cache)
        return made.requires_grad_() if requires_grad else made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    # --- parts ---------------------------------------------------------------------------------------------------

    def values(self) -> Tensor:
        """The elements one after another, a view with this tensor's gradient."""
        return as_subclass(self, Tensor)  # type: ignore[no-any-return]

    def offsets(self) -> Tensor:
        """Where each element begins, and where the last one ends: B + 1 ints."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """How long each element is, where there are gaps; else None."""
        return self._lengths

    def to_padded_tensor(self, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
        """See :func:`tesserack.nested.to_padded_tensor`."""
        return call_named("to_padded_tensor", self, padding, output_size)  # type: ignore[no-any-return]

    def _nested_gradient(self, grad: Tensor) -> Tensor:
        """A gradient of this tensor, as nested as it is."""
        return grad if isinstance(grad, NestedTensor) else wrap_like(grad, self)

    def _row_lengths(self) -> Tensor:
        return self._offsets.diff() if self._lengths is None else self._lengths

    def _longest(self) -> int:
        """The length of the longest row; what was found by looking is kept apart from what was told."""
        cache = self._metadata_cache
        if "max_seqlen" in cache:
            return cache["max_seqlen"]
        if "found" not in cache:
            lengths = self._row_lengths()
            cache["found"] = int(lengths.max()) if lengths.numel() else 0
        return cache["found"]

    # --- shape ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """The sizes, with a :class:`NestedInt` for the ragged dimension."""
        return ts.Size(self._size)

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """The number of dimensions, the batch among them."""
        return len(self._size)

    @property
    def layout(self) -> Any:  # type: ignore[override]
        """``tesserack.jagged``."""
        return ts.jagged

    @property
    def is_nested(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    @property
    def T(self) -> Any:  # type: ignore[override]
        """Refused: it would move the batch dimension."""
        raise ValueError("T: Permute is not supported on the batch dimension for jagged NT; try transpose()")

    H = T

    @property
    def mT(self) -> Any:  # type: ignore[override]
        """The last two dimensions exchanged."""
        return self.transpose(-2, -1)

    @property
    def mH(self) -> Any:  # type: ignore[override]
        """The last two dimensions exchanged, conjugated."""
        return self.transpose(-2, -1).conj()

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The same memory without history."""
        return wrap_like(self._plain(), self)

    @property
    def real(self) -> Any:  # type: ignore[override]
        """The real part."""
        return wrap_like(self.values().real, self)

    @property
    def imag(self) -> Any:  # type: ignore[override]
        """The imaginary part, of complex dtypes."""
        return wrap_like(self.values().imag, self)

    def dim(self) -> int:
        """The number of dimensions, the batch among them."""
        return len(self._size)

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of one dimension."""
        return self.shape if dim is None else self._size[_checked("size", dim, len(self._size))]

    def stride(self, dim: int | None = None) -> Any:
        """The steps of the dimensions; that of the batch is a multiple of the ragged size."""
        steps = self._plain().stride()
        every = (self._size[self._ragged_idx] * steps[self._ragged_idx - 1], *steps)
        return every if dim is None else every[_checked("stride", dim, len(every))]

    def numel(self) -> int:
        """The number of elements of all rows."""
        if self._lengths is None:
            return int(self._plain().numel())
        fixed: int = math.prod(n for n in self._size[1:] if not isinstance(n, NestedInt))
        return int(self._lengths.sum()) * fixed

    nelement = numel

    def is_contiguous(self, memory_format: Any = ts.contiguous_format) -> bool:
        """Whether the values are, and there are no gaps."""
        return self._lengths is None and self._plain().is_contiguous(memory_format=memory_format)

    def __len__(self) -> int:
        return int(self._size[0])

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def _plain(self) -> Tensor:
        return Tensor._make_subclass(Tensor, self, False)

    # --- gradients -----------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The accumulated gradient, nested as this tensor, or None."""
        found = _GRAD.__get__(self)
        return None if found is None else wrap_like(found, self)

    @grad.setter
    def grad(self, value: Any) -> None:
        _GRAD.__set__(self, values_of(value, self) if isinstance(value, Tensor) else value)

    def register_hook(self, hook: Any) -> HookHandle:
        """Call ``hook(grad)``, with a nested gradient; see ``Tensor.register_hook``."""

        def plain(grad: Tensor) -> Any:
            changed = hook(wrap_like(grad, self))
            return values_of(changed, self) if isinstance(changed, Tensor) else changed

        with DisableTorchFunctionSubclass():
            return Tensor.register_hook(self, plain)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Add gradients to the leaves; ``gradient`` is nested as this tensor."""
        if gradient is not None:
            gradient = values_of(gradient, self)
        self.values().backward(gradient, *args, **kwargs)

    # --- text and copies -----------------------------------------------------------------------------------------

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        history = f", requires_grad={self.requires_grad}" if self.requires_grad else ""
        if self.grad_fn is not None:
            history = f", grad_fn={self.grad_fn}"
        sizes = f"size={self._size}, offsets={self._offsets}"
        return f"NestedTensor({sizes}{history}, contiguous={self.is_contiguous()})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                    "moment; use .detach().clone() for this one"
                )
            copied = wrap_like(self._plain().clone(), self).requires_grad_(self.requires_grad)
            held = self.grad
            copied.grad = None if held is None else wrap_like(held._plain().clone(), self)
            memo[id(self)] = copied
        return memo[id(self)]

    def __copy__(self) -> Any:
        return wrap_like(self._plain(), self).requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = {
            "values": self._plain(),
            "offsets": self._offsets,
            "lengths": self._lengths,
            "_ragged_idx": self._ragged_idx,
            "_metadata_cache": {key: n for key, n in self._metadata_cache.items() if key != "found"},
            "requires_grad": self.requires_grad,
        }
        return _rebuild_njt, (parts,)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


# Methods that do not ask classes, and would take the values for the tensor.
_REFUSED = (
    *("numpy", "_numpy", "__array__", "__dlpack__", "__dlpack_device__", "tolist", "__setitem__", "map_"),
    *("map2_", "to_dense", "to_sparse", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr", "to_sparse_bsr"),
    *("to_sparse_bsc", "sparse_mask", "resize_", "resize_as_", "set_", "dim_order", "is_set_to", "narrow_copy"),
    *("as_strided", "as_strided_scatter", "new_empty_strided", "slice_inverse", "__contains__", "smm"),
    "sspaddmm",
)


def _refusing(name: str) -> Any:
    def refuse(self: NestedTensor, *args: Any, **kwargs: Any) -> Any:
        raise unsupported(name)

    return refuse


for _name in _REFUSED:
    setattr(NestedTensor, _name, _refusing(_name))


def _rebuild_njt(constructor_kwargs: dict[str, Any]) -> NestedTensor:
    """What a pickled nested tensor calls."""
    return NestedTensor(**constructor_kwargs)


def _checked(op: str, dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise IndexError(f"{op}: Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], got {dim})")
    return dim % ndim


def wrap(
    values: Tensor,
    offsets: Tensor,
    lengths: Tensor | None = None,
    ragged_idx: int = 1,
    cache: dict[str, int] | None = None,
) -> NestedTensor:
    """The nested tensor of checked parts; its gradient goes on to ``values``."""
    made: NestedTensor = as_subclass(values, NestedTensor)
    made._offsets, made._lengths, made._ragged_idx = offsets, lengths, ragged_idx
    made._metadata_cache = {} if cache is None else cache
    size = ragged_size(offsets if lengths is None else lengths)
    inner = tuple(values.shape)
    made._size = (offsets.shape[0] - 1, *inner[: ragged_idx - 1], size, *inner[ragged_idx:])
    return made


def wrap_like(values: Tensor, like: NestedTensor, ragged_idx: int | None = None) -> NestedTensor:
    """Values with the raggedness of a nested tensor."""
    r = like._ragged_idx if ragged_idx is None else ragged_idx
    return wrap(values, like._offsets, like._lengths, r, like._metadata_cache)


def values_of(gradient: Tensor, like: NestedTensor) -> Tensor:
    """The values of a gradient of ``like``. ``RuntimeError`` if it is not as ragged."""
    if not isinstance(gradient, NestedTensor):
        raise RuntimeError(f"backward: expected a nested gradient of shape {like._size}, got one of shape "
                           f"{tuple(gradient.shape)}; try nested_tensor_from_jagged(values, nt.offsets())")  # fmt: skip
    same = gradient._size == like._size or (
        gradient._plain().shape == like._plain().shape and bool((gradient._offsets == like._offsets).all())
    )
    if not same:
        raise RuntimeError(f"backward: expected a gradient of shape {like._size}, got one of shape {gradient._size}")
    return gradient.values()
