"""``torch.utils._foreach_utils``: lists of tensors sorted by device and dtype."""

from __future__ import annotations

from tesserack.optim._kept_names import group_by_device_and_dtype as _group_tensors_by_device_and_dtype

__all__: list[str] = []

_ = _group_tensors_by_device_and_dtype
