"""A module once for each device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from tesserack.nn.modules._registry import Registry
from tesserack.nn.modules.module import Module

__all__ = ["replicate"]

Network = TypeVar("Network", bound=Module)


def replicate(network: Network, devices: Sequence[Any], detach: bool = False) -> list[Network]:
    """A replica of ``network`` per device; its parameters are copies there through which gradients reach the originals.

    With ``detach`` they do not. A replica's parameters are no Parameters, so it lists none.

    >>> from tesserack import nn
    >>> len(replicate(nn.Linear(2, 2), ["cpu", "cpu"]))
    2
    """
    return [_replica(network, device, detach, {}) for device in devices]


def _replica(module: Any, device: Any, detach: bool, done: dict[int, Any]) -> Any:
    if id(module) in done:
        return done[id(module)]
    replica = done[id(module)] = copy.copy(module)
    for name in ("_parameters", "_buffers", "_modules"):
        replica.__dict__[name] = Registry(replica, module.__dict__[name])
    for table in (replica._parameters, replica._buffers):
        for name, tensor in list(table.items()):
            if tensor is not None:
                moved = tensor.detach() if detach else tensor
                table[name] = moved.to(device).view_as(tensor)
    for name, child in list(replica._modules.items()):
        if child is not None:
            replica._modules[name] = _replica(child, device, detach, done)
    replica._former_parameters = dict(replica._parameters)
    replica._parameters = Registry(replica)
    replica.__dict__.update(replica._former_parameters)
    return replica
