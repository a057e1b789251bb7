"""``torch.functional``: functions of the top level under the module that defines them in PyTorch."""

from __future__ import annotations

from typing import Any

from tesserack.compat import _facade

_NAMES = frozenset(
    (
        "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
        "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split",
        "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive", "unravel_index",
    )
)  # fmt: skip
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(_facade.get("torch"), name)  # the same object under both names
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
