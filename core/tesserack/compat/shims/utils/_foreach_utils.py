"""``torch.utils._foreach_utils``: lists of tensors sorted by device and dtype."""

from __future__ import annotations

from tesserack.optim._kept_names import group_by_device_and_dtype as _group_tensors_by_device_and_dtype

__all__: list[str] = []

_ = _group_tensors_by_device_and_dtype


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Kinds of devices whose steps over lists are one launch in PyTorch."""
    return ["cuda", "xpu", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Kinds of devices with fused steps in PyTorch."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "privateuseone"]
