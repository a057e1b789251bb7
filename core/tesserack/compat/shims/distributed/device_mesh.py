"""``torch.distributed.device_mesh``: there is one process, so no mesh; the names can be imported, and replaced."""

from __future__ import annotations

from typing import Any

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Devices of several processes: ``RuntimeError`` when one is made."""

    def __init__(self, device_type: str, mesh: Any, **options: Any) -> None:
        raise RuntimeError("DeviceMesh: there is one process; torch.distributed.is_available() says so")


def init_device_mesh(device_type: str, mesh_shape: Any, **options: Any) -> Any:
    """``RuntimeError``: there is one process."""
    raise RuntimeError("init_device_mesh: there is one process; torch.distributed.is_available() says so")
