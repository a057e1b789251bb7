"""``torch.functional``: functions of the top level under the module that defines them in PyTorch."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack.compat.shims import norm as norm

_NAMES = frozenset(
    (
        "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
        "cartesian_prod", "cdist", "chain_matmul", "einsum", "lu", "meshgrid", "split", "stft", "tensordot", "unique",
        "unique_consecutive", "unravel_index",
    )
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(ts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
