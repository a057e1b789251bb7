"""``torch.fx.immutable_collections``, with the older names of its classes' makers."""

from __future__ import annotations

from tesserack.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["immutable_dict", "immutable_list"]
