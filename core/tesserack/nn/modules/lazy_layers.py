"""Layers that take the number of their inputs from the first one."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from tesserack.nn.modules.conv import Conv1d, Conv2d, Conv3d
from tesserack.nn.modules.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tesserack.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm
from tesserack.nn.modules.lazy import LazyModuleMixin
from tesserack.nn.modules.linear import Linear
from tesserack.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyLinear(LazyModuleMixin, Linear):
    """A :class:`Linear` whose ``in_features`` is the last size of its first input.

    >>> from tesserack import nn, ones
    >>> layer = nn.LazyLinear(3)
    >>> layer
    LazyLinear(in_features=0, out_features=3, bias=True)
    >>> tuple(layer(ones(2, 5)).shape), layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            with ts.no_grad():
                self.in_features = input.shape[-1]
                _materialize(self.weight, (self.out_features, self.in_features))
                if self.bias is not None:
                    _materialize(self.bias, (self.out_features,))
                self.reset_parameters()
        self._take_sizes()

    def _take_sizes(self) -> None:
        self.in_features = self.weight.shape[-1]


def _materialize(tensor: Any, shape: tuple[int, ...]) -> None:
    if is_lazy(tensor):
        tensor.materialize(shape)


class _LazyConv(LazyModuleMixin):
    """Takes ``in_channels`` from the first input."""

    _dims: int

    def _make_lazy(self, bias: bool, out_channels: int, device: Any, dtype: Any) -> None:
        module: Any = self
        module.weight = UninitializedParameter(device=device, dtype=dtype)
        module.out_channels = out_channels
        if bias:
            module.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values, once there are shapes."""
        module: Any = self
        if not self.has_uninitialized_params() and module.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        module: Any = self
        if self.has_uninitialized_params():
            module.in_channels = self._channels(input)
            if module.in_channels % module.groups:
                raise ValueError("in_channels must be divisible by groups")
            outputs, inputs = module.out_channels, module.in_channels
            pair = (inputs, outputs // module.groups) if module.transposed else (outputs, inputs // module.groups)
            _materialize(module.weight, (*pair, *module.kernel_size))
            if module.bias is not None:
                _materialize(module.bias, (outputs,))
            self.reset_parameters()

    def _take_sizes(self) -> None:
        module: Any = self
        shape = module.weight.shape
        module.in_channels = shape[0] if module.transposed else shape[1] * module.groups

    def _channels(self, input: Tensor) -> int:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(
                f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {tuple(input.shape)}"
            )
        return input.shape[-self._dims - 1]


def _lazy_conv(dims: int, base: Any) -> Any:
    class Lazy(_LazyConv, base):  # type: ignore[misc]
        _dims = dims
        cls_to_become = base

        def __init__(
            self,
            out_channels: int,
            kernel_size: Any,
            stride: Any = 1,
            padding: Any = 0,
            dilation: Any = 1,
            groups: int = 1,
            bias: bool = True,
            padding_mode: str = "zeros",
            device: Any = None,
            dtype: Any = None,
        ) -> None:
            super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
            self._make_lazy(bias, out_channels, device, dtype)

    return _named(Lazy, f"LazyConv{dims}d", f"A :class:`Conv{dims}d` that takes ``in_channels`` from its first input.")


def _lazy_conv_transpose(dims: int, base: Any) -> Any:
    class Lazy(_LazyConv, base):  # type: ignore[misc]
        _dims = dims
        cls_to_become = base

        def __init__(
            self,
            out_channels: int,
            kernel_size: Any,
            stride: Any = 1,
            padding: Any = 0,
            output_padding: Any = 0,
            groups: int = 1,
            bias: bool = True,
            dilation: Any = 1,
            padding_mode: str = "zeros",
            device: Any = None,
            dtype: Any = None,
        ) -> None:
            options = (kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
            super().__init__(0, 0, *options)
            self._make_lazy(bias, out_channels, device, dtype)

    text = f"A :class:`ConvTranspose{dims}d` that takes ``in_channels`` from its first input."
    return _named(Lazy, f"LazyConvTranspose{dims}d", text)


class _LazyNormBase(LazyModuleMixin):
    """Takes ``num_features`` from the first input."""

    def _make_lazy(self, affine: bool, bias: bool, track: bool, device: Any, dtype: Any) -> None:
        module: Any = self
        module.affine, module.track_running_stats = affine, track
        if affine:
            module.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                module.bias = UninitializedParameter(device=device, dtype=dtype)
        if track:
            module.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            module.running_var = UninitializedBuffer(device=device, dtype=dtype)
            module.num_batches_tracked = ts.tensor(0, dtype=ts.int64, device=device)

    def reset_parameters(self) -> None:
        """As at the start, once there are shapes."""
        module: Any = self
        if not self.has_uninitialized_params() and module.num_features != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor) -> None:
        module: Any = self
        if self.has_uninitialized_params():
            module.num_features = input.shape[self._channel_dim(input)]
            for name in ("weight", "bias", "running_mean", "running_var"):
                _materialize(getattr(module, name), (module.num_features,))
            self.reset_parameters()

    def _take_sizes(self) -> None:
        module: Any = self
        known = next((t for t in (module.weight, module.running_mean) if t is not None), None)
        if known is not None:
            module.num_features = known.shape[0]

    def _channel_dim(self, input: Tensor) -> int:
        return 1


def _lazy_norm(base: Any, kind: Any) -> Any:
    """The lazy form of a normalisation: one of its kind, but as in PyTorch none of its class until it has shapes."""

    class Lazy(_LazyNormBase, kind):  # type: ignore[misc]
        cls_to_become = base
        _dimensions = base._dimensions

        def __init__(
            self,
            eps: float = 1e-5,
            momentum: float | None = 0.1,
            affine: bool = True,
            track_running_stats: bool = True,
            device: Any = None,
            dtype: Any = None,
            *,
            bias: bool = True,
        ) -> None:
            super().__init__(0, eps, momentum, False, False)
            self._make_lazy(affine, bias, track_running_stats, device, dtype)

        def _channel_dim(self, input: Tensor) -> int:
            if kind is _BatchNorm:
                return 1
            return 1 if input.ndim == max(self._dimensions) else 0

    return _named(
        Lazy, f"Lazy{base.__name__}", f"A :class:`{base.__name__}` that takes ``num_features`` from its first input."
    )


def _named(made: Any, name: str, text: str) -> Any:
    made.__name__ = made.__qualname__ = name
    made.__module__ = __name__
    made.__doc__ = text
    return made


LazyConv1d = _lazy_conv(1, Conv1d)
LazyConv2d = _lazy_conv(2, Conv2d)
LazyConv3d = _lazy_conv(3, Conv3d)
LazyConvTranspose1d = _lazy_conv_transpose(1, ConvTranspose1d)
LazyConvTranspose2d = _lazy_conv_transpose(2, ConvTranspose2d)
LazyConvTranspose3d = _lazy_conv_transpose(3, ConvTranspose3d)
LazyBatchNorm1d = _lazy_norm(BatchNorm1d, _BatchNorm)
LazyBatchNorm2d = _lazy_norm(BatchNorm2d, _BatchNorm)
LazyBatchNorm3d = _lazy_norm(BatchNorm3d, _BatchNorm)
# PyTorch's lazy forms start as batch normalisations do, unlike InstanceNorm itself.
LazyInstanceNorm1d = _lazy_norm(InstanceNorm1d, _InstanceNorm)
LazyInstanceNorm2d = _lazy_norm(InstanceNorm2d, _InstanceNorm)
LazyInstanceNorm3d = _lazy_norm(InstanceNorm3d, _InstanceNorm)
