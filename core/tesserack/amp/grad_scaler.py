"""Scaling of losses, so that gradients of half precision do not vanish."""

from __future__ import annotations

import inspect
import math
import warnings
from enum import Enum
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.autograd._whole import keeps_itself, whole
from tesserack.backends._card import CARD

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer has come in this iteration."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf": None}


def _single(value: float) -> float:
    """Rounded to float32, which losses are multiplied in."""
    return float(_native.tensor(value, dtype=_native.float32, device="cpu"))


@keeps_itself
class GradScaler:
    """Multiplies the loss by a factor, divides the gradients by it, skips steps with infinite gradients, and adapts the
    factor: it falls after such a step and grows after ``growth_interval`` good ones.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``, with ``scaler.unscale_(optimizer)``
    before gradients are clipped.

    Where the device is not available the scaler is off, with a warning, and passes everything through.
    """

    def __init__(
        self,
        device: str = CARD,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and not _usable(device):
            warnings.warn(f"GradScaler: no device {device!r} can be used; the scaler is disabled", stacklevel=2)
            self._enabled = False
        if self._enabled and not (growth_factor > 1.0 and 0.0 < backoff_factor < 1.0):
            raise ValueError(
                "GradScaler: expected growth_factor above 1 and backoff_factor between 0 and 1, "
                f"got {growth_factor} and {backoff_factor}"
            )
        self._init_scale, self._factor = init_scale, float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._per_optimizer: dict[int, dict[str, Any]] = {}

    @property
    def _scale(self) -> Tensor:
        """The factor, as programs written for PyTorch look at it."""
        return _native.tensor(self._factor)

    @_scale.setter
    def _scale(self, value: float | Tensor) -> None:
        self._factor = float(value)

    @property
    def _init_growth_tracker(self) -> int:
        """As the next one is named until the first loss is scaled, in PyTorch."""
        return self._growth_tracker

    @_init_growth_tracker.setter
    def _init_growth_tracker(self, value: int) -> None:
        self._growth_tracker = value

    def _state(self, optimizer: Any) -> dict[str, Any]:
        return self._per_optimizer.setdefault(id(optimizer), _fresh())

    @whole
    def scale(self, outputs: Any) -> Any:
        """A tensor, or a list or tuple of them, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._factor
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(value) for value in outputs)
        raise ValueError(f"scale: expected tensors, got {type(outputs).__name__}")

    @whole
    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, in place.

        ``RuntimeError`` if that was done since the last ``update``, ``ValueError`` for float16 gradients.
        """
        if not self._enabled:
            return
        state = self._state(optimizer)
        if state["stage"] is not OptState.READY:
            done = "unscaled" if state["stage"] is OptState.UNSCALED else "stepped"
            raise RuntimeError(f"unscale_: this optimizer was {done} already since the last update()")
        scale, none = (_native.tensor(x, dtype=_native.float32, device="cpu") for x in (1.0 / self._factor, 0.0))
        found = self._unscale_grads_(optimizer, scale, none, False)
        state["found_inf"] = any(bool(flag) for flag in found.values())
        state["stage"] = OptState.UNSCALED

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        """Multiply gradients by ``inv_scale``; by device, 1 where one is infinite or NaN, else 0. Scalers of sharded
        gradients ask their other ranks here."""
        finite: dict[Any, list[Tensor]] = {}
        factor = float(inv_scale)
        with _native.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    if parameter.grad.dtype == _native.float16 and not allow_fp16:
                        raise ValueError(
                            "unscale_: expected gradients of float32, got float16; keep parameters float32"
                        )
                    if parameter.grad.is_sparse:  # finite as a whole: entries of one place add up
                        parameter.grad = parameter.grad.coalesce()
                    values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
                    values.mul_(factor)
                    finite.setdefault(values.device, []).append(values.isfinite().all())
            return {
                device: found_inf.to(device) + float(not all(bool(flag) for flag in flags))
                for device, flags in finite.items()
            }

    @whole
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale if that was not done yet, and step unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("step: closures are not supported under a GradScaler")
        state = self._state(optimizer)
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step: it was called already since the last update()")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_of_its_own(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        result = None if state["found_inf"] else optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _step_of_its_own(self, optimizer: Any, state: dict[str, Any], args: Any, kwargs: Any) -> Any:
        """The step of an optimizer that unscales itself: it gets the scaler, or ``grad_scale`` and ``found_inf``."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the "
                "near future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer "
                "and let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, **kwargs, grad_scaler=self)
            state["stage"] = OptState.STEPPED
            return result
        unscaled = state["stage"] is OptState.UNSCALED
        if not unscaled:
            state["found_inf"] = self._found_inf(optimizer)
        given = getattr(optimizer, "grad_scale", None)
        scale = _native.tensor(self._factor)
        optimizer.grad_scale = given if unscaled else scale if given is None else scale * given
        optimizer.found_inf = _native.tensor(float(bool(state["found_inf"])))
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            state["stage"] = OptState.STEPPED
            del optimizer.grad_scale, optimizer.found_inf

    @staticmethod
    def _found_inf(optimizer: Any) -> bool:
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        with _native.no_grad():
            return not all(bool(grad.isfinite().all()) for grad in grads)

    @whole
    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the factor by what the steps since the last call met, or set it."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._factor = float(new_scale)
        else:
            self._adapt([state["found_inf"] for state in self._per_optimizer.values()])
        self._per_optimizer = {}

    def _adapt(self, found: list[bool | None]) -> None:
        if all(flag is None for flag in found):
            raise RuntimeError("update: no gradient was checked since the last update(); call step() before it")
        if any(found):
            self._factor = _single(self._factor * self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = _single(self._factor * self._growth_factor)
            if math.isfinite(grown):  # every scaled loss would be infinite from then on
                self._factor = grown
            self._growth_tracker = 0

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The factor; 1 if the scaler is off."""
        return self._factor if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the factor is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by when it falls."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the factor is multiplied by when it falls."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps the factor grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The factor and its rules; empty if the scaler is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self._factor,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned. ``RuntimeError`` for an empty one, of a scaler that was off."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("load_state_dict: the state is empty: it was saved by a disabled scaler")
        self._factor = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]


def _usable(device: str) -> bool:
    try:
        _native._resolve_device(device)
    except (RuntimeError, ValueError):
        return False
    return True
