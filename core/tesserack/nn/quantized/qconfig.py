"""``QConfig``: which observers watch activations and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import tesserack as ts
from tesserack.nn.quantized import observer

__all__ = ["QConfig", "default_dynamic_qconfig", "float16_dynamic_qconfig", "per_channel_dynamic_qconfig"]


class QConfig(NamedTuple):
    """Makers of the observers of activations and of weights."""

    activation: Any
    weight: Any


default_dynamic_qconfig = QConfig(observer.default_dynamic_quant_observer, observer.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    observer.default_dynamic_quant_observer, observer.default_per_channel_weight_observer
)
float16_dynamic_qconfig = QConfig(
    observer.PlaceholderObserver.with_args(dtype=ts.float16, is_dynamic=True),
    observer.PlaceholderObserver.with_args(dtype=ts.float16),
)
