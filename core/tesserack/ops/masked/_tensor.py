"""``MaskedTensor``: values with a mask that says which of them count."""

from __future__ import annotations

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
    *("split", "squeeze", "stack", "t", "transpose", "unbind", "unsqueeze", "view", "numpy_T", "index_select"),
}
_REDUCTIONS = {"sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "var", "std", "norm", "all"}


_PLAIN_GRAD: Any = Tensor.grad


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", ""))


class MaskedTensor(Tensor):
    """A tensor whose elements count where its mask is true, of PyTorch's prototype of that name.

    Pointwise functions keep the mask, that all masked arguments must share; views and joins apply to both; reductions
    leave out what does not count, and are themselves masked where nothing did. Other functions raise ``TypeError``.
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

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        rows = _texts(self.get_data().detach().tolist(), self._mask.tolist(), 2)
        return f"MaskedTensor({rows}, {bool(self._mask)})" if self.dim() == 0 else f"MaskedTensor(\n{rows}\n)"

    __str__ = __repr__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = _name(func), kwargs or {}
        if name in ("as_subclass", "__get__", "__set__", "backward", "requires_grad_", "register_hook"):
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in _REDUCTIONS:
            return _reduce(name, *args, **kwargs)
        if name in _STRUCTURAL:
            return _both(func, args, kwargs)
        if name in _IN_PLACE or (name.endswith("_") and "elementwise" in facts().get(name[:-1], ())):
            return _in_place(name, func, args, kwargs)
        if name in _DUNDERS or name in _CASTS or "elementwise" in facts().get(name, ()):
            return _pointwise(name, func, args, kwargs)
        raise TypeError(f"MaskedTensor: {name or func} takes no masked tensors; try get_data() or to_tensor()")


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


def _shared_mask(name: str, args: Any, kwargs: Any) -> Tensor:
    masks = [m.get_mask() for m in _found((args, tuple(kwargs.values())))]
    for other in masks[1:]:
        if other.shape != masks[0].shape or not bool((other == masks[0]).all()):
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
    data = func(*_mapped(args, MaskedTensor.get_data), **_mapped_dict(kwargs))
    mask = shared.expand(data.shape) if shared.dim() <= data.dim() else shared
    return _wrap(data, mask)


def _mapped_dict(kwargs: Any) -> dict[str, Any]:
    return {key: _mapped(value, MaskedTensor.get_data) for key, value in kwargs.items()}


def _both(func: Any, args: Any, kwargs: Any) -> Any:
    data = func(*_mapped(args, MaskedTensor.get_data), **_mapped_dict(kwargs))
    mask = func(*_mapped(args, MaskedTensor.get_mask), **_mapped_dict(kwargs))
    if isinstance(data, Tensor):
        return _wrap(data, mask)
    return tuple(_wrap(d, m) for d, m in zip(data, mask, strict=True))


def _reduce(name: str, input: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
    mask, data = input.get_mask(), input.get_data()
    dim = kwargs.get("dim", args[-1 if name != "norm" else 1] if len(args) > (name == "norm") else None)
    dims = list(range(data.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    left = mask.any(dims, keepdim=kwargs.get("keepdim", False)) if data.dim() else mask
    if name == "all":
        return _wrap(data.masked_fill(~mask, True).to(ts.bool).all(dims), left)
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
    _check(data, mask)
    made = Tensor._make_subclass(MaskedTensor, data.detach().clone(), requires_grad)
    made._mask = mask.clone()
    return made


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The values of ``data`` with a mask; the gradient goes on to ``data``."""
    _check(data, mask)
    return _wrap(data, mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether ``obj`` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _check(data: Any, mask: Any) -> None:
    if not isinstance(data, Tensor) or not isinstance(mask, Tensor):
        raise TypeError(f"masked_tensor: expected two Tensors, got {type(data).__name__} and {type(mask).__name__}")
    if isinstance(data, MaskedTensor) or isinstance(mask, MaskedTensor):
        raise TypeError("masked_tensor: expected plain tensors, got a MaskedTensor")
    if mask.dtype is not ts.bool:
        raise TypeError(f"masked_tensor: mask must have dtype bool, got {mask.dtype}")
    if data.shape != mask.shape:
        raise ValueError(f"masked_tensor: expected one shape, got {tuple(data.shape)} and {tuple(mask.shape)}")
