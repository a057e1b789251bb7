"""Automatic mixed precision: :class:`autocast` chooses dtypes, :class:`GradScaler` keeps small gradients."""

from tesserack.amp import autocast_mode, grad_scaler
from tesserack.amp._autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from tesserack.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "autocast_mode",
    "custom_bwd",
    "custom_fwd",
    "grad_scaler",
    "is_autocast_available",
]
