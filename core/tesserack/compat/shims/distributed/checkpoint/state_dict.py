"""``torch.distributed.checkpoint.state_dict``: the states of models in one process, where nothing is to be gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tesserack import Tensor, nn

__all__ = ["StateDictOptions", "get_model_state_dict", "set_model_state_dict"]


@dataclass(frozen=True)
class StateDictOptions:
    """How states are taken and given; what concerns several processes changes nothing."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(
    model: nn.Module, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """``model.state_dict()``: on the cpu with ``cpu_offload``, without frozen parameters where the options say so."""
    options = options or StateDictOptions()
    state: dict[str, Any] = dict(model.state_dict())
    if options.ignore_frozen_params:
        frozen = {name for name, param in model.named_parameters() if not param.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    if options.cpu_offload:
        state = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}
    return state


def set_model_state_dict(
    model: nn.Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """``model.load_state_dict()``, as strict as the options say."""
    return model.load_state_dict(model_state_dict, strict=(options or StateDictOptions()).strict)
