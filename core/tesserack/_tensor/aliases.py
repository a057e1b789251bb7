"""Methods of Tensor that are functions of other modules, which are imported when one is first used."""

from __future__ import annotations

import functools
import importlib
import weakref

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.methods import refuse_gradients

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["install"]


class _Delegate:
    """Stands on the class for a function of a module, and is replaced by it when first asked for."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, instance: Any, owner: type) -> Any:
        found = getattr(importlib.import_module(f"tesserack.{self._module}"), self._name)
        setattr(Tensor, self._attribute, found)
        return found if instance is None else found.__get__(instance, owner)


def _before(self: Tensor) -> Tensor:
    """What a tensor is before it is written: a copy where gradients may need the values that are about to go."""
    import tesserack

    return self.clone() if tesserack.is_grad_enabled() and self.requires_grad else self


def _in_place(function: str) -> Callable[..., Any]:
    """The in-place form of a function of the package; its result must fit the tensor's dtype and shape."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        import tesserack

        result = getattr(tesserack, function)(_before(self), *args, **kwargs)
        if function == "float_power" and result.dtype is not self.dtype:
            raise RuntimeError(f"float_power_: the base given to float_power_ has dtype {self.dtype} but the "
                               f"operation's result requires dtype {result.dtype}")  # fmt: skip
        if not _native.can_cast(result.dtype, self.dtype):
            raise RuntimeError(f"{function}_: result type {result.dtype} can't be cast to the desired output type "
                               f"{self.dtype}")  # fmt: skip
        if result.shape != self.shape:
            raise RuntimeError(f"{function}_: output with shape {tuple(self.shape)} doesn't match the broadcast shape "
                               f"{tuple(result.shape)}")  # fmt: skip
        return self.copy_(result)

    method.__name__, method.__qualname__, method.__module__ = f"{function}_", f"Tensor.{function}_", "tesserack"
    method.__doc__ = f"``{function}`` in place."
    return method


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dims in the order in which they lie in memory, the outermost first.

    With ``ambiguity_check``, True or a list of memory formats, ``RuntimeError`` where strides allow several orders.

    >>> import tesserack as ts
    >>> ts.empty(2, 3, 4).permute(2, 0, 1).dim_order()
    (1, 2, 0)
    """
    if not isinstance(ambiguity_check, (bool, list)) or (
        isinstance(ambiguity_check, list)
        and not all(isinstance(kind, _native.memory_format) for kind in ambiguity_check)
    ):
        raise TypeError("dim_order: the ambiguity_check argument must be a bool or a list of memory formats.")
    if self.layout is not _native.strided:
        raise AttributeError(f"dim_order: expected a dense tensor, got {self.layout}; try .to_dense()")
    if isinstance(ambiguity_check, list):
        fits = [kind for kind in ambiguity_check if self.is_contiguous(memory_format=kind)]
        if len(fits) != 1:
            raise RuntimeError(f"The tensor does not have unique dim order, or cannot map to exact one of the given "
                               f"memory formats, but to {len(fits)}")  # fmt: skip
    elif ambiguity_check and _ambiguous(self):
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    strides = self.stride()

    def before(a: int, b: int) -> int:
        # Where strides say nothing, the longer of two dims and the first of two equals lies outside.
        if strides[a] != strides[b]:
            return strides[b] - strides[a]
        return self.shape[b] - self.shape[a]

    return tuple(sorted(range(self.dim()), key=functools.cmp_to_key(before)))


def _ambiguous(x: Tensor) -> bool:
    """Whether two dims could be exchanged: equal strides, or a dim of one element."""
    return any(n < 2 for n in x.shape) or len(set(x.stride())) < x.dim()


def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int | None = None,
    size: Any = None,
    stride: Any = None,
) -> Tensor:
    """Make this tensor another view of ``source``'s memory, with its shape and strides unless given; returns it.

    ``source`` is a tensor or an untyped storage; without one the tensor becomes empty. ``RuntimeError`` where a
    gradient would be lost: under grad mode, if either tensor requires one.
    """
    from tesserack._tensor.pending import bits_of, physical, with_bits
    from tesserack.aten.modes import check_geometry
    from tesserack.storage import TypedStorage, UntypedStorage

    check_geometry("set_")
    if source is None:
        self.data = self.detach().new_empty(0)
        return self
    if isinstance(source, TypedStorage):
        if source.dtype is not self.dtype:
            raise RuntimeError(
                f"set_: Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {source.dtype}"
            )
        source = source.untyped()
    if isinstance(source, UntypedStorage):
        source, storage_offset = source._whole(self.dtype), storage_offset or 0
    if _native.is_grad_enabled() and (self.requires_grad or source.requires_grad):
        raise RuntimeError("set_: expected tensors that do not require grad, as it has no gradient; try no_grad()")
    if source.dtype is not self.dtype:
        raise RuntimeError(f"set_: expected a source of dtype {self.dtype}, got {source.dtype}")
    source = source.detach()
    if size is not None:
        import math

        size = tuple(size)
        steps = stride if stride is not None else [math.prod(size[d + 1 :]) for d in range(len(size))]
        source = source.as_strided(size, steps, storage_offset or 0)
    self.data = with_bits(physical(source), bits_of(self))
    return self


def __array_namespace__(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The Array API standard's namespace, ``tesserack.array_api``. ``ValueError`` for a version it does not follow."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        raise ValueError(f"__array_namespace__: expected a version of the standard up to 2025.12, got {api_version!r}")
    return importlib.import_module("tesserack.array_api")


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device; itself if it is there. ``stream`` must be None."""
    if stream is not None:
        raise ValueError(f"to_device: expected stream=None, got {stream!r}")
    return self.to(device)


def const_data_ptr(self: Tensor) -> int:
    """The address of the first element, for reading."""
    return self.data_ptr()


def _check_kinds(op: str, self: Tensor, **others: Tensor) -> None:
    for name, other in others.items():
        if not isinstance(other, Tensor) or other.dtype is not self.dtype:
            kind = other.dtype if isinstance(other, Tensor) else type(other).__name__
            raise TypeError(f"{op}: expected a tensor of {self.dtype} for {name}, got {kind}")


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace every element by ``callable(element, element of x, element of y)``, in Python; returns the tensor."""
    _check_kinds("map2_", self, x=x, y=y)
    refuse_gradients("map2_", self, x, y)
    columns = (t.detach().expand(self.shape).reshape(-1).tolist() for t in (self, x, y))
    flat = [callable(*three) for three in zip(*columns, strict=True)]
    return self.copy_(_native.tensor(flat, dtype=self.dtype, device=self.device).reshape(self.shape))


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What ``load_state_dict`` makes of ``other`` for this parameter or buffer: its values without history."""
    from tesserack.nn import Parameter

    if assign and not isinstance(self, Parameter):
        return other.detach()
    if assign:
        return other if isinstance(other, Parameter) else Parameter(other.detach(), requires_grad=other.requires_grad)
    with _native.no_grad():
        return self.copy_(other).detach()


def reinforce(self: Tensor, reward: Any) -> None:
    """Removed, as PyTorch's: ``RuntimeError``. Use ``tesserack.distributions``."""
    raise RuntimeError("reinforce() was removed; sample from a distribution and minimise -m.log_prob(action) * reward")


def _true_divide_by(self: Tensor, other: Any) -> Tensor:
    return _native.as_tensor(other, device=self.device) / self if not isinstance(other, Tensor) else other / self


_DELEGATES = {
    **dict.fromkeys(("as_strided_scatter", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"), "ops.copies"),
    "histogram": "ops.histograms",
    "hash_tensor": "ops.hashes",
    "nonzero_static": "ops.nonzero_unique",
    "slice_inverse": "ops.mutation",
    "is_distributed": "ops.mutation",
    "get_device": "ops.mutation",
}
_SPARSE = {
    "coalesce": "coalesce_method",
    **{
        name: name
        for name in (
            *("_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_values", "ccol_indices", "col_indices"),
            *(
                "crow_indices",
                "dense_dim",
                "indices",
                "is_coalesced",
                "resize_as_sparse_",
                "row_indices",
                "smm",
                "sparse_dim",
            ),
            *("sparse_mask", "sparse_resize_", "sparse_resize_and_clear_", "sspaddmm", "to_dense", "to_sparse"),
            *("to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr", "values"),
        )
    },
}
_IN_PLACE = ("float_power", "igamma", "igammac", "mvlgamma")


def _volatile(self: Tensor) -> bool:
    import warnings

    warnings.warn("volatile was removed (Variable.volatile is always False)", stacklevel=2)
    return False


def _polygamma_(self: Tensor, n: int) -> Tensor:
    """``polygamma`` in place."""
    result = _before(self).polygamma(n)
    if not _native.can_cast(result.dtype, self.dtype):
        raise RuntimeError(
            f"polygamma_: result type {result.dtype} can't be cast to the desired output type {self.dtype}"
        )
    return self.copy_(result)


def _set_grad(self: Tensor, value: Tensor | None) -> None:
    self.grad = value


def _refuse_deletion(self: Tensor) -> None:
    raise RuntimeError("expected an assignment of None: _grad_fn and _backward_hooks cannot be deleted")


def _set_grad_fn(self: Tensor, value: None) -> None:
    if value is not None:
        raise TypeError(f"_grad_fn: expected None, which detaches the tensor, got {type(value).__name__}")
    self.detach_()


def _hooks(self: Tensor) -> Any:
    given = self.__dict__.get("_given_hooks")
    return self._tensor_hooks() if given is None else given


def _set_hooks(self: Tensor, value: Any) -> None:
    """Have the hooks of a dict run too, those that are put into it later included; a leaf's others are gone."""
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"_backward_hooks: expected a dict of hooks or None, got {type(value).__name__}")
    self._drop_tensor_hooks()
    if value is None:
        self.__dict__["_given_hooks"] = None
        return
    self.__dict__["_given_hooks"] = value
    tensor = weakref.ref(self)

    def run(grad: Tensor) -> Tensor:
        current = tensor()
        if current is None or current.__dict__.get("_given_hooks") is value:
            for hook in list(value.values()):
                found = hook(grad)
                grad = grad if found is None else found
        return grad

    if self.requires_grad:
        self.register_hook(run)


def install(cls: type[Tensor]) -> None:
    """Hang the methods on the class."""
    cls._grad = property(lambda self: self.grad, _set_grad)  # type: ignore[attr-defined]  # as programs spell grad
    cls._grad_fn = property(lambda self: self.grad_fn, _set_grad_fn, _refuse_deletion)  # type: ignore[attr-defined]
    cls._backward_hooks = property(_hooks, _set_hooks, _refuse_deletion)  # type: ignore[attr-defined]
    for name, module in _DELEGATES.items():
        member = _Delegate(module, name)
        member.__set_name__(cls, name)
        setattr(cls, name, member)
    for name, function in _SPARSE.items():
        member = _Delegate("sparse._methods", function)
        member.__set_name__(cls, name)
        setattr(cls, name, member)
    for name in _IN_PLACE:
        setattr(cls, f"{name}_", _in_place(name))
    for method in (__array_namespace__, to_device, set_, dim_order, const_data_ptr, map2_, module_load, reinforce):
        setattr(cls, method.__name__, method)
    members = {
        "polygamma_": _polygamma_,
        "__nonzero__": cls.__bool__,
        "__long__": cls.__int__,
        "__div__": cls.__truediv__,
        "__idiv__": cls.__itruediv__,
        "__rdiv__": _true_divide_by,
        "volatile": property(_volatile, doc="Always False, with a warning: see ``no_grad``."),
    }
    for name, attribute in members.items():
        setattr(cls, name, attribute)
