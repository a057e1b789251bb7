"""``torch.testing._utils``: what PyTorch's tests, and those of packages after them, do around a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack.compat.shims.testing._internal.common_utils import freeze_rng_state

__all__ = ["freeze_rng_state", "wrapper_set_seed"]


def wrapper_set_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What an operator gives after the seed 42; the generators are afterwards as they were."""
    with freeze_rng_state():
        ts.manual_seed(42)
        return op(*args, **kwargs)
