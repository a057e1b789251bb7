"""Regions in which operators choose the dtype they compute in."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tesserack import _native, backends
from tesserack._native import Tensor
from tesserack.backends._card import CARD

__all__ = [
    "autocast",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])
_LOWER = (_native.bfloat16, _native.float16)


class _State(threading.local):
    """One thread's regions: by device type, whether one is entered and the dtype it has or would have."""

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, _native.dtype] = {}
        self.cache = True
        self.depth = 0


_state = _State()


def _default_dtype(device_type: str) -> _native.dtype:
    return _native.bfloat16 if device_type == "cpu" else _native.float16


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast takes tensors of this device type: all that can be named, but ``"meta"``."""
    return device_type != "meta"


def is_autocast_enabled(device_type: str = CARD) -> bool:
    """Whether the calling thread is in an enabled region for this device type."""
    return _state.enabled.get(device_type, False)


def get_autocast_dtype(device_type: str) -> _native.dtype:
    """The dtype of a region for this device type: bfloat16 on cpu and float16 elsewhere unless set."""
    return _state.dtypes.get(device_type, _default_dtype(device_type))


def entered_regions() -> tuple[tuple[str, str], ...]:
    """Device types with an enabled region of the calling thread, and its dtype, in the order of their names."""
    return tuple((name, str(get_autocast_dtype(name))) for name, on in sorted(_state.enabled.items()) if on)


def widened(x: Tensor) -> Tensor:
    """``x`` as float32 where a region of its device is entered whose memory is the host's: for functions in Python that
    autocast runs so there, as ``autocast:float32/-`` says it of operators."""
    if not entered_regions() or x.dtype not in (_native.float16, _native.bfloat16):
        return x
    if not is_autocast_enabled(x.device.type) or not backends.properties(x.device)["host_memory"]:
        return x
    return x.float()


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast for a device type (cards where only the switch is given); prefer :class:`autocast`."""
    if enabled is None:
        device_type, enabled = CARD, bool(device_type)
    _apply(str(device_type), enabled, get_autocast_dtype(str(device_type)))


def set_autocast_dtype(device_type: str, dtype: _native.dtype) -> None:
    """Set the dtype that regions for a device type have."""
    _apply(device_type, is_autocast_enabled(device_type), dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept until the outermost region ends."""
    return _state.cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether casts of parameters are kept."""
    _state.cache = enabled


def clear_autocast_cache() -> None:
    """Drop the casts that are kept."""
    _native._clear_autocast_cache()


def _apply(device_type: str, enabled: bool, dtype: _native.dtype) -> None:
    from tesserack.amp import _policies

    _policies.install()
    _state.enabled[device_type] = enabled
    _state.dtypes[device_type] = dtype
    _native._set_autocast_dtype(device_type, dtype if enabled else None)


class autocast:
    """A region, or a decorated function, in which matrix products and convolutions compute in a dtype of half the size
    and what needs range computes in float32.

    Args:
        device_type: the device whose tensors are concerned, such as ``"cpu"``.
        dtype: bfloat16 or float16; see :func:`get_autocast_dtype`. Others switch the region off, with a warning.
        enabled: a region that is not enabled switches an outer one off.
        cache_enabled: whether a parameter is cast once per region rather than at each use.

    >>> import tesserack as ts
    >>> with ts.autocast("cpu"):
    ...     product = ts.ones(2, 2) @ ts.ones(2, 2)
    >>> product.dtype
    tesserack.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: _native.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"autocast: expected device_type to be a str, got {type(device_type).__name__}")
        self.device = device_type.partition(":")[0]
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        if enabled and self.fast_dtype not in _LOWER:
            warnings.warn(
                f"autocast: expected bfloat16 or float16, got {self.fast_dtype}; the region is disabled", stacklevel=2
            )
            enabled = False
        self._enabled = enabled
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._before: list[tuple[bool, _native.dtype, bool]] = []

    def __enter__(self) -> autocast:
        self._before.append((is_autocast_enabled(self.device), get_autocast_dtype(self.device), _state.cache))
        _apply(self.device, self._enabled, self.fast_dtype)
        _state.cache = self._cache_enabled
        _state.depth += 1
        _native._keep_autocast_casts(bool(self._cache_enabled))
        return self

    def __exit__(self, *exc: object) -> None:
        enabled, dtype, cache = self._before.pop()
        _state.depth -= 1
        if _state.depth == 0:
            _native._keep_autocast_casts(False)
            clear_autocast_cache()
        else:
            _native._keep_autocast_casts(bool(cache))
        _apply(self.device, enabled, dtype)
        _state.cache = cache

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


# --- functions with a gradient of their own ------------------------------------------------------------------------


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = CARD, cast_inputs: _native.dtype | None = None
) -> Any:
    """Decorator for ``forward`` of an ``autograd.Function``: it runs with autocast as it was at the call.

    With ``cast_inputs``, floating tensors on the device are cast to that dtype and autocast is off inside.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            cast = {name: _cast(value, device_type, cast_inputs) for name, value in kwargs.items()}
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **cast)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = CARD) -> Any:
    """Decorator for ``backward`` of an ``autograd.Function``: it runs with autocast as ``forward`` did."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast(value: Any, device_type: str, dtype: _native.dtype) -> Any:
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype != _native.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, dict):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def kept_regions() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What enters the calling thread's regions of now again, and leaves whatever is entered by then."""
    kept = {kind: (enabled, get_autocast_dtype(kind)) for kind, enabled in _state.enabled.items()}
    cache = _state.cache

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        with contextlib.ExitStack() as regions:
            for kind in {**kept, **_state.enabled}:
                enabled, dtype = kept.get(kind, (False, get_autocast_dtype(kind)))
                if enabled or is_autocast_enabled(kind):
                    regions.enter_context(autocast(kind, dtype, enabled, cache))
            yield

    return again
