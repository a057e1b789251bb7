"""Filling tensors with initial values; every function works in place, records no gradient and returns its tensor."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, no_grad

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much to scale weights so that values keep their variance through ``nonlinearity``.

    ``param`` is the negative slope for ``"leaky_relu"`` (0.01 if not given). Raises ``ValueError`` for unknown names.

    >>> calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / (1 + 0.2**2))
    True
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"calculate_gain: expected a number as negative slope, got {param!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}  # 0.75 as PyTorch has it
    if nonlinearity not in gains:
        raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}")
    return gains[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform values in ``[a, b)``.

    >>> bool((uniform_(ts.empty(3, 5), 2.0, 3.0) >= 2).all())
    True
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normally distributed values."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same value everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere: a Linear layer then passes on as much as fits."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_: expected 2 dimensions, got shape {tuple(tensor.shape)}")
    with no_grad():
        return tensor.copy_(ts.eye(*tensor.shape, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight (3, 4 or 5 dimensions) that passes as many channels unchanged as fit, in each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: expected 3, 4 or 5 dimensions, got shape {tuple(tensor.shape)}")
    out_channels, in_channels = tensor.shape[:2]
    if out_channels % groups:
        raise ValueError(f"dirac_: expected out_channels divisible by groups={groups}, got {out_channels}")
    per_group = out_channels // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, in_channels)):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal values conditioned on ``[a, b]``, by rejection: of normal draws where three in ten fall inside, else of
    uniform ones.

    Warns when ``mean`` lies more than two ``std`` outside the interval: few values there are representable.
    """
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "trunc_normal_: mean is more than 2 std from [a, b]; the values may be badly distributed", stacklevel=2
        )
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2.0))) / 2 for bound in (a, b))
    with no_grad():
        if high - low > 0.3:
            return _redraw_outside(tensor, mean, std, a, b, generator)
        return _accept_uniform(tensor, mean, std, a, b, generator)


def _redraw_outside(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    first, last = (float(tensor.new_tensor(bound, device="cpu")) for bound in (a, b))  # as the dtype has them
    tensor.normal_(mean, std, generator=generator)
    while bool((outside := (tensor < first) | (tensor > last)).any()):
        again = ts.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(ts.where(outside, again, tensor))
    return tensor


def _accept_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """A candidate is taken with its density's share of the largest density in the interval."""
    largest = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    candidates, chances = ts.empty_like(tensor), ts.empty_like(tensor)
    pending = ts.ones_like(tensor, dtype=ts.bool)
    while bool(pending.any()):
        candidates.uniform_(a, b, generator=generator)
        tensor.copy_(ts.where(pending, candidates, tensor))
        share = candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(largest)
        pending &= chances.uniform_(generator=generator).log_() > share
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Inputs per output and outputs per input of a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise ValueError(f"fan in and fan out: expected at least 2 dimensions, got shape {tuple(tensor.shape)}")
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive_field, tensor.shape[0] * receptive_field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"mode: expected 'fan_in' or 'fan_out', got {mode!r}")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode.lower() == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan) (He et al., arXiv:1502.01852); ``a``: the slope of a leaky relu after it."""
    if _nothing_to_fill(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with std gain / sqrt(fan) (He et al., arXiv:1502.01852)."""
    if _nothing_to_fill(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _nothing_to_fill(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("initialising a tensor without elements does nothing", stacklevel=3)
        return True
    return False


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """A matrix with orthonormal rows or columns (whichever are fewer), times ``gain`` (Saxe et al., arXiv:1312.6120).

    Later dimensions are flattened into columns. It is the Q of a random normal matrix, its signs those that make R's
    diagonal positive, so that all such matrices are as likely.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got shape {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        flat = ts.empty((rows, cols), dtype=tensor.dtype, device=tensor.device).normal_(0, 1, generator=generator)
        if flat.dtype in (ts.float16, ts.bfloat16):  # no factorisation has these
            flat = flat.float()
        basis, upper = ts.linalg.qr(flat.t() if rows < cols else flat)
        basis = basis * upper.diagonal().sgn()
        return tensor.copy_((basis.t() if rows < cols else basis).reshape(tensor.shape)).mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal values of a matrix, with the fraction ``sparsity`` of every column set to zero (Martens, 2010)."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: expected 2 dimensions, got shape {tuple(tensor.shape)}")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[ts.randperm(rows, device=tensor.device)[:zeros], col] = 0
    return tensor


def _renamed(old: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"nn.init.{old} is now nn.init.{old}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"The old name of :func:`{old}_`."
    return call


uniform = _renamed("uniform", uniform_)
normal = _renamed("normal", normal_)
constant = _renamed("constant", constant_)
xavier_uniform = _renamed("xavier_uniform", xavier_uniform_)
xavier_normal = _renamed("xavier_normal", xavier_normal_)
kaiming_uniform = _renamed("kaiming_uniform", kaiming_uniform_)
kaiming_normal = _renamed("kaiming_normal", kaiming_normal_)
orthogonal = _renamed("orthogonal", orthogonal_)
eye = _renamed("eye", eye_)
dirac = _renamed("dirac", dirac_)
sparse = _renamed("sparse", sparse_)
