"""What CUDA tells of a device beyond what every device does, under PyTorch's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tesserack.backends import DeviceProperties

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["CudaDeviceProperties", "told_by_cuda"]

# PyTorch's names of CUDA's numbers. Some are not in every version of its runtime: they are 0 then.
_NUMBERS = {
    "major": "major",
    "minor": "minor",
    "warp_size": "warpSize",
    "max_threads_per_block": "maxThreadsPerBlock",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor",
    "regs_per_multiprocessor": "regsPerMultiprocessor",
    "shared_memory_per_block": "sharedMemPerBlock",
    "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
    "L2_cache_size": "l2CacheSize",
    "is_integrated": "integrated",
    "is_multi_gpu_board": "isMultiGpuBoard",
    "clock_rate": "clockRate",
    "memory_clock_rate": "memoryClockRate",
    "memory_bus_width": "memoryBusWidth",
    "pci_bus_id": "pciBusID",
    "pci_device_id": "pciDeviceID",
    "pci_domain_id": "pciDomainID",
}


@dataclass(frozen=True)
class CudaDeviceProperties(DeviceProperties):
    """Properties of an NVIDIA device. Sizes are in bytes, rates in kHz; 0 means unknown."""

    major: int
    minor: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: int
    is_multi_gpu_board: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    uuid: UUID | None


def told_by_cuda(backend: CUDA, device: int, known: DeviceProperties) -> CudaDeviceProperties:
    """What every device has, and what CUDA tells of this one."""
    told = backend.attributes(device)
    numbers: dict[str, Any] = {ours: int(told.get(theirs, 0)) for ours, theirs in _NUMBERS.items()}
    return CudaDeviceProperties(**vars(known), **numbers, uuid=_uuid(told.get("uuid")))


def _uuid(told: Any) -> UUID | None:
    return UUID(bytes=told) if isinstance(told, bytes) and len(told) == 16 else None
