"""Tensors on their way to another process, and which devices they come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["packed", "unpacked"]

_LARGE = 8192  # bytes of a storage; a part of a smaller one is sent with all of it, and keeps its strides


def packed(tensors: list[Tensor], devices: Mapping[ts.device, ts.device], to: Any) -> list[tuple[Tensor, str]]:
    """Tensors in host memory without their graphs, each with the device that it is for.

    Raises:
        RuntimeError: for a tensor of another device than the cpu that ``devices`` does not name.
    """
    targets = [str(_there(x, devices, to)) for x in tensors]
    return [(_on_host(x), target) for x, target in zip(tensors, targets, strict=True)]


def _there(x: Tensor, devices: Mapping[ts.device, ts.device], to: Any) -> ts.device:
    found = devices.get(x.device)
    if found is None and x.device.type != "cpu":
        raise RuntimeError(
            "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
            "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure "
            f"device mapping. Request device mapping is not available for destination {to.name}, of {x.device}"
        )
    return found or x.device


def _on_host(x: Tensor) -> Tensor:
    x = x.detach()
    if x.device.type != "cpu":
        return x.cpu()
    if x.layout is not ts.strided:
        return x
    held = x.untyped_storage().nbytes()
    return x.clone() if held >= _LARGE and held > 2 * x.numel() * x.element_size() else x


def unpacked(sent: list[tuple[Tensor, str]]) -> list[Tensor]:
    """The tensors, on the devices that they are for."""
    return [x if device == "cpu" else x.to(device) for x, device in sent]
