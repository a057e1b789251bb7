"""``MaskedTensor``: values with a mask that says which of them count."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack._tensor.subclass import as_subclass
from tesserack.ops.masked import _reductions
from tesserack.ops.registry import facts

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]

_DUNDERS = {
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__"),
    *("__rpow__", "__neg__", "__abs__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__floordiv__"),
}
_IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"}
_CASTS = {"to", "float", "double", "half", "long", "int", "detach", "clone", "contiguous"}
_STRUCTURAL = {
    *("__getitem__", "cat", "chunk", "expand", "flatten", "flip", "movedim", "narrow", "permute", "reshape", "select"),
    *(
        "split",
        "squeeze",
        "stack",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
        "numpy_T",
        "index_select",
        "unfold",
    ),
}
_REDUCTIONS = {"sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "var", "std", "norm", "all", "any"}
_ALONG = {"softmax", "log_softmax"}
_POINTWISE = {"nextafter"}  # besides those whose declaration says so


_PLAIN_GRAD: Any = Tensor.grad


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", ""))


class MaskedTensor(Tensor):
    """A tensor whose elements count where its mask is true, of PyTorch's prototype of that name.

    Pointwise functions keep the mask, that all masked arguments must share; views and joins apply to both; reductions
    leave out what does not count, and are themselves masked where nothing did. Values and mask may be sparse (COO or
    CSR, with the same elements); what they are reduced to is strided. Other functions raise ``TypeError``.
    """

    _mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        """See :func:`masked_tensor`."""
        return masked_tensor(data, mask, requires_grad)

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        pass

    @property
    def grad(self) -> MaskedTensor | None:
        """The gradient, which counts where the tensor does."""
        with DisableTorchFunctionSubclass():
            held = _PLAIN_GRAD.__get__(self)
        return held if held is None or isinstance(held, MaskedTensor) else _wrap(held, self._mask)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        plain = value.get_data() if isinstance(value, MaskedTensor) else value
        with DisableTorchFunctionSubclass():
            _PLAIN_GRAD.__set__(self, plain)

    def get_data(self) -> Tensor:
        """The values, those that do not count among them; a plain tensor with this one's gradient."""
        return as_subclass(self, Tensor)  # type: ignore[no-any-return]

    def get_mask(self) -> Tensor:
        """Which elements count."""
        return self._mask

    def to_tensor(self, value: float) -> Tensor:
        """A plain tensor with ``value`` where elements do not count."""
        return self.get_data().masked_fill(~self._mask, value)

    def to_sparse(self, *args: Any, **kwargs: Any) -> MaskedTensor:
        """In coordinates, unless a layout is given; of strided values those that count are stored."""
        return _in_layout(self, lambda t: Tensor.to_sparse(t, *args, **kwargs))

    def to_sparse_coo(self) -> MaskedTensor:
        """In coordinates."""
        return _in_layout(self, Tensor.to_sparse)

    def to_sparse_csr(self, dense_dim: int | None = None) -> MaskedTensor:
        """In compressed rows."""
        return _in_layout(self, lambda t: Tensor.to_sparse_csr(t, dense_dim))

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> MaskedTensor:
        """Strided; what was not stored does not count."""
        made = _in_layout(self, Tensor.to_dense)
        return made if dtype is None else _wrap(made.get_data().to(dtype), made.get_mask())

    def _is_any_true(self) -> Tensor:
        if self.get_data().dtype is not ts.bool:
            raise ValueError(f"MaskedTensor: expected a boolean tensor, got {self.get_data().dtype}")
        return (_dense(self.get_data()) & _dense(self.get_mask())).any()

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        """Of the values; ``ValueError`` of sparse ones."""
        _refuse_sparse(self, "is_contiguous")
        return bool(self.get_data().is_contiguous(*args, **kwargs))

    def contiguous(self, *args: Any, **kwargs: Any) -> MaskedTensor:
        """Values and mask, contiguous; ``ValueError`` of sparse ones."""
        _refuse_sparse(self, "contiguous")
        return _wrap(self.get_data().contiguous(*args, **kwargs), self.get_mask().contiguous())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        rows = _texts(_dense(self.get_data().detach()).tolist(), _dense(self._mask).tolist(), 2)
        return f"MaskedTensor({rows}, {bool(_dense(self._mask))})" if self.dim() == 0 else f"MaskedTensor(\n{rows}\n)"

    __str__ = __repr__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = _name(func), kwargs or {}
        if name in ("as_subclass", "__get__", "__set__", "backward", "requires_grad_", "register_hook"):
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in _REDUCTIONS:
            return _reduce(name, *args, **kwargs)
        if name in _ALONG:
            return _wrap(getattr(_reductions, name)(*args, **kwargs), args[0].get_mask())
        if name == "where":
            return _where(*args, **kwargs)
        if name in _STRUCTURAL:
            return _both(func, args, kwargs)
        if name in _IN_PLACE or (name.endswith("_") and _is_pointwise(name[:-1])):
            return _in_place(name, func, args, kwargs)
        if name in _DUNDERS or name in _CASTS or _is_pointwise(name):
            return _pointwise(name, func, args, kwargs)
        raise TypeError(f"MaskedTensor: {name or func} takes no masked tensors; try get_data() or to_tensor()")


def _is_pointwise(name: str) -> bool:
    return name in _POINTWISE or "elementwise" in facts().get(name, ())


def _texts(values: Any, kept: Any, indent: int) -> str:
    """The elements, "--" for those that do not count."""
    if not isinstance(values, list):
        if not kept:
            return "      --"
        return str(values) if isinstance(values, (bool, int)) else f"{values:8.4f}"
    if not values or not isinstance(values[0], list):
        inner = ", ".join(_texts(v, k, 0) for v, k in zip(values, kept, strict=True))
        return " " * indent + f"[{inner}]"
    rows = ",\n".join(_texts(v, k, indent + 2) for v, k in zip(values, kept, strict=True))
    return " " * indent + "[\n" + rows + "\n" + " " * indent + "]"


def _wrap(data: Tensor, mask: Tensor) -> MaskedTensor:
    made: MaskedTensor = as_subclass(data, MaskedTensor)
    made._mask = mask
    return made


def _mapped(value: Any, change: Any) -> Any:
    """``change`` of every masked tensor in nested lists."""
    if isinstance(value, MaskedTensor):
        return change(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, ts.Size):
        return type(value)(_mapped(item, change) for item in value)
    return value


def _found(value: Any) -> list[MaskedTensor]:
    if isinstance(value, MaskedTensor):
        return [value]
    return [m for item in value for m in _found(item)] if isinstance(value, (list, tuple)) else []


def _dense(t: Tensor) -> Tensor:
    return t if t.layout is ts.strided else t.to_dense()


def _stored(t: Tensor) -> tuple[list[Tensor], Tensor]:
    """Where a sparse tensor has elements, and these."""
    if t.layout is ts.sparse_coo:
        t = t.coalesce()
        return [t.indices()], t.values()
    return [t.crow_indices(), t.col_indices()], t.values()


def _same(a: Tensor, b: Tensor, values: bool = True) -> bool:
    """Whether two tensors are of one shape and layout, have elements at the same places and, if asked, the same."""
    if a.shape != b.shape or a.layout is not b.layout:
        return False
    if a.layout is ts.strided:
        return not values or bool((a == b).all())
    (at, elements), (other_at, others) = _stored(a), _stored(b)
    pairs = list(zip(at, other_at, strict=True)) + ([(elements, others)] if values else [])
    return all(x.shape == y.shape and bool((x == y).all()) for x, y in pairs)


def _with_values(t: Tensor, values: Tensor) -> Tensor:
    at = _stored(t)[0]
    coo = t.layout is ts.sparse_coo
    made: Tensor = (
        ts.sparse_coo_tensor(at[0], values, tuple(t.shape), is_coalesced=True)
        if coo
        else ts.sparse_csr_tensor(at[0], at[1], values, tuple(t.shape))
    )
    return made


def _shared_mask(name: str, args: Any, kwargs: Any) -> Tensor:
    masks = [m.get_mask() for m in _found((args, tuple(kwargs.values())))]
    for other in masks[1:]:
        if not _same(other, masks[0]):
            raise ValueError(f"MaskedTensor: {name} expected the same mask of both; Input masks must match")
    return masks[0]


def _in_place(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """What the mask leaves out is written to as well, as in PyTorch; the mask stays."""
    _shared_mask(name, args, kwargs)
    if not isinstance(args[0], MaskedTensor):
        raise TypeError(f"MaskedTensor: {name} expected a masked tensor to write to, got {type(args[0]).__name__}")
    with DisableTorchFunctionSubclass():
        func(*args, **kwargs)
    return args[0]


def _pointwise(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    shared = _shared_mask(name, args, kwargs)
    if shared.layout is not ts.strided:  # what is not stored does not count: of the elements alone
        values = func(*_mapped(args, _values), **{key: _mapped(value, _values) for key, value in kwargs.items()})
        return _wrap(_with_values(shared, values), shared)
    data = func(*_mapped(args, MaskedTensor.get_data), **_mapped_dict(kwargs))
    mask = shared.expand(data.shape) if shared.dim() <= data.dim() else shared
    return _wrap(data, mask)


def _values(masked: MaskedTensor) -> Tensor:
    return _stored(masked.get_data())[1]


def _where(condition: Tensor, input: Any, other: Any) -> MaskedTensor:
    """Each side counts where it does and is chosen."""
    everywhere = ts.tensor(True, device=condition.device)
    masks = [x.get_mask() if isinstance(x, MaskedTensor) else everywhere for x in (input, other)]
    sides = _mapped((input, other), MaskedTensor.get_data)
    data: Any = ts.where(condition, *sides)
    mask: Any = ts.where(condition, *masks)
    return _wrap(data, mask.expand(data.shape))


def _in_layout(input: MaskedTensor, change: Callable[[Tensor], Tensor]) -> MaskedTensor:
    data, mask = input.get_data(), input.get_mask()
    changed = change(mask)
    if data.layout is not ts.strided or changed.layout is ts.strided:
        return _wrap(change(data), changed)
    if changed.layout is ts.sparse_coo:
        values = data[tuple(changed.coalesce().indices())]
    else:
        rows = ts.arange(mask.shape[0], device=mask.device).repeat_interleave(changed.crow_indices().diff())
        values = data[rows, changed.col_indices()]
    return _wrap(_with_values(changed, values), changed)


def _refuse_sparse(input: MaskedTensor, name: str) -> None:
    if input.get_data().layout is not ts.strided:
        raise ValueError(f"MaskedTensors with sparse data do not have {name}; try to_dense()")


def _mapped_dict(kwargs: Any) -> dict[str, Any]:
    return {key: _mapped(value, MaskedTensor.get_data) for key, value in kwargs.items()}


def _both(func: Any, args: Any, kwargs: Any) -> Any:
    data = func(*_mapped(args, MaskedTensor.get_data), **_mapped_dict(kwargs))
    mask = func(*_mapped(args, MaskedTensor.get_mask), **_mapped_dict(kwargs))
    if isinstance(data, Tensor):
        return _wrap(data, mask)
    return tuple(_wrap(d, m) for d, m in zip(data, mask, strict=True))


def _reduce(name: str, input: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
    mask, data = _dense(input.get_mask()), _dense(input.get_data())
    dim = kwargs.get("dim", args[-1 if name != "norm" else 1] if len(args) > (name == "norm") else None)
    dims = list(range(data.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    left = mask.any(dims, keepdim=kwargs.get("keepdim", False)) if data.dim() else mask
    if name in ("all", "any"):
        truth = data.masked_fill(~mask, name == "all").to(ts.bool)
        return _wrap(getattr(truth, name)(dims, keepdim=kwargs.get("keepdim", False)), left)
    return _wrap(getattr(_reductions, name)(data, *args, mask=mask, **kwargs), left)


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A copy of ``data``, a leaf, whose elements count where ``mask``, of its shape, is true.

    ``TypeError`` unless the mask is of bools, ``ValueError`` for another shape.

    >>> import tesserack as ts
    >>> ts.masked.masked_tensor(ts.tensor([1.0, 2.0]), ts.tensor([True, False]))
    MaskedTensor(
      [  1.0000,       --]
    )
    """
    data, mask = _checked(data, mask)
    if data.requires_grad:
        warnings.warn("masked_tensor: It is not recommended to create a MaskedTensor with a tensor that "
                      "requires_grad, whose gradient it does not reach; try as_masked_tensor, or clone().detach()",
                      UserWarning, stacklevel=2)  # fmt: skip
    made = Tensor._make_subclass(MaskedTensor, data.detach().clone(), requires_grad)
    made._mask = mask.clone()
    return made


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The values of ``data`` with a mask; the gradient goes on to ``data``."""
    return _wrap(*_checked(data, mask))


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether ``obj`` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _checked(data: Any, mask: Any) -> tuple[Tensor, Tensor]:
    """Both; of sparse ones with other elements, those that the mask stores."""
    if not isinstance(data, Tensor) or not isinstance(mask, Tensor):
        raise TypeError(f"masked_tensor: expected two Tensors, got {type(data).__name__} and {type(mask).__name__}")
    if isinstance(data, MaskedTensor) or isinstance(mask, MaskedTensor):
        raise TypeError("masked_tensor: data must be a Tensor, and mask: expected plain tensors, got a MaskedTensor")
    if data.layout is not mask.layout:
        raise TypeError(f"masked_tensor: data and mask must have the same layout, got {data.layout} and {mask.layout}")
    if data.layout not in (ts.strided, ts.sparse_coo, ts.sparse_csr):
        raise TypeError(f"masked_tensor: data layout of {data.layout} is not supported; try to_dense() or to_sparse()")
    if mask.dtype is not ts.bool:
        raise TypeError(f"masked_tensor: mask must have dtype bool, got {mask.dtype}")
    if data.shape != mask.shape:
        raise ValueError(f"masked_tensor: expected one shape, got {tuple(data.shape)} and {tuple(mask.shape)}")
    if data.layout is ts.sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    if data.layout is not ts.strided and data._nnz() != mask._nnz():
        data = data.sparse_mask(mask)
    if not _same(data, mask, values=False):
        raise ValueError(f"masked_tensor: data and mask are both {data.layout} but do not have the same indices; try "
                         "data.sparse_mask(mask)")  # fmt: skip
    return data, mask
