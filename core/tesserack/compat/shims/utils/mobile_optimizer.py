"""``torch.utils.mobile_optimizer``: what its functions are told and find; the functions themselves are missing."""

from __future__ import annotations

import enum

__all__ = ["LintCode", "MobileOptimizerType"]


class MobileOptimizerType(enum.IntEnum):
    """Steps that programs ask to be left out."""

    CONV_BN_FUSION = 0
    INSERT_FOLD_PREPACK_OPS = 1
    REMOVE_DROPOUT = 2
    FUSE_ADD_RELU = 3
    HOIST_CONV_PACKED_PARAMS = 4
    VULKAN_AUTOMATIC_GPU_TRANSFER = 6


class LintCode(enum.Enum):
    """What a module may have that has no place in a finished program."""

    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4
