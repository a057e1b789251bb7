"""What ``FullyShardedDataParallel`` is told: strategies, dtypes, kinds of state dicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tesserack.nn.modules.batchnorm import BatchNorm1d

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]

_BATCH_NORM = next(cls for cls in BatchNorm1d.__mro__ if cls.__name__ == "_BatchNorm")


class ShardingStrategy(Enum):
    """What ranks divide: parameters, gradients and the optimizer's state (``FULL_SHARD``); as much, but parameters are
    whole from forward to backward (``SHARD_GRAD_OP``); nothing (``NO_SHARD``); or all of it within a machine, of which
    the others have copies (``HYBRID_SHARD``)."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When backward gathers the next unit's parameters: before this unit's gradients are computed, or after."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Dtypes of parameters while they are whole, of reduced gradients (by default the same) and of buffers; whether
    inputs of units, or of the root, are cast. Modules of ``_module_classes_to_ignore`` keep theirs."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = field(default=(_BATCH_NORM,))


@dataclass
class CPUOffload:
    """Whether this rank's part of parameters and gradients stays in host memory."""

    offload_params: bool = False


class StateDictType(Enum):
    """What a state dict holds: whole tensors under the names of the model, this rank's flat parts, or ``DTensor``s."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """What an optimizer's state is kept under: names of parameters, or their numbers."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


@dataclass
class StateDictConfig:
    """How state dicts of modules are made."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors; with ``rank0_only`` the other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """This rank's flat parts."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """``DTensor``s."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """How state dicts of optimizers are made."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Whole tensors; with ``rank0_only`` the other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """This rank's flat parts."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """``DTensor``s."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """The kind of state dicts that a model makes, and how."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
