"""Tensors on their way to another process, and which devices they come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor

__all__ = ["packed", "unpacked"]

_LARGE = 8192  # bytes of a storage; a part of a smaller one is sent with all of it, and lies as it did


class Packed(NamedTuple):
    """A tensor in host memory without its graph, the device that it is for, and how it lies in what is sent."""

    data: Tensor
    device: str
    geometry: tuple[Any, Any, int] | None


def packed(tensors: list[Tensor], devices: Mapping[ts.device, ts.device], to: Any) -> list[Packed]:
    """Tensors as they are sent to a worker.

    Raises:
        RuntimeError: for a tensor of another device than the cpu that ``devices`` does not name.
    """
    targets = [str(_there(x, devices, to)) for x in tensors]
    return [
        Packed(data, target, geometry) for (data, geometry), target in zip(map(_on_host, tensors), targets, strict=True)
    ]


def _there(x: Tensor, devices: Mapping[ts.device, ts.device], to: Any) -> ts.device:
    found = devices.get(x.device)
    if found is None and x.device.type != "cpu":
        raise RuntimeError(
            "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
            "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure "
            f"device mapping. Request device mapping is not available for destination {to.name}, of {x.device}"
        )
    return found or x.device


def _on_host(x: Tensor) -> tuple[Tensor, tuple[Any, Any, int] | None]:
    """What is sent of a tensor, and its geometry within that where it does not lie densely."""
    x = x.detach()
    if x.device.type != "cpu":
        x = x.cpu()
    if x.layout is not ts.strided or x.is_contiguous() or x.is_conj() or x.is_neg():
        return x, None
    held = x.untyped_storage().nbytes() // x.element_size()
    if held * x.element_size() >= _LARGE and held > 2 * x.numel():
        return x.clone(), None
    return x.as_strided((held,), (1,), 0), (tuple(x.shape), x.stride(), x.storage_offset())


def unpacked(sent: list[Packed]) -> list[Tensor]:
    """The tensors, on the devices that they are for."""
    made = [x.data if x.geometry is None else x.data.as_strided(*x.geometry) for x in sent]
    return [x if was.device == "cpu" else x.to(was.device) for x, was in zip(made, sent, strict=True)]
