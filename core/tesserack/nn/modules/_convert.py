"""Moving a module's tensors to another dtype or device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import tesserack as ts
from tesserack import Tensor, no_grad
from tesserack.nn.modules._registry import Registry
from tesserack.nn.parameter import Parameter, is_lazy

Self = TypeVar("Self", bound="ConvertMixin")

# Whether conversions make new parameters, so that views of the old ones go on showing these: torch.__future__ sets it.
overwrites_parameters = False


class _Once:
    """A function of tensors that gives the same result for the same buffer."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        self._fn = fn
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        return self._fn(tensor)

    def of(self, buffer: Tensor) -> Tensor:
        """The result, of the first call."""
        if id(buffer) not in self._known:
            self._known[id(buffer)] = buffer, self._fn(buffer)
        return self._known[id(buffer)][1]


def _set_data(parameter: Tensor, data: Tensor) -> None:
    """Give a parameter other values; what a class of its own keeps in attributes comes with them."""
    parameter.data = data
    if type(data).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        vars(parameter).update(vars(data))


class ConvertMixin:
    """``to`` and its short forms: all work in place and return the module."""

    _parameters: Registry
    _buffers: Registry
    _modules: Registry

    def _convert(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The same, with one result for a buffer that has several places."""
        return self._apply(_Once(fn), recurse=recurse) if recurse is not True else self._apply(_Once(fn))

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace every parameter's data and gradient, and every buffer, by ``fn`` of it.

        Parameters stay the same objects, so an optimizer that holds them goes on working, unless ``fn`` gives another
        layout.
        """
        if recurse:
            for child in self._modules.values():
                if child is not None:
                    child._apply(fn)
        with no_grad():
            for name, parameter in [*self._parameters.items()]:
                if parameter is None:
                    continue
                grad = parameter.grad
                parameter.grad = None
                made = fn(parameter.data if is_lazy(parameter) else parameter)
                other_kind = made.layout is not parameter.layout  # which no data of this one can be
                if other_kind or (overwrites_parameters and made is not parameter):
                    parameter = self._parameters[name] = Parameter(made.detach(), parameter.requires_grad)
                elif made is not parameter:  # what was changed in place has counted that itself
                    _set_data(parameter, made)
                if grad is not None:
                    parameter.grad = fn(grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn.of(buffer) if isinstance(fn, _Once) else fn(buffer)
        return self

    def _cast(self: Self, dtype: Any) -> Self:
        return self._convert(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``, in place.

        A dtype must be floating point or complex, and changes only tensors of such dtypes; integer buffers keep
        theirs. ``memory_format`` lays out the tensors with four or five dimensions. Raises ``TypeError`` for other
        dtypes, what the tensor core raises for an unknown device, and ``RuntimeError``, before anything is moved,
        where a tensor of five dimensions is to be ``channels_last`` or one of four ``channels_last_3d``.

        >>> import tesserack
        >>> from tesserack import nn
        >>> nn.Linear(2, 2).to(tesserack.float64).weight.dtype == tesserack.float64
        True
        """
        device, dtype, options = parse_to(args, kwargs)
        layout = options.pop("memory_format", None)

        def convert(tensor: Tensor) -> Tensor:
            cast = dtype is not None and (tensor.is_floating_point() or tensor.is_complex())
            laid_out = {} if layout is None or tensor.dim() not in (4, 5) else {"memory_format": layout}
            if device is None and not cast and not laid_out:
                return tensor
            place = tensor.device if device is None else device
            return tensor.to(place, dtype if cast else tensor.dtype, **options, **laid_out)

        self._check_layout(layout)
        return self._convert(convert)

    def _check_layout(self, layout: Any) -> None:
        """``RuntimeError`` if a tensor below cannot be laid out so."""
        ndim = {ts.channels_last: 4, ts.channels_last_3d: 5}.get(layout)
        if ndim is None:
            return
        tensors = [*self._parameters.values(), *self._buffers.values()]
        if any(tensor is not None and tensor.dim() in (4, 5) and tensor.dim() != ndim for tensor in tensors):
            raise RuntimeError(f"Module.to: {layout} is a layout of {ndim} dimensions, a tensor has {9 - ndim}")
        for child in self._modules.values():
            if child is not None:
                child._check_layout(layout)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to ``device`` without copying values: the tensors there are uninitialised."""
        return self._convert(lambda tensor: ts.empty_like(tensor, device=device), recurse=recurse)

    def type(self: Self, dst_type: Any) -> Self:
        """Cast every parameter and buffer, integer ones included."""
        return self._convert(lambda tensor: tensor.type(dst_type))

    def float(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self._cast(ts.float32)

    def double(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self._cast(ts.float64)

    def half(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self._cast(ts.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast(ts.bfloat16)

    def share_memory(self: Self) -> Self:
        """Move all parameters and buffers to shared memory: see :meth:`tesserack.Tensor.share_memory_`."""
        module: Any = self
        for tensor in (*module.parameters(), *module.buffers()):
            if is_lazy(tensor):
                tensor.share_memory_()  # says that there is no memory yet
        return self._convert(lambda tensor: tensor.share_memory_())

    def cpu(self: Self) -> Self:
        """Move all parameters and buffers to the cpu device."""
        return self._convert(lambda tensor: tensor.cpu())


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Device, dtype and the remaining options of a ``to`` call in any of its forms."""
    device = kwargs.pop("device", None)
    dtype = kwargs.pop("dtype", None)
    options: dict[str, Any] = {n: kwargs.pop(n) for n in ("non_blocking", "memory_format") if n in kwargs}
    like = kwargs.pop("tensor", None)
    if "copy" in kwargs:
        raise RuntimeError(
            "Module.to: expected no copy=, as modules change in place; try copy.deepcopy(module).to(...)"
        )
    if kwargs or len(args) > 3:
        raise TypeError(f"Module.to: unexpected arguments {sorted(kwargs) or args}; expected device, dtype or tensor")
    by_device = not args or not isinstance(args[0], (Tensor, ts.dtype))  # (device, dtype, ...), else (tensor, ...)
    for position, value in enumerate(args):
        if value is None:
            continue
        if isinstance(value, Tensor) and position == 0:
            like = value
        elif isinstance(value, ts.dtype) and position == int(by_device and position > 0):
            dtype = value
        elif isinstance(value, bool) and position == 1 + by_device:
            options["non_blocking"] = value
        elif position == 0:
            device = value
        else:
            raise TypeError(f"Module.to: expected (device, dtype, non_blocking), (dtype, non_blocking) or (tensor, "
                            f"non_blocking), got {type(value).__name__} as argument {position + 1}")  # fmt: skip
    if like is not None:
        device, dtype = like.device, like.dtype
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"Module.to: expected a floating-point or complex dtype, got {dtype}")
    if dtype is not None and dtype.is_complex:
        warnings.warn(
            "Complex modules are a new feature under active development whose design may change, and some modules "
            "might not work as expected when using complex tensors as parameters or buffers.",
            stacklevel=3,
        )
    return device, dtype, options
